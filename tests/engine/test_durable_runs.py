"""Runs that outlive their engine: asked about, left alone, taken up again (DESIGN 8, L9, L10)."""

import asyncio
from datetime import timedelta

import pytest

from routines.agents.base import (
    AgentUnavailable,
    OutcomeUnknown,
    Reply,
    RunState,
    SessionBusy,
    TurnFailed,
    Waiting,
)
from routines.domain.record import Event
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.engine.off_loop import quiet
from routines.errors import SessionBusyError, StoreError
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.places import PlaceStore
from tests.engine.service import DurableRuns, Run, Service
from tests.engine.stage import HOUR, MINUTE, SECOND, at, every, once, routine
from tests.engine.test_jobs import queue
from tests.engine.test_recovering import ELSEWHERE, age, leave_claim

REF = "digest@2026-06-01T08:05:00Z"
NO_GRACE = timedelta(0)


@pytest.fixture
def service(stage):
    made = Service(stage.clock)
    # Each engine has an agent object of its own, as each process has.
    stage.options = lambda: {"agent": DurableRuns(made)}
    return made


def left_by_another_host(stage, *events):
    """Leave an open claim of a durable turn as another host does."""
    path = leave_claim(stage, of=ELSEWHERE)
    (entry,) = stage.claims.open_entries()
    claim = stage.claims.hold(entry)
    for event in events:
        more = {"durable": True} if event is Event.STARTED else {"run_id": "r-1"}
        claim.append(event, at=stage.clock.now(), owner=ELSEWHERE.to_json(), **more)
    claim.let_go()
    return path


def hourly(**changes):
    return routine(**{"schedule": once("08:05"), "timeout": 5 * HOUR} | changes)


def lines(stage, ref=REF):
    return [event["event"] for event in stage.record(ref).events]


def keys(service):
    return [key.partition("/")[2] for key in service.about("start")]


def running(stage, *routines, **options):
    return stage.running(*routines, **stage.options() | options)


async def begun(stage, *routines, until="08:05"):
    engine = stage.engine(*routines, **stage.options())
    await engine.start()
    await stage.clock.advance_to(at(until))
    return engine


async def seconds(stage, count):
    await stage.clock.advance(count * SECOND, step=SECOND)


# A run from its start to its end ------------------------------------------------------------------


async def test_run_is_started_looked_at_and_settled_with_its_own_answer(stage, service):
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        assert lines(stage) == ["started", "run"]
        assert stage.record(REF).run_id == "r-1"
        await seconds(stage, 40)
        assert stage.history() == ["08:05 running"]
        service.end(reply="3 PRs merged")
        await seconds(stage, 15)

    record = stage.record(REF)
    assert stage.history() == ["08:05 completed"]
    assert record.end["reply"] == "3 PRs merged"
    assert service.times("inspect", at("08:05")) == [15, 30, 45]
    assert service.run.prompt == "write the digest"
    assert service.about("cancel") == []


@pytest.mark.parametrize(
    ("word", "detail", "end", "said"),
    [
        ("completed", "", "completed", ""),
        ("failed", "out of memory", "failed agent", "failed: out of memory"),
        ("cancelled", "on its own page", "failed agent", "cancelled: on its own page"),
    ],
)
async def test_only_completed_is_completed(stage, service, word, detail, end, said):
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        service.end(word, detail=detail)
        await seconds(stage, 15)

    assert stage.history() == [f"08:05 {end}"]
    assert stage.record(REF).end["detail"] == said


async def test_completed_run_whose_agent_declares_a_failure_has_failed(stage, service):
    service.looks.append(RunState("completed", Reply(text="half", failed="no tokens left")))
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 15)

    assert stage.history() == ["08:05 failed agent"]
    assert stage.record(REF).end["detail"] == "no tokens left"


async def test_state_that_is_not_known_counts_as_active(stage, service):
    service.looks += [RunState("queued"), RunState("COMPLETED"), RunState("")]
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 45)
        assert stage.history() == ["08:05 running"]
        service.end()
        await seconds(stage, 15)

    assert stage.history() == ["08:05 completed"]


