"""Giving a turn to an agent that is a command, and saying from its end what the turn was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from routines.agents.base import Reply, Turn, TurnResult
from routines.agents.command_words import asked_session, command_words
from routines.agents.output import Capture, Lines, bounded, open_captures
from routines.agents.programs import Ended, ended_by_us, run_program, signal_words, with_remains
from routines.agents.reading import Reader, Said
from routines.agents.starting import CannotStart, utf8
from routines.agents.trees import STOP_INTERVAL_S
from routines.domain.agent import AgentSpec, OutputFormat, PromptBy, Signs
from routines.domain.clock import Clock
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason, Warn, one_line

_NO_WORDS = "it declared a failure"


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
    on_native_session: Callable[[str], object] | None = None,
    masker: Masker | None = None,
) -> TurnResult:
    """Give *turn* to the command of *spec* and return how it ended, its whole tree gone.

    Args:
        spec: The agent.
        turn: What it is given.
        args: The routine's own words, added at the end.
        model: Handed over as the entry says.
        cwd: Where it runs; absolute.
        env: Its whole environment, `environment.environment`.
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
    return _Judge(spec, turn, ended, said, out, err, asked, timeout, masker.mask).result()


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
    mask: Callable[[str], str]

    def result(self) -> TurnResult:
        outcome, reason, detail = self._verdict()
        return TurnResult(
            outcome=outcome,
            reason=reason,
            detail=one_line(with_remains(detail, self.ended.remain)),
            reply=self._reply(outcome),
            exit_code=self.ended.code,
            signal=self.ended.signal,
        )

    def _verdict(self) -> tuple[Outcome | None, Reason | None, str]:
        ended = self.ended
        if ended.why is not None:
            outcome, reason, words = ended_by_us(ended.why, self.timeout)
            return outcome, reason, self._because(words)
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

    def _verdict_of_exit_0(self) -> tuple[Outcome, Reason | None, str]:
        # Never trust exit 0 alone: a program that prints its own failure ends with it too.
        if self.said.problem is not None:
            return Outcome.FAILED, Reason.BAD_OUTPUT, self.said.problem
        if self.said.failed() is not None:
            return Outcome.FAILED, Reason.AGENT, self._words() or _NO_WORDS
        changed = self.said.changed_session(self.asked, continues=self.spec.continuations)
        if changed is not None:
            return Outcome.FAILED, Reason.SESSION_CHANGED, changed
        unusable = self.said.unusable_session()
        if unusable is not None:
            # The next turn begins anew for it.
            return Outcome.COMPLETED, None, f"it named an id that can't be used: {unusable}"
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
        denied, declared = self.said.denied(self.mask), self.said.failed()
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
