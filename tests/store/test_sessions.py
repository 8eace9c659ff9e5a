"""The lease of a session, and what is known of it (PROMISES T2, T7, D6)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.errors import StateForeign
from routines.store import files, locks
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.sessions import (
    Busy,
    Lease,
    Ledger,
    SessionStore,
    ledger_path,
    lock_path,
    session_key,
    transcript_path,
)
from routines.store.state import State
from tests.builders import NOW, FakeClock, draft, ledger, opened, slot
from tests.store.crash import Tell, as_a_new_process, in_child, standing_in
from tests.store.interleave import every_interruption

SESSION = "routine:daily"


@pytest.fixture
def sessions(state: State) -> SessionStore:
    return SessionStore(state)


def lease_of(sessions: SessionStore, session: str = SESSION, **more: Any) -> Lease:
    lease = sessions.take(session, clock=FakeClock(), **more)
    assert isinstance(lease, Lease)
    return lease


def busy(sessions: SessionStore, **more: Any) -> Busy:
    answer = sessions.take(SESSION, clock=FakeClock(), **more)
    assert isinstance(answer, Busy)
    return answer


def claimed(state: State) -> Claim:
    claim = ClaimStore(state).take(draft(), at=NOW)
    assert claim is not None
    return claim


def test_two_turns_never_have_one_session(sessions: SessionStore) -> None:
    lease = lease_of(sessions)
    assert busy(sessions).locked
    assert in_child(lambda tell: tell(busy(sessions).locked))[1] == [[True]]
    lease_of(sessions, "another").let_go()
    lease.let_go()
    lease_of(sessions).let_go()


def test_of_two_that_take_a_session_at_once_one_has_it(quick_path: str) -> None:
    def take(state: State) -> Lease | Busy:
        return SessionStore(state).take(SESSION, clock=FakeClock())

    for _, one, other in every_interruption(quick_path, take, take):
        assert sorted([isinstance(one, Lease), isinstance(other, Lease)]) == [False, True]


def test_a_session_is_free_again_when_its_process_has_died(sessions: SessionStore) -> None:
    def die(tell: Tell) -> None:
        tell(isinstance(sessions.take(SESSION, clock=FakeClock()), Lease))

    assert in_child(die)[1] == [[True]]
    lease_of(sessions).let_go()


def test_a_free_lock_whose_stamp_names_an_open_claim_is_not_free(
    sessions: SessionStore, state: State
) -> None:
    """Its owner has died in mid-turn: what it left is ended before the next turn begins."""
    claim = claimed(state)
    lease = lease_of(sessions)
    lease.stamp(slot().claim_path)
    claim.append(Event.STARTED, at=NOW)
    lease.let_go()
    claim.let_go()
    answer = busy(sessions)
    assert not answer.locked
    assert answer.claim == slot().claim_path
    assert answer.holder == "daily@2026-07-01T09:00:00Z"
    (entry,) = ClaimStore(state).open_entries()
    found = ClaimStore(state).hold(entry)
    assert found is not None
    found.settle(Outcome.INTERRUPTED, at=NOW)
    lease_of(sessions).let_go()
    found.let_go()


def test_a_stamp_of_ones_own_claim_or_of_a_claim_that_is_gone_is_in_nobodys_way(
    sessions: SessionStore, state: State
) -> None:
    lease = lease_of(sessions)
    lease.stamp(slot().claim_path)
    lease.let_go()
    lease_of(sessions).let_go()
    claim = claimed(state)
    lease_of(sessions, own_claim=slot().claim_path).let_go()
    assert not busy(sessions).locked
    claim.let_go()


def test_a_free_lock_beside_the_record_of_an_opened_program_is_not_free(
    sessions: SessionStore,
) -> None:
    lease = lease_of(sessions)
    lease.stamp(None, held_by="ana@studio (session open: claude)", opened=opened())
    lease.let_go()

    for found in (busy(sessions), busy(sessions, past=opened(mark=f"ROUTINES_HELD_{'6' * 32}"))):
        assert (found.locked, found.claim, found.opened) == (False, None, opened())
        assert found.holder == "ana@studio (session open: claude)"
    asked = sessions.is_busy(SESSION)
    assert asked is not None
    assert asked.opened == opened()
    # For who has seen it end.
    lease = lease_of(sessions, past=opened())
    lease.stamp(None)
    lease.let_go()
    assert sessions.is_busy(SESSION) is None
    lease_of(sessions).let_go()


@pytest.mark.parametrize("record", [{}, [], "x", {"mark": "PATH", "owner": {}, "at": "now"}])
def test_a_ledger_whose_record_of_a_program_is_something_else_can_not_be_read(
    sessions: SessionStore, state: State, record: Any
) -> None:
    lease = lease_of(sessions)
    lease.stamp(None, opened=opened())
    lease.let_go()
    path = Path(ledger_path(state, SESSION))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"opened": record}))

    assert sessions.peek(SESSION) is None
    lease_of(sessions).let_go()
    assert [one.name for one in path.parent.glob("*.corrupt")] == [f"{path.name}.corrupt"]


def test_a_lock_that_a_forked_child_still_copies_is_tried_again(sessions: SessionStore) -> None:
    lease = lease_of(sessions)

    class Patient(FakeClock):
        slept = 0.0

        def sleep(self, seconds: float) -> None:
            self.slept += seconds
            if self.slept > 0.1:
                lease.let_go()

    clock = Patient()
    taken = sessions.take(SESSION, clock=clock)
    assert isinstance(taken, Lease)
    assert 0.1 < clock.slept <= 0.2
    unlucky = Patient()
    unlucky.slept = -1000
    assert isinstance(sessions.take(SESSION, clock=unlucky), Busy)
    assert unlucky.slept == pytest.approx(-1000 + 0.2)
    taken.let_go()


def test_a_lock_file_that_was_removed_under_us_is_not_the_lock(
    sessions: SessionStore, state: State
) -> None:
    old = lease_of(sessions)
    opened = files.open_append(lock_path(state, SESSION))
    old.forget()
    lease = lease_of(sessions)
    assert files.leads_to(lock_path(state, SESSION), lease.fd)
    old.let_go()
    assert locks.try_lock(opened), "the old file's lock is free, and means nothing"
    assert busy(sessions).locked
    locks.let_go(opened)
    lease.let_go()


def test_whoever_locks_a_file_that_is_removed_in_the_same_moment_looks_again(
    sessions: SessionStore, state: State
) -> None:
    class Removing(files.Calls):
        times = 0

        @classmethod
        def open(cls, path: str, flags: int, mode: int = 0o777) -> int:
            fd = os.open(path, flags, mode)
            if path.endswith(".lock") and cls.times < 2:
                cls.times += 1
                os.unlink(path)
            return fd

    with standing_in(Removing()):
        lease = lease_of(sessions)
    assert Removing.times == 2
    assert files.leads_to(lock_path(state, SESSION), lease.fd)
    lease.let_go()


def test_a_lease_that_is_handed_on_is_held_until_the_last_has_closed_it(
    sessions: SessionStore,
) -> None:
    lease = lease_of(sessions)
    lease.write(ledger(SESSION, turns=3))
    handed = sessions.adopt(SESSION, os.dup(lease.fd))
    assert handed.ledger.turns == 3
    lease.let_go()
    assert busy(sessions).locked
    handed.let_go()
    lease_of(sessions).let_go()


def test_the_ledger_is_read_back_as_it_was_written(sessions: SessionStore) -> None:
    lease = lease_of(sessions)
    whole = ledger(
        SESSION,
        agent="claude",
        native_session="abc",
        minted_by="us",
        first_turn_begun=NOW,
        turns=4,
        epoch_turns=2,
        usd_total=0.5,
        tokens_total=900,
        claim=slot().claim_path,
        held_by="ana@studio",
        opened=opened(),
        last_at=NOW,
    )
    lease.write(whole)
    assert sessions.read(SESSION) == sessions.peek(SESSION) == whole
    assert [*sessions.all()] == [whole]
    lease.stamp(None)
    assert sessions.peek(SESSION) == whole.with_(claim=None, held_by=None, opened=None)
    lease.let_go()


def test_a_new_epoch_is_another_native_session(state: State) -> None:
    first = ledger(SESSION, agent="claude", native_session="abc", turns=7, epoch_turns=7)
    second = first.new_epoch("copied", agent="codex")
    assert (second.epoch, second.native_session, second.turns, second.epoch_turns) == (
        2,
        None,
        7,
        0,
    )
    assert first.uuid(state.workspace) != second.uuid(state.workspace)
    assert first.uuid(state.workspace) == ledger(SESSION).uuid(state.workspace)


def test_names_that_differ_in_case_are_two_sessions_and_unicode_forms_are_one() -> None:
    assert session_key("Daily") != session_key("daily")
    assert session_key("cafe\N{COMBINING ACUTE ACCENT}") == session_key(
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    )


@pytest.mark.parametrize("content", ["", "{", "[]", "\0" * 8, '{"session": "x"}'])
def test_a_ledger_that_can_not_be_read_is_kept_aside_by_the_holder_alone(
    sessions: SessionStore, state: State, content: str
) -> None:
    lease = lease_of(sessions)
    place = Path(ledger_path(state, SESSION))
    place.write_text(content)
    assert sessions.peek(SESSION) is None
    assert busy(sessions).claim is None
    assert place.read_text() == content, "a process that is refused touches nothing"
    lease.let_go()
    again = lease_of(sessions)
    assert (again.ledger.epoch, again.ledger.turns) == (2, 0)
    assert Path(f"{place}.corrupt").read_text() == content
    again.let_go()


# Every one is JSON, as far as Python reads it.
HOSTILE = ["1e400", "-1e400", "NaN", "true", "{}", "[]", "1" * 5000, '"\\ud800"']
HOSTILE += ["[" * 10_000 + "]" * 10_000]
FIELDS = [one for one in Ledger.__slots__ if one not in ("claim", "opened")]


def edited(sessions: SessionStore, state: State, at: str, value: str) -> bytes:
    """Put *value* for a dotted key into the ledger of a session; return its bytes."""
    lease = lease_of(sessions)
    lease.stamp(None, held_by="ana@studio", opened=opened())
    lease.let_go()
    path = Path(ledger_path(state, SESSION))
    inner = found = json.loads(path.read_text())
    *above, last = at.split(".")
    for key in above:
        inner = inner[key]
    inner[last] = "HERE"
    path.write_text(json.dumps(found).replace('"HERE"', value))
    return path.read_bytes()


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: value[:9])
@pytest.mark.parametrize("at", [*FIELDS, "claim", "opened", "opened.owner", "opened.owner.pid"])
def test_a_ledger_edited_into_nonsense_is_one_that_can_not_be_read(
    sessions: SessionStore, state: State, at: str, value: str
) -> None:
    content = edited(sessions, state, at, value)
    assert list(sessions.all()) == []
    assert sessions.is_busy(SESSION) is None
    lease = lease_of(sessions)
    lease.stamp(None, held_by="ana@studio")
    lease.let_go()
    assert Path(f"{ledger_path(state, SESSION)}.corrupt").read_bytes() == content
    assert lease_of(sessions).ledger.epoch == 2


@pytest.mark.parametrize(
    "claim",
    [
        "claims/../../../../etc/passwd",
        "claims/daily/../../../secret.jsonl",
        "/etc/passwd",
        "claims//etc/x.jsonl",
        "sessions/x.jsonl",
        f"claims/daily/{'x' * 300}.jsonl",
        "claims/" + "x/" * 3000 + "x.jsonl",
        "claims/x\0.jsonl",
        "",
        5,
    ],
)
def test_a_stamp_that_names_no_claim_keeps_no_session_and_is_never_followed(
    sessions: SessionStore, state: State, claim: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(sessions, state, "claim", json.dumps(claim))
    read, seen = files.read, []
    monkeypatch.setattr(files, "read", lambda path: seen.append(path) or read(path))
    assert sessions.is_busy(SESSION) is None
    lease_of(sessions).let_go()
    inside = state.at("sessions") + "/"
    assert seen
    assert all(one.startswith(inside) and ".." not in one for one in seen)


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_an_instant_that_no_zone_can_show_makes_no_ledger(
    sessions: SessionStore, state: State, year: str
) -> None:
    for at in ("last_at", "opened.at"):
        edited(sessions, state, at, f'"{year}-01-01T00:00:00Z"')
        assert sessions.peek(SESSION) is None


def test_a_ledger_in_the_place_of_another_session_is_none(
    sessions: SessionStore, state: State
) -> None:
    edited(sessions, state, "session", '"routine:other"')
    assert list(sessions.all()) == []
    assert sessions.peek(SESSION) is None
    lease_of(sessions).let_go()
    assert not Path(ledger_path(state, "routine:other")).exists()


def test_a_fresh_session_is_forgotten_at_once_whatever_its_epoch_says(
    sessions: SessionStore, state: State
) -> None:
    lease = lease_of(sessions)
    lease.write(lease.ledger.with_(epoch=999_999_999))
    Path(transcript_path(state, SESSION, 7)).write_text("")
    folder = Path(ledger_path(state, SESSION)).parent
    lease.forget()
    lease.let_go()
    assert list(folder.iterdir()) == []


def test_a_session_whose_ledger_was_lost_meets_none_of_its_earlier_conversations(
    sessions: SessionStore, state: State
) -> None:
    seen, place = set(), Path(ledger_path(state, SESSION))
    files.add_folder(str(place.parent))
    Path(transcript_path(state, SESSION, 7)).write_text("")
    for broken in ("{", '{"session": "x", "epoch": 9, "tu', "\0" * 8, ""):
        lease = lease_of(sessions)
        seen.add(lease.ledger.uuid(state.workspace))
        lease.write(lease.ledger.with_(first_turn_begun=NOW))
        assert SessionStore(state).peek(SESSION) == lease.ledger, "it is the same after a crash"
        lease.let_go()
        place.write_text(broken)

    last = lease_of(sessions)
    last.let_go()

    assert len(seen | {last.ledger.uuid(state.workspace)}) == 5
    assert last.ledger.epoch == 10
    assert "could not be read" in last.ledger.epoch_reason


def test_a_ledger_that_may_not_be_read_leaves_the_session_free(
    sessions: SessionStore, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(sessions)
    lease.write(ledger(SESSION))
    lease.let_go()
    real = open

    def refuse(path: Any, *more: Any, **words: Any) -> Any:
        if str(path).endswith(".json"):
            raise PermissionError(13, "")
        return real(path, *more, **words)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        with pytest.raises(StateForeign):
            sessions.take(SESSION, clock=FakeClock())
    lease_of(sessions).let_go()


def test_whether_a_session_is_busy_is_asked_without_taking_it(
    sessions: SessionStore, state: State
) -> None:
    assert sessions.is_busy(SESSION) is None
    lease = lease_of(sessions)
    lease.stamp(None, held_by="ana@studio")
    if locks._OFD_GETLK is not None:
        found = sessions.is_busy(SESSION)
        assert found is not None
        assert (found.locked, found.holder) == (True, "ana@studio")
    lease.stamp(None)
    lease.let_go()
    assert sessions.is_busy(SESSION) is None
    assert not os.path.exists(lock_path(state, "never"))
    assert sessions.is_busy("never") is None
    assert not os.path.exists(lock_path(state, "never"))


def test_a_session_that_is_forgotten_leaves_nothing(sessions: SessionStore, state: State) -> None:
    lease = lease_of(sessions)
    lease.write(ledger(SESSION))
    lease.forget()
    lease.let_go()
    assert sessions.read(SESSION) is None
    assert os.listdir(os.path.dirname(lock_path(state, SESSION))) == []
    as_a_new_process()
