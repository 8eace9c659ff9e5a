"""Cancels, signs of life and switches (PROMISES L17, L19, L20, D5 to D7)."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from routines.store import files, locks
from routines.store.control import CancelStore, SchedulerStore, SwitchStore
from routines.store.state import State
from tests.builders import NOW, scheduler, slot
from tests.store.crash import Tell, in_child
from tests.store.interleave import every_interruption

REF = slot().ref


@pytest.fixture
def cancels(state: State) -> CancelStore:
    return CancelStore(state)


@pytest.fixture
def schedulers(state: State) -> SchedulerStore:
    return SchedulerStore(state)


# Cancels ---------------------------------------------------------------------------------------


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


# Signs of life ---------------------------------------------------------------------------------


def alive(schedulers: SchedulerStore) -> list[tuple[str, bool | None]]:
    return [(one.id, held) for one, held in schedulers.live()]


def test_a_scheduler_shows_itself_until_it_leaves(schedulers: SchedulerStore) -> None:
    whole = scheduler(
        armed={"daily": "ab12"},
        path="/usr/bin",
        programs={"claude": "2.1"},
        sleeps=((NOW, NOW + timedelta(hours=1)),),
    )
    fd = schedulers.enter(whole)
    held = True if locks._OFD_GETLK is not None else None
    assert [*schedulers.live()] == [(whole, held)]
    later = scheduler(beat_at=NOW + timedelta(seconds=15))
    schedulers.beat(later)
    assert [one for one, _ in schedulers.live()] == [later]
    ended = scheduler(ended_at=NOW + timedelta(seconds=20), why="stopped")
    schedulers.leave(ended, fd)
    assert alive(schedulers) == []
    assert [*schedulers.past()] == [ended]


def test_the_death_of_a_scheduler_is_seen_by_its_lock(schedulers: SchedulerStore) -> None:
    def enter_and_die(tell: Tell) -> None:
        schedulers.enter(scheduler("dies"))

    in_child(enter_and_die)
    free = False if locks._OFD_GETLK is not None else None
    assert alive(schedulers) == [("dies", free)]
    schedulers.leave(scheduler("dies", why="lost"), None)
    assert alive(schedulers) == []
    assert [one.why for one in schedulers.past()] == ["lost"]


def test_those_that_ended_come_newest_first_and_foreign_files_are_nothing(
    schedulers: SchedulerStore, state: State
) -> None:
    for hours in (1, 30, 2):
        ended = NOW + timedelta(hours=hours)
        schedulers.leave(scheduler(str(hours), ended_at=ended, why="stopped"), None)
    for folder in ("live", "past/2026-07-01"):
        os.makedirs(state.at("schedulers", folder), exist_ok=True)
        Path(state.at("schedulers", folder, "torn.json")).write_text("{")
        Path(state.at("schedulers", folder, ".DS_Store")).write_text("")
    Path(state.at("schedulers", "past", "zzz")).touch()
    assert [one.id for one in schedulers.past()] == ["30", "2", "1"]
    assert alive(schedulers) == []


def test_a_beat_costs_no_sync(schedulers: SchedulerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = schedulers.enter(scheduler())

    def refuse(fd: int) -> None:
        pytest.fail("a heartbeat waited for the disk")

    monkeypatch.setattr(files.Calls, "fsync", staticmethod(refuse))
    schedulers.beat(scheduler())
    locks.let_go(fd)


# Switches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "{", "[]", '{"by": "x"}', "\0\0"])
def test_a_switch_that_can_not_be_read_pauses_nothing(state: State, content: str) -> None:
    switches = SwitchStore(state)
    assert switches.read("daily") is None
    os.makedirs(state.at("switches"))
    Path(state.at("switches", "daily.json")).write_text(content)
    assert switches.read("daily") is None
