"""The queue on disk: what is accepted, in which order it goes, and who may have it."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from routines.domain.job import LEASE, MOST_AT_ONCE, Ending
from routines.domain.job_request import JobRequest
from routines.domain.names import key_of
from routines.domain.outcome import Outcome
from routines.errors import (
    InvalidJob,
    JobConflict,
    LeaseLost,
    NotDurable,
    StoreBusy,
    StoreError,
    UnknownJob,
)
from routines.operations.jobs import Jobs
from routines.store import files, locks
from routines.store.claims import ClaimStore
from routines.store.job_cancels import LaneFailed
from routines.store.job_choosing import LOOK_AHEAD
from routines.store.job_feed import JobFeed
from routines.store.job_retention import JobRetention
from routines.store.job_settling import settling
from routines.store.sessions import Lease, SessionStore
from routines.store.switches import Switch, SwitchStore
from tests.builders import NOW
from tests.store.job_operations import Queue, job_ends, request

LATER = request("later", after="1h")


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(str(tmp_path / "state"))


def another(queue: Queue) -> Queue:
    """The same queue as another process has it, at the same time."""
    return Queue(queue.state.path, clock=queue.clock)


def claim(queue: Queue, name: str | None = None) -> Any:
    claimed = queue.work.claim(name)
    assert claimed is not None
    return claimed


def when_it_sleeps(queue: Queue, act: Callable[[], Any]) -> None:
    """Let *act* happen while somebody waits: once, at the next pause of the clock."""
    sleep = queue.clock.sleep

    def acting(seconds: float) -> None:
        queue.clock.sleep = sleep  # type: ignore[method-assign]
        act()
        sleep(seconds)

    queue.clock.sleep = acting  # type: ignore[method-assign]


def fail_lane(queue: Queue, *, limit: int = 9, wait_s: float = 0.0) -> Any:
    return queue.cancels.fail_lane(
        "pr-1", "closed", by="ana", person=True, limit=limit, wait_s=wait_s
    )


def order(queue: Queue, name: str | None = None) -> list[str]:
    """The ids as they are claimed and completed, one after the other."""
    found = []
    while (claimed := queue.work.claim(name)) is not None:
        found.append(claimed.job.id)
        queue.work.settle(claimed.job.id, claimed.token, Ending.COMPLETED)
    return found


class Killed(BaseException):
    """The process is gone."""


def killed_after(store: Any, name: str, calls: int) -> None:
    """Let a process die in a call of a store's method, the last of so many."""
    real = getattr(store, name)
    left = [calls]

    def call(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*args, **more)

    setattr(store, name, call)


# Adding (J1) -----------------------------------------------------------------------------------


def test_the_same_again_is_a_duplicate_and_other_content_is_refused(queue: Queue) -> None:
    (first,) = queue.jobs.add([request("a", priority=1)], by="ana")
    (again,) = queue.jobs.add([request("a", priority=1)], by="bob")

    assert (first.word, again.word) == ("added", "duplicate")
    with pytest.raises(JobConflict):
        queue.jobs.add([request("a", priority=2)], by="ana")
    assert order(queue) == ["a"]


def test_an_id_is_remembered_after_its_job_has_ended(queue: Queue) -> None:
    queue.add("a")
    order(queue)

    (again,) = queue.jobs.add([request("a")], by="ana")

    assert again.word == "duplicate"
    assert order(queue) == []


def test_many_at_once_are_all_or_none(queue: Queue) -> None:
    queue.add("b")

    with pytest.raises(JobConflict):
        queue.jobs.add([request("a"), request("b", priority=1), request("c")], by="ana")

    assert queue.jobs.find("a") is None
    assert queue.jobs.find("c") is None
    added = queue.jobs.add([request("a"), request("b"), request("a")], by="ana")
    assert [one.word for one in added] == ["added", "duplicate", "duplicate"]
    assert order(queue) == ["b", "a"]


def test_one_bad_field_among_many_adds_none(queue: Queue) -> None:
    with pytest.raises(InvalidJob, match="priority"):
        queue.jobs.add([request("a"), request("b", priority="high")], by="ana")

    assert not queue.jobs.has_queued()


def test_one_id_with_two_contents_in_one_call_adds_none(queue: Queue) -> None:
    with pytest.raises(JobConflict):
        queue.jobs.add([request("a"), request("a", lane="x")], by="ana")

    assert not queue.jobs.has_queued()


def test_too_many_at_once_are_refused(queue: Queue) -> None:
    with pytest.raises(InvalidJob, match="jobs"):
        queue.jobs.add([JobRequest(prompt="x")] * (MOST_AT_ONCE + 1), by="ana")


def test_many_without_end_are_refused_and_read_no_further_than_may_be_added(queue: Queue) -> None:
    jobs = Jobs(queue.state.path, clock=queue.clock)
    prompts = iter(str(number) for number in range(3 * MOST_AT_ONCE))

    with pytest.raises(InvalidJob, match="more than 10000 at once") as refused:
        jobs.add_many(prompts)

    assert refused.value.field == "jobs"
    assert next(prompts) == str(MOST_AT_ONCE + 1)
    assert not jobs.pending()


def test_a_batch_that_is_not_spread_yet_takes_its_ids_all_the_same(queue: Queue) -> None:
    queue.jobs._batches.spread = lambda batch: bool(locks.let_go(batch.fd))  # type: ignore[method-assign]
    queue.jobs.add([request("a"), request("b")], by="ana")
    other = another(queue)

    assert other.jobs.find("a") is not None
    with pytest.raises(JobConflict):
        other.jobs.add([request("b", priority=1)], by="bob")
    (again,) = other.jobs.add([request("a")], by="bob")
    assert again.word == "duplicate"
    assert order(other) == ["a", "b"]
    assert other.jobs._batches.is_empty()


@pytest.mark.parametrize("spread", [0, 1, 2])
def test_what_a_producer_died_over_is_in_the_head_before_anybody_has_spread_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, spread: int
) -> None:
    monkeypatch.setattr("routines.store.job_batches._AT_ONCE", 1)
    queue.add("first", priority=1)
    queue.add("last", priority=-1)
    killed_after(queue.jobs._batches, "_spread", spread)
    with pytest.raises(Killed):
        queue.jobs.add(
            [request("a"), request("b", priority=2), request("c", queue="other"), LATER], by="ana"
        )
    jobs = Jobs(queue.state.path, clock=queue.clock)

    assert [one.id for one in jobs.head(None)] == ["b", "first", "a", "c", "last"]
    assert [one.id for one in jobs.head(None, limit=2)] == ["b", "first"]
    assert [one.id for one in jobs.head("other")] == ["c"]
    assert [jobs.read(one).state for one in ("c", "later")] == ["waiting", "deferred"]
    assert jobs.pending()
    # Nobody but whoever works it comes: nothing lies still.
    assert order(another(queue)) == ["b", "first", "a", "c", "last"]


