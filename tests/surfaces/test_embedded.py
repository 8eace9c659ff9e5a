"""The engine in a host's process answers as the command line does."""

import asyncio
import os
from datetime import timedelta

import pytest

from routines import Engine, Jobs, Routine, UsageError, schedule
from routines.testing import FakeClock, RecordingAgent


def digest(**changes):
    every = schedule.every(timedelta(hours=1), tz="UTC")
    return Routine(**{"name": "digest", "prompt": "What is new?", "schedule": every, **changes})


def test_host_reads_rows_of_history_with_what_was_given_up(tmp_path):
    async def host():
        clock, agent = FakeClock(), RecordingAgent()
        first = Engine(tmp_path / "state", agent=agent, routines=[digest()], clock=clock)
        async with first.opened():
            await first.tick()
        clock.move(timedelta(hours=5, minutes=10))
        again = Engine(tmp_path / "state", agent=agent, routines=[digest()], clock=clock)
        async with again.opened():
            await again.tick()
            return again.entries(), len(agent.turns)

    entries, turns = asyncio.run(host())

    assert [(entry.outcome, entry.trigger) for entry in entries] == [
        ("completed", "catch-up"),
        ("missed", "schedule"),
    ]
    assert entries[1].missed["count"] == 4
    assert turns == 1


def test_host_is_told_why_a_slot_ran(tmp_path):
    async def host():
        clock, agent = FakeClock(), RecordingAgent()
        async with Engine(
            tmp_path / "state", agent=agent, routines=[digest()], clock=clock
        ) as engine:
            await engine.run("digest")
            return engine.explain("digest", clock.now() + timedelta(hours=1))

    answer = asyncio.run(host())

    assert answer.verdict == "not yet"
    assert answer.routine == "digest"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("", "state: it is empty"),
        (None, "state: it must be a path, not NoneType"),
        (7, "state: it must be a path, not int"),
        (b"state", "state: it must be text, not bytes"),
        ("st\0ate", "state: it holds a character that no path can hold"),
        ("st\ud800ate", "state: it holds a character that no path can hold"),
    ],
)
@pytest.mark.parametrize("make", [Engine, Jobs])
def test_a_state_that_is_no_path_is_refused_by_that_name_and_nothing_is_made(
    make, state, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError) as refused:
        make(state)

    assert refused.value.message == message
    assert not os.listdir(tmp_path)
