"""Jobs that a program works itself: a private token, and a lease that it has to renew.

The claim is born with its `started` line, which keeps a hash of the token. The lease is a file of
its own, written over at each renewal: by the clock that nobody can set where whoever asks runs on
the same boot, else by the file server's, which wrote its modification time. Once it has lapsed the
job is taken back under the same claim, or settled (PROMISES J2, J3).
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import LEASE, OUTCOMES, Ending, Job, Place
from routines.domain.names import format_instant, key_of
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.record import Event, Owner, Record
from routines.domain.recovery import Here, Recovery, decide
from routines.errors import LeaseLost, StoreBusy, StoreError, UnknownJob
from routines.store import files
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.control import CancelStore, SwitchStore
from routines.store.job_settling import called_off, intents_of, settling
from routines.store.jobs import JobStore, job_of
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State

log = logging.getLogger("routines")

# History shows the beginning of a reply.
_SHOWN = 200
# So many names are looked at from the head of the queue, and so many from where the last look
# stopped: a crowd that waits for one session hides nobody for ever, and no look takes long.
LOOK_AHEAD = 1000
# What runs is read again only when something was written there, or so much later: a thousand may
# run, and each asks for the next job when it has ended.
_LOOK_AGAIN_S = 1.0
_STEP_S = 0.02


class Choosing:
    """Walks the queue past what can't start now: a bounded stretch at a time, and on from there."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._stopped: dict[str | None, Place] = {}

    def places(self, queue: str | None = None) -> Iterator[Place]:
        """Yield the places to look at, in their order."""
        last: Place | None = None
        for looked, place in enumerate(self._jobs.queued(queue), 1):
            yield place
            last = place
            if looked >= LOOK_AHEAD:
                break
        else:
            self._stopped.pop(queue, None)
            return
        before = self._stopped.get(queue)
        if before is not None and last is not None and before.order > last.order:
            last = before
        for looked, place in enumerate(self._jobs.queued(queue, after=last), 1):
            yield place
            if looked >= LOOK_AHEAD:
                self._stopped[queue] = place
                return
        self._stopped.pop(queue, None)


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


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """What came of a settlement.

    Attributes:
        word: `settled`, `requeued` (interrupted, with recoveries left), `replayed` or `conflict`.
        outcome: How the job has ended, or None if it has not.
        detail: Why it is a conflict, or why the outcome is another than was said.
    """

    word: str
    outcome: str | None
    detail: str = ""


