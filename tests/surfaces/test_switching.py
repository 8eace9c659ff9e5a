"""Pause, resume and recover: what they print, what they refuse, and what others show of it."""

import json
from datetime import timedelta

import pytest

from routines.domain.record import Event
from routines.store.claims import ClaimStore
from routines.store.switches import SwitchStore
from tests.surfaces.world import NOW, World, berlin


@pytest.fixture
def armed(ws: World) -> World:
    """Three routines on a clock that stands at Sunday 16:18, and a scheduler."""
    ws.scheduler()
    ws.cron("daily", "0 9 * * *", "tags: [morning]\n", since=berlin("2026-11-29 10:00"))
    ws.cron("hourly", "0 * * * *", since=berlin("2026-11-29 16:10"))
    ws.cron("weekly", "0 8 * * 1", "tags: [morning]\n")
    return ws


def held(ws: World) -> list[str | None]:
    return sorted((s.routine or "" for s in SwitchStore(ws.state).all()), key=str)


def one(ws: World, *words: str) -> dict:
    (found,) = json.loads(ws.ask(*words, "--json").out)
    return found


def parked(ws: World, name: str = "daily", slot: str = "2026-11-29 09:00") -> str:
    claim = ws.claim(name, berlin(slot))
    claim.append(Event.PARKED, at=berlin("12:00"), detail="refused connection")
    claim.let_go()
    return claim.record.ref


# Pause ------------------------------------------------------------------------------------------


def test_pause_says_how_it_ends(armed):
    assert armed.ask("pause", "hourly").out == (
        "hourly  paused until it is resumed: routines resume hourly\n"
    )
    assert armed.ask("pause", "--all").out == (
        "everything  paused until it is resumed: routines resume --all\n"
    )
    assert armed.ask("pause", "daily", "--until", "2h").out == (
        "daily  paused until Sun 29 Nov 18:18\n"
    )


def test_pause_takes_many_names_and_tags(armed):
    answer = armed.ask("pause", "hourly", "--tag", "morning", "--until", "09:00")

    assert answer.out.splitlines() == [
        "hourly  paused until Mon 30 Nov 09:00",
        "daily   paused until Mon 30 Nov 09:00",
        "weekly  paused until Mon 30 Nov 09:00",
    ]
    assert held(armed) == ["daily", "hourly", "weekly"]


def test_pause_with_json_says_who_when_and_why(armed):
    found = one(armed, "pause", "hourly", "--until", "2h", "--reason", "moving house")

    assert found == {
        "routine": "hourly",
        "changed": True,
        "paused": {
            "by": found["paused"]["by"],
            "since": "2026-11-29T15:18:00Z",
            "until": "2026-11-29T17:18:00Z",
            "reason": "moving house",
            "everything": False,
            "besides": None,
        },
        "passed": None,
        "cancelled": [],
    }
    assert "@" in found["paused"]["by"]


def test_pausing_again_changes_the_end_and_not_the_beginning(armed):
    armed.ask("pause", "hourly")
    armed.clock.advance(hours=1)

    answer = armed.ask("pause", "hourly", "--until", "1d")

    assert answer.out == ("hourly  paused since Sun 29 Nov 16:18, now until Mon 30 Nov 17:18\n")
    assert one(armed, "pause", "hourly")["changed"] is False
    # What passed in the first hour was passed over by the pause, not by an absence.
    assert armed.ask("resume", "hourly").out == "hourly  resumed; missed x1: paused\n"


def test_pause_now_asks_what_runs_to_end(armed):
    claim = armed.started(armed.claim("hourly", berlin("16:00")))

    answer = armed.ask("pause", "hourly", "--now", "--reason", "too loud")

    assert answer.out.splitlines()[1].startswith(f"  {claim.record.ref}  asked to end")


