"""What is due is claimed, run and settled, once (PROMISES L1, L7, L8, L9, O1)."""

from datetime import timedelta

from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, every, once, routine


async def test_each_slot_is_run_once_and_settled_completed(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance(15 * MINUTE)

    assert stage.slots == ["08:05", "08:10", "08:15"]
    assert stage.history() == ["08:05 completed", "08:10 completed", "08:15 completed"]


async def test_new_routine_owes_nothing_for_the_time_before_it_existed(stage):
    async with stage.running(routine(schedule=cron("*/5 * * * *"))):
        await stage.clock.advance(4 * MINUTE)

    assert stage.history() == []


async def test_routine_without_a_schedule_fires_never_by_itself(stage):
    bare = routine()
    object.__setattr__(bare, "schedule", None)
    async with stage.running(bare):
        await stage.clock.advance(HOUR)

    assert stage.agent.turns == []


async def test_one_shot_fires_once_and_never_again(stage):
    async with stage.running(routine(schedule=once("08:07"))):
        await stage.clock.advance(HOUR)
    async with stage.running(routine(schedule=once("08:07"))):
        await stage.clock.advance(HOUR)

    assert stage.history() == ["08:07 completed"]


async def test_appointment_60_days_ahead_fires_then_and_not_before(stage):
    async with stage.running(routine(schedule=once("2026-07-31 08:00"))) as engine:
        assert engine.next_due() == at("2026-07-31 08:00")
        await stage.clock.advance(timedelta(days=60) - MINUTE, step=timedelta(hours=6))
        assert stage.agent.turns == []

        await stage.clock.advance(MINUTE)

    assert stage.slots == ["08:00"]


async def test_slots_that_fall_due_together_all_run(stage):
    names = [f"r{number:02}" for number in range(4)]
    async with stage.running(*(routine(name) for name in names)):
        await stage.clock.advance(5 * MINUTE)

    assert sorted(turn.routine for turn in stage.agent.turns) == names


async def test_started_is_on_disk_before_the_agent_is_called(stage):
    seen = []
    stage.agent._answer = lambda turn: (
        seen.append([event["event"] for event in stage.records()[0].events]) or "done"
    )
    async with stage.running(routine()):
        await stage.clock.advance(5 * MINUTE)

    assert seen == [["started"]]


async def test_record_says_who_ran_what_for_whom(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance(5 * MINUTE)

    (record,) = stage.records()
    assert record.ref == "digest@2026-06-01T08:05:00Z"
    assert record.trigger == "schedule"
    assert record.session == "routine:digest"
    assert record.started["definition"] == routine(schedule=every(5)).digest()
    assert record.end["reply"] == "write the digest"
    assert record.claim["by"] == record.owner.user
    assert record.claim["key"].endswith("/digest@2026-06-01T08:05:00Z")


async def test_idle_engine_writes_nothing_but_its_heartbeat(stage, monkeypatch):
    from routines.store import files

    written = []

    class Watching(files.Calls):
        def rename(self, source, path):
            written.append(path)
            files.Calls.rename(source, path)

    async with stage.running(routine(schedule=cron("0 0 1 1 *"))):
        await stage.clock.advance(90 * SECOND, step=SECOND)
        monkeypatch.setattr(files, "calls", Watching())
        await stage.clock.advance(30 * SECOND, step=SECOND)
        monkeypatch.undo()

    assert {path.rpartition("/schedulers/")[1] for path in written} == {"/schedulers/"}
    assert len(written) == 2