async def test_failed_look_proves_nothing_and_the_next_ones_come_after_15_30_and_60_s(
    stage, service
):
    service.looks += [RuntimeError("no route"), "nonsense", None, *[OSError("no route")] * 4]
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 400)
        assert stage.history() == ["08:05 running"]

    #          faults: 1   2   ok  | 1    2    3    4  | then all is well again
    assert service.times("inspect", at("08:05"))[:8] == [15, 30, 60, 75, 90, 120, 180, 240]


async def test_look_that_is_not_answered_in_30_s_is_given_up(stage, service):
    service.looks.append("hang")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 120)

    assert service.times("inspect", at("08:05"))[:2] == [15, 15 + 30 + 15]


async def test_run_that_its_agent_does_not_know_for_a_minute_is_interrupted_as_unknown(
    stage, service
):
    async with running(stage, hourly(retry=Retry(attempts=3, started=True))):
        await stage.clock.advance_to(at("08:05"))
        service.runs.clear()
        await seconds(stage, 74)
        assert stage.history() == ["08:05 running"]
        await seconds(stage, 1)

    # Nobody knows what it did: it is not repeated, whatever `retry` says of what failed.
    assert stage.history() == ["08:05 interrupted outcome-unknown"]
    assert keys(service) == [REF]


async def test_run_that_is_missing_for_a_moment_goes_on(stage, service):
    service.looks += [RunState("missing"), RunState("missing"), RunState("active")] * 3
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 140)
        assert stage.history() == ["08:05 running"]
        service.end()
        await seconds(stage, 15)

    assert stage.history() == ["08:05 completed"]


async def test_methods_may_be_plain_functions(stage):
    class Plain:
        def start(self, turn):
            return f"run of {turn.routine}"

        def inspect(self, run_id):
            return RunState("completed", run_id)

        def cancel(self, run_id):
            raise AssertionError

    async with stage.running(hourly(), agent=Plain()):
        await stage.clock.advance_to(at("08:05"))
        for _ in range(200):
            await seconds(stage, 1)
            await asyncio.sleep(0.001)

    assert stage.record(REF).end["reply"] == "run of digest"


async def test_class_given_as_agent_is_made_once(stage, service):
    made = []

    class Agent(DurableRuns):
        def __init__(self):
            made.append(self)
            super().__init__(service)

    async with stage.running(routine(), agent=Agent):
        await stage.clock.advance(5 * MINUTE)
        service.end()
        await seconds(stage, 15)

    assert stage.history() == ["08:05 completed"]
    assert len(made) == 1


# A start that was not heard -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "unheard",
    [RuntimeError("reset by peer"), OutcomeUnknown("?"), ("says", ""), ("says", 7)],
    ids=["error", "unknown", "no-id", "number"],
)
async def test_start_whose_answer_says_nothing_is_repeated_under_the_same_key(
    stage, service, unheard
):
    service.starts += [unheard] * 3
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 110)

    assert service.times("start", at("08:05")) == [0, 15, 45, 105]
    assert keys(service) == [REF] * 4
    assert len(service.runs) == 1
    assert lines(stage)[:2] == ["started", "run"]


async def test_start_that_is_not_answered_in_4_min_is_repeated_and_begins_no_second_run(
    stage, service
):
    service.starts.append("unheard")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 254)
        assert lines(stage) == ["started"]
        await seconds(stage, 1)
        assert lines(stage) == ["started", "run"]

    assert service.times("start", at("08:05")) == [0, 240 + 15]
    assert len(service.runs) == 1


