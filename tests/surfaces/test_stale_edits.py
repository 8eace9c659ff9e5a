"""A routine that goes on in its last good version is seen wherever a person looks for it."""

import json
from datetime import timedelta

import pytest

from routines.config.workspace import find_root, load_workspace
from routines.domain.occurrence import Kind
from routines.engine.presence import Presence
from tests.builders import owner
from tests.surfaces.world import NOW, World, berlin

DAY = timedelta(days=1)


@pytest.fixture
def stale(ws: World):
    """`daily` is armed by a scheduler that lives, and its file was then edited into a wrong one."""
    ws.cron("daily", "0 9 * * *", "tags: [reports]\n")
    ws.cron("weekly", "0 9 * * 1", "tags: [reports]\n")
    ws.cron("other", "0 9 * * *")
    root = find_root(explicit=None, environ=ws.environ, cwd=str(ws.root))
    armed = load_workspace(root).routines
    ws.routine("daily", "promt: x\n")
    presence = Presence(ws.state, clock=ws.clock, owner=owner())
    presence.arm(armed.values(), faulty=set(load_workspace(root).broken))
    presence.beat(NOW, ())
    ws.presence = presence
    yield ws
    presence.leave("stopped")


def test_stale_edit_is_listed_with_its_schedule_its_next_slot_and_its_tags(stale):
    rows = {one["name"]: one for one in json.loads(stale.ask("list", "--json").out)["routines"]}
    assert rows["daily"]["state"] == "stale edit"
    assert rows["daily"]["schedule"] == "0 9 * * *"
    assert rows["daily"]["tz"] == "Europe/Berlin"
    assert rows["daily"]["next"] == "2026-11-30T08:00:00Z"

    shown = stale.ask("list", "--tag", "reports").out
    assert "daily" in shown
    assert "weekly" in shown
    assert "other" not in shown


def test_next_shows_what_a_stale_edit_goes_on_with_and_marks_it(stale):
    shown = stale.ask("next", "-n", "3")
    assert [one.split()[-1] for one in shown.out.splitlines()[1:4]] == ["daily", "other", "weekly"]
    assert "  daily: stale edit: it goes on in its last good version" in shown.out
    assert "daily: broken" not in shown.out

    alone = stale.ask("next", "daily", "-n", "1")
    assert alone.code == 0
    assert alone.out.startswith("daily  0 9 * * *")
    assert alone.out.splitlines()[-1].startswith("  stale edit: ")

    (one,) = json.loads(stale.ask("next", "daily", "-n", "1", "--json").out)
    assert (one["slot"], one["stale"]) == ("2026-11-30T08:00:00Z", True)


def test_next_with_decide_says_that_the_last_good_version_decides_or_a_pause(stale):
    (one,) = json.loads(stale.ask("next", "daily", "-n", "1", "--decide", "--json").out)
    assert one["decision"] == "what its last good version says: a stale edit"

    stale.ask("pause", "daily")
    (one,) = json.loads(stale.ask("next", "daily", "-n", "1", "--decide", "--json").out)
    assert one["decision"].startswith("paused by ")
    assert stale.ask("next", "daily").out.splitlines()[-1].startswith("  paused: ")


def test_explain_says_when_a_stale_edit_fires_next_and_by_what(stale):
    stale.done("daily", berlin("09:00"))

    shown = stale.ask("explain", "daily").out
    assert "Next: Mon 30 Nov 09:00" in shown
    assert "it goes on in its last good version: routines check" in shown
    # By hand the file is read, and it can't be.
    assert "routines run daily" not in shown

    ahead = json.loads(stale.ask("explain", "daily", "2026-12-01 09:00", "--json").out)
    assert ahead["why"].endswith("as things stand it would run, in its last good version")


def test_slot_of_a_stale_edit_that_has_just_passed_is_about_to_start(stale):
    stale.done("daily", berlin("09:00"))
    stale.clock.advance(hours=16, minutes=42)
    stale.presence.beat(stale.clock.now(), ())

    found = json.loads(stale.ask("explain", "daily", "--json").out)
    assert (found["at"], found["verdict"]) == ("2026-11-30T08:00:00Z", "waiting")


def test_tag_selects_a_stale_edit_for_a_pause_and_in_the_history(stale):
    stale.done("daily", berlin("09:00"))

    paused = json.loads(stale.ask("pause", "--tag", "reports", "--json").out)
    assert [one["routine"] for one in paused] == ["daily", "weekly"]
    rows = {one["name"]: one for one in json.loads(stale.ask("list", "--json").out)["routines"]}
    assert rows["daily"]["next"] is None
    told = json.loads(stale.ask("history", "--tag", "reports", "--json").out)
    assert [one["routine"] for one in told] == ["daily"]


def test_tag_selects_the_wake_ups_of_a_stale_edit_in_its_named_session(stale):
    stale.done("daily", berlin("09:00"), claim={"session": "named:shop"})
    fired = stale.claim(
        "named:shop",
        berlin("11:00"),
        kind=Kind.WAKE,
        occurrence_id="w-7k3m9q",
        trigger="wake-up",
        wakeup={"id": "w-7k3m9q", "created_by": "x"},
        session="named:shop",
        routine=None,
    )
    stale.end(stale.started(fired))

    words = ("history", "--tag", "reports", "--outcome", "completed", "--json")
    told = json.loads(stale.ask(*words).out)
    assert [one["trigger"] for one in told] == ["wake-up", "schedule"]


def test_broken_file_that_nothing_runs_any_more_is_still_refused(ws):
    ws.cron("daily", "0 9 * * *")
    ws.routine("daily", "promt: x\n")

    assert ws.ask("next", "daily").code == 1
    assert "daily: broken" in ws.ask("next").out


def test_what_goes_on_while_the_settings_are_broken_is_not_called_unarmed(stale):
    root = find_root(explicit=None, environ=stale.environ, cwd=str(stale.root))
    stale.settings("agent: [")
    out = stale.ask("list", width=400).out
    assert "Nothing is armed." not in out
    assert out.splitlines()[-1].endswith(". What was armed goes on in its last good version.")
    assert load_workspace(root).settings_problems
