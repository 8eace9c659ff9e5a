"""What becomes of a conversation, for each preset, with a program that behaves like the real one.

The programs are stand-ins (tests/standin/programs.py), started as the real ones are: with the
words of the preset, in a turn process, killed by real signals.
"""

import json
import os
import signal
import stat
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from routines.config.presets import preset_spec
from routines.domain.agent import PRESETS
from routines.engine.clock import SystemClock
from routines.store.sessions import Lease, native_path
from tests.engine.stage import Stage, eventually
from tests.engine.test_turn_processes import digest, turn_pid

EACH = pytest.mark.parametrize("name", PRESETS)
REPOSITORY = Path(__file__).parents[2]
PROGRAMS = {name: preset_spec(name).program for name in PRESETS}
# Of llm a turn that was not answered leaves nothing behind, of the others the prompt.
FORGETS = {"llm"}
# In their first lines, long before the answer.
SAY_THEIR_ID = {"codex", "qwen", "opencode", "pi"}


class World:
    """A workspace whose agent is one of the stand-ins."""

    def __init__(self, path, name):
        self.name, self.home, self.bin = name, path / "home", path / "bin"
        self.stage = Stage(path)
        self.stage.clock = SystemClock()
        self.home.mkdir()
        self.bin.mkdir()
        for program in set(PROGRAMS.values()):
            script = self.bin / program
            script.write_text(
                f'#!/bin/sh\nexec {sys.executable} -sm tests.standin.programs {program} "$@"\n'
            )
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def routine(self, name="digest", **changes):
        env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "STANDIN_HOME": str(self.home),
            "PYTHONPATH": str(REPOSITORY),
        }
        known = {"name": name, "agent": self.name, "env": tuple(env.items())}
        return digest(**known | changes)

    def running(self, *routines):
        agents = {name: preset_spec(name) for name in PRESETS}
        return self.stage.running(*(routines or [self.routine()]), agents=agents, agent=None)

    async def run(self, *prompts, routine=None):
        """One turn for each prompt; returns their records."""
        records = []
        for prompt in prompts:
            changed = replace(routine or self.routine(), prompt=prompt)
            async with self.running(changed) as engine:
                records.append(await engine.run(changed.name))
        return records

    async def killed(self, prompt, order="hang", number=signal.SIGKILL):
        """A turn whose program, and whose turn process, is killed on its way."""
        self.do(order)
        async with self.running(self.routine(prompt=prompt)) as engine:
            running = await engine.begin_run("digest")
            await eventually((self.home / "hanging").exists)
            (self.home / "hanging").unlink()
            if order == "hang" and self.name in SAY_THEIR_ID:
                await eventually(lambda: self.ledger().native_session)
            record = self.stage.record(running.ref)
            os.kill(turn_pid(record), number)
            return await running.done

    def do(self, order):
        (self.home / "do").write_text(order)

    def forget(self):
        """Delete every conversation, as a person or the program itself may."""
        for file in (self.home / self.name_of_program).glob("*"):
            file.unlink()
        ledger = self.ledger()
        for epoch in range(1, ledger.epoch + 1):
            path = Path(native_path(self.stage.state, ledger.session, epoch))
            path.unlink(missing_ok=True)

    @property
    def name_of_program(self):
        return PROGRAMS[self.name]

    def ledger(self, session="routine:digest"):
        return self.stage.sessions.peek(session)

    def asked(self):
        """The words of each turn."""
        lines = (self.home / "asked").read_text().splitlines()
        return [words for line in lines if "--version" not in (words := json.loads(line))]


@pytest.fixture
def world(tmp_path, name):
    return World(tmp_path, name)


def ends(records):
    return [f"{record.outcome} {record.reason or ''}".strip() for record in records]


def reply(record):
    return record.end["reply"]


# Going on ------------------------------------------------------------------------------------------


@EACH
async def test_turns_continue_one_conversation_and_each_says_what_it_cost(world, name):
    records = await world.run("one", "two", "three")

    assert ends(records) == ["completed"] * 3
    assert [reply(record) for record in records] == ["one", "one | two", "one | two | three"]
    assert [record.started["epoch"] for record in records] == [1, 1, 1]
    tokens = [record.end["usage"].get("tokens") for record in records]
    # codex reports what its thread has cost, opencode each of two answers of the model.
    special = {"codex": [15, 10, 10], "opencode": [30] * 3, "llm": [1015] * 3}
    assert tokens == special.get(name, [15] * 3)
    cost = [record.end["usage"].get("usd") for record in records]
    assert cost == [0.14 if preset_spec(name).tells_cost else None] * 3
    assert [record.end["warnings"] for record in records] == (
        [["denied: shell"]] * 3 if name == "qwen" else [[]] * 3
    )


@EACH
async def test_the_record_says_which_version_answered_and_it_is_asked_once(world, name):
    records = await world.run("one", "two")

    version = {record.started["agent_version"] for record in records}
    assert len(version) == 1
    assert version.pop().startswith(f"{world.name_of_program} ")
    asked = (world.home / "asked").read_text()
    assert asked.count("--version") == 1