async def test_run_line_that_could_not_be_written_has_the_start_repeated(stage, service):
    class Refusing(files.Calls):
        def write(self, fd, data):
            if b'"run_id"' in data and refused:
                refused.pop()
                raise OSError(28, "No space left on device")
            return super().write(fd, data)

    refused = [1, 2]
    calls, files.calls = files.calls, Refusing()
    try:
        async with running(stage, hourly()):
            await stage.clock.advance_to(at("08:05"))
            await seconds(stage, 60)
    finally:
        files.calls = calls

    assert service.times("start", at("08:05")) == [0, 15, 45]
    assert len(service.runs) == 1
    assert lines(stage)[:2] == ["started", "run"]


@pytest.mark.parametrize("sign", [SessionBusy("in use"), AgentUnavailable("refused")])
async def test_first_start_that_says_it_did_nothing_never_started(stage, service, sign):
    service.starts.append(sign)
    async with running(stage, hourly(retry=Retry(attempts=2))):
        await stage.clock.advance_to(at("08:05"))
        assert lines(stage) == ["started", "not-started", "retry"]
        await stage.clock.advance(2 * MINUTE)
        assert lines(stage)[3:] == ["attempt", "started", "run"]

    assert keys(service) == [REF] * 2


@pytest.mark.parametrize("sign", [SessionBusy("in use"), AgentUnavailable("refused")])
async def test_after_a_start_that_was_not_heard_such_a_sign_proves_nothing(stage, service, sign):
    service.starts += ["unheard", sign, sign]
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await stage.clock.advance(4 * MINUTE + 50 * SECOND, step=SECOND)
        # Its run works: to call it never started would let it be started again.
        assert lines(stage) == ["started"]
        assert stage.history() == ["08:05 running"]
        await stage.clock.advance(2 * MINUTE, step=SECOND)
        assert lines(stage) == ["started", "run"]

    assert len(service.runs) == 1


async def test_start_that_failed_for_good_is_the_end(stage, service):
    service.starts.append(TurnFailed("no such model"))
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))

    assert stage.history() == ["08:05 failed agent"]
    assert stage.record(REF).end["detail"] == "no such model"


async def test_start_that_waits_for_an_approval_is_asked_again_under_the_same_key(stage, service):
    service.starts += [Waiting("ana has to approve")] * 4
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 20)
        assert lines(stage) == ["started", "run"]

    assert service.times("start", at("08:05")) == [0, 1, 3, 7, 15]
    assert keys(service) == [REF] * 5


async def test_approval_that_nobody_gives_fails_the_turn_after_8_more_asks(stage, service):
    service.starts += [Waiting("ana has to approve")] * 20
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 300)

    assert service.times("start", at("08:05")) == [0, 1, 3, 7, 15, 31, 63, 127, 255]
    assert stage.history() == ["08:05 failed agent"]
    assert "ana has to approve" in stage.record(REF).end["detail"]
    # There is nothing by which it could approve of anything itself.
    assert {method for _, method, _ in service.asked} == {"start"}


async def test_cancel_while_it_waits_for_an_approval_ends_it_at_once(stage, service):
    service.starts += [Waiting("ana has to approve")] * 20
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 40)
        stage.cancel(REF)
        await seconds(stage, 2)

    assert stage.history() == ["08:05 cancelled person"]


# A stop, a crash, and who comes next --------------------------------------------------------------


async def test_stop_leaves_the_run_alone_and_the_next_start_takes_it_up(stage, service):
    engine = await begun(stage, hourly())
    await engine.stop(grace=HOUR)
    assert lines(stage) == ["started", "run"]
    assert stage.history() == ["08:05 running"]
    stage.clock.move(HOUR)
    assert service.about("cancel") == []

    service.end(reply="done meanwhile")
    async with running(stage, hourly()):
        # At once: it may have ended long ago.
        await stage.clock.advance(SECOND)

    assert stage.history() == ["08:05 completed"]
    assert lines(stage) == ["started", "run", "run", "outcome"]
    assert stage.record(REF).end["reply"] == "done meanwhile"
    assert keys(service) == [REF]


