"""`catch_up: all`, and what a person or a limit does to what waits (PROMISES L2, L8, L17, L18)."""

import pytest

from routines.agents.base import AgentUnavailable
from routines.domain.limits import DayLimit
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from tests.engine.stage import MINUTE, SECOND, at, every, once, routine

ALL = CatchUpPolicy.ALL


def refusing(times):
    """An agent that refuses so often, and then answers."""
    left = [AgentUnavailable("connection refused")] * times

    def answer(turn):
        if left:
            raise left.pop()
        return "done"

    return answer


async def left_at_5_past(stage, digest):
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.move(23 * MINUTE)


async def test_all_missed_slots_run_oldest_first_one_after_the_other(stage):
    digest = routine(schedule=every(5), catch_up=ALL)
    await left_at_5_past(stage, digest)
    async with stage.running(digest):
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.slots == ["08:05", "08:10", "08:15", "08:20", "08:25"]
    assert {line.split(" ", 1)[1] for line in stage.history()} == {"completed"}


async def test_current_slot_runs_behind_those_that_are_caught_up_with(stage):
    digest = routine(schedule=every(5), catch_up=ALL)
    await left_at_5_past(stage, digest)
    async with stage.running(digest):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:30"))
        stage.agent.release()
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.slots == ["08:05", "08:10", "08:15", "08:20", "08:25", "08:30"]


@pytest.mark.parametrize("overlap", OverlapPolicy)
async def test_current_slot_of_another_scheduler_waits_behind_the_last_caught_up_with(
    stage, overlap
):
    digest = routine(schedule=every(5), catch_up=ALL, overlap=overlap)
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:10"))
    stage.clock.move(10 * MINUTE)
    stage.agent.hold()
    async with stage.running(digest), stage.running(digest):
        # The one claims 08:15, the other meets its turn with 08:20, which fell due just now.
        await stage.clock.advance(20 * SECOND, step=SECOND)
        assert stage.slots == ["08:05", "08:10", "08:15"]
        stage.agent.release()
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.slots == ["08:05", "08:10", "08:15", "08:20"]
    assert {line.split(" ", 1)[1] for line in stage.history()} == {"completed"}


async def test_slot_behind_a_turn_of_the_present_is_skipped_as_its_overlap_says(stage):
    digest = routine(schedule=every(5), catch_up=ALL)
    await left_at_5_past(stage, digest)
    async with stage.running(digest):
        await stage.clock.advance(10 * SECOND, step=SECOND)
        stage.agent.hold()
        await stage.clock.advance_to(at("08:36"))
        stage.agent.release()
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.history()[-2:] == ["08:30 completed", "08:35 skipped overlap"]


async def test_all_is_bounded_and_says_so(stage):
    digest = routine(schedule=every(5), catch_up=ALL, max_catch_up=2)
    await left_at_5_past(stage, digest)
    async with stage.running(digest):
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:15 missed over-bound x2",
        "08:20 completed",
        "08:25 completed",
    ]


async def test_with_all_what_waits_for_its_session_all_runs_in_order(stage):
    async with stage.running(routine(schedule=every(5), catch_up=ALL)) as engine:
        async with engine.hold("routine:digest"):
            await stage.clock.advance_to(at("08:17"))
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.slots == ["08:05", "08:10", "08:15"]


async def test_parked_slot_that_is_cancelled_is_settled_without_running(stage):
    stage.agent._answer = refusing(3)
    async with stage.running(routine(schedule=once("09:00"), retry=Retry())):
        await stage.clock.advance_to(at("10:00"))
        assert stage.history() == ["09:00 parked"]
        stage.cancel("digest@2026-06-01T09:00:00Z")
        await stage.clock.advance(2 * MINUTE)

    assert stage.history() == ["09:00 cancelled person"]
    assert len(stage.agent.turns) == 3


async def test_slot_that_waits_to_be_tried_again_and_is_cancelled_is_settled(stage):
    stage.agent._answer = refusing(1)
    async with stage.running(routine(schedule=once("09:00"), retry=Retry(first=30 * MINUTE))):
        await stage.clock.advance_to(at("09:01"))
        stage.cancel("digest@2026-06-01T09:00:00Z")
        await stage.clock.advance(2 * MINUTE)
        assert stage.history() == ["09:00 cancelled person"]


async def test_turn_that_never_started_is_not_counted_against_the_limit_of_a_day(stage):
    stage.agent._answer = refusing(1)
    limit = DayLimit(turns=1, routine="digest")
    async with stage.running(routine(schedule=every(60), retry=Retry(), limits=limit)):
        await stage.clock.advance_to(at("10:00"))

    assert stage.history() == ["09:00 completed", "10:00 skipped limit"]
