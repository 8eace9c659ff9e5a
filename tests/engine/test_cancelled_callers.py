"""Callers that are cancelled while the engine works for them: nothing that was taken stays taken.

`task.cancel()`, `asyncio.wait_for` and `asyncio.timeout` end the wait, never the thread behind it.
"""

import asyncio
import contextlib
import threading
from datetime import timedelta

import pytest

from routines.engine.off_loop import in_thread, quiet
from routines.store.claim import Claim
from routines.store.sessions import Lease, SessionStore
from tests.engine.stage import MINUTE, at, every, routine


class Held:
    """A store call that goes on to its end only when it is told to."""

    def __init__(self, monkeypatch, owner, name):
        self.reached = asyncio.Event()
        self.release = threading.Event()
        self.loop = asyncio.get_running_loop()
        real = getattr(owner, name)

        def held(*args, **options):
            self.loop.call_soon_threadsafe(self.reached.set)
            assert self.release.wait(30)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, held)


async def cancelled_in(held, call):
    """Cancel *call* while the store is at it, and let the store go on to its end."""
    task = asyncio.ensure_future(call)
    await held.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.release.set()
    await quiet()


async def enter(engine, session):
    async with engine.hold(session):
        await asyncio.Event().wait()


def hand(**changes):
    return routine(schedule=every(60), **changes)


# Runs by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["run", "begin_run"])
async def test_run_that_is_cancelled_before_it_began_is_not_started_and_frees_its_session(
    stage, monkeypatch, how
):
    async with stage.running(hand()) as engine:
        with monkeypatch.context() as patch:
            held = Held(patch, SessionStore, "take")
            await cancelled_in(held, getattr(engine, how)("digest"))

        assert stage.history() == ["manual 08:00 failed not-started"]
        assert (stage.agent.turns, engine.in_flight) == ([], ())
        assert [event.name for event in stage.events].count("settled") == 1
        record = await engine.run("digest")
        assert record.outcome == "completed"


async def test_group_of_a_cancelled_run_is_free_again(stage, monkeypatch):
    async with stage.running(hand(exclusive="disk")) as engine:
        with monkeypatch.context() as patch:
            await cancelled_in(Held(patch, SessionStore, "take"), engine.run("digest"))

        assert (await engine.run("digest")).outcome == "completed"


@pytest.mark.parametrize("after", [False, True])
async def test_run_is_free_where_its_cancel_comes_just_with_its_claim(stage, monkeypatch, after):
    async with stage.running(hand()) as engine:
        with monkeypatch.context() as patch:
            held = Held(patch, SessionStore, "take")
            task = asyncio.ensure_future(engine.run("digest"))
            await held.reached.wait()
            held.release.set()
            # The thread ends while the loop is busy: what it says and the cancel come at once.
            engine._pool.submit(lambda: None).result(30)
            if after:
                # It is said, and the task has not heard it yet.
                held.loop.call_soon(task.cancel)
            else:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await quiet()

        assert stage.history() == ["manual 08:00 failed not-started"]
        assert (await engine.run("digest")).outcome == "completed"


async def test_run_whose_turn_is_not_yet_asked_for_leaves_nothing(stage, monkeypatch):
    async with stage.running(hand(), hand(name="other")) as engine:
        with monkeypatch.context() as patch:
            held = Held(patch, SessionStore, "take")
            first = asyncio.ensure_future(engine.run("digest"))
            await held.reached.wait()
            # The store does one thing at a time: this one has to wait for its turn there.
            second = asyncio.ensure_future(engine.run("other"))
            await asyncio.sleep(0)
            second.cancel()
            held.release.set()
            await first
            await quiet()

        assert stage.history("other") == []


async def test_turn_that_has_begun_goes_on_when_its_caller_is_cancelled(stage):
    stage.agent.hold()
    async with stage.running(hand()) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await quiet()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(engine.in_flight) == 1
        stage.agent.release()
        await quiet()

        assert stage.history() == ["manual 08:00 completed"]


async def test_stop_waits_for_the_turn_of_a_caller_that_was_cancelled(stage):
    stage.agent.hold()
    engine = stage.engine(hand())
    await engine.start()
    running = await engine.begin_run("digest")
    waiting = asyncio.ensure_future(asyncio.wait_for(running.done, 30))
    await quiet()
    waiting.cancel()
    await quiet()
    stopping = asyncio.ensure_future(engine.stop(grace=timedelta(hours=1)))
    await quiet()
    assert not stopping.done()
    stage.agent.release()
    await stopping

    assert stage.history() == ["manual 08:00 completed"]
    assert running.done.result().outcome == "completed"


async def test_engine_that_stops_meanwhile_leaves_nothing_of_a_cancelled_run(stage, monkeypatch):
    engine = stage.engine(hand())
    await engine.start()
    await quiet()
    with monkeypatch.context() as patch:
        held = Held(patch, SessionStore, "take")
        task = asyncio.ensure_future(engine.run("digest"))
        await held.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.release.set()
        await engine.stop()

    assert stage.history() == ["manual 08:00 failed not-started"]
    async with stage.running(hand()) as engine:
        assert (await engine.run("digest")).outcome == "completed"


