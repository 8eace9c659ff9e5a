"""From queued to claimed: jobs, highest priority first, then arrival (PROMISES J2, J3).

A job is one more producer of turns: it needs its session and a place like any other. What is back
in the queue under its claim (never started, or recovered) goes by the same order as what is queued.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from routines.domain.clock import Clock
from routines.domain.job import Job
from routines.domain.limits import DayLimit, over_limit, turns_left
from routines.domain.names import routine_of
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import Owner, outcome_event
from routines.domain.zones import day_of, zone
from routines.engine.claim_lines import claim_line
from routines.engine.definitions import Definitions
from routines.engine.needs import Needs, Ready
from routines.engine.passes import Pass, trouble
from routines.engine.session_work import work_in_session
from routines.engine.unstarted import Unstarted
from routines.engine.work import Work
from routines.errors import RoutinesError, StoreBusy, StoreError, UnknownAgent
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.job_choosing import Choosing
from routines.store.job_purges import PurgeStore
from routines.store.job_settling import settling
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore, job_of
from routines.store.places import Room
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State

log = logging.getLogger("routines")

# A day whose limit is reached is over but for a turn that proves not to have started: to read all
# its turns in each look, for hours, would cost more than to see that within the minute.
_COUNT_AGAIN_S = 60.0


class _HouseFull(Exception):
    """No place is free: nothing more can start in this look."""


class Drainer:
    """Takes jobs from the queue of one state folder, as far as there is room."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        needs: Needs,
        jobs: JobStore,
        work: JobWork,
        clock: Clock,
        owner: Owner,
        unstarted: Unstarted,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._needs = needs
        self._clock = clock
        self._owner = owner
        self._unstarted = unstarted
        self._is_stopping = is_stopping
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)
        self._jobs = jobs
        self._work = work
        self._purges = PurgeStore(state, jobs, clock=clock)
        self._choosing = Choosing(jobs)
        # Sessions and groups that a look found in use, and how many turns of the day limits leave.
        self._busy: set[str] = set()
        self._busy_groups: set[str] = set()
        self._left: dict[DayLimit, int | None] = {}
        # Days whose limit was found reached, by limit and beginning: until when that is believed.
        self._full_days: dict[tuple[DayLimit, datetime], float] = {}

    def drain(
        self,
        again: list[OpenEntry],
        now: datetime,
        done: Pass,
        *,
        until: datetime | None = None,
    ) -> None:
        """Claim jobs that can start, and take up those that are back in the queue.

        Args:
            again: Open claims of jobs that wait to be run.
            now: The present.
            done: Takes what can start, and what was settled instead.
            until: What fell due later is left; None for the present.
        """
        self._busy, self._busy_groups, self._left = set(), set(), {}
        awake = self._clock.awake()
        self._full_days = {day: until for day, until in self._full_days.items() if until > awake}
        waiting = self._in_order(again)
        try:
            self._purges.finish()
            self._jobs.bring_up(now)
            if self._needs.is_paused(None, now):
                return
            for place in self._choosing.places():
                while waiting and waiting[0][0] < place.order:
                    self._safely(waiting[0][1].name, self._take_again, waiting[0][1], now, done)
                    waiting.pop(0)
                if self._is_stopping():
                    return
                if place.session not in self._busy:
                    job = self._jobs.job_at(place)
                    if job is not None and (until is None or job.due_at <= until):
                        self._safely(job.ref, self._take, job, now, done)
            while waiting:
                self._safely(waiting[0][1].name, self._take_again, waiting[0][1], now, done)
                waiting.pop(0)
        except _HouseFull:
            pass
        finally:
            if waiting:
                self._unstarted.look_soon()
            self._jobs.orders.tidy()

    def _in_order(self, again: list[OpenEntry]) -> list[tuple[tuple[int, int], OpenEntry]]:
        found = []
        for entry in again:
            record = self._claims.read_path(entry.claim_path)
            job = None if record is None else job_of(record)
            # What can't be read any more goes last, and is looked at all the same.
            found.append((job.place.order if job is not None else (0, 1 << 62), entry))
        return sorted(found, key=lambda one: one[0])

    def _safely(
        self, what: str, take: Callable[..., None], one: object, now: datetime, done: Pass
    ) -> None:
        """Take one; what goes wrong with it keeps no other from starting."""
        try:
            take(one, now, done)
        except StoreBusy:
            # Another process has it this moment: next second. One that is back in the queue is
            # in no list by then, and would wait for the look of the next minute.
            self._unstarted.look_soon()
        except (RoutinesError, OSError) as error:
            done.troubles[what] = trouble(error)
            log.error("job-failed", extra={"job": what, "error": str(error)})  # noqa: TRY400

    # What is queued -----------------------------------------------------------------------------

    def _take(self, job: Job, now: datetime, done: Pass) -> None:
        if self._is_held(job, now):
            return
        try:
            work = self.work_of(job)
        except UnknownAgent as error:
            self._refuse(job, error, now, done)
            return
        if self._is_over_limit(work, now):
            return
        room = self._room(work)
        if room is None:
            return
        line = claim_line(
            work,
            owner=self._owner,
            key=self._state.key(job.ref),
            session=job.session,
            trigger=Trigger.JOB,
            zone=self._definitions.zone,
            due_at=job.due_at,
            by=job.by,
        )
        try:
            claim = self._jobs.take(job, at=now, extra=line)
        except BaseException:
            room.let_go()
            raise
        if claim is None:
            room.let_go()
            return
        self._use_up(work)
        try:
            lease = self._sessions.take(job.session, clock=self._clock, own_claim=claim.record.path)
        except BaseException:
            # Claimed and unstarted: held on to, it would wait for as long as we live.
            room.let_go()
            claim.let_go()
            self._unstarted.look_soon()
            raise
        if isinstance(lease, Lease):
            self._busy.add(job.place.session)
            done.ready.append(Ready(claim, lease, room, work))
            return
        room.let_go()
        claim.let_go()
        self._unstarted.look_soon()

    def _is_held(self, job: Job, now: datetime) -> bool:
        """Return whether a job has to wait for its session: it is in use, or its routine paused."""
        routine = routine_of(job.session)
        if routine is not None and self._needs.is_paused(routine, now):
            self._busy.add(job.place.session)
            return True
        if self._needs.busy(job.session) is None:
            return False
        self._busy.add(job.place.session)
        return True

    def _room(self, work: Work) -> Room | None:
        """Return room for a turn; None if its group is in use. _HouseFull if there is no place."""
        if work.exclusive in self._busy_groups:
            return None
        room = self._needs.room_for(work)
        if isinstance(room, Room):
            return room
        if work.exclusive is None:
            raise _HouseFull
        alone = self._needs.room_for(replace(work, exclusive=None))
        if not isinstance(alone, Room):
            raise _HouseFull
        alone.let_go()
        self._busy_groups.add(work.exclusive)
        return None

    def _is_over_limit(self, work: Work, now: datetime) -> bool:
        """Return whether the turns of the day are used up: then the job stays queued."""
        for limit in work.limits:
            if limit not in self._left:
                self._left[limit] = self._left_of(limit, now)
            if self._left[limit] == 0:
                return True
        return False

    def _left_of(self, limit: DayLimit, now: datetime) -> int | None:
        place = zone(limit.zone)
        began = day_of(now, place)[0]
        if (limit, began) in self._full_days:
            return 0
        records = list(self._claims.changed_since(began))
        if over_limit(limit, records, now=now, place=place) is None:
            return turns_left(limit, records, now=now, place=place)
        self._full_days[limit, began] = self._clock.awake() + _COUNT_AGAIN_S
        return 0

    def _use_up(self, work: Work) -> None:
        """Count a turn that is about to start under the limits of its day."""
        for limit in work.limits:
            left = self._left.get(limit)
            if left:
                self._left[limit] = left - 1

    def _refuse(self, job: Job, error: RoutinesError, now: datetime, done: Pass) -> None:
        """Settle a job that no agent can answer."""
        end = outcome_event(
            at=now,
            outcome=Outcome.FAILED,
            reason=Reason.NOT_FOUND,
            detail=error.message,
            settled_by=self._owner.user,
        )
        extra = {"owner": self._owner.to_json(), "tz": self._definitions.zone}
        claim = self._jobs.take(job, at=now, end=end, extra=extra)
        if claim is not None:
            done.settled.append(claim.record)
            claim.let_go()

    # What is back in the queue ------------------------------------------------------------------

    def _take_again(self, entry: OpenEntry, now: datetime, done: Pass) -> None:
        claim = self._claims.hold(entry)
        if claim is None:
            # Somebody looks at it, and may leave it as it was.
            self._unstarted.look_soon()
            return
        kept = False
        try:
            kept = self._take_up(claim, now, done)
        except (_HouseFull, StoreBusy):
            raise
        except (RoutinesError, OSError):
            self._unstarted.hold_back(claim.record.ref, self._clock.awake())
            raise
        finally:
            if not kept:
                claim.let_go()

    def _take_up(self, claim: Claim, now: datetime, done: Pass) -> bool:
        """Take up a claim that waits; return whether it was handed on."""
        record = claim.record
        with settling(self._state, claim.occurrence):
            # The job is read again: it may have been cancelled, or its queue purged.
            if self._work.is_called_off(claim, now):
                done.settled.append(claim.record)
                return False
        if not self._unstarted.may_start(record.ref, self._clock.awake()):
            return False
        job = job_of(record)
        if job is None:
            raise StoreError(f"{record.path} does not say which job it is for")
        if job.place.session in self._busy or self._is_held(job, now):
            self._unstarted.look_soon()
            return False
        try:
            work = self.work_of(job)
        except UnknownAgent as error:
            with settling(self._state, claim.occurrence):
                # Asked once more: a cancel that was recorded meanwhile goes before that.
                if not self._work.is_called_off(claim, now):
                    claim.settle(
                        Outcome.FAILED,
                        Reason.NOT_FOUND,
                        error.message,
                        at=now,
                        settled_by=self._owner.user,
                    )
            done.settled.append(claim.record)
            return False
        room = self._room(work)
        if room is None:
            self._unstarted.look_soon()
            return False
        ready = self._needs.take_up(claim, work, room, now=now)
        if ready is None:
            self._unstarted.look_soon()
            return True
        self._use_up(work)
        self._busy.add(job.place.session)
        done.ready.append(ready)
        return True

    # What its turn does -------------------------------------------------------------------------

    def work_of(self, job: Job) -> Work:
        """Return what the turn of a job is to do; its prompt is never wrapped.

        Raises:
            UnknownAgent: Nobody is there to answer it.
        """
        work = work_in_session(
            job.session,
            job.prompt,
            definitions=self._definitions,
            sessions=self._sessions,
            agent=job.agent,
        )
        # A prompt of a program's is not safe to repeat because the routine's own is.
        return replace(
            work,
            retry=replace(work.retry, started=False, park=False),
            rerun_interrupted=job.recoveries,
        )


def entry_of(claim: Claim) -> OpenEntry:
    """Return the name in `open/` of a claim."""
    return OpenEntry(os.path.basename(claim.open_path), claim.record.path)
