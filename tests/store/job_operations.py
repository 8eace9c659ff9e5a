"""What the stores of jobs write: each operation, ready to be stopped anywhere on its way.

After each the program starts again and everything that is queued is worked off. Then each job has
ended once or was never there, as its producer was told; what was added together is there together;
and the settled feed shows each end once, without a gap.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from routines.domain.job import Ending, Job
from routines.domain.job_request import JobRequest, check_job
from routines.domain.names import key_of
from routines.domain.recovery import Here
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.claims import ClaimStore
from routines.store.job_cancels import JobCanceller
from routines.store.job_feed import JobFeed
from routines.store.job_index import JobIndex
from routines.store.job_purges import PurgeStore
from routines.store.job_retention import JobRetention
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore
from routines.store.state import open_for_writing
from tests.builders import BOOT, NOW, FakeClock, owner
from tests.store.crash import Tell, Told, claim_files, lines_of

PROMPT = "look at the build"
TOGETHER = ("m1", "m2", "m3")


class Queue:
    """The stores of one queue, as a program has them."""

    def __init__(
        self, path: str, *, later: timedelta = timedelta(0), clock: FakeClock | None = None
    ) -> None:
        self.state = open_for_writing(path, boot=BOOT)
        self.clock = clock or FakeClock()
        self.clock.advance(seconds=later.total_seconds())
        me = owner()
        self.jobs = JobStore(self.state, clock=self.clock)
        here = Here(host=me.host, boot=BOOT)
        self.work = JobWork(self.state, self.jobs, clock=self.clock, owner=me, here=here)
        self.purges = PurgeStore(self.state, self.jobs, clock=self.clock)
        self.cancels = JobCanceller(self.state, self.jobs, self.work, clock=self.clock, owner=me)
        self.feed = JobFeed(self.state)

    def add(self, *ids: str, **more: Any) -> None:
        self.jobs.add([request(one, **more) for one in ids], by="ana@studio")

    def job(self, job_id: str) -> Job:
        known = self.jobs.find(job_id)
        assert known is not None
        return known.job


def request(job_id: str, **more: Any) -> JobRequest:
    return JobRequest(prompt=PROMPT, id=job_id, **more)


def _with(*ids: str, **more: Any) -> Callable[[str], Queue]:
    def prepare(path: str) -> Queue:
        queue = Queue(path)
        for one in ids:
            queue.add(one, **more)
        return queue

    return prepare


def _later(prepare: Callable[[str], Any], span: timedelta) -> Callable[[str], Queue]:
    def prepared(path: str) -> Queue:
        prepare(path)
        return Queue(path, later=span)

    return prepared


# What is looked at afterwards ------------------------------------------------------------------


def job_ends(path: str) -> dict[str, list[str]]:
    """The outcomes of each job, by its claims."""
    found: dict[str, list[str]] = {}
    for claim_path in claim_files(path):
        if claim_path.startswith("claims/job/"):
            lines = lines_of(path, claim_path)
            ends = [line["outcome"] for line in lines if line["event"] == "outcome"]
            found.setdefault(lines[0]["id"].removeprefix("job:"), []).extend(ends[:1])
    return found


def work_off(path: str) -> Queue:
    """Do what is queued, as a program that starts two days later, and bring the feed up."""
    queue = Queue(path, later=timedelta(days=2))
    queue.purges.finish()
    while (claimed := queue.work.claim()) is not None:
        answer = queue.work.settle(claimed.job.id, claimed.token, Ending.COMPLETED)
        assert answer.word == "settled", answer
    claims = ClaimStore(queue.state)
    for entry in claims.open_entries():
        assert claims.hold(entry) is None, f"{entry.name} has no outcome"
    return queue


def _each_ends_once(*expected: str, together: tuple[str, ...] = ()) -> Callable[[str, Told], None]:
    """Check that what was accepted has ended once, and that what was refused never will."""

    def after(path: str, told: Told) -> None:
        queue = work_off(path)
        ends = job_ends(path)
        many = {job_id: len(found) for job_id, found in ends.items()}
        assert all(count == 1 for count in many.values()), f"J1: ended {many} times"
        accepted = {rest[0] for word, *rest in told if word == "added"}
        refused = {rest[0] for word, *rest in told if word == "refused"}
        forgotten = {rest[0] for word, *rest in told if word == "forgotten"}
        assert accepted - forgotten <= many.keys(), f"told added, and it is lost: {told}"
        assert not refused & many.keys(), f"told refused, and it ran: {told}"
        assert not forgotten & many.keys(), f"told purged, and it ran: {told}"
        assert set(expected) - forgotten <= many.keys()
        assert set(together) <= many.keys() or not set(together) & many.keys(), "J1: a part"
        assert not queue.jobs.has_queued()
        _feed_shows_each_once(queue, many)

    return after


def _feed_shows_each_once(queue: Queue, ended: dict[str, int]) -> None:
    page = queue.feed.page(0, 256)
    assert [entry.number for entry in page] == list(range(1, len(page) + 1)), "a gap in the feed"
    shown = sorted(entry.key for entry in page)
    assert shown == sorted(key_of(job_id) for job_id in ended), "each end once in the feed"
    for entry in page:
        record = queue.feed.record(entry)
        assert record is not None
        assert key_of(record.occurrence.id) == entry.key, "it says whose it is"
        assert record.end is not None, "what is in the feed has ended"


def _gone_or_ran(*ids: str) -> Callable[[str, Told], None]:
    """Check a purge: what it has forgotten never ran, and what it has not, ran."""

    def after(path: str, told: Told) -> None:
        queue = work_off(path)
        ends = job_ends(path)
        purges = [one for one in ends if one.startswith("purge-")]
        ran = [one for one in ids if one in ends]
        if ["purged", len(ids)] in told:
            assert len(purges) == 1
            assert not ran
        assert len(purges) == 1 or len(ran) == len(ids), f"lost in silence: {ends}"
        assert len(purges) <= 1
        if purges:
            assert not ran, "what a purge decided is finished by whoever looks next"
        queue.add(*ids)
        _feed_shows_each_once(queue, dict.fromkeys(ends, 1))

    return after


# The operations --------------------------------------------------------------------------------


def _tell_added(queue: Queue, tell: Tell, *ids: str, **more: Any) -> None:
    queue.jobs.add([request(one, **more) for one in ids], by="ana@studio")
    for one in ids:
        tell("added", one)


def _add(*ids: str, **more: Any) -> Callable[[Any, Tell], None]:
    return lambda queue, tell: _tell_added(queue, tell, *ids, **more)


def _decided_and_not_spread(path: str) -> Queue:
    queue = Queue(path)
    checked = [check_job(request(one), new_id="", now=NOW) for one in TOGETHER]
    with queue.jobs.adding():
        number = queue.jobs._numbers(len(checked))
        jobs = [
            one.job(added_at=NOW, number=number + index, by="ana@studio")
            for index, one in enumerate(checked)
        ]
        batch = queue.jobs._batches.decide(jobs)
    # Its maker has died.
    locks.let_go(batch.fd)
    return queue


def _decided_and_damaged(path: str) -> Queue:
    queue = _decided_and_not_spread(path)
    (batch,) = queue.jobs._batches._paths()
    with open(batch, "r+b") as file:
        data = file.read()
        file.seek(data.index(b"\n", data.index(b"\n") + 1) + 1)
        file.write(b"\0" * len(data))
    return queue


def _leaves_a_batch_aside(path: str, told: Told) -> None:
    _each_ends_once("m1")(path, told)
    assert [name.rpartition(".")[2] for name in files.names(f"{path}/jobs/batches")] == ["corrupt"]


def _bring_up(queue: Queue, tell: Tell) -> None:
    queue.jobs.bring_up(queue.clock.now())


def _claim(queue: Queue, tell: Tell) -> None:
    claimed = queue.work.claim()
    # None: what stands in its way could not be read or written, and is tried again.
    if claimed is not None:
        tell("claimed", claimed.job.occurrence.claim_path)


def _worked(*ids: str, **more: Any) -> Callable[[str], Any]:
    """Jobs that a program has claimed, with their tokens."""

    def prepare(path: str) -> Any:
        queue = _with(*ids, **more)(path)
        return queue, [queue.work.claim() for _ in ids]

    return prepare


def _settle(ending: Ending) -> Callable[[Any, Tell], None]:
    def act(made: Any, tell: Tell) -> None:
        queue, (claimed,) = made
        answer = queue.work.settle(claimed.job.id, claimed.token, ending, detail="the power went")
        path = claimed.job.occurrence.claim_path
        if answer.word == "settled":
            tell("settled", path, answer.outcome)
        else:
            tell("line", path, "retry")

    return act


def _renew(made: Any, tell: Tell) -> None:
    queue, (claimed,) = made
    queue.work.renew(claimed.job.id, claimed.token)
    tell("done")


def _interrupted(path: str) -> Queue:
    """A job that is back in the queue."""
    queue, (claimed,) = _worked("j1", recoveries=2)(path)
    assert queue.work.settle("j1", claimed.token, Ending.INTERRUPTED).word == "requeued"
    return queue


def _cancel(job_id: str) -> Callable[[Any, Tell], None]:
    def act(made: Any, tell: Tell) -> None:
        queue = made if isinstance(made, Queue) else made[0]
        answer = queue.cancels.cancel(job_id, "intent-1", by="ana@studio", person=True)
        assert answer.word == "recorded"
        if answer.outcome is not None:
            tell("settled", queue.job(job_id).occurrence.claim_path, answer.outcome)

    return act


def _fail_lane(made: Any, tell: Tell) -> None:
    queue = made[0]
    found = queue.cancels.fail_lane(
        "pr-1", "it was closed", by="ana@studio", person=True, limit=256, wait_s=0.0
    )
    for job_id in found.failed:
        tell("settled", queue.job(job_id).occurrence.claim_path, "failed")


def _a_lane(path: str) -> Any:
    queue, claimed = _worked("j1", lane="pr-1")(path)
    queue.add("j2", lane="pr-1")
    queue.add("j3", lane="pr-1", after="1h")
    return queue, claimed


def _purge(queue: Queue, tell: Tell) -> None:
    many = queue.purges.purge("default", by="ana@studio")
    tell("purged", many)


def _purge_decided(path: str) -> Queue:
    """A purge whose maker died right after its decision."""
    queue = _with("j1", "j2")(path)
    real = queue.purges._finish
    queue.purges._finish = lambda *_, **__: None  # type: ignore[method-assign]
    queue.purges.purge("default", by="ana@studio")
    queue.purges._finish = real  # type: ignore[method-assign]
    return queue


def _purge_half_done(path: str) -> Queue:
    """A purge whose maker died when it had forgotten one of two jobs."""
    queue = _purge_decided(path)
    (purge_id,) = queue.purges._decided()
    real = queue.jobs.forget

    def forget_one(jobs: Any) -> None:
        real(jobs[:1])
        raise OSError

    queue.jobs.forget = forget_one  # type: ignore[method-assign]
    with contextlib.suppress(StoreError):
        queue.purges._finish(purge_id)
    queue.jobs.forget = real  # type: ignore[method-assign]
    return queue


def _publish_ended(queue: Queue, tell: Tell) -> None:
    queue.work.publish_ended()
    for shown in queue.feed.page(0, 256):
        tell("shown", shown.number)


def _dead_names(path: str) -> Queue:
    """Names of jobs that were never accepted: their producer died before that."""
    queue = _with("j1")(path)
    for job_id, after in (("dead", None), ("dead-later", "1h")):
        checked = check_job(request(job_id, after=after, priority=9), new_id="", now=NOW)
        job = checked.job(added_at=NOW, number=700, by="ana@studio")
        files.sync_folders(queue.jobs.orders.put([job], NOW))
    return Queue(path, later=timedelta(hours=2))


def _damaged(path: str) -> Queue:
    """A job that can't be read, before one that can."""
    queue = _with("lost", "j1")(path)
    with open(queue.jobs._files.path(key_of("lost")), "w") as file:
        file.write("{")
    return queue


