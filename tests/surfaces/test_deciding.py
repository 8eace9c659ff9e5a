"""`next --decide`: what each slot would meet from today's state, asked of the policies."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest

from tests.surfaces.world import NOW, World, berlin

MINUTE = timedelta(minutes=1)


def decisions(ws: World, name: str, *words: str) -> list[str]:
    found = json.loads(ws.ask("next", name, "--decide", "--json", *words).out)
    return [one["decision"] for one in found]


def first(ws: World, name: str) -> str:
    return decisions(ws, name, "-n", "1")[0]


@pytest.fixture
def quarterly(ws: World) -> World:
    """A routine each quarter of an hour; at 16:18 the turn of 16:15 still runs."""
    ws.scheduler()
    ws.cron("poll", "*/15 * * * *", "timeout: 30m\n")
    ws.started(ws.claim("poll", berlin("16:15")))
    return ws


def test_with_nothing_in_the_way_it_starts(ws):
    ws.scheduler()
    ws.cron("daily", "0 9 * * *")

    assert decisions(ws, "daily", "-n", "2") == ["start", "start"]


def test_where_slots_come_from_outside_none_starts_by_itself(ws):
    ws.scheduler(external_clock=True)
    ws.cron("daily", "0 9 * * *")

    assert first(ws, "daily") == "starts once fire or tick brings it: slots come from outside"


def test_without_a_scheduler_it_would_be_owed(ws):
    ws.cron("daily", "0 9 * * *")

    assert first(ws, "daily") == "owed: no scheduler is alive"


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        ("skip", "skipped: overlap, if {ref} still runs then"),
        ("buffer-one", "buffered, if {ref} still runs then"),
        ("supersede", "supersedes {ref}, if that still runs then"),
    ],
)
def test_a_turn_of_its_own_that_runs_is_met_as_the_policy_says(quarterly, policy, decision):
    quarterly.routine("poll", f'cron: "*/15 * * * *"\ntimeout: 30m\noverlap: {policy}\n')

    found = decisions(quarterly, "poll", "-n", "4")

    met = decision.format(ref="poll@2026-11-29T15:15:00Z")
    # By 17:00 its limit has passed, whatever it does.
    assert found == [met, met, "start", "start"]


def test_a_full_house_makes_it_wait(quarterly):
    quarterly.settings("tz: Europe/Berlin\nagent: echo\nconcurrency: 1\n")
    quarterly.cron("other", "30 16 * * *")

    assert first(quarterly, "other") == ("waits if all places are still taken then (concurrency 1)")


def test_a_turn_of_its_group_makes_it_wait(quarterly):
    quarterly.routine("poll", 'cron: "*/15 * * * *"\nexclusive: db\n')
    quarterly.cron("other", "30 16 * * *", "exclusive: db\n")

    assert first(quarterly, "other") == (
        "waits if poll@2026-11-29T15:15:00Z of its group db still runs then"
    )


def test_a_person_in_its_session_makes_it_wait(ws):
    ws.scheduler()
    ws.cron("daily", "30 16 * * *")
    # Held by another process: what this one holds it would not call held.
    code = (
        "import sys\n"
        "from routines.store.sessions import SessionStore\n"
        "from routines.store.state import open_for_reading\n"
        "from routines.engine.clock import SystemClock\n"
        "state = open_for_reading(sys.argv[1])\n"
        "lease = SessionStore(state).take('routine:daily', clock=SystemClock())\n"
        "lease.stamp(None, held_by='ana@studio')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, ws.state.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert decisions(ws, "daily", "-n", "2") == [
            "waits if its session is busy: ana@studio still",
            "start",
        ]
    finally:
        holder.communicate()


def test_a_limit_that_is_reached_holds_for_the_rest_of_the_day(ws):
    ws.scheduler()
    ws.cron("hourly", "0 * * * *", "limits: {turns_per_day: 2}\n")
    for hour in ("14:00", "15:00"):
        ws.done("hourly", berlin(hour))

    found = decisions(ws, "hourly", "--from", "22:00", "-n", "3")

    over = "skipped: limit, 2 of 2 turns of this routine have started today"
    assert found == [over, over, "start"]


def test_a_pause_holds_until_its_end(ws):
    ws.scheduler()
    ws.cron("hourly", "0 * * * *")
    ws.ask("pause", "hourly", "--until", "18:30")

    found = decisions(ws, "hourly", "-n", "3")

    assert found[0].startswith("paused by ")
    assert found[0].endswith(" until Sun 29 Nov 2026 18:30 +01:00")
    assert found[2] == "start"
    # Without the question nothing of it is to come.
    assert "paused" in ws.ask("next", "hourly").out


def test_what_is_over_or_disabled_says_so(ws):
    ws.scheduler()
    ws.routine("once", 'at: "2026-11-01 09:00"\n')
    ws.cron("off", "0 9 * * *", "enabled: false\n")

    answer = ws.ask("next", "--decide", "-n", "1")

    assert "never claimed: it is disabled" in answer.out
    assert answer.out.endswith("  once: over: its schedule has nothing left to come\n")


def test_explain_of_what_is_ahead_says_the_same(quarterly):
    out = quarterly.ask("explain", "poll", "2026-11-29 16:30", width=200).out

    assert "skipped: overlap, if poll@2026-11-29T15:15:00Z still runs then." in out


def test_a_jitter_counts(quarterly):
    quarterly.routine("poll", 'cron: "*/15 * * * *"\ntimeout: 16m\njitter: 10m\n')

    # Due at the slot or up to ten minutes after it; the turn is over by 16:32.
    rows = json.loads(quarterly.ask("next", "poll", "-n", "1", "--decide", "--json").out)
    due = berlin("16:30") + timedelta(seconds=rows[0]["jitter_s"])
    ends = berlin("16:15") + 17 * MINUTE
    assert (rows[0]["decision"] == "start") == (due >= ends)
    assert due > NOW
