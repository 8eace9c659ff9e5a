"""Cancelling slots that are due and wait unclaimed: each is claimed and settled in one act.

Under the routine's lock and in the order of its slots, as a scheduler does (PROMISES L2, L8): of
the two that want a slot one wins, and the other finds it dealt with.
"""

from datetime import datetime

from routines.domain.due import Owed, plan
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Reason, end_of_cancel
from routines.domain.record import Record, outcome_event
from routines.domain.routine import Routine, schedule_key
from routines.errors import UnknownOccurrence
from routines.operations.context import Context
from routines.operations.life import Schedulers, schedulers
from routines.operations.pending import owed_now
from routines.store.cursors import CursorStore, Missed

# A scheduler has the lock for no longer than a look at one routine takes.
_PATIENCE_S = 5.0
# With `catch_up: all` one routine may owe many; this many at the most end by one command.
_MOST = 1000


def cancel_due(
    context: Context, name: str, *, reason: str, only: datetime | None = None
) -> list[Record]:
    """Settle what of a routine is due and unclaimed as cancelled, and return what was settled.

    Args:
        context: Where and when, and who asks.
        name: The routine.
        reason: In words, for the record.
        only: That slot alone, or None for all.

    Raises:
        UnknownOccurrence: Older slots are to be caught up with before *only*; nothing was changed.
        StoreBusy: Another process has the routine's lock; nothing was changed.
        StoreError: It could not be written.
    """
    routine = context.workspace.routines.get(name)
    state = context.state_or_none
    if (
        routine is None
        or state is None
        or owed_now(state, routine, now=context.clock.now()) is None
    ):
        return []
    settled: list[Record] = []
    with CursorStore(context.writable_state).section(name, patience=_PATIENCE_S):
        for _ in range(_MOST):
            record = _cancel_oldest(context, routine, reason, only)
            if record is None:
                break
            settled.append(record)
    return settled


def _cancel_oldest(
    context: Context, routine: Routine, reason: str, only: datetime | None
) -> Record | None:
    """Record what is given up before it, as a scheduler would, and settle the slot that is next."""
    from routines.engine import host
    from routines.engine.passes import Pass
    from routines.engine.slots import Slots

    now, state, timetable = context.clock.now(), context.writable_state, routine.timetable
    owed = owed_now(state, routine, now=now)
    if owed is None or timetable is None:
        return None
    alive = schedulers(state, now=now)
    decided = plan(
        owed,
        timetable,
        now=now,
        catch_up=routine.catch_up,
        most=routine.max_catch_up,
        start_within=routine.start_within,
        seen=alive.alive,
        why_older=_why_older(owed, alive),
    )
    if decided.run is None:
        return None
    if only is not None and only != decided.run:
        if decided.run < only <= owed.newest and timetable.schedule.names(only):
            raise _not_the_oldest(routine, only, decided.run)
        return None
    for range_ in decided.give_up:
        CursorStore(state).give_up(
            Missed(
                routine=routine.name,
                after=range_.after,
                last=range_.last,
                reason=range_.reason,
                schedule=schedule_key(routine),
                at=now,
                by=context.who,
            )
        )
    outcome, why = end_of_cancel(person=context.is_person, lane=False)
    end = outcome_event(at=now, outcome=outcome, reason=why, detail=reason, by=context.who)
    occurrence, done = Occurrence(Kind.SLOT, routine.name, decided.run), Pass()
    Slots(state, owner=host.owner()).settle(routine, occurrence, decided.trigger, end, now, done)
    return next(iter(done.settled), None)


def _not_the_oldest(routine: Routine, only: datetime, oldest: datetime) -> UnknownOccurrence:
    """Return that *only* has no turn yet: claimed out of order, what is older would be lost."""
    name = routine.name
    return UnknownOccurrence(
        f"older slots of {name} are owed and come before {name}@{format_instant(only)}",
        hint=f"cancel these first, from {name}@{format_instant(oldest)} on,"
        f" or `routines cancel {name}` for all; nothing was cancelled",
    )


def _why_older(owed: Owed, alive: Schedulers) -> Reason:
    """Return why the slots before the newest did not run when they fell due."""
    older, since = owed.previous or owed.newest, alive.watched_since
    if since is None:
        return Reason.NO_SCHEDULER
    if since <= older:
        return Reason.BUSY
    was_there = any(one.started_at <= older for one in alive.live)
    return Reason.ASLEEP if was_there else Reason.NO_SCHEDULER