@pytest.mark.parametrize(
    ("words", "until", "now"),
    [
        (
            ("hourly",),
            "Sun 29 Nov 2026 09:00 +01:00",
            "Sun 29 Nov 2026 16:18 +01:00 Europe/Berlin",
        ),
        (("hourly", "daily"), "Sun 29 Nov 2026 09:00 +01:00", "16:18 +01:00 Europe/Berlin"),
        (("us",), "Sun 29 Nov 2026 09:00 -05:00", "Sun 29 Nov 2026 10:18 -05:00 America/New_York"),
    ],
    ids=["workspace", "two", "own-zone"],
)
def test_an_end_that_has_passed_is_told_in_the_zone_that_it_was_read_in(armed, words, until, now):
    armed.routine("us", 'cron: "0 9 * * *"\ntz: America/New_York\n')
    asked = "2026-11-29 09:00"

    answer = armed.ask("pause", *words, "--until", asked)

    assert answer.code == 2
    assert f"--until {until} has passed" in answer.err
    assert f"{now} now" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("pause",), 2, "which routines?"),
        (("pause", "hourli"), 1, "did you mean 'hourly'?"),
        (("pause", "hourly", "--tag", "night", "nobody"), 1, "no routine named 'nobody'"),
        (("pause", "--tag", "night"), 2, "no routine carries the tag 'night'"),
        (("pause", "--all", "hourly"), 2, "--all means everything"),
        (("pause", "--all", "--tag", "morning"), 2, "--all means everything"),
        (("pause", "hourly", "--until", "2026-11-29 09:00"), 2, "has passed"),
        (("pause", "hourly", "--until", "soon"), 2, "soon"),
        (("pause", "hourly", "--until", "30"), 2, "30"),
        (("resume",), 2, "which routines?"),
        (("resume", "hourli"), 1, "did you mean 'hourly'?"),
        (("resume", "--tag", "night"), 2, "no routine carries the tag 'night'"),
        (("resume", "--all", "daily"), 2, "--all means everything"),
        (("recover",), 2, "REF"),
        (("recover", "hourli"), 1, "did you mean 'hourly'?"),
        (("recover", "hourly"), 1, "nothing of hourly is parked"),
        (("recover", "manual:2026-11-29T15-12-21Z-k3m9q2"), 1, "nothing is recorded"),
        (("recover", "w-7k3m9q"), 1, "nothing is known of a wake-up 'w-7k3m9q'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(armed, words, code, says):
    answer = armed.ask(*words)

    assert (answer.code, answer.out) == (code, "")
    assert says in answer.err
    assert held(armed) == []


# Resume -----------------------------------------------------------------------------------------


def test_resume_says_how_much_was_passed_over(armed):
    armed.ask("pause", "hourly", "daily")
    armed.clock.advance(hours=3)

    answer = armed.ask("resume", "hourly", "daily")

    assert answer.out.splitlines() == ["hourly  resumed; missed x3: paused", "daily   resumed"]
    assert armed.ask("resume", "hourly").out == "hourly  was not paused\n"


def test_resume_of_one_while_everything_is_paused_says_so(armed):
    armed.ask("pause", "hourly")
    armed.ask("pause", "--all", "--reason", "moving house")

    answer = armed.ask("resume", "hourly")

    assert answer.out.startswith("hourly  resumed, but everything is paused by ")
    assert answer.out.endswith(" since Sun 29 Nov 16:18 (moving house): routines resume --all\n")
    assert armed.ask("resume", "--all").out == "everything  resumed\n"
    assert held(armed) == []


@pytest.mark.parametrize("everything", [False, True], ids=["itself", "everything"])
def test_what_is_paused_while_it_runs_has_no_next(armed, everything):
    armed.started(armed.claim("hourly", berlin("16:00")))
    armed.ask("pause", "--all" if everything else "hourly")

    rows = json.loads(armed.ask("list", "--json").out)["routines"]
    (row,) = (row for row in rows if row["name"] == "hourly")

    assert (row["state"], row["next"], row["due"]) == ("running", None, False)
    assert row["paused"] is not None
    (shown,) = (one for one in armed.ask("list").out.splitlines() if " hourly " in one)
    assert shown.split()[:6] == ["*", "hourly", "running", "17", "m", "-"]


def test_what_is_disabled_while_it_runs_has_no_next(armed):
    armed.started(armed.claim("hourly", berlin("16:00")))
    armed.routine("hourly", 'cron: "0 * * * *"\nenabled: false\n')

    rows = json.loads(armed.ask("list", "--json").out)["routines"]

    assert [(row["state"], row["next"]) for row in rows if row["name"] == "hourly"] == [
        ("running", None)
    ]


def test_of_two_pauses_each_command_names_both_and_how_to_end_them(armed):
    armed.ask("pause", "daily", "--reason", "moving house")
    armed.ask("pause", "--all", "--reason", "holiday")

    row = next(
        one
        for one in json.loads(armed.ask("list", "--json").out)["routines"]
        if one["name"] == "daily"
    )
    explained = json.loads(armed.ask("explain", "daily", "--json").out)
    for found in (row["paused"], explained["paused"]):
        assert (found["everything"], found["reason"]) == (True, "holiday")
        assert (found["besides"]["everything"], found["besides"]["reason"]) == (
            False,
            "moving house",
        )
    foot = armed.ask("explain", "daily", width=120).out
    assert "but it is paused: routines resume --all, routines resume daily\n" in foot
    armed.ask("resume", "--all")
    assert "but it is paused: routines resume daily\n" in armed.ask("explain", "daily").out


def test_a_slot_is_not_promised_for_the_end_of_one_pause_where_another_goes_on(armed):
    """Everything is paused for an hour, and the routine itself until it is resumed."""
    armed.ask("pause", "--all", "--until", "1h")
    armed.ask("pause", "daily")

    assert "daily: paused: nothing starts until it is resumed" in armed.ask("next").out
    assert armed.ask("next", "daily", "--json").out.strip() == "[]"
    foot = armed.ask("explain", "daily").out
    assert "Next: Mon 30 Nov 09:00, but it is paused: routines resume daily\n" in foot
    (decided,) = json.loads(armed.ask("next", "daily", "-n", "1", "--decide", "--json").out)
    assert decided["decision"].startswith("paused by ")
    assert decided["decision"].endswith(" until it is resumed")


def test_a_pause_of_a_routine_whose_file_is_gone_can_be_ended(armed):
    armed.ask("pause", "hourly")
    (armed.root / "routines" / "hourly.yaml").unlink()

    assert armed.ask("resume", "hourly").code == 0
    assert held(armed) == []


# Recover ----------------------------------------------------------------------------------------


def test_recover_lets_a_parked_slot_be_tried_at_once(armed):
    ref = parked(armed)

    answer = armed.ask("recover", "daily")

    assert answer.out == f"{ref}  is tried again within seconds\n"
    (entry,) = ClaimStore(armed.state).open_entries()
    record = ClaimStore(armed.state).read_path(entry.claim_path)
    assert (record.last, record.retry_at, record.by_person) == ("retry", NOW, True)
    assert armed.ask("recover", ref).code == 1


def test_recover_without_a_scheduler_says_that_the_next_start_does_it(ws):
    ws.cron("daily", "0 9 * * *")
    ref = parked(ws)

    assert one(ws, "recover", ref) == {
        "id": ref,
        "message": "is tried again at the next start: no scheduler is alive",
    }


def test_cancel_ends_what_is_parked(armed):
    ref = parked(armed)

    assert armed.ask("cancel", ref).out == f"{ref}  cancelled before it started\n"


def test_a_pause_that_ended_while_nobody_was_there_is_ended_at_its_time(ws):
    ws.cron("hourly", "0 * * * *", since=NOW - timedelta(minutes=5))
    ws.ask("pause", "hourly", "--until", "1h")
    ws.clock.advance(hours=3)

    ws.ask("pause", "hourly")

    (found,) = json.loads(ws.ask("history", "hourly", "--outcome", "missed", "--json").out)
    assert (found["reason"], found["missed"]["count"]) == ("paused", 1)