async def test_stop_waits_for_a_start_under_way_as_long_as_its_grace(stage, service):
    service.starts.append("late")
    engine = await begun(stage, hourly())
    stopping = asyncio.create_task(engine.stop(grace=30 * SECOND))
    await seconds(stage, 20)
    assert not stopping.done()
    service.late.set()
    await stage.clock.advance(SECOND)
    await stopping

    assert lines(stage) == ["started", "run"]


async def test_start_that_outlasts_the_grace_is_repeated_after_the_next_start(stage, service):
    service.starts.append("unheard")
    engine = await begun(stage, hourly())
    stopping = asyncio.create_task(engine.stop(grace=30 * SECOND))
    await seconds(stage, 32)
    await stopping
    assert lines(stage) == ["started"]

    async with running(stage, hourly()):
        await seconds(stage, 2)
        service.end()
        await seconds(stage, 15)

    assert keys(service) == [REF] * 2
    assert len(service.runs) == 1
    assert stage.history() == ["08:05 completed"]


@pytest.mark.parametrize("start", ["hang", "unheard"])
async def test_crash_between_started_and_run_has_the_start_repeated(stage, service, start):
    service.starts.append(start)
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    assert lines(stage) == ["started"]

    async with running(stage, hourly()):
        await seconds(stage, 2)
        assert lines(stage) == ["started", "run", "run"]
        service.end()
        await seconds(stage, 15)

    assert keys(service) == [REF] * 2
    assert len(service.runs) == 1
    assert stage.history() == ["08:05 completed"]


async def test_crash_after_run_asks_about_it_and_starts_nothing(stage, service):
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    service.end()
    async with running(stage, hourly()):
        await seconds(stage, 2)

    assert keys(service) == [REF]
    assert stage.history() == ["08:05 completed"]


async def test_run_whose_engine_was_killed_is_taken_up_by_its_peer_within_a_minute(stage, service):
    engine = await begun(stage, hourly())
    async with running(stage, hourly()):
        await stage.clock.advance(MINUTE)
        await stage.crash(engine)
        service.end()
        await stage.clock.advance(MINUTE, step=SECOND)

    assert stage.history() == ["08:05 completed"]
    assert keys(service) == [REF]


async def test_engine_without_that_agent_leaves_its_run_alone(stage, service):
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    service.end()
    async with stage.running(hourly()):
        await stage.clock.advance(5 * MINUTE)
    assert stage.history() == ["08:05 running"]

    async with running(stage, hourly()):
        await seconds(stage, 2)
    assert stage.history() == ["08:05 completed"]


async def test_run_is_asked_for_as_it_was_begun_whatever_was_edited(stage, service):
    service.starts.append("hang")
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    async with running(stage, hourly(prompt="something else", enabled=False)):
        await seconds(stage, 2)

    assert service.run.prompt == "write the digest"


async def test_pause_holds_back_what_is_to_start_and_not_what_runs(stage, service):
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    service.end()
    async with stage.engine(**stage.options()).opened() as other:
        await other.pause()
    async with running(stage, hourly()):
        await seconds(stage, 2)

    assert stage.history() == ["08:05 completed"]


async def test_one_pass_takes_up_what_a_crash_left_and_waits_for_it(stage, service):
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    service.end()
    async with stage.engine(hourly(), **stage.options()).opened() as once_:
        records = await once_.tick()

    assert [record.outcome for record in records] == ["completed"]


