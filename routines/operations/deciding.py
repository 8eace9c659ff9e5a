"""What a slot that is ahead would meet from today's state: `next --decide`, and `explain`.

The same functions decide as in the engine; nothing is claimed, locked or written.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property

from routines.domain.due import Admission, admit
from routines.domain.limits import DayLimit, over_limit
from routines.domain.occurrence import Kind
from routines.domain.outcome import State
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.domain.zones import day_of, local_text, zone
from routines.operations.ahead import DEALT_WITH, Ahead, ahead_of
from routines.operations.context import Context
from routines.operations.life import Schedulers, schedulers
from routines.operations.pending import Open, lasting, open_claims, session_busy
from routines.store.claims import ClaimStore
from routines.store.switches import Switch, SwitchStore

START = "start"
# Of a scheduler with --external-clock alone nobody may expect that it starts a slot.
BROUGHT = "starts once fire or tick brings it: slots come from outside"
# Its policies are in the memory of its scheduler, and not in the files.
LAST_GOOD_DECIDES = "what its last good version says: a stale edit"
# Ending the processes of a turn takes a little longer than its limit says.
_TO_END = timedelta(minutes=1)


class Decider:
    """Decides for many slots of many routines, and looks at everything once.

    Args:
        context: Where and when.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.state_or_none
        self._now = context.clock.now()
        self._switches: dict[str, tuple[Switch, ...]] = {}
        self._over: dict[DayLimit, str | None] = {}
        self._busy: dict[str, str] = {}
        self._dealt_with: dict[str, Ahead] = {}

    @property
    def now(self) -> datetime:
        """The present, from which it decides."""
        return self._now

    @cached_property
    def _alive(self) -> Schedulers:
        return schedulers(self._state, now=self._now)

    @cached_property
    def _open(self) -> list[Open]:
        return open_claims(self._state)

    def decide(self, routine: Routine, slot: datetime) -> str:
        """Return what a slot of *routine* would meet: `start`, or what else and why."""
        due = slot if routine.timetable is None else routine.timetable.due_at(slot)
        if not routine.enabled:
            return "never claimed: it is disabled"
        if self._ahead(routine.name).has(slot):
            return DEALT_WITH
        if not self._alive.alive:
            return "owed: no scheduler is alive"
        return (
            self.paused(routine.name, routine.zone, due)
            or self._overlap(routine, due)
            or self._waits(routine, due)
            or self._limited(routine, due)
            or (BROUGHT if self._alive.waits_for_outside else START)
        )

    def _ahead(self, name: str) -> Ahead:
        if name not in self._dealt_with:
            self._dealt_with[name] = ahead_of(self._state, name, now=self._now)
        return self._dealt_with[name]

    def paused(self, name: str, zone_key: str, due: datetime) -> str:
        """Return what holds the routine *name* back at *due*, in words; empty if nothing does."""
        switch = self._held(name, due)
        if switch is None:
            return ""
        until = "it is resumed"
        if switch.until is not None:
            until = local_text(switch.until, zone(zone_key))
        return f"paused by {switch.by} until {until}"

    def _held(self, name: str, due: datetime) -> Switch | None:
        if self._state is None:
            return None
        if name not in self._switches:
            store = SwitchStore(self._state)
            found = (store.read(None), store.read(name))
            self._switches[name] = tuple(one for one in found if one is not None)
        return next(iter(lasting(self._switches[name], at=due)), None)

    def _overlap(self, routine: Routine, due: datetime) -> str:
        mine = [
            one
            for one in self._open
            if one.record.occurrence.kind is Kind.SLOT
            and one.record.routine == routine.name
            and one.record.occurrence.instant < due
            and self._lasts(one.record, routine, due)
        ]
        running = [one for one in mine if one.standing == State.RUNNING.value]
        lost = [one for one in mine if one.standing == State.LOST.value]
        match admit(routine.overlap, running=len(running), lost=len(lost)):
            case Admission.SKIP:
                return f"skipped: overlap, if {running[0].record.ref} still runs then"
            case Admission.BUFFER:
                return f"buffered, if {running[0].record.ref} still runs then"
            case Admission.SUPERSEDE:
                return f"supersedes {running[0].record.ref}, if that still runs then"
            case Admission.WAIT:
                return f"waits until {lost[0].record.ref} has been ended"
            case Admission.START:
                return ""

    def _lasts(self, record: Record, routine: Routine, due: datetime) -> bool:
        """Return whether a turn may still be there when the slot falls due."""
        began = record.started_at
        return began is None or due < began + routine.timeout + _TO_END

    def _waits(self, routine: Routine, due: datetime) -> str:
        routines = self._context.workspace.routines
        turns = [
            (one.record, routines.get(one.record.routine or ""))
            for one in self._open
            if one.standing == State.RUNNING.value
        ]
        turns = [
            (record, own)
            for record, own in turns
            if self._lasts(record, routine if own is None else own, due)
        ]
        if not turns:
            # A person who has the session says nothing of how long.
            return self._session(routine) if due <= self._now + routine.timeout else ""
        for record, own in turns:
            if routine.exclusive and own is not None and own.exclusive == routine.exclusive:
                return f"waits if {record.ref} of its group {routine.exclusive} still runs then"
        most = self._context.workspace.settings.concurrency
        if len(turns) >= most:
            return f"waits if all places are still taken then (concurrency {most})"
        return self._session(routine)

    def _session(self, routine: Routine) -> str:
        if routine.name not in self._busy:
            self._busy[routine.name] = session_busy(self._state, routine)
        busy = self._busy[routine.name]
        return f"waits if {busy} still" if busy else ""

    def _limited(self, routine: Routine, due: datetime) -> str:
        over = self.over_limit(routine, due)
        return f"skipped: limit, {over}" if over else ""

    def over_limit(self, routine: Routine | None, due: datetime) -> str:
        """Return which limit a turn at *due* would pass, in words; empty if none.

        Args:
            routine: Whose turn; None for one that belongs to no routine.
            due: When it starts: another day begins anew.
        """
        settings = self._context.workspace.settings
        limits = []
        if routine is not None and routine.limits is not None:
            limits.append(replace(routine.limits, routine=routine.name, zone=routine.zone))
        if settings.limits is not None:
            limits.append(replace(settings.limits, zone=settings.tz))
        for limit in limits:
            place = zone(limit.zone)
            start, end = day_of(self._now, place)
            over = self._over_today(limit, start) if start <= due < end else None
            if over is not None:
                return over
        return ""

    def _over_today(self, limit: DayLimit, start: datetime) -> str | None:
        if self._state is None:
            return None
        if limit not in self._over:
            records = ClaimStore(self._state).changed_since(start)
            self._over[limit] = over_limit(limit, records, now=self._now, place=zone(limit.zone))
        return self._over[limit]
