"""Faults that people reported of tools like this one, each with what is right instead."""

from datetime import timedelta

import pytest

from routines.store.cursors import CursorStore
from tests.engine.stage import MINUTE, at, cron, routine

MONDAY, WEDNESDAY, FRIDAY = "2026-09-07 19:00", "2026-09-09 18:45", "2026-09-11 00:15"


def weeklies():
    return [routine("monday", cron("0 19 * * 1")), routine("wednesday", cron("45 18 * * 3"))]


# BR-06: on wake-up several weekly jobs ran together, on a day that most of them exclude.


async def test_catching_up_means_a_slot_that_was_missed_and_not_that_it_has_not_run_lately(stage):
    stage.clock.set(at("2026-09-07 18:00"))
    async with stage.running(*weeklies()):
        await stage.clock.advance_to(at("2026-09-09 19:00"), step=timedelta(minutes=15))
    told = len(stage.agent.turns)
    assert told == 2
    stage.clock.set(at(FRIDAY))
    async with stage.running(*weeklies()):
        await stage.clock.advance(5 * MINUTE)

    assert len(stage.agent.turns) == told


async def test_the_one_weekly_that_was_missed_runs_once_under_its_own_slot(stage):
    stage.clock.set(at("2026-09-07 18:00"))
    async with stage.running(*weeklies()):
        await stage.clock.advance_to(at("2026-09-07 20:00"), step=timedelta(minutes=15))
    stage.clock.set(at(FRIDAY))
    async with stage.running(*weeklies()):
        await stage.clock.advance(5 * MINUTE)

    late = stage.agent.turns[-1]
    assert len(stage.agent.turns) == 2
    assert (late.routine, late.slot) == ("wednesday", at(WEDNESDAY))


# BR-11: a run by hand that repaired yesterday was filed under the next slot, which then did not run.


async def test_run_by_hand_leaves_the_next_slot_alone(stage):
    stage.clock.set(at("16:06"))
    daily = routine(schedule=cron("30 15 * * *"))
    async with stage.running(daily) as engine:
        by_hand = await engine.run("digest")
        await stage.clock.advance_to(at("2026-06-02 15:31"), step=timedelta(minutes=5))

    assert (by_hand.trigger, by_hand.occurrence.kind) == ("manual", "manual")
    assert stage.agent.turns[-1].slot == at("2026-06-02 15:30")
    assert len(stage.agent.turns) == 2


# BR-75: a new job made all jobs inside their grace period run again.


@pytest.mark.parametrize("touched", [False, True])
async def test_a_new_routine_fires_nothing_old_neither_its_own_nor_others(stage, touched):
    stage.clock.set(at("10:55"))
    hour = timedelta(hours=1)
    first = routine("a", cron("1 11 * * *"), start_within=hour)
    second = routine("b", cron("2 11 * * *"), start_within=hour)
    async with stage.running(first, second) as engine:
        await stage.clock.advance_to(at("11:30"))
        assert [turn.routine for turn in stage.agent.turns] == ["a", "b"]

        again = routine("a", cron("1 11 * * *"), start_within=hour) if touched else first
        new = routine("c", cron("20 11 * * *"), start_within=hour)
        coming = routine("d", cron("0 12 * * *"))
        engine.replace([again, second, new, coming])
        await stage.clock.advance_to(at("12:05"))

    assert [turn.routine for turn in stage.agent.turns] == ["a", "b", "d"]
    assert list(CursorStore(stage.state).missed("c")) == []
