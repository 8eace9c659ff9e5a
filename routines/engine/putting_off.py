"""Whether a turn that failed is tried again: its claim then stays open, timed or parked (L12)."""

import logging
from datetime import datetime
from typing import Any

from routines.agents.base import TurnResult
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.record import Event, Record
from routines.domain.retry import Again, GiveUp, Park, next_try
from routines.domain.schedule import from_spec
from routines.engine.held_turn import HeldTurn
from routines.engine.ledgers import after_turn
from routines.engine.work import Work
from routines.errors import RoutinesError, StoreError

log = logging.getLogger("routines")


def leave_open(
    held: HeldTurn, work: Work, result: TurnResult, detail: str, spent: dict[str, Any]
) -> Record | None:
    """Put a turn off that may be tried again; None if it ends here and now (L12)."""
    follow = _follow(held, work, result)
    if isinstance(follow, GiveUp):
        return None
    record = held.claim.record
    more: dict[str, Any] = {"detail": one_line(held.masker.mask(detail)), "by": held.owner.user}
    event = Event.PARKED
    if isinstance(follow, Again):
        event = Event.RETRY
        more["until"] = format_instant(follow.at)
        if result.outcome is Outcome.INTERRUPTED:
            more["rerun"] = record.reruns + 1
    if result.outcome is not None and result.reason is not None:
        # That it was begun, and how it ends if a newer slot comes first.
        more |= {"ended": result.outcome.value, "because": result.reason.value}
    if spent["usage"]:
        more |= spent
    if record.is_durable and result.outcome is not None and "rerun" not in more:
        # Its run has ended: under the same key the agent would only name that one again.
        more["anew"] = True
    try:
        held.claim.append(event, at=held.clock.now(), **more)
        ledger = held.lease.ledger
        if ledger.claim == record.path:
            held.lease.write(after_turn(ledger, held.claim.record))
    except StoreError as error:
        # What can't be put off ends: an outcome is tried for as long as we live.
        log.warning("not-put-off", extra={"ref": held.ref, "error": error.message})
        return held.claim.record if held.claim.reread().last == event.value else None
    return held.claim.record


def _follow(held: HeldTurn, work: Work, result: TurnResult) -> Again | Park | GiveUp:
    record = held.claim.record
    now = held.clock.now()
    if record.occurrence.is_by_hand or held.cancelled_by is not None:
        return GiveUp()
    if result.outcome is Outcome.INTERRUPTED and result.reason is Reason.STOPPED:
        return Again(now) if record.reruns < work.rerun_interrupted else GiveUp()
    failed_ = result.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    never = result.outcome is None
    is_slot = record.occurrence.kind is Kind.SLOT
    if result.reason is Reason.NOT_FOUND or not (never or (work.retry.started and failed_)):
        return GiveUp()
    return next_try(
        work.retry,
        attempts=record.retries - record.reruns + 1,
        recurs=record.recurs,
        now=now,
        next_slot=next_slot(work, record.occurrence.instant) if is_slot else None,
    )


def next_slot(work: Work, after: datetime) -> datetime | None:
    """Return the first slot of the routine of *work* after an instant, None if that is unknown."""
    if work.schedule is None:
        return None
    try:
        return from_spec(work.schedule).next_after(after)
    except (RoutinesError, KeyError, TypeError, ValueError):
        # A host's own kind of schedule can't be made from its spec.
        return None
