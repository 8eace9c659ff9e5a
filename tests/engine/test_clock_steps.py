"""A clock that is set, or wrong at boot (PROMISES L6, BR-64)."""

from datetime import timedelta

import pytest

from routines.engine.arming import Arming
from routines.engine.definitions import FixedDefinitions
from tests.engine.stage import HOUR, MINUTE, SECOND, at, every, once, routine


async def test_clock_set_back_repeats_no_slot_and_goes_on_on_time(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:20"))
        stage.clock.set(at("08:06"))
        await stage.clock.advance_to(at("08:30"))

    assert stage.slots == ["08:05", "08:10", "08:15", "08:20", "08:25", "08:30"]


async def test_slot_not_yet_claimed_fires_on_time_after_the_clock_was_set_back(stage):
    async with stage.running(routine(schedule=once("08:10"))):
        await stage.clock.advance_to(at("08:05"))
        stage.clock.set(at("07:50"))
        await stage.clock.advance_to(at("08:09"))
        assert stage.slots == []
        await stage.clock.advance_to(at("08:10"))

    assert stage.slots == ["08:10"]


async def test_clock_set_forward_is_an_absence(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:05"))
        stage.clock.set(at("08:28"))
        await stage.clock.advance(SECOND)

    assert stage.history()[1:] == ["08:10-08:20 missed asleep x3", "08:25 completed"]


async def test_machine_booted_in_2098_and_set_right_fires_in_the_present(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.set(at("2098-01-01 00:00"))
    async with stage.running(digest):
        await stage.clock.advance(5 * MINUTE)
        assert len(stage.agent.turns) == 3
        stage.clock.set(at("08:07"))
        await stage.clock.advance_to(at("08:15"))

    assert stage.slots[-2:] == ["08:10", "08:15"]


async def test_restart_after_2098_owes_what_the_present_owes(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.set(at("2098-01-01 00:00"))
    async with stage.running(digest):
        await stage.clock.advance(5 * MINUTE)
    told = len(stage.agent.turns)
    stage.clock.set(at("08:21"))
    async with stage.running(digest):
        pass

    assert stage.slots[told:] == ["08:20"]
    assert [f"{one.first:%H:%M}-{one.last:%H:%M}" for one in stage.missed()][:1] == ["08:10-08:15"]


async def test_small_corrections_every_hour_lose_no_slot(stage):
    async with stage.running(routine(schedule=every(60))):
        for hour in range(1, 7):
            await stage.clock.advance_to(at("08:00") + hour * HOUR)
            stage.clock.set(stage.clock.now() - timedelta(seconds=1.5))
    assert stage.slots == ["09:00", "10:00", "11:00", "12:00", "13:00", "14:00"]


async def test_record_from_before_the_clock_was_set_back_stops_no_slot_of_the_present(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.set(at("09:58"))
    async with stage.running(digest):
        assert stage.history()[1:] == ["08:10-09:50 missed no-scheduler x21", "09:55 completed"]
    stage.clock.set(at("09:02"))
    told = len(stage.slots)
    async with stage.running(digest):
        await stage.clock.advance_to(at("09:10"))

    assert stage.slots[told:] == ["09:00", "09:05", "09:10"]


@pytest.mark.parametrize(("seconds", "told"), [(0.2, 0), (20, 0), (120, 1)])
async def test_cursor_that_another_process_wrote_in_the_same_pass_is_no_wrong_clock(
    stage, caplog, seconds, told
):
    """Two schedulers see 500 new files at once: one has taken its `now` a little earlier."""
    caplog.set_level("WARNING", "routines")
    files = FixedDefinitions([routine(schedule=every(5))], root=stage.root, concurrency=4)
    now, later = stage.clock.now(), stage.clock.now() + timedelta(seconds=seconds)
    Arming(stage.state, by="ben@studio").arm(files, later)
    Arming(stage.state, by="ana@studio").arm(files, now)

    lines = [one.getMessage() for one in caplog.records]
    assert lines == ["cursor-in-the-future"] * told
    assert stage.cursors.peek("digest").since == (now if told else later)
