"""What never started is tried again, what comes only once is parked, and no more (L12)."""

from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable, SessionBusy
from routines.domain.retry import Retry
from routines.testing import RecordingAgent
from tests.engine.stage import HOUR, MINUTE, at, every, once, routine


class Reluctant:
    """An agent that is not there for the first so many turns."""

    def __init__(self, stage, times, error=AgentUnavailable):
        self.stage = stage
        self.left = times
        self.error = error
        self.asked = []

    def __call__(self, turn):
        self.asked.append((self.stage.clock.now().strftime("%H:%M"), turn.key))
        if self.left:
            self.left -= 1
            raise self.error("connection refused")
        return "done"


def reluctant(stage, times, error=AgentUnavailable):
    answer = Reluctant(stage, times, error)
    stage.agent = RecordingAgent(answer)
    return answer


@pytest.mark.parametrize("error", [AgentUnavailable, SessionBusy])
async def test_turn_that_never_started_is_tried_again_under_its_claim_and_key(stage, error):
    answer = reluctant(stage, 2, error)
    async with stage.running(routine(schedule=every(60), retry=Retry())):
        await stage.clock.advance_to(at("09:10"))

    (record,) = stage.records()
    assert (record.outcome, record.attempts) == ("completed", 3)
    assert [minute for minute, _ in answer.asked] == ["09:00", "09:01", "09:03"]
    assert len({key for _, key in answer.asked}) == 1


async def test_claim_that_is_tried_again_is_said_to_be_fired_once(stage):
    reluctant(stage, 2)
    async with stage.running(routine(schedule=every(60), retry=Retry())):
        await stage.clock.advance_to(at("09:10"))

    begun = [(e.name, e.data.get("attempt")) for e in stage.events if "trigger" in e.data]
    assert begun == [("fired", None), ("taken-up", 2), ("taken-up", 3), ("settled", None)]


async def test_recurring_slot_fails_after_its_last_attempt(stage):
    answer = reluctant(stage, 9)
    async with stage.running(routine(schedule=every(60), retry=Retry())):
        await stage.clock.advance_to(at("09:30"))

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("failed", "not-started")
    assert len(answer.asked) == 3


async def test_no_attempt_is_made_at_or_past_the_next_slot(stage):
    answer = reluctant(stage, 99)
    patient = Retry(attempts=9, first=timedelta(minutes=4), most=timedelta(minutes=4))
    async with stage.running(routine(schedule=every(10), retry=patient)):
        await stage.clock.advance_to(at("08:19"))

    assert [minute for minute, _ in answer.asked] == ["08:10", "08:14", "08:18"]
    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("failed", "not-started")


async def test_session_is_free_between_two_attempts(stage):
    reluctant(stage, 1)
    async with stage.running(
        routine(schedule=every(60), retry=Retry(first=timedelta(minutes=10)))
    ) as engine:
        await stage.clock.advance_to(at("09:02"))
        record = await engine.run("digest")
        assert record.outcome == "completed"


async def test_one_shot_is_parked_after_its_last_attempt_and_blocks_nothing(stage):
    reluctant(stage, 9)
    async with stage.running(routine(schedule=once("09:00"), retry=Retry())):
        await stage.clock.advance(3 * HOUR)

    (record,) = stage.records()
    assert record.written_state == "parked"


async def test_parked_slot_of_a_routine_that_recurs_blocks_no_later_slot(stage):
    reluctant(stage, 1)
    parked = Retry(attempts=1, park=True)
    async with stage.running(routine(schedule=every(60), retry=parked)):
        await stage.clock.advance_to(at("10:00"))

    states = {r.occurrence.instant.hour: r.written_state for r in stage.records()}
    assert states == {9: "parked", 10: "settled"}


async def test_run_by_hand_is_never_tried_again(stage):
    answer = reluctant(stage, 9)
    async with stage.running(routine(retry=Retry())) as engine:
        record = await engine.run("digest")
        await stage.clock.advance(HOUR * 0 + 10 * MINUTE)

    assert (record.outcome, record.reason) == ("failed", "not-started")
    assert [r.occurrence.kind for r in stage.records()].count("manual") == 1
    assert len([key for _, key in answer.asked if "manual" in key]) == 1


def fails(_turn):
    raise RuntimeError("it broke")


async def test_turn_that_started_and_failed_is_not_repeated(stage):
    stage.agent = RecordingAgent(fails)
    async with stage.running(routine(schedule=every(60), retry=Retry())):
        await stage.clock.advance_to(at("09:30"))

    (record,) = stage.records()
    assert (record.outcome, record.reason, record.attempts) == ("failed", "agent", 1)
    assert len(stage.agent.turns) == 1


async def test_turn_that_started_and_failed_is_repeated_where_the_author_says_so(stage):
    stage.agent = RecordingAgent(fails)
    async with stage.running(routine(schedule=every(60), retry=Retry(started=True))):
        await stage.clock.advance_to(at("09:30"))

    (record,) = stage.records()
    assert (record.outcome, record.attempts) == ("failed", 3)
    assert len(stage.agent.turns) == 3


async def test_retry_that_waits_survives_a_restart(stage):
    reluctant(stage, 1)
    waiting = routine(schedule=every(60), retry=Retry(first=timedelta(minutes=10)))
    async with stage.running(waiting):
        await stage.clock.advance_to(at("09:01"))
    async with stage.running(waiting):
        await stage.clock.advance_to(at("09:12"))

    (record,) = stage.records()
    assert (record.outcome, record.attempts) == ("completed", 2)


async def test_interrupted_turn_is_run_again_only_as_often_as_its_author_says(stage):
    again = routine(schedule=every(60), rerun_interrupted=1)
    for _ in range(2):
        engine = stage.engine(again)
        await engine.start()
        stage.agent.hold()
        await stage.clock.advance_to(max(at("09:00"), stage.clock.now() + MINUTE))
        await stage.crash(engine)
    stage.agent.release()
    async with stage.running(again):
        await stage.clock.advance(2 * MINUTE)

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("interrupted", "owner-died")
    keys = [turn.key.rpartition("/")[2] for turn in stage.agent.turns]
    assert keys == ["digest@2026-06-01T09:00:00Z", "digest@2026-06-01T09:00:00Z#2"]
