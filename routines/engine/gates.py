"""What a routine's own programs say: `only_if` lets a turn start, `verify` lets it complete."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from routines.agents.base import Turn, TurnResult
from routines.agents.output import Capture
from routines.agents.programs import run_program
from routines.agents.starting import CannotStart
from routines.domain.outcome import Outcome, Reason, one_line
from routines.engine.held_turn import HeldTurn
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.errors import InvalidFiles

# The gate is asked before each turn: one that hangs must not hold the session for an hour.
GATE_TIMEOUT = timedelta(seconds=60)
# A turn that used its time up to the end still has its work looked at.
_LEAST_VERIFY = timedelta(seconds=10)


def gate(held: HeldTurn, work: Work, base_env: Mapping[str, str]) -> Verdict | None:
    """Ask `only_if`; None if the turn may go on. It may be asked again after a crash (T6)."""
    if work.only_if is None:
        return None
    err = Capture()
    out = Capture()
    try:
        ended = run_program(
            work.only_if,
            stdin=None,
            cwd=work.cwd,
            env=held.preview(work, base_env),
            out=out.feed,
            err=err.feed,
            clock=held.clock,
            timeout=min(GATE_TIMEOUT, held.left(work)),
        )
    except (CannotStart, InvalidFiles) as error:
        return Verdict(Outcome.FAILED, Reason.GATE, f"only_if: {_words_of(error)}")
    finally:
        out.close()
        err.close()
    said = out.last_line() or err.last_line()
    if ended.code == 0 and ended.why is None:
        return None
    if ended.code == 1 and ended.why is None:
        return Verdict(Outcome.SKIPPED, Reason.GATE, said)
    how = (
        "took longer than its limit"
        if ended.why is not None
        else f"ended with {f'exit {ended.code}' if ended.code is not None else 'a signal'}"
    )
    return Verdict(Outcome.FAILED, Reason.GATE, f"only_if {how}" + (f": {said}" if said else ""))


def verify(
    held: HeldTurn, work: Work, turn: Turn, result: TurnResult, base_env: Mapping[str, str]
) -> TurnResult:
    """Let `verify` judge a completed turn: it gets the reply on stdin, and exit 0 is a yes."""
    if work.verify is None or result.outcome is not Outcome.COMPLETED:
        return result
    said = Capture()
    try:
        ended = run_program(
            work.verify,
            stdin=result.reply.text.encode("utf-8", "replace"),
            cwd=work.cwd,
            env=held.environment(work, turn, base_env),
            out=said.feed,
            err=said.feed,
            clock=held.clock,
            timeout=max(held.left(work), _LEAST_VERIFY),
        )
    except (CannotStart, InvalidFiles) as error:
        return _not_verified(result, _words_of(error))
    finally:
        said.close()
    if ended.code == 0 and ended.why is None:
        return result
    how = "took longer than its limit" if ended.why is not None else f"exit {ended.code}"
    last = said.last_line()
    return _not_verified(result, f"{how}: {last}" if last else how)


def _not_verified(result: TurnResult, why: str) -> TurnResult:
    return replace(
        result, outcome=Outcome.FAILED, reason=Reason.VERIFY, detail=one_line(f"verify: {why}")
    )


def _words_of(error: Exception) -> str:
    if isinstance(error, CannotStart):
        return error.result.detail
    return str(error)