async def test_run_by_hand_is_followed_when_whoever_typed_it_is_gone(stage, service):
    engine = await begun(stage, routine(schedule=None), until="08:01")
    asking = asyncio.create_task(engine.run("digest"))
    await quiet()
    await stage.crash(engine)
    asking.cancel()
    service.end()
    async with running(stage, routine(schedule=None)):
        await seconds(stage, 2)
    assert stage.history() == ["manual 08:01 completed"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agent": 7}', b"\xff", None])
async def test_kept_work_that_cannot_be_read_is_worked_out_anew_from_the_file(
    stage, service, content
):
    service.starts.append("hang")
    engine = await begun(stage, hourly())
    await stage.crash(engine)
    path = stage.state.at("output", stage.record(REF).occurrence.place, "durable.json")
    if content is None:
        files.remove(path)
    else:
        files.replace(path, content)
    stage.clock.move(10 * MINUTE)
    # What is to start would be missed, or skipped, by now: this runs.
    edited = hourly(catch_up=CatchUpPolicy.NONE, start_within=MINUTE, enabled=False)
    async with running(stage, edited):
        await seconds(stage, 2)
        service.end()
        await seconds(stage, 15)

    assert stage.history() == ["08:05 completed"]


@pytest.mark.parametrize(
    ("minutes", "history"), [(9, "08:05 running"), (11, "08:05 completed")], ids=["fresh", "silent"]
)
async def test_run_of_another_host_is_asked_about_once_that_is_silent_for_10_minutes(
    stage, service, minutes, history
):
    path = left_by_another_host(stage, Event.STARTED, Event.RUN)
    service.runs["k"] = Run("r-1", "k", "", "completed", "done")
    age(path, minutes)
    async with running(stage, hourly()):
        await seconds(stage, 2)

    assert stage.history() == [history]
    assert service.about("start") == []


async def test_start_of_another_host_is_never_repeated_here(stage, service):
    age(left_by_another_host(stage, Event.STARTED), 11)
    async with running(stage, hourly()):
        await seconds(stage, 2)

    assert stage.history() == ["08:05 interrupted presumed"]
    assert service.asked == []


async def test_wake_up_is_followed_like_a_slot(stage, service):
    engine = await begun(stage, routine(schedule=None), until="08:01")
    engine.tools("routine:digest").ask(prompt="look", in_="2m")
    await stage.clock.advance(3 * MINUTE)
    await stage.crash(engine)
    service.end(reply="looked")
    async with running(stage, routine(schedule=None)):
        await seconds(stage, 2)

    (record,) = stage.records()
    assert (record.trigger, record.outcome) == ("wake-up", "completed")
    assert len(service.runs) == 1


async def test_job_is_followed_like_a_slot_and_none_of_its_recoveries_is_used(stage, service):
    jobs = queue(stage)
    jobs.add("rebuild the index", id="a", recoveries=1)
    engine = await begun(stage, until="08:01")
    assert len(service.runs) == 1
    await stage.crash(engine)
    service.end(reply="rebuilt")
    async with running(stage):
        await seconds(stage, 2)

    (record,) = stage.records()
    assert (record.outcome, record.turn_ref) == ("completed", "job:a")
    assert record.end["reply"] == "rebuilt"
    assert len(service.about("start")) == 1


# Its session and its group ------------------------------------------------------------------------


async def test_session_of_a_run_that_nobody_watches_is_not_free(stage, service):
    engine = await begun(stage, hourly())
    await engine.stop()
    # This engine has another agent: it can't ask, and must not start anything beside the run.
    async with stage.running(hourly()) as other:
        with pytest.raises(SessionBusyError, match=REF):
            await other.run("digest")
    assert stage.agent.turns == []


async def test_slot_that_meets_a_run_that_nobody_watches_is_an_overlap(stage, service):
    engine = await begun(stage, routine(schedule=every(5)))
    await engine.stop()
    stage.clock.set(at("08:09"))
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:11"))

    assert stage.history() == ["08:05 running", "08:10 skipped overlap"]


async def test_group_of_a_run_that_nobody_watches_is_not_free(stage, service):
    engine = await begun(stage, hourly(exclusive="shop"))
    await engine.stop()
    other = routine("other", schedule=every(5), exclusive="shop")
    async with stage.running(hourly(exclusive="shop"), other):
        await stage.clock.advance(6 * MINUTE)
    assert stage.agent.turns == []

    service.end()
    async with running(stage, hourly(exclusive="shop"), other):
        await stage.clock.advance(MINUTE)
    assert stage.history() == ["08:05 completed"]


async def test_group_of_a_run_that_another_process_begins_just_now_is_not_free(
    stage, service, monkeypatch
):
    """It had the group's lock until a moment ago, and its `started` is on the disk since then."""
    take = PlaceStore.take
    begun_there = []

    def take_late(self, *, places, group):
        if group == "shop" and not begun_there:
            begun_there.append(leave_claim(stage, of=ELSEWHERE))
            (entry,) = stage.claims.open_entries()
            claim = stage.claims.hold(entry)
            more = {"durable": True, "exclusive": "shop", "owner": ELSEWHERE.to_json()}
            claim.append(Event.STARTED, at=stage.clock.now(), **more)
            claim.let_go()
        return take(self, places=places, group=group)

    monkeypatch.setattr(PlaceStore, "take", take_late)
    async with stage.running(routine("other", schedule=once("08:10"), exclusive="shop")):
        await stage.clock.advance_to(at("08:12"))
    assert begun_there
    assert stage.agent.turns == []


async def test_place_of_a_run_that_is_taken_up_is_not_given_to_another(stage, service):
    from routines.engine.lifecycle import Limits

    engine = await begun(stage, hourly())
    await engine.stop()
    stage.clock.set(at("08:59"))
    other = routine("other", schedule=once("09:00"))
    async with running(stage, hourly(), other, limits=Limits(concurrency=1)):
        await stage.clock.advance_to(at("09:02"))
        assert len(service.runs) == 1
        service.end()
        await seconds(stage, 30)
        assert len(service.runs) == 2


# Ending it before it does -------------------------------------------------------------------------


async def test_cancelled_run_is_told_to_end_and_settled_when_it_has(stage, service):
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF, reason="enough")
        await seconds(stage, 2)

    assert service.about("cancel") == ["r-1"]
    assert stage.history() == ["08:05 cancelled person"]
    assert stage.record(REF).end["by"] == "ana@studio"


