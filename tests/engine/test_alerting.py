"""Who is told what went wrong: once, once on recovery, whoever found it (BR-71, FR-03)."""

import asyncio
import logging
import os
import sys
import time
from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable, Reply, TurnFailed
from routines.domain.routine import OverlapPolicy
from routines.domain.targets import DESKTOP, to_command, to_file
from routines.engine.definitions import FileDefinitions
from routines.engine.delivering import Delivered
from routines.store.alerts import AlertStore
from tests.engine.stage import (
    HOUR,
    MINUTE,
    SECOND,
    at,
    content,
    cron,
    eventually,
    every,
    once,
    put,
    routine,
)


class Agent:
    """Fails until it is told to be well."""

    def __init__(self):
        self.fails = True
        self.turns = []

    async def run(self, turn):
        if self.fails:
            raise TurnFailed("exit 1: Not logged in")
        return Reply(text="done")


class Holding:
    """Works until it is ended, once it has answered the *first* of its turns."""

    def __init__(self, first=0):
        self.left = first

    async def run(self, turn):
        if not self.left:
            await asyncio.Event().wait()
        self.left -= 1
        return Reply(text="done")


@pytest.fixture
def agent():
    return Agent()


def words(stage):
    """What a host was told: `alert digest failing`."""
    return [
        f"{one.name} {one.ref} {one.data['kind']}"
        for one in stage.events
        if one.name in ("alert", "recovery")
    ]


def told(stage, name="digest", topic="turns"):
    return AlertStore(stage.state).peek(name)[topic]


# When --------------------------------------------------------------------------------------------


async def test_99_failures_in_a_row_are_one_alert_and_one_recovery(stage, agent, caplog):
    caplog.set_level(logging.INFO, "routines")
    hourly = routine(schedule=every(60))
    async with stage.running(hourly, agent=agent):
        await stage.clock.advance(99 * HOUR, step=15 * MINUTE)
        assert words(stage) == ["alert digest failing"]
        agent.fails = False
        await stage.clock.advance(2 * HOUR)

    assert words(stage) == ["alert digest failing", "recovery digest failing"]
    lines = [one for one in caplog.records if one.getMessage() in ("alert", "recovery")]
    assert [one.levelname for one in lines] == ["ERROR", "INFO"]
    assert "Not logged in" in lines[0].text
    assert "routines explain digest" in lines[0].text


async def test_slots_that_are_always_skipped_are_told_too(stage):
    busy = stage.running(routine(schedule=every(60)))
    async with busy as engine, engine.hold("routine:digest"):
        await stage.clock.advance(3 * HOUR + MINUTE)

    assert words(stage) == ["alert digest failing"]
    assert told(stage).body.startswith("missed Mon 01 Jun 2026")
    assert "busy" in told(stage).body


@pytest.mark.parametrize(("minutes", "count"), [(5, 3), (60, 1)])
async def test_dense_slots_are_told_at_the_third_problem_in_a_row(stage, agent, minutes, count):
    async with stage.running(routine(schedule=every(minutes)), agent=agent):
        while not words(stage):
            await stage.clock.advance(MINUTE)

    assert len(stage.history()) == count


async def test_no_more_than_a_pair_in_six_hours(stage, agent):
    async with stage.running(routine(schedule=every(60)), agent=agent):
        for hour in range(8):
            agent.fails = hour % 2 == 0
            await stage.clock.advance(HOUR)

    assert words(stage)[:2] == ["alert digest failing", "recovery digest failing"]
    assert words(stage).count("alert digest failing") == 2


async def test_failure_that_a_person_saw_is_not_told(stage, agent):
    async with stage.running(routine(schedule=every(60)), agent=agent) as engine:
        await engine.run("digest")
        await stage.clock.advance(2 * MINUTE)

    assert words(stage) == []


async def test_warned_turn_is_told(stage):
    stage.agent._answer = lambda _: Reply(text=" ")
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:06"))

    assert words(stage) == ["alert digest failing"]
    assert "empty-reply" in told(stage).body
    (settled,) = [one for one in stage.events if one.name == "settled"]
    assert settled.data["warnings"] == "empty-reply"


async def test_parked_turn_is_told_at_once(stage):
    def refuse(turn):
        raise AgentUnavailable("connection refused")

    stage.agent._answer = refuse
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance(HOUR)

    assert words(stage) == ["alert digest parked"]
    assert "connection refused" in told(stage).body