def test_a_batch_that_a_live_process_spreads_is_left_to_it(queue: Queue) -> None:
    queue.jobs._batches.spread = lambda batch: True  # type: ignore[method-assign]
    queue.jobs.add([request("a"), request("b")], by="ana")
    other = another(queue)

    assert other.jobs.bring_up(NOW) is False
    assert other.work.claim() is None
    with pytest.raises(StoreBusy):
        other.purges.purge("default", by="bob")


def test_a_look_while_a_batch_is_being_spread_loses_none_of_it(queue: Queue) -> None:
    """The names of a job are there before its file: what looks dead then is only being added."""
    other = another(queue)
    real = files.create_many

    def look_first(items: Any, **more: Any) -> Any:
        files.create_many = real
        assert list(other.jobs.orders.queued()), "the names are there"
        assert other.work.claim() is None
        assert other.jobs.find("b") is not None
        return real(items, **more)

    files.create_many = look_first
    try:
        queue.jobs.add([request("a"), request("b"), request("c", after="1m")], by="ana")
    finally:
        files.create_many = real

    assert order(queue) == ["a", "b"]
    queue.clock.advance(minutes=1)
    assert order(queue) == ["c"]


def test_a_job_that_is_being_claimed_this_moment_is_passed_over(queue: Queue) -> None:
    queue.add("a", priority=1)
    queue.add("b")
    job = queue.job("a")

    with queue.jobs._taking(job):
        assert claim(another(queue)).job.id == "b"
        with pytest.raises(StoreBusy):
            another(queue).jobs.take(job, at=NOW)

    assert claim(queue).job.id == "a"


def test_ids_that_differ_in_case_alone_are_two_jobs(queue: Queue) -> None:
    queue.add("Build")
    queue.add("build")

    assert order(queue) == ["Build", "build"]


# What can't be read (D6) -----------------------------------------------------------------------


def damage(queue: Queue, job_id: str) -> str:
    """Let the file of a job read as it does when its blocks were lost; return its path."""
    path = queue.jobs._files.path(key_of(job_id))
    Path(path).write_bytes(b"\0" * os.path.getsize(path))
    return path