async def test_run_that_takes_its_time_to_end_is_awaited(stage, service):
    service.ends_when_cancelled = False
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF)
        await seconds(stage, 100)
        assert stage.history() == ["08:05 running"]
        assert service.times("inspect", at("08:05"))[:6] == [1, 2, 4, 8, 16, 31]
        # An ended run counts as cancelled, however it says that it has ended.
        service.end("failed", detail="killed")
        await seconds(stage, 15)

    assert service.about("cancel") == ["r-1"]
    assert stage.history() == ["08:05 cancelled person"]


async def test_run_that_completes_before_the_cancel_reaches_it_is_completed(stage, service):
    service.ends_when_cancelled = False
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF)
        await seconds(stage, 2)
        service.end()
        await seconds(stage, 15)

    assert stage.history() == ["08:05 completed"]


@pytest.mark.parametrize("refusal", [RuntimeError("not yours"), "hang"], ids=["refused", "hangs"])
async def test_refused_or_unanswered_cancel_is_none_and_is_asked_again(stage, service, refusal):
    service.cancels += [refusal] * 2
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF)
        await seconds(stage, 20)
        assert stage.history() == ["08:05 running"]
        await seconds(stage, 120)

    assert service.about("cancel") == ["r-1"] * 3
    assert stage.history() == ["08:05 cancelled person"]


async def test_cancelled_run_whose_agent_is_silent_is_held_until_it_is_said_to_be_missing(
    stage, service
):
    silence = ConnectionError("nobody there")
    service.cancels += [silence] * 50
    service.looks += [silence] * 200
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF)
        await seconds(stage, 600)
        assert stage.history() == ["08:05 running"]
        service.looks.clear()
        service.runs.clear()
        await seconds(stage, 60)

    assert stage.history() == ["08:05 cancelled person"]


async def test_cancel_that_was_taken_up_outlives_a_crash(stage, service):
    service.cancels.append("hang")
    engine = await begun(stage, hourly())
    stage.cancel(REF, reason="enough")
    await seconds(stage, 3)
    assert lines(stage) == ["started", "run", "cancelling"]
    await stage.crash(engine)
    async with running(stage, hourly()):
        await seconds(stage, 2)

    assert service.about("cancel") == ["r-1"] * 2
    assert stage.history() == ["08:05 cancelled person"]
    assert stage.record(REF).end["by"] == "ana@studio"
    assert "enough" in stage.record(REF).end["detail"]


