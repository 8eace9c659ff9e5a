"""Slots that are ahead and were dealt with by a clock that was ahead (PROMISES L1, L6)."""

import json

import pytest

from tests.surfaces.world import World, berlin

NEVER = "never: it was dealt with already, by a clock that was ahead"


@pytest.fixture
def once(ws: World) -> World:
    """A one-shot of next Saturday that has run under a clock that was ahead."""
    ws.routine("once", 'at: "2026-12-05 10:00"\n')
    ws.seen("once", {"at": "2026-12-05T09:00:00Z", "tz": "Europe/Berlin"})
    ws.done("once", berlin("2026-12-05 10:00"))
    return ws


@pytest.fixture
def hourly(ws: World) -> World:
    """Hourly slots: a clock that was ahead has claimed 19:00 and given up those before it."""
    ws.scheduler()
    ws.cron("often", "0 * * * *")
    ws.done("often", berlin("16:00"))
    ws.gave_up("often", berlin("16:00"), berlin("18:00"), "no-scheduler")
    ws.done("often", berlin("19:00"))
    return ws


@pytest.mark.parametrize("alive", [True, False])
def test_a_one_shot_that_was_claimed_ahead_is_over_and_not_announced(once, alive):
    if alive:
        once.scheduler()

    (row,) = json.loads(once.ask("list", "--json").out)["routines"]
    assert (row["state"], row["next"]) == ("over", None)
    listed = once.ask("list", width=120).out
    assert "dealt with: a clock was ahead" in listed
    following = once.ask("next", "once", width=120).out
    assert "Sat 5" not in following
    assert "over: what was left to come was dealt with already" in following


def test_a_one_shot_that_was_claimed_ahead_is_explained_by_its_record(once):
    for words in (("once",), ("once", "2026-12-05 10:00")):
        out = once.ask("explain", *words, width=200).out

        assert out.splitlines()[1] == "completed in 41 s"
        assert "of now: a clock was wrong. It does not run again Sat 05 Dec 2026 10:00" in out
        assert "Next:" not in out


def test_next_leaves_out_what_was_dealt_with_ahead_and_says_so(hourly):
    found = json.loads(hourly.ask("next", "often", "-n", "2", "--json").out)

    assert [one["slot"] for one in found] == ["2026-11-29T16:00:00Z", "2026-11-29T19:00:00Z"]
    shown = hourly.ask("next", "often", width=120).out
    assert f"Sun 29 Nov 2026 18:00 +01:00 and 1 more: {NEVER}" in shown


def test_a_decision_knows_of_claims_that_are_ahead(hourly):
    found = json.loads(hourly.ask("next", "often", "-n", "4", "--decide", "--json").out)

    assert [one["decision"] for one in found] == ["start", NEVER, NEVER, "start"]


def test_a_slot_within_a_record_that_ends_ahead_is_not_missed(hourly):
    out = hourly.ask("explain", "often", "2026-11-29 17:00", width=200).out

    assert (
        out.splitlines()[1] == "not yet: Sun 29 Nov 17:00 is ahead; as things stand it would run."
    )
    last = hourly.ask("explain", "often", "2026-11-29 18:00", width=200).out
    assert last.splitlines()[1].startswith("missed x2")
