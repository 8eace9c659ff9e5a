"""Running an agent that is a command: words in, exit out, and everything that can go wrong between.

There is no shell anywhere. The prompt is data: it is handed over byte by byte, never looked at,
and a placeholder inside it stays the characters it is.
"""

import contextlib
import errno
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import IO, Protocol

from routines.agents.base import Reply, Turn, TurnResult
from routines.agents.output import Capture, Lines, bounded, open_captures
from routines.agents.processes import (
    STOP_INTERVAL_S,
    Tree,
    end_tree,
    own_children,
    start_program,
)
from routines.agents.reading import Reader, Said
from routines.domain.agent import (
    OPTIONS,
    PLACEHOLDERS,
    AgentSpec,
    OutputFormat,
    PromptBy,
    Signs,
)
from routines.domain.clock import Clock
from routines.domain.durations import format_span
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason, Warn, one_line

# The kernel's MAX_ARG_STRLEN on Linux, 32 pages of 4 KiB, the closing NUL included.
_LONGEST_ARGUMENT = 32 * 4096 - 1 if sys.platform == "linux" else None
# How often a cancel or a stop is looked for (L17 asks for a second).
_LOOK_EVERY_S = 0.5
# What a program that has said all gets to put its things in order, before it is told by a signal.
_GOODBYE_S = 2.0
# How often the end is looked for where the kernel does not announce it (macOS, some sandboxes).
_POLL_S = 0.05
# Orphans that ended are taken off the process table so rarely because it costs a walk over it.
_REAP_EVERY_S = 10.0
# After the leader's end its output is in the pipe already; this is for a child that it waited
# for in spirit only, such as the `tee` behind it.
_QUIET_S = 0.1
# What is still carried then: more than any pipe holds, so the leader's words are all there, and
# little enough that a child that goes on printing delays nothing.
_LAST_READS = 32
_READ_BYTES = 256 * 1024
# As much of the prompt at once as a pipe holds at most by default.
_WRITE_BYTES = 64 * 1024
# One wait carries at most so many reads before it looks up: 16 MiB.
_READS_A_WAIT = 64

_PLACEHOLDER = re.compile("{(" + "|".join(sorted(PLACEHOLDERS, key=len, reverse=True)) + ")}")

# What `stop_requested` may answer, and what the turn is then.
STOP_WORDS: Mapping[str, tuple[Outcome, Reason | None]] = {
    "cancel": (Outcome.CANCELLED, Reason.PERSON),
    "turn": (Outcome.CANCELLED, Reason.TURN),
    "purge": (Outcome.CANCELLED, Reason.PURGE),
    "supersede": (Outcome.SUPERSEDED, None),
    # The program went on with a conversation that another session has.
    "taken": (Outcome.FAILED, Reason.SESSION_CHANGED),
    "stop": (Outcome.INTERRUPTED, Reason.STOPPED),
    # As `stop`, without the pauses between the signals: a second ^C.
    "now": (Outcome.INTERRUPTED, Reason.STOPPED),
}
HURRY = "now"
# Why a program was ended, beside those words: its time was over.
TIMEOUT = "timeout"
_NO_WORDS = "it declared a failure"

# Nothing is wrong with command or entry; the machine has no room at this moment.
_MAY_HEAL = frozenset(
    [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR]
)


