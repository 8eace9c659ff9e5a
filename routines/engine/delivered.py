"""Slots that an outside clock delivers: `fire` (PROMISES L4).

A duplicate, a stale slot and a store fault are three different answers; what a delivery passes over
is recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from routines.domain.due import GiveUp
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import LONGEST_DETAIL, Reason, Trigger, one_line
from routines.domain.record import Event, Record
from routines.domain.routine import OverlapPolicy, Routine
from routines.engine.arming import known_schedule, told
from routines.engine.claim_lines import due_at, session_of
from routines.engine.claiming import Claimer
from routines.engine.needs import Ready
from routines.engine.passes import Pass
from routines.errors import SessionBusyError, SlotRefused
from routines.store.cursors import Missed
from routines.store.places import Room
from routines.store.sessions import Lease
from routines.store.switches import Switch

# `fire` waits so long for a routine's lock, and `tick` for those of all; a pass only tries them.
PATIENCE_S = 5.0
# An outside clock may run ahead of ours by so much.
_AHEAD = timedelta(seconds=60)
# A record of a delivered slot alone begins so long before it: slots are whole seconds.
_BEFORE = timedelta(seconds=1)
# Why a slot is given up for its own sake, and not for a newer one.
_OWN_REASON = (Reason.PAUSED, Reason.DISABLED, Reason.TOO_LATE)
# The last line of a claim that nobody has begun, and that waits for nothing either.
_UNSTARTED = (Event.CLAIM.value, Event.ATTEMPT.value, Event.NOT_STARTED.value)

_IN_GROUP = "another turn of it runs"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a slot that was delivered.

    Attributes:
        word: `claimed`, `buffered`, `retrying`, `duplicate`, `stale`, `missed` or `skipped`.
        ready: The turn to be started, if it was claimed.
        record: Its record, if it has one already.
        missed: The counted record that it is in, if it was given up.
    """

    word: str
    ready: Ready | None = None
    record: Record | None = None
    missed: Missed | None = None


def check_slot(routine: Routine, slot: datetime, now: datetime) -> None:
    """Refuse an instant that can't be a slot of *routine*, naming its neighbours.

    Raises:
        SlotRefused: It is not a whole second, not named by the schedule, or ahead.
    """
    if slot.microsecond:
        raise SlotRefused(f"{format_instant(slot)} is no slot: slots are whole seconds")
    if slot - now > _AHEAD:
        raise SlotRefused(
            f"{routine.name}@{format_instant(slot)} is still ahead: it is {format_instant(now)}",
            hint="deliver a slot when it is due; nothing was claimed",
        )
    if routine.schedule is None or routine.schedule.names(slot):
        return
    before = routine.schedule.newest_at_or_before(slot)
    after = routine.schedule.next_after(slot)
    near = " and ".join(format_instant(one) for one in (before, after) if one is not None)
    raise SlotRefused(
        f"{format_instant(slot)} is no slot of {routine.name} ({routine.schedule.text()})",
        hint=f"the nearest are {near}; nothing was claimed" if near else "nothing was claimed",
    )


