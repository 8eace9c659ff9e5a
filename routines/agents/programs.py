"""Running a program to its end within a time limit, and ending everything that it started."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from routines.agents.processes import Child
from routines.agents.pump import Pump
from routines.agents.starting import start
from routines.agents.trees import STOP_INTERVAL_S, Tree, end_tree, own_children
from routines.domain.clock import Clock
from routines.domain.durations import format_limit
from routines.domain.outcome import Outcome, Reason

# How often a cancel or a stop is looked for (L17 asks for a second).
_LOOK_EVERY_S = 0.5
# What a program that has said all gets to put its things in order, before it is told by a signal.
_GOODBYE_S = 2.0
# Orphans that ended are taken off the process table so rarely because it costs a walk over it.
_REAP_EVERY_S = 10.0

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


def ended_by_us(why: str, timeout: timedelta) -> tuple[Outcome, Reason | None, str]:
    """Return outcome, reason and words of a turn that we ended.

    Args:
        why: `Ended.why`.
        timeout: What its limit was.
    """
    if why == TIMEOUT:
        limit = f"ended at its limit of {format_limit(timeout)}"
        return Outcome.TIMED_OUT, Reason.TIMEOUT, limit
    outcome, reason = STOP_WORDS.get(why, STOP_WORDS["stop"])
    return outcome, reason, "ended on request"


def with_remains(detail: str, remain: Sequence[int]) -> str:
    """Return *detail* with the pids that could not be ended, if there are any."""
    if not remain:
        return detail
    pids = ", ".join(str(pid) for pid in remain)
    return f"{detail}; could not be ended: {pids}".removeprefix("; ")


def signal_words(number: int) -> str:
    """Return what is said of a program that a signal ended."""
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended by signal {number}"


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
    process = start(words, env=env, cwd=cwd, with_stdin=talks or stdin is not None)
    tree = replace(tree, leader=process.pid)
    pump = Pump(process, stdin or b"", _heard(out, dialog), err, keeps_open=talks)
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
    pump: Pump, dialog: Dialog, why: str | None, clock: Clock, asked: "_Asked", grace: timedelta
) -> None:
    """Let the program come to its end by itself, within bounds, before its tree is ended."""
    if why is not None and why != HURRY:
        dialog.interrupt()
        _carry_until(pump, clock, grace.total_seconds(), asked, lambda: dialog.over)
    pump.hang_up()
    if why != HURRY:
        _carry_until(pump, clock, min(_GOODBYE_S, grace.total_seconds()), asked, lambda: False)


def _carry_until(
    pump: Pump, clock: Clock, seconds: float, asked: "_Asked", done: Callable[[], bool]
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
    pump: Pump,
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


def _ended(status: int | None, why: str | None, remain: Sequence[int]) -> Ended:
    killed = status is not None and status < 0
    return Ended(
        code=None if killed else status,
        signal=-status if killed and status is not None else None,
        why=why,
        remain=tuple(remain),
    )


def _forget(process: Child) -> None:
    if process.poll() is None:
        # It hangs in the kernel and was named in `remain`; waiting would hang us as well.
        process.returncode = -signal.SIGKILL
