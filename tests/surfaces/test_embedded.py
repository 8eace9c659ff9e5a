"""The engine in a host's process answers as the command line does."""

import asyncio
from datetime import timedelta

from routines import Engine, Routine, schedule
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
