"""What programs ask of jobs: cancel one, fail a lane."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import Job
from routines.domain.job_place import short_key
from routines.domain.outcome import Outcome, Reason, end_of_cancel
from routines.domain.record import Event, Owner, Record, outcome_event
from routines.errors import StoreBusy, StoreError
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.job_leases import is_worked
from routines.store.job_settling import called_off, intents_of, knows_intent, settling
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore, job_of
from routines.store.state import State

log = logging.getLogger("routines")


class CancelWord(StrEnum):
    """What came of a cancel."""

    RECORDED = "recorded"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """What came of a cancel.

    Attributes:
        word: `recorded`, `replayed`, `conflict` or `missing`.
        outcome: How the job has ended, or None: a running one is asked to end.
        detail: Why it is a conflict.
    """

    word: CancelWord
    outcome: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LaneFailed:
    """What came of failing a lane, this time.

    Attributes:
        failed: Jobs that have ended so. One that ended otherwise meanwhile, as it was cancelled or
            settled first, is not among them.
        asked: Jobs that run and were asked to end; they had not when this returned.
        more: Whether to call again: others are left, or some have not ended.
    """

    failed: tuple[str, ...]
    asked: tuple[str, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who wants a job to end, and how."""

    by: str
    person: bool
    reason: str
    intent: str | None = None
    lane: bool = False

    @property
    def end(self) -> tuple[Outcome, Reason]:
        return end_of_cancel(person=self.person, lane=self.lane)