@EACH
async def test_failure_that_the_program_declares_is_told_in_its_words(world, name):
    await world.run("one")
    world.do("fail no credit left")
    record, after = await world.run("two", "three")

    assert record.outcome == "failed"
    assert "no credit left" in record.end["detail"]
    # What it kept of the failed turn is its own affair: the conversation goes on.
    assert after.outcome == "completed"
    assert reply(after) == ("one | three" if name in FORGETS else "one | two | three")
    assert after.started["epoch"] == 1


# A first turn that was cut short ---------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("order", ["hang", "hang-early"])
async def test_a_killed_first_turn_never_keeps_the_next_one_from_its_conversation(
    world, name, order
):
    killed = await world.killed("one", order)
    record, after = await world.run("two", "three")

    assert ends([killed]) == ["interrupted owner-died"]
    assert ends([record, after]) == ["completed"] * 2
    # What had been kept is gone on with; else a new conversation begins, and the ledger says why.
    kept = order == "hang" and name not in FORGETS
    assert reply(record) == ("one | two" if kept else "two")
    assert reply(after) == f"{reply(record)} | three"
    anew = record.started["epoch"] > 1
    assert anew == bool(world.ledger().epoch_reason)
    assert anew == (not kept and name not in {"pi", "llm"})


async def _killed_first_turn_of(tmp_path, name, order):
    world = World(tmp_path, name)
    await world.killed("one", order)
    await world.run("two")
    return world


async def test_claude_resumes_a_killed_first_turn_by_the_id_that_it_was_given(tmp_path):
    world = await _killed_first_turn_of(tmp_path, "claude-code", "hang")
    first, later = world.asked()

    assert first[first.index("--session-id") + 1] == later[later.index("--resume") + 1]
    assert (world.ledger().epoch, world.ledger().minted_by) == (1, "us")


async def test_gemini_needs_a_new_epoch_where_its_id_is_taken_and_yet_unknown(tmp_path):
    world = await _killed_first_turn_of(tmp_path, "gemini", "hang-early")
    first, resumed, anew = world.asked()

    assert first[first.index("--session-id") + 1] == resumed[resumed.index("--resume") + 1]
    assert anew[anew.index("--session-id") + 1] != first[first.index("--session-id") + 1]
    assert world.ledger().epoch == 2
    assert "Invalid session identifier" in world.ledger().epoch_reason


async def test_codex_is_resumed_by_the_id_of_its_first_line(tmp_path):
    world = await _killed_first_turn_of(tmp_path, "codex", "hang")

    assert (world.ledger().epoch, world.ledger().minted_by) == (1, "program")
    assert world.asked()[1][-2:] == [world.ledger().native_session, "-"]


async def test_opencode_that_never_said_its_id_begins_anew(tmp_path):
    world = await _killed_first_turn_of(tmp_path, "opencode", "hang-early")

    assert world.ledger().epoch_reason == "the first turn of epoch 1 did not finish"


@EACH
async def test_a_later_turn_that_was_killed_leaves_the_conversation_whole(world, name):
    await world.run("one")
    killed = await world.killed("two")
    (record,) = await world.run("three")

    assert ends([killed, record]) == ["interrupted owner-died", "completed"]
    assert reply(record) == ("one | three" if name in FORGETS else "one | two | three")
    assert record.started["epoch"] == 1


# A conversation that is gone, or another one ---------------------------------------------------------


@EACH
async def test_a_conversation_that_is_gone_begins_anew_in_the_turn_that_finds_it_so(world, name):
    await world.run("one", "two")
    world.forget()
    record, after = await world.run("three", "four")

    assert ends([record, after]) == ["completed"] * 2
    assert [reply(record), reply(after)] == ["three", "three | four"]
    assert [one.started["epoch"] for one in (record, after)] == [2, 2]
    assert world.ledger().epoch_reason.startswith(f"{name} no longer has the conversation: ")
    # The record tells it as it was: begun, not started, begun anew.
    assert [line["event"] for line in record.events] == [
        "started",
        "not-started",
        "started",
        "outcome",
    ]
    assert record.events[1]["reason"] == "session-lost"
    assert record.started["epoch_reason"] == world.ledger().epoch_reason
    # And the new conversation is counted from nothing.
    assert record.end["usage"].get("usd") in (0.14, None)


@EACH
async def test_a_conversation_is_lost_once_a_turn_and_then_it_is_a_failure(world, name):
    # A first turn can't find its conversation gone: whatever the program says, it has failed.
    spec = preset_spec(name)
    sign = (spec.lost.stderr or ("no such sign",))[0]
    script = world.bin / world.name_of_program
    script.write_text(f"#!/bin/sh\necho '{sign}' >&2\nexit 42\n")
    records = await world.run("one", "two")

    assert ends(records) == ["failed exit"] * 2


