"""The signs of life that schedulers give (PROMISES L19, D7)."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from routines.store import files, locks
from routines.store.schedulers import SchedulerStore
from routines.store.state import State
from tests.builders import NOW, scheduler
from tests.store.crash import Tell, in_child


@pytest.fixture
def schedulers(state: State) -> SchedulerStore:
    return SchedulerStore(state)


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
