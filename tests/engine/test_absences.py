"""What is owed after an absence, whatever it was (PROMISES L1 to L3, BR-01, BR-03, BR-05)."""

from datetime import timedelta

import pytest

from routines.domain.outcome import Reason
from routines.domain.routine import CatchUpPolicy
from routines.testing import FakeClock
from tests.engine.stage import HOUR, MINUTE, SECOND, Counting, at, cron, every, once, routine

NONE, ONE = CatchUpPolicy.NONE, CatchUpPolicy.ONE


async def seen_and_left(stage, *routines, until="08:05", step=MINUTE):
    """Let an engine run until then, and end."""
    async with stage.running(*routines):
        await stage.clock.advance_to(at(until), step=step)


# After a restart -------------------------------------------------------------------------------


async def test_after_an_absence_the_newest_slot_runs_and_the_others_are_one_counted_record(stage):
    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(23 * MINUTE)
    async with stage.running(digest):
        pass

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:20 missed no-scheduler x3",
        "08:25 completed",
    ]
    (missed,) = stage.missed()
    assert (missed.first, missed.last, missed.count) == (at("08:10"), at("08:20"), 3)
    assert [turn.trigger for turn in stage.agent.turns] == ["schedule", "catch-up"]
    assert stage.agent.turns[-1].late == 3 * MINUTE


async def test_slot_inside_a_short_restart_runs_late_and_nothing_is_missed(stage):
    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(6 * MINUTE)
    async with stage.running(digest):
        pass

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_catch_up_none_runs_nothing_late_and_counts_what_it_missed(stage):
    digest = routine(schedule=every(5), catch_up=NONE)
    await seen_and_left(stage, digest)
    stage.clock.move(23 * MINUTE)
    async with stage.running(digest):
        assert stage.history() == ["08:05 completed", "08:10-08:25 missed no-scheduler x4"]
        await stage.clock.advance_to(at("08:30"))

    assert stage.history()[-1] == "08:30 completed"


async def test_with_catch_up_none_a_slot_seen_within_a_minute_is_on_time(stage):
    digest = routine(schedule=every(5), catch_up=NONE)
    await seen_and_left(stage, digest)
    stage.clock.move(5 * MINUTE + 60 * SECOND)
    async with stage.running(digest):
        pass

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_after_an_absence_of_a_year_one_turn_runs_and_the_count_is_bounded(stage):
    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(timedelta(days=365))
    async with stage.running(digest):
        pass

    assert len(stage.agent.turns) == 2
    assert stage.missed()[0].count == 1001


async def test_weekly_routines_are_caught_up_for_their_own_days_alone(stage):
    names = ["mon", "tue", "wed", "thu", "fri"]
    weekly = [routine(day, cron(f"0 9 * * {day}")) for day in names]
    await seen_and_left(stage, *weekly, until="2026-06-06 12:00", step=HOUR)
    assert [f"{turn.slot:%a}".lower() for turn in stage.agent.turns] == names
    stage.clock.move(timedelta(days=2))
    async with stage.running(*weekly):
        pass

    # Monday's alone has passed since Saturday.
    assert [turn.routine for turn in stage.agent.turns[5:]] == ["mon"]


async def test_one_shot_is_owed_for_as_long_as_it_takes(stage):
    shot = routine(schedule=once("09:00"))
    await seen_and_left(stage, shot)
    stage.clock.move(timedelta(days=90))
    async with stage.running(shot):
        pass

    assert stage.history() == ["09:00 completed"]


async def test_one_shot_past_its_start_within_is_missed_too_late(stage):
    shot = routine(schedule=once("09:00"), start_within=HOUR)
    await seen_and_left(stage, shot)
    stage.clock.move(3 * HOUR)
    async with stage.running(shot):
        await stage.clock.advance(HOUR)

    assert stage.history() == ["09:00-09:00 missed too-late x1"]
    assert stage.agent.turns == []


