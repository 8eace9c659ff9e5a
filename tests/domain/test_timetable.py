"""When slots fall due: the slot, and a stable offset from it."""

from datetime import UTC, datetime, timedelta

import pytest

from routines.domain import schedule
from routines.domain.timetable import Timetable, offset_of

HOURLY = schedule.cron("0 * * * *", "UTC")
NINE = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_without_jitter_a_slot_falls_due_at_its_instant():
    assert offset_of("digest", NINE, timedelta(0)) == timedelta(0)


def test_offset_is_the_same_whoever_asks_and_whenever():
    first = offset_of("digest", NINE, HOUR)

    # Written down, so that another version or another hash would be seen.
    assert first == timedelta(seconds=2704)
    assert offset_of("digest", NINE, HOUR) == first


def test_offsets_of_many_slots_spread_over_the_whole_jitter():
    offsets = {offset_of("digest", NINE + HOUR * n, timedelta(seconds=9)) for n in range(500)}

    assert offsets == {timedelta(seconds=n) for n in range(10)}


def test_routines_with_one_schedule_fall_due_apart():
    offsets = {offset_of(f"routine {n}", NINE, HOUR) for n in range(100)}

    assert len(offsets) > 90


@pytest.mark.parametrize("jitter", [timedelta(0), timedelta(minutes=20), HOUR])
def test_slots_fall_due_in_their_order(jitter):
    table = Timetable("digest", HOURLY, jitter)
    due = [table.due_at(NINE + HOUR * n) for n in range(300)]

    assert due == sorted(due)


def test_slot_is_not_due_before_its_offset_has_passed():
    table = Timetable("digest", HOURLY, HOUR)
    due = table.due_at(NINE)

    assert table.newest_due(due - timedelta(seconds=1)) == NINE - HOUR
    assert table.newest_due(due) == NINE


def test_next_is_the_slot_that_has_passed_and_is_not_due_yet():
    table = Timetable("digest", HOURLY, HOUR)

    assert table.next_due(NINE) == table.due_at(NINE)
    assert table.next_due(table.due_at(NINE)) == table.due_at(NINE + HOUR)


def test_looking_from_each_due_instant_finds_every_slot_once():
    table = Timetable("digest", HOURLY, timedelta(minutes=59))
    now, found = NINE - HOUR, []
    for _ in range(48):
        now = table.next_due(now)
        found.append(table.newest_due(now))

    assert found == [found[0] + HOUR * n for n in range(48)]
