"""An agent that wakes itself in every turn stays within its bounds, and can be stopped (W1, L20).

The bound, as docs/concepts/wake-ups.md has it: at most 20 pending in one conversation, and at most
150 of its firings a calendar day, whatever the agent asks for.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.agents.base import Reply
from routines.domain.limits import DayLimit
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.engine.definitions import FixedDefinitions
from routines.errors import WakeupRefused
from routines.store import files
from routines.store.alerts import AlertStore
from routines.store.switches import SwitchStore
from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, once, routine
from tests.store.crash import Unsynced

SESSION = "routine:digest"
DAY = timedelta(hours=24)


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch):
    """Nothing here loses its power: what is synced in earnest only takes time."""
    monkeypatch.setattr(files, "calls", Unsynced())


async def a_day(stage, engine):
    """Let 24 hours pass, from one instant at which something is due to the next."""
    end = stage.clock.now() + DAY
    while (now := stage.clock.now()) < end:
        due = engine.next_due() or end
        await stage.clock.advance(min(max(due - now, SECOND), HOUR, end - now), step=DAY)


class Runaway:
    """Calls `wake` in every turn, as *ask* says; refusals are read and not heeded."""

    def __init__(self, stage, ask):
        self.stage = stage
        self.ask = ask
        self.engine = None
        self.turns = []
        self.refused = 0
        self.most_pending = 0

    async def run(self, turn):
        self.turns.append(turn)
        for words in self.ask(len(self.turns)):
            try:
                self.engine.tools(turn.session).wake(**words)
            except WakeupRefused:
                self.refused += 1
        self.most_pending = max(self.most_pending, len(self.stage.wakeups.pending(turn.session)))
        return Reply(text="once more")

    def release(self):
        """Hold nothing: a stage lets go of what its agent holds."""

    @property
    def woken_by_day(self):
        return Counter(
            turn.slot.date().isoformat() for turn in self.turns if turn.trigger == "wake-up"
        )


SAME = [{"prompt": "again", "in_": "1m"}]
ASKS = {
    "the same prompt": lambda n: SAME,
    "a new prompt": lambda n: [{"prompt": f"again {n}", "in_": "1m"}],
    "many new prompts": lambda n: [{"prompt": f"again {n}.{k}", "in_": "1m"} for k in range(4)],
    "recurring ones": lambda n: [{"prompt": f"again {n}.{k}", "every": "10m"} for k in range(3)],
}


@pytest.mark.slow
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())
async def test_agent_that_wakes_itself_in_every_turn_stays_within_the_bounds_for_a_day(stage, ask):
    stage.agent = agent = Runaway(stage, ask)
    async with stage.running(routine(schedule=once("08:01"))) as engine:
        agent.engine = engine
        await a_day(stage, engine)

    by_day = agent.woken_by_day
    # What finds its conversation busy is tried again or skipped: it counts, and is no turn.
    assert by_day["2026-06-01"] > 10
    assert max(by_day.values()) <= DEFAULT_BOUNDS.firings
    assert len(by_day) <= 2
    assert agent.most_pending <= DEFAULT_BOUNDS.pending
    # None is lost in silence: each firing has an outcome, and what is not due yet is pending.
    assert all(record.end is not None for record in stage.records())
    assert len(stage.wakeups.pending(SESSION)) <= DEFAULT_BOUNDS.pending


async def test_operator_sees_which_turn_set_what(stage):
    stage.agent = agent = Runaway(stage, ASKS["a new prompt"])
    async with stage.running(routine(schedule=once("08:01"))) as engine:
        agent.engine = engine
        await stage.clock.advance_to(at("08:04"))

    (pending,) = stage.wakeups.pending(SESSION)
    last = [one for one in stage.records() if one.trigger == "wake-up"][-1]
    assert pending.created_in_turn == stage.state.key(last.ref)
    assert last.claim["by"] == last.claim["wakeup"]["created_in_turn"]


async def test_workspaces_limit_of_turns_holds_for_woken_ones_of_any_session(stage, monkeypatch):
    without = FixedDefinitions.work_without_routine
    monkeypatch.setattr(
        FixedDefinitions,
        "work_without_routine",
        lambda self, **named: replace(without(self, **named), limits=(DayLimit(turns=5),)),
    )
    stage.agent = agent = Runaway(stage, ASKS["a new prompt"])
    engine = stage.engine()
    await engine.start()
    agent.engine = engine
    engine.tools("named:chat").wake("begin", in_="1m")
    await stage.clock.advance(HOUR)
    await engine.stop()

    assert len(agent.turns) == 5
    assert "limit" in {record.reason for record in stage.records()}


# Pausing from inside ------------------------------------------------------------------------------


class Pauser:
    """Pauses everything in its first turn."""

    def __init__(self):
        self.engine = None
        self.turns = []

    async def run(self, turn):
        self.turns.append(turn)
        if len(self.turns) == 1:
            await self.engine.pause(reason="I am going round in circles")
        return Reply(text="paused")

    def release(self):
        """Hold nothing."""


async def test_pause_of_everything_from_inside_a_turn_holds_is_recorded_and_alerts(stage):
    stage.agent = agent = Pauser()
    hourly = routine(schedule=cron("*/5 * * * *"))
    async with stage.running(hourly) as engine:
        agent.engine = engine
        engine.tools(SESSION).wake("look", in_="30m")
        await stage.clock.advance_to(at("09:00"))
        assert len(agent.turns) == 1
        turn = agent.turns[0].key
        switch = SwitchStore(stage.state).read(None)
        assert (switch.by, switch.reason) == (turn, "I am going round in circles")
        told = AlertStore(stage.state).peek("")["held"]
        assert (told.open, told.title) == (True, "everything: was paused by a turn")
        assert turn in told.body
        assert "routines resume --all" in told.body
        alerts = [one for one in stage.events if one.name == "alert"]
        assert [one.data["kind"] for one in alerts] == ["paused"]

        await engine.resume()
        await stage.clock.advance_to(at("09:10"))
        told = AlertStore(stage.state).peek("")["held"]
        assert (told.open, told.word) == (False, "recovery")

    assert len(agent.turns) > 1


async def test_pause_by_a_person_alerts_nobody(stage):
    async with stage.running(routine()) as engine:
        await engine.pause(reason="moving house")
        await stage.clock.advance(HOUR)

    assert [one for one in stage.events if one.name == "alert"] == []


async def test_pause_of_one_routine_by_a_turn_alerts_too(stage):
    class One(Pauser):
        async def run(self, turn):
            self.turns.append(turn)
            if len(self.turns) == 1:
                await self.engine.pause("digest")
            return Reply(text="paused")

    stage.agent = agent = One()
    async with stage.running(routine()) as engine:
        agent.engine = engine
        await stage.clock.advance_to(at("08:07"))
        told = AlertStore(stage.state).peek("digest")["held"]

    assert told.title == "digest: was paused by a turn"
    assert told.at - at("08:05") < MINUTE