def _is_kept_aside(path: str, told: Told) -> None:
    _each_ends_once("j1")(path, told)
    aside = Queue(path).jobs._files.path(key_of("lost")) + ".corrupt"
    assert files.read(aside) == b"{", "D6: it is kept"


def _look_at_everything(queue: Queue, tell: Tell) -> None:
    queue.jobs.bring_up(queue.clock.now())
    for place in list(queue.jobs.orders.queued()):
        job = queue.jobs.job_at(place)
        assert job is None or job.id == "j1"
    queue.jobs.orders.tidy()


def _index(queue: Queue, tell: Tell) -> None:
    index = JobIndex(queue.state, "queued")
    (place,) = index.walk()
    index.remove(place, current=10_000)
    index.tidy(current=10_000)
    try:
        files.sync_folders(index.name([place]))
    except OSError as error:
        raise files.fault(error, "write", "jobs/queued") from error


def _settled_and_open(path: str) -> Queue:
    """A job whose owner died between its outcome and the feed."""
    queue, (claimed,) = _worked("j1")(path)
    (entry,) = ClaimStore(queue.state).open_entries()
    queue.work.settle("j1", claimed.token, Ending.COMPLETED)
    (shown,) = queue.feed.page(0, 1)
    os.rename(shown.path, queue.state.at("open", entry.name))
    return queue


