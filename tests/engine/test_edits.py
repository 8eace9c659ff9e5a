"""Edits under a live scheduler: the file decides, at each step (PROMISES L5, L16, BR-36)."""

import asyncio
import os

import pytest

from routines.agents.base import AgentUnavailable
from routines.config.workspace import find_root
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy
from routines.engine.definitions import HOST_AGENT, AgentChoice, FileDefinitions
from routines.testing import RecordingAgent
from tests.config.conftest import Folder
from tests.engine.stage import HOUR, MINUTE, SECOND, at, eventually, every, routine


class HostDefinitions(FileDefinitions):
    """Files, with an agent of the host: what is tested is the files."""

    def agent(self, name):
        return AgentChoice(HOST_AGENT, None)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def live(folder):
    root = find_root(explicit=folder.path, environ={}, cwd=folder.path)
    return HostDefinitions(root, live=True)


def digest(schedule="'*/5 * * * *'", prompt="write the digest", **more):
    lines = [f"cron: {schedule}", f"prompt: {prompt}", *(f"{k}: {v}" for k, v in more.items())]
    return "\n".join(lines) + "\n"


async def settled(stage):
    """Long enough for an edit to be seen: two looks."""
    await stage.clock.advance(3 * SECOND, step=SECOND)


async def test_edited_prompt_runs_at_the_next_slot_without_a_restart(stage, folder):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:05"))
        folder.routine("digest", digest(prompt="another"))
        await stage.clock.advance_to(at("08:10"))

    assert stage.told == ["write the digest", "another"]


async def test_new_file_is_armed_within_seconds_and_owes_nothing_from_before(stage, folder):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:06"))
        folder.routine("second", digest(prompt="second"))
        await settled(stage)
        assert stage.cursors.read("second") is not None
        await stage.clock.advance_to(at("08:10"))

    assert stage.history("second") == ["08:10 completed"]


async def test_broken_file_keeps_running_in_its_last_good_version(stage, folder):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:05"))
        folder.routine("digest", "cron: [")
        await stage.clock.advance_to(at("08:15"))

    assert stage.told == ["write the digest"] * 3


TWO = "tz: UTC\nagent: echo\nagents:\n  two:\n    command: [cat]\n"


@pytest.mark.parametrize("entry", ["three", None])
async def test_routine_whose_agent_is_renamed_or_removed_goes_on_with_the_one_it_had(
    stage, folder, caplog, entry
):
    folder.write("routines.yaml", TWO)
    folder.routine("digest", digest(agent="two"))
    root = find_root(explicit=folder.path, environ={}, cwd=folder.path)
    async with stage.running(routines=FileDefinitions(root, live=True)) as engine:
        await stage.clock.advance_to(at("08:05"))
        await eventually(lambda: stage.history() == ["08:05 completed"])
        left = TWO.replace("two", entry) if entry else "tz: UTC\nagent: echo\n"
        folder.write("routines.yaml", left)
        await stage.clock.advance_to(at("08:10"))
        await eventually(lambda: stage.history() == ["08:05 completed", "08:10 completed"])
        assert "no agent is called that" in engine._definitions.faults["digest"]

    assert [record.claim["agent"] for record in stage.records()] == ["two", "two"]
    assert "decide-failed" not in caplog.text


