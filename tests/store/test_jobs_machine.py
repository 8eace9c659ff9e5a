"""The life of jobs as a state machine, against the real store, with crashes at any of its calls.

The model is a dictionary. Producers, workers with tokens, cancels, lanes and purges come in any
order; the program may die before or after any call that changes a file, and the clock may be set.
After each step: one end a job, none lost, none twice, recoveries never exceeded, and the settled
feed only grows at its end.
"""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from routines.domain.job import Ending
from routines.domain.job_request import JobRequest
from routines.errors import JobConflict, LeaseLost, RoutinesError, UnknownJob
from routines.store.claims import ClaimStore
from routines.store.jobs import job_of
from tests.builders import NOW
from tests.store.crash import Steps, as_a_new_process, standing_in
from tests.store.job_operations import Queue

IDS = st.sampled_from([f"j{number}" for number in range(6)])
PRIORITIES = st.integers(0, 2)
LANES = st.sampled_from([None, "pr-1", "pr-2"])
QUEUES = st.sampled_from(["default", "other"])
# So many calls before the process dies; None for a process that lives on.
DEATHS = st.one_of(st.none(), st.none(), st.integers(1, 60))


class Died(BaseException):
    """The process ends here: no handler of errors sees it."""


@dataclass
class Asked:
    """What is known of a job.

    Attributes:
        requests: What may have been accepted under its id.
        sure: What a producer was told was accepted; None if it may be there or not.
        purged: Whether its queue was purged since: then it may be gone.
        runs: The keys under which it was given out.
    """

    requests: list[JobRequest] = field(default_factory=list)
    sure: JobRequest | None = None
    purged: bool = False
    runs: set[str] = field(default_factory=set)

    def must_refuse(self, request: JobRequest) -> bool:
        return self.sure is not None and not self.purged and self.sure != request

    def may_refuse(self, request: JobRequest) -> bool:
        return any(one != request for one in self.requests)


