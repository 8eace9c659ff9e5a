"""Intents to cancel (PROMISES L17, D5, D7)."""

from datetime import timedelta
from pathlib import Path

import pytest

from routines.store.cancels import CancelStore
from routines.store.state import State
from tests.builders import NOW, slot
from tests.store.interleave import every_interruption

REF = slot().ref


@pytest.fixture
def cancels(state: State) -> CancelStore:
    return CancelStore(state)


def test_an_intent_to_cancel_says_who_asked_and_why(cancels: CancelStore) -> None:
    asked = cancels.ask(REF, by="ana@studio", person=True, at=NOW, reason="wrong prompt")
    assert cancels.pending(REF) == asked
    assert cancels.pending(slot("09:01").ref) is None
    assert len(cancels.folders()) == 1


def test_an_intent_that_is_accepted_can_not_be_withdrawn_and_the_other_way_round(
    cancels: CancelStore,
) -> None:
    first = cancels.ask(REF, by="ana@studio", person=True, at=NOW)
    assert cancels.accept(first)
    assert not cancels.withdraw(first)
    assert cancels.pending(REF) is None
    second = cancels.ask(REF, by="daily@x", person=False, at=NOW)
    assert cancels.withdraw(second)
    assert not cancels.accept(second)
    assert cancels.pending(REF) is None


def test_of_one_who_accepts_and_one_who_withdraws_at_once_one_is_told_yes(quick_path: str) -> None:
    def ask_and_accept(state: State) -> bool:
        cancels = CancelStore(state)
        return cancels.accept(cancels.ask(REF, by="ana@studio", person=True, at=NOW))

    def withdraw(state: State) -> bool:
        cancels = CancelStore(state)
        asked = cancels.pending(REF)
        return asked is not None and cancels.withdraw(asked)

    withdrawn = []
    for state, accepted, taken_back in every_interruption(quick_path, ask_and_accept, withdraw):
        assert accepted != taken_back
        assert CancelStore(state).pending(REF) is None
        withdrawn.append(taken_back)
    assert any(withdrawn), "the other never came first"


def test_asking_again_does_no_harm(cancels: CancelStore) -> None:
    asked = [cancels.ask(REF, by="ana@studio", person=True, at=NOW) for _ in range(3)]
    assert len({one.id for one in asked}) == 3
    for _ in range(3):
        pending = cancels.pending(REF)
        assert pending is not None
        assert cancels.accept(pending)
    assert cancels.pending(REF) is None


def test_a_repeat_takes_nothing_from_what_the_first_one_said(cancels: CancelStore) -> None:
    first = cancels.ask(REF, by="ana@studio", person=True, at=NOW, reason="wrong prompt")
    cancels.ask(REF, by="ben@studio", person=True, at=NOW + timedelta(seconds=1))

    assert cancels.take_up(REF) == first
    assert cancels.take_up(REF) == first
    assert cancels.pending(REF) is None


@pytest.mark.parametrize("apart", [-1, 0, 1])
def test_a_reason_is_kept_whichever_of_two_gave_it(cancels: CancelStore, apart: int) -> None:
    cancels.ask(REF, by="ana@studio", person=True, at=NOW)
    # A clock that was set back in between makes the second the older one.
    at = NOW + timedelta(seconds=apart)
    cancels.ask(REF, by="ana@studio", person=True, at=at, reason="wrong prompt")

    for _ in range(2):
        taken = cancels.take_up(REF)
        assert taken is not None
        assert taken.reason == "wrong prompt"


def test_what_makes_way_for_a_newer_slot_takes_no_reason_from_a_person(
    cancels: CancelStore,
) -> None:
    newer = cancels.ask(REF, by="ana@studio", person=False, at=NOW, newer=slot("09:01").ref)
    cancels.ask(REF, by="ana@studio", person=True, at=NOW + timedelta(seconds=1), reason="no")

    assert cancels.with_reason(newer) == newer


def test_what_was_asked_of_a_settled_occurrence_goes(cancels: CancelStore) -> None:
    cancels.clear(REF)
    cancels.accept(cancels.ask(REF, by="ana@studio", person=True, at=NOW))
    cancels.ask(REF, by="ana@studio", person=True, at=NOW)
    cancels.clear(REF)
    assert cancels.folders() == []


def test_what_is_no_intent_is_passed_over(cancels: CancelStore, state: State) -> None:
    asked = cancels.ask(REF, by="ana@studio", person=True, at=NOW)
    (folder,) = Path(state.at("cancels")).iterdir()
    for name in (".DS_Store", "0000.json", "0001.tmp", "0002.json~"):
        (folder / name).write_text('{"by": "x"}')
    (folder / "0003.json").write_text("{")
    assert cancels.pending(REF) == asked
