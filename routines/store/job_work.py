"""Jobs that a program works itself: a private token, and a lease that it has to renew.

The claim is born with its `started` line, which keeps a hash of the token. Once the lease has
lapsed the job is taken back under the same claim, or settled (PROMISES J2, J3).
"""

import contextlib
import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import Ending, Job
from routines.domain.names import format_instant
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Owner, Record
from routines.domain.recovery import Here, Recovery, decide
from routines.errors import LeaseLost, StoreBusy, StoreError, UnknownJob
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.job_choosing import Choosing
from routines.store.job_leases import JobLeases, is_worked
from routines.store.job_returns import JobReturns, SettleAnswer
from routines.store.job_settling import called_off, intents_of, settling
from routines.store.jobs import JobStore, job_of
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State
from routines.store.switches import SwitchStore

log = logging.getLogger("routines")

# What runs is read again only when something was written there, or so much later: a thousand may
# run, and each asks for the next job when it has ended.
_LOOK_AGAIN_S = 1.0
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that a program works.

    Attributes:
        job: The job.
        token: What `renew` and `settle` need; nobody else is ever shown it.
        run: Which run of the job this is, counted from 1: one more than the recoveries used.
        key: Names this run: the same however often it is asked for.
    """

    job: Job
    token: str
    run: int
    key: str

    def __repr__(self) -> str:
        """Leave the token out: what is printed or logged is no secret."""
        return f"ClaimedJob(id={self.job.id!r}, run={self.run})"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class JobWork:
    """The jobs of one state folder that programs work themselves.

    Attributes:
        leases: Whether those programs live.
        returns: Settles what one of them says has ended, and puts back what it has lost.
    """

    def __init__(
        self,
        state: State,
        jobs: JobStore,
        *,
        clock: Clock,
        owner: Owner,
        here: Here,
        end_opened: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._clock = clock
        self._owner = owner
        self._here = here
        self._end_opened = end_opened
        self.leases = JobLeases(state, clock=clock, here=here)
        self.returns = JobReturns(state, clock=clock, owner=owner, leases=self.leases)
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)
        self._cancels = CancelStore(state)
        self._choosing = Choosing(jobs)
        # By name in open/: the size of a claim that can't be run now, and when it was read.
        self._seen: dict[str, tuple[int, float]] = {}
        # By name in open/: the size of a claim that had no outcome when it was read.
        self._unended: dict[str, int] = {}

    # Claiming -----------------------------------------------------------------------------------

    def claim(self, queue: str | None = None) -> ClaimedJob | None:
        """Claim the next job of *queue*, or of all; None if there is none that may run.

        Raises:
            NotDurable: It could not be claimed.
        """
        now = self._clock.now()
        if self._is_paused(None, now):
            return None
        self._jobs.bring_up(now)
        found = self._choose(queue, self._owed_again(queue, now), now)
        self._jobs.orders.tidy()
        return found

    def _choose(
        self, queue: str | None, again: list[tuple[tuple[int, int], OpenEntry]], now: datetime
    ) -> ClaimedJob | None:
        busy: set[str] = set()
        for place in self._choosing.places(queue):
            while again and again[0][0] < place.order:
                found = self._take_again(again.pop(0)[1], now, busy)
                if found is not None:
                    return found
            if place.session in busy:
                continue
            job = self._jobs.job_at(place, queue)
            if job is None:
                continue
            with contextlib.suppress(StoreBusy):
                taken = self._take(job, now, busy)
                if taken is not None:
                    return taken
        for _, entry in again:
            found = self._take_again(entry, now, busy)
            if found is not None:
                return found
        return None

    def _is_paused(self, session: str | None, now: datetime) -> bool:
        routine = None
        if session is not None and session.startswith("routine:"):
            routine = session.removeprefix("routine:").partition("@")[0]
        return SwitchStore(self._state).held(routine, now=now) is not None

    def _session(self, job: Job, now: datetime, busy: set[str], path: str) -> Lease | None:
        """Take the session of a job; None if it is busy. Its own too: other work may name it."""
        if not self._is_paused(job.session, now):
            lease = self._sessions.take(job.session, clock=self._clock, own_claim=path)
            if not isinstance(lease, Lease) and lease.opened is not None:
                # Where programs work all jobs, nobody may ever want that session but us.
                try:
                    self._end_opened(job.session)
                except StoreError as error:
                    more = {"session": job.session, "error": error.message}
                    log.error("opened-not-ended", extra=more)  # noqa: TRY400 - the cause is in it
                lease = self._sessions.take(job.session, clock=self._clock, own_claim=path)
            if isinstance(lease, Lease):
                return lease
        busy.add(job.place.session)
        return None

    def _take(self, job: Job, now: datetime, busy: set[str]) -> ClaimedJob | None:
        token = secrets.token_urlsafe(32)
        lease = self._session(job, now, busy, job.occurrence.claim_path)
        if lease is None:
            return None
        try:
            extra = {
                "owner": self._owner.to_json(),
                "key": self._state.key(job.ref),
            }
            event = {
                "event": Event.STARTED.value,
                "at": format_instant(now),
                **self._started(job, token),
            }
            claim = self._jobs.take(job, at=now, extra=extra, event=event)
            if claim is None:
                return None
            return self._begin(claim, job, token, lease)
        finally:
            lease.let_go()

    def _started(self, job: Job, token: str) -> dict[str, Any]:
        return {
            "owner": self._owner.to_json(),
            "session": job.session,
            "agent": job.agent,
            "rerun_interrupted": job.recoveries,
            "worker": {"token": _hash(token)},
        }

    def _begin(self, claim: Claim, job: Job, token: str, lease: Lease) -> ClaimedJob:
        try:
            self.leases.write(job)
            # No lock is kept meanwhile: the stamp says whose the session is (T2).
            lease.stamp(claim.record.path)
            return ClaimedJob(
                job, token, claim.record.reruns + 1, self._state.key(claim.record.turn_ref)
            )
        except StoreError as error:
            # Nobody has the token: left `started` it would use up a recovery, or be interrupted.
            with contextlib.suppress(StoreError):
                claim.append(Event.NOT_STARTED, at=self._clock.now(), detail=error.message)
                self.leases.drop(job.id)
            raise
        finally:
            claim.let_go()

    def _owed_again(
        self, queue: str | None, now: datetime
    ) -> list[tuple[tuple[int, int], OpenEntry]]:
        """Take back what lapsed, and return the claims of *queue* that wait to be run again."""
        found = []
        awake, seen = self._clock.awake(), self._seen
        self._seen = {}
        for entry in self._claims.open_entries():
            if not entry.is_job:
                continue
            size = files.size_of(self._state.at(entry.claim_path))
            before = seen.get(entry.name, (-1, 0.0))
            if before[0] == size and 0 <= awake - before[1] < _LOOK_AGAIN_S:
                self._seen[entry.name] = before
                continue
            record = self._claims.read_path(entry.claim_path)
            job = None if record is None or record.end is not None else job_of(record)
            if record is None or job is None:
                continue
            try:
                if is_worked(record) and self.leases.is_lapsed(record):
                    self.take_back(entry)
                    record = self._claims.read_path(entry.claim_path) or record
            except StoreBusy:
                # Somebody settles or cancels it this moment.
                pass
            except StoreError as error:
                # Nothing is done about it, and other work goes on (PROMISES J3).
                more = {"ref": record.ref, "error": error.message}
                log.warning("lease-not-told", extra=more)
            if not self._may_run_again(record, now):
                self._seen[entry.name] = (size, awake)
            elif queue in (None, job.queue):
                found.append((job.place.order, entry))
        return sorted(found, key=lambda one: one[0])

    def _may_run_again(self, record: Record, now: datetime) -> bool:
        found = decide(record, here=self._here, silent_for=timedelta(0), now=now)
        return found is Recovery.OWED_AGAIN

    def _take_again(self, entry: OpenEntry, now: datetime, busy: set[str]) -> ClaimedJob | None:
        claim = self._claims.hold(entry)
        if claim is None:
            return None
        lease: Lease | None = None
        try:
            job = job_of(claim.record)
            if job is None or not self._may_run_again(claim.record, now):
                return None
            try:
                with settling(self._state, claim.occurrence):
                    if self.is_called_off(claim, now):
                        return None
            except StoreBusy:
                # It is being cancelled this moment: the next look finds out how.
                return None
            lease = self._session(job, now, busy, claim.record.path)
            if lease is None:
                return None
            token = secrets.token_urlsafe(32)
            claim.append(Event.STARTED, at=now, **self._started(job, token))
            return self._begin(claim, job, token, lease)
        finally:
            claim.let_go()
            if lease is not None:
                lease.let_go()

    def is_called_off(self, claim: Claim, now: datetime) -> bool:
        """Settle a claim that waits, if it was cancelled or its queue purged; under its lock."""
        record = claim.record
        job = job_of(record)
        if job is not None and not self._jobs.is_accepted(job):
            claim.settle(Outcome.CANCELLED, Reason.PURGE, "its queue was purged", at=now)
            return True
        cancel = called_off(self._state, record)
        if cancel is None:
            return False
        outcome, reason = cancel.end
        more = intents_of(self._state, record)
        claim.settle(outcome, reason, cancel.reason, at=now, by=cancel.by, **more)
        self._cancels.clear(record.ref)
        return True

    def publish_ended(self) -> None:
        """Bring jobs into the feed that have ended and whose settler died before it could."""
        before, unended = self._unended, {}
        for entry in self._claims.open_entries():
            if not entry.is_job:
                continue
            size = files.size_of(self._state.at(entry.claim_path))
            if before.get(entry.name) == size:
                unended[entry.name] = size
                continue
            record = self._claims.read_path(entry.claim_path)
            if record is not None and record.end is None:
                unended[entry.name] = size
            elif record is not None:
                # What can't be published stays open: the next look tries again, and until then
                # it is pending. It must not stop the work on other jobs.
                with contextlib.suppress(StoreError):
                    claim = self._claims.hold(entry)
                    if claim is not None:
                        claim.let_go()
        self._unended = unended

    def renew(self, job_id: str, token: str) -> None:
        """Renew the lease of a job: it lasts 120 s from now.

        Raises:
            UnknownJob: There is none of that id.
            LeaseLost: It is not that program's, has lapsed, was settled, or is to be cancelled.
            StoreBusy: Somebody looks at it this moment; the lease is as it was.
        """
        claim, record, why = self._held(job_id, token)
        if claim is None:
            raise self._lost(record, job_id, why)
        try:
            if self._cancels.pending(claim.record.ref) is not None:
                raise LeaseLost(job_id, "cancelled", "its cancel was asked for")
            job = job_of(claim.record)
            if job is not None:
                self.leases.write(job)
        finally:
            claim.let_go()

    def _lost(self, record: Record | None, job_id: str, why: str) -> LeaseLost:
        words = {
            "lapsed": "its lease has lapsed: it may be worked by another program",
            "settled": "it has ended"
            + ("" if record is None or record.outcome is None else f": {record.outcome.value}"),
        }
        return LeaseLost(job_id, why, words.get(why, "another program works it, or none does"))

    def _held(self, job_id: str, token: str) -> tuple[Claim | None, Record | None, str]:
        """Hold the claim of a job that *token* works; else its record, and why not."""
        known = self._jobs.find(job_id)
        if known is None:
            raise UnknownJob(job_id)
        record = known.record
        if record is None:
            return None, None, "stranger"
        entry = _entry_of(record)
        until = self._clock.awake() + files.PATIENCE_S
        while True:
            claim = self._claims.hold(entry, sync=False)
            if claim is not None:
                break
            record = self._claims.read_path(entry.claim_path) or record
            if record.end is not None:
                return None, record, "settled"
            if self._clock.awake() >= until:
                raise StoreBusy(f"{record.ref} is looked at by another process", hint="try again")
            self._clock.sleep(_STEP_S)
        if not _is_token_of(claim.record, token):
            claim.let_go()
            return None, claim.record, "stranger"
        try:
            lapsed = self.leases.is_lapsed(claim.record)
        except StoreError:
            claim.let_go()
            raise
        if not lapsed:
            return claim, claim.record, ""
        try:
            # Never revived: it is taken back here and now.
            with settling(self._state, claim.occurrence):
                self.returns.take_back(claim)
        finally:
            claim.let_go()
        return None, claim.record, "lapsed"

    def take_back(self, entry: OpenEntry) -> Record | None:
        """Take a job back whose lease has lapsed; return its record, None if it has not."""
        claim = self._claims.hold(entry)
        if claim is None:
            return None
        try:
            with settling(self._state, claim.occurrence):
                if not is_worked(claim.record) or not self.leases.is_lapsed(claim.record):
                    return None
                return self.returns.take_back(claim)
        finally:
            claim.let_go()

    # Settling -----------------------------------------------------------------------------------

    def settle(
        self, job_id: str, token: str, ending: Ending, *, detail: str = "", reply: str = ""
    ) -> SettleAnswer:
        """Say how the work on a job has ended.

        Raises:
            UnknownJob: There is none of that id.
            StoreBusy, NotDurable: It is not settled; say it again.
        """
        asked = _fingerprint(token, ending, detail, reply)
        claim, record, why = self._held(job_id, token)
        if claim is None:
            return self._not_ours(record, asked, why)
        try:
            with settling(self._state, claim.occurrence):
                return self.returns.settle(claim, ending, detail, reply, asked)
        finally:
            claim.let_go()

    def _not_ours(self, record: Record | None, asked: str, why: str) -> SettleAnswer:
        lines = () if record is None else record.events
        if any(line.get("asked") == asked for line in lines):
            return SettleAnswer("replayed", _outcome_of(record))
        words = {"lapsed": "the lease has lapsed", "settled": "it was settled otherwise"}
        return SettleAnswer("conflict", _outcome_of(record), words.get(why, "the token is not its"))


def _entry_of(record: Record) -> OpenEntry:
    name = record.occurrence.open_path("").removeprefix("open/")
    return OpenEntry(name, record.path or record.occurrence.claim_path)


def _is_token_of(record: Record, token: str) -> bool:
    worker = (record.started or {}).get("worker")
    if not record.is_under_way or not isinstance(worker, dict):
        return False
    return secrets.compare_digest(str(worker.get("token")), _hash(token))


def _fingerprint(token: str, ending: Ending, detail: str, reply: str) -> str:
    text = json.dumps([_hash(token), ending.value, detail, reply])
    return hashlib.sha256(text.encode()).hexdigest()


def _outcome_of(record: Record | None) -> str | None:
    return None if record is None or record.outcome is None else record.outcome.value
