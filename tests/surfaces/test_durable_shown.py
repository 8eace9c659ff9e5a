"""What a person sees of a run that outlives its scheduler."""

import json

import pytest

from routines.domain.record import Event
from routines.store import locks
from tests.builders import owner
from tests.surfaces.world import berlin

# A process of this machine that can't be there any more.
GONE = owner(pid=2**22 + 1, start="1")


@pytest.fixture
def unwatched(ws, monkeypatch):
    """A run that goes on while nothing of routines lives."""
    monkeypatch.setattr("routines.operations.life.is_alive", lambda identity: False)
    ws.settings()
    ws.cron("index", "0 3 * * *")
    claim = ws.claim("index", berlin("03:00"))
    at = claim.occurrence.instant
    ws.started(claim, durable=True, owner=GONE.to_json())
    claim.append(Event.RUN, at=at, run_id="r-\x1b7", owner=GONE.to_json())
    claim.append(Event.RUN, at=at, run_id="r-\x1b7", resumed=True, owner=GONE.to_json())
    ws._held.remove(claim)
    locks.let_go(claim.fd)
    return ws


def test_run_that_nobody_watches_runs_and_is_neither_lost_nor_a_problem(unwatched):
    entry = json.loads(unwatched.ask("history", "index", "--json").out)[0]

    assert (entry["state"], entry["outcome"], entry["run_id"]) == ("running", None, "r-\x1b7")
    assert unwatched.ask("history", "--problems").code == 0
    listed = unwatched.ask("list").out
    assert "running" in listed
    assert "lost" not in listed


def test_history_show_and_doctor_say_that_nobody_asks_how_it_stands(unwatched):
    said = "nobody asks how it stands until a scheduler starts"

    assert said in unwatched.ask("show", "index").out
    assert said[:20] in unwatched.ask("history", "index", "--json").out
    doctor = unwatched.ask("doctor", "--only", "turns").out
    assert "1 durable, which nobody asks about until a scheduler starts" in " ".join(doctor.split())


def test_explain_says_which_run_it_is_and_who_goes_on_with_it(unwatched):
    out = unwatched.ask("explain", "index").out

    assert "run r-\\x1b7" in out
    assert f"taken up again, by pid {GONE.pid}" in out
    assert "\x1b" not in out + unwatched.ask("history").out + unwatched.ask("show", "index").out