class JobCanceller:
    """Ends jobs of one state folder before they have ended by themselves."""

    def __init__(
        self, state: State, jobs: JobStore, work: JobWork, *, clock: Clock, owner: Owner
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._work = work
        self._clock = clock
        self._owner = owner
        self._claims = ClaimStore(state)
        self._cancels = CancelStore(state)

    def cancel(
        self,
        job_id: str,
        intent_id: str,
        *,
        by: str,
        person: bool,
        reason: str = "",
        only_if_queued: bool = False,
    ) -> CancelAnswer:
        """Cancel a job; what is recorded here before its settlement makes it `cancelled`.

        Raises:
            StoreBusy, NotDurable: Nothing was recorded; ask again, by the same intent.
        """
        asked = _Asked(by, person, reason, intent_id)
        now = self._clock.now()
        self._jobs.bring_up(now)
        known = self._jobs.find(job_id)
        if known is None:
            return CancelAnswer(CancelWord.MISSING)
        with settling(self._state, known.job.occurrence):
            record = self._claims.read(known.job.occurrence)
            if record is None and not known.is_queued:
                return CancelAnswer(CancelWord.CONFLICT, detail="it has ended long ago")
            if record is None:
                if self._end_queued(known.job, asked, now):
                    return CancelAnswer(CancelWord.RECORDED, asked.end[0].value)
                record = self._claims.read(known.job.occurrence)
            if record is None:
                return CancelAnswer(CancelWord.MISSING)
            if knows_intent(self._state, record, intent_id):
                return CancelAnswer(CancelWord.REPLAYED, _outcome_of(record))
            if record.end is not None:
                return CancelAnswer(CancelWord.CONFLICT, _outcome_of(record), "it has ended")
            return self._cancel_claimed(record, asked, now, only_if_queued=only_if_queued)

    def _cancel_claimed(
        self, record: Record, asked: _Asked, now: datetime, *, only_if_queued: bool
    ) -> CancelAnswer:
        ended = self._end_unstarted(record, asked, now)
        if ended is not None:
            return CancelAnswer(CancelWord.RECORDED, _outcome_of(ended))
        if only_if_queued:
            return CancelAnswer(CancelWord.CONFLICT, detail="it is running, or about to")
        self._ask(record, asked, now)
        return CancelAnswer(CancelWord.RECORDED)

    def _end_unstarted(self, record: Record, asked: _Asked, now: datetime) -> Record | None:
        """Settle a claimed job that nobody has begun; None if it runs, or another holds it."""
        claim = None if record.is_under_way else self._claims.hold(_entry_of(record))
        if claim is None:
            return None
        try:
            if claim.record.is_under_way:
                return None
            self._settle(claim, self._who_goes_first(claim.record, asked), now)
            return claim.record
        finally:
            claim.let_go()

    def _who_goes_first(self, record: Record, asked: _Asked) -> _Asked:
        """Return what ends a job: a cancel that was recorded goes before its lane."""
        cancel = called_off(self._state, record) if asked.lane else None
        if cancel is None or cancel.lane:
            return asked
        return _Asked(cancel.by, cancel.person, cancel.reason, cancel.intent)

    def _ask(self, record: Record, asked: _Asked, now: datetime) -> None:
        self._cancels.ask(
            record.ref,
            by=asked.by,
            person=asked.person,
            at=now,
            reason=asked.reason,
            intent=asked.intent,
            lane=asked.lane,
        )

    def _settle(self, claim: Claim, asked: _Asked, now: datetime) -> None:
        outcome, reason = asked.end
        more = intents_of(self._state, claim.record)
        if asked.intent is not None:
            more["intents"] = sorted({asked.intent, *more.get("intents", ())})
        claim.settle(
            outcome, reason, asked.reason, at=now, by=asked.by, settled_by=self._owner.user, **more
        )
        self._cancels.clear(claim.record.ref)

    def _end_queued(self, job: Job, asked: _Asked, now: datetime) -> bool:
        """Claim a queued job and settle it in one; False if another process has it.

        Raises:
            StoreBusy: Others were claiming it for longer than anybody does.
        """
        claim = self._jobs.take(
            job,
            at=now,
            end=self._end_line(asked, now),
            extra=self._extra(),
            patience=files.PATIENCE_S,
        )
        if claim is None:
            return False
        claim.let_go()
        return True

    def _extra(self) -> dict[str, Any]:
        return {"owner": self._owner.to_json()}

    def _end_line(self, asked: _Asked, now: datetime) -> dict[str, Any]:
        outcome, reason = asked.end
        more: dict[str, Any] = {} if asked.intent is None else {"intents": [asked.intent]}
        return outcome_event(
            at=now,
            outcome=outcome,
            reason=reason,
            detail=asked.reason,
            by=asked.by,
            settled_by=self._owner.user,
            **more,
        )

    # Lanes --------------------------------------------------------------------------------------

    def fail_lane(
        self, lane: str, reason: str, *, by: str, person: bool, limit: int, wait_s: float
    ) -> LaneFailed:
        """Fail what is queued or runs in *lane*, at most *limit* jobs, what runs first.

        What was asked to end before and runs on is awaited again, and does not count.

        Args:
            lane: Which.
            reason: Kept in each record.
            by: Who.
            person: Whether a person asks.
            limit: How many at most in this call.
            wait_s: How long the ends of running turns are awaited.

        Raises:
            StoreBusy, NotDurable: What was failed before is failed; call again.
        """
        asked = _Asked(by, person, reason, lane=True)
        now = self._clock.now()
        whole = self._jobs.bring_up(now)
        failed: list[str] = []
        running: list[Record] = []
        more = not whole
        left, seen = limit, set()
        for record in self._open_of(lane):
            if not self._is_to_end(record):
                # Counted again in each call, workers that do not end would hide what is queued.
                if left == 0:
                    more = True
                    continue
                left -= 1
            seen.add(record.ref)
            ended = self._fail_claimed(record, asked, now)
            if ended is None:
                running.append(record)
            elif _has_failed_so(ended):
                failed.append(record.occurrence.id)
        queued, more_queued = self._fail_queued(lane, asked, now, left)
        failed += queued
        # One that was claimed in the middle of this is neither queued any more nor was it seen.
        more = more or any(record.ref not in seen for record in self._open_of(lane))
        ends, still = self._await_ends(running, wait_s)
        failed += [record.occurrence.id for record in ends if _has_failed_so(record)]
        return LaneFailed(tuple(failed), tuple(still), more or more_queued or bool(still))

    def _open_of(self, lane: str) -> list[Record]:
        found = []
        for record in self._jobs.open_records():
            job = job_of(record)
            if job is not None and job.lane == lane:
                found.append(record)
        return sorted(found, key=lambda one: not one.is_under_way)

    def _fail_claimed(self, record: Record, asked: _Asked, now: datetime) -> Record | None:
        """Fail a claimed job; return how it has ended, None if it runs and was asked to."""
        with settling(self._state, record.occurrence):
            record = self._claims.read(record.occurrence) or record
            if record.end is not None:
                return record
            ended = self._end_unstarted(record, asked, now)
            if ended is None and not self._is_to_end(record):
                self._ask(record, asked, now)
            return ended

    def _is_to_end(self, record: Record) -> bool:
        """Return whether a job that runs was asked to end before."""
        asked = self._cancels.pending(record.ref) or self._cancels.accepted(record.ref)
        return asked is not None or record.last == Event.CANCELLING.value

    def _fail_queued(
        self, lane: str, asked: _Asked, now: datetime, limit: int
    ) -> tuple[list[str], bool]:
        failed: list[str] = []
        busy = False
        for job in self._queued_of(lane):
            if len(failed) >= limit:
                return failed, True
            try:
                if self._end_queued(job, asked, now):
                    failed.append(job.id)
            except StoreBusy:
                # It is being claimed this moment: the next call finds out how.
                busy = True
        return failed, busy

    def _queued_of(self, lane: str) -> Iterator[Job]:
        wanted = short_key(lane)
        for places in (self._jobs.orders.queued(), self._jobs.orders.later_places()):
            for place in places:
                job = self._jobs.peek(place) if place.lane == wanted else None
                if job is not None and job.lane == lane and not self._has_claim(job):
                    yield job

    def _has_claim(self, job: Job) -> bool:
        return self._claims.is_claimed(job.occurrence)

    def _await_ends(self, running: list[Record], wait_s: float) -> tuple[list[Record], list[str]]:
        """Return what has ended of *running* in that time, and the ids of the others."""
        ended: list[Record] = []
        until = self._clock.awake() + wait_s
        waiting = list(running)
        while waiting:
            for record in list(waiting):
                now = self._claims.read(record.occurrence)
                if now is not None and self._take_back(now):
                    now = self._claims.read(record.occurrence)
                if now is None:
                    # Ended long ago, and not kept any more.
                    waiting.remove(record)
                elif now.end is not None:
                    waiting.remove(record)
                    ended.append(now)
            if not waiting or self._clock.awake() >= until:
                break
            self._clock.sleep(0.2)
        return ended, [record.occurrence.id for record in waiting]

    def _take_back(self, record: Record) -> bool:
        """Take a job back whose worker is gone: perhaps nobody else comes who would."""
        try:
            if record.end is not None or not is_worked(record):
                return False
            return self._work.leases.is_lapsed(record) and (
                self._work.take_back(_entry_of(record)) is not None
            )
        except StoreError as error:
            # Its life can't be told, or somebody looks at it: it stays among those asked.
            log.warning("lease-not-told", extra={"ref": record.ref, "error": error.message})
            return False


def _entry_of(record: Record) -> OpenEntry:
    name = record.occurrence.open_path("").removeprefix("open/")
    return OpenEntry(name, record.path or record.occurrence.claim_path)


def _has_failed_so(record: Record) -> bool:
    """Return whether a job has ended since its lane was failed, and by nothing else."""
    return record.outcome is Outcome.FAILED and record.reason is Reason.LANE


def _outcome_of(record: Record) -> str | None:
    return None if record.outcome is None else record.outcome.value