async def test_session_is_free_also_where_the_end_of_a_cancelled_run_can_not_be_written(
    stage, monkeypatch
):
    def refused(*args, **options):
        raise OSError(28, "No space left on device")

    async with stage.running(hand()) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Claim, "settle", refused)
            held = Held(patch, SessionStore, "take")
            await cancelled_in(held, engine.run("digest"))

        assert (await engine.run("digest")).outcome == "completed"
        # Whoever looks after open claims next ends it.
        await stage.clock.advance(2 * MINUTE)
        assert sorted(stage.history()) == [
            "manual 08:00 completed",
            "manual 08:00 failed not-started",
        ]


# Slots -------------------------------------------------------------------------------------------


async def test_slot_whose_delivery_was_cancelled_runs_when_it_is_delivered_again(
    stage, monkeypatch
):
    stage.clock.set(at("09:00"))
    engine = stage.engine(routine(schedule=every(60)), external_clock=True)
    async with engine.opened():
        await engine.tick()
        stage.clock.move(timedelta(hours=1))
        with monkeypatch.context() as patch:
            held = Held(patch, SessionStore, "take")
            await cancelled_in(held, engine.fire("digest", at("10:00")))
        assert stage.agent.turns == []
        await engine.fire("digest", at("10:00"))

    assert stage.slots == ["10:00"]
    assert "10:00 completed" in stage.history()


async def test_slot_of_a_pass_that_was_cancelled_runs_at_the_next(stage, monkeypatch):
    engine = stage.engine(routine(schedule=every(60)))
    async with engine.opened():
        await engine.tick()
        stage.clock.move(timedelta(hours=1))
        with monkeypatch.context() as patch:
            await cancelled_in(Held(patch, SessionStore, "take"), engine.tick())
        assert stage.agent.turns == []
        await engine.tick()

    assert stage.slots == ["09:00"]


async def test_turn_of_a_pass_goes_on_and_is_waited_for_when_the_pass_is_cancelled(stage):
    stage.agent.hold()
    engine = stage.engine(routine(schedule=every(60)))

    async def embedded():
        async with engine.opened():
            await engine.tick()
            stage.clock.move(timedelta(hours=1))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.ensure_future(cancelled_soon())

    async def cancelled_soon():
        ticking = asyncio.ensure_future(engine.tick())
        await quiet()
        ticking.cancel()
        await ticking

    task = asyncio.ensure_future(embedded())
    await quiet()
    assert not task.done()
    stage.agent.release()
    await task

    assert stage.history() == ["09:00 completed"]


# Sessions that are held --------------------------------------------------------------------------


async def test_session_that_was_taken_for_a_caller_who_was_cancelled_is_free(stage, monkeypatch):
    async with stage.running(hand()) as engine:
        with monkeypatch.context() as patch:
            held = Held(patch, SessionStore, "take")
            await cancelled_in(held, enter(engine, "named:talk"))

        async with engine.hold("named:talk") as lease:
            assert lease.session == "named:talk"


@pytest.mark.parametrize("name", ["stamp", "write"])
async def test_session_is_free_where_its_holder_was_being_written_down(stage, monkeypatch, name):
    async with stage.running(hand()) as engine:
        with monkeypatch.context() as patch:
            held = Held(patch, Lease, name)
            await cancelled_in(held, enter(engine, "named:talk"))

        async with engine.hold("named:talk"):
            pass
        assert stage.sessions.peek("named:talk").held_by is None


async def test_session_is_given_back_whole_by_a_block_that_is_cancelled_twice(stage, monkeypatch):
    async with stage.running(hand()) as engine:
        task = asyncio.ensure_future(enter(engine, "named:talk"))
        await quiet()
        assert stage.sessions.is_busy("named:talk") is not None
        with monkeypatch.context() as patch:
            held = Held(patch, Lease, "write")
            task.cancel()
            await held.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # It is not free before it says so.
            assert stage.sessions.is_busy("named:talk") is not None
            held.release.set()
            await quiet()

        assert stage.sessions.is_busy("named:talk") is None
        assert stage.sessions.peek("named:talk").held_by is None


# What comes after the loop -----------------------------------------------------------------------


def test_what_comes_after_the_loop_has_ended_is_let_go_of_too():
    release, freed = threading.Event(), threading.Event()

    def take():
        assert release.wait(30)
        return "a lease"

    async def program():
        waiting = asyncio.ensure_future(in_thread(take, abandoned=lambda _: freed.set()))
        await asyncio.sleep(0)
        return waiting

    asyncio.run(program())
    release.set()

    assert freed.wait(30)


async def test_fault_while_letting_go_is_in_the_log(caplog):
    release = threading.Event()

    def refused(_):
        raise OSError("no")

    waiting = asyncio.ensure_future(in_thread(release.wait, 30, abandoned=refused))
    await asyncio.sleep(0)
    waiting.cancel()
    release.set()
    await quiet()

    assert "abandoned-failed" in caplog.text
