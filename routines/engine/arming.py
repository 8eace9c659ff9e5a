"""Cursors kept up to what the files say: new, edited, disabled, broken, gone and back (L1, L16)."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from routines.domain import schedule as schedules
from routines.domain.names import format_instant
from routines.domain.outcome import Reason, one_line
from routines.domain.routine import Routine, schedule_key
from routines.domain.schedule import Schedule
from routines.engine.definitions import Definitions
from routines.errors import InvalidSchedule, StoreBusy, StoreError
from routines.store.claims import ClaimStore
from routines.store.cursors import Cursor, CursorStore, Missed, Standing
from routines.store.state import State
from routines.store.switches import Switch, SwitchStore

log = logging.getLogger("routines")
# Else Python prints the bare words of warnings on stderr where a host program, or a command
# other than `start`, has set up no log.
log.addHandler(logging.NullHandler())

# What another process wrote while this pass was on its way is later than what the pass calls now:
# a first look at thousands of files takes seconds, and two hosts differ by a little besides. It
# is no clock that was wrong, and owes nothing from before it.
ONE_PASS = timedelta(seconds=30)

_WHY = {
    Standing.DISABLED: Reason.DISABLED,
    Standing.NOT_ARMED: Reason.NOT_ARMED,
    Standing.ABSENT: Reason.NOT_ARMED,
}


class Arming:
    """Keeps the cursors of one state folder up to the definitions.

    Args:
        state: The state folder.
        by: Who moves them, `user@host`.
        why: Why a slot of an armed routine has not run by now.
        on_missed: Is told of each record that is made.
    """

    def __init__(
        self,
        state: State,
        *,
        by: str,
        why: Callable[[str, datetime], Reason] = lambda _name, _slot: Reason.NO_SCHEDULER,
        on_missed: Callable[[Missed], None] = lambda _missed: None,
    ) -> None:
        self._why = why
        self._on_missed = on_missed
        self._switches = SwitchStore(state)
        self._cursors = CursorStore(state)
        self._claims = ClaimStore(state)
        self._by = by
        self._known: dict[str, Cursor] = {}
        self._had: set[str] = set()

    def arm(self, definitions: Definitions, now: datetime) -> dict[str, StoreError]:
        """Bring every cursor up to date; return the routines whose cursor could not be, and why."""
        wanted = {
            routine.name: Standing.ARMED if routine.enabled else Standing.DISABLED
            for routine in definitions.routines.values()
        }
        wanted |= dict.fromkeys(definitions.broken, Standing.NOT_ARMED)
        gone = {name for name in self._names() if name not in wanted}
        if not definitions.is_whole:
            gone &= self._had
        self._had |= wanted.keys()
        wanted |= dict.fromkeys(gone, Standing.ABSENT)
        self._first_seen(definitions, wanted, now)
        failed: dict[str, StoreError] = {}
        for name, standing in wanted.items():
            try:
                self._bring_up(name, definitions.routines.get(name), standing, now)
            except StoreBusy as error:
                failed[name] = error
            except StoreError as error:
                failed[name] = error
                log.error(  # noqa: TRY400 - the cause is in the message
                    "cursor-not-written", extra={"routine": name, "error": error.message}
                )
        return failed

    def forget(self, name: str) -> None:
        """Look at a routine's cursor anew at the next `arm`: another process has moved it."""
        self._known.pop(name, None)

    def _names(self) -> Iterable[str]:
        if not self._known:
            self._known = {cursor.routine: cursor for cursor in self._cursors.all()}
        return self._known

    def _first_seen(
        self, definitions: Definitions, wanted: dict[str, Standing], now: datetime
    ) -> None:
        """Write the cursors of routines that were never seen, all with three rounds of syncs."""
        new = [
            Cursor(
                routine=routine.name,
                first_seen_at=now,
                since=now,
                schedule=schedule_key(routine),
                standing=wanted[routine.name],
                standing_at=now,
                by=self._by,
            )
            for routine in definitions.routines.values()
            if routine.name not in self._known
        ]
        try:
            written = self._cursors.write_new(new)
        except StoreError as error:
            log.error(  # noqa: TRY400 - the cause is in the message; each is tried on its own next
                "cursor-not-written", extra={"error": error.message}
            )
            return
        self._known |= {cursor.routine: cursor for cursor in written}

    def _bring_up(
        self, name: str, routine: Routine | None, standing: Standing, now: datetime
    ) -> None:
        known = self._known.get(name)
        key = None if routine is None else schedule_key(routine)
        same = known is not None and known.standing is standing and known.since <= now
        if same and (standing is not Standing.ARMED or (known and known.schedule == key)):
            return
        if known is None and routine is None:
            # Broken from the first: it owes nothing until it is armed.
            return
        with self._cursors.section(name, patience=0.0):
            cursor = self._cursors.read(name)
            if cursor is None:
                since = self.since_claims(name, now)
                cursor = Cursor(
                    routine=name,
                    first_seen_at=now,
                    since=since,
                    schedule=key,
                    standing=standing,
                    standing_at=now,
                    by=self._by,
                )
                self._cursors.write(cursor)
            elif cursor.standing is not standing or (
                standing is Standing.ARMED and cursor.schedule != key
            ):
                cursor = self._move(cursor, routine, standing, now)
            if cursor.since > now + ONE_PASS:
                cursor = self._back_to_the_present(cursor, now)
            self._known[name] = cursor

    def _back_to_the_present(self, cursor: Cursor, now: datetime) -> Cursor:
        """Put a cursor from a clock that was wrong, or is now, where it holds nothing up (L1)."""
        log.warning(
            "cursor-in-the-future",
            extra={"routine": cursor.routine, "since": str(cursor.since), "now": str(now)},
        )
        moved = cursor.with_(since=now, first_seen_at=min(cursor.first_seen_at, now))
        self._cursors.write(moved)
        return moved

    def begins(self, name: str) -> datetime | None:
        """Return where an armed routine begins to owe, as last seen; None if it is not armed."""
        cursor = self._known.get(name)
        return cursor.since if cursor is not None and cursor.standing is Standing.ARMED else None

    def since_claims(self, name: str, now: datetime) -> datetime:
        """Return where a routine without a readable cursor begins: its newest claim, or now."""
        newest = self._claims.newest_at_or_before(name, until=now)
        return newest or now

    def _move(
        self, cursor: Cursor, routine: Routine | None, standing: Standing, now: datetime
    ) -> Cursor:
        """Write down another standing or schedule; what lies between is one counted record."""
        was_armed = cursor.standing is Standing.ARMED
        if standing is Standing.ARMED:
            # Back again, or edited: what the old schedule named until now was not run.
            self._give_up_owed(cursor, now, known_schedule(cursor, routine))
            cursor = cursor.with_(
                since=now, schedule=None if routine is None else schedule_key(routine)
            )
        if standing is not cursor.standing:
            log.info(
                "routine-changed",
                extra={
                    "routine": cursor.routine,
                    "was": cursor.standing.value,
                    "is": standing.value,
                },
            )
        moved = cursor.with_(
            standing=standing,
            standing_at=now if standing is not cursor.standing else cursor.standing_at,
            by=self._by,
        )
        if was_armed and standing is not Standing.ARMED:
            # What was owed before has its own reason, which is not "disabled".
            self._give_up_owed(cursor, now, known_schedule(cursor, routine))
        self._cursors.write(moved)
        return moved

    def _give_up_owed(self, cursor: Cursor, now: datetime, known: Schedule | None) -> None:
        """Record what the cursor's schedule owes up to now, each part with its own reason."""
        if cursor.standing is not Standing.ARMED:
            self.give_up_until(cursor, now, _WHY[cursor.standing], schedule=known)
            return
        switches = (self._switches.read(None), self._switches.read(cursor.routine))
        held = [one for one in switches if one is not None and one.since <= now]
        # The earlier pause first: what is written of the later one covers all that lies before it.
        for switch in sorted(held, key=lambda one: one.since):
            # What was owed before the pause is not passed over for it.
            self._give_up_unpaused(cursor, switch.since, now, known)
            until = now if switch.until is None else min(switch.until, now)
            detail = told(switch, now, otherwise="edited while it was")
            self.give_up_until(cursor, until, Reason.PAUSED, at=now, detail=detail, schedule=known)
        self._give_up_unpaused(cursor, now, now, known)

    def _give_up_unpaused(
        self, cursor: Cursor, until: datetime, at: datetime, known: Schedule | None
    ) -> None:
        schedule = known or schedule_of(cursor)
        last = None if schedule is None else schedule.newest_at_or_before(until)
        if last is None:
            return
        why = self._why(cursor.routine, last)
        # Whatever it waited for, the edit is the news.
        edited = why in (Reason.BUSY, Reason.NOT_ARMED)
        detail = "it was edited before it could start" if edited else ""
        self.give_up_until(cursor, until, why, at=at, detail=detail, schedule=known)

    def give_up_until(
        self,
        cursor: Cursor,
        until: datetime,
        reason: Reason,
        *,
        at: datetime | None = None,
        detail: str = "",
        schedule: Schedule | None = None,
    ) -> Missed | None:
        """Record the slots of the cursor's schedule that are owed until then; None if none are.

        Args:
            cursor: Whose slots.
            until: The last instant that counts.
            reason: Why they are given up.
            at: When they are; *until* itself if None.
            detail: What there is to say besides, in a line.
            schedule: The cursor's, where it is at hand: a host's own kind can't be read back.
        """
        schedule = schedule or schedule_of(cursor)
        last = None if schedule is None else schedule.newest_at_or_before(until)
        if last is None:
            return None
        # What was claimed or given up after that instant covers what lies before it too.
        at = at or until
        newest = self._claims.newest_at_or_before(cursor.routine, until=at)
        given_up = self._cursors.newest_missed(cursor.routine, until=at)
        bases = [cursor.since, newest, None if given_up is None else given_up.last]
        base = max(at for at in bases if at is not None)
        if last <= base:
            return None
        made = self._cursors.give_up(
            Missed(
                routine=cursor.routine,
                after=base,
                last=last,
                reason=reason,
                detail=detail,
                schedule=cursor.schedule,
                at=at,
                by=self._by,
            )
        )
        self._on_missed(made)
        return made


