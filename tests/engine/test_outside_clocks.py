"""A scheduler beside an outside clock arms nothing and catches nothing up, and fires wake-ups."""

import pytest

from tests.engine.stage import HOUR, MINUTE, SECOND, at, every, routine


async def test_slots_are_left_to_the_outside_clock(stage):
    async with stage.running(routine(schedule=every(10)), external_clock=True) as engine:
        await stage.clock.advance_to(at("09:00"))
        assert stage.agent.turns == []

        delivery = await engine.fire("digest", at("09:00"))

    assert delivery.word == "claimed"
    assert stage.slots == ["09:00"]


async def test_nothing_is_caught_up_with(stage):
    async with stage.running(routine(schedule=every(60))):
        pass
    stage.clock.sleep_machine(5 * HOUR + MINUTE)
    async with stage.running(routine(schedule=every(60)), external_clock=True):
        await stage.clock.advance(5 * MINUTE)

    assert stage.agent.turns == []


async def test_wake_ups_fire(stage):
    async with stage.running(routine(schedule=every(60)), external_clock=True) as engine:
        engine.tools("routine:digest").wake("look again", in_="2m")
        await stage.clock.advance(3 * MINUTE)

    assert [turn.trigger for turn in stage.agent.turns] == ["wake-up"]


@pytest.mark.parametrize("external_clock", [True, False])
async def test_a_slot_that_an_outside_clock_is_to_deliver_does_not_keep_the_engine_awake(
    stage, external_clock
):
    passes = []
    options = {"external_clock": external_clock, "on_pass": passes.append}
    async with stage.running(routine(schedule=every(5)), **options):
        await stage.clock.advance_to(at("08:06"))
        before = len(passes)
        await stage.clock.advance(10 * SECOND, step=SECOND / 10)

    # About once a second, as in any engine.
    assert 9 <= len(passes) - before <= 11