@pytest.mark.parametrize("name", ["claude-code", "gemini"])
async def test_an_answer_from_another_conversation_is_a_failure_and_not_adopted(world, name):
    await world.run("one")
    ours = world.ledger().native_session
    (world.home / world.name_of_program / "other").write_text('"theirs"\n')
    world.do("answer-as other")
    record, after = await world.run("two", "three")

    assert ends([record, after]) == ["failed session-changed", "completed"]
    assert record.end["detail"] == f"asked for session {ours}, and it answered in other"
    assert world.ledger().native_session == ours
    assert reply(after) == "one | two | three"


@pytest.mark.parametrize("name", ["pi"])
async def test_another_conversation_in_the_file_that_we_named_is_noticed_too(world, name):
    await world.run("one")
    world.do("answer-as other")
    (record,) = await world.run("two")

    assert ends([record]) == ["failed session-changed"]


@pytest.mark.parametrize("name", ["claude-code"])
async def test_a_program_that_declares_continuations_is_followed(world, name, tmp_path):
    continuing = replace(preset_spec(name), continuations=True)
    (world.home / "claude").mkdir()
    (world.home / "claude" / "later").write_text('"summary"\n')
    async with world.stage.running(
        world.routine(), agents={name: continuing}, agent=None
    ) as engine:
        await engine.run("digest")
        world.do("answer-as later")
        record = await engine.run("digest")
        after = await engine.run("digest")

    assert ends([record, after]) == ["completed"] * 2
    assert record.started["native_session"] != "later"
    assert (record.end["native_session"], after.started["native_session"]) == ("later", "later")
    assert world.ledger().epoch == 1


# New epochs for other reasons --------------------------------------------------------------------------


@EACH
async def test_a_reset_by_hand_begins_a_conversation_without_the_old_one(world, name):
    await world.run("one")
    lease = world.stage.sessions.take("routine:digest", clock=world.stage.clock)
    assert isinstance(lease, Lease)
    lease.write(lease.ledger.new_epoch("reset by ana@studio", agent=name))
    lease.let_go()
    (record,) = await world.run("two")

    assert reply(record) == "two"
    assert (record.started["epoch"], record.started["epoch_reason"]) == (2, "reset by ana@studio")


@EACH
async def test_after_session_turns_a_conversation_begins_without_the_old_one(world, name):
    records = await world.run("one", "two", "three", routine=world.routine(session_turns=2))

    assert [reply(record) for record in records] == ["one", "one | two", "three"]
    assert records[2].started["epoch_reason"] == "it had 2 turns, and session_turns is 2"


@EACH
async def test_a_changed_agent_begins_a_conversation_of_its_own(world, name):
    other = "codex" if name == "claude-code" else "claude-code"
    await world.run("one")
    (record,) = await world.run("two", routine=world.routine(agent=other))
    (back,) = await world.run("three")

    assert [reply(record), reply(back)] == ["two", "three"]
    assert record.started["epoch_reason"] == f"the agent changed from {name} to {other}"
    assert back.started["epoch"] == 3


@pytest.mark.parametrize("name", ["opencode"])
async def test_one_conversation_of_a_program_belongs_to_one_session(world, name):
    await world.run("one")
    native = world.ledger().native_session
    # As a program that resumes "the latest" would, whoever asks.
    spec = preset_spec(name)
    latest = replace(spec, first=(*spec.first, "--session", native))
    other = world.routine("other", prompt="mine now")
    async with world.stage.running(other, agents={name: latest}, agent=None) as engine:
        record = await engine.run("other")
    (after,) = await world.run("two")

    assert ends([record, after]) == ["failed session-changed", "completed"]
    assert record.end["detail"] == (
        f"it answered in {native}, which is the conversation of routine:digest"
    )
    assert world.ledger("routine:other").native_session is None
    assert world.ledger().native_session == native


@pytest.mark.parametrize("name", ["opencode"])
async def test_a_turn_that_lands_in_the_conversation_of_another_session_is_ended_at_once(
    world, name
):
    await world.run("one")
    spec = preset_spec(name)
    latest = replace(spec, first=(*spec.first, "--session", world.ledger().native_session))
    world.do("hang")
    other = world.routine("other", prompt="mine now")
    async with world.stage.running(other, agents={name: latest}, agent=None) as engine:
        # It would hang for an hour, and is given half of one.
        record = await engine.run("other")

    assert ends([record]) == ["failed session-changed"]


# Two at once -------------------------------------------------------------------------------------------


@EACH
async def test_a_second_turn_at_once_is_refused_by_our_lease(world, name):
    from routines.errors import SessionBusyError

    world.do("hang")
    async with world.running() as engine:
        await engine.begin_run("digest")
        await eventually((world.home / "hanging").exists)
        with pytest.raises(SessionBusyError):
            await engine.run("digest")
        await engine.stop(grace=timedelta(0))

    assert len(world.asked()) == 1


@pytest.mark.parametrize("name", ["codex"])
async def test_a_person_in_the_same_conversation_is_busy_and_nothing_was_done(world, name):
    import fcntl

    await world.run("one")
    path = world.home / "codex" / world.ledger().native_session
    with path.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        (busy,) = await world.run("two")
    (after,) = await world.run("three")

    assert ends([busy, after]) == ["failed not-started", "completed"]
    assert "already has an active writer" in busy.end["detail"]
    assert reply(after) == "one | three"
