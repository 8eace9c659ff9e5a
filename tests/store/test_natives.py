"""Which session has which conversation of a program."""

from pathlib import Path

import pytest

from routines.store import files
from routines.store.natives import NativeStore
from routines.store.sessions import SessionStore
from routines.store.state import open_for_writing
from tests.builders import BOOT, FakeClock, ledger

OURS, THEIRS = "routine:ours", "routine:theirs"


@pytest.fixture
def state(tmp_path):
    return open_for_writing(str(tmp_path / "state"), boot=BOOT)


def take(state, session, native="n-1", program="agent"):
    return NativeStore(state).take(native, program=program, session=session)


def lease_of(state, session):
    return SessionStore(state).take(session, clock=FakeClock())


def has(state, session, native):
    lease = lease_of(state, session)
    lease.write(ledger(session=session, native_session=native))
    lease.let_go()


def test_the_first_session_that_is_answered_from_a_conversation_has_it(state):
    assert take(state, THEIRS) is None
    has(state, THEIRS, "n-1")

    assert take(state, OURS) == THEIRS
    assert take(state, THEIRS) is None
    assert take(state, OURS, native="n-2") is None


def test_a_turn_that_is_about_to_write_its_id_down_has_it_already(state):
    lease = lease_of(state, THEIRS)
    assert take(state, THEIRS) is None

    assert take(state, OURS) == THEIRS
    # It ended without having written it: then it is nobody's.
    lease.let_go()
    assert take(state, OURS) is None


def test_a_conversation_that_its_session_has_left_is_free(state):
    take(state, THEIRS)
    has(state, THEIRS, "n-1")
    has(state, THEIRS, "n-9")

    assert take(state, OURS) is None


def test_the_same_id_of_another_program_is_another_conversation(state):
    take(state, THEIRS)
    has(state, THEIRS, "n-1")

    assert take(state, OURS, program="other") is None


def test_what_is_torn_or_somebody_elses_says_nothing(state):
    take(state, THEIRS)
    for file in Path(state.at("natives")).rglob("*.json"):
        file.write_text("{half")
    assert take(state, OURS) is None


def test_pruning_keeps_what_a_session_has_and_nothing_else(state):
    for session, native in ((THEIRS, "n-1"), (OURS, "n-2"), ("wake:gone", "n-3")):
        take(state, session, native)
    has(state, THEIRS, "n-1")
    has(state, OURS, "n-2")
    has(state, OURS, "n-4")

    assert NativeStore(state).prune() == 2
    assert take(state, OURS) == THEIRS


def test_a_lock_that_somebody_holds_for_ever_keeps_no_turn_waiting(state):
    take(state, THEIRS)
    natives = NativeStore(state)
    with files.section(state.at("locks", "natives.lock")):
        assert natives.take("n-1", program="agent", session=OURS, patience=0) is None


def test_who_has_a_conversation_is_told_also_while_the_lock_is_held(state):
    take(state, THEIRS)
    has(state, THEIRS, "n-1")
    natives = NativeStore(state)
    with files.section(state.at("locks", "natives.lock")):
        assert natives.take("n-1", program="agent", session=OURS, patience=0) == THEIRS


def test_pruning_passes_over_what_somebody_is_looking_at(state):
    take(state, THEIRS)
    natives = NativeStore(state)
    with files.section(state.at("locks", "natives.lock")):
        assert natives.prune(patience=0) == 0
    assert natives.prune() == 1
