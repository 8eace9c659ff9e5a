"""Stop, from anywhere and at any moment; and start again (PROMISES L14, BR-22, BR-68)."""

import asyncio
from datetime import timedelta

import pytest

from routines.engine.off_loop import quiet
from routines.errors import EngineMisuse
from routines.testing import RecordingAgent
from tests.engine.stage import HOUR, MINUTE, SECOND, at, every, once, routine


async def test_after_stop_no_slot_is_claimed(stage):
    async with stage.running(routine()):
        await stage.clock.advance(5 * MINUTE)
    stage.clock.move(5 * MINUTE)
    await quiet()

    assert stage.history() == ["08:05 completed"]


async def test_turn_that_ends_within_the_grace_is_completed(stage):
    async with stage.running(routine()) as engine:
        stage.agent.hold()
        await stage.clock.advance(5 * MINUTE)
        stopping = asyncio.create_task(engine.stop(grace=30 * SECOND))
        await stage.clock.advance(29 * SECOND, step=SECOND)
        assert not stopping.done()
        stage.agent.release()
        await stopping

    assert stage.history() == ["08:05 completed"]


async def test_turn_that_outlasts_the_grace_is_interrupted_by_the_stop_and_not_repeated(stage):
    async with stage.running(routine()) as engine:
        stage.agent.hold()
        await stage.clock.advance(5 * MINUTE)
        stopping = asyncio.create_task(engine.stop(grace=30 * SECOND))
        await stage.clock.advance(31 * SECOND, step=SECOND)
        await stopping
        assert stage.history() == ["08:05 interrupted stopped"]

    stage.agent.release()
    async with stage.running(routine()):
        await stage.clock.advance(SECOND)

    assert stage.history() == ["08:05 interrupted stopped"]
    assert stage.slots == ["08:05"]


async def test_hurry_ends_the_turns_at_once(stage):
    async with stage.running(routine()) as engine:
        stage.agent.hold()
        await stage.clock.advance(5 * MINUTE)
        stopping = asyncio.create_task(engine.stop(grace=HOUR))
        await quiet()
        engine.hurry()
        await stopping

    assert stage.history() == ["08:05 interrupted stopped"]


async def test_two_stops_at_once_both_return(stage):
    engine = stage.engine(routine())
    await engine.start()
    await asyncio.gather(engine.stop(), engine.stop())
    await engine.stop()


async def test_stop_before_start_has_finished_leaves_it_stopped(stage):
    engine = stage.engine(routine())
    starting = asyncio.create_task(engine.start())
    await asyncio.sleep(0)
    await engine.stop()
    await starting
    await stage.clock.advance(5 * MINUTE)

    assert stage.agent.turns == []


async def test_stop_of_an_engine_that_was_never_started_does_nothing(stage):
    await stage.engine().stop()


async def test_stopped_engine_can_be_started_again(stage):
    engine = stage.engine(routine())
    for _ in range(2):
        await engine.start()
        await stage.clock.advance(5 * MINUTE)
        await engine.stop()

    assert stage.history() == ["08:05 completed", "08:10 completed"]


def test_stopped_engine_can_be_started_again_in_another_loop(stage):
    engine = stage.engine(routine())

    async def once_more():
        await engine.start()
        await stage.clock.advance(5 * MINUTE)
        await engine.stop()

    asyncio.run(once_more())
    asyncio.run(once_more())

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_turn_that_stops_its_own_engine_goes_on_to_its_end(stage):
    done = []

    class Restarter(RecordingAgent):
        async def run(self, turn):
            await engine.stop()
            done.append("stopped")
            return await super().run(turn)

    engine = stage.engine(routine(), agent=Restarter())
    await engine.start()
    await stage.clock.advance(5 * MINUTE)

    assert done == ["stopped"]
    assert stage.history() == ["08:05 completed"]
    async with stage.running(routine()):
        await stage.clock.advance(SECOND)
    assert stage.history() == ["08:05 completed"]


async def test_turn_that_stops_its_own_engine_has_no_more_than_the_grace(stage):
    class Sitting(RecordingAgent):
        async def run(self, turn):
            await engine.stop(grace=30 * SECOND)
            return await super().run(turn)

    agent = Sitting()
    agent.hold()
    engine = stage.engine(routine(), agent=agent)
    await engine.start()
    await stage.clock.advance(5 * MINUTE)
    assert stage.history() == ["08:05 running"]
    await stage.clock.advance(31 * SECOND, step=SECOND)

    assert stage.history() == ["08:05 interrupted stopped"]


async def test_sync_function_that_stops_its_engine_goes_on_to_its_end(stage):
    loop = asyncio.get_running_loop()

    def stopper(turn):
        asyncio.run_coroutine_threadsafe(engine.stop(), loop).result(20)
        return "stopped"

    engine = stage.engine(routine(), agent=stopper)
    await engine.start()
    await stage.clock.advance(5 * MINUTE)
    from tests.engine.stage import eventually

    await eventually(lambda: stage.history() == ["08:05 completed"])


async def test_slot_that_falls_due_while_the_engine_stops_is_owed_to_the_next(stage):
    async with stage.running(routine()) as engine:
        stage.agent.hold()
        await stage.clock.advance(5 * MINUTE)
        stopping = asyncio.create_task(engine.stop(grace=10 * MINUTE))
        await stage.clock.advance(6 * MINUTE)
        stage.agent.release()
        await stopping
    assert stage.history() == ["08:05 completed"]

    async with stage.running(routine()):
        pass

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_engine_shows_what_is_in_flight_and_what_comes(stage):
    async with stage.running(routine(), routine("later", once("09:30"))) as engine:
        assert engine.in_flight == ()
        assert engine.next_due() == at("08:05")
        stage.agent.hold()
        await stage.clock.advance(5 * MINUTE)
        assert engine.in_flight == ("digest@2026-06-01T08:05:00Z",)
        assert engine.next_due() == at("08:10")


async def test_exception_in_on_event_harms_nobody(stage):
    def broken(event):
        raise RuntimeError(event.name)

    async with stage.running(routine(), on_event=broken):
        await stage.clock.advance(10 * MINUTE)

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_engine_refuses_use_in_a_forked_child(stage, monkeypatch):
    engine = stage.engine(routine())
    monkeypatch.setattr("os.getpid", lambda: 1)

    with pytest.raises(EngineMisuse):
        await engine.start()


async def test_scheduler_shows_itself_while_it_lives_and_is_in_the_past_after(stage):
    from routines.store.schedulers import SchedulerStore

    async with stage.running(routine(schedule=every(5))):
        ((live, held),) = SchedulerStore(stage.state).live()
        assert held is not False
        await stage.clock.advance(SECOND, step=SECOND)
        ((live, _),) = SchedulerStore(stage.state).live()
        assert live.armed == {"digest": routine().digest()}
    assert list(SchedulerStore(stage.state).live()) == []
    (past,) = SchedulerStore(stage.state).past()
    assert (past.id, past.why) == (live.id, "stopped")
    assert past.ended_at - past.started_at == timedelta(seconds=1)
