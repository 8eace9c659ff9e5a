"""What becomes of a wake-up when it falls due (PROMISES W1, W3, W4)."""

from datetime import UTC, datetime, timedelta

import pytest

from routines.domain import schedule as schedules
from routines.domain.outcome import Reason
from routines.domain.wake_firing import (
    Fire,
    Passed,
    Skip,
    Wait,
    after_firing,
    due_instant,
    plan_busy,
    plan_firing,
)
from routines.domain.wakeup import Bounds, Timing, Wakeup
from routines.domain.zones import zone

BERLIN = zone("Europe/Berlin")
NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def later(**span):
    return NOON + timedelta(**span)


def one_shot(**changes):
    found = Wakeup(
        id="w-7k3m9q",
        session="routine:daily",
        prompt="look",
        timing=Timing.IN,
        asked="10m",
        schedule=None,
        tz="Europe/Berlin",
        next_at=NOON,
        asked_for=NOON,
        created_at=later(minutes=-10),
        created_by="w/daily@x",
    )
    return found.with_(**changes)


def half_hourly(**changes):
    spec = schedules.every(timedelta(minutes=30), anchor=NOON, tz="Europe/Berlin").spec()
    return one_shot(timing=Timing.EVERY, asked="30m", schedule=spec, **changes)


def plan(wakeup, now, fired=0):
    return plan_firing(wakeup, now=now, fired=fired, bounds=Bounds(), place=BERLIN)


MIDNIGHT = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wakeup", "now", "fired", "planned"),
    [
        # On time, and not a second before.
        (one_shot(), NOON - SECOND, 0, Wait(NOON)),
        (one_shot(), NOON, 0, Fire(NOON)),
        # BR-18: however far ahead, it waits for its instant.
        (one_shot(next_at=later(days=60)), NOON, 0, Wait(later(days=60))),
        # After an absence a one-shot fires once, late.
        (one_shot(), later(days=40), 0, Fire(NOON)),
        # A recurring one fires once, for its newest instant; the older ones are one range.
        (half_hourly(), NOON, 0, Fire(NOON)),
        (half_hourly(), later(minutes=29), 0, Fire(NOON)),
        (half_hourly(), later(minutes=30), 0, Fire(later(minutes=30), Passed(NOON, NOON, 1))),
        (
            half_hourly(),
            later(hours=2, minutes=1),
            0,
            Fire(later(hours=2), Passed(NOON, later(minutes=90), 4)),
        ),
        (
            half_hourly(),
            later(days=300),
            0,
            Fire(later(days=300), Passed(NOON, later(days=300, minutes=-30), 1002)),
        ),
        # Over the firings of its day.
        (one_shot(), NOON, 149, Fire(NOON)),
        (one_shot(), NOON, 150, Wait(MIDNIGHT, limit=True)),
        (half_hourly(), NOON, 150, Skip(NOON, Reason.LIMIT)),
        (
            half_hourly(),
            later(minutes=61),
            150,
            Skip(later(hours=1), Reason.LIMIT, Passed(NOON, later(minutes=30), 2)),
        ),
        # A one-shot that was put off until a day that is past by now.
        (one_shot(), later(days=3), 150, Wait(MIDNIGHT, limit=True)),
        # Deferred: looked at when its next try comes.
        (one_shot(try_at=later(seconds=30)), later(seconds=29), 0, Wait(later(seconds=30))),
        (one_shot(try_at=later(seconds=30)), later(seconds=30), 0, Fire(NOON)),
    ],
)
def test_what_is_due_is_planned(wakeup, now, fired, planned):
    if isinstance(planned, Fire) and planned.passed and planned.passed.count > 1000:
        found = plan(wakeup, now, fired)
        assert found.passed.count > 1000
        assert (found.instant, found.passed.first, found.passed.last) == (
            planned.instant,
            planned.passed.first,
            planned.passed.last,
        )
        return
    assert plan(wakeup, now, fired) == planned


def test_a_recurring_one_that_was_moved_to_the_next_day_is_not_due_before():
    moved = half_hourly(next_at=MIDNIGHT)
    assert plan(moved, later(hours=5)) == Wait(MIDNIGHT)
    assert plan(moved, MIDNIGHT) == Fire(MIDNIGHT)


def test_an_instant_that_the_schedule_no_longer_names_still_fires():
    # The rules of its zone have changed since: the newest instant by today's lies before it.
    odd = half_hourly(next_at=later(minutes=7))
    assert plan(odd, later(minutes=8)) == Fire(later(minutes=7))


DUE = Fire(NOON)


@pytest.mark.parametrize(
    ("wakeup", "now", "planned"),
    [
        # BR-24: busy is never a failure; a one-shot stays, a recurring one is skipped.
        (one_shot(), NOON, Wait(later(seconds=30))),
        (one_shot(deferred_since=NOON), later(minutes=59, seconds=59), Wait(later(minutes=60, seconds=29))),
        (one_shot(deferred_since=NOON), later(hours=1), Skip(NOON, Reason.BUSY)),
        # The hour counts from the first try, not from the instant.
        (one_shot(), later(days=2), Wait(later(days=2, seconds=30))),
        (one_shot(deferred_since=later(days=2)), later(days=2, minutes=30), Wait(later(days=2, minutes=30, seconds=30))),
        (half_hourly(), NOON, Skip(NOON, Reason.BUSY)),
    ],
)  # fmt: skip
def test_what_finds_its_session_busy_waits_or_is_skipped(wakeup, now, planned):
    assert plan_busy(wakeup, DUE, now=now) == planned


def test_a_skipped_firing_keeps_what_it_stood_for():
    due = Fire(later(hours=1), Passed(NOON, later(minutes=30), 2))
    assert plan_busy(half_hourly(), due, now=later(hours=1)) == Skip(
        later(hours=1), Reason.BUSY, due.passed
    )


# BR-13: whatever becomes of its firing, a one-shot is taken once.
def test_nothing_is_left_of_a_one_shot():
    assert after_firing(one_shot(), NOON, fired=True) is None
    assert after_firing(one_shot(), NOON, fired=False) is None


def test_a_recurring_one_moves_to_its_next_instant():
    found = after_firing(half_hourly(firings=3), later(hours=2), fired=True)
    assert (found.next_at, found.firings) == (later(hours=2, minutes=30), 4)
    assert after_firing(half_hourly(firings=3), NOON, fired=False).firings == 3
    assert found.digest != half_hourly().digest


def test_an_edit_of_the_clock_does_not_bring_an_instant_back():
    found = after_firing(half_hourly(), later(hours=2), fired=True)
    assert due_instant(found, later(hours=1)) is None
