"""How a claim ends whose turn has not run its course: the outcome, the reason, and the words."""

from dataclasses import dataclass

from routines.domain.outcome import Outcome, Reason
from routines.store.control import Cancel
from routines.store.job_settling import end_of_cancel


@dataclass(frozen=True, slots=True)
class Verdict:
    """That a turn is not to start, and what its claim is settled with."""

    outcome: Outcome
    reason: Reason | None
    detail: str = ""
    by: str | None = None


def cancelled(cancel: Cancel, detail: str) -> Verdict:
    """Return the end of a turn that a person, another turn or a newer slot cancelled."""
    if cancel.newer is not None:
        return Verdict(Outcome.SUPERSEDED, None, f"by {cancel.newer}", by=cancel.by)
    said = "; ".join(part for part in (cancel.reason, detail) if part)
    outcome, reason = end_of_cancel(cancel)
    return Verdict(outcome, reason, said, by=cancel.by)