def _shown_and_open(path: str) -> Queue:
    """A job whose owner died between the feed and the end of its name in open/."""
    queue, (claimed,) = _worked("j1")(path)
    (entry,) = ClaimStore(queue.state).open_entries()
    queue.work.settle("j1", claimed.token, Ending.COMPLETED)
    (shown,) = queue.feed.page(0, 1)
    os.link(shown.path, queue.state.at("open", entry.name))
    return queue


def _reconcile(queue: Queue, tell: Tell) -> None:
    claims = ClaimStore(queue.state)
    for entry in claims.open_entries():
        assert claims.hold(entry) is None
    for shown in queue.feed.page(0, 256):
        tell("shown", shown.number)


def _long_ago(path: str) -> Queue:
    """A job that ended two months ago, and one that is still queued; a feed of two parts."""
    queue, (claimed,) = _worked("j1")(path)
    queue.work.settle("j1", claimed.token, Ending.COMPLETED)
    (shown,) = queue.feed.page(0, 1)
    newer = queue.feed._path(257, shown.key)
    os.makedirs(os.path.dirname(newer))
    os.link(shown.path, newer)
    queue.add("j2")
    for folder, _, names in os.walk(queue.state.at("jobs")):
        for name in names:
            os.utime(os.path.join(folder, name), (NOW.timestamp(), NOW.timestamp()))
    return Queue(path, later=timedelta(days=60))