@pytest.mark.parametrize("after", [None, "1m"])
def test_an_accepted_job_that_cannot_be_read_is_kept_aside_and_said(
    queue: Queue, after: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    queue.add("a", after=after)
    queue.add("b", after=after)
    path = damage(queue, "a")
    queue.clock.advance(minutes=2)

    assert order(queue) == ["b"]

    assert os.path.exists(f"{path}.corrupt")
    assert not queue.jobs.has_queued()
    assert [one.path for one in caplog.records if one.msg == "job-unreadable"] == [path]  # type: ignore[attr-defined]


@pytest.mark.parametrize("together", [("a",), ("a", "c")])
def test_an_id_whose_job_cannot_be_read_is_refused_and_costs_the_older_one_nothing(
    queue: Queue, together: tuple[str, ...]
) -> None:
    queue.add("a")
    named = list(queue.jobs.orders.queued())
    path = damage(queue, "a")

    with pytest.raises(StoreError, match="is in the way") as refused:
        queue.add(*together)

    assert path in refused.value.message
    assert list(queue.jobs.orders.queued()) == named
    assert queue.jobs.find("c") is None


def test_a_name_that_is_taken_in_the_last_moment_adds_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.create_many

    def too_late(items: Any, **more: Any) -> Any:
        ((path, _),) = items
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(b"\0")
        return real(items, **more)

    with monkeypatch.context() as patch:
        patch.setattr(files, "create_many", too_late)
        with pytest.raises(StoreError, match="is in the way"):
            queue.add("a")

    assert not queue.jobs.has_queued()


@pytest.mark.parametrize(
    ("damaged", "left"), [([0], "abc"), ([2], "ac"), ([3], "ab"), ([0, 1, 2, 3], "")]
)
def test_a_batch_of_which_not_all_can_be_read_is_spread_and_kept_aside(
    queue: Queue, damaged: list[int], left: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue.jobs._batches.spread = lambda batch: bool(locks.let_go(batch.fd))  # type: ignore[method-assign]
    queue.jobs.add([request(one) for one in "abc"], by="ana")
    (path,) = queue.jobs._batches._paths()
    lines = Path(path).read_bytes().splitlines(keepends=True)
    for number in damaged:
        lines[number] = b"\0" * (len(lines[number]) - 1) + b"\n"
    Path(path).write_bytes(b"".join(lines))

    assert order(another(queue)) == list(left)

    assert Path(f"{path}.corrupt").read_bytes() == b"".join(lines)
    assert queue.jobs._batches.is_empty()
    assert [one.path for one in caplog.records if one.msg == "batch-damaged"] == [path]  # type: ignore[attr-defined]


def test_a_batch_spreads_a_job_whose_file_was_damaged_meanwhile(queue: Queue) -> None:
    queue.jobs._batches.spread = lambda batch: bool(locks.let_go(batch.fd))  # type: ignore[method-assign]
    queue.add("a")
    os.rename(queue.jobs._files.path(key_of("a")), queue.state.at("whole"))
    queue.jobs.add([request("a"), request("b")], by="ana")
    os.rename(queue.state.at("whole"), queue.jobs._files.path(key_of("a")))
    path = damage(queue, "a")

    assert order(another(queue)) == ["a", "b"]

    assert os.path.exists(f"{path}.corrupt")


def test_a_job_that_is_back_in_the_queue_runs_though_its_acceptance_cannot_be_read(
    queue: Queue,
) -> None:
    queue.add("a", recoveries=1)
    first = claim(queue)
    queue.work.settle("a", first.token, Ending.INTERRUPTED)
    damage(queue, "a")

    assert claim(queue).run == 2


# The order (J2) --------------------------------------------------------------------------------


def test_the_highest_priority_goes_first_and_then_arrival_over_all_queues(queue: Queue) -> None:
    for job_id, priority, name in [
        ("a", 0, "x"),
        ("b", 5, "y"),
        ("c", -1, "x"),
        ("d", 5, "x"),
        ("e", 0, "y"),
    ]:
        queue.add(job_id, priority=priority, queue=name)

    assert order(queue) == ["b", "d", "a", "e", "c"]


def test_a_program_may_ask_for_one_queue(queue: Queue) -> None:
    queue.add("a", queue="x", priority=9)
    queue.add("b", queue="y")

    assert order(queue, "y") == ["b"]
    assert order(queue, "none such") == []
    assert order(queue, "x") == ["a"]


def test_arrival_goes_on_when_the_clock_is_set_back_or_the_queue_was_empty(queue: Queue) -> None:
    queue.add("a")
    queue.clock._now -= timedelta(days=1)
    queue.add("b")
    assert order(queue) == ["a", "b"]
    queue.add("c")
    os.unlink(queue.state.at("jobs", "next"))
    queue.add("d")

    assert order(queue) == ["c", "d"]


def test_the_order_is_kept_over_many_folders(queue: Queue) -> None:
    ids = [f"j{number:04d}" for number in range(600)]
    queue.jobs.add([request(one) for one in ids], by="ana")

    assert [queue.jobs.peek(place).id for place in queue.jobs.orders.queued()] == ids  # type: ignore[union-attr]
    assert order(queue) == ids
    # One folder stays for the next job, and no path of emptied ones.
    left = [folder for folder, _, _ in os.walk(queue.state.at("jobs", "queued"))]
    assert len(left) <= 7


@pytest.mark.parametrize("claimed_from", ["x", None])
def test_claims_of_a_queue_leave_no_empty_folder(queue: Queue, claimed_from: str | None) -> None:
    """Else each claim of it would list more of them than the one before, for ever."""
    for number in range(6):
        # Jobs of other queues come between.
        queue.jobs._numbers(200)
        queue.add(f"j{number}", queue="x", after="1m" if number % 2 else None)
        queue.clock.advance(minutes=1)
        assert order(queue, claimed_from) == [f"j{number}"]

    for index in ("queued", "queues", "waits"):
        folders = [folder for folder, _, _ in os.walk(queue.state.at("jobs", index))]
        # The one that the next job needs, and no other.
        assert len([one for one in folders if len(os.path.basename(one)) == 10]) <= 1


def test_a_job_for_later_waits_for_its_time_and_keeps_its_place(queue: Queue) -> None:
    queue.add("a", after="1h")
    queue.add("b")
    assert order(queue) == ["b"]
    assert queue.jobs.orders.next_later() == NOW + timedelta(hours=1)
    queue.clock.advance(minutes=59, seconds=59)
    assert order(queue) == []
    queue.add("c")
    queue.clock.advance(seconds=1)

    assert order(queue) == ["a", "c"]
    assert not os.listdir(queue.state.at("jobs", "later"))


def test_a_job_for_later_is_due_at_its_instant_and_not_in_the_second_after(queue: Queue) -> None:
    for number, thousandths in enumerate((250, 0, 900, 251)):
        queue.add(f"j{number}", after=NOW + timedelta(seconds=60, milliseconds=thousandths))
    found = []
    while (at := queue.jobs.orders.next_later()) is not None:
        queue.clock.advance(seconds=(at - queue.clock.now()).total_seconds() - 0.001)
        assert order(queue) == []
        queue.clock.advance(seconds=0.001)
        found.append((order(queue), round((at - NOW).total_seconds(), 3)))

    assert found == [(["j1"], 60.0), (["j0"], 60.25), (["j3"], 60.251), (["j2"], 60.9)]
    assert not os.listdir(queue.state.at("jobs", "later"))


def test_a_job_whose_session_is_busy_is_passed_over_and_not_lost(queue: Queue) -> None:
    queue.add("a", session="routine:daily", priority=9)
    queue.add("b", session="routine:daily")
    queue.add("c")
    lease = SessionStore(queue.state).take("routine:daily", clock=queue.clock)
    assert isinstance(lease, Lease)
    assert order(queue) == ["c"]
    lease.let_go()

    first = claim(queue)
    assert first.job.id == "a"
    # Its own turn keeps the session from the next, though no process holds a lock.
    assert queue.work.claim() is None
    assert SessionStore(queue.state).is_busy("routine:daily") is not None
    queue.work.settle("a", first.token, Ending.COMPLETED)
    assert order(queue) == ["b"]
    assert SessionStore(queue.state).is_busy("routine:daily") is None


@pytest.mark.parametrize("first", ["own", "follower"])
def test_a_job_in_its_own_session_and_one_that_follows_it_there_are_never_worked_at_once(
    queue: Queue, first: str
) -> None:
    """A conversation that nothing else is said in by default can still be named by another job."""
    session = {"own": None, "follower": "job:own"}
    second = "follower" if first == "own" else "own"
    queue.add(first, session=session[first])
    taken = claim(queue)
    queue.add(second, session=session[second])

    assert queue.work.claim() is None
    busy = SessionStore(queue.state).is_busy("job:own")
    assert busy is not None
    assert busy.holder == f"job:{first}"

    queue.work.settle(first, taken.token, Ending.COMPLETED)
    assert claim(queue).job.id == second


def test_a_worked_job_leaves_no_file_of_a_session_behind(queue: Queue) -> None:
    queue.add("a")
    taken = claim(queue)

    queue.work.settle("a", taken.token, Ending.COMPLETED)

    sessions = Path(queue.state.at("sessions"))
    assert [one for one in sessions.rglob("*") if one.is_file()] == []


def test_a_crowd_that_waits_for_one_session_hides_nobody(queue: Queue) -> None:
    crowd = [request(f"j{number}", session="routine:daily") for number in range(3 * LOOK_AHEAD)]
    queue.jobs.add(crowd, by="ana")
    queue.add("behind")
    lease = SessionStore(queue.state).take("routine:daily", clock=queue.clock)
    assert isinstance(lease, Lease)

    looks = 0
    while (found := queue.work.claim()) is None:
        looks += 1
        assert looks < 4, "it is never come to"

    assert found.job.id == "behind"
    lease.let_go()


@pytest.mark.parametrize("routine", [None, "daily"])
def test_what_is_paused_holds_its_jobs(queue: Queue, routine: str | None) -> None:
    queue.add("a", session="routine:daily")
    SwitchStore(queue.state).write(Switch(routine, "ana", NOW, None, ""))
    assert queue.work.claim() is None

    SwitchStore(queue.state).end(routine, by="ana", at=NOW)

    assert order(queue) == ["a"]


# Programs that work jobs themselves (J2) -------------------------------------------------------


def test_the_claim_holds_the_whole_job_and_a_hash_of_the_token(queue: Queue) -> None:
    queue.add("a", lane="pr-1", recoveries=1)
    claimed = claim(queue)

    path = queue.state.at(claimed.job.occurrence.claim_path)
    content = (files.read(path) or b"").decode()
    assert "look at the build" in content
    assert claimed.token not in content
    assert claimed.token not in repr(claimed)


def test_a_settlement_needs_the_token_and_a_repeat_is_replayed(queue: Queue) -> None:
    queue.add("a")
    claimed = claim(queue)
    settle = queue.work.settle

    assert settle("a", "guessed", Ending.COMPLETED).word == "conflict"
    assert settle("a", claimed.token, Ending.FAILED, detail="no disk").word == "settled"
    assert settle("a", claimed.token, Ending.FAILED, detail="no disk").word == "replayed"
    assert settle("a", claimed.token, Ending.COMPLETED).word == "conflict"
    assert settle("a", "guessed", Ending.COMPLETED).word == "conflict"
    with pytest.raises(UnknownJob):
        settle("b", claimed.token, Ending.COMPLETED)
    assert job_ends(queue.state.path) == {"a": ["failed"]}


def test_a_lease_that_is_renewed_lasts(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    claimed = claim(queue)

    for _ in range(100):
        queue.clock.advance(seconds=110)
        queue.work.renew("a", claimed.token)
        assert another(queue).work.claim() is None

    assert queue.work.settle("a", claimed.token, Ending.COMPLETED).word == "settled"


def test_a_lease_that_has_lapsed_is_never_revived(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    first = claim(queue)
    queue.clock.advance(seconds=LEASE.total_seconds())

    with pytest.raises(LeaseLost) as lost:
        queue.work.renew("a", first.token)

    assert lost.value.why == "lapsed"
    with pytest.raises(LeaseLost):
        queue.work.renew("a", first.token)
    assert queue.work.settle("a", first.token, Ending.COMPLETED).word == "conflict"
    second = claim(another(queue))
    assert (second.job.id, second.run) == ("a", 2)
    assert second.key.endswith("job:a#2")
    assert queue.work.settle("a", first.token, Ending.COMPLETED).word == "conflict"
    assert queue.work.settle("a", second.token, Ending.COMPLETED).word == "settled"


def test_what_lapsed_without_recoveries_left_is_interrupted(queue: Queue) -> None:
    queue.add("a")
    claim(queue)
    queue.clock.advance(seconds=121)

    assert another(queue).work.claim() is None
    assert job_ends(queue.state.path) == {"a": ["interrupted"]}


def test_recoveries_are_never_exceeded(queue: Queue) -> None:
    queue.add("a", recoveries=2)

    for run in (1, 2, 3):
        claimed = claim(queue)
        assert claimed.run == run
        answer = queue.work.settle("a", claimed.token, Ending.INTERRUPTED)

    assert answer.outcome == "interrupted"
    assert queue.work.claim() is None


def test_a_clock_that_is_set_forward_takes_nobodys_job(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    claimed = claim(queue)
    # The wall clock alone: nobody waited for it.
    queue.clock._now += timedelta(minutes=5)
    path = queue.state.at("jobs", "leases", key_of("a")[:2], key_of("a"))
    os.utime(path, (0, 0))

    assert another(queue).work.claim() is None
    queue.work.renew("a", claimed.token)
    assert queue.work.settle("a", claimed.token, Ending.COMPLETED).word == "settled"


def test_on_another_boot_the_clock_of_the_file_server_counts(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    claim(queue)
    other = another(queue)
    other.work.leases._here = type(other.work._here)(host="another", boot="another")
    queue.clock.advance(days=1)
    assert other.work.claim() is None, "renewed a moment ago, by the file server's clock"

    path = queue.state.at("jobs", "leases", key_of("a")[:2], key_of("a"))
    before = os.stat(path).st_mtime - 121
    os.utime(path, (before, before))

    other.clock.advance(seconds=2)
    record = ClaimStore(queue.state).read(queue.job("a").occurrence)
    assert record is not None
    assert other.work.leases.is_lapsed(record)


def test_a_lease_that_cannot_be_told_is_said_and_keeps_nobody_else_from_working(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.add("a", recoveries=1)
    queue.add("b", recoveries=1)
    first, second = claim(queue), claim(queue)
    lease = queue.work.leases._path("a")
    os.unlink(lease)
    os.symlink(lease, lease)
    queue.clock.advance(seconds=121)

    again = claim(queue)

    assert (again.job.id, again.run) == ("b", 2)
    assert queue.work.claim() is None
    assert {one.ref for one in caplog.records if one.msg == "lease-not-told"} == {"job:a"}  # type: ignore[attr-defined]
    with pytest.raises(StoreError):
        queue.work.renew("a", first.token)
    os.unlink(lease)
    # Nobody kept its claim meanwhile. Without a lease the claim's own file counts, and is new.
    queue.work.renew("a", first.token)
    assert queue.work.settle("b", second.token, Ending.COMPLETED).word == "conflict"


@pytest.mark.parametrize("recoveries", [0, 1])
def test_a_claim_whose_lease_cannot_be_written_uses_up_no_recovery(
    queue: Queue, recoveries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add("a", recoveries=recoveries)
    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(files, "overwrite", _fails)
            with pytest.raises(NotDurable):
                queue.work.claim()

    again = claim(queue)

    assert again.run == 1
    assert queue.work.settle("a", again.token, Ending.COMPLETED).word == "settled"
    assert job_ends(queue.state.path) == {"a": ["completed"]}


def test_a_renewal_is_refused_once_a_cancel_is_recorded(queue: Queue) -> None:
    queue.add("a")
    claimed = claim(queue)
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "recorded"

    with pytest.raises(LeaseLost) as lost:
        queue.work.renew("a", claimed.token)

    assert lost.value.why == "cancelled"
    answer = queue.work.settle("a", claimed.token, Ending.COMPLETED)
    assert (answer.word, answer.outcome) == ("settled", "cancelled")


def test_a_cancelled_job_whose_worker_is_gone_is_cancelled_and_not_run_again(queue: Queue) -> None:
    queue.add("a", recoveries=5)
    claim(queue)
    queue.cancels.cancel("a", "i1", by="ana", person=True)
    queue.clock.advance(seconds=121)

    assert another(queue).work.claim() is None
    assert job_ends(queue.state.path) == {"a": ["cancelled"]}


@pytest.mark.parametrize(
    ("ending", "outcome", "reason"),
    [
        (Ending.COMPLETED, "completed", None),
        (Ending.FAILED, "failed", "agent"),
        (Ending.CANCELLED, "cancelled", "turn"),
        (Ending.INTERRUPTED, "interrupted", "stopped"),
        (Ending.OUTCOME_UNKNOWN, "interrupted", "outcome-unknown"),
    ],
)
def test_each_of_the_five_endings(
    queue: Queue, ending: Ending, outcome: str, reason: str | None
) -> None:
    queue.add("a")
    claimed = claim(queue)

    queue.work.settle("a", claimed.token, ending, detail="why", reply="all of it")

    record = queue.jobs.find("a").record  # type: ignore[union-attr]
    assert record is not None
    assert (record.outcome, record.reason) == (Outcome(outcome), reason)
    assert record.end is not None
    assert record.end["reply"] == "all of it"


def test_an_unknown_outcome_is_never_run_again(queue: Queue) -> None:
    queue.add("a", recoveries=5)
    claimed = claim(queue)

    answer = queue.work.settle("a", claimed.token, Ending.OUTCOME_UNKNOWN)

    assert answer.outcome == "interrupted"


def test_what_is_back_in_the_queue_goes_by_its_own_priority_and_arrival(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    queue.add("b")
    queue.add("high", priority=1)
    assert claim(queue).job.id == "high"
    a = claim(queue)
    queue.add("higher", priority=2)
    queue.work.settle("a", a.token, Ending.INTERRUPTED)
    queue.clock.advance(seconds=2)

    assert order(queue) == ["higher", "a", "b"]


# Cancel, lanes, purge (J4) ---------------------------------------------------------------------


def test_cancel_is_recorded_replayed_in_conflict_or_missing(queue: Queue) -> None:
    queue.add("a")
    cancel = queue.cancels.cancel

    assert cancel("none", "i1", by="ana", person=True).word == "missing"
    assert cancel("a", "i1", by="ana", person=True).word == "recorded"
    assert cancel("a", "i1", by="ana", person=True).word == "replayed"
    assert cancel("a", "i2", by="ana", person=True).word == "conflict"
    assert order(queue) == []
    assert job_ends(queue.state.path) == {"a": ["cancelled"]}


def test_a_running_job_keeps_the_intent_until_it_has_ended(queue: Queue) -> None:
    queue.add("a")
    claimed = claim(queue)

    assert (
        queue.cancels.cancel("a", "i1", by="ana", person=True, only_if_queued=True).word
        == "conflict"
    )
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "recorded"
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "replayed"
    queue.work.settle("a", claimed.token, Ending.COMPLETED)
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "replayed"
    assert queue.cancels.cancel("a", "i2", by="ana", person=True).word == "conflict"


def test_what_is_back_in_the_queue_counts_as_queued(queue: Queue) -> None:
    queue.add("a", recoveries=1)
    claimed = claim(queue)
    queue.work.settle("a", claimed.token, Ending.INTERRUPTED)

    answer = queue.cancels.cancel("a", "i1", by="ana", person=True, only_if_queued=True)

    assert (answer.word, answer.outcome) == ("recorded", "cancelled")
    assert queue.work.claim() is None


def test_a_whole_lane_is_failed_in_batches_what_runs_first(queue: Queue) -> None:
    for number in range(5):
        queue.add(f"j{number}", lane="pr-1", after="1h" if number == 4 else None)
    queue.add("other", lane="pr-2")
    running = claim(queue)

    def fail(limit: int) -> Any:
        return fail_lane(queue, limit=limit, wait_s=0.4)

    first = fail(2)
    assert (first.failed, first.asked, first.more) == (("j1",), ("j0",), True)
    with pytest.raises(LeaseLost):
        queue.work.renew("j0", running.token)
    settled = queue.work.settle("j0", running.token, Ending.COMPLETED)
    assert (settled.outcome, settled.detail) == ("failed", "its lane was failed")
    assert fail(2).failed == ("j2", "j3")
    last = fail(2)
    assert (last.failed, last.more) == (("j4",), False)
    assert order(queue) == ["other"]
    ends = job_ends(queue.state.path)
    assert {job_id: ends[job_id] for job_id in ends if job_id != "other"} == {
        f"j{number}": ["failed"] for number in range(5)
    }


def test_a_cancel_waits_for_a_job_that_is_being_claimed_this_moment(queue: Queue) -> None:
    queue.add("a", lane="pr-1")
    queue.add("b", lane="pr-1")
    taking = another(queue).jobs._taking(queue.job("a"))
    taking.__enter__()
    when_it_sleeps(queue, lambda: taking.__exit__(None, None, None))

    answer = queue.cancels.cancel("a", "i1", by="ana", person=True)

    assert (answer.word, answer.outcome) == ("recorded", "cancelled")
    with another(queue).jobs._taking(queue.job("b")):
        with pytest.raises(StoreBusy):
            queue.cancels.cancel("b", "i2", by="ana", person=True)
        # Nothing of it failed, and it is said that something is left.
        assert fail_lane(queue) == LaneFailed((), (), more=True)
    assert order(queue) == ["b"]


def test_a_job_that_is_claimed_while_its_cancel_waits_is_asked_to_end(queue: Queue) -> None:
    queue.add("a", "b")
    for job_id in ("a", "b"):
        taking = another(queue).jobs._taking(queue.job(job_id))
        taking.__enter__()

        def claimed(taking: Any = taking) -> None:
            taking.__exit__(None, None, None)
            claim(another(queue))

        when_it_sleeps(queue, claimed)

        answer = queue.cancels.cancel(
            job_id, "i1", by="ana", person=True, only_if_queued=job_id == "b"
        )
        assert answer.word == ("conflict" if job_id == "b" else "recorded")


def test_a_purge_waits_for_many_jobs_that_are_being_added(queue: Queue) -> None:
    batches = queue.jobs._batches
    spread, left = batches.spread, []
    batches.spread = lambda batch: bool(left.append(batch))  # type: ignore[method-assign]
    queue.jobs.add([request("a"), request("b")], by="ana")
    other = another(queue)
    when_it_sleeps(other, lambda: spread(left.pop()))

    assert other.purges.purge("default", by="bob") == 2


@pytest.mark.parametrize("names", [("1" * 12, "2" * 12), ("2" * 12, "1" * 12)])
@pytest.mark.parametrize("lane_first", [True, False])
@pytest.mark.parametrize("ended_by", ["its worker", "its lease"])
def test_a_cancel_that_is_recorded_goes_before_a_lane_that_is_failed(
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, str],
    lane_first: bool,
    ended_by: str,
) -> None:
    queue.add("a", lane="pr-1", recoveries=1)
    claimed = claim(queue)
    # What the intents are filed under is random: neither may be found first by it.
    given = iter(names)
    random = SimpleNamespace(token_hex=lambda _: next(given))
    monkeypatch.setattr("routines.store.cancels.secrets", random)
    if lane_first:
        fail_lane(queue)
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "recorded"
    if not lane_first:
        # It is to end already, and is asked no second time.
        assert fail_lane(queue).asked == ("a",)

    if ended_by == "its worker":
        queue.work.settle("a", claimed.token, Ending.COMPLETED)
    else:
        queue.clock.advance(seconds=LEASE.total_seconds())
        assert queue.work.claim() is None

    record = ClaimStore(queue.state).read(queue.job("a").occurrence)
    assert record is not None
    assert record.end is not None
    assert (record.outcome, record.end["reason"]) == (Outcome.CANCELLED, "person")
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).word == "replayed"


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED])
def test_a_job_that_was_cancelled_before_its_lane_was_failed_is_not_said_to_have_failed(
    queue: Queue, ending: Ending
) -> None:
    queue.add("a", lane="pr-1")
    claimed = claim(queue)
    queue.cancels.cancel("a", "i1", by="ana", person=True)
    when_it_sleeps(queue, lambda: queue.work.settle("a", claimed.token, ending, detail="no"))

    found = fail_lane(queue, wait_s=5.0)

    assert (found.failed, found.asked, found.more) == ((), (), False)
    assert job_ends(queue.state.path) == {"a": ["cancelled"]}


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED])
def test_a_job_that_its_worker_settled_first_is_not_said_to_have_failed_with_its_lane(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, ending: Ending
) -> None:
    queue.add("a", lane="pr-1")
    queue.add("b", lane="pr-1")
    claimed = claim(queue)
    listed = queue.cancels._open_of

    def settled_meanwhile(lane: str) -> Any:
        found = listed(lane)
        queue.work.settle("a", claimed.token, ending, detail="no")
        return found

    monkeypatch.setattr(queue.cancels, "_open_of", settled_meanwhile)

    found = fail_lane(queue)

    assert (found.failed, found.asked, found.more) == (("b",), (), False)
    assert job_ends(queue.state.path) == {"a": [ending.value], "b": ["failed"]}


def test_what_waits_and_is_to_be_cancelled_does_not_fail_with_its_lane(queue: Queue) -> None:
    queue.add("a", lane="pr-1", recoveries=1)
    queue.work.settle("a", claim(queue).token, Ending.INTERRUPTED)
    (entry,) = ClaimStore(queue.state).open_entries()
    held = ClaimStore(queue.state).hold(entry)
    assert held is not None
    # Somebody looks at it this moment, so that its cancel is recorded and ends it later.
    assert queue.cancels.cancel("a", "i1", by="ana", person=True).outcome is None
    held.let_go()

    fail_lane(queue)

    assert job_ends(queue.state.path) == {"a": ["cancelled"]}


def test_workers_that_do_not_end_keep_nothing_of_their_lane_queued(queue: Queue) -> None:
    for number in range(4):
        queue.add(f"j{number}", lane="pr-1")
    running = [claim(queue), claim(queue)]

    assert fail_lane(queue, limit=2) == LaneFailed((), ("j0", "j1"), more=True)
    assert fail_lane(queue, limit=2) == LaneFailed(("j2", "j3"), ("j0", "j1"), more=True)
    queue.work.settle("j0", running[0].token, Ending.COMPLETED)
    queue.clock.advance(seconds=LEASE.total_seconds())
    # The other worker is gone, and nobody else is there who would take its job back.
    assert fail_lane(queue, limit=2) == LaneFailed(("j1",), (), more=False)


def test_a_job_that_is_claimed_while_its_lane_is_failed_is_left_for_the_next_call(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add("a", lane="pr-1")
    listed = queue.cancels._open_of
    claimed = []

    def claimed_meanwhile(lane: str) -> Any:
        found = listed(lane)
        if not claimed:
            claimed.append(claim(another(queue)))
        return found

    monkeypatch.setattr(queue.cancels, "_open_of", claimed_meanwhile)

    assert fail_lane(queue) == LaneFailed((), (), more=True)
    assert fail_lane(queue) == LaneFailed((), ("a",), more=True)


def test_a_purge_forgets_what_is_queued_in_its_queue_and_frees_the_ids(queue: Queue) -> None:
    queue.add("a", queue="x")
    running = claim(queue, "x")
    queue.add("b", queue="x")
    queue.add("c", queue="x", after="1d")
    queue.add("d", queue="y")

    assert queue.purges.purge("x", by="ana") == 2

    assert queue.jobs.find("b") is None
    assert queue.jobs.find("c") is None
    (again,) = queue.jobs.add([request("b", queue="x", priority=1)], by="ana")
    assert again.word == "added"
    assert queue.work.settle("a", running.token, Ending.COMPLETED).word == "settled"
    assert sorted(order(queue)) == ["b", "d"]
    purges = [one for one in job_ends(queue.state.path) if one.startswith("purge-")]
    assert len(purges) == 1


def test_a_job_that_is_claimed_after_its_queue_was_purged_does_not_run(queue: Queue) -> None:
    queue.add("a")
    job = queue.job("a")
    queue.purges.purge("default", by="ana")

    assert queue.jobs.take(job, at=NOW) is None
    assert "a" not in job_ends(queue.state.path), "it is the one that the purge has counted"


def half_purged(queue: Queue) -> Jobs:
    """Four jobs, a purge that was killed when it had forgotten two, and another program."""
    queue.add("a")
    queue.add("b")
    queue.add("c")
    queue.add("d")
    dying = another(queue)
    # Each is looked at as it is listed, and as it is forgotten.
    killed_after(dying.jobs, "peek", 4 + 2)
    with pytest.raises(Killed):
        dying.purges.purge("default", by="ana")
    gone = [one for one in "abcd" if queue.jobs.find(one) is None]
    assert 0 < len(gone) < 4, gone
    return Jobs(queue.state.path, clock=queue.clock)


def purged(jobs: Jobs) -> list[int]:
    return [one.purged for one in jobs.settled() if one.purged is not None]


def _is_unknown(jobs: Jobs, job_id: str) -> None:
    with pytest.raises(UnknownJob):
        jobs.read(job_id)


@pytest.mark.parametrize(
    "look",
    [
        lambda jobs: [jobs.add("new", id=one) for one in "abcd"],
        lambda jobs: jobs.claim() is None or pytest.fail("a purged job was handed out"),
        lambda jobs: _is_unknown(jobs, "d"),
        lambda jobs: jobs.head() == [] or pytest.fail("a purged job is shown"),
        lambda jobs: jobs.settled(),
        lambda jobs: jobs.pending() and pytest.fail("nothing is pending"),
        lambda jobs: jobs.purge("default") == 0 or pytest.fail("counted twice"),
    ],
    ids=["add", "claim", "read", "head", "settled", "pending", "purge"],
)
def test_a_purge_whose_process_was_killed_is_finished_by_whoever_comes_next(
    queue: Queue, look: Any
) -> None:
    jobs = half_purged(queue)

    look(jobs)

    assert not files.names(queue.state.at("jobs", "purging"))
    assert purged(jobs) == [4]


def test_a_job_that_is_claimed_while_its_queue_is_purged_runs_and_is_not_counted(
    queue: Queue,
) -> None:
    queue.add("a")
    queue.add("b")
    other, claimed = another(queue), []
    real = queue.jobs.forget

    def forget(jobs: Any) -> None:
        claimed.append(claim(other))
        real(jobs)

    queue.jobs.forget = forget  # type: ignore[method-assign]

    assert queue.purges.purge("default", by="ana") == 1
    assert purged(Jobs(queue.state.path, clock=queue.clock)) == [1]
    (one,) = claimed
    assert other.work.settle(one.job.id, one.token, Ending.COMPLETED).word == "settled"
    assert job_ends(queue.state.path)[one.job.id] == ["completed"]


@pytest.mark.parametrize(
    "look",
    [
        lambda jobs, worked: jobs.claim(),
        lambda jobs, worked: jobs.settle(worked.job.id, worked.token, "completed"),
        lambda jobs, worked: jobs.settled(),
        lambda jobs, worked: jobs.pending(),
    ],
    ids=["claim", "settle", "settled", "pending"],
)
def test_an_end_whose_settler_was_killed_before_the_feed_is_published_by_the_next_program(
    queue: Queue, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add("a")
    queue.add("b")
    first, second = claim(queue), claim(queue)
    jobs = Jobs(queue.state.path, clock=queue.clock)
    assert jobs.pending()
    with monkeypatch.context() as patch:
        patch.setattr(JobFeed, "publish", _dies)
        with pytest.raises(Killed):
            queue.work.settle("a", first.token, Ending.COMPLETED)

    look(jobs, second)

    assert "a" in [queue.feed.record(one).occurrence.id for one in queue.feed.page(0, 9)]  # type: ignore[union-attr]


def test_an_end_that_is_not_in_the_feed_yet_is_pending(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add("a")
    first = claim(queue)
    jobs = Jobs(queue.state.path, clock=queue.clock)
    with monkeypatch.context() as patch:
        patch.setattr(JobFeed, "publish", _dies)
        with pytest.raises(Killed):
            queue.work.settle("a", first.token, Ending.COMPLETED)
        patch.setattr(JobFeed, "publish", _fails)
        assert jobs.pending()
        assert jobs.settled() == []

    assert not jobs.pending()
    assert [one.id for one in jobs.settled()] == ["a"]


def _dies(*_: Any) -> None:
    raise Killed


def _fails(*_: Any) -> None:
    raise OSError(28, "no space left")


def test_an_id_that_was_purged_and_is_used_again_within_a_second_runs(queue: Queue) -> None:
    queue.add("a")
    job = queue.job("a")
    queue.purges.purge("default", by="ana")
    queue.jobs.take(job, at=NOW)
    queue.add("a", priority=3)

    assert order(queue) == ["a"]


# The settled feed (J4) -------------------------------------------------------------------------


def test_the_feed_shows_each_end_once_in_order_and_in_pages(queue: Queue) -> None:
    queue.jobs.add([request(f"j{number:03d}") for number in range(300)], by="ana")
    ended = order(queue)

    first = queue.feed.page(0, 256)
    second = queue.feed.page(first[-1].number, 256)

    assert [entry.number for entry in first + second] == list(range(1, 301))
    assert [entry.key for entry in first + second] == [key_of(one) for one in ended]
    assert queue.feed.page(300, 10) == []
    assert [entry.number for entry in queue.feed.page(10, 3)] == [11, 12, 13]


def test_a_page_ends_before_what_does_not_show_yet(queue: Queue) -> None:
    queue.jobs.add([request(f"j{number}") for number in range(4)], by="ana")
    order(queue)
    hidden = queue.feed.page(1, 1)[0].path
    os.rename(hidden, hidden + ".hidden")

    assert [entry.number for entry in queue.feed.page(0, 10)] == [1]
    os.rename(hidden + ".hidden", hidden)
    assert [entry.number for entry in queue.feed.page(1, 10)] == [2, 3, 4]


def test_a_reader_that_comes_after_a_part_was_pruned_begins_with_what_is_left(
    queue: Queue,
) -> None:
    queue.jobs.add([request(f"j{number:03d}") for number in range(300)], by="ana")
    order(queue)
    kept = JobRetention(queue.state, clock=queue.clock)
    shown = [*queue.feed.page(0, 256), *queue.feed.page(256, 256)]
    for entry in shown:
        os.utime(entry.path, (NOW.timestamp(), NOW.timestamp()))
    day_31 = NOW + timedelta(days=31)
    # One that is young keeps its whole part.
    os.utime(shown[200].path, (day_31.timestamp(), day_31.timestamp()))
    assert kept.prune(days=30, now=day_31, everything=True).settled == 0

    os.utime(shown[200].path, (NOW.timestamp(), NOW.timestamp()))
    assert kept.prune(days=30, now=day_31, everything=True).settled == 255

    page = queue.feed.page(3, 256)
    # The newest part stays, however old it is.
    assert page[0].number == 256
    assert page[-1].number == 300


def test_an_end_that_was_not_shown_is_shown_by_whoever_reconciles(queue: Queue) -> None:
    queue.add("a")
    claimed = claim(queue)
    (entry,) = ClaimStore(queue.state).open_entries()
    queue.work.settle("a", claimed.token, Ending.COMPLETED)
    (shown,) = queue.feed.page(0, 10)
    os.link(shown.path, queue.state.at("open", entry.name))

    for _ in range(2):
        assert ClaimStore(queue.state).hold(entry) is None

    assert len(queue.feed.page(0, 10)) == 1
    assert ClaimStore(queue.state).open_entries() == []


@pytest.mark.parametrize(
    "after",
    ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", timedelta(days=2912261), timedelta.max],
)
def test_an_after_that_is_no_instant_in_some_zone_is_refused(queue: Queue, after: Any) -> None:
    with pytest.raises(InvalidJob, match="too far ahead") as refused:
        queue.add("a", after=after)

    assert refused.value.field == "after"


@pytest.mark.parametrize("many", [None, True, -1, float("nan"), object(), "a", {"prompt": "a"}])
def test_many_jobs_that_are_no_list_are_refused_by_that_name(queue: Queue, many: Any) -> None:
    jobs = Jobs(queue.state.path, clock=queue.clock)

    with pytest.raises(InvalidJob) as refused:
        jobs.add_many(many)

    assert refused.value.field == "jobs"
    assert not jobs.pending()


@pytest.mark.parametrize(
    ("odd", "field"),
    [
        (None, "prompt"),
        (7, "prompt"),
        (b"a", "prompt"),
        ([], "prompt"),
        ({"prompt": "a", 7: 8}, "7"),
    ],
)
def test_of_many_jobs_none_is_added_when_one_is_no_job(queue: Queue, odd: Any, field: str) -> None:
    jobs = Jobs(queue.state.path, clock=queue.clock)

    with pytest.raises(InvalidJob) as refused:
        jobs.add_many(["first", odd])

    assert refused.value.field == field
    assert not jobs.pending()


NO_NUMBERS = (None, True, "1", 1.0, float("nan"), float("inf"), -1, 10**13, 10**5000)
NO_NAMES = (
    None,
    True,
    1,
    float("nan"),
    b"a",
    [],
    "",
    " ",
    " a",
    "a\0b",
    "a\nb",
    "\ud800",
    "a" * 513,
)
NO_TEXTS = (None, True, 1, float("nan"), b"a", [])
# What each parameter of a call that is no field of a job can't be, and how it is asked.
BAD: dict[str, tuple[tuple[Any, ...], Any]] = {
    "head queue": ((*NO_NAMES[1:], "a" * 257), lambda jobs, bad: jobs.head(bad)),
    "head limit": ((0, *NO_NUMBERS), lambda jobs, bad: jobs.head(limit=bad)),
    "settled after": (NO_NUMBERS, lambda jobs, bad: jobs.settled(bad)),
    "settled limit": ((0, 257, *NO_NUMBERS), lambda jobs, bad: jobs.settled(0, bad)),
    "read job": (NO_NAMES, lambda jobs, bad: jobs.read(bad)),
    "cancel job": (NO_NAMES, lambda jobs, bad: jobs.cancel(bad, "i")),
    "cancel intent_id": (NO_NAMES, lambda jobs, bad: jobs.cancel("a", bad)),
    "cancel reason": (NO_TEXTS, lambda jobs, bad: jobs.cancel("a", "i", reason=bad)),
    "cancel only_if_queued": (
        (None, 0, 1, "false", float("nan")),
        lambda jobs, bad: jobs.cancel("a", "i", only_if_queued=bad),
    ),
    "fail_lane lane": (NO_NAMES, lambda jobs, bad: jobs.fail_lane(bad, "closed")),
    "fail_lane reason": ((*NO_TEXTS, "", " "), lambda jobs, bad: jobs.fail_lane("l", bad)),
    "fail_lane limit": ((0, *NO_NUMBERS), lambda jobs, bad: jobs.fail_lane("l", "no", limit=bad)),
    "fail_lane wait": (
        (None, True, 0, -1, float("nan"), float("inf"), "1s", timedelta(seconds=-1)),
        lambda jobs, bad: jobs.fail_lane("l", "no", wait=bad),
    ),
    "purge queue": (NO_NAMES, lambda jobs, bad: jobs.purge(bad)),
    "claim queue": (NO_NAMES[1:], lambda jobs, bad: jobs.claim(bad)),
    "renew job": (NO_NAMES, lambda jobs, bad: jobs.renew(bad, "t")),
    "renew token": (NO_TEXTS, lambda jobs, bad: jobs.renew("a", bad)),
    "settle job": (NO_NAMES, lambda jobs, bad: jobs.settle(bad, "t", "completed")),
    "settle token": (NO_TEXTS, lambda jobs, bad: jobs.settle("a", bad, "completed")),
    "settle ending": (
        (*NO_TEXTS, "", "done", "\ud800", "a\0b"),
        lambda jobs, bad: jobs.settle("a", "t", bad),
    ),
    "settle detail": (NO_TEXTS, lambda jobs, bad: jobs.settle("a", "t", "completed", detail=bad)),
    "settle reply": (NO_TEXTS, lambda jobs, bad: jobs.settle("a", "t", "completed", reply=bad)),
}


@pytest.mark.parametrize("what", BAD)
def test_what_a_parameter_can_not_be_is_refused_by_its_name_and_nothing_happens(
    queue: Queue, what: str
) -> None:
    jobs = Jobs(queue.state.path, clock=queue.clock)
    jobs.add("look", id="a", lane="l")
    bad_ones, ask = BAD[what]

    for bad in bad_ones:
        with pytest.raises(InvalidJob) as refused:
            ask(jobs, bad)
        assert refused.value.field == what.split()[1]

    assert jobs.read("a").state == "waiting"
    assert jobs.settled() == []


@pytest.mark.parametrize("by", [True, 1, 0, float("nan"), b"ana", [], "", " "])
def test_who_asks_must_be_a_text(queue: Queue, by: Any) -> None:
    with pytest.raises(InvalidJob) as refused:
        Jobs(queue.state.path, clock=queue.clock, by=by)

    assert refused.value.field == "by"


def test_who_asks_is_kept_in_one_line_that_can_be_shown(queue: Queue) -> None:
    jobs = Jobs(queue.state.path, clock=queue.clock, by="ana\n\ud800")

    jobs.add("look", id="a")

    assert jobs.read("a").job.by == "ana \\xd800"


def test_a_job_that_is_back_in_the_queue_and_is_being_cancelled_is_passed_over(
    queue: Queue,
) -> None:
    queue.add("a", recoveries=1, priority=1)
    queue.add("b")
    first = claim(queue)
    queue.work.settle("a", first.token, Ending.INTERRUPTED)

    with settling(queue.state, first.job.occurrence):
        assert claim(queue).job.id == "b"

    assert claim(queue).job.id == "a"
