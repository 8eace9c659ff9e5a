"""Schedules against an oracle that walks real time and never computes: see oracle.py."""

import random
from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from routines.domain.schedule import cron
from tests.domain.oracle import MINUTE, Window, names_day, utc

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

# One change of the clock each, at that UTC time.
CHANGES = [
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Europe/Berlin", "2027-03-28T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("Europe/London", "2026-03-29T01:00"),
    ("Europe/Dublin", "2026-10-25T01:00"),
    # Half an hour.
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    # At midnight: the day begins at 01:00, or 23:00 comes again.
    ("Africa/Cairo", "2026-04-23T22:00"),
    ("Africa/Cairo", "2026-10-29T21:00"),
    ("Asia/Beirut", "2026-03-28T22:00"),
    ("Asia/Beirut", "2026-10-24T21:00"),
    ("America/Santiago", "2026-09-06T04:00"),
    ("America/Santiago", "2026-04-05T03:00"),
    # Two hours.
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
    # One minute past midnight: the repeated hour lies in the day before.
    ("America/St_Johns", "2006-04-02T03:31"),
    ("America/St_Johns", "2006-10-29T02:31"),
    # A day left out, a day and a zone later; and one that came twice.
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Pacific/Kwajalein", "1993-08-21T12:00"),
    ("Pacific/Kwajalein", "1969-09-30T13:00"),
    # Steps that are no summer time.
    ("Asia/Pyongyang", "2015-08-14T15:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("America/Caracas", "2007-12-09T07:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Africa/Casablanca", "2026-03-22T02:00"),
    # None at all.
    ("UTC", "2026-12-31T23:00"),
    ("Asia/Kolkata", "2026-03-08T07:00"),
]
PATTERNS, BASES = 14, 10


def _item(rng: random.Random, lowest: int, highest: int) -> str:
    one, other = rng.randint(lowest, highest), rng.randint(lowest, highest)
    step = rng.randint(1, max(2, (highest - lowest) // 2))
    return rng.choice(
        [str(one), str(one), f"{one}-{other}", f"{one}-{other}/{step}", f"{one}/{step}"]
    )


def _field(rng: random.Random, lowest: int, highest: int, *, star: float, most: int = 3) -> str:
    if rng.random() < star:
        return rng.choice(["*", "*", f"*/{rng.randint(2, highest)}"])
    return ",".join(_item(rng, lowest, highest) for _ in range(rng.randint(1, most)))


def _days(rng: random.Random) -> tuple[str, str]:
    kind = rng.random()
    if kind < 0.6:
        return "*", "*"
    if kind < 0.7:
        return "*", rng.choice(["1#1", "sun#5", "5L", "0,3#2", "fri-mon", "5-7", "7", "mon-fri"])
    if kind < 0.75:
        return rng.choice(["L", "1,L", "28-3"]), "*"
    return _field(rng, 1, 31, star=0.5), _field(rng, 0, 7, star=0.5)


def _expression(rng: random.Random, *, near: int) -> str:
    """An expression, often with an hour near the change: elsewhere nothing can go wrong."""
    hour = _field(rng, 0, 23, star=0.25)
    if rng.random() < 0.5:
        hour = rng.choice([str(near), str((near + 1) % 24), f"{(near - 2) % 24}-{(near + 1) % 24}"])
    minute = _field(rng, 0, 59, star=0.25)
    day, weekday = _days(rng)
    return f"{minute} {hour} {day} * {weekday}"


def _bases(rng: random.Random, window: Window, slots: list[datetime], change: datetime):
    first, last = window.first + 2 * DAY, window.last - DAY
    near = [slot for slot in slots if abs(slot - change) < DAY]
    for n in range(BASES):
        if near and n < 6:
            yield rng.choice(near) + rng.choice([-MINUTE, -SECOND, 0 * SECOND, SECOND, MINUTE])
        elif n < 8:
            yield change + rng.randint(-5400, 5400) * SECOND
        else:
            yield first + rng.random() * (last - first)


@pytest.mark.parametrize(("key", "at"), CHANGES)
def test_next_and_newest_agree_with_a_walk_through_real_time(key, at):
    rng = random.Random(f"{key} {at}")
    place, change = ZoneInfo(key), utc(at)
    window = Window(place, change - 3 * DAY, change + 3 * DAY)
    near = (change - MINUTE).astimezone(place).hour
    for _ in range(PATTERNS):
        expression = _expression(rng, near=near)
        schedule = cron(expression, key)
        slots = window.slots(expression)
        for base in _bases(rng, window, slots, change):
            said = f"{expression!r} {key} {base.isoformat()}"
            index = bisect_right(slots, base)
            if index < len(slots):
                assert schedule.next_after(base) == slots[index], said
            else:
                assert schedule.next_after(base) > window.last, said
            # In the first two days a repeated wall time might have been shown before the window.
            if index and slots[index - 1] > window.first + 2 * DAY:
                assert schedule.newest_at_or_before(base) == slots[index - 1], said
            elif not index:
                newest = schedule.newest_at_or_before(base)
                assert newest is None or newest < window.first, said


def test_the_oracle_windows_hold_the_change_they_are_named_after():
    for key, at in CHANGES[:-2]:
        place, change = ZoneInfo(key), utc(at)
        before, after = (
            (change + step).astimezone(place).utcoffset() for step in (-SECOND, 0 * DAY)
        )
        assert before != after, f"{key} does not change at {at}"
    assert len(CHANGES) * PATTERNS * BASES >= 3000


@pytest.mark.parametrize("seed", range(4))
def test_days_agree_with_a_look_at_every_day_of_seventy_years(seed):
    rng = random.Random(seed)
    every_day = [date(1990, 1, 1) + n * DAY for n in range(71 * 365)]
    for _ in range(10):
        day, weekday = _days(rng)
        expression = f"0 0 {day} {_field(rng, 1, 12, star=0.3)} {weekday}"
        schedule = cron(expression, "UTC")
        days = [d for d in every_day if names_day(expression, d)]
        for _ in range(12):
            base = rng.choice(every_day[365:-3650])
            instant = datetime(base.year, base.month, base.day, rng.randint(0, 23), tzinfo=UTC)
            index = bisect_right(days, base)
            if index < len(days):
                assert schedule.next_after(instant).date() == days[index], expression
            if index:
                assert schedule.newest_at_or_before(instant).date() == days[index - 1], expression


@pytest.mark.parametrize("seed", range(8))
def test_next_and_newest_never_contradict_each_other(seed):
    rng = random.Random(1000 + seed)
    keys = sorted({key for key, _ in CHANGES} | {"Africa/Monrovia", "Europe/Amsterdam"})
    for _ in range(60):
        expressions = [_expression(rng, near=rng.randint(0, 23)) for _ in range(rng.randint(1, 2))]
        schedule = cron(expressions, rng.choice(keys))
        # 1850 to 2150: offsets with seconds, and years that no table of changes reaches.
        instant = datetime(1850, 1, 1, tzinfo=UTC) + rng.random() * timedelta(days=300 * 365)
        last = schedule.newest_at_or_before(instant)
        for _ in range(5):
            slot = schedule.next_after(instant)
            said = f"{expressions} {schedule.zone_key} {instant.isoformat()}"
            assert slot > instant, said
            assert slot.tzinfo is UTC, said
            assert slot.microsecond == 0, said
            assert schedule.names(slot), said
            assert not schedule.names(slot + SECOND / 2), said
            assert schedule.newest_at_or_before(slot - SECOND) == last, said
            assert schedule.next_after(slot - SECOND) == slot, said
            if last is not None:
                assert schedule.next_after(last) == slot, said
            instant = last = slot
