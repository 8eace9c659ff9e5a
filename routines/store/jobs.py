"""The queue on disk: what was accepted, and in which order it goes.

    jobs/ids/<ab>/<key>.json     a job whole: this name is the acceptance, and remembers the id
    jobs/queued/...              empty names in the order of all; jobs/queues/<queue>/... of one
    jobs/later/<day>/<minute>/   names of jobs that wait for their time; jobs/waits/<queue>/... too
    jobs/batches/                many jobs that were accepted at once and are not all spread yet
    jobs/purging/                purges that are not finished yet
    jobs/next                    the number that the next job gets: saves work, decides nothing

Names in an order (`job_orders`) are on the disk before the acceptance (`job_files`): a crash
between leaves a name without a job, which whoever looks at it removes. The claim is the taking
(PROMISES J2): it is made before the names go, and holds the whole job. What was taken and what was
purged is told by the claim and by the acceptance; the orders only say where to look.
"""

import contextlib
import heapq
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import ID_LENGTH, ID_LETTERS, MOST_AT_ONCE, Job
from routines.domain.job_place import Place
from routines.domain.job_request import Checked, JobRequest, check_job
from routines.domain.names import format_instant, key_of
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Trigger, one_line
from routines.domain.record import Record
from routines.errors import InvalidJob, JobConflict, StoreBusy, StoreError
from routines.store import files
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.job_batches import BatchStore
from routines.store.job_files import JobFiles, encode_job, in_the_way
from routines.store.job_later import Waiting
from routines.store.job_orders import JobOrders
from routines.store.state import State

# As history shows of any prompt.
_SHOWN = 200
_SECOND = timedelta(seconds=1)
_STEP_S = 0.02
# Lock files stay for ever, since one that is removed can be locked by two. Of two jobs that share
# one of these, one is passed over for the moment that the other is being claimed in.
_LOCKS = 3  # hexadecimal digits: 4096


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a request.

    Attributes:
        id: The job's id.
        is_new: Whether it was added now; else the same had been added before.
    """

    id: str
    is_new: bool

    @property
    def word(self) -> str:
        """`added` or `duplicate`."""
        return "added" if self.is_new else "duplicate"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known under an id.

    Attributes:
        job: The job.
        record: Its claim; None while it is queued, or if that was pruned.
        is_queued: Whether it waits to be claimed.
    """

    job: Job
    record: Record | None
    is_queued: bool


