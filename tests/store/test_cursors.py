"""Where catching up may begin, and what was given up (PROMISES D6, D7, D11, L1)."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from routines.domain.outcome import Reason
from routines.store.cursors import CursorStore, Standing
from routines.store.state import State
from tests.builders import NOW, at, cursor, missed
from tests.store.interleave import every_interruption


@pytest.fixture
def store(state: State) -> CursorStore:
    return CursorStore(state)


def test_a_cursor_is_read_back_as_it_was_written(store: CursorStore) -> None:
    whole = cursor(standing=Standing.DISABLED, standing_at=NOW, by="ana@studio")
    for one in (cursor(), whole, cursor("tägliche Übersicht")):
        store.write(one)
        assert store.read(one.routine) == one
        assert store.peek(one.routine) == one
    assert sorted(one.routine for one in store.all()) == ["daily", "tägliche Übersicht"]


def test_a_routine_that_was_never_seen_has_no_cursor(store: CursorStore) -> None:
    assert store.read("daily") is None
    assert [*store.all()] == []


def test_of_two_that_see_a_routine_first_the_first_is_kept(store: CursorStore) -> None:
    first, second = cursor(), cursor(since=NOW + timedelta(hours=1))
    assert store.write_new([first]) == [first]
    assert store.write_new([second, cursor("weekly")]) == [cursor("weekly")]
    assert store.read("daily") == first


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"routine": "daily"}', "\0" * 9, '{"since": "2026-07-01T09:00:00"}']
)
def test_a_cursor_that_can_not_be_read_is_kept_aside_and_the_others_work_on(
    store: CursorStore, state: State, content: str
) -> None:
    store.write(cursor())
    store.write(cursor("weekly"))
    place = Path(state.at("cursors", "daily.json"))
    place.write_text(content)
    assert store.peek("daily") is None
    assert place.exists(), "looking changes nothing"
    assert store.read("daily") is None
    assert Path(f"{place}.corrupt").read_text() == content
    assert [one.routine for one in store.all()] == ["weekly"]
    store.write(cursor())
    assert store.read("daily") == cursor()


def test_a_counted_record_stays_as_it_was_first_written(store: CursorStore) -> None:
    first = store.give_up(missed(detail="first"))
    store.give_up(missed(detail="second"))
    assert first.path == "missed/daily/2026-07-01/2026-07-01T09-00-00Z.json"
    assert [one.detail for one in store.missed("daily")] == ["first"]
    assert store.is_given_up("daily", NOW)
    assert not store.is_given_up("daily", at("09:01"))
    assert not store.is_given_up("weekly", NOW)


def test_a_record_is_counted_later_in_the_same_place(store: CursorStore) -> None:
    store.give_up(missed())
    counted = missed(first=at("2026-06-29 09:00"), count=3, schedule={"cron": ["0 9 * * *"]})
    store.fill_in(counted)
    (found,) = store.missed("daily")
    assert (found.count, found.first, found.reason) == (3, counted.first, Reason.NO_SCHEDULER)


def test_records_come_newest_first_and_within_bounds(store: CursorStore) -> None:
    times = ["2026-06-30 09:00", "09:00", "09:01", "2026-07-02 09:00"]
    for time in times:
        store.give_up(missed(time))
    all_of_them = [one.last for one in store.missed("daily")]
    assert all_of_them == [at(time) for time in reversed(times)]
    bounded = store.missed("daily", since=at("09:00"), until=at("09:01"))
    assert [one.last for one in bounded] == [at("09:01"), at("09:00")]
    newest = store.newest_missed("daily", until=at("12:00"))
    assert newest is not None
    assert newest.last == at("09:01")
    assert store.newest_missed("weekly", until=at("12:00")) is None


def test_foreign_files_and_empty_folders_are_no_records(store: CursorStore, state: State) -> None:
    store.give_up(missed())
    folder = state.at("missed", "daily", "2026-07-01")
    for name in (
        ".DS_Store",
        "2026-07-01T10-00-00Z.json~",
        "notes.json",
        "2026-07-01T10-00-00Z.tmp",
    ):
        Path(folder, name).write_text("{}")
    Path(folder, "2026-07-01T11-00-00Z.json").write_text("{")
    os.makedirs(state.at("missed", "daily", "2026-07-09"))
    Path(state.at("missed", "daily", "zzz")).touch()
    assert [one.last for one in store.missed("daily")] == [NOW]


def test_two_that_give_up_one_slot_at_once_leave_one_record(quick_path: str) -> None:
    def give_up(detail: str):
        return lambda state: CursorStore(state).give_up(missed(detail=detail))

    for state, _, _ in every_interruption(quick_path, give_up("one"), give_up("other")):
        (found,) = CursorStore(state).missed("daily")
        assert found.detail in ("one", "other")
        assert os.listdir(state.at("missed", "daily", "2026-07-01")) == [
            "2026-07-01T09-00-00Z.json"
        ]
