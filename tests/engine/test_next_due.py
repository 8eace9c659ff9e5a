"""Until when a host may sleep that looks itself: never past what is due, and never not at all."""

import contextlib
from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable
from routines.domain.retry import Retry
from routines.engine.lifecycle import Limits
from routines.store import locks
from routines.store.job_batches import BatchStore
from routines.store.places import PlaceStore
from tests.engine.stage import MINUTE, SECOND, at, every, once, routine
from tests.engine.test_jobs import queue


async def looks(stage, engine, span):
    """How often a host looks in *span* that sleeps until what it is told is due."""
    end, count = stage.clock.now() + span, 0
    while stage.clock.now() < end and count < 100:
        await engine.tick()
        count += 1
        now, due = stage.clock.now(), engine.next_due() or end
        stage.clock.move(max(min(due, end) - now, timedelta(0)))
    return count


@contextlib.asynccontextmanager
async def busy_session(stage, engine):
    await engine.tick()
    queue(stage).add("x", id="a", session="named:ops")
    async with engine.hold("named:ops"):
        yield


@contextlib.asynccontextmanager
async def no_place_for_a_job(stage, engine):
    queue(stage).add("x", id="a")
    room = PlaceStore(stage.state).take(places=1, group=None)
    yield
    room.let_go()


@contextlib.asynccontextmanager
async def no_place_for_a_wake_up(stage, engine):
    engine.tools("named:ops").wake("look again", in_="1m")
    room = PlaceStore(stage.state).take(places=1, group=None)
    stage.clock.move(2 * MINUTE)
    yield
    room.let_go()


@contextlib.asynccontextmanager
async def no_place_for_a_slot(stage, engine):
    await engine.tick()
    room = PlaceStore(stage.state).take(places=1, group=None)
    stage.clock.move(5 * MINUTE)
    yield
    room.let_go()


@contextlib.asynccontextmanager
async def claim_of_a_busy_session(stage, engine):
    await engine.tick()
    async with engine.hold("routine:digest"):
        await engine.detach_run("digest")
        yield


@pytest.mark.parametrize(
    "state",
    [
        busy_session,
        no_place_for_a_job,
        no_place_for_a_wake_up,
        no_place_for_a_slot,
        claim_of_a_busy_session,
    ],
    ids=lambda state: state.__name__,
)
async def test_what_is_due_and_has_to_wait_is_looked_at_once_a_second(stage, state):
    engine = stage.engine(routine(schedule=once("08:05")), limits=Limits(concurrency=1))
    async with engine.opened(), state(stage, engine):
        assert await looks(stage, engine, 10 * SECOND) == 10

        assert stage.agent.turns == []


async def test_jobs_that_their_producer_died_over_are_not_slept_past(stage, monkeypatch):
    engine = stage.engine()
    async with engine.opened():
        await engine.tick()
        assert engine.next_due() is None
        with monkeypatch.context() as died:
            died.setattr(BatchStore, "spread", lambda _, batch: locks.let_go(batch.fd))
            queue(stage).add_many(["x", "y"])
        assert engine.next_due() <= stage.clock.now() + SECOND
        await engine.tick()

    assert sorted(stage.told) == ["x", "y"]


async def test_a_queue_that_is_paused_is_not_looked_at_each_second(stage):
    queue(stage).add("x", id="a")
    engine = stage.engine()
    async with engine.opened():
        await engine.pause()
        assert await looks(stage, engine, 10 * MINUTE) == 20

        await engine.resume()
        assert engine.next_due() <= stage.clock.now() + SECOND
        await engine.tick()
        assert stage.told == ["x"]


async def test_the_end_of_a_pause_is_not_slept_past_where_a_job_is_queued(stage):
    queue(stage).add("x", id="a")
    engine = stage.engine()
    async with engine.opened():
        end = stage.clock.now() + 70 * SECOND
        await engine.pause(until=end)
        # At the start, after 30 s and 60 s; the fourth is at its end.
        assert await looks(stage, engine, 70 * SECOND) == 3
        assert stage.clock.now() == end
        await engine.tick()

    assert stage.told == ["x"]


async def test_where_nothing_waits_the_next_slot_is_slept_until(stage):
    engine = stage.engine(routine(schedule=every(5)))
    async with engine.opened():
        # At its start, and at 08:05 to 08:55.
        assert await looks(stage, engine, 60 * MINUTE) == 12

    assert len(stage.agent.turns) == 11


async def test_nothing_that_falls_due_after_a_look_is_slept_past(stage):
    engine = stage.engine(routine())
    async with engine.opened():
        await engine.tick()
        engine.tools("named:ops").wake("look again", in_="1m")
        assert engine.next_due() == at("08:01")
        stage.clock.move(2 * MINUTE)
        assert engine.next_due() == at("08:02")


async def test_a_retry_is_not_slept_past(stage):
    def absent(turn):
        raise AgentUnavailable("no network")

    stage.agent._answer = absent
    engine = stage.engine(routine(schedule=once("08:05"), retry=Retry(first=7 * MINUTE)))
    async with engine.opened():
        await engine.tick()
        stage.clock.move(5 * MINUTE)
        (record,) = [one for one in await engine.tick() if one is not None]
        assert record.retry_at > at("08:05")
        assert engine.next_due() == record.retry_at
