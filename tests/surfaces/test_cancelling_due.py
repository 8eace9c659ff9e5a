"""`cancel` of what is due and waits unclaimed: one act, one winner, and one final outcome (L17)."""

import json
from pathlib import Path

import pytest

from routines.domain.record import Event
from routines.store.cursors import CursorStore
from routines.store.sessions import SessionStore
from tests.surfaces.world import World, berlin

EARLIER = berlin("16:10")


@pytest.fixture
def waiting(ws: World) -> World:
    """One of a group runs since 16:15, and another one has waited for its end since 16:16."""
    ws.scheduler()
    ws.cron("long", "15 * * * *", "exclusive: g\n", since=EARLIER)
    ws.cron("late", "16 * * * *", "exclusive: g\n", since=EARLIER)
    ws.started(ws.claim("long", berlin("16:15")))
    return ws


def ends(ws: World, name: str) -> list[tuple[str, str | None, str]]:
    found = json.loads(ws.ask("history", name, "--json").out)
    return [(one["slot"], one["outcome"], one["reason"]) for one in found]


@pytest.mark.parametrize("ref", ["late", "late@16:16", "late@2026-11-29T15:16:00Z"])
def test_slot_that_waits_is_settled_at_once_and_never_runs(waiting, ref):
    answer = waiting.ask("cancel", ref, "--reason", "not today")

    assert answer.code == 0
    assert answer.out == "late@2026-11-29T15:16:00Z  cancelled before it started\n"
    (record,) = json.loads(waiting.ask("history", "late", "--json").out)
    assert (record["outcome"], record["reason"]) == ("cancelled", "person")
    assert record["detail"] == "not today"
    # A repeat does no harm; the name alone means whatever runs or waits, and nothing does.
    assert waiting.ask("cancel", ref).code == (0 if "@" in ref else 1)
    rows = {one["name"]: one for one in json.loads(waiting.ask("list", "--json").out)["routines"]}
    assert (rows["late"]["state"], rows["long"]["state"]) == ("armed", "running")


def test_slot_that_waits_for_a_named_session_is_settled_too(ws):
    ws.scheduler()
    ws.cron("one", "15 * * * *", "session: named:shop\n", since=EARLIER)
    ws.cron("two", "16 * * * *", "session: named:shop\n", since=EARLIER)
    claim = ws.started(ws.claim("one", berlin("16:15"), session="named:shop"))
    sessions = SessionStore(ws.state)
    lease = sessions.take("named:shop", clock=ws.clock, own_claim=claim.record.path)

    assert json.loads(ws.ask("list", "--json").out)["routines"][1]["state"] == "waiting"
    assert ws.ask("cancel", "two").code == 0
    assert ends(ws, "two") == [("2026-11-29T15:16:00Z", "cancelled", "person")]
    lease.let_go()


def test_slot_before_it_is_recorded_as_missed_first(waiting):
    """Claims are made in the order of their slots: none while an older one is owed."""
    waiting.cron("dense", "*/2 * * * *", "exclusive: g\n", since=EARLIER)

    assert waiting.ask("cancel", "dense").out.startswith("dense@2026-11-29T15:18:00Z ")
    assert ends(waiting, "dense") == [
        ("2026-11-29T15:18:00Z", "cancelled", "person"),
        ("2026-11-29T15:16:00Z", "missed", "busy"),
    ]


def test_all_that_is_caught_up_with_is_settled_oldest_first(waiting):
    waiting.cron("dense", "*/2 * * * *", "exclusive: g\ncatch_up: all\n", since=EARLIER)

    lines = waiting.ask("cancel", "dense").out.splitlines()
    assert [line[17:22] for line in lines] == ["15:12", "15:14", "15:16", "15:18"]
    assert {one[1] for one in ends(waiting, "dense")} == {"cancelled"}


def test_slot_behind_older_ones_that_are_caught_up_with_is_refused_and_they_are_named(waiting):
    waiting.cron("dense", "*/2 * * * *", "exclusive: g\ncatch_up: all\n", since=EARLIER)

    answer = waiting.ask("cancel", "dense@16:16")
    assert (answer.code, answer.out) == (1, "")
    assert "older slots of dense are owed and come before dense@2026-11-29T15:16:00Z" in answer.err
    assert "cancel these first, from dense@2026-11-29T15:12:00Z on" in answer.err
    assert "`routines cancel dense` for all" in answer.err
    assert {one[1] for one in ends(waiting, "dense")} == {None}
    for slot in ("16:12", "16:14", "16:16"):
        assert waiting.ask("cancel", f"dense@{slot}").code == 0
    # An instant that is no slot of it is still just that.
    assert "nothing is recorded of dense" in waiting.ask("cancel", "dense@16:17").err


def test_scheduler_that_is_quicker_wins(waiting, monkeypatch):
    """It claims the slot between our look and the routine's lock."""
    was = CursorStore.section

    def claimed_meanwhile(self, name, *, patience):
        waiting.claim("late", berlin("16:16"))
        monkeypatch.setattr(CursorStore, "section", was)
        return was(self, name, patience=patience)

    monkeypatch.setattr(CursorStore, "section", claimed_meanwhile)
    answer = waiting.ask("cancel", "late")

    assert answer.out.endswith("it may end without having started\n")
    assert [end[1] for end in ends(waiting, "late")] == [None]


def test_routine_that_is_not_due_has_nothing_to_cancel(waiting):
    waiting.cron("daily", "0 9 * * *", since=EARLIER)

    answer = waiting.ask("cancel", "daily")
    assert (answer.code, "nothing of daily runs or waits" in answer.err) == (1, True)


def test_who_cancelled_what_had_not_started_is_said_on_every_screen(waiting):
    claim = waiting.claim("late", berlin("16:16"))
    claim.append(Event.PARKED, at=berlin("16:17"), detail="connection refused")
    claim.let_go()
    assert waiting.ask("cancel", "late", "--reason", "not today").code == 0
    who = json.loads(Path(claim.path).read_text().splitlines()[-1])["by"]

    for command in ("explain", "show", "history"):
        assert f"by {who}: not today" in waiting.ask(command, "late", width=200).out, command
    assert "person, by" not in waiting.ask("list", width=200).out
    assert f"cancelled 16:16: by {who}: not today" in waiting.ask("list", width=200).out