@pytest.mark.parametrize(("late", "told"), [(30 * MINUTE, 1), (30 * MINUTE + SECOND, 0)])
async def test_start_within_is_the_last_moment_that_counts(stage, late, told):
    daily = routine(schedule=cron("0 9 * * *"), start_within=30 * MINUTE)
    await seen_and_left(stage, daily)
    stage.clock.move(at("09:00") - stage.clock.now() + late)
    async with stage.running(daily):
        pass

    assert len(stage.agent.turns) == told


async def test_turn_is_told_nothing_of_slots_that_were_not_its_own(stage):
    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(23 * MINUTE)
    async with stage.running(digest):
        pass
    (_, caught_up) = stage.agent.turns

    assert caught_up.slot == at("08:25")


async def test_looking_twice_after_an_absence_finds_nothing_more(stage):
    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(23 * MINUTE)
    for _ in range(3):
        async with stage.running(digest):
            pass

    assert len(stage.history()) == 3


async def test_adding_one_routine_makes_no_other_run_again(stage):
    old = [routine(f"old{n}", cron("*/5 * * * *")) for n in range(3)]
    await seen_and_left(stage, *old)
    assert len(stage.agent.turns) == 3
    async with stage.running(*old, routine("new", cron("*/5 * * * *"))):
        await stage.clock.advance(MINUTE)

    assert len(stage.agent.turns) == 3


async def test_count_is_worked_out_after_what_is_due_has_been_claimed(stage, monkeypatch):
    from routines.engine import claiming

    digest = routine(schedule=every(5))
    await seen_and_left(stage, digest)
    stage.clock.move(23 * MINUTE)
    claimed_before = []
    count = claiming.counted

    def counting(missed):
        claimed_before.append([one.ref for one in stage.records() if one.end is None])
        return count(missed)

    monkeypatch.setattr(claiming, "counted", counting)
    async with stage.running(digest):
        pass

    assert claimed_before == [["digest@2026-06-01T08:25:00Z"]]


async def asked_after(stage, tmp_path, absence):
    schedule = Counting(cron("*/5 * * * *"))
    stage.path = str(tmp_path / f"state-{absence.days}-{absence.seconds}")
    stage.clock = FakeClock()
    digest = routine(schedule=schedule)
    await seen_and_left(stage, digest)
    stage.clock.move(absence)
    before = schedule.asked
    async with stage.running(digest):
        pass
    return schedule.asked - before


async def test_catching_up_costs_the_same_after_an_hour_and_after_ten_years(stage, tmp_path):
    hour = await asked_after(stage, tmp_path, HOUR)
    decade = await asked_after(stage, tmp_path, timedelta(days=3653))

    assert decade == hour


# Without a restart -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sleep of the machine", "suspended process"])
async def test_sleep_is_an_absence_like_a_restart(stage, how):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
        if how == "sleep of the machine":
            stage.clock.sleep_machine(23 * MINUTE)
        else:
            stage.clock.move(23 * MINUTE)
        await stage.clock.advance(SECOND)

    assert stage.history() == ["08:05 completed", "08:10-08:20 missed asleep x3", "08:25 completed"]
    assert stage.agent.turns[-1].trigger == "catch-up"


@pytest.mark.parametrize("how", ["sleep of the machine", "suspended process"])
async def test_with_catch_up_none_a_slot_slept_through_is_missed(stage, how):
    daily = routine(schedule=cron("0 9 * * *"), catch_up=NONE)
    async with stage.running(daily):
        await stage.clock.advance_to(at("08:30"))
        if how == "sleep of the machine":
            stage.clock.sleep_machine(2 * HOUR)
        else:
            stage.clock.move(2 * HOUR)
        await stage.clock.advance(SECOND)

    assert stage.history() == ["09:00-09:00 missed asleep x1"]


async def test_limit_of_a_turn_counts_time_awake(stage):
    stage.agent.hold()
    async with stage.running(routine(schedule=once("08:05"), timeout=10 * MINUTE)):
        await stage.clock.advance_to(at("08:05"))
        stage.clock.sleep_machine(8 * HOUR)
        await stage.clock.advance(9 * MINUTE)
        assert stage.history() == ["08:05 running"]
        await stage.clock.advance(MINUTE)

    assert stage.history() == ["08:05 timed-out timeout"]


