"""From due to claimed: what is owed is recorded or claimed, and what can start has all it needs.

Under the routine's lock, in this order: read cursor and definition, record what is given up, claim
what is next (PROMISES L2). What has to wait for its session or for a place waits unclaimed (L8).
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from routines.domain import schedule as schedules
from routines.domain.clock import Clock
from routines.domain.due import Admission, GiveUp, Owed, admit, find_owed, plan
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import SHOWN, Outcome, Reason, Trigger, one_line
from routines.domain.record import Event, Owner, Record, outcome_event
from routines.domain.routine import CatchUpPolicy, Routine, schedule_key
from routines.domain.timetable import Timetable, offset_of
from routines.engine.arming import Arming, counted
from routines.engine.definitions import Definitions
from routines.engine.host import is_gone
from routines.engine.recovering import Recoverer
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.errors import RoutinesError, StoreBusy, StoreError, UnknownAgent
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, Draft
from routines.store.control import Cancel, CancelStore, SwitchStore
from routines.store.cursors import CursorStore, Missed, Standing
from routines.store.places import PlaceStore, Room
from routines.store.sessions import Busy, Lease, SessionStore
from routines.store.state import State

log = logging.getLogger("routines")


@dataclass(slots=True)
class Ready:
    """A claimed occurrence with everything that its turn needs.

    Attributes:
        claim: Its claim, held.
        lease: Its session, held.
        room: Its place under `concurrency` and its group, as far as it needs them.
        work: What is to be done.
    """

    claim: Claim
    lease: Lease
    room: Room
    work: Work

    def let_go(self) -> None:
        """Let go of everything: the claim stays, unstarted, and is taken up again."""
        self.lease.let_go()
        self.room.let_go()
        self.claim.let_go()


@dataclass(slots=True)
class Pass:
    """What one look came to.

    Attributes:
        ready: Turns to be started, oldest slot first.
        settled: Records that ended without a turn.
        missed: Counted records that were made.
        waiting: Routines that are due and wait, with why.
        unstarted: Whether a claim was made that has to wait for its session after all.
        faults: Routines that the store refused.
        busy: Routines whose lock another process had.
        done: Routines about which nothing is left to do now.
        superseding: Running turns that were asked to make way for a newer slot.
        unarmed: Routines whose cursor says that they are not armed.
        sessions: Sessions that are about to be taken.
    """

    ready: list[Ready] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    unstarted: bool = False
    faults: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    superseding: list[Cancel] = field(default_factory=list)
    unarmed: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


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
        recoverer: Recoverer,
        clock: Clock,
        owner: Owner,
        alive_since: Callable[[], datetime | None],
        saw: Callable[[str, datetime], bool],
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._arming = arming
        self._recoverer = recoverer
        self._clock = clock
        self._owner = owner
        self._alive_since = alive_since
        self._saw = saw
        self._claims = ClaimStore(state)
        self._switches = SwitchStore(state)
        self._cursors = CursorStore(state)
        self._sessions = SessionStore(state)
        self._places = PlaceStore(state)

    # Slots --------------------------------------------------------------------------------------

    def claim_due(self, names: Sequence[str], *, now: datetime, patience: float = 0.0) -> Pass:
        """Claim what is due of the routines *names*, and take what their turns need.

        Args:
            names: Oldest slot first.
            now: The present.
            patience: Seconds to wait for a routine's lock; in a pass it is only tried.
        """
        done = Pass()
        wanted: list[_Wanted] = []
        with contextlib.ExitStack() as held:
            for name in names:
                try:
                    if self._owes_nothing(name, now):
                        done.done.append(name)
                        continue
                    with contextlib.ExitStack() as own:
                        own.enter_context(self._cursors.section(name, patience=patience))
                        one = self._decide(name, now, done)
                        if one is not None:
                            # Only locks that a claim needs are kept: ten thousand routines may
                            # be looked at, and a process has a thousand descriptors.
                            held.enter_context(own.pop_all())
                except StoreBusy:
                    done.busy.append(name)
                except (StoreError, UnknownAgent) as error:
                    done.faults[name] = error.message
                except Exception as error:
                    # A schedule or an agent of a host may fail in any way: it is this routine's.
                    log.exception("decide-failed", extra={"routine": name})
                    done.faults[name] = f"{type(error).__name__}: {error}"
                else:
                    if one is not None:
                        wanted.append(one)
            taken = self._claims.take_many([one.draft for one in wanted], at=now)
        for one, claim in zip(wanted, taken, strict=True):
            try:
                self._after_claim(one, claim, done)
            except (StoreError, OSError) as error:
                # The others are claimed and wait to be started, whatever ails this one.
                done.faults[one.routine.name] = str(error)
        self._count(done.missed)
        return done

    def _owes_nothing(self, name: str, now: datetime) -> bool:
        """Return whether it shows without lock or file that nothing is owed: most looks end here.

        What it goes by only grows: claims, counted records, where a cursor begins. An edit that
        was not seen yet owes nothing from before it is.
        """
        routine = self._definitions.routines.get(name)
        timetable = None if routine is None else routine.timetable
        if timetable is None:
            return False
        newest = timetable.newest_due(now)
        begins = self._arming.begins(name)
        if newest is None or begins is None:
            return False
        return newest <= begins or self._is_dealt_with(name, newest)

    def _decide(self, name: str, now: datetime, done: Pass) -> _Wanted | None:
        """Record what is given up of a routine, and return the slot to claim; its lock is held."""
        routine = self._definitions.current(name)
        timetable = None if routine is None else routine.timetable
        if routine is None or timetable is None or not routine.enabled:
            done.done.append(name)
            return None
        if self.is_paused(name, now):
            # It stays armed; what it passes over is counted when it is resumed.
            done.done.append(name)
            return None
        owed = self._owed(routine, timetable, now, done)
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

    def is_paused(self, routine: str | None, now: datetime) -> bool:
        """Return whether nothing of *routine* may start now."""
        return self._switches.held(routine, now=now) is not None

    def _owed(
        self, routine: Routine, timetable: Timetable, now: datetime, done: Pass
    ) -> Owed | None:
        newest = timetable.newest_due(now)
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
        if ahead:
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
            now=now,
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
        self, routine: Routine, range_: GiveUp, now: datetime, *, detail: str = ""
    ) -> Missed:
        return self._cursors.give_up(
            Missed(
                routine=routine.name,
                after=range_.after,
                last=range_.last,
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
        work = self._definitions.work(routine)
        running, lost = self._in_flight(routine, now, done)
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
            self._skip(routine, occurrence, trigger, running[0], now, done)
            return None
        if admission in (Admission.BUFFER, Admission.SUPERSEDE):
            self._buffer(routine, occurrence, trigger, work, now, done)
            if admission is Admission.SUPERSEDE:
                self._make_way(running[0], occurrence, now, done)
            return None
        if admission is Admission.WAIT:
            for path in lost:
                self._recoverer.recover_path(path)
            what = "is still running" if running else "is being ended"
            done.waiting[routine.name] = f"its earlier turn {what}"
            return None
        session = routine.session_for(occurrence.ref.partition("@")[2])
        if session in done.sessions:
            done.waiting[routine.name] = f"session {session} is busy: an older slot goes first"
            return None
        busy = self.busy(session)
        if busy is not None:
            done.waiting[routine.name] = f"session {session} is busy: {busy.holder or 'a turn'}"
            return None
        room = self.room_for(work)
        if not isinstance(room, Room):
            done.waiting[routine.name] = room
            return None
        done.sessions.add(session)
        claim = claim_line(
            work,
            owner=self._owner,
            key=self._state.key(occurrence.ref),
            session=session,
            trigger=trigger,
            zone=routine.zone,
            due_at=slot + offset_of(routine.name, slot, routine.jitter),
        )
        return _Wanted(routine, Draft(occurrence, claim), room, work)

    def _buffer(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        work: Work,
        now: datetime,
        done: Pass,
    ) -> None:
        """Claim a slot unstarted: it goes when its predecessor has ended (L13)."""
        line = claim_line(
            work,
            owner=self._owner,
            key=self._state.key(occurrence.ref),
            session=routine.session_for(occurrence.ref.partition("@")[2]),
            trigger=trigger,
            zone=routine.zone,
            due_at=occurrence.instant + offset_of(routine.name, occurrence.instant, routine.jitter),
        )
        event = {"event": Event.BUFFERED.value, "at": format_instant(now)}
        claim = self._claims.take(Draft(occurrence, line, event=event), at=now)
        if claim is not None:
            claim.let_go()
            done.unstarted = True
        done.done.append(routine.name)

    def _make_way(self, running: Record, newer: Occurrence, now: datetime, done: Pass) -> None:
        """Ask the running turn to end for a newer slot, unless it is being ended already."""
        cancels = CancelStore(self._state)
        if running.last == Event.CANCELLING.value or cancels.pending(running.ref) is not None:
            return
        done.superseding.append(
            cancels.ask(
                running.ref,
                by=self._owner.user,
                person=False,
                at=now,
                reason="superseded",
                newer=newer.ref,
            )
        )

    def predecessor(self, claim: Claim) -> str | None:
        """Return the earlier slot that a buffered claim still waits for, or None."""
        own = claim.record
        for entry in self._claims.open_entries(routine=own.occurrence.owner):
            if entry.claim_path == own.path or "manual-" in entry.name.rpartition("~")[2]:
                continue
            record = self._claims.read_path(entry.claim_path)
            if (
                record is not None
                and record.end is None
                and (record.is_under_way or self._claims.is_held(record))
            ):
                return record.ref
        return None

    def busy(self, session: str) -> Busy | None:
        """Return who has *session*; a claim that only its stamp holds is looked after first."""
        busy = self._sessions.is_busy(session)
        if busy is None or busy.locked or busy.claim is None:
            return busy
        self._recoverer.recover_path(busy.claim)
        return self._sessions.is_busy(session)

    def room_for(self, work: Work) -> Room | str:
        """Return a place, and the group of *work*, or why there is none."""
        return self._room(self._definitions.concurrency, work.exclusive)

    def group_for(self, work: Work) -> Room | str:
        """Return the group alone: a run by hand or from outside waits for no place."""
        return self._room(None, work.exclusive)

    def _room(self, places: int | None, group: str | None) -> Room | str:
        room = self._places.take(places=places, group=group)
        if group is None or not isinstance(room, Room):
            return room
        # The lock first: a durable run that another process begins meanwhile is seen by one of
        # the two, for its `started` is on the disk before it lets go.
        try:
            is_kept = self._is_kept(group)
        except BaseException:
            room.let_go()
            raise
        if not is_kept:
            return room
        room.let_go()
        return f"a turn of the group {group} runs"

    def _is_kept(self, group: str) -> bool:
        """Return whether a durable run has *group*: it keeps it also while nobody watches it."""
        for entry in self._claims.open_entries():
            record = self._claims.read_path(entry.claim_path)
            if record is not None and record.is_durable and record.group == group:
                return True
        return False

    def _in_flight(
        self, routine: Routine, now: datetime, done: Pass
    ) -> tuple[list[Record], list[str]]:
        """Return the routine's own open slots: those with a live owner, and paths of lost ones.

        One that was never started and that nobody holds only waited: the newer slot takes its
        place, and it is missed.
        """
        running: list[Record] = []
        lost: list[str] = []
        for entry in self._claims.open_entries(routine=routine.name):
            if "manual-" in entry.name.rpartition("~")[2]:
                continue
            claim = self._claims.hold(entry)
            if claim is None:
                record = self._claims.read_path(entry.claim_path)
                if record is None or record.end is not None or not record.readable:
                    continue
                if record.last == Event.PARKED.value:
                    continue
                if record.last in (Event.BUFFERED.value, Event.RETRY.value):
                    # Nobody's: it is held for no longer than a look takes, in another process.
                    raise StoreBusy(
                        f"{record.ref} is being looked at by another process",
                        hint="nothing was changed; it is looked at again",
                        path=entry.claim_path,
                    )
                if record.started is not None and is_gone(record.owner):
                    # Somebody is ending what its dead owner left: its end is near.
                    lost.append(entry.claim_path)
                else:
                    running.append(record)
                continue
            try:
                ended = displaced(claim.record)
                if ended is not None:
                    done.settled.append(
                        claim.settle(
                            ended.outcome,
                            ended.reason,
                            ended.detail,
                            at=now,
                            settled_by=self._owner.user,
                        )
                    )
                elif claim.record.is_durable:
                    # Its run goes on, watched or not.
                    running.append(claim.record)
                elif claim.record.is_under_way or not claim.record.readable:
                    lost.append(entry.claim_path)
            finally:
                claim.let_go()
        return running, lost

    def _skip(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        running: Record,
        now: datetime,
        done: Pass,
    ) -> None:
        detail = f"{running.ref} is still running"
        draft = Draft(
            occurrence,
            {
                "routine": routine.name,
                "session": routine.session_for(occurrence.ref.partition("@")[2]),
                "trigger": trigger.value,
                "by": self._owner.user,
                "tz": routine.zone,
                "due_at": occurrence.instant
                + offset_of(routine.name, occurrence.instant, routine.jitter),
                "owner": self._owner.to_json(),
            },
            end=outcome_event(
                at=now, outcome=Outcome.SKIPPED, reason=Reason.OVERLAP, detail=detail
            ),
        )
        claim = self._claims.take(draft, at=now)
        if claim is not None:
            done.settled.append(claim.record)
            claim.let_go()
        done.done.append(routine.name)

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
                done.unstarted = True
                raise
            if isinstance(lease, Lease):
                done.ready.append(Ready(claim, lease, one.room, one.work))
                self._done_with(one.routine, done)
                return
            # Somebody was quicker: it stays claimed, unstarted, and waits like any other.
            claim.let_go()
            done.unstarted = True
            done.done.append(name)
        elif isinstance(claim, StoreError):
            done.faults[name] = claim.message
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

    # Claims that are owed again -----------------------------------------------------------------

    def take_up(self, claim: Claim, work: Work, room: Room | str, *, now: datetime) -> Ready | None:
        """Take what an unstarted claim needs to start after all; None if it has to wait on.

        The claim is let go of when it waits, and then the room too.

        Args:
            claim: The claim, held.
            work: What is to be done.
            room: The room that was taken for it, or why there is none.
            now: The present.
        """
        if not isinstance(room, Room):
            claim.let_go()
            return None
        try:
            lease = self._sessions.take(
                str(claim.record.session), clock=self._clock, own_claim=claim.record.path
            )
        except BaseException:
            room.let_go()
            raise
        if not isinstance(lease, Lease):
            room.let_go()
            claim.let_go()
            return None
        ready = Ready(claim, lease, room, work)
        try:
            note_attempt(claim, owner=self._owner, at=now)
        except StoreError:
            ready.let_go()
            raise
        return ready

    def take_over(self, claim: Claim, work: Work) -> Ready | None:
        """Take what a durable run keeps, to go on with it; None if its session is taken just now.

        It is at work already: place and group are taken where they are free, and not waited for.
        """
        lease = self._sessions.take(
            str(claim.record.session), clock=self._clock, own_claim=claim.record.path
        )
        if not isinstance(lease, Lease):
            claim.let_go()
            return None
        try:
            return Ready(claim, lease, self._room_left(work), work)
        except BaseException:
            lease.let_go()
            raise

    def _room_left(self, work: Work) -> Room:
        places, group = self._definitions.concurrency, work.exclusive
        for wanted in ((places, group), (None, group), (places, None)):
            room = self._places.take(places=wanted[0], group=wanted[1])
            if isinstance(room, Room):
                return room
        return Room()


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


def note_attempt(claim: Claim, *, owner: Owner, at: datetime) -> None:
    """Note that an unstarted claim is taken up again, and by whom."""
    claim.append(Event.ATTEMPT, at=at, n=claim.record.attempts + 1, owner=owner.to_json())


def claim_line(
    work: Work,
    *,
    owner: Owner,
    key: str,
    session: str,
    trigger: Trigger,
    zone: str,
    due_at: datetime,
    by: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return what the first line of a claim says besides its identity."""
    return {
        "routine": work.routine,
        "session": session,
        "trigger": trigger.value,
        "by": by or owner.user,
        "tz": zone,
        "due_at": due_at,
        "agent": work.agent_name,
        "model": work.model,
        "cwd": work.cwd,
        "definition": work.digest,
        "key": key,
        "prompt": one_line(work.prompt, most=SHOWN),
        "recurs": _recurs(work, due_at),
        "owner": owner.to_json(),
        **more,
    }


def _recurs(work: Work, at: datetime) -> bool:
    """Return whether another slot comes after *at*: what comes only once is never given up."""
    if work.schedule is None:
        return False
    try:
        return schedules.from_spec(work.schedule).next_after(at) is not None
    except (RoutinesError, KeyError, TypeError, ValueError):
        # A host's own kind of schedule can't be made from its spec; such schedules go on.
        return True
