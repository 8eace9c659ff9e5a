"""What becomes of slots when the clocks change: the rule of docs/concepts/time.md, by example."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from routines.domain.schedule import at, cron, rrule, slots_between
from routines.domain.schedule_remarks import note_for, remarks
from routines.domain.zones import local_text, zone

MINUTE = timedelta(minutes=1)
NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local_slots(expression: str, key: str, after: str, count: int) -> list[str]:
    """The next slots as a clock there shows them: `08 03:00 -04:00`, day first."""
    slots = islice(slots_between(cron(expression, key), utc(after), utc("9990-01-01")), count)
    texts = [local_text(slot, zone(key)).split() for slot in slots]
    return [f"{day} {clock} {offset}" for _, day, _, _, clock, offset in texts]


def test_daily_time_inside_the_spring_gap_fires_at_the_first_minute_after_it():  # BR-30
    assert local_slots("30 2 * * *", NEW_YORK, "2026-03-07T12:00", 2) == [
        "08 03:00 -04:00",
        "09 02:30 -04:00",
    ]
    # Its neighbour is not touched.
    assert local_slots("0 3 * * *", NEW_YORK, "2026-03-07T12:00", 2) == [
        "08 03:00 -04:00",
        "09 03:00 -04:00",
    ]


def test_each_look_inside_and_after_the_gap_finds_the_same_next_slot():  # BR-30
    schedule = cron("30 2 * * *", NEW_YORK)
    gap_end, following = utc("2026-03-08T07:00"), utc("2026-03-09T06:30")
    instant = utc("2026-03-07T07:30")
    while instant < following:
        assert schedule.next_after(instant) == (gap_end if instant < gap_end else following)
        instant += 7 * MINUTE


def test_several_skipped_times_are_one_slot():
    assert local_slots("0,15,30,45 2 * * *", NEW_YORK, "2026-03-08T05:00", 2) == [
        "08 03:00 -04:00",
        "09 02:00 -04:00",
    ]
    # 03:00 is named itself and the skipped 02:00 adds nothing to it.
    assert local_slots("0 2,3 * * *", NEW_YORK, "2026-03-08T05:00", 2) == [
        "08 03:00 -04:00",
        "09 02:00 -04:00",
    ]
    schedule = cron(["0 2 * * *", "30 2 * * *"], NEW_YORK)
    assert schedule.next_after(utc("2026-03-08T05:00")) == utc("2026-03-08T07:00")
    assert schedule.next_after(utc("2026-03-08T07:00")) == utc("2026-03-09T06:00")


@pytest.mark.parametrize(
    ("expression", "key", "asked", "answer"),
    [
        ("0 8 * * 0", "America/Chicago", "2026-03-08T05:45", "2026-03-08T13:00"),
        ("0 0 * * *", "Europe/Prague", "2026-03-28T23:30", "2026-03-29T22:00"),
        ("0 12 * * 0", "Europe/Berlin", "2026-03-26T11:00", "2026-03-29T10:00"),
        # And on the days of twenty-five hours.
        ("0 8 * * 0", "America/Chicago", "2026-11-01T04:45", "2026-11-01T14:00"),
        ("0 0 * * *", "Europe/Prague", "2026-10-24T22:30", "2026-10-25T23:00"),
    ],
)  # fmt: skip
def test_days_are_calendar_days_and_not_24_hours(expression, key, asked, answer):  # BR-31
    schedule = cron(expression, key)
    assert schedule.next_after(utc(asked)) == utc(answer)
    assert schedule.newest_at_or_before(utc(answer)) == utc(answer)


def test_daily_time_inside_the_repeated_autumn_hour_fires_once():  # BR-32
    schedule = cron("30 1 * * *", NEW_YORK)
    instant, seen = utc("2026-11-01T05:00"), set()
    while instant <= utc("2026-11-01T07:30"):
        seen.add(schedule.newest_at_or_before(instant))
        instant += MINUTE
    assert sorted(seen) == [utc("2026-10-31T05:30"), utc("2026-11-01T05:30")]
    # Asked in the middle of the second 01:30, as after a restart.
    assert schedule.next_after(utc("2026-11-01T06:15")) == utc("2026-11-02T06:30")
    assert not schedule.names(utc("2026-11-01T06:30"))


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        # In the hours 00 to 05 of a day: as usual, with a skipped hour, with a repeated one.
        ("30 * * * *", (6, 5, 7)),
        ("@hourly", (6, 5, 7)),
        ("*/20 0-5 * * *", (18, 15, 21)),
        ("* 0-5 * * *", (360, 300, 420)),
        ("0 */2 * * *", (3, 2, 3)),
        # Times that are fixed, if many: the skipped ones are one, the repeated ones come once.
        ("30 0-5 * * *", (6, 6, 6)),
        ("0-59 0-5 * * *", (360, 300, 360)),
    ],
)  # fmt: skip
def test_hours_on_the_days_of_change(expression, count):
    schedule = cron(expression, NEW_YORK)

    def between(after: str, until: str) -> int:
        start, end = utc(after) - MINUTE, utc(until) - MINUTE
        return len(list(slots_between(schedule, start, end)))

    usual = between("2026-03-07T05:00", "2026-03-07T11:00")
    spring = between("2026-03-08T05:00", "2026-03-08T10:00")
    autumn = between("2026-11-01T04:00", "2026-11-01T11:00")
    assert (usual, spring, autumn) == count


def test_an_hourly_routine_runs_24_23_and_25_times():
    schedule = cron("0 * * * *", "Europe/Berlin")
    days = [
        ("2026-07-01T22:00", "2026-07-02T22:00", 24),
        ("2026-03-28T23:00", "2026-03-29T22:00", 23),
        ("2026-10-24T22:00", "2026-10-25T23:00", 25),
    ]
    for start, end, count in days:
        found = list(slots_between(schedule, utc(start) - MINUTE, utc(end) - MINUTE))
        assert len(found) == count


def test_a_pattern_that_follows_the_clock_is_not_made_up_for():
    assert local_slots("*/15 2 * * *", NEW_YORK, "2026-03-07T12:00", 1) == ["09 02:00 -04:00"]
    assert local_slots("0 */2 * * *", NEW_YORK, "2026-03-08T05:00", 1) == ["08 04:00 -04:00"]


def test_half_an_hour_is_no_whole_one():  # BR-34
    hourly = cron("0 * * * *", "Australia/Lord_Howe")
    # 02:00 is skipped: the clock goes from 01:59 to 02:30.
    assert hourly.next_after(utc("2026-10-03T15:13")) == utc("2026-10-03T16:00")
    assert hourly.newest_at_or_before(utc("2026-10-03T15:59")) == utc("2026-10-03T14:30")
    assert not hourly.names(utc("2026-10-03T15:30"))

    quarter_to_two = cron("45 1 * * *", "Australia/Lord_Howe")
    found = slots_between(quarter_to_two, utc("2026-04-04T00:00"), utc("2026-04-05T16:00"))
    assert list(found) == [utc("2026-04-04T14:45"), utc("2026-04-05T15:15")]


def test_midnight_that_is_skipped_is_one_o_clock():
    assert local_slots("0 0 * * *", "Africa/Cairo", "2026-04-22T23:00", 2) == [
        "24 01:00 +03:00",
        "25 00:00 +03:00",
    ]
    assert local_slots("5 0 * * *", "Asia/Beirut", "2026-03-28T12:00", 1) == ["29 01:00 +03:00"]
    assert local_slots("0 0 * * *", "America/Santiago", "2026-09-05T12:00", 1) == [
        "06 01:00 -03:00"
    ]


def test_midnight_after_a_repeated_hour_comes_once():
    assert local_slots("0 0 * * *", "America/Santiago", "2026-04-04T12:00", 2) == [
        "05 00:00 -04:00",
        "06 00:00 -04:00",
    ]
    # The repeated hour of St John's began at 23:01 the day before.
    assert local_slots("30 23 * * *", "America/St_Johns", "2006-10-28T12:00", 2) == [
        "28 23:30 -02:30",
        "29 23:30 -03:30",
    ]


def test_a_day_that_is_left_out_is_not_made_up_for():
    assert local_slots("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00", 2) == [
        "29 09:00 -10:00",
        "31 09:00 +14:00",
    ]
    assert local_slots("0 9 * * 5", "Pacific/Apia", "2011-12-25T08:00", 1) == ["06 09:00 +14:00"]


def test_a_two_hour_change_is_made_up_for_like_any_other():
    assert local_slots("30 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00", 2) == [
        "29 03:00 +02:00",
        "30 01:30 +02:00",
    ]


def test_an_at_is_a_fixed_time():
    assert at("2027-03-28 02:30", "Europe/Berlin").slot == utc("2027-03-28T01:00")
    assert at("2026-10-25 02:30", "Europe/Berlin").slot == utc("2026-10-25T00:30")
    # With an offset there is nothing to decide.
    assert at("2026-10-25T02:30+01:00", "Europe/Berlin").slot == utc("2026-10-25T01:30")


def test_an_rrule_names_fixed_times():
    daily = rrule("DTSTART:20260101T023000 RRULE:FREQ=DAILY", "Europe/Berlin")
    assert daily.next_after(utc("2027-03-27T12:00")) == utc("2027-03-28T01:00")
    assert daily.next_after(utc("2027-03-28T01:00")) == utc("2027-03-29T00:30")
    assert daily.next_after(utc("2026-10-24T12:00")) == utc("2026-10-25T00:30")
    assert daily.next_after(utc("2026-10-25T00:30")) == utc("2026-10-26T01:30")
    assert daily.newest_at_or_before(utc("2026-10-25T01:30")) == utc("2026-10-25T00:30")
    lost = rrule("DTSTART:20111201T090000 RRULE:FREQ=DAILY", "Pacific/Apia")
    assert lost.next_after(utc("2011-12-29T19:00")) == utc("2011-12-30T19:00")
    assert lost.newest_at_or_before(utc("2011-12-30T12:00")) == utc("2011-12-29T19:00")


@pytest.mark.parametrize(
    ("expression", "slot", "note"),
    [
        ("30 2 * * *", "2027-03-28T01:00", "02:30 does not exist that day: the first minute after the gap"),
        ("0,30 2 * * *", "2027-03-28T01:00", "02:00 and 02:30 do not exist that day: the first minute after the gap"),
        ("0-59 2 * * *", "2027-03-28T01:00", "02:00 to 02:59 do not exist that day: the first minute after the gap"),
        ("30 2 * * *", "2027-03-29T00:30", None),
        # 03:00 is named and exists.
        ("0 2,3 * * *", "2027-03-28T01:00", None),
        ("0 * * * *", "2027-03-28T01:00", None),
        ("30 2 * * *", "2026-10-25T00:30", "02:30 comes twice that day: the first time"),
        ("30 * * * *", "2026-10-25T01:30", "02:30 comes twice that day: the second time"),
        ("30 * * * *", "2026-10-25T02:30", None),
    ],
)  # fmt: skip
def test_a_slot_that_a_change_has_to_do_with_has_a_note(expression, slot, note):
    schedule = cron(expression, "Europe/Berlin")
    assert schedule.names(utc(slot))
    assert note_for(schedule, utc(slot)) == note


def test_an_instant_with_an_offset_has_no_note():
    assert note_for(at("2027-03-28T01:00:00Z", "Europe/Berlin"), utc("2027-03-28T01:00")) is None
    assert note_for(at("2027-03-28 02:30", "Europe/Berlin"), utc("2027-03-28T01:00")) is not None


def test_check_says_when_a_fixed_time_meets_a_change_in_the_coming_year():
    now = utc("2026-11-29T12:00")
    assert remarks(cron("30 2 * * *", "Europe/Berlin"), now) == [
        (
            "02:30 does not exist on Sun 28 Mar 2027 in Europe/Berlin:"
            " it fires at Sun 28 Mar 2027 03:00 +02:00"
        ),
        (
            "02:30 comes twice on Sun 31 Oct 2027 in Europe/Berlin:"
            " it fires the first time, Sun 31 Oct 2027 02:30 +02:00"
        ),
    ]
    assert remarks(cron("30 * * * *", "Europe/Berlin"), now) == []
    assert remarks(cron("0 9 * * *", "Europe/Berlin"), now) == []
    assert remarks(cron("30 2 * * *", "UTC"), now) == []
    assert remarks(cron("30 2 * 6 *", "Europe/Berlin"), now) == []
    assert remarks(cron("0 9 * * *", "Pacific/Apia"), utc("2011-12-01T00:00")) == [
        "09:00 does not exist on Fri 30 Dec 2011 in Pacific/Apia: it is not made up for"
    ]