class CannotStart(Exception):
    """Nothing was started.

    Attributes:
        result: What the turn is for that.
    """

    def __init__(self, outcome: Outcome | None, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.result = TurnResult(outcome=outcome, reason=reason, detail=one_line(detail))


def _not_found(detail: str) -> CannotStart:
    return CannotStart(Outcome.FAILED, Reason.NOT_FOUND, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        code: Its exit code; None if a signal ended it, or if that can't be told.
        signal: The number of the signal that ended it; with `code` None too: nobody can tell.
        why: Why it was ended by us (`timeout` or a word of `STOP_WORDS`); None if it ended itself.
        remain: Pids of its tree that could not be ended.
    """

    code: int | None
    signal: int | None
    why: str | None
    remain: tuple[int, ...] = ()


class Dialog(Protocol):
    """What is said with a program while it runs, in place of one prompt on its stdin."""

    @property
    def over(self) -> bool:
        """Whether all has been said: the program has nothing more to do."""

    def begin(self, say: Callable[[bytes], None]) -> None:
        """Begin; *say* is given what goes to the program's stdin."""

    def hear(self, data: bytes) -> None:
        """Take what the program printed on stdout."""

    def interrupt(self) -> None:
        """Ask the program to come to its end."""

    def pass_time(self, now: float) -> bool:
        """Let time pass, to *now* (awake); return whether the program takes too long to begin."""


# What is run ----------------------------------------------------------------------------------


def native_session_of(spec: AgentSpec, turn: Turn) -> str | None:
    """Return the id by which the program knows this conversation, None if only it can say.

    Where the first turn hands over an id of ours that is it, also if that turn was killed before
    it could answer.
    """
    if turn.native_session is not None:
        return turn.native_session
    minted = any("{session_uuid}" in word for word in spec.first or ())
    return turn.session_uuid if minted else None


def command_words(
    spec: AgentSpec, turn: Turn, *, args: Sequence[str] = (), model: str | None = None
) -> list[str]:
    """Return the words of *turn*'s command, placeholders filled in.

    Words of *args* are the routine's own and taken as they are.

    Raises:
        CannotStart: The words need an id of the conversation, and none is known.
    """
    chosen = chosen_words(spec, turn)
    native = native_session_of(spec, turn)
    if native is None and any("{native_session}" in word for word in chosen):
        raise CannotStart(
            Outcome.FAILED,
            Reason.SESSION_LOST,
            f"the id by which {spec.name} knows {turn.session} is not known",
        )
    named = any("{session_file}" in word for word in chosen)
    if named and not turn.first and not os.path.exists(turn.session_file):
        # Most programs would begin another conversation in its place, without a word.
        raise CannotStart(None, Reason.SESSION_LOST, f"its file is gone: {turn.session_file}")
    values = {
        "session": turn.session,
        "session_uuid": turn.session_uuid,
        "session_file": turn.session_file,
        "native_session": native or "",
        "prompt": turn.prompt,
        "turn": turn.key,
        "model": model or "",
    }
    options = options_of(spec, values, args=args, model=model)
    if OPTIONS not in chosen:
        return [*fill_words(chosen, **values), *options]
    at = chosen.index(OPTIONS)
    before, after = chosen[:at], chosen[at + 1 :]
    return [*fill_words(before, **values), *options, *fill_words(after, **values)]


def chosen_words(spec: AgentSpec, turn: Turn) -> tuple[str, ...]:
    """Return the words of *turn*'s command as the entry has them."""
    return spec.first if turn.first and spec.first is not None else spec.command


def options_of(
    spec: AgentSpec, values: Mapping[str, str], *, args: Sequence[str], model: str | None
) -> list[str]:
    """Return the words that stand at `{options}`, or at the end: the last ones overrule."""
    words = fill_words(spec.model, **values) if model else []
    return [*words, *spec.args, *args]


def fill_words(words: Sequence[str], **values: str) -> list[str]:
    """Return *words* with the placeholders of *values* filled in, one pass over each.

    What was filled in is never looked at again, so a prompt may hold "{session}".
    """
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in words]


def asked_session(spec: AgentSpec, turn: Turn) -> str | None:
    """Return the id that the words of *turn*'s command ask for, None if they leave it open."""
    text = "\0".join(chosen_words(spec, turn))
    if "{native_session}" in text:
        return native_session_of(spec, turn)
    if "{session_uuid}" in text:
        return turn.session_uuid
    # The words name the conversation in another way, so it has to be the one of before.
    names_it = "{session_file}" in text or "{session}" in text
    return turn.native_session if names_it else None


def find_program(word: str, *, env: Mapping[str, str], cwd: str) -> str:
    """Return the absolute path of the program that *word* names in that environment and folder.

    Raises:
        CannotStart: There is none, or none that can be run; the message shows where was looked.
    """
    if not os.path.isdir(cwd):
        raise _not_found(f"working directory not found: {cwd}")
    if not os.access(cwd, os.X_OK):
        raise _not_found(f"working directory can't be entered: {cwd}")
    path = env.get("PATH", os.defpath)
    if "/" in word:
        places = [os.path.join(cwd, word)]
    else:
        places = [os.path.join(cwd, folder, word) for folder in path.split(os.pathsep)]
    found = [place for place in places if word and os.path.isfile(place)]
    for place in found:
        if os.access(place, os.X_OK):
            return place
    if found:
        raise _not_found(f"command not executable: {found[0]}")
    raise _not_found(f"command not found: {word}" + ("" if "/" in word else f", PATH={path}"))


def _encode(words: Sequence[str]) -> list[bytes]:
    """Return *words* in UTF-8, whatever the locale, or say which can't be a word of a command."""
    encoded = []
    for word in words:
        data = utf8(word, "a word of the command")
        if b"\0" in data:
            raise _unfit("the prompt or another word of the command holds a NUL byte")
        if _LONGEST_ARGUMENT is not None and len(data) > _LONGEST_ARGUMENT:
            raise _unfit(
                f"prompt too long for one argument: {len(data):,} bytes,"
                f" and {_LONGEST_ARGUMENT:,} fit; use prompt_by: stdin"
            )
        encoded.append(data)
    return encoded


def utf8(text: str, what: str) -> bytes:
    """Return *text* in UTF-8, whatever the locale.

    Raises:
        CannotStart: It holds half a character.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _unfit(
            f"{what} holds half a character at {error.start}, which has no bytes"
        ) from None


def _unfit(detail: str) -> CannotStart:
    # Not `not-started`: the same words will be just as unfit in a minute, and at every attempt.
    return CannotStart(Outcome.FAILED, Reason.AGENT, detail)


# Running it -----------------------------------------------------------------------------------


class _Pump:
    """Carries the prompt in and the output out. Blocks only where it is told for how long.

    Attributes:
        status: The leader's exit code, or less the number of the signal that ended it; None
            while it lives, and for ever if its end can't be told.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        prompt: bytes,
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
        *,
        keeps_open: bool = False,
    ) -> None:
        self._process = process
        self._prompt = memoryview(prompt)
        self._keeps_open = keeps_open
        self._selector = selectors.DefaultSelector()
        self._exit_fd = self._announce_exit(process.pid)
        self._deaf = False
        self._lost = False
        self.status: int | None = None
        for pipe, sink in ((process.stdout, out), (process.stderr, err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, sink)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            if not keeps_open:
                self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def _announce_exit(self, pid: int) -> int | None:
        if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
            return None
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return None
        self._selector.register(fd, selectors.EVENT_READ)
        return fd

    def ended(self) -> bool:
        """Return whether the leader has ended.

        It stays a zombie, so that its number is not used again while its group is being ended.
        """
        if self.status is None and not self._lost:
            self._look()
        over = self.status is not None or self._lost
        if over:
            self._close_exit()
        return over

    def _look(self) -> None:
        if not hasattr(os, "waitid"):
            self.status = self._process.poll()
            return
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Someone else took it. Popen would then call it exit 0, and the turn a success.
            self._lost = True
            return
        if found is not None:
            exited = found.si_code == os.CLD_EXITED
            self.status = found.si_status if exited else -found.si_status

    def carry(self, seconds: float) -> bool:
        """Wait at most *seconds* for something to carry, carry it, return whether there was any."""
        if self._exit_fd is None:
            seconds = min(seconds, _POLL_S)
        ready = self._selector.select(max(seconds, 0))
        for key, _ in ready:
            if key.fileobj == self._exit_fd:
                continue
            pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
            if pipe is self._process.stdin:
                self._write(pipe)
            else:
                self._read(pipe, key.data)
        return bool(ready)

    def wait(self, seconds: float) -> None:
        """Wait at most *seconds*, and carry what has come by then, within a bound."""
        self.ended()
        for _ in range(_READS_A_WAIT):
            if not self.carry(seconds):
                return
            # Only the first may wait: what drips a word at a time would stretch every pause.
            seconds = 0

    def drain(self) -> None:
        """Carry what the leader left in the pipes, then turn a deaf ear to its children."""
        for _ in range(_LAST_READS):
            if not self._selector.get_map() or not self.carry(_QUIET_S):
                break
        self._deaf = True

    def say(self, data: bytes) -> None:
        """Have *data* carried in behind what waits already."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if not self._prompt:
            self._selector.register(pipe, selectors.EVENT_WRITE)
        self._prompt = memoryview(bytes(self._prompt) + data)

    def hang_up(self) -> None:
        """Close stdin: there will be no more."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if self._prompt:
            self._prompt = self._prompt[:0]
            self._drop(pipe)
        else:
            with contextlib.suppress(OSError):
                pipe.close()

    def close(self) -> None:
        """Let go of the pipes."""
        self._close_exit()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _close_exit(self) -> None:
        if self._exit_fd is not None:
            # It stays readable for ever: left in, no wait would wait any more.
            self._selector.unregister(self._exit_fd)
            os.close(self._exit_fd)
            self._exit_fd = None

    def _read(self, pipe: IO[bytes], sink: Callable[[bytes], None]) -> None:
        try:
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(pipe)
        elif not self._deaf:
            sink(data)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            written = os.write(pipe.fileno(), self._prompt[:_WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            # It does not want the rest; that is its right, and its exit says how it went.
            self._prompt = self._prompt[:0]
            self._keeps_open = False
        else:
            self._prompt = self._prompt[written:]
        if self._prompt:
            return
        if self._keeps_open:
            self._selector.unregister(pipe)
        else:
            # The end of the prompt must be seen: an open stdin is a question that waits.
            self._drop(pipe)

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        with contextlib.suppress(OSError):
            pipe.close()


def run_program(
    words: Sequence[str],
    *,
    stdin: bytes | None,
    cwd: str,
    env: Mapping[str, str],
    out: Callable[[bytes], None],
    err: Callable[[bytes], None],
    clock: Clock,
    timeout: timedelta,
    stop_requested: Callable[[], str | None] = lambda: None,
    stop: Sequence[str] = ("TERM", "KILL"),
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
    dialog: Dialog | None = None,
) -> Ended:
    """Run a program to its end, and end everything that it started.

    Args:
        words: Its command, no shell.
        stdin: What it reads; None for /dev/null.
        cwd: Where it runs.
        env: Its whole environment; `ROUTINES_STATE` and `ROUTINES_TURN` also mark its tree.
        out: Is given what it prints on stdout.
        err: Is given what it prints on stderr.
        clock: Its time awake is what *timeout* counts (L3).
        timeout: How long it may take.
        stop_requested: Asked twice a second; a word of `STOP_WORDS` ends the program. Asked on
            while it is being ended: `now` goes to KILL at once.
        stop: The signals that end it, `AgentSpec.stop`.
        grace: The pause between them.
        dialog: What is said with it in place of *stdin*; the program ends when that is over.

    Raises:
        CannotStart: Nothing was started.
    """
    tree = Tree(
        state=env.get("ROUTINES_STATE", ""),
        turn_key=env.get("ROUTINES_TURN", ""),
        spare=own_children(),
    )
    # From before the start: on a busy machine the agent may be well under way before we look.
    limit = clock.awake() + timeout.total_seconds()
    talks = dialog is not None
    process = _start(words, env=env, cwd=cwd, with_stdin=talks or stdin is not None)
    tree = replace(tree, leader=process.pid)
    pump = _Pump(process, stdin or b"", _heard(out, dialog), err, keeps_open=talks)
    asked = _Asked(stop_requested, clock)
    try:
        if dialog is not None:
            dialog.begin(pump.say)
        why = _watch(pump, tree, clock, limit, asked, dialog)
        if dialog is not None:
            _take_leave(pump, dialog, why, clock, asked, grace)
        remain = end_tree(
            tree,
            stop=stop,
            clock=clock,
            interval=grace.total_seconds(),
            wait=pump.wait,
            hurry=lambda: asked.word() == HURRY,
        )
        pump.ended()
        pump.drain()
        return _ended(pump.status, why, remain)
    except BaseException:
        # Whatever went wrong here (a full disk, ^C), the agent must not go on without us.
        end_tree(tree, stop=("KILL",), clock=clock, wait=pump.wait)
        raise
    finally:
        pump.close()
        _forget(process)


def _heard(out: Callable[[bytes], None], dialog: Dialog | None) -> Callable[[bytes], None]:
    if dialog is None:
        return out

    def both(data: bytes) -> None:
        out(data)
        dialog.hear(data)

    return both


def _take_leave(
    pump: _Pump, dialog: Dialog, why: str | None, clock: Clock, asked: "_Asked", grace: timedelta
) -> None:
    """Let the program come to its end by itself, within bounds, before its tree is ended."""
    if why is not None and why != HURRY:
        dialog.interrupt()
        _carry_until(pump, clock, grace.total_seconds(), asked, lambda: dialog.over)
    pump.hang_up()
    if why != HURRY:
        _carry_until(pump, clock, min(_GOODBYE_S, grace.total_seconds()), asked, lambda: False)


def _carry_until(
    pump: _Pump, clock: Clock, seconds: float, asked: "_Asked", done: Callable[[], bool]
) -> None:
    limit = clock.awake() + seconds
    while not (done() or pump.ended()):
        left = limit - clock.awake()
        if left <= 0 or asked.word() == HURRY:
            return
        pump.carry(min(left, _LOOK_EVERY_S))


class _Asked:
    """Asks whether to stop, at a calm pace: an answer may cost a look into a folder.

    Attributes:
        next_at: When it is asked again, on the clock's time awake.
    """

    def __init__(self, ask: Callable[[], str | None], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self.next_at = clock.awake()

    def word(self) -> str | None:
        """Return the answer, None if it is not yet time to ask."""
        now = self._clock.awake()
        if now < self.next_at:
            return None
        self.next_at = now + _LOOK_EVERY_S
        return self._ask()


def _watch(
    pump: _Pump,
    tree: Tree,
    clock: Clock,
    limit: float,
    asked: _Asked,
    dialog: Dialog | None = None,
) -> str | None:
    """Carry until the leader has ended or is to be ended; return why it is, None if it ended."""
    reap = clock.awake() + _REAP_EVERY_S
    why: str | None = None
    while not pump.ended():
        # It may have ended while we asked; then it is judged by how it did, not by our wish.
        if why is not None:
            return why
        now = clock.awake()
        if dialog is not None and (dialog.over or dialog.pass_time(now)):
            return None
        why = TIMEOUT if now >= limit else asked.word()
        if why is not None:
            continue
        if now >= reap:
            reap = now + _REAP_EVERY_S
            tree.reap()
        pump.carry(min(limit, reap, asked.next_at) - now)
    pump.drain()
    return None


def _start(
    words: Sequence[str], *, env: Mapping[str, str], cwd: str, with_stdin: bool
) -> "subprocess.Popen[bytes]":
    encoded = _encode(words)
    program = find_program(words[0] if words else "", env=env, cwd=cwd)
    # Programs that believe PWD (opencode does) would work in the scheduler's folder.
    env = {key: value for key, value in env.items() if key != "OLDPWD"} | {"PWD": cwd}
    try:
        return start_program(encoded, program=program, env=env, cwd=cwd, with_stdin=with_stdin)
    except OSError as error:
        raise _start_failed(error, program) from error
    except ValueError as error:
        raise _unfit(f"the environment can't be given: {error}") from error
    except subprocess.SubprocessError as error:
        raise CannotStart(None, Reason.NOT_STARTED, f"{program}: {error}") from error


def _start_failed(error: OSError, program: str) -> CannotStart:
    said = os.strerror(error.errno or 0)
    if error.errno == errno.E2BIG:
        return _unfit(
            "command and environment are too long together; hand the prompt over by stdin"
        )
    if error.errno in _MAY_HEAL:
        return CannotStart(None, Reason.NOT_STARTED, f"{program} can't be started now: {said}")
    if error.errno == errno.ENOENT:
        return _not_found(f"command not found: the interpreter that {program} names in its #! line")
    if error.errno == errno.ENOEXEC:
        return _not_found(f"command not executable: {program} has no #! line: {said}")
    return _not_found(f"command not executable: {program}: {said}")


def _ended(status: int | None, why: str | None, remain: Sequence[int]) -> Ended:
    killed = status is not None and status < 0
    return Ended(
        code=None if killed else status,
        signal=-status if killed and status is not None else None,
        why=why,
        remain=tuple(remain),
    )


def _forget(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        # It hangs in the kernel and was named in `remain`; waiting would hang us as well.
        process.returncode = -signal.SIGKILL


# A turn ---------------------------------------------------------------------------------------


def run_command(
    spec: AgentSpec,
    turn: Turn,
    *,
    args: Sequence[str] = (),
    model: str | None = None,
    cwd: str,
    env: Mapping[str, str],
    folder: str | None,
    clock: Clock,
    timeout: timedelta,
    stop_requested: Callable[[], str | None] = lambda: None,
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
    on_native_session: Callable[[str], None] | None = None,
    masker: Masker | None = None,
) -> TurnResult:
    """Give *turn* to the command of *spec* and return how it ended, its whole tree gone.

    Args:
        spec: The agent.
        turn: What it is given.
        args: The routine's own words, added at the end.
        model: Handed over as the entry says.
        cwd: Where it runs; absolute.
        env: Its whole environment, `processes.environment`.
        folder: Where stdout.log and stderr.log are kept; None for nowhere.
        clock: Counts *timeout*.
        timeout: How long it may take, awake.
        stop_requested: As in `run_program`.
        grace: The pause between two signals of `spec.stop`.
        on_native_session: Told the id of the conversation as soon as the program says it, so
            that it is kept if the turn is killed; not told one that differs from what was asked.
        masker: Takes secrets out of what is kept of its output; None for those of known forms.
    """
    out, err = open_captures(folder)
    masker = masker or Masker()
    out_lines, err_lines = Lines(out, masker), Lines(err, masker)
    reader = Reader(spec.output, spec.read)
    asked = asked_session(spec, turn)
    told = False

    def tell(found: str) -> None:
        if on_native_session is not None and (spec.continuations or asked in (None, found)):
            on_native_session(found)

    def take(data: bytes) -> None:
        nonlocal told
        out_lines.feed(data)
        reader.feed(data)
        if not told and reader.first_native_session is not None:
            told = True
            tell(reader.first_native_session)

    try:
        stdin = None
        if spec.prompt_by is PromptBy.STDIN:
            stdin = utf8(turn.prompt, "the prompt")
        ended = run_program(
            command_words(spec, turn, args=args, model=model),
            stdin=stdin,
            cwd=cwd,
            env=env,
            out=take,
            err=err_lines.feed,
            clock=clock,
            timeout=timeout,
            stop_requested=stop_requested,
            stop=spec.stop,
            grace=grace,
        )
    except CannotStart as error:
        return error.result
    finally:
        out_lines.close()
        err_lines.close()
    said = reader.end()
    if not told and reader.first_native_session is not None:
        told = True
        tell(reader.first_native_session)
    said.add_stderr(err.text(), spec.read_stderr)
    found = said.native_session()
    if not told and found is not None:
        tell(found)
    asked = asked or reader.first_native_session
    return _Judge(spec, turn, ended, said, out, err, asked, timeout).result()


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says what a turn was, from how its program ended and what it said."""

    spec: AgentSpec
    turn: Turn
    ended: Ended
    said: Said
    out: Capture
    err: Capture
    asked: str | None
    timeout: timedelta

    def result(self) -> TurnResult:
        outcome, reason, detail = self._verdict()
        if self.ended.remain:
            pids = ", ".join(str(pid) for pid in self.ended.remain)
            detail = f"{detail}; could not be ended: {pids}".removeprefix("; ")
        return TurnResult(
            outcome=outcome,
            reason=reason,
            detail=one_line(detail),
            reply=self._reply(outcome),
            exit_code=self.ended.code,
            signal=self.ended.signal,
        )

    def _verdict(self) -> tuple[Outcome | None, Reason | None, str]:
        ended = self.ended
        if ended.why is not None:
            return self._verdict_of_ours(ended.why)
        if ended.signal is not None:
            return Outcome.FAILED, Reason.SIGNAL, self._because(signal_words(ended.signal))
        if ended.code is None:
            return Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN, "how it ended can't be told"
        reason, line = self._never_started()
        if reason is not None:
            return None, reason, f"exit {ended.code}" + (f": {line}" if line else "")
        if ended.code != 0:
            return Outcome.FAILED, Reason.EXIT, self._because(f"exit {ended.code}")
        return self._verdict_of_exit_0()

    def _never_started(self) -> tuple[Reason | None, str]:
        """Return why it provably did nothing, and the line that says so; None if it may have."""
        signs = [
            (self.spec.busy, Reason.BUSY),
            (self.spec.not_started, Reason.NOT_STARTED),
        ]
        if not self.turn.first:
            # A conversation that was never begun can't be gone.
            signs.insert(0, (self.spec.lost, Reason.SESSION_LOST))
        for sign, reason in signs:
            line = self._line_of(sign)
            if line is not None:
                return reason, line
        return None, ""

    def _line_of(self, signs: Signs) -> str | None:
        """Return the line in which the program gives one of *signs*, None if it gives none."""
        declared = self._declared()
        if declared is not None:
            for text in signs.error:
                if text in declared:
                    return one_line(declared)
        # A program that has printed has begun; only one that did nothing may be run again.
        if not self.ended.code or self.out.text().strip():
            return None
        lines = self.err.text().splitlines()
        for text in signs.stderr:
            found = next((line for line in lines if text in line), None)
            if found is not None:
                return one_line(found)
        return self._words() if self.ended.code in signs.exit else None

    def _declared(self) -> str | None:
        """Return the words of the failure that the output declares, None if it declares none."""
        declared = self.said.failed()
        if declared is None:
            return self.said.error() if self.ended.code else None
        return declared or self.said.error() or self.said.reply()

    def _verdict_of_ours(self, why: str) -> tuple[Outcome, Reason | None, str]:
        if why == TIMEOUT:
            limit = f"ended at its limit of {format_span(self.timeout)}"
            return Outcome.TIMED_OUT, Reason.TIMEOUT, self._because(limit)
        outcome, reason = STOP_WORDS.get(why, STOP_WORDS["stop"])
        return outcome, reason, self._because("ended on request")

    def _verdict_of_exit_0(self) -> tuple[Outcome, Reason | None, str]:
        # Never trust exit 0 alone: a program that prints its own failure ends with it too.
        if self.said.problem is not None:
            return Outcome.FAILED, Reason.BAD_OUTPUT, self.said.problem
        if self.said.failed() is not None:
            return Outcome.FAILED, Reason.AGENT, self._words() or _NO_WORDS
        found = self.said.native_session()
        if (
            self.asked is not None
            and found not in (None, self.asked)
            and not self.spec.continuations
        ):
            # The turn went into another conversation; adopting it would lose this one.
            changed = f"asked for session {self.asked}, and it answered in {found}"
            return Outcome.FAILED, Reason.SESSION_CHANGED, changed
        return Outcome.COMPLETED, None, ""

    def _because(self, what: str) -> str:
        words = self._words()
        return f"{what}: {words}" if words else what

    def _words(self) -> str:
        """Return what the program itself said about its failure, one line."""
        words = one_line(self._declared() or "") or self.err.last_line()
        if words or self.spec.output is OutputFormat.TEXT:
            return words or self.out.last_line()
        # What it prints is for programs: a person wants the reply in it, as far as it came.
        return one_line(self.said.reply() or "")

    def _reply(self, outcome: Outcome | None) -> Reply:
        text, cut = self._text()
        denied, declared = self.said.denied(), self.said.failed()
        warnings = [] if denied is None else [denied]
        if outcome is Outcome.COMPLETED and not text.strip():
            warnings.append(Warn.EMPTY_REPLY.value)
        if cut or self.said.truncated:
            warnings.append(Warn.TRUNCATED.value)
        return Reply(
            text=text,
            native_session=self.said.native_session(),
            usage=self.said.usage(),
            failed=None if declared is None else self._words() or _NO_WORDS,
            warnings=tuple(warnings),
        )

    def _text(self) -> tuple[str, bool]:
        """Return the reply, and whether a part of it was dropped."""
        structured = self.spec.output is not OutputFormat.TEXT and "reply" in self.spec.read
        reply = self.said.reply()
        if structured and (reply is not None or self.said.problem is None):
            return bounded(reply or "")
        return self.out.text(), self.out.dropped > 0


def signal_words(number: int) -> str:
    """Return what is said of a program that a signal ended."""
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended by signal {number}"
