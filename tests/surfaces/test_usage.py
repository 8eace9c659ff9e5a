"""`history --usage`: what turns cost, by day and routine, from their records."""

import json

import pytest

from routines.domain.occurrence import Kind
from tests.surfaces.world import World, berlin


@pytest.fixture
def spent(ws: World) -> World:
    """Two routines over three days, a wake-up, a run by hand, and turns that say nothing."""
    ws.scheduler()
    ws.cron("audit", "0 3 * * *", "tags: [night]\n")
    ws.cron("digest", "0 9 * * *")
    ws.done("digest", berlin("2026-10-20 09:00"), usage={"usd": 9.0, "tokens": 900_000})
    ws.done("digest", berlin("2026-11-27 09:00"), usage={"usd": 0.1, "tokens": 1000})
    ws.done("audit", berlin("2026-11-28 03:00"), "failed", "exit", "exit 1: no")
    ws.done("digest", berlin("2026-11-28 09:00"), usage={"usd": 0.25, "tokens": 2500})
    ws.settled("audit", berlin("03:00"), "skipped", "gate", "nothing new")
    ws.done("audit", berlin("04:00"), usage={"tokens": 70})
    ws.done("digest", berlin("09:00"), usage={"usd": 0.0002, "tokens": 12})
    by_hand = ws.claim("digest", berlin("12:00"), kind=Kind.MANUAL, occurrence_id="aaaaaa")
    ws.started(by_hand)
    ws.end(by_hand, usage={"usd": 0.3})
    return ws


def used(ws: World, *words: str) -> dict:
    return json.loads(ws.ask("history", *words, "--usage", "--json").out)


def test_usage_is_a_row_a_day_and_routine(spent, looks_like):
    looks_like(spent.ask("history", "--usage"), "usage")


def test_usage_with_json_has_turns_days_routines_and_the_total(spent):
    found = used(spent)

    assert list(found) == ["since", "total", "routines", "days", "turns", "cut"]
    assert found["total"] == {"turns": 6, "usd": 0.6502, "tokens": 3582, "silent": 1}
    assert found["routines"] == [
        {"routine": "audit", "turns": 2, "usd": None, "tokens": 70, "silent": 1},
        {"routine": "digest", "turns": 4, "usd": 0.6502, "tokens": 3512, "silent": 0},
    ]
    assert [(day["day"][8:], day["routine"], day["turns"]) for day in found["days"]] == [
        ("29", "audit", 1),
        ("29", "digest", 2),
        ("28", "audit", 1),
        ("28", "digest", 1),
        ("27", "digest", 1),
    ]
    assert found["turns"][1] == {
        "id": "digest@2026-11-29T08:00:00Z",
        "routine": "digest",
        "day": "2026-11-29",
        "outcome": "completed",
        "usd": 0.0002,
        "tokens": 12,
    }


@pytest.mark.parametrize(
    ("words", "turns"),
    [
        (("digest",), 4),
        (("--tag", "night"), 2),
        (("--outcome", "failed"), 1),
        (("--since", "2026-11-28"), 5),
        (("--since", "2026-10-01"), 7),
        (("--session", "routine:audit"), 2),
        # It is a sum: a page makes none.
        (("-n", "1"), 6),
    ],
)
def test_usage_is_narrowed_like_the_history(spent, words, turns):
    assert used(spent, *words)["total"]["turns"] == turns


def test_without_a_turn_it_says_so(ws):
    ws.cron("daily", "0 3 * * *")

    assert ws.ask("history", "--usage").out.endswith("\n\nNo turn has started in that time.\n")
    assert used(ws)["total"] == {"turns": 0, "usd": None, "tokens": None, "silent": 0}


@pytest.mark.parametrize("words", [("--follow",), ("--before", "digest")])
def test_a_sum_has_no_pages_and_is_not_followed(spent, words):
    answer = spent.ask("history", "--usage", *words)

    assert (answer.code, answer.out) == (2, "")
    assert "exclude each other" in answer.err


def test_money_has_two_places_everywhere(spent):
    rows = spent.ask("history", "digest", width=120).out.splitlines()
    at = rows[2].index("COST")

    assert [row[at:].split()[0] for row in rows[3:6]] == ["$0.30", "<$0.01", "$0.25"]
