"""From due to claimed: what is owed is recorded or claimed, and what can start has all it needs.

Under the routine's lock, in this order: read cursor and definition, record what is given up, claim
what is next (PROMISES L2). What has to wait for its session or for a place waits unclaimed (L8).
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from routines.domain.clock import Clock
from routines.domain.due import Admission, GiveUp, Owed, admit, find_owed, plan
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import Owner, outcome_event
from routines.domain.routine import CatchUpPolicy, Routine, schedule_key
from routines.domain.timetable import Timetable
from routines.engine.arming import ONE_PASS, Arming, counted
from routines.engine.claim_lines import session_of
from routines.engine.definitions import Definitions
from routines.engine.needs import Needs, Ready
from routines.engine.overlapping import Overlaps
from routines.engine.passes import Pass, trouble
from routines.engine.recovering import Recoverer
from routines.engine.slots import Slots
from routines.engine.work import Work
from routines.errors import RoutinesError, StoreBusy, StoreError, UnknownAgent
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Missed, Standing
from routines.store.places import Room
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State
from routines.store.switches import SwitchStore

log = logging.getLogger("routines")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A slot that is to be claimed, with the room that its turn will have."""

    routine: Routine
    draft: Draft
    room: Room
    work: Work


class Claimer:
    """Claims what is due on one state folder."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        arming: Arming,
        needs: Needs,
        overlaps: Overlaps,
        recoverer: Recoverer,
        clock: Clock,
        owner: Owner,
        alive_since: Callable[[], datetime | None],
        saw: Callable[[str, datetime], bool],
    ) -> None:
        self._definitions = definitions
        self._arming = arming
        self._needs = needs
        self._overlaps = overlaps
        self._recoverer = recoverer
        self._clock = clock
        self._owner = owner
        self._alive_since = alive_since
        self._saw = saw
        self._claims = ClaimStore(state)
        self._slots = Slots(state, owner=owner)
        self._switches = SwitchStore(state)
        self._cursors = CursorStore(state)
        self._sessions = SessionStore(state)

    # Slots --------------------------------------------------------------------------------------

    def claim_due(
        self,
        names: Sequence[str],
        *,
        now: datetime,
        until: datetime | None = None,
    ) -> Pass:
        """Claim what is due of the routines *names*, and take what their turns need.

        Args:
            names: Oldest slot first.
            now: The present.
            until: What fell due later is left; None for the present.
        """
        until = now if until is None else min(until, now)
        done = Pass()
        wanted: list[_Wanted] = []
        with contextlib.ExitStack() as held:
            for name in names:
                try:
                    if self._owes_nothing(name, until):
                        done.done.append(name)
                        continue
                    with contextlib.ExitStack() as own:
                        own.enter_context(self._cursors.section(name, patience=0.0))
                        one = self._decide(name, now, until, done)
                        if one is not None:
                            # Only locks that a claim needs are kept: ten thousand routines may
                            # be looked at, and a process has a thousand descriptors.
                            held.enter_context(own.pop_all())
                except StoreBusy as error:
                    done.busy[name] = error
                except StoreError as error:
                    done.faults[name] = error
                except Exception as error:
                    # A schedule or an agent of a host may fail in any way: it is this routine's.
                    log.exception("decide-failed", extra={"routine": name})
                    done.faults[name] = trouble(error)
                else:
                    if one is not None:
                        wanted.append(one)
            taken = self._claims.take_many([one.draft for one in wanted], at=now)
        for one, claim in zip(wanted, taken, strict=True):
            try:
                self._after_claim(one, claim, done)
            except (StoreError, OSError) as error:
                # The others are claimed and wait to be started, whatever ails this one.
                done.faults[one.routine.name] = trouble(error)
        self._count(done.missed)
        return done

    def _owes_nothing(self, name: str, until: datetime) -> bool:
        """Return whether it shows without lock or file that nothing is owed: most looks end here.

        What it goes by only grows: claims, counted records, where a cursor begins. An edit that
        was not seen yet owes nothing from before it is.
        """
        routine = self._definitions.routines.get(name)
        timetable = None if routine is None else routine.timetable
        if timetable is None:
            return False
        newest = timetable.newest_due(until)
        begins = self._arming.begins(name)
        if newest is None or begins is None:
            return False
        return newest <= begins or self._is_dealt_with(name, newest)

    def _decide(self, name: str, now: datetime, until: datetime, done: Pass) -> _Wanted | None:
        """Record what is given up of a routine, and return the slot to claim; its lock is held."""
        routine = self._definitions.current(name)
        timetable = None if routine is None else routine.timetable
        if routine is None or timetable is None or not routine.enabled:
            done.done.append(name)
            return None
        if self._needs.is_paused(name, now):
            # It stays armed; what it passes over is counted when it is resumed.
            done.done.append(name)
            return None
        owed = self._owed(routine, timetable, now, until, done)
        if owed is None:
            done.done.append(name)
            return None
        decided = plan(
            owed,
            timetable,
            now=now,
            catch_up=routine.catch_up,
            most=routine.max_catch_up,
            start_within=routine.start_within,
            seen=self._saw(name, owed.newest),
            why_older=self._why_older(name, owed),
        )
        for range_ in decided.give_up:
            done.missed.append(self._give_up(routine, range_, now))
        if decided.run is None:
            done.done.append(name)
            return None
        return self._admit(routine, decided.run, decided.trigger, now, done)

    def _owed(
        self,
        routine: Routine,
        timetable: Timetable,
        now: datetime,
        until: datetime,
        done: Pass,
    ) -> Owed | None:
        newest = timetable.newest_due(until)
        if newest is None or self._is_dealt_with(routine.name, newest):
            return None
        cursor = self._cursors.read(routine.name)
        if cursor is None or cursor.standing is not Standing.ARMED:
            # Not armed yet, or just back: the next look at the files brings its cursor up.
            done.unarmed.append(routine.name)
            return None
        if cursor.schedule != schedule_key(routine):
            # Edited a moment ago: what the new schedule names from before, it does not owe.
            return None
        previous = timetable.before(newest)
        if newest <= cursor.since:
            return None
        if previous is not None and self._is_dealt_with(routine.name, previous):
            # On time that is all: names are looked up, nothing is listed (D11).
            return Owed(base=previous, newest=newest, previous=None)
        newest_claim, ahead = self._claims.newest_slot(routine.name, until=now)
        if ahead and ahead[-1] > now + ONE_PASS:
            log.warning(
                "claims-in-the-future",
                extra={"routine": routine.name, "count": len(ahead), "newest": str(ahead[-1])},
            )
        given_up = self._cursors.newest_missed(routine.name, until=now)
        return find_owed(
            timetable,
            since=cursor.since,
            newest_claim=newest_claim,
            newest_missed=None if given_up is None else given_up.last,
            now=until,
        )

    def _is_dealt_with(self, name: str, slot: datetime) -> bool:
        return self._claims.is_claimed(
            Occurrence(Kind.SLOT, name, slot)
        ) or self._cursors.is_given_up(name, slot)

    def _why_older(self, name: str, owed: Owed) -> Reason:
        """Return why the slots before the newest did not run when they fell due."""
        older = owed.previous or owed.newest
        if owed.previous is not None and self._saw(name, owed.previous):
            return Reason.BUSY
        since = self._alive_since()
        return Reason.ASLEEP if since is not None and since <= older else Reason.NO_SCHEDULER

    def _give_up(
        self,
        routine: Routine,
        range_: GiveUp,
        now: datetime,
        *,
        detail: str = "",
        only: datetime | None = None,
    ) -> Missed:
        """Keep a counted record; of *only* that one slot if it is given."""
        return self._cursors.give_up(
            Missed(
                routine=routine.name,
                after=range_.after,
                last=range_.last,
                first=only,
                count=None if only is None else 1,
                reason=range_.reason,
                detail=detail,
                schedule=schedule_key(routine),
                at=now,
                by=self._owner.user,
            )
        )

    def _count(self, missed: Sequence[Missed]) -> None:
        """Work out the counts, now that what is due is claimed: an absence may have been long."""
        for record in missed:
            try:
                self._cursors.fill_in(counted(record))
            except (RoutinesError, ValueError, KeyError, TypeError) as error:
                # Readers work it out themselves from what the record says. A host's own schedule
                # may be one that can't be read back.
                log.warning("count-not-written", extra={"error": str(error)})

    # Admission ----------------------------------------------------------------------------------

    def _admit(
        self, routine: Routine, slot: datetime, trigger: Trigger, now: datetime, done: Pass
    ) -> _Wanted | None:
        occurrence = Occurrence(Kind.SLOT, routine.name, slot)
        try:
            work = self._definitions.work(routine)
        except UnknownAgent as error:
            self._refuse(routine, occurrence, trigger, error, now, done)
            return None
        running, lost = self._overlaps.in_flight(routine, now, done)
        admission = admit(routine.overlap, running=len(running), lost=len(lost))
        if (
            running
            and routine.catch_up is CatchUpPolicy.ALL
            and Trigger.CATCH_UP in (trigger, running[0].trigger)
        ):
            # Slots that are caught up wait for each other, and the current one behind them,
            # whatever the policy for the present: another process may run the older one.
            done.waiting[routine.name] = f"{running[0].ref} comes first"
            return None
        if admission is Admission.SKIP:
            self._overlaps.skip(routine, occurrence, trigger, running[0], now, done)
            return None
        if admission in (Admission.BUFFER, Admission.SUPERSEDE):
            self._overlaps.buffer(routine, occurrence, trigger, work, now, done)
            if admission is Admission.SUPERSEDE:
                self._overlaps.make_way(running[0], occurrence, now, done)
            return None
        if admission is Admission.WAIT:
            for path in lost:
                self._recoverer.recover_path(path)
            what = "is still running" if running else "is being ended"
            done.waiting[routine.name] = f"its earlier turn {what}"
            return None
        session = session_of(routine, slot)
        if session in done.sessions:
            done.waiting[routine.name] = f"session {session} is busy: an older slot goes first"
            return None
        busy = self._needs.busy(session)
        if busy is not None:
            done.waiting[routine.name] = f"session {session} is busy: {busy.holder or 'a turn'}"
            return None
        room = self._needs.room_for(work)
        if not isinstance(room, Room):
            done.waiting[routine.name] = room
            return None
        done.sessions.add(session)
        draft = self._slots.draft(routine, occurrence, work, trigger)
        return _Wanted(routine, draft, room, work)

    def _refuse(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        error: UnknownAgent,
        now: datetime,
        done: Pass,
    ) -> None:
        """Settle a slot that no agent can answer: waiting for one, it would end as `busy`."""
        end = outcome_event(
            at=now,
            outcome=Outcome.FAILED,
            reason=Reason.NOT_FOUND,
            detail=error.message,
            settled_by=self._owner.user,
        )
        self._slots.settle(routine, occurrence, trigger, end, now, done)

    def _after_claim(self, one: _Wanted, claim: "Claim | StoreError | None", done: Pass) -> None:
        name = one.routine.name
        if isinstance(claim, Claim):
            try:
                lease = self._sessions.take(
                    str(claim.record.session), clock=self._clock, own_claim=claim.record.path
                )
            except BaseException:
                # Claimed and unstarted: held on to, it would wait for as long as we live.
                claim.let_go()
                one.room.let_go()
                done.unstarted.append(claim.record.path)
                raise
            if isinstance(lease, Lease):
                done.ready.append(Ready(claim, lease, one.room, one.work))
                self._done_with(one.routine, done)
                return
            # Somebody was quicker: it stays claimed, unstarted, and waits like any other.
            claim.let_go()
            done.unstarted.append(claim.record.path)
            done.done.append(name)
        elif isinstance(claim, StoreError):
            done.faults[name] = claim
        else:
            log.info("duplicate", extra={"routine": name, "slot": str(one.draft.occurrence.ref)})
            done.done.append(name)
        one.room.let_go()

    def _done_with(self, routine: Routine, done: Pass) -> None:
        if routine.catch_up is CatchUpPolicy.ALL:
            # There may be another one behind it; the next look finds out.
            done.waiting[routine.name] = "one after the other"
        else:
            done.done.append(routine.name)
