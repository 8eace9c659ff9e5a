"""Open claims that are owed again: settled, taken up, or left to wait for what they wait for.

They were claimed and never started, put off to be tried again, or wait for their predecessor. All
policies decide anew what becomes of them (PROMISES L10, L12, L13).
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from routines.domain.clock import Clock
from routines.domain.due import ON_TIME
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Owner, Record
from routines.domain.routine import CatchUpPolicy
from routines.engine.by_hand import with_more
from routines.engine.definitions import Definitions, edited
from routines.engine.draining import entry_of
from routines.engine.needs import Needs
from routines.engine.overlapping import Overlaps
from routines.engine.passes import Pass, trouble
from routines.engine.recovering import Recoverer
from routines.engine.unstarted import Unstarted
from routines.engine.verdicts import Verdict, cancelled
from routines.engine.waking import Waker
from routines.engine.work import Work, decode_work
from routines.errors import RoutinesError, UnknownAgent
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.state import State
from routines.store.works import WorkStore

log = logging.getLogger("routines")

# A peer that crashed is noticed within a minute, not only when somebody restarts.
_RECOVER_EVERY = timedelta(seconds=60)


class TakingUp:
    """Looks after the open claims that nobody holds."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        needs: Needs,
        overlaps: Overlaps,
        waker: Waker,
        recoverer: Recoverer,
        clock: Clock,
        owner: Owner,
        saw: Callable[[str, datetime], bool],
        follows_host: bool,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._needs = needs
        self._overlaps = overlaps
        self._waker = waker
        self._recoverer = recoverer
        self._clock = clock
        self._owner = owner
        self._saw = saw
        self._follows_host = follows_host
        self._is_stopping = is_stopping
        self._claims = ClaimStore(state)
        self._recovered_at = float("-inf")
        self.unstarted = Unstarted()
        # Open claims of jobs that wait to be run, as the last look found them.
        self.owed_jobs: list[OpenEntry] = []

    def look_at(self, at: datetime | None) -> None:
        """Look at open claims again at *at*: a retry is due then."""
        if at is not None:
            left = max((at - self._clock.now()).total_seconds(), 0.0)
            self.unstarted.look_at(self._clock.awake() + left)

    def recover(self, now: datetime, done: Pass, *, until: datetime | None = None) -> None:
        """Look at them if something may have changed, and once a minute anyway.

        Args:
            now: The present.
            done: Takes what can start, and what was settled instead.
            until: What was to start later is left to others; None for the present.
        """
        awake = self._clock.awake()
        due = awake - self._recovered_at >= _RECOVER_EVERY.total_seconds()
        if not self.unstarted.take(awake) and not due and not self._claims.any_handed_over():
            return
        self._recovered_at = awake
        self.owed_jobs = []
        recovered = self._recoverer.recover()
        done.settled += recovered.settled
        done.troubles |= {k: trouble(v) for k, v in recovered.troubles.items()}
        self.look_at(now if recovered.rerun else recovered.look_at)
        # Jobs go by the order of their queue: whoever drains that takes them up.
        jobs = [claim for claim in recovered.owed_again if claim.occurrence.is_job]
        self.owed_jobs = [entry_of(claim) for claim in jobs]
        for claim in jobs:
            claim.let_go()
            recovered.owed_again.remove(claim)
        oldest_first = sorted(recovered.owed_again, key=lambda claim: claim.record.due_at)
        # What runs already comes first: it has its place, and what is new takes what is left.
        for claim in [*recovered.followed, *oldest_first]:
            try:
                if until is not None and claim.record.due_at > until:
                    claim.let_go()
                elif claim.record.is_durable:
                    self._follow(claim, done)
                else:
                    self.take_up(claim, now, done)
            except (RoutinesError, OSError) as error:
                claim.let_go()
                self.unstarted.hold_back(claim.record.ref, awake)
                done.troubles[claim.record.ref] = trouble(error)
                log.error(  # noqa: TRY400 - the cause is in the message
                    "take-up-failed", extra={"ref": claim.record.ref, "error": str(error)}
                )

    def _follow(self, claim: Claim, done: Pass) -> None:
        """Take up a durable run that nobody watches; a pause holds back only what is to start."""
        record = claim.record
        if self._is_stopping() or not self.unstarted.may_start(record.ref, self._clock.awake()):
            claim.let_go()
            return
        work = self._kept_work(record) or self._work_by_now(record)
        if work is None or (work.agent is None and not self._follows_host):
            # Nobody here can ask its agent, and nobody but that agent knows.
            claim.let_go()
            self.unstarted.hold_back(record.ref, self._clock.awake())
            log.warning("run-not-followed", extra={"ref": record.ref, "run": record.run_id})
            return
        ready = self._needs.take_over(claim, work)
        if ready is None:
            self.unstarted.look_soon()
        else:
            done.ready.append(ready)

    def _kept_work(self, record: Record) -> Work | None:
        """Return what the turn of a durable run was given, None if that can't be read any more."""
        try:
            kept = WorkStore(self._state).read(record)
            return None if kept is None else decode_work(kept)
        except (ValueError, KeyError, TypeError, AttributeError, RoutinesError) as error:
            # Torn by hand, or of another version: today's file is the next best.
            log.warning("work-not-read", extra={"ref": record.ref, "error": str(error)})
            return None

    def _work_by_now(self, record: Record) -> Work | None:
        """Return what a durable turn is by today's file: no policy has a say in what runs."""
        occurrence = record.occurrence
        if occurrence.kind is Kind.WAKE:
            return self._waker.work_of(record, self._clock.now())
        routine = None if occurrence.is_job else self._definitions.current(occurrence.owner)
        agent = (record.started or {}).get("agent")
        return None if routine is None else self._definitions.work(routine, agent=agent)

    def take_up(self, claim: Claim, now: datetime, done: Pass, *, takes_place: bool = True) -> None:
        """Decide anew about a claim that was never started, and let go of it if it has to wait.

        Args:
            claim: The claim, held.
            now: The present.
            done: Takes its turn if it can start, or its record if it was settled instead.
            takes_place: Whether a turn of a slot needs a place under `concurrency`. What an outside
                clock delivers needs none, and is not late either: its clock has brought it.
        """
        record = claim.record
        if self._is_stopping() or not self.unstarted.may_start(record.ref, self._clock.awake()):
            claim.let_go()
            return
        paused = self._needs.is_paused(record.routine, now)
        if paused and not record.occurrence.is_by_hand:
            claim.let_go()
            self.unstarted.look_soon()
            return
        if record.last == Event.BUFFERED.value and self._overlaps.predecessor(record) is not None:
            claim.let_go()
            self._hold_back(record, done)
            return
        try:
            decided = self._cancelled(record) or self._work_again(
                record, now, catches_up=takes_place
            )
        except UnknownAgent as error:
            # Held back instead, it would be tried for as long as the agent stays away.
            decided = Verdict(Outcome.FAILED, Reason.NOT_FOUND, error.message)
        if isinstance(decided, Verdict):
            done.settled.append(
                claim.settle(
                    decided.outcome,
                    decided.reason,
                    decided.detail,
                    at=now,
                    by=decided.by,
                    settled_by=self._owner.user,
                )
            )
            claim.let_go()
            CancelStore(self._state).clear(record.ref)
            return
        if takes_place and not record.occurrence.is_by_hand:
            room = self._needs.room_for(decided)
        else:
            room = self._needs.group_for(decided)
        ready = self._needs.take_up(claim, decided, room, now=now)
        if ready is None:
            self._hold_back(record, done)
        else:
            done.ready.append(ready)

    def _hold_back(self, record: Record, done: Pass) -> None:
        done.held_back[record.ref] = record.routine
        self.unstarted.look_soon()

    def _cancelled(self, record: Record) -> Verdict | None:
        """Take up a cancel of a claim that waits: it needs no session to be settled (L17)."""
        cancel = CancelStore(self._state).take_up(record.ref)
        return None if cancel is None else cancelled(cancel, "before it started")

    def _work_again(self, record: Record, now: datetime, *, catches_up: bool) -> Work | Verdict:
        """Return what an unstarted claim is to do by today's definition, or how it ends instead.

        Raises:
            UnknownAgent: Nobody is there to answer it.
        """
        occurrence = record.occurrence
        if occurrence.kind is Kind.WAKE:
            if not self._waker.is_sound(record):
                return Verdict(
                    Outcome.INTERRUPTED,
                    Reason.OWNER_UNKNOWN,
                    "what it holds is not what was set: kept as .corrupt, and not delivered",
                )
            return self._waker.work_of(record, now)
        routine = self._definitions.current(occurrence.owner)
        if routine is None:
            return Verdict(Outcome.SKIPPED, Reason.EDITED, "its routine is gone")
        agent = record.claim.get("agent") if occurrence.is_by_hand else None
        work = self._definitions.work(routine, agent=agent)
        if occurrence.is_by_hand:
            return with_more(replace(work, only_if=None), record.claim.get("append"))
        changed = edited(
            replace(work, digest=record.claim.get("definition")),
            routine,
            occurrence,
            self._definitions.work,
        )
        if isinstance(changed, Verdict):
            return changed
        late = now - record.due_at
        none = catches_up and routine.catch_up is CatchUpPolicy.NONE
        if none and late > ON_TIME and not self._saw(routine.name, record.due_at):
            return Verdict(Outcome.MISSED, Reason.NO_SCHEDULER, "catch_up is none")
        return work
