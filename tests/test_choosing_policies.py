"""Each row of "Choose your policies" is played, and its last column is what came of it."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from routines.agents.base import AgentUnavailable, TurnFailed
from routines.config.routine_file import parse_routine
from routines.config.workspace_file import WorkspaceSettings
from routines.testing import RecordingAgent
from tests.engine.stage import HOUR, MINUTE, SECOND, Stage, at, routine

PAGE = Path("docs/choosing-policies.md")
HOURLY = "cron: '0 9-12 * * *'\nprompt: write the digest\n"
DEFAULTS = {
    "catch_up: one",
    "overlap: skip",
    "retry: {attempts: 3}",
    "retry: {started: false}",
    "rerun_interrupted: 0",
}


def rows():
    """Yield heading, what is written and what the history shows, of each row."""
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and "`" in cells[1]:
            yield heading, cells[1].strip("`"), re.findall(r"`([^`]+)`", cells[2])


ROWS = list(rows())


def text_of(written):
    """The file that has the line, or lines, of a row."""
    if written.startswith("{"):
        return HOURLY + yaml.safe_dump(yaml.safe_load(written))
    if written.startswith("routines ") or written == "enabled: false":
        return HOURLY
    return f"{HOURLY}{written}\n"


def parsed(written, root="/ws"):
    return parse_routine(
        text_of(written).encode(),
        name="digest",
        path="routines/digest.yaml",
        root=root,
        settings=WorkspaceSettings(),
    )


@pytest.mark.parametrize("written", [written for _, written, _ in ROWS])
def test_what_is_to_be_written_is_accepted(written):
    found = parsed(written)

    assert found.problems == ()
    usual = parsed("").routine
    assert (found.routine.digest() == usual.digest()) is (
        written in DEFAULTS or written.startswith("routines ") or written == "enabled: false"
    )


# What happens to a routine, by heading -----------------------------------------------------------


async def was_off(stage, digest):
    stage.clock.set(at("08:00"))
    async with stage.running(digest):
        pass
    stage.clock.sleep_machine(4 * HOUR + 30 * MINUTE)
    async with stage.running(digest):
        await stage.clock.advance(10 * SECOND, step=SECOND)


async def still_runs(stage, digest):
    if digest.timeout == parsed("").routine.timeout:
        digest = replace(digest, timeout=5 * HOUR)
    async with stage.running(digest):
        stage.agent.hold()
        await stage.clock.advance_to(at("11:30"))
        stage.agent.release()
        await stage.clock.advance_to(at("12:01"))


async def in_the_way(stage, digest):
    other = routine("other", session=digest.session, exclusive=digest.exclusive)
    other = replace(other, schedule=None)
    async with stage.running(digest, other) as engine:
        stage.agent.hold("other")
        await stage.clock.advance_to(at("08:50"))
        running = asyncio.ensure_future(engine.run("other"))
        await stage.clock.advance_to(at("09:29"))
        assert len(engine.in_flight) == 1, "the slot waits"
        stage.agent.release()
        await running
        await stage.clock.advance_to(at("09:35"))


async def not_reached(stage, digest):
    def answer(_turn):
        if stage.clock.now() < at("09:02"):
            raise AgentUnavailable("connection refused")
        return "done"

    stage.agent = RecordingAgent(answer)
    async with stage.running(digest):
        await stage.clock.advance_to(at("09:30"))


async def failed_or_cut_short(stage, digest):
    if digest.rerun_interrupted or "interrupted" in stage.wanted:
        engine = stage.engine(digest)
        await engine.start()
        stage.agent.hold()
        await stage.clock.advance_to(at("09:01"))
        await stage.crash(engine)
        stage.agent.release()
    else:

        def answer(_turn):
            if len(stage.agent.turns) == 1:
                raise TurnFailed("not today")
            return "done"

        stage.agent = RecordingAgent(answer)
    async with stage.running(digest):
        await stage.clock.advance_to(at("09:30"))


async def may_take(stage, digest):
    async with stage.running(digest):
        await stage.clock.advance_to(at("11:01"))


async def steps_in(stage, digest):
    async with stage.running(digest) as engine:
        await stage.clock.advance_to(at("08:30"))
        if "paused" in stage.wanted:
            await engine.pause("digest", until=at("10:30"))
        if "disabled" in stage.wanted:
            engine.replace([replace(digest, enabled=False)])
            await stage.clock.advance_to(at("10:30"))
            engine.replace([digest])
        if "cancelled" in stage.wanted:
            stage.agent.hold()
            await stage.clock.advance_to(at("09:01"))
            stage.cancel("digest@2026-06-01T09:00:00Z")
            await stage.clock.advance(5 * SECOND, step=SECOND)
            stage.agent.release()
        await stage.clock.advance_to(at("11:01"))


SCENES = {
    "The machine was off, asleep, or nothing was running": was_off,
    "The turn before still runs": still_runs,
    "Something else is in the way": in_the_way,
    "The agent could not be reached": not_reached,
    "The turn failed, or was cut short": failed_or_cut_short,
    "What it may take, and whether it is worth it": may_take,
    "A person steps in": steps_in,
}


@pytest.mark.parametrize(
    ("heading", "written", "history"), ROWS, ids=[written for _, written, _ in ROWS]
)
def test_row_shows_what_comes_of_it(tmp_path, heading, written, history):
    stage = Stage(tmp_path)
    stage.wanted = " ".join(history)
    digest = replace(parsed(written, root=str(tmp_path)).routine, cwd=str(tmp_path))

    async def play():
        async with asyncio.timeout(120):
            await SCENES[heading](stage, digest)

    asyncio.run(play())

    assert [line for line in stage.history() if "manual" not in line] == history


def test_every_heading_is_played():
    assert {heading for heading, _, _ in ROWS} == SCENES.keys()
    assert len(ROWS) > 20


# What each reason says, and what to do ------------------------------------------------------------


def test_every_outcome_and_reason_has_its_line_in_troubleshooting():
    from routines.domain.outcome import REASONS

    text = Path("docs/troubleshooting.md").read_text()
    found = set(re.findall(r"^\| `([a-z-]+(?:: [a-z-]+)?)` \|", text, flags=re.MULTILINE))

    known = {
        f"{outcome}: {reason}" if reason else outcome.value
        for outcome, reasons in REASONS.items()
        for reason in reasons or [None]
    }
    assert known - {"completed"} == found
