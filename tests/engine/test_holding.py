"""`engine.hold`: the session that is held, and what it refuses."""

from datetime import timedelta

import pytest

from routines import SessionBusyError, UsageError
from tests.engine.stage import every, routine


@pytest.mark.parametrize(
    ("kind", "session"),
    [
        ("stable", "routine:digest"),
        ("fresh", "routine:digest"),
        ("named:news", "named:news"),
    ],
)
async def test_name_of_a_routine_stands_for_its_session(stage, kind, session):
    async with stage.running(routine(schedule=every(60), session=kind)) as engine:
        async with engine.hold("digest") as lease:
            assert lease.session == session
        assert [ledger.session for ledger in stage.sessions.all()] == [session]


async def test_turn_meets_a_session_that_is_held_by_the_name_of_its_routine(stage):
    busy = stage.running(routine(schedule=every(60)))
    async with busy as engine, engine.hold("digest", who="ana"):
        with pytest.raises(SessionBusyError, match="ana"):
            await engine.run("digest")


@pytest.mark.parametrize("session", ["chat-7", "named:digest", "routine:other"])
async def test_any_other_name_is_that_of_a_session(stage, session):
    running = stage.running(routine(schedule=every(60)))
    async with running as engine, engine.hold(session) as lease:
        assert lease.session == session


@pytest.mark.parametrize("wait", [30, 0.5, None])
async def test_wait_that_is_no_timedelta_is_refused_in_words(stage, wait):
    async with stage.running(routine(schedule=every(60))) as engine:
        with pytest.raises(UsageError, match="wait is a timedelta, and not"):
            async with engine.hold("digest", wait=wait):
                pass
        async with engine.hold("digest", wait=timedelta(seconds=30)):
            pass


@pytest.mark.parametrize("session", ["", "a\nb", 7])
async def test_name_that_no_session_can_have_is_refused(stage, session):
    async with stage.running(routine(schedule=every(60))) as engine:
        with pytest.raises(UsageError):
            async with engine.hold(session):
                pass
