"""Turns of agents that speak the Agent Client Protocol, from a routines.yaml to the record."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from routines.agents.process_table import leftovers
from routines.config.workspace_file import parse_settings
from routines.domain import schedule as schedules
from routines.engine.clock import SystemClock
from routines.operations.running import exit_code_of
from tests.engine.stage import MINUTE, Stage, content, eventually, routine

STUB = Path(__file__).parents[1] / "agents/acp_stub.py"


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    made.clock = SystemClock()
    return made


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "stub"
    made.mkdir()
    return made


@pytest.fixture
def agents(folder):
    """The entry of a stub that behaves as the words say."""

    def make(*words, more=""):
        command = json.dumps([sys.executable, "-Ss", str(STUB), str(folder), *words])
        settings, problems = parse_settings(
            f"agents:\n  stub:\n    acp: {command}\n{more}".encode(), root="/ws"
        )
        assert problems == ()
        return {"agents": settings.agents, "agent": None}

    return make


def digest(**changes):
    never = schedules.at("2099-01-01T00:00:00Z", "UTC")
    return routine(**{"agent": "stub", "schedule": never, "timeout": MINUTE} | changes)


async def run(stage, entry, **changes):
    async with stage.running(digest(**changes), **entry) as engine:
        return await engine.run("digest")


def said(record):
    return f"{record.outcome} {record.reason or ''}".strip()


def reply(stage, record):
    return content(stage.state.at("output", record.occurrence.place, "reply.md")).decode().strip()


def told(folder):
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


def ledger(stage):
    return stage.sessions.read("routine:digest")


async def test_conversation_lasts_over_turns(stage, agents):
    first = await run(stage, agents("load"), prompt="one")
    second = await run(stage, agents("load"), prompt="two")

    assert [said(first), said(second)] == ["completed", "completed"]
    assert reply(stage, second) == "turn 2: two"
    assert ledger(stage).epoch == 1
    assert ledger(stage).native_session == second.end["native_session"]
    assert second.end["usage"]["tokens"] == 15


async def test_agent_that_cannot_take_a_conversation_up_has_a_new_epoch_each_turn_and_says_so(
    stage, agents
):
    await run(stage, agents(), prompt="one")
    second = await run(stage, agents(), prompt="two")

    assert reply(stage, second) == "turn 1: two"
    assert ledger(stage).epoch == 2
    assert ledger(stage).epoch_reason == "stub can't take up a conversation again"


async def test_conversation_that_is_gone_begins_anew_in_the_same_turn(stage, agents, folder):
    await run(stage, agents("load"), prompt="one")
    for path in folder.glob("s-*.txt"):
        path.unlink()
    second = await run(stage, agents("load"), prompt="two")

    assert said(second) == "completed"
    assert reply(stage, second) == "turn 1: two"
    assert ledger(stage).epoch == 2
    assert "no longer has the conversation" in ledger(stage).epoch_reason


def prompts(folder):
    """The prompts that any of the programs was given, oldest first."""
    given = [one["params"] for one in told(folder) if one["method"] == "session/prompt"]
    return [(one["sessionId"], one["prompt"][0]["text"]) for one in given]


@pytest.mark.parametrize("words", [(), ("fails-at:session/prompt:-32603:session in use",)])
async def test_a_prompt_is_not_given_into_the_conversation_of_another_session(
    stage, agents, folder, words
):
    mine = agents("load", "same-id")
    await run(stage, mine, prompt="one")
    busy = agents("load", "same-id", *words, more="    busy: {error: [session in use]}\n")
    other = digest(name="other", prompt="two")
    async with stage.running(other, **busy) as engine:
        record = await engine.run("other")

    assert prompts(folder) == [("same", "one")]
    assert said(record) == "failed session-changed"
    assert record.end["detail"] == (
        "it answered in same, which is the conversation of routine:digest"
    )
    assert record.end.get("native_session") is None
    assert stage.sessions.read("routine:other").native_session is None
    assert ledger(stage).native_session == "same"
    # Not 75, which would say that it may be tried again.
    assert exit_code_of(record) == 1


async def test_first_turn_that_was_killed_is_taken_up_by_the_next(stage, agents, folder):
    async with stage.running(digest(prompt="stub: hang"), **agents("load")) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually((folder / "ready").exists)
        [record] = [r for r in stage.records("digest") if r.started]
        os.kill(record.started["owner"]["pid"], signal.SIGKILL)
        ended = await task
        assert said(ended) == "interrupted owner-died"
        assert leftovers(stage.path, stage.state.key(record.ref)) == []

    again = await run(stage, agents("load"), prompt="two")
    assert reply(stage, again) == "turn 2: two"
    assert ledger(stage).epoch == 1


async def test_cancelled_turn_is_told_so_and_leaves_nothing(stage, agents, folder):
    async with stage.running(digest(prompt="stub: child\nstub: wait"), **agents("load")) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually((folder / "ready").exists)
        [record] = [r for r in stage.records("digest") if r.started]
        stage.cancel(record.ref)
        ended = await task

    assert said(ended) == "cancelled person"
    assert told(folder)[-1]["method"] == "session/cancel"
    assert leftovers(stage.path, stage.state.key(record.ref)) == []


async def test_agent_that_ends_before_it_is_given_the_prompt_has_done_nothing(stage, agents):
    record = await run(stage, agents("dies-at:session/new"))

    assert said(record) == "failed not-started"
    assert "it ended during session/new, exit 3" in record.end["detail"]


async def test_agent_is_handed_the_wake_tools_and_its_alarm_is_its_sessions(stage, agents):
    pytest.importorskip("mcp")
    record = await run(stage, agents("load"), prompt="stub: mcp wake look again")

    assert said(record) == "completed"
    (one,) = stage.wakeups.pending("routine:digest")
    assert reply(stage, record).startswith(f"Set. {one.id} fires ")
    assert one.created_in_turn == stage.state.key(record.ref)


async def test_wake_tools_false_hands_nothing_over(stage, agents, folder):
    await run(stage, agents("load"), wake_tools=False)

    [new] = [message for message in told(folder) if message["method"] == "session/new"]
    assert new["params"]["mcpServers"] == []


async def test_refused_tools_are_a_warning_of_the_record(stage, agents):
    record = await run(stage, agents("load"), prompt="stub: ask execute rm -rf /")

    assert said(record) == "completed"
    assert record.end["warnings"] == ["denied: rm -rf /"]
