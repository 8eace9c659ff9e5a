"""How a claim ends whose turn has not run its course: the outcome, the reason, and the words."""

from dataclasses import dataclass

from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Record
from routines.store.cancels import Cancel


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
    outcome, reason = cancel.end
    return Verdict(outcome, reason, said, by=cancel.by)


def displaced(record: Record) -> Verdict | None:
    """Return how a claim that nobody holds ends when a newer slot of its routine comes.

    None for one that is under way, or whose claim can't be read: its end is worked out by what is
    left of it. None too for what a person decides, or has decided: it blocks no later slot.
    """
    if not record.readable or record.is_under_way or record.by_person:
        return None
    match record.last:
        case Event.PARKED.value:
            return None
        case Event.BUFFERED.value:
            return Verdict(Outcome.SKIPPED, Reason.OVERLAP, "a newer slot took its place")
        case Event.RETRY.value:
            line = record.events[-1]
            why = f"until the next slot: {line.get('detail') or ''}"
            if record.started is None:
                return Verdict(Outcome.FAILED, Reason.NOT_STARTED, why)
            # Its turn was begun, and was to be begun once more: it ends as that turn did.
            ended = line.get("ended", "interrupted"), line.get("because", "owner-died")
            return Verdict(Outcome(ended[0]), Reason(ended[1]), why)
        case _:
            return Verdict(Outcome.MISSED, Reason.BUSY, "it waited, and a newer slot came")