def is_worked(record: Record) -> bool:
    """Return whether a program of its own works a job, and not a turn of ours."""
    return record.is_under_way and "worker" in (record.started or {})


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class JobWork:
    """The jobs of one state folder that programs work themselves."""

    def __init__(
        self, state: State, jobs: JobStore, *, clock: Clock, owner: Owner, here: Here
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._clock = clock
        self._owner = owner
        self._here = here
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
        self._jobs.tidy()
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

    def _session(self, job: Job, now: datetime, busy: set[str], path: str) -> Lease | bool:
        """Take the session of a job: its lease, True where it needs none, False if it is busy."""
        if job.has_own_session:
            return True
        if not self._is_paused(job.session, now):
            lease = self._sessions.take(job.session, clock=self._clock, own_claim=path)
            if isinstance(lease, Lease):
                return lease
        busy.add(job.place.session)
        return False

    def _take(self, job: Job, now: datetime, busy: set[str]) -> ClaimedJob | None:
        token = secrets.token_urlsafe(32)
        lease = self._session(job, now, busy, job.occurrence.claim_path)
        if lease is False:
            return None
        try:
            extra = {
                "owner": self._owner.to_json(),
                "key": self._state.key(job.ref),
                "tz": "UTC",
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
            if isinstance(lease, Lease):
                lease.let_go()

    def _started(self, job: Job, token: str) -> dict[str, Any]:
        return {
            "owner": self._owner.to_json(),
            "session": job.session,
            "agent": job.agent,
            "rerun_interrupted": job.recoveries,
            "worker": {"token": _hash(token)},
        }

    def _begin(self, claim: Claim, job: Job, token: str, lease: Lease | bool) -> ClaimedJob:
        try:
            self._write_lease(job)
            if isinstance(lease, Lease):
                # No lock is kept meanwhile: the stamp says whose the session is (T2).
                lease.stamp(claim.record.path)
            return ClaimedJob(
                job, token, claim.record.reruns + 1, self._state.key(claim.record.turn_ref)
            )
        except StoreError as error:
            # Nobody has the token: left `started` it would use up a recovery, or be interrupted.
            with contextlib.suppress(StoreError):
                claim.append(Event.NOT_STARTED, at=self._clock.now(), detail=error.message)
                files.discard(self._lease_path(job.id))
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
                if is_worked(record) and self.is_lapsed(record):
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
        lease: Lease | bool = False
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
            if lease is False:
                return None
            token = secrets.token_urlsafe(32)
            claim.append(Event.STARTED, at=now, **self._started(job, token))
            return self._begin(claim, job, token, lease)
        finally:
            claim.let_go()
            if isinstance(lease, Lease):
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

    # The lease ----------------------------------------------------------------------------------

    def _lease_path(self, job_id: str) -> str:
        key = key_of(job_id)
        return self._state.at("jobs", "leases", key[:2], key)

    def _write_lease(self, job: Job) -> None:
        path = self._lease_path(job.id)
        line = f"{self._clock.awake():020.3f} {self._here.boot or '-'}\n".encode()
        try:
            files.add_folder(os.path.dirname(path))
            files.overwrite(path, line)
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def is_lapsed(self, record: Record) -> bool:
        """Return whether the lease of a job that a program works has lapsed."""
        return self.age(record) >= LEASE

    def age(self, record: Record) -> timedelta:
        """Return how long ago the lease of a job was renewed.

        Raises:
            StoreError: That can't be told.
        """
        path = self._lease_path(record.occurrence.id)
        words = (files.read(path) or b"").split()
        boot = (self._here.boot or "").encode()
        if boot and len(words) == 2 and words[1] == boot:  # noqa: PLR2004
            with contextlib.suppress(ValueError):
                # A clock that is set, here or there, takes nobody's job.
                return timedelta(seconds=max(self._clock.awake() - float(words[0]), 0.0))
        try:
            touched = datetime.fromtimestamp(self._touched(path, record), UTC)
            return max(self._server_now() - touched, timedelta(0))
        except OSError as error:
            raise files.fault(error, "read", path) from error

    def _touched(self, path: str, record: Record) -> float:
        try:
            return os.stat(path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            # Never written, or taken away since it was read: the claim's own file counts.
            return os.stat(self._state.at(record.path)).st_mtime

    def _server_now(self) -> datetime:
        probe = files.draft_name(self._state.at("open", "clock"))
        fd = files.open_new(probe)
        try:
            return datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
        finally:
            files.close(fd)
            files.discard(probe)

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
                self._write_lease(job)
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
            lapsed = self.is_lapsed(claim.record)
        except StoreError:
            claim.let_go()
            raise
        if not lapsed:
            return claim, claim.record, ""
        try:
            # Never revived: it is taken back here and now.
            with settling(self._state, claim.occurrence):
                self.take_back_held(claim)
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
                if not is_worked(claim.record) or not self.is_lapsed(claim.record):
                    return None
                return self.take_back_held(claim)
        finally:
            claim.let_go()

    def take_back_held(self, claim: Claim) -> Record:
        """Take a job back whose lease has lapsed and whose claim is held, under its lock."""
        now, record = self._clock.now(), claim.record
        cancel = called_off(self._state, record)
        owner = record.owner
        who = "its worker" if owner is None else f"{owner.user} (pid {owner.pid})"
        detail = f"the lease of {who} lapsed"
        if cancel is not None:
            outcome, reason = cancel.end
            said = "; ".join(part for part in (cancel.reason, detail) if part)
            self._end(claim, outcome, reason, said, now, by=cancel.by)
        elif not self._requeue(claim, detail, now):
            self._end(claim, Outcome.INTERRUPTED, Reason.OWNER_DIED, detail, now)
        return claim.record

    def _requeue(self, claim: Claim, detail: str, now: datetime, **more: Any) -> bool:
        """Put an interrupted job back if it has recoveries left (J3); return whether it has."""
        record = claim.record
        rerun = record.reruns + 1
        job = job_of(record)
        if job is None or rerun > job.recoveries:
            return False
        until = format_instant(now)
        by = self._owner.user
        claim.append(Event.RETRY, at=now, detail=detail, until=until, rerun=rerun, by=by, **more)
        self._let_session_go(record)
        return True

    def _end(
        self,
        claim: Claim,
        outcome: Outcome,
        reason: Reason | None,
        detail: str,
        now: datetime,
        **more: Any,
    ) -> None:
        started = claim.record.started_at
        if started is not None:
            more["duration_s"] = round(max((now - started).total_seconds(), 0.0), 3)
        more |= intents_of(self._state, claim.record)
        claim.settle(outcome, reason, detail, at=now, settled_by=self._owner.user, **more)
        self._cancels.clear(claim.record.ref)
        self._let_session_go(claim.record)

    def _let_session_go(self, record: Record) -> None:
        files.discard(self._lease_path(record.occurrence.id))
        job = job_of(record)
        if job is None or job.has_own_session:
            return
        # The claim has let go of it already, by its last line: the stamp is only taken away.
        with contextlib.suppress(StoreError):
            lease = self._sessions.take(job.session, clock=self._clock, own_claim=record.path)
            if isinstance(lease, Lease):
                try:
                    if lease.ledger.claim == record.path:
                        lease.stamp(None)
                finally:
                    lease.let_go()

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
                return self._settle(claim, ending, detail, reply, asked)
        finally:
            claim.let_go()

    def _not_ours(self, record: Record | None, asked: str, why: str) -> SettleAnswer:
        lines = () if record is None else record.events
        if any(line.get("asked") == asked for line in lines):
            return SettleAnswer("replayed", _outcome_of(record))
        words = {"lapsed": "the lease has lapsed", "settled": "it was settled otherwise"}
        return SettleAnswer("conflict", _outcome_of(record), words.get(why, "the token is not its"))

    def _settle(
        self, claim: Claim, ending: Ending, detail: str, reply: str, asked: str
    ) -> SettleAnswer:
        now = self._clock.now()
        record = claim.record
        cancel = called_off(self._state, record)
        outcome, reason = OUTCOMES[ending]
        more: dict[str, Any] = {"asked": asked, "reply": one_line(reply, most=_SHOWN)}
        # What has no words of its own is told by its reason, as if it had been a turn of ours.
        said = detail or f"its worker said {ending.value}"
        if cancel is not None:
            outcome, reason = cancel.end
            more["by"] = cancel.by
            detail = "; ".join(part for part in (cancel.reason, said) if part)
        elif ending is Ending.INTERRUPTED and self._requeue(claim, said, now, asked=asked):
            return SettleAnswer("requeued", None)
        elif ending is not Ending.COMPLETED:
            detail = said
            if ending is Ending.CANCELLED:
                more["by"] = self._owner.user
        if reply:
            self._keep(claim, reply)
        self._end(claim, outcome, reason, detail, now, **more)
        return SettleAnswer("settled", outcome.value, "" if cancel is None else "it was cancelled")

    def _keep(self, claim: Claim, reply: str) -> None:
        """Keep a whole reply where `show` looks for it; for people, so nothing fails for it."""
        folder = self._state.at("output", claim.occurrence.place)
        with contextlib.suppress(OSError):
            files.add_folder(folder)
            data = reply.encode("utf-8", "backslashreplace")
            files.replace(os.path.join(folder, "reply.md"), data, sync=False)


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
