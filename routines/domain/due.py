"""What is owed after an absence, and what becomes of a slot that meets its own predecessor.

Pure: the engine gathers the facts under the routine's lock, asks here, and does what it is told.
Tests of this module are tables (PROMISES L1, L2, L8, L13).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from routines.domain.outcome import Reason, Trigger
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.domain.timetable import Timetable

# A slot that starts later than this after its instant was not seen coming: it is caught up with.
ON_TIME = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What lies between a routine's cursor and now.

    Attributes:
        base: Everything up to here is claimed, recorded, or from before the routine existed.
        newest: The newest slot after *base* that has fallen due.
        previous: The slot before *newest* if it is after *base* too; then older ones are owed.
    """

    base: datetime
    newest: datetime
    previous: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Slots to be recorded as missed: those after *after*, up to and including *last*."""

    after: datetime
    last: datetime
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do about a routine that is due, in this order.

    Attributes:
        give_up: The ranges to record.
        run: The slot to claim, or None.
        trigger: Why it runs.
    """

    give_up: tuple[GiveUp, ...] = ()
    run: datetime | None = None
    trigger: Trigger = Trigger.SCHEDULE


def find_owed(
    timetable: Timetable,
    *,
    since: datetime,
    newest_claim: datetime | None,
    newest_missed: datetime | None,
    now: datetime,
) -> Owed | None:
    """Return what is owed, or None if nothing is.

    Args:
        timetable: Yields the slots.
        since: Where catching up may begin at the earliest.
        newest_claim: The newest claimed slot that is not in the future.
        newest_missed: The last slot of the newest counted record that is not in the future.
        now: The present.
    """
    newest = timetable.newest_due(now)
    base = max(at for at in (since, newest_claim, newest_missed) if at is not None)
    if newest is None or newest <= base:
        return None
    previous = timetable.before(newest)
    return Owed(
        base=base,
        newest=newest,
        previous=previous if previous is not None and previous > base else None,
    )


def plan(
    owed: Owed,
    timetable: Timetable,
    *,
    now: datetime,
    catch_up: CatchUpPolicy,
    most: int,
    start_within: timedelta | None,
    seen: bool,
    why_older: Reason,
) -> Plan:
    """Decide what an absence costs, and what is next.

    Args:
        owed: What lies between cursor and now.
        timetable: Yields the slots.
        now: The present.
        catch_up: The routine's policy.
        most: How many slots `all` owes at most.
        start_within: How late a slot may start after it fell due; None for no limit.
        seen: Whether a scheduler saw the newest slot when it fell due, so that it only waits.
        why_older: Why the older ones did not run.
    """
    if _is_late(timetable, owed.newest, now, start_within):
        # The older ones are later still: one record says it all.
        return Plan(give_up=(_range(owed, owed.newest, Reason.TOO_LATE),))
    on_time = seen or now - timetable.due_at(owed.newest) <= ON_TIME
    trigger = Trigger.SCHEDULE if on_time else Trigger.CATCH_UP
    older = () if owed.previous is None else (_range(owed, owed.previous, why_older),)
    match catch_up:
        case CatchUpPolicy.NONE:
            if trigger is Trigger.CATCH_UP:
                return Plan(give_up=(_range(owed, owed.newest, why_older),))
            return Plan(give_up=older, run=owed.newest, trigger=trigger)
        case CatchUpPolicy.ONE:
            return Plan(give_up=older, run=owed.newest, trigger=trigger)
        case CatchUpPolicy.ALL:
            return _oldest_first(owed, timetable, now, most, start_within, trigger)
        case _:
            assert_never(catch_up)


def _oldest_first(
    owed: Owed,
    timetable: Timetable,
    now: datetime,
    most: int,
    start_within: timedelta | None,
    newest_trigger: Trigger,
) -> Plan:
    """Return the oldest slot of the newest *most* that may still start; the rest is given up."""
    slot, passed = owed.newest, None
    for _ in range(most - 1):
        before = timetable.before(slot)
        if before is None or before <= owed.base:
            break
        if _is_late(timetable, before, now, start_within):
            passed = _range(owed, before, Reason.TOO_LATE)
            break
        slot = before
    else:
        before = timetable.before(slot)
        if before is not None and before > owed.base:
            passed = _range(owed, before, Reason.OVER_BOUND)
    trigger = newest_trigger if slot == owed.newest else Trigger.CATCH_UP
    return Plan(give_up=() if passed is None else (passed,), run=slot, trigger=trigger)


def _is_late(
    timetable: Timetable, slot: datetime, now: datetime, start_within: timedelta | None
) -> bool:
    return start_within is not None and now - timetable.due_at(slot) > start_within


def _range(owed: Owed, last: datetime, reason: Reason) -> GiveUp:
    return GiveUp(after=owed.base, last=last, reason=reason)


class Admission(StrEnum):
    """What a slot does that meets open occurrences of its own routine."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"
    BUFFER = "buffer"
    SUPERSEDE = "supersede"


def admit(policy: OverlapPolicy, *, running: int, lost: int) -> Admission:
    """Decide the fate of a slot from what its routine has in flight.

    Args:
        policy: The routine's.
        running: Earlier slots whose turn is with a live owner.
        lost: Earlier slots whose owner is gone and whose turn nobody has settled yet.
    """
    if running == 0:
        # What is left of a lost turn is ended first; to skip for it would lose two slots.
        return Admission.WAIT if lost else Admission.START
    match policy:
        case OverlapPolicy.SKIP:
            return Admission.SKIP
        case OverlapPolicy.BUFFER_ONE:
            return Admission.BUFFER
        case OverlapPolicy.SUPERSEDE:
            return Admission.SUPERSEDE
        case _:
            assert_never(policy)
