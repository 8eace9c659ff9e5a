from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from routines.domain.when import parse_when, read_date_time, read_time
from routines.errors import InvalidWhen

BERLIN = ZoneInfo("Europe/Berlin")
# Sunday, 15:30 in Berlin.
NOW = datetime(2026, 11, 29, 14, 30, 20, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def when(text: str, *, past: bool = True, zone: ZoneInfo = BERLIN, now: datetime = NOW) -> datetime:
    return parse_when(text, zone=zone, now=now, past=past)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        # RFC 3339 means itself, whatever the zone.
        ("2026-11-29T03:00:00Z", "2026-11-29T03:00"),
        ("2026-11-29t03:00:00z", "2026-11-29T03:00"),
        ("2026-11-29T03:00:00-05:00", "2026-11-29T08:00"),
        ("2026-11-29 03:00+01:00", "2026-11-29T02:00"),
        ("2026-11-29T03:00:00.250000Z", "2026-11-29T03:00:00.250000"),
        # Without an offset it is read in the zone.
        ("2026-11-29 03:00", "2026-11-29T02:00"),
        ("2026-11-29T03:00:30", "2026-11-29T02:00:30"),
        ("  2026-11-29   03:00 ", "2026-11-29T02:00"),
        ("2026-07-01 03:00", "2026-07-01T01:00"),
        # A day is its first instant.
        ("2026-11-29", "2026-11-28T23:00"),
        ("yesterday", "2026-11-27T23:00"),
        ("yesterday 03:00", "2026-11-28T02:00"),
        ("Yesterday 3:00", "2026-11-28T02:00"),
        ("today 03:00", "2026-11-29T02:00"),
        ("today 23:00", "2026-11-29T22:00"),
        ("tomorrow 03:00", "2026-11-30T02:00"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("past", [True, False])
def test_a_date_with_a_time_is_the_same_for_past_and_future(text, instant, past):
    assert when(text, past=past) == utc(instant)


@pytest.mark.parametrize(
    ("text", "latest", "coming"),
    [
        ("03:00", "2026-11-29T02:00", "2026-11-30T02:00"),
        ("15:30", "2026-11-29T14:30", "2026-11-30T14:30"),
        ("15:31", "2026-11-28T14:31", "2026-11-29T14:31"),
        ("15:30:20", "2026-11-29T14:30:20", "2026-11-30T14:30:20"),
        ("15:30:21", "2026-11-28T14:30:21", "2026-11-29T14:30:21"),
        ("0:00", "2026-11-28T23:00", "2026-11-29T23:00"),
    ],
)  # fmt: skip
def test_a_bare_time_is_its_latest_passing_or_its_next_coming(text, latest, coming):
    assert when(text, past=True) == utc(latest)
    assert when(text, past=False) == utc(coming)


@pytest.mark.parametrize(
    ("text", "past", "instant"),
    [
        ("18h", True, "2026-11-28T20:30:20"),
        ("90s", True, "2026-11-29T14:28:50"),
        ("1h30m ago", True, "2026-11-29T13:00:20"),
        ("2h", False, "2026-11-29T16:30:20"),
        ("in 2h", False, "2026-11-29T16:30:20"),
    ],
)  # fmt: skip
def test_a_span_is_ago_for_the_past_and_from_now_for_the_future(text, past, instant):
    assert when(text, past=past) == utc(instant)


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        # Skipped: the first instant after the gap. Twice: the first coming.
        ("2027-03-28 02:30", "Europe/Berlin", "2027-03-28T01:00"),
        ("2026-10-25 02:30", "Europe/Berlin", "2026-10-25T00:30"),
        # The day began at 01:00.
        ("2026-04-24", "Africa/Cairo", "2026-04-23T22:00"),
    ],
)  # fmt: skip
def test_times_at_a_change_of_the_clock_are_fixed_times(text, zone, instant):
    assert when(text, zone=ZoneInfo(zone)) == utc(instant)


@pytest.mark.parametrize(
    ("now", "latest", "coming"),
    [
        # Between the two comings of 02:30 on 25 October: the latest was the first.
        ("2026-10-25T00:45", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("2026-10-25T01:45", "2026-10-25T00:30", "2026-10-26T01:30"),
        # In the gap's last minute, and at its end.
        ("2027-03-28T00:59", "2027-03-27T01:30", "2027-03-28T01:00"),
        ("2027-03-28T01:00", "2027-03-28T01:00", "2027-03-29T00:30"),
    ],
)  # fmt: skip
def test_a_bare_time_at_a_change_of_the_clock(now, latest, coming):
    assert when("02:30", past=True, now=utc(now)) == utc(latest)
    assert when("02:30", past=False, now=utc(now)) == utc(coming)


def test_a_bare_time_passes_over_a_day_that_is_left_out():
    apia, now = ZoneInfo("Pacific/Apia"), utc("2011-12-30T11:00")
    assert when("09:00", zone=apia, now=now, past=True) == utc("2011-12-29T19:00")
    assert when("09:00", zone=apia, now=now, past=False) == utc("2011-12-30T19:00")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "2026-11-29 03:00"),
        ("noon", "2026-11-29 03:00"),
        ("30", '"30m"'),
        ("1.5", '"1.5m"'),
        ("25:00", "03:00"),
        ("03:60", "03:00"),
        ("yesterday noon", "03:00"),
        ("2026-02-30", "2026-11-29 03:00"),
        ("2026-02-30 03:00", "2026-11-29 03:00"),
        ("2026-11-29T03:00:00+99:00", "2026-11-29 03:00"),
        ("20261129T0300", "2026-11-29 03:00"),
        ("2026-W48-7", "2026-11-29 03:00"),
        ("29.11.2026 03:00", "2026-11-29 03:00"),
        ("２０２６-11-29", "2026-11-29 03:00"),
        ("9999-12-31T23:59:59Z", "2026-11-29 03:00"),
        ("0001-01-01T00:00:00+14:00", "2026-11-29 03:00"),
        ("-5m", "18h"),
        ("5y", "18h"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_examples(text, hint):
    with pytest.raises(InvalidWhen) as caught:
        when(text)
    assert hint in caught.value.hint


def test_a_day_that_no_clock_shows_is_refused():
    with pytest.raises(InvalidWhen, match="no clock in Pacific/Apia ever shows"):
        when("2011-12-30 09:00", zone=ZoneInfo("Pacific/Apia"))


def test_the_readers_tell_apart_what_is_written_otherwise():
    assert read_date_time("09:00") is None
    assert read_date_time("2026-11-30 09:00").tzinfo is None
    assert read_date_time("2026-11-30 09:00Z").tzinfo is not None
    assert read_time("2026-11-30 09:00") is None
    assert read_time("24:00") is None