async def test_routine_that_has_not_completed_for_long_is_silent_and_then_well_again(stage):
    hourly = routine(schedule=every(60), silent_for=3 * HOUR)
    async with stage.running(hourly) as engine:
        await stage.clock.advance_to(at("09:05"))
        engine.replace([routine(schedule=cron("0 9 1 * *"), silent_for=3 * HOUR)])
        await stage.clock.advance(2 * HOUR + 55 * MINUTE)
        assert words(stage) == []
        await stage.clock.advance(10 * MINUTE)
        assert words(stage) == ["alert digest silent"]
        engine.replace([hourly])
        await stage.clock.advance(HOUR)

    assert words(stage) == ["alert digest silent", "recovery digest silent"]


async def test_routine_whose_turns_supersede_each_other_is_silent(stage):
    """There always is a turn under way that is younger than its limit."""
    minutely = routine(
        schedule=every(1),
        overlap=OverlapPolicy.SUPERSEDE,
        timeout=10 * MINUTE,
        silent_for=timedelta(seconds=90),
    )
    async with stage.running(minutely, agent=Holding()):
        await stage.clock.advance(MINUTE + 20 * SECOND, step=10 * SECOND)
        assert words(stage) == []
        await stage.clock.advance(5 * MINUTE, step=10 * SECOND)

    assert words(stage) == ["alert digest silent"]
    assert {word for line in stage.history()[:-1] for word in line.split()[1:2]} == {"superseded"}


async def test_routine_without_silent_for_whose_turns_supersede_each_other_is_silent(stage):
    minutely = routine(schedule=every(1), overlap=OverlapPolicy.SUPERSEDE, timeout=10 * MINUTE)
    async with stage.running(minutely, agent=Holding()):
        await stage.clock.advance(12 * MINUTE, step=10 * SECOND)
        assert words(stage) == []
        await stage.clock.advance(3 * MINUTE, step=10 * SECOND)

    assert words(stage) == ["alert digest silent"]


async def test_turn_that_lasts_longer_than_silent_for_is_told(stage):
    hourly = routine(schedule=every(60), silent_for=61 * MINUTE, timeout=HOUR)
    async with stage.running(hourly, agent=Holding(first=1)):
        await stage.clock.advance_to(at("10:00"), step=30 * SECOND)
        assert words(stage) == []
        await stage.clock.advance(2 * MINUTE, step=30 * SECOND)

    assert words(stage) == ["alert digest silent"]


async def test_turn_that_catches_up_after_an_absence_has_its_time(stage):
    hourly = routine(schedule=every(60), silent_for=2 * HOUR, timeout=30 * MINUTE)
    async with stage.running(hourly):
        await stage.clock.advance_to(at("09:01"))
    stage.clock.move(9 * HOUR)
    async with stage.running(hourly, agent=Holding()):
        await stage.clock.advance(20 * MINUTE, step=MINUTE)

    assert words(stage) == []


async def test_gate_that_says_no_is_no_silence(stage):
    gated = routine(schedule=every(60), only_if=(sys.executable, "-c", "raise SystemExit(1)"))
    async with stage.running(gated):
        await stage.clock.advance(6 * HOUR, step=30 * MINUTE)

    assert set(stage.history()) != set()
    assert words(stage) == []


async def test_file_that_breaks_is_told_and_again_when_it_is_mended(stage):
    put(f"{stage.root}/routines.yaml", b"agent: echo\n")
    good = b"prompt: hello\ncron: '0 9 * * *'\n"
    put(f"{stage.root}/routines/daily.yaml", good)
    from routines.config.workspace import FoundBy, Root

    root = Root(path=stage.root, found_by=FoundBy.OPTION, state=stage.path)
    files = FileDefinitions(root, live=True)
    async with stage.running(routines=files):
        put(f"{stage.root}/routines/daily.yaml", b"promt: hello\n")
        await stage.clock.advance(MINUTE, step=timedelta(seconds=1))
        assert words(stage) == []
        await stage.clock.advance(2 * MINUTE, step=timedelta(seconds=1))
        assert words(stage) == ["alert daily broken"]
        put(f"{stage.root}/routines/daily.yaml", good + b"# mended\n")
        await stage.clock.advance(2 * MINUTE, step=timedelta(seconds=1))

    assert words(stage) == ["alert daily broken", "recovery daily broken"]
    (alert,) = [one for one in stage.events if one.name == "alert"]
    assert "unknown key 'promt'" in alert.data["text"]


# Nothing in memory -------------------------------------------------------------------------------