def _prune(queue: Queue, tell: Tell) -> None:
    kept = JobRetention(queue.state, clock=queue.clock)
    try:
        pruned = kept.prune(days=30, now=queue.clock.now(), everything=True)
    except OSError as error:
        raise files.fault(error, "prune", "jobs") from error
    assert (pruned.ids, pruned.settled) == (1, 1)
    assert queue.jobs.find("j1") is None


def _only_what_is_old_is_gone(path: str, told: Told) -> None:
    queue = Queue(path)
    assert queue.jobs.find("j2").is_queued  # type: ignore[union-attr]
    assert queue.feed.newest() == 257
    assert [entry.number for entry in queue.feed.page(256, 10)] == [257]
    work_off(path)
    assert job_ends(path) == {"j1": ["completed"], "j2": ["completed"]}


def operations(operation: Any) -> list[Any]:
    """Return them, as `Operation` makes them."""
    once = _each_ends_once
    work = "job_work.JobWork"
    add = (
        "jobs.JobStore.add",
        "jobs.JobStore.adding",
        "job_index.JobIndex.name",
        "job_orders.JobOrders.count_on",
    )
    batch = ("job_batches.BatchStore.decide", "job_batches.BatchStore.spread")
    known: dict[str, Any] = {"prepare": _with("j1"), "after": once("j1")}

    def make(name: str, covers: tuple[str, ...], act: Any, **more: Any) -> Any:
        return operation(f"job-{name}", covers, act, **known | more)

    empty = {"prepare": Queue}
    settle = make(
        "settle",
        (
            f"{work}.settle",
            "job_returns.JobReturns.settle",
            "job_leases.JobLeases.drop",
            "job_settling.settling",
            "job_feed.JobFeed.publish",
        ),
        _settle(Ending.COMPLETED),
        prepare=_worked("j1"),
    )
    return [
        make("add", add, _add("j1"), **empty, after=once()),
        make("add-again", add, _add("j1")),
        make(
            "add-later",
            ("job_later.LaterStore.name",),
            _add("j1", after="1h"),
            **empty,
            after=once(),
        ),
        make("add-many", batch, _add(*TOGETHER), **empty, after=once(together=TOGETHER)),
        make(
            "add-many-later",
            batch,
            _add("j1", *TOGETHER, after="1h"),
            **empty,
            after=once(together=TOGETHER),
        ),
        make(
            "finish-a-batch",
            ("job_batches.BatchStore.finish",),
            _bring_up,
            prepare=_decided_and_not_spread,
            after=once(*TOGETHER),
        ),
        make(
            "finish-a-damaged-batch",
            ("job_batches.BatchStore.finish",),
            _bring_up,
            prepare=_decided_and_damaged,
            after=_leaves_a_batch_aside,
        ),
        make(
            "bring-up",
            ("jobs.JobStore.bring_up", "job_later.LaterStore.remove", "job_later.LaterStore.due"),
            _bring_up,
            prepare=_later(_with("j1", after="1h"), timedelta(hours=2)),
        ),
        make(
            "names-of-the-dead", ("jobs.JobStore.job_at",), _look_at_everything, prepare=_dead_names
        ),
        make(
            "set-aside",
            ("jobs.JobStore.job_at", "job_files.JobFiles.set_aside"),
            _look_at_everything,
            prepare=_damaged,
            after=_is_kept_aside,
        ),
        make(
            "index",
            ("job_index.JobIndex.remove", "job_index.JobIndex.tidy"),
            _index,
            after=lambda path, told: None,
        ),
        make("claim", (f"{work}.claim",), _claim),
        make("claim-again", (f"{work}.claim",), _claim, prepare=_interrupted),
        make(
            "take-back",
            (
                f"{work}.claim",
                f"{work}.take_back",
                "job_leases.JobLeases.is_lapsed",
                "job_leases.JobLeases.age",
            ),
            _claim,
            prepare=_later(_worked("j1", recoveries=1), timedelta(minutes=5)),
        ),
        make(
            "renew", (f"{work}.renew", "job_leases.JobLeases.write"), _renew, prepare=_worked("j1")
        ),
        settle,
        replace(
            settle,
            name="job-settle-interrupted",
            act=_settle(Ending.INTERRUPTED),
            prepare=_worked("j1", recoveries=1),
        ),
        make(
            "cancel-queued",
            ("job_cancels.JobCanceller.cancel", "jobs.JobStore.take"),
            _cancel("j1"),
        ),
        make(
            "cancel-running",
            ("job_cancels.JobCanceller.cancel",),
            _cancel("j1"),
            prepare=_worked("j1"),
        ),
        make(
            "cancel-back-in-the-queue",
            ("job_cancels.JobCanceller.cancel",),
            _cancel("j1"),
            prepare=_interrupted,
        ),
        make(
            "fail-lane",
            ("job_cancels.JobCanceller.fail_lane",),
            _fail_lane,
            prepare=_a_lane,
            after=once("j1", "j2", "j3"),
        ),
        make(
            "purge",
            ("job_purges.PurgeStore.purge", "jobs.JobStore.forget"),
            _purge,
            prepare=_with("j1", "j2"),
            after=_gone_or_ran("j1", "j2"),
        ),
        make(
            "finish-a-purge",
            ("job_purges.PurgeStore.finish",),
            lambda queue, tell: queue.purges.finish(),
            prepare=_purge_decided,
            after=_gone_or_ran("j1", "j2"),
        ),
        make(
            "finish-half-a-purge",
            ("job_purges.PurgeStore.finish", "jobs.JobStore.forget"),
            lambda queue, tell: queue.purges.finish(),
            prepare=_purge_half_done,
            after=_gone_or_ran("j1", "j2"),
        ),
        make(
            "publish-ended",
            (),
            _publish_ended,
            prepare=_settled_and_open,
        ),
        make(
            "settled-and-not-shown",
            ("job_feed.JobFeed.publish", "job_feed.JobFeed.page"),
            _reconcile,
            prepare=_settled_and_open,
        ),
        make(
            "shown-and-still-open",
            ("job_feed.JobFeed.publish",),
            _reconcile,
            prepare=_shown_and_open,
        ),
        make(
            "prune",
            ("job_retention.JobRetention.prune", "job_feed.JobFeed.drop_bucket"),
            _prune,
            prepare=_long_ago,
            after=_only_what_is_old_is_gone,
        ),
    ]