class Deliverer(Claimer):
    """A claimer that also takes slots from an outside clock."""

    def deliver(self, routine: Routine, slot: datetime, *, now: datetime, done: Pass) -> Delivery:
        """Claim *slot* for an outside clock, or say what it is instead (PROMISES L4).

        Args:
            routine: Whose slot.
            slot: What is delivered.
            now: The present.
            done: Takes what was settled and who was asked to make way on the way.

        Raises:
            SlotRefused: The schedule does not name it, or it lies more than 60 s ahead.
            SessionBusyError: Its session is in use: nothing was claimed, deliver it again.
            StoreError: The store refused it.
        """
        check_slot(routine, slot, now)
        occurrence = Occurrence(Kind.SLOT, routine.name, slot)
        with self._cursors.section(routine.name, patience=PATIENCE_S):
            known = self._already(routine, occurrence, now)
            known = known or self._recorded_before(routine, slot)
            if known is not None:
                return known
            why = self._why_not_delivered(routine, slot, now)
            if why is not None:
                return self._record_instead(routine, slot, why, now)
            self._pass_over(routine, slot, Reason.NO_SCHEDULER, now)
            running, lost = self._overlaps.in_flight(routine, now, done)
            if running and routine.overlap is not OverlapPolicy.SKIP:
                work = self._definitions.work(routine)
                self._overlaps.buffer(routine, occurrence, Trigger.EXTERNAL, work, now, done)
                if routine.overlap is OverlapPolicy.SUPERSEDE:
                    self._overlaps.make_way(running[0], occurrence, now, done)
                return Delivery("buffered", record=self._claims.read(occurrence))
            if running:
                self._overlaps.skip(routine, occurrence, Trigger.EXTERNAL, running[0], now, done)
                return Delivery("skipped", record=self._claims.read(occurrence))
            for path in lost:
                self._recoverer.recover_path(path)
            session = session_of(routine, slot)
            busy = self._needs.busy(session)
            if busy is not None:
                raise SessionBusyError(session, busy.holder)
            return self._claim_delivered(routine, occurrence, session, now)

    def _already(self, routine: Routine, occurrence: Occurrence, now: datetime) -> Delivery | None:
        record = self._claims.read(occurrence)
        if record is None:
            return None
        if record.end is None and record.last == Event.BUFFERED.value:
            # Whoever claimed it may be gone since: this delivery sees it through as well.
            self._claims.sync(occurrence)
            return Delivery("buffered", record=record)
        if record.end is None and record.last == Event.RETRY.value:
            # Whoever tried it has gone, and with this clock alone nobody else would again.
            self._claims.sync(occurrence)
            return Delivery("retrying", record=record)
        if record.end is None:
            for entry in self._claims.open_entries(routine=routine.name):
                if entry.claim_path != occurrence.claim_path:
                    continue
                claim = self._claims.hold(entry)
                if claim is not None and claim.record.last in _UNSTARTED:
                    # Claimed by a process that died before it started: ours to start. What waits
                    # for another try or a person goes on waiting.
                    work = self._definitions.work(routine)
                    room = self._needs.group_for(work)
                    ready = self._needs.take_up(claim, work, room, now=now)
                    if ready is not None:
                        return Delivery("claimed", ready=ready)
                    # Told "delivered before", an outside clock would never come again.
                    session = str(record.session)
                    if not isinstance(room, Room):
                        raise SessionBusyError(session, _IN_GROUP, group=work.exclusive)
                    busy = self._needs.busy(session)
                    raise SessionBusyError(session, None if busy is None else busy.holder)
                if claim is not None:
                    claim.let_go()
        self._claims.sync(occurrence)
        return Delivery("duplicate", record=record)

    def _recorded_before(self, routine: Routine, slot: datetime) -> Delivery | None:
        """Return what *slot* is by a record that says more than that a newer one was dealt with."""
        covering = self._covering(routine, slot)
        if covering is None or covering.reason not in _OWN_REASON:
            return None
        itself = covering.after == slot - _BEFORE
        return Delivery("duplicate" if itself else "missed", missed=covering)

    def _covering(self, routine: Routine, slot: datetime) -> Missed | None:
        records = self._cursors.missed(routine.name, since=slot)
        return next((one for one in records if one.after < slot), None)

    def _why_not_delivered(self, routine: Routine, slot: datetime, now: datetime) -> Reason | None:
        newest = self._claims.newest_at_or_before(routine.name, until=now)
        given_up = self._cursors.newest_missed(routine.name, until=now)
        newer = [at for at in (newest, None if given_up is None else given_up.last) if at]
        if newer and max(newer) >= slot:
            return Reason.STALE
        if self._needs.is_paused(routine.name, now):
            return Reason.PAUSED
        if not routine.enabled:
            return Reason.DISABLED
        if routine.start_within is not None and now - due_at(routine, slot) > routine.start_within:
            return Reason.TOO_LATE
        return None

    def _record_instead(
        self, routine: Routine, slot: datetime, why: Reason, now: datetime
    ) -> Delivery:
        covering = self._covering(routine, slot)
        if covering is None:
            if why is not Reason.STALE:
                self._pass_over(routine, slot, why, now)
            range_ = GiveUp(after=slot - _BEFORE, last=slot, reason=why)
            detail = self._told(self._held(routine, why, now), now)
            # Without a schedule nobody could count it later.
            covering = self._give_up(routine, range_, now, detail=detail, only=slot)
        return Delivery("stale" if why is Reason.STALE else "missed", missed=covering)

    def _pass_over(self, routine: Routine, slot: datetime, why: Reason, now: datetime) -> None:
        """Record the slots before *slot* that are owed: delivering a newer one gives them up."""
        cursor = self._cursors.read(routine.name)
        if cursor is None or routine.schedule is None or cursor.since >= slot:
            return
        until = slot - _BEFORE
        known = known_schedule(cursor, routine)

        def give_up(until: datetime, why: Reason, detail: str = "") -> Missed | None:
            return self._arming.give_up_until(
                cursor, until, why, at=now, detail=detail, schedule=known
            )

        switches = self._held(routine, why, now)
        given_up = []
        if switches:
            # What was owed before the pause has its own reason: nobody was there.
            since = min(switch.since for switch in switches)
            given_up.append(give_up(min(since, until), Reason.NO_SCHEDULER))
        given_up.append(give_up(until, why, self._told(switches, now)))
        self._count([one for one in given_up if one is not None])

    def _held(self, routine: Routine, why: Reason, now: datetime) -> list[Switch]:
        """Return what holds it, if it is paused: everything, itself, or both."""
        names = (None, routine.name) if why is Reason.PAUSED else ()
        found = (self._switches.read(name) for name in names)
        return [s for s in found if s is not None and (s.until is None or s.until > now)]

    @staticmethod
    def _told(switches: Sequence[Switch], now: datetime) -> str:
        # Each keeps its share of the line: what one person wrote does not hide the other pause.
        share = LONGEST_DETAIL // max(len(switches), 1) - len("; ")
        return "; ".join(one_line(told(switch, now), most=share) for switch in switches)

    def _claim_delivered(
        self, routine: Routine, occurrence: Occurrence, session: str, now: datetime
    ) -> Delivery:
        work = self._definitions.work(routine)
        room = self._needs.group_for(work)
        if not isinstance(room, Room):
            raise SessionBusyError(session, _IN_GROUP, group=work.exclusive)
        draft = self._slots.draft(routine, occurrence, work, Trigger.EXTERNAL)
        try:
            claim = self._claims.take(draft, at=now)
        except BaseException:
            room.let_go()
            raise
        if claim is None:
            room.let_go()
            return Delivery("duplicate", record=self._claims.read(occurrence))
        try:
            lease = self._sessions.take(session, clock=self._clock, own_claim=claim.record.path)
        except BaseException:
            room.let_go()
            claim.let_go()
            raise
        if isinstance(lease, Lease):
            return Delivery("claimed", ready=Ready(claim, lease, room, work))
        # Taken after all: it stays claimed and unstarted, for a scheduler or the next delivery.
        room.let_go()
        claim.let_go()
        raise SessionBusyError(session, lease.holder)