async def test_lane_that_was_failed_is_the_end_of_a_job_also_where_the_record_alone_tells_of_it(
    stage, service
):
    jobs = queue(stage)
    jobs.add("rebuild the index", id="a", lane="pr-1")
    service.cancels.append("hang")
    engine = await begun(stage, until="08:01")
    jobs.fail_lane("pr-1", "it was closed", wait=NO_GRACE)
    await seconds(stage, 3)
    assert lines(stage, "job:a") == ["started", "run", "cancelling"]
    await stage.crash(engine)
    CancelStore(stage.state).clear("job:a")
    async with running(stage):
        await seconds(stage, 2)

    assert service.about("cancel") == ["r-1"] * 2
    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("failed", "lane")


async def test_cancel_of_a_run_that_nobody_watches_waits_for_who_does(stage, service):
    engine = await begun(stage, hourly())
    await engine.stop()
    stage.cancel(REF)
    async with running(stage, hourly()):
        await seconds(stage, 3)

    assert stage.history() == ["08:05 cancelled person"]


async def test_cancel_before_the_start_is_heard_waits_for_the_id_and_then_ends_the_run(
    stage, service
):
    service.starts.append("unheard")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        stage.cancel(REF)
        await seconds(stage, 230)
        assert stage.history() == ["08:05 running"]
        await seconds(stage, 30)

    assert len(service.runs) == 1
    assert service.about("cancel") == ["r-1"]
    assert stage.history() == ["08:05 cancelled person"]


async def test_run_is_told_to_end_at_its_limit(stage, service):
    async with running(stage, hourly(timeout=HOUR)):
        await stage.clock.advance_to(at("09:04"))
        assert service.about("cancel") == []
        await stage.clock.advance_to(at("09:06"), step=SECOND)

    assert service.about("cancel") == ["r-1"]
    assert stage.history() == ["08:05 timed-out timeout"]
    assert "1h" in stage.record(REF).end["detail"]


async def test_limit_of_a_run_goes_on_while_nobody_watches(stage, service):
    engine = await begun(stage, hourly(timeout=HOUR))
    await engine.stop()
    stage.clock.move(2 * HOUR)
    async with running(stage, hourly(timeout=HOUR)):
        await seconds(stage, 2)

    assert stage.history() == ["08:05 timed-out timeout"]


async def test_run_that_completed_within_its_limit_is_completed_however_late_that_is_seen(
    stage, service
):
    engine = await begun(stage, hourly(timeout=HOUR))
    await engine.stop()
    service.end()
    stage.clock.move(2 * HOUR)
    async with running(stage, hourly(timeout=HOUR)):
        await seconds(stage, 2)

    assert stage.history() == ["08:05 completed"]


async def test_newer_slot_takes_the_place_of_a_run(stage, service):
    digest = routine(schedule=every(5), overlap=OverlapPolicy.SUPERSEDE, catch_up=CatchUpPolicy.ONE)
    async with running(stage, digest):
        await stage.clock.advance_to(at("08:10"))
        await seconds(stage, 5)
        assert stage.history() == ["08:05 superseded", "08:10 running"]

    assert service.about("cancel") == ["r-1"]


async def test_run_that_refuses_to_make_way_is_not_joined_by_a_second_one(stage, service):
    service.cancels += [RuntimeError("not now")] * 100
    digest = routine(schedule=every(5), overlap=OverlapPolicy.SUPERSEDE)
    async with running(stage, digest):
        await stage.clock.advance_to(at("08:13"))
        assert stage.history() == ["08:05 running", "08:10 buffered"]
        assert len(service.runs) == 1
        service.end()
        await stage.clock.advance(MINUTE, step=SECOND)
        assert stage.history() == ["08:05 completed", "08:10 running"]