def known_schedule(cursor: Cursor, routine: Routine | None) -> Schedule | None:
    """Return the schedule of *routine* if it is the one that the cursor was seen with.

    A host's own kind of schedule can't be read back from the cursor.
    """
    if routine is None or cursor.schedule != schedule_key(routine):
        return None
    return routine.schedule


def schedule_of(cursor: Cursor) -> Schedule | None:
    """Return the schedule that a cursor was seen with; None if there is none to be read."""
    if cursor.schedule is None:
        return None
    try:
        return schedules.from_spec(cursor.schedule)
    except (InvalidSchedule, KeyError, TypeError, ValueError):
        return None


def told(switch: Switch, now: datetime, *, otherwise: str = "") -> str:
    """Return who paused what was passed over, since when and why, as one line.

    When its switch is gone nothing else says so. What a person wrote stands last, so that it
    alone is cut where it is long.

    Args:
        switch: The pause.
        now: When it is told.
        otherwise: What else there is to say of its end, where its own time has not ended it.
    """
    everything = "everything was " if switch.routine is None else ""
    end = otherwise
    if switch.until is not None and switch.until <= now:
        # Whoever finds that the time of a pause is over has not ended it.
        end = f"until {_to_the_second(switch.until)}"
    since = _to_the_second(switch.since)
    text = f"{everything}paused by {switch.by} since {since}"
    return one_line(
        text + (f", {end}" if end else "") + (f": {switch.reason}" if switch.reason else "")
    )


def _to_the_second(instant: datetime) -> str:
    # It stands in a narrow column, where six more digits would push out the person's own words.
    return format_instant(instant.replace(microsecond=0))


def counted(missed: Missed) -> Missed:
    """Return *missed* with its first slot and its count worked out."""
    if missed.count is not None or missed.schedule is None:
        return missed
    schedule = schedules.from_spec(missed.schedule)
    return replace(
        missed,
        first=schedule.next_after(missed.after),
        count=schedules.count_between(schedule, missed.after, missed.last),
    )