class JobStore:
    """The queue of one state folder.

    Attributes:
        orders: What is queued, in the order it goes.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._claims = ClaimStore(state)
        self._files = JobFiles(state)
        self.orders = JobOrders(state)
        self._batches = BatchStore(state, self._spread)

    def adding(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock under which jobs are accepted: nobody is in the middle of it meanwhile."""
        return files.section(self._state.at("locks", "jobs", "add.lock"), what="the queue")

    # Adding -------------------------------------------------------------------------------------

    def add(self, requests: Sequence[JobRequest], *, by: str) -> list[Added]:
        """Accept jobs, all or none; they are on the disk on return.

        Raises:
            InvalidJob: A field can't be used. Nothing was added.
            JobConflict: An id belongs to a job of other content. Nothing was added.
            StoreError: What is known under an id can't be read. Nothing was added.
            StoreBusy, NotDurable: Nothing was added.
        """
        if len(requests) > MOST_AT_ONCE:
            raise InvalidJob("jobs", f"{len(requests)} at once; the most is {MOST_AT_ONCE}")
        now = self._clock.now()
        checked = [check_job(one, new_id=_new_id(), now=now) for one in requests]
        wanted: dict[str, Checked] = {}
        for one in checked:
            if wanted.setdefault(one.id, one).digest != one.digest:
                raise JobConflict(one.id)
        try:
            with self.adding():
                fresh = self._unknown(wanted)
                batch = self._accept(fresh, now, by)
        except OSError as error:
            raise files.fault(error, "write", self._state.at("jobs")) from error
        if batch is not None:
            self._batches.spread(batch)
        new = {one.id for one in fresh}
        answers = []
        for one in checked:
            answers.append(Added(one.id, one.id in new))
            # Given twice in one call: the second is a repeat.
            new.discard(one.id)
        return answers

    def _unknown(self, wanted: Mapping[str, Checked]) -> list[Checked]:
        """Return what is not known yet. What is, and is the same, is then on the disk."""
        pending = self._batches.digests()
        fresh, folders = [], set()
        for job_id, one in wanted.items():
            key = key_of(job_id)
            known = self._files.read(key)
            digest = pending.get(key) if known is None else known.digest
            if digest is None:
                if files.exists(self._files.path(key)):
                    # Another job may be of that id, and may have run.
                    raise in_the_way(self._files.path(key))
                fresh.append(one)
            elif digest != one.digest:
                raise JobConflict(job_id)
            elif known is not None:
                folders.add(os.path.dirname(self._files.path(key)))
        # Who answers "already" answers for it: the first may have died before its sync.
        files.sync_folders(folders)
        return fresh

    def _accept(self, fresh: list[Checked], now: datetime, by: str) -> Any:
        if not fresh:
            return None
        number = self._numbers(len(fresh))
        jobs = [
            one.job(added_at=self._free_instant(one.id, now), number=number + index, by=by)
            for index, one in enumerate(fresh)
        ]
        if len(jobs) > 1:
            return self._batches.decide(jobs)
        job = jobs[0]
        path = self._files.path(key_of(job.id))
        try:
            files.make_folder(os.path.dirname(path))
            if not files.create_many([(path, encode_job(job))], first=self.orders.put([job], now)):
                raise in_the_way(path)
        except (OSError, StoreError):
            # `create` takes back what it could not sync: told "failed", nobody sees it run later.
            # By its own number: another job's names stay.
            with contextlib.suppress(OSError, StoreError):
                self.orders.remove(job)
            raise
        return None

    def _spread(self, jobs: Sequence[Job]) -> None:
        """Do for a part of a batch what `add` does for one job; again is harmless."""
        missing = []
        for job in jobs:
            key = key_of(job.id)
            if self._files.read(key) is None:
                # Its id was free when the batch was decided: what is there has been damaged since.
                self._files.set_aside(key)
                missing.append(job)
        if not missing:
            return
        order = self.orders.put(missing, self._clock.now())
        items = [(self._files.path(key_of(job.id)), encode_job(job)) for job in missing]
        for folder in {os.path.dirname(path) for path, _ in items}:
            files.make_folder(folder)
        files.create_many(items, first=order)

    def _free_instant(self, job_id: str, now: datetime) -> datetime:
        """Return the second that a job is filed under; an id that was free again may have one."""
        instant = now.astimezone(UTC).replace(microsecond=0)
        while self._claims.is_claimed(Occurrence(Kind.JOB, "", instant, job_id)):
            instant += _SECOND
        return instant

    # Numbers ------------------------------------------------------------------------------------

    def _numbers(self, count: int) -> int:
        """Return the first of *count* numbers that nobody has; under the lock."""
        number = self.newest_number() + 1
        self.orders.count_on(number + count)
        return number

    def newest_number(self) -> int:
        """Return the highest number that a job has got; under the lock."""
        current = self.orders.current()
        return current - 1 if current else self._newest_number()

    def _newest_number(self) -> int:
        newest = max(self.orders.newest_number(), self._batches.newest_number())
        for record in self.open_records():
            job = job_of(record)
            newest = max(newest, 0 if job is None else job.number)
        return newest

    # Reading ------------------------------------------------------------------------------------

    def find(self, job_id: str) -> Known | None:
        """Return what is known under an id, or None; changes nothing."""
        return self.find_by_key(key_of(job_id))

    def find_by_key(self, key: str) -> Known | None:
        """Return what is known under the key of an id, or None; changes nothing."""
        job = self._job(key)
        if job is None:
            return None
        record = self._claims.read(job.occurrence)
        if record is not None:
            return Known(job, record, is_queued=False)
        if self._is_named(job):
            return Known(job, None, is_queued=True)
        # Claimed since it was looked for; or long ended, and its record was pruned.
        return Known(job, self._claims.read(job.occurrence), is_queued=False)

    def _job(self, key: str) -> Job | None:
        """Return what was accepted under a key; read again where a batch was spread meanwhile."""
        return self._files.read(key) or self._batches.find(key) or self._files.read(key)

    def _is_named(self, job: Job) -> bool:
        return self.orders.has(job) or self._batches.find(key_of(job.id)) is not None

    def is_accepted(self, job: Job) -> bool:
        """Return whether *job* still is what its id means: it was not purged."""
        key = key_of(job.id)
        known = self._job(key)
        if known is None:
            # A purge takes it away; what can't be read was not purged.
            return files.exists(self._files.path(key))
        return known.number == job.number

    def open_records(self) -> Iterator[Record]:
        """Yield the claims of jobs that have no outcome."""
        for entry in self._claims.open_entries():
            if entry.is_job:
                record = self._claims.read_path(entry.claim_path)
                if record is not None and record.end is None:
                    yield record

    def has_open(self) -> bool:
        """Return whether a job, or a purge, was claimed and is not in the settled feed yet."""
        return any(
            entry.is_job and self._claims.read_path(entry.claim_path) is not None
            for entry in self._claims.open_entries()
        )

    def peek(self, place: Place) -> Job | None:
        """Return the job at *place*, or None if there is none any more; changes nothing."""
        job = self._files.read(place.key)
        return job if job is not None and job.number == place.number else None

    def in_order(self, queue: str | None = None) -> Iterator[Job | None]:
        """Yield what is queued and due in the order it goes, of one queue or of all.

        Also what was accepted at once with others and has no name yet, as its producer may have
        died over that. None stands for a name without a job. Changes nothing.
        """
        now = self._clock.now()
        # Read before the names are: what is spread meanwhile is found among them.
        unspread = {
            job.place: job
            for job in self._batches.jobs()
            if queue in (None, job.queue) and (job.not_before is None or job.not_before <= now)
        }
        seen = None
        for place in heapq.merge(
            self.orders.queued(queue),
            sorted(unspread, key=lambda one: one.order),
            key=lambda one: one.order,
        ):
            if place != seen:
                yield self.peek(place) or unspread.get(place)
            seen = place

    def is_waiting(self, job: Job) -> bool:
        """Return whether a queued job waits for its time."""
        if self.orders.has(job):
            return self.orders.is_waiting(job)
        return job.not_before is not None and job.not_before > self._clock.now()

    def is_spread(self) -> bool:
        """Return whether all that was accepted has its place in the orders."""
        return self._batches.is_empty()

    def has_queued(self) -> bool:
        """Return whether anything is queued, due or not."""
        return not (self.orders.is_empty() and self._batches.is_empty())

    # Bringing up to date ------------------------------------------------------------------------

    def bring_up(self, now: datetime) -> bool:
        """Finish what a crash left half done, and queue what is due now.

        Returns:
            Whether no batch is left: one that a live process is spreading stays.
        """
        whole = self._batches.finish()
        for names in self.orders.due(now):
            found = [(one, self.peek(one.place)) for one in names]
            due = [job for _, job in found if job is not None]
            try:
                files.sync_folders(self.orders.put(due, now))
            except OSError as error:
                raise files.fault(error, "write", self._state.at("jobs", "queued")) from error
            self.orders.stop_waiting((one for one, job in found if job is not None), due)
            self._drop_dead([one for one, job in found if job is None])
        return whole

    def _drop_dead(self, names: Sequence[Waiting]) -> None:
        """Remove names of jobs that were never accepted."""
        if names:
            # Where one can't be put aside its name stays, and is looked at again.
            with contextlib.suppress(StoreError), self.adding():
                self.orders.stop_waiting(one for one in names if self._is_dead(one.place))

    def _is_dead(self, place: Place) -> bool:
        """Return whether a name belongs to no job that could run; under the lock.

        Nobody is adding one now; and what is in a batch has its names before its file. Asked in
        this order: a batch that was spread since has its files. One that was accepted and can't be
        read is kept aside, and said: it is not lost in silence (PROMISES D6).
        """
        if place.key in self._batches.digests():
            return False
        job = self._files.read(place.key)
        if job is None:
            self._files.set_aside(place.key)
        return job is None or job.number != place.number

    # Taking -------------------------------------------------------------------------------------

    def job_at(self, place: Place, queue: str | None = None) -> Job | None:
        """Return the job at *place*; None if there is none, and its name then goes."""
        job = self.peek(place)
        if job is None:
            with contextlib.suppress(StoreError), self.adding():
                if self._is_dead(place):
                    self.orders.remove_place(place, queue)
        return job

    def take(
        self,
        job: Job,
        *,
        at: datetime,
        extra: Mapping[str, Any] | None = None,
        event: dict[str, Any] | None = None,
        end: dict[str, Any] | None = None,
        patience: float = 0.0,
    ) -> Claim | None:
        """Claim a queued job; it is then no longer queued.

        Args:
            job: Which.
            at: The present.
            extra: What else the claim says: its owner, the key of the turn, the routine.
            event: Another line that the claim is born with.
            end: The outcome line if it is settled in the same moment.
            patience: How many seconds to wait for others that are claiming it.

        Returns:
            The claim; None if another process has it, or it was purged.

        Raises:
            StoreBusy: It is being claimed this moment, and no less after *patience*.
            NotDurable: It could not be claimed: it is still queued, or settled `not-durable`.
        """
        draft = self._draft(job, extra=extra, event=event, end=end)
        until = self._clock.awake() + patience
        while True:
            try:
                return self._take(job, draft, at)
            except StoreBusy:
                if self._clock.awake() >= until:
                    raise
            self._clock.sleep(_STEP_S)

    def _take(self, job: Job, draft: Draft, at: datetime) -> Claim | None:
        # Its draft has one name, whoever makes it: two at once would take it from each other.
        with self._taking(job):
            # A purge forgets under the same lock: a job is either claimed or purged.
            if not self.is_accepted(job) and not self._claims.is_claimed(job.occurrence):
                return None
            claim = self._claims.take(draft, at=at)
        if claim is None and not self._claims.is_claimed(job.occurrence):
            return None
        # The claim decides. A name that stays is removed by whoever looks at it next.
        self.orders.remove(job)
        return claim

    def _taking(
        self, job: Job, *, patience: float = 0.0
    ) -> contextlib.AbstractContextManager[None]:
        name = f"take-{key_of(job.id)[:_LOCKS]}.lock"
        path = self._state.at("locks", "jobs", name)
        return files.section(path, patience=patience, what=job.ref)

    def _draft(
        self,
        job: Job,
        *,
        extra: Mapping[str, Any] | None = None,
        event: dict[str, Any] | None = None,
        end: dict[str, Any] | None = None,
    ) -> Draft:
        """Return the claim of a job as it is to be made: it holds the whole job."""
        claim = {
            "session": job.session,
            "trigger": Trigger.JOB.value,
            "due_at": format_instant(job.due_at),
            "by": job.by,
            "agent": job.agent,
            "prompt": one_line(job.prompt, most=_SHOWN),
            "recurs": False,
            **(extra or {}),
            "job": job.to_json(),
        }
        return Draft(job.occurrence, claim, end, event)

    # Purging ------------------------------------------------------------------------------------

    def forget(self, jobs: Sequence[Job]) -> None:
        """Forget jobs, with their ids, but for those that were claimed; again is harmless.

        On the disk on return.

        Raises:
            StoreBusy: One is being claimed for longer than anybody waits: to be done again.
            OSError: Not all are forgotten: to be done again.
        """
        gone = []
        for job in jobs:
            # Claimed or forgotten, never both: whoever claims holds it, too.
            with self._taking(job, patience=files.PATIENCE_S):
                if self._claims.is_claimed(job.occurrence):
                    continue
                if self.peek(job.place) is not None:
                    files.remove(self._files.path(key_of(job.id)))
                # Also one that somebody has forgotten who then died: with its names, and synced.
                gone.append(job)
        files.sync_folders({os.path.dirname(self._files.path(key_of(job.id))) for job in gone})
        for job in gone:
            self.orders.remove(job)


def job_of(record: Record) -> Job | None:
    """Return the job that a claim is of; None for a purge's, or one that can't be read."""
    return Job.from_json(record.claim.get("job"))


def _new_id() -> str:
    return "j-" + "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))