# What is heard too late ---------------------------------------------------------------------------


def settle_behind_its_back(stage):
    """Settle the open claim as another host does that presumes its owner dead."""
    from routines.domain.outcome import Outcome, Reason
    from routines.store.claim import claim_of_fd

    record = stage.record(REF)
    fd = files.open_append(stage.state.at(record.path))
    claim = claim_of_fd(stage.state, record.path, fd)
    claim.settle(Outcome.INTERRUPTED, Reason.PRESUMED, at=stage.clock.now(), settled_by="x@y")
    files.close(fd)


async def test_run_that_answers_after_its_claim_was_lost_is_cancelled(stage, service):
    service.starts.append("late")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 20)
        settle_behind_its_back(stage)
        service.late.set()
        await seconds(stage, 2)

    assert service.about("cancel") == ["r-1"]
    assert service.run.word == "cancelled"
    assert stage.history() == ["08:05 interrupted presumed"]


async def test_run_that_answers_late_and_was_adopted_goes_on(stage, service):
    service.starts.append("late")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        # The first start is given up after 4 min; the second one is told of the same run.
        await seconds(stage, 260)
        assert stage.record(REF).run_id == "r-1"
        service.late.set()
        await seconds(stage, 5)

    assert service.about("cancel") == []


async def test_run_that_answers_late_where_its_record_cannot_be_read_is_left_and_told_of(
    stage, service, monkeypatch, caplog
):
    service.starts.append("late")
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 260)

        def refuse(*_):
            raise StoreError("the disk is gone")

        monkeypatch.setattr("routines.engine.durable.is_adopted", refuse)
        service.late.set()
        await seconds(stage, 5)

    assert service.about("cancel") == []
    (said,) = [one for one in caplog.records if one.message == "run-not-called-off"]
    assert (said.run, said.error) == ("r-1", "the disk is gone")


async def test_second_run_of_an_agent_that_breaks_its_word_is_cancelled(stage, service):
    class Forgetful(DurableRuns):
        async def start(self, turn):
            is_first = not service.about("start")
            given = await super().start(turn)
            return "r-other" if is_first else given

    service.starts.append("late")
    async with stage.running(hourly(), agent=Forgetful(service)):
        await stage.clock.advance_to(at("08:05"))
        await seconds(stage, 260)
        assert stage.record(REF).run_id == "r-1"
        service.late.set()
        await seconds(stage, 5)
    assert service.about("cancel") == ["r-other"]


async def test_run_whose_claim_another_has_settled_is_watched_no_longer(stage, service):
    async with running(stage, hourly()) as engine:
        await stage.clock.advance_to(at("08:05"))
        settle_behind_its_back(stage)
        await seconds(stage, 16)
        assert engine.in_flight == ()

    assert stage.history() == ["08:05 interrupted presumed"]


# Another try --------------------------------------------------------------------------------------


async def test_run_that_failed_is_tried_again_under_another_key(stage, service):
    policy = Retry(attempts=2, first=MINUTE, started=True)
    async with running(stage, hourly(retry=policy)):
        await stage.clock.advance_to(at("08:05"))
        service.end("failed", detail="out of memory")
        await stage.clock.advance(2 * MINUTE, step=SECOND)
        service.end("failed", detail="out of memory again")
        await stage.clock.advance(MINUTE, step=SECOND)

    # Under the same one the agent would name the run that has failed.
    assert keys(service) == [REF, f"{REF}#2"]
    assert stage.history() == ["08:05 parked"]


async def test_what_a_turn_was_given_is_kept_until_it_has_ended(stage, service):
    async with running(stage, hourly()):
        await stage.clock.advance_to(at("08:05"))
        place = stage.state.at("output", stage.record(REF).occurrence.place)
        assert "durable.json" in files.names(place)
        service.end()
        await seconds(stage, 15)
        assert "durable.json" not in files.names(place)