class JobMachine(RuleBasedStateMachine):
    """One queue, the programs on it, and what is known of it."""

    def __init__(self) -> None:
        super().__init__()
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.mkdtemp(prefix="jobs-machine-", dir=parent)
        self.path = os.path.join(self.folder, "state")
        self.later = timedelta(0)
        self.wall = timedelta(0)
        self.known: dict[str, Asked] = {}
        # Tokens of programs, and those that must not be believed any more.
        self.held: dict[str, Any] = {}
        self.ends: dict[str, str] = {}
        self.feed: list[tuple[int, str]] = []
        self.restart()

    def teardown(self) -> None:
        as_a_new_process()
        shutil.rmtree(self.folder)

    def restart(self) -> None:
        as_a_new_process()
        self.queue = Queue(self.path, later=self.later)
        self.queue.clock._now = NOW + self.later + self.wall

    @contextlib.contextmanager
    def mortal(self, dies_at: int | None) -> Any:
        """Let the process die at a call of its stores, as a kill does; then it starts again."""

        def before(number: int, name: str, args: tuple[Any, ...]) -> None:
            # Not at a close: unlike a killed process this one would keep the descriptor.
            if dies_at is not None and number >= dies_at and name != "close":
                raise Died

        try:
            with standing_in(Steps(before=before)):
                yield
        except Died:
            self.restart()

    # What programs do ---------------------------------------------------------------------------

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=4, unique=True),
        priority=PRIORITIES,
        lane=LANES,
        name=QUEUES,
        recoveries=st.integers(0, 2),
        later=st.booleans(),
        dies_at=DEATHS,
    )
    def add(
        self,
        ids: list[str],
        priority: int,
        lane: str | None,
        name: str,
        recoveries: int,
        later: bool,
        dies_at: int | None,
    ) -> None:
        more: dict[str, Any] = {"priority": priority, "lane": lane, "queue": name}
        more |= {"recoveries": recoveries, "after": "1m" if later else None}
        asked = [JobRequest(prompt="look", id=one, **more) for one in ids]
        known = [self.known.setdefault(str(one.id), Asked()) for one in asked]
        pairs = list(zip(asked, known, strict=True))
        must = any(before.must_refuse(one) for one, before in pairs)
        may = any(before.may_refuse(one) for one, before in pairs)
        if not must:
            # Whoever dies in the middle of it may have added them all, or none.
            for one, before in pairs:
                before.requests.append(one)
        with self.mortal(dies_at):
            try:
                added = self.queue.jobs.add(asked, by="ana@studio")
            except JobConflict:
                assert may, "refused, and nothing of that id had other content"
                return
            assert not must, "J1: accepted with other content"
            for (one, before), result in zip(pairs, added, strict=True):
                if before.sure is not None and not before.purged:
                    assert result.word == "duplicate"
                if result.word == "added":
                    before.runs.clear()
                before.requests, before.sure, before.purged = [one], one, False

    @rule(name=st.one_of(st.none(), QUEUES), dies_at=DEATHS)
    def claim(self, name: str | None, dies_at: int | None) -> None:
        with self.mortal(dies_at):
            claimed = self.queue.work.claim(name)
            if claimed is None:
                return
            asked = self.known[claimed.job.id]
            assert claimed.key not in asked.runs, "the same run was given out twice"
            asked.runs.add(claimed.key)
            assert claimed.run <= claimed.job.recoveries + 1, "J3: recoveries exceeded"
            self.held[claimed.key] = (claimed, self.later)

    def _some(self, data: Any) -> Any:
        return data.draw(st.sampled_from(sorted(self.held)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ending=st.sampled_from(list(Ending)), dies_at=DEATHS)
    def settle(self, data: Any, ending: Ending, dies_at: int | None) -> None:
        claimed, since = self.held[self._some(data)]
        lapsed = self.later - since >= timedelta(seconds=120)
        with self.mortal(dies_at):
            try:
                said = self.queue.work.settle(claimed.job.id, claimed.token, ending, detail="why")
            except (UnknownJob, RoutinesError):
                return
            if lapsed:
                assert said.word in ("conflict", "replayed"), "J2: a lapsed lease was believed"

    @precondition(lambda self: self.held)
    @rule(data=st.data(), dies_at=DEATHS)
    def renew(self, data: Any, dies_at: int | None) -> None:
        key = self._some(data)
        claimed, since = self.held[key]
        with self.mortal(dies_at):
            try:
                self.queue.work.renew(claimed.job.id, claimed.token)
            except LeaseLost:
                return
            assert self.later - since < timedelta(seconds=120), "J2: a lapsed lease was revived"
            self.held[key] = (claimed, self.later)

    @rule(job=IDS, intent=st.sampled_from(["i1", "i2"]), queued=st.booleans(), dies_at=DEATHS)
    def cancel(self, job: str, intent: str, queued: bool, dies_at: int | None) -> None:
        with self.mortal(dies_at):
            said = self.queue.cancels.cancel(
                job, intent, by="ana", person=True, only_if_queued=queued
            )
            if said.word == "missing":
                asked = self.known.get(job)
                assert asked is None or asked.sure is None or asked.purged, "added, and lost"
            if said.word == "recorded":
                again = self.queue.cancels.cancel(
                    job, intent, by="ana", person=True, only_if_queued=queued
                )
                assert again.word == "replayed"

    @rule(lane=st.sampled_from(["pr-1", "pr-2"]), dies_at=DEATHS)
    def fail_lane(self, lane: str, dies_at: int | None) -> None:
        with self.mortal(dies_at):
            self.queue.cancels.fail_lane(lane, "closed", by="ana", person=True, limit=3, wait_s=0.0)

    @rule(name=QUEUES, dies_at=DEATHS)
    def purge(self, name: str, dies_at: int | None) -> None:
        for asked in self.known.values():
            if any(one.queue == name for one in asked.requests):
                # From here on each may be gone: it is if it was still queued.
                asked.purged = True
        with self.mortal(dies_at):
            self.queue.purges.purge(name, by="ana")

    @rule(seconds=st.sampled_from([1, 30, 61, 121]))
    def time_passes(self, seconds: int) -> None:
        self.later += timedelta(seconds=seconds)
        self.restart()

    @rule(minutes=st.sampled_from([-5, 5]))
    def clock_is_set(self, minutes: int) -> None:
        self.wall += timedelta(minutes=minutes)
        self.restart()

    @rule()
    def crash(self) -> None:
        self.restart()

    # What must hold -----------------------------------------------------------------------------

    @invariant()
    def each_job_ends_once_and_stays_so(self) -> None:
        claims = ClaimStore(self.queue.state)
        for path in claims.walk(["job"]):
            record = claims.read_path(path)
            assert record is not None
            job = job_of(record)
            if job is None:
                continue
            assert record.reruns <= job.recoveries, "J3: recoveries exceeded"
            ends = [line for line in record.events if line["event"] == "outcome"]
            assert len(ends) <= 1
            if ends:
                before = self.ends.setdefault(path, ends[0]["outcome"])
                assert before == ends[0]["outcome"], "an end has changed"

    @invariant()
    def nothing_that_was_accepted_is_lost(self) -> None:
        for job_id, asked in self.known.items():
            if asked.sure and not asked.purged:
                found = self.queue.jobs.find(job_id)
                assert found is not None, f"{job_id} was accepted, and is lost"
                assert found.record is not None or found.is_queued, f"{job_id} is nowhere"

    @invariant()
    def the_feed_only_grows_at_its_end(self) -> None:
        page = [(entry.number, entry.key) for entry in self.queue.feed.page(0, 256)]
        assert page[: len(self.feed)] == self.feed, "the feed has changed where it was read"
        assert [number for number, _ in page] == list(range(1, len(page) + 1))
        keys = [key for _, key in page]
        assert len(keys) == len(set(keys)) or self._was_purged(), "an end is shown twice"
        self.feed = page

    def _was_purged(self) -> bool:
        # An id that was free again may have ended twice.
        return any(asked.purged for asked in self.known.values())

    def at_the_end(self) -> None:
        """Work off what is left: then each job has ended, and nothing is open."""
        self.later += timedelta(days=1)
        self.restart()
        queue = self.queue
        queue.purges.finish()
        claims = ClaimStore(queue.state)
        for entry in claims.open_entries():
            # A worker that died before it could write its lease: the file server's clock counts.
            with contextlib.suppress(FileNotFoundError):
                os.utime(queue.state.at(entry.claim_path), (0, 0))
        for folder, _, names in os.walk(queue.state.at("jobs", "leases")):
            for name in names:
                os.utime(os.path.join(folder, name), (0, 0))
        for _ in range(50):
            claimed = queue.work.claim()
            if claimed is None:
                break
            queue.work.settle(claimed.job.id, claimed.token, Ending.COMPLETED)
        for entry in claims.open_entries():
            left = claims.hold(entry)
            assert left is None, f"{entry.name} has no outcome: {left.record.events}"
        assert not queue.jobs.has_queued()
        self.each_job_ends_once_and_stays_so()
        self.nothing_that_was_accepted_is_lost()
        self.the_feed_only_grows_at_its_end()
        ended = {entry.key for entry in queue.feed.page(0, 256)}
        for path in claims.walk(["job"]):
            record = claims.read_path(path)
            assert record is not None
            if job_of(record) is not None:
                assert record.end is not None, f"{record.ref} has no outcome"
        assert len(ended) <= 256


class _Played(JobMachine):
    """The machine that also works off what is left when a sequence is over."""

    def teardown(self) -> None:
        try:
            self.at_the_end()
        finally:
            super().teardown()


# Pytest collects the case; the class beside it is for playing a sequence by hand.
TestJobs = _Played.TestCase
TestJobs.settings = settings(
    max_examples=int(os.environ.get("ROUTINES_JOB_EXAMPLES", "40")),
    stateful_step_count=30,
    deadline=None,
    # What fails is short already, and to cut it down takes minutes on a busy machine.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
