"""Pause and resume: everything stays armed, and nothing starts (PROMISES L16).

What a paused routine passed over is one counted record when it is resumed. A one-shot that fell
due meanwhile is not passed over: it fires then, unless it is too late.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from routines.domain.outcome import Reason
from routines.domain.routine import Routine
from routines.domain.schedule import Schedule
from routines.engine.arming import Arming, known_schedule, schedule_of, told
from routines.store.cursors import Cursor, CursorStore
from routines.store.state import State
from routines.store.switches import Switch, SwitchStore

# As long as any section under a routine's lock may take.
_PATIENCE_S = 5.0


class Pausing:
    """Moves the switches of one state folder, and the cursors with them.

    Args:
        state: The state folder.
        by: Who does it, `user@host`.
        routine_of: Returns a routine by name, where there are any at hand.
    """

    def __init__(
        self,
        state: State,
        *,
        by: str,
        routine_of: Callable[[str], Routine | None] = lambda _name: None,
    ) -> None:
        self._routine_of = routine_of
        self._switches = SwitchStore(state)
        self._cursors = CursorStore(state)
        self._arming = Arming(state, by=by)
        self._by = by

    def pause(
        self, routine: str | None, *, now: datetime, until: datetime | None, reason: str
    ) -> Switch:
        """Pause a routine, or everything if None; pausing again changes until and reason.

        What was paused goes on being paused since then: what it passed over was no absence.

        Raises:
            StoreBusy: A routine is being changed; nothing is paused.
            NotDurable: It could not be written; nothing is paused.
        """
        old = self._switches.read(routine)
        if old is not None and old.until is not None and old.until <= now:
            # It had ended, and nobody was there to say so.
            self.resume(routine, now=old.until)
            old = None
        switch = Switch(routine, self._by, now if old is None else old.since, until, reason)
        self._switches.write(switch)
        return switch

    def resume(self, routine: str | None, *, now: datetime) -> Switch | None:
        """Resume a routine, or everything if None; None if it was not paused.

        What was passed over is recorded before the switch goes: a crash between the two leaves it
        paused, and resuming again is harmless.

        Raises:
            StoreBusy: A routine is being changed; it is still paused.
            NotDurable: It could not be written; it is still paused.
        """
        switch = self._switches.read(routine)
        if switch is None:
            return None
        for cursor in self._passed_over_by(routine):
            with self._cursors.section(cursor.routine, patience=_PATIENCE_S):
                self._move(cursor.routine, switch, now)
        self._switches.end(routine, by=self._by, at=now)
        return switch

    def _passed_over_by(self, routine: str | None) -> list[Cursor]:
        if routine is not None:
            cursor = self._cursors.peek(routine)
            return [] if cursor is None else [cursor]
        return list(self._cursors.all())

    def _move(self, routine: str, switch: Switch, now: datetime) -> None:
        cursor = self._cursors.read(routine)
        if cursor is None:
            return
        known = known_schedule(cursor, self._routine_of(routine))
        schedule = known or schedule_of(cursor)
        if schedule is None or schedule.next_after(switch.since) is None:
            return
        last = schedule.newest_at_or_before(now)
        if last is not None and schedule.next_after(now) is None:
            # Nothing else is to come: it fires now, late, and is not given up for a pause.
            return
        resumed = f"resumed by {self._by}"
        other = self._switches.read(None if switch.routine is not None else routine)
        if switch.routine is None and other is not None:
            # It stays paused by its own switch, and is counted when that goes: all but what came
            # before that one, of which nothing tells once this one is gone.
            if other.since > switch.since:
                until = min(other.since, now)
                self._pass_over(cursor, switch, until, now, known, otherwise=resumed)
            return
        if other is not None and other.since < switch.since:
            until = switch.since if other.until is None else min(other.until, switch.since)
            self._pass_over(cursor, other, until, now, known)
        self._pass_over(cursor, switch, now, now, known, otherwise=resumed)
        self._cursors.write(replace(cursor, since=now, by=self._by))

    def _pass_over(
        self,
        cursor: Cursor,
        switch: Switch,
        until: datetime,
        now: datetime,
        known: Schedule | None,
        *,
        otherwise: str = "",
    ) -> None:
        """Record what *switch* passed over until then, and what was owed before it."""
        give_up = self._arming.give_up_until
        # What was owed before has its own reason: nobody was there.
        before = min(switch.since, until)
        give_up(cursor, before, Reason.NO_SCHEDULER, at=now, schedule=known)
        detail = told(switch, now, otherwise=otherwise)
        give_up(cursor, until, Reason.PAUSED, at=now, detail=detail, schedule=known)

    def expire(self, now: datetime) -> list[Switch]:
        """Resume what was paused until an instant that has come; return those switches."""
        ended = [s for s in self._switches.all() if s.until is not None and s.until <= now]
        for switch in ended:
            self.resume(switch.routine, now=now)
        return ended