async def test_two_engines_tell_once(stage, agent, tmp_path):
    out = to_file(f"{tmp_path}/alerts/")
    hourly = routine(schedule=every(60), alert=(out,))
    async with stage.running(hourly, agent=agent), stage.running(hourly, agent=agent):
        await stage.clock.advance(2 * HOUR, step=15 * MINUTE)
        agent.fails = False
        await stage.clock.advance(2 * HOUR, step=15 * MINUTE)

    assert words(stage) == ["alert digest failing", "recovery digest failing"]
    assert [name.split(".")[1] for name in sorted(os.listdir(tmp_path / "alerts"))] == [
        "alert",
        "recovery",
    ]


async def test_what_failed_while_nobody_looked_is_told_at_the_next_start(stage, agent):
    hourly = routine(schedule=every(60))
    engine = stage.engine(hourly, agent=agent)
    await engine.start()
    engine._alerter.look = lambda *_, **__: []
    await stage.clock.advance(HOUR)
    await stage.crash(engine)
    assert words(stage) == []
    async with stage.running(hourly, agent=agent):
        await stage.clock.advance(MINUTE)

    assert words(stage) == ["alert digest failing"]


async def test_alert_whose_sender_died_is_sent_by_the_next(stage, agent, tmp_path):
    hourly = routine(schedule=every(60), alert=(to_file(f"{tmp_path}/alerts/"),))
    engine = stage.engine(hourly, agent=agent)
    await engine.start()
    engine._alerter.send = lambda telling: None
    await stage.clock.advance(HOUR)
    await stage.crash(engine)
    assert told(stage).sending_at is not None
    async with stage.running(hourly, agent=agent):
        await stage.clock.advance(MINUTE)
        assert not os.path.exists(tmp_path / "alerts")
        await stage.clock.advance(5 * MINUTE)

    assert len(os.listdir(tmp_path / "alerts")) == 1
    assert (told(stage).unsent, told(stage).sending_at) == ((), None)


async def test_slot_that_an_outside_clock_delivers_is_told_too(stage, agent):
    async with stage.engine(routine(schedule=every(60)), agent=agent).opened() as engine:
        await stage.clock.advance(HOUR)
        await engine.fire("digest", at("09:00"))

    assert words(stage) == ["alert digest failing"]


# Targets -----------------------------------------------------------------------------------------


async def test_target_that_refuses_is_tried_again_and_the_loop_goes_on(stage, agent, tmp_path):
    script = (
        "import os, sys\n"
        "if not os.path.exists('up'): sys.exit('no network')\n"
        "open('got', 'a').write(os.environ['ROUTINES_DELIVERY'] + ' ' + sys.stdin.read())"
    )
    hourly = routine(schedule=every(60), alert=(to_command(sys.executable, "-c", script),))
    async with stage.running(hourly, agent=agent):
        await stage.clock.advance(HOUR)
        assert told(stage).results[0]["detail"] == "exit 1: no network"
        put(f"{tmp_path}/up")
        await stage.clock.advance(10 * MINUTE)

    assert words(stage) == ["alert digest failing"]
    got = content(tmp_path / "got").decode()
    assert got.startswith("alert failed Mon 01 Jun 2026 09:00 +00:00: agent: exit 1: Not logged in")
    assert got.count("alert ") == 1


async def test_target_that_hangs_delays_no_slot_and_no_stop(stage, agent, monkeypatch):
    def hang(targets, message, *, stop_requested, **_):
        while stop_requested() is None:
            time.sleep(0.01)
        return [Delivered(one.label, ok=False) for one in targets]

    monkeypatch.setattr("routines.engine.alerting.deliver", hang)
    hourly = routine(schedule=every(60), alert=(DESKTOP,))
    async with stage.running(hourly, agent=agent) as engine:
        for slots in (1, 2):
            stage.clock.move(HOUR)

            def settled(slots=slots):
                # A second a look: the engine may have been in a pass when the hour went by.
                stage.clock.move(SECOND)
                return len([r for r in stage.records() if r.end]) == slots

            await eventually(settled)
        await eventually(lambda: engine._sending)
        await asyncio.wait_for(engine.stop(grace=timedelta(0)), 10)

    assert stage.history() == ["09:00 failed agent", "10:00 failed agent"]
    # It was not told: whoever starts next sends it.
    assert told(stage).sending_at is not None


async def test_fault_of_the_alerts_ends_no_pass(stage, agent, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(AlertStore, "peek", broken)
    async with stage.running(routine(schedule=every(60)), agent=agent):
        await stage.clock.advance(2 * HOUR)

    assert stage.history() == ["09:00 failed agent", "10:00 failed agent"]


async def test_looks_that_find_nothing_to_tell_write_nothing(stage):
    async with stage.running(routine(schedule=every(60))):
        await stage.clock.advance(3 * HOUR)

    assert "alerts" not in os.listdir(stage.path)
