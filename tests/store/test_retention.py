"""What is kept and what goes (PROMISES D8): never what a slot that ran is known by."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from routines.domain.occurrence import Occurrence
from routines.domain.outcome import Outcome
from routines.store import files
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.retention import Keep, RetentionStore
from routines.store.state import State
from tests.builders import NOW, FakeClock, by_hand, draft, missed, slot


def pruned(state: State, **keep: int) -> None:
    RetentionStore(state, clock=FakeClock()).prune(Keep(**keep), now=NOW)


def settled(state: State, *occurrences: Occurrence) -> None:
    for one in occurrences:
        claim = ClaimStore(state).take(draft(one), at=NOW)
        assert isinstance(claim, Claim)
        claim.settle(Outcome.COMPLETED, at=NOW)
        claim.let_go()


def left(state: State) -> list[str]:
    claims = ClaimStore(state)
    return [Path(path).name for path in claims.walk(claims.owners())]


@pytest.mark.parametrize("claims", [0, 1])
def test_the_newest_slot_stays_whatever_is_kept(state: State, claims: int) -> None:
    settled(state, slot("2026-05-01 09:00"), slot("2026-05-02 09:00"))

    pruned(state, claims=claims, days=0)

    assert left(state) == ["2026-05-02T09-00-00Z.jsonl"]


def test_the_newest_slot_stays_behind_any_number_of_newer_runs_by_hand(state: State) -> None:
    """Without it the slot would be owed again, and its prompt given twice."""
    settled(state, slot("2026-05-01 09:00"), slot("2026-05-02 09:00"))
    for day in range(3, 6):
        settled(state, by_hand(time=f"2026-05-0{day} 09:00"))

    pruned(state, claims=2, days=1)

    assert left(state)[-1] == "2026-05-02T09-00-00Z.jsonl"
    assert "2026-05-01T09-00-00Z.jsonl" not in left(state)
    newest, _ = ClaimStore(state).newest_slot("daily", until=NOW)
    assert newest == slot("2026-05-02 09:00").instant


def test_the_newest_slot_stays_behind_one_that_a_wrong_clock_left(state: State) -> None:
    settled(state, slot("2026-05-02 09:00"), slot("2098-01-01 09:00"))

    pruned(state, claims=1, days=1)

    assert ClaimStore(state).newest_slot("daily", until=NOW)[0] == slot("2026-05-02 09:00").instant


def test_the_newest_counted_record_stays(state: State) -> None:
    settled(state, slot())
    cursors = CursorStore(state)
    for time in ("2026-05-01 09:00", "2026-05-02 09:00"):
        cursors.give_up(missed(time))

    pruned(state, claims=0, days=0)

    assert [one.last.day for one in cursors.missed("daily")] == [2]


def test_drafts_that_a_crash_left_are_swept_and_younger_ones_are_not(state: State) -> None:
    folders = ("cursors", "switches", "sessions/ab", "wakeups/named%3Aa", "open", "alerts")
    young, old = [], []
    for folder in folders:
        os.makedirs(state.at(folder), exist_ok=True)
        for made in (young, old):
            made.append(files.draft_name(state.at(folder, "daily.json")))
            Path(made[-1]).write_bytes(b"{")
            at = (NOW - timedelta(minutes=1 if made is young else 61)).timestamp()
            os.utime(made[-1], (at, at))
    kept = Path(state.at("cursors", ".hidden"))
    kept.write_bytes(b"somebody's")
    os.utime(kept, (0, 0))

    found = RetentionStore(state, clock=FakeClock()).prune(Keep(), now=NOW)

    assert found.drafts == len(folders)
    assert all(map(os.path.exists, [*young, kept]))
    assert not any(map(os.path.exists, old))
