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
from routines.domain.schedule import Schedule

# A slot that starts later than this after its instant was not seen coming: it is caught up with.
ON_TIME = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What lies between a routine's cursor and now.

    Attributes:
        base: Everything up to here is claimed, recorded, or from before the routine existed.
        newest: The newest slot after *base* and not in the future.
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
    schedule: Schedule,
    *,
    since: datetime,
    newest_claim: datetime | None,
    newest_missed: datetime | None,
    now: datetime,
) -> Owed | None:
    """Return what is owed, or None if nothing is.

    Args:
        schedule: Yields the slots.
        since: Where catching up may begin at the earliest.
        newest_claim: The newest claimed slot that is not in the future.
        newest_missed: The last slot of the newest counted record that is not in the future.
        now: The present.
    """
    newest = schedule.newest_at_or_before(now)
    base = max(at for at in (since, newest_claim, newest_missed) if at is not None)
    if newest is None or newest <= base:
        return None
    previous = schedule.newest_at_or_before(newest - timedelta(seconds=1))
    return Owed(
        base=base,
        newest=newest,
        previous=previous if previous is not None and previous > base else None,
    )


def plan(
    owed: Owed,
    *,
    now: datetime,
    catch_up: CatchUpPolicy,
    start_within: timedelta | None,
    seen: bool,
    why_older: Reason,
) -> Plan:
    """Decide what an absence costs.

    Args:
        owed: What lies between cursor and now.
        now: The present.
        catch_up: The routine's policy.
        start_within: How late a slot may start; None for no limit.
        seen: Whether a scheduler saw the newest slot when it fell due, so that it only waits.
        why_older: Why the older ones did not run.
    """
    late = now - owed.newest
    if start_within is not None and late > start_within:
        # The older ones are later still: one record says it all.
        return Plan(give_up=(_range(owed, owed.newest, Reason.TOO_LATE),))
    older = () if owed.previous is None else (_range(owed, owed.previous, why_older),)
    trigger = Trigger.SCHEDULE if seen or late <= ON_TIME else Trigger.CATCH_UP
    match catch_up:
        case CatchUpPolicy.NONE:
            if trigger is Trigger.CATCH_UP:
                return Plan(give_up=(_range(owed, owed.newest, why_older),))
            return Plan(give_up=older, run=owed.newest, trigger=trigger)
        case CatchUpPolicy.ONE | CatchUpPolicy.ALL:
            return Plan(give_up=older, run=owed.newest, trigger=trigger)
        case _:
            assert_never(catch_up)


def _range(owed: Owed, last: datetime, reason: Reason) -> GiveUp:
    return GiveUp(after=owed.base, last=last, reason=reason)


class Admission(StrEnum):
    """What a slot does that meets open occurrences of its own routine."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


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
        case OverlapPolicy.BUFFER_ONE | OverlapPolicy.SUPERSEDE:
            return Admission.WAIT
        case _:
            assert_never(policy)