async def test_file_that_is_broken_at_boot_is_not_armed_and_that_time_is_one_record(stage, folder):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:06"))
    folder.routine("digest", "cron: [")
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:22"))
        folder.routine("digest", digest())
        await stage.clock.advance_to(at("08:25"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:20 missed not-armed x3",
        "08:25 completed",
    ]
    (told,) = [one for one in stage.events if one.name == "missed"]
    assert told.data == {
        "from": f"{at('08:10')}",
        "to": f"{at('08:20')}",
        "count": 3,
        "reason": "not-armed",
    }


async def test_removed_file_stops_new_claims_and_its_time_away_is_one_record(stage, folder):
    path = folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:06"))
        os.unlink(path)
        await stage.clock.advance_to(at("08:22"))
        folder.routine("digest", digest())
        await stage.clock.advance_to(at("08:25"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:20 missed not-armed x3",
        "08:25 completed",
    ]


async def test_disabled_in_the_second_before_its_slot_does_not_run(stage, folder):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:04:59"))
        folder.routine("digest", digest(enabled="false"))
        await stage.clock.advance_to(at("08:20"))

    assert stage.agent.turns == []


async def test_time_that_it_was_disabled_is_told_when_it_is_enabled_again(stage, folder, caplog):
    caplog.set_level("WARNING", "routines")
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        folder.routine("digest", digest(enabled="false"))
        await stage.clock.advance_to(at("08:22"))
        folder.routine("digest", digest())
        await stage.clock.advance_to(at("08:24"))

    (line,) = [one for one in caplog.records if one.getMessage() == "missed"]
    assert (line.levelname, line.ref, line.reason, line.count) == (
        "WARNING",
        "digest",
        "disabled",
        4,
    )


async def test_broken_settings_are_told_and_everything_stays_armed(stage, folder, caplog):
    folder.routine("digest", digest())
    async with stage.running(routines=live(folder)):
        folder.write("routines.yaml", "agent: [")
        await stage.clock.advance_to(at("08:06"))

    (line,) = [one for one in caplog.records if one.getMessage() == "file-broken"]
    assert (line.routine, line.still_armed) == (None, True)
    assert stage.history() == ["08:05 completed"]


async def test_zone_edit_under_a_live_scheduler_neither_moves_nor_swallows_slots(stage, folder):
    folder.routine("digest", digest("'0 12 * * *'", tz="UTC"))
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("09:00"))
        # 12:00 in Berlin is 10:00 UTC.
        folder.routine("digest", digest("'0 12 * * *'", tz="Europe/Berlin"))
        await stage.clock.advance_to(at("13:00"))

    assert stage.history() == ["10:00 completed"]


# After the claim -----------------------------------------------------------------------------------


async def edited_between_claim_and_start(stage, folder, content, monkeypatch):
    """Edit the file after the claim of 08:05 and before its turn is begun."""
    from routines.engine.turns import TurnSteps

    begin = TurnSteps.begin

    def editing(self, work):
        if content is None:
            os.unlink(folder.file("routines/digest.yaml"))
        else:
            folder.routine("digest", content)
        return begin(self, work)

    folder.routine("digest", digest())
    monkeypatch.setattr(TurnSteps, "begin", editing)
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:05"))
    monkeypatch.undo()
    return stage.records()[0]


async def test_prompt_edited_after_the_claim_runs_and_its_digest_is_in_started(
    stage, folder, monkeypatch
):
    record = await edited_between_claim_and_start(
        stage, folder, digest(prompt="another"), monkeypatch
    )

    assert stage.told == ["another"]
    assert record.outcome == "completed"
    assert record.started["definition"] != record.claim["definition"]
    assert record.started["prompt"] == "another"


async def test_slot_that_the_edited_schedule_does_not_name_is_skipped_edited(
    stage, folder, monkeypatch
):
    record = await edited_between_claim_and_start(stage, folder, digest("'0 9 * * *'"), monkeypatch)

    assert (record.outcome, record.reason) == ("skipped", "edited")
    assert stage.agent.turns == []


async def test_routine_disabled_after_the_claim_is_skipped_edited(stage, folder, monkeypatch):
    record = await edited_between_claim_and_start(
        stage, folder, digest(enabled="false"), monkeypatch
    )

    assert (record.outcome, record.reason) == ("skipped", "edited")
    assert stage.agent.turns == []


@pytest.mark.parametrize("content", ["cron: [", None], ids=["broken", "gone"])
async def test_file_broken_or_gone_after_the_claim_counts_as_unchanged(
    stage, folder, content, monkeypatch
):
    record = await edited_between_claim_and_start(stage, folder, content, monkeypatch)

    assert record.outcome == "completed"
    assert stage.told == ["write the digest"]


async def test_claim_that_waited_runs_by_the_definition_of_the_day(stage, folder, monkeypatch):
    from routines.store.sessions import SessionStore

    folder.routine("digest", digest("'0 9 * * *'"))
    async with stage.running(routines=live(folder)) as engine:
        async with engine.hold("routine:digest"):
            monkeypatch.setattr(SessionStore, "is_busy", lambda *_: None)
            await stage.clock.advance_to(at("09:01"))
            monkeypatch.undo()
            folder.routine("digest", digest("'0 9 * * *'", prompt="another"))
            await settled(stage)
        await settled(stage)

    assert stage.told == ["another"]
    assert stage.history() == ["09:00 completed"]


async def test_limits_of_a_slot_that_waits_are_those_of_the_file_now(stage, folder):
    folder.routine("digest", digest("'0 9 * * *'"))
    async with stage.running(routines=live(folder)) as engine:
        async with engine.hold("routine:digest"):
            await stage.clock.advance_to(at("09:10"))
            folder.routine("digest", digest("'0 9 * * *'", start_within="5m"))
            await settled(stage)
        await stage.clock.advance_to(at("09:20"))

    assert stage.history() == ["09:00-09:00 missed too-late x1"]


async def test_other_routines_run_beside_a_broken_one(stage, folder):
    folder.routine("digest", digest())
    folder.routine("broken", "cron: [")
    async with stage.running(routines=live(folder)):
        await stage.clock.advance_to(at("08:10"))

    assert stage.history() == ["08:05 completed", "08:10 completed"]


async def test_replaced_routines_count_from_the_next_look(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        engine.replace([routine(schedule=every(5), prompt="another")])
        await asyncio.sleep(0)
        await stage.clock.advance(5 * MINUTE)
        assert stage.told == ["another"]
        assert stage.agent.turns[0].late < HOUR


@pytest.mark.parametrize("catch_up", list(CatchUpPolicy))
async def test_slots_of_a_routine_that_no_agent_can_answer_fail_not_found_each_once(
    stage, catch_up
):
    one = routine(schedule=every(5), catch_up=catch_up, agent="nobody")
    async with stage.running(one):
        await stage.clock.advance_to(at("08:11"))

    assert stage.history() == ["08:05 failed not-found", "08:10 failed not-found"]
    assert stage.records()[0].end["detail"] == "there is no agent named 'nobody'"


async def test_slot_that_waits_to_be_tried_again_fails_not_found_once_its_agent_is_gone(stage):
    def never(turn):
        raise AgentUnavailable("not now")

    stage.agent = RecordingAgent(never)
    again = Retry(attempts=10, first=MINUTE, most=15 * MINUTE)
    async with stage.running(routine(schedule=every(60), retry=again)) as engine:
        await stage.clock.advance_to(at("09:00"))
        engine.replace([routine(schedule=every(60), retry=again, agent="nobody")])
        await stage.clock.advance_to(at("09:59"))

    assert stage.history() == ["09:00 failed not-found"]