# Edits of schedule and zone ----------------------------------------------------------------------


async def test_edited_schedule_owes_nothing_from_before_the_edit(stage):
    await seen_and_left(stage, routine(schedule=cron("0 9 * * *")), until="10:00")
    async with stage.running(routine(schedule=cron("30 9 * * *"))):
        await stage.clock.advance(HOUR)

    assert stage.history() == ["09:00 completed"]


async def test_edited_zone_owes_nothing_from_before_the_edit(stage):
    await seen_and_left(stage, routine(schedule=cron("0 12 * * *", "UTC")), until="11:00")
    async with stage.running(routine(schedule=cron("0 12 * * *", "Europe/Berlin"))):
        # 12:00 in Berlin was at 10:00.
        await stage.clock.advance(2 * HOUR)

    assert stage.history() == []


async def test_edited_prompt_leaves_the_cursor_where_it_is(stage):
    await seen_and_left(stage, routine(schedule=every(5)))
    stage.clock.move(5 * MINUTE)
    async with stage.running(routine(schedule=every(5), prompt="another")):
        pass

    assert stage.history() == ["08:05 completed", "08:10 completed"]
    assert stage.told[-1] == "another"


async def test_what_the_old_schedule_owed_is_recorded_at_the_edit(stage):
    await seen_and_left(stage, routine(schedule=cron("0 9 * * *")), until="08:30")
    stage.clock.move(HOUR)
    async with stage.running(routine(schedule=cron("0 18 * * *"))):
        pass

    assert stage.history() == ["09:00-09:00 missed no-scheduler x1"]


# Off for a while ---------------------------------------------------------------------------------


async def test_time_disabled_is_one_counted_record(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        await stage.clock.advance_to(at("08:07"))
        engine.replace([routine(schedule=every(5), enabled=False)])
        await stage.clock.advance_to(at("08:27"))
        assert stage.history() == ["08:05 completed"]
        engine.replace([routine(schedule=every(5))])
        await stage.clock.advance_to(at("08:30"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:25 missed disabled x4",
        "08:30 completed",
    ]


async def test_time_without_its_file_is_one_counted_record(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        await stage.clock.advance_to(at("08:07"))
        engine.replace([])
        await stage.clock.advance_to(at("08:27"))
        engine.replace([routine(schedule=every(5))])
        await stage.clock.advance_to(at("08:30"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:25 missed not-armed x4",
        "08:30 completed",
    ]


async def test_what_was_owed_before_it_was_disabled_has_a_reason_of_its_own(stage):
    await seen_and_left(stage, routine(schedule=every(5)))
    stage.clock.move(6 * MINUTE)
    async with stage.running(routine(schedule=every(5), enabled=False)):
        await stage.clock.advance(10 * MINUTE)
    async with stage.running(routine(schedule=every(5))):
        pass

    assert [(one.first, one.last, one.reason) for one in stage.missed()] == [
        (at("08:10"), at("08:10"), Reason.NO_SCHEDULER),
        (at("08:15"), at("08:20"), Reason.DISABLED),
    ]


# Others on the same state folder -----------------------------------------------------------------


async def test_engine_with_other_routines_leaves_those_of_its_neighbour_armed(stage):
    async with (
        stage.running(routine("ours", every(5))),
        stage.running(routine("theirs", every(5))),
    ):
        await stage.clock.advance_to(at("08:10"))

    assert (
        stage.history("ours") == stage.history("theirs") == ["08:05 completed", "08:10 completed"]
    )


async def test_slots_of_a_routine_that_another_process_has_disarmed_are_recorded(stage):
    from routines.store.cursors import Standing

    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:07"))
        cursor = stage.cursors.read("digest")
        stage.cursors.write(cursor.with_(standing=Standing.ABSENT, standing_at=at("08:07")))
        await stage.clock.advance_to(at("08:12"))
        await stage.clock.advance_to(at("08:15"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:10 missed not-armed x1",
        "08:15 completed",
    ]
