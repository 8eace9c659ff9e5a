"""The commands that act, through real turns: what they print and exit with."""

import json

import pytest

from tests.surfaces.world import World


@pytest.fixture
def echo(ws: World) -> World:
    ws.routine("daily", 'cron: "0 9 * * *"\nprompt: Say hello.\n')
    return ws


def test_run_prints_the_reply_and_exits_0(echo):
    answer = echo.ask("run", "daily", "--append", "And more.")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("Say hello.\n\nAnd more.\n")


def test_run_with_json_prints_the_record(echo):
    record = json.loads(echo.ask("run", "daily", "--json").out)

    assert (record["routine"], record["trigger"], record["outcome"]) == (
        "daily",
        "manual",
        "completed",
    )


def test_run_of_an_agent_that_fails_exits_1_and_says_why_on_stderr(ws):
    ws.settings(
        "tz: Europe/Berlin\nagent: no\nagents: {no: {command: [/bin/sh, -c, 'echo nope >&2; exit 3']}}\n"
    )
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    answer = ws.ask("run", "daily")

    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("failed after ")
    assert "exit 3: nope" in answer.err
    assert "routines show manual:" in answer.err


def test_run_of_a_broken_file_shows_its_first_problem(ws):
    ws.routine("bad", "promt: x\n")

    answer = ws.ask("run", "bad")

    assert answer.code == 1
    assert "routines/bad.yaml:1:1: unknown key 'promt'" in answer.err


def test_fire_of_an_instant_that_is_no_slot_is_refused(echo):
    answer = echo.ask("fire", "daily", "--slot", "2026-11-29T08:01:00Z")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("Error: ")


def test_tick_says_when_nothing_was_due(echo):
    assert echo.ask("tick").out == "nothing was due\n"
    assert json.loads(echo.ask("tick", "--json").out) == {}


def test_wake_answers_when_and_how_to_cancel(echo):
    answer = echo.ask("wake", "--in", "10m", "check the deploy")

    assert answer.code == 0
    assert "is due Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z)" in answer.out
    assert "no scheduler is alive on ~/agents" in answer.out


def test_a_refused_wake_keeps_its_lines(echo):
    answer = echo.ask("wake", "--in", "30s", "check the deploy")

    assert answer.code == 1
    assert 'in "30s" is too soon; the shortest is 1m. Nothing was scheduled.' in answer.err


def test_wakeups_are_cancelled_one_by_one_and_all_at_once(echo):
    echo.ask("wake", "--in", "10m", "one", "--session", "named:a")
    echo.ask("wake", "--in", "20m", "two", "--session", "named:a")
    echo.ask("wake", "--in", "30m", "three", "--session", "named:b")
    first = json.loads(echo.ask("wakeups", "--json").out)[0]["id"]

    assert echo.ask("wakeups", "cancel", first).code == 0
    assert len(json.loads(echo.ask("wakeups", "list", "--json").out)) == 2
    assert echo.ask("wakeups", "cancel", "--all").code == 0
    assert json.loads(echo.ask("wakeups", "--json").out) == []


def test_session_hold_gives_the_exit_code_of_its_command(echo):
    assert echo.ask("session", "hold", "daily", "--", "/bin/sh", "-c", "exit 7").code == 7


def test_session_reset_begins_a_new_epoch(echo):
    echo.ask("run", "daily")

    answer = echo.ask("session", "reset", "daily", "--reason", "too long")

    assert (answer.code, answer.out) == (0, "routine:daily begins anew: epoch 2\n")


def test_cancel_of_what_does_not_run_says_so(echo):
    echo.ask("run", "daily")

    answer = echo.ask("cancel", "daily")

    assert answer.code == 1
    assert answer.err.startswith("Error: nothing of daily runs or waits")


def test_prune_says_what_it_removed(echo):
    echo.ask("run", "daily")

    assert echo.ask("prune").out == "removed 0 records and 0 outputs, 0.0 MiB\n"
