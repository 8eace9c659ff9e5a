import json
import sys
import time as stopwatch
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from routines.domain.recurrence import Recurrence
from routines.domain.schedule import (
    at,
    count_between,
    cron,
    every,
    from_spec,
    has_ended,
    never_closer_than,
    rrule,
    shortest_gap,
    slots_between,
)
from routines.domain.schedule_remarks import remarks
from routines.errors import InvalidSchedule, InvalidZone

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR, DAY, SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def many_schedules():
    return [
        cron("*/15 * * * *", BERLIN),
        cron("0 9 * * 1-5", "America/New_York"),
        cron(["0 9 * * *", "30 17 * * 5L"], BERLIN),
        cron("@weekly", "UTC"),
        cron("0 0 29 2 *", "UTC"),
        cron("* * 29 2 *", BERLIN),
        every(timedelta(minutes=90), tz="UTC"),
        every(timedelta(weeks=2), anchor=utc("2026-01-05T09:00"), tz=BERLIN),
        at("2026-11-30 09:00", BERLIN),
        at("2026-11-30T09:00:00+05:30", BERLIN),
        rrule("DTSTART:20260130T090000\nRRULE:FREQ=MONTHLY;BYDAY=-1FR", BERLIN),
        rrule("DTSTART:20260105T093000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;COUNT=300", BERLIN),
        rrule("DTSTART:20260105T093000 FREQ=HOURLY;INTERVAL=5;UNTIL=20300101T000000Z", BERLIN),
    ]


@pytest.mark.parametrize("schedule", many_schedules(), ids=lambda schedule: schedule.text())
class TestEverySchedule:
    def test_next_is_strictly_later_and_newest_finds_it_again(self, schedule):
        instant, last = utc("2025-12-31T12:34:56"), None
        for slot in islice(slots_between(schedule, instant, utc("2080-01-01T00:00")), 100):
            assert slot > instant
            assert slot.tzinfo is UTC
            assert schedule.names(slot)
            assert not schedule.names(slot - SECOND)
            assert schedule.newest_at_or_before(slot) == slot
            assert schedule.newest_at_or_before(slot + SECOND) == slot
            if last is not None:
                assert schedule.newest_at_or_before(slot - SECOND) == last
            assert schedule.next_after(slot - SECOND / 2) == slot
            instant = last = slot
        assert last is not None

    def test_its_spec_is_json_and_makes_the_same_schedule_again(self, schedule):
        spec = json.loads(json.dumps(schedule.spec()))
        again = from_spec(spec)
        assert again == schedule
        assert again.spec() == spec
        assert spec["tz"] == schedule.zone_key

    def test_absurd_instants_have_an_answer_and_no_exception(self, schedule):
        instants = [
            datetime.min.replace(tzinfo=UTC),
            utc("0003-01-01T00:00"),
            utc("1800-06-01T12:00:30"),
            utc("9998-12-29T00:00"),
            utc("9999-06-01T00:00"),
            datetime.max.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC).astimezone(UTC),
        ]
        for instant in instants:
            slot, newest = schedule.next_after(instant), schedule.newest_at_or_before(instant)
            assert slot is None or slot > instant
            assert newest is None or newest <= instant
            schedule.names(instant)

    def test_the_ends_of_time_are_the_same_for_next_and_newest(self, schedule):
        last = schedule.newest_at_or_before(datetime.max.replace(tzinfo=UTC))
        if last is not None:
            assert schedule.next_after(last) is None
            assert schedule.next_after(last - SECOND) == last

    def test_an_instant_without_a_zone_is_a_mistake(self, schedule):
        with pytest.raises(ValueError, match="no time zone"):
            schedule.next_after(datetime(2026, 1, 1))

    def test_what_list_shows_is_one_short_line(self, schedule):
        assert "\n" not in schedule.text()


def test_what_list_shows():
    assert [schedule.text() for schedule in many_schedules()] == [
        "*/15 * * * *",
        "0 9 * * 1-5",
        "0 9 * * *; 30 17 * * 5L",
        "@weekly",
        "0 0 29 2 *",
        "* * 29 2 *",
        "every 1h30m",
        "every 2w from 2026-01-05T09:00:00Z",
        "at 2026-11-30 09:00",
        "at 2026-11-30T09:00:00+05:30",
        "rrule FREQ=MONTHLY;BYDAY=-1FR from 2026-01-30 09:00",
        "rrule FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;COUNT=300 from 2026-01-05 09:30",
        "rrule FREQ=HOURLY;INTERVAL=5;UNTIL=20300101T010000 from 2026-01-05 09:30",
    ]


# cron


def test_expressions_of_a_list_that_coincide_are_one_slot():
    schedule = cron(["0 9 * * *", "0 9 * * 1", "0 12 * * *"], "UTC")
    found = list(slots_between(schedule, utc("2026-11-30T00:00"), utc("2026-11-30T23:00")))
    assert found == [utc("2026-11-30T09:00"), utc("2026-11-30T12:00")]


def test_an_empty_list_is_refused():
    with pytest.raises(InvalidSchedule, match="empty"):
        cron([], "UTC")


def test_29_february_comes_and_has_come():  # BR-41
    schedule = cron("0 0 29 2 *", "UTC")
    assert schedule.next_after(utc("2026-01-01T00:00")) == utc("2028-02-29T00:00")
    assert schedule.newest_at_or_before(utc("2026-01-01T00:00")) == utc("2024-02-29T00:00")
    assert schedule.next_after(utc("2096-03-01T00:00")) == utc("2104-02-29T00:00")


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4 *", "* * 31 2,4,6,9,11 *"])
def test_a_day_that_never_comes_is_refused_within_milliseconds(expression):  # BR-41
    started = stopwatch.perf_counter()
    with pytest.raises(InvalidSchedule, match="never fires"):
        cron(expression, BERLIN)
    assert stopwatch.perf_counter() - started < 0.25


@pytest.mark.parametrize(
    ("expression", "slot"),
    [
        # Forty years: 29 February on a Monday, over 2100.
        ("0 0 * 2 1#5", "2112-02-29T00:00"),
        ("* * 29 2 */7", "2088-02-29T00:00"),
    ],
)  # fmt: skip
def test_the_rarest_days_are_found(expression, slot):
    schedule = cron(expression, "UTC")
    assert schedule.next_after(utc("2072-03-01T00:00")) == utc(slot)
    assert schedule.newest_at_or_before(utc(slot) + timedelta(minutes=0)) == utc(slot)


def test_a_slot_belongs_to_the_zone_it_was_read_in():  # BR-36
    in_utc, in_shanghai = cron("30 14 * * *", "UTC"), cron("30 14 * * *", "Asia/Shanghai")
    edited = utc("2026-11-29T03:00")
    assert in_utc.spec() != in_shanghai.spec()
    assert in_shanghai.next_after(edited) == utc("2026-11-29T06:30")
    assert in_utc.next_after(edited) == utc("2026-11-29T14:30")


def test_an_unknown_zone_is_refused_by_every_kind():  # BR-37
    for make in (
        lambda: cron("0 9 * * *", "UTC+8"),
        lambda: every(HOUR, tz=""),
        lambda: at("2026-11-30 09:00", "europe/berlin"),
        lambda: rrule("DTSTART:20260105T090000 RRULE:FREQ=DAILY", "../x"),
    ):
        with pytest.raises(InvalidZone):
            make()


# every


def test_every_is_counted_from_1970_on_every_machine():
    schedule = every(timedelta(hours=7), tz="UTC")
    assert schedule.next_after(utc("1970-01-01T00:00")) == utc("1970-01-01T07:00")
    assert schedule.names(utc("1970-01-01T00:00") + 100_000 * timedelta(hours=7))


def test_every_starts_with_its_anchor_and_has_nothing_before_it():
    schedule = every(timedelta(weeks=2), anchor=utc("2027-01-04T09:00"), tz=BERLIN)
    assert schedule.next_after(NOW) == utc("2027-01-04T09:00")
    assert schedule.newest_at_or_before(NOW) is None
    assert schedule.next_after(utc("2027-01-04T09:00")) == utc("2027-01-18T09:00")


def test_no_change_of_the_clock_touches_every():
    schedule = every(HOUR, tz=BERLIN)
    assert count_between(schedule, utc("2026-10-24T22:00"), utc("2026-10-25T22:00")) == 24


@pytest.mark.parametrize(
    ("period", "anchor", "reason"),
    [
        (timedelta(seconds=59), None, "too often"),
        (timedelta(0), None, "too often"),
        (timedelta(days=-1), None, "too often"),
        (timedelta(seconds=60.5), None, "whole seconds"),
        (HOUR, datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "whole seconds"),
        (HOUR, datetime(1, 1, 1, tzinfo=UTC), "out of reach"),
    ],
)  # fmt: skip
def test_every_refuses(period, anchor, reason):
    with pytest.raises(InvalidSchedule, match=reason):
        every(period, anchor=anchor, tz="UTC")


# at


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("2026-11-30 09:00", "2026-11-30T08:00"),
        ("2026-11-30T09:00:30", "2026-11-30T08:00:30"),
        ("2026-11-30T09:00:00Z", "2026-11-30T09:00"),
        ("2026-11-30 09:00-05:00", "2026-11-30T14:00"),
    ],
)  # fmt: skip
def test_at_names_one_instant(text, slot):
    schedule = at(text, BERLIN)
    assert schedule.slot == utc(slot)
    assert schedule.next_after(utc(slot) - SECOND) == utc(slot)
    assert schedule.next_after(utc(slot)) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("09:00", 'cron: "0 9 * * *"'),
        ("9:30", 'cron: "30 9 * * *"'),
        ("2026-11-30", '"2026-11-30 09:00"'),
        ("tomorrow", '"2026-11-30 09:00"'),
        ("2026-02-30 09:00", '"2026-11-30 09:00"'),
        ("2026-11-30 24:00", '"2026-11-30 09:00"'),
        ("2026-11-30T09:00:00.5Z", '"2026-11-30 09:00"'),
        ("2026-W48-1T09:00", '"2026-11-30 09:00"'),
        ("٢٠٢٦-11-30 09:00", '"2026-11-30 09:00"'),
        ("", '"2026-11-30 09:00"'),
    ],
)  # fmt: skip
def test_what_is_no_instant_is_refused_with_what_was_probably_meant(text, hint):
    with pytest.raises(InvalidSchedule) as caught:
        at(text, BERLIN)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text", ["2011-12-30 09:00", "0001-01-01 00:00", "9999-12-31T23:59:59-12:00"]
)
def test_an_instant_that_no_clock_shows_is_refused(text):
    with pytest.raises(InvalidSchedule):
        at(text, "Pacific/Apia")


def test_two_spellings_of_an_instant_are_one_schedule():
    assert at("2026-11-30T09:00:00", BERLIN) == at(" 2026-11-30 09:00 ", BERLIN)
    assert at("2026-11-30T09:00z", BERLIN) == at("2026-11-30 09:00:00+00:00", BERLIN)


# rrule


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY",
        "FREQ=YEARLY;INTERVAL=3;BYMONTH=2,11;BYDAY=-1SU",
        "FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=MO",
        "FREQ=YEARLY;BYYEARDAY=-1,100",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=MONTHLY",
        "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=-1",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "FREQ=WEEKLY",
        "FREQ=WEEKLY;INTERVAL=3;BYDAY=TU,SU;WKST=SU",
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=MO",
        "FREQ=DAILY;INTERVAL=9",
        "FREQ=DAILY;BYMONTH=1;BYHOUR=6,18",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=DAILY;BYHOUR=6,18;BYSETPOS=2",
        "FREQ=HOURLY;BYYEARDAY=1,366",
        "FREQ=HOURLY;BYMONTH=12;BYMONTHDAY=-1",
        "FREQ=HOURLY;INTERVAL=7",
        "FREQ=HOURLY;INTERVAL=5;BYHOUR=3,9,21",
        "FREQ=HOURLY;BYMONTHDAY=13;BYDAY=FR",
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", ["20200229T093015", "20210131T234500", "20220814T000000"])
def test_a_rule_asked_anywhere_agrees_with_dateutil_walking_from_its_start(rule, start):
    from dateutil.rrule import rrulestr

    plain = list(rrulestr(f"{rule};UNTIL=20380101T000000", dtstart=datetime.fromisoformat(start)))
    moved = Recurrence(datetime.fromisoformat(start), rule)
    step = max(1, len(plain) // 40)
    for index in range(0, len(plain) - 1, step):
        wall, following = plain[index], plain[index + 1]
        for asked in (wall, wall + (following - wall) / 2, following - SECOND):
            assert moved.after(asked) == following
            assert moved.at_or_before(asked.replace(microsecond=0)) == wall
    assert moved.at_or_before(plain[0] - SECOND) is None


def test_a_rule_with_count_ends():
    schedule = rrule("DTSTART:20260105T090000 RRULE:FREQ=WEEKLY;COUNT=3", BERLIN)
    assert list(slots_between(schedule, NOW - 400 * DAY, NOW + 4000 * DAY)) == [
        utc("2026-01-05T08:00"),
        utc("2026-01-12T08:00"),
        utc("2026-01-19T08:00"),
    ]
    assert has_ended(schedule, NOW)
    assert schedule.newest_at_or_before(NOW) == utc("2026-01-19T08:00")


def test_until_in_utc_is_read_on_the_clock_of_the_zone():
    schedule = rrule("DTSTART:20260105T090000 RRULE:FREQ=DAILY;UNTIL=20260110T080000Z", BERLIN)
    assert schedule.newest_at_or_before(NOW) == utc("2026-01-10T08:00")
    assert schedule.next_after(NOW) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("RRULE:FREQ=DAILY", "no DTSTART"),
        ("DTSTART:20260105T090000", "no RRULE"),
        ("", "no DTSTART"),
        ("DTSTART:20260105 RRULE:FREQ=DAILY", "no date with a time"),
        ("DTSTART:20260230T090000 RRULE:FREQ=DAILY", "DTSTART"),
        ("DTSTART:20260105T090000Z RRULE:FREQ=DAILY", "ends in Z"),
        ("DTSTART;TZID=Asia/Tokyo:20260105T090000 RRULE:FREQ=DAILY", "another zone"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY EXDATE:20260106T090000", "has no place"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY RRULE:FREQ=DAILY", "has no place"),
        ("DTSTART:20260105T090000 RRULE:FREQ=MINUTELY", "hourly at the finest"),
        ("DTSTART:20260105T090000 RRULE:FREQ=SECONDLY", "hourly at the finest"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYSECOND=0,30", "hourly at the finest"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYMINUTE=0,30", "hourly at the finest"),
        ("DTSTART:20260105T090000 RRULE:FREQ=FORTNIGHTLY", "unknown"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;COUNT=10001", "between 1 and 10000"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;COUNT=0", "between 1 and"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;INTERVAL=0", "between 1 and"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;INTERVAL=²", "between 1 and"),
        ("DTSTART:20260105T090000 RRULE:FREQ=YEARLY;INTERVAL=11", "between 1 and 10"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;COUNT=3;UNTIL=20270101T000000", "exclude"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;UNTIL=20270101", "no date with a time"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;FREQ=DAILY", "twice"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYDAY=2MO", "needs FREQ=MONTHLY"),
        ("DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYDAY=XX", "no weekday"),
        ("DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYDAY=0MO", "no weekday"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYMONTH=13", "between 1 and 12"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYHOUR=-1", "between 0 and 23"),
        ("DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYWEEKNO=5", "needs FREQ=YEARLY"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;X-NAME=1", "not part of a rule"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYEASTER=1", "not part of a rule"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYDAY=", "no value"),
        ("DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", "never comes"),
        ("DTSTART:20260105T090000 RRULE:FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", "never comes"),
        ("DTSTART:20260105T090000 RRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=10", "never comes"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;UNTIL=20250101T000000", "never comes"),
        ("DTSTART:20260105T090000 RRULE:FREQ=DAILY;" + "BYHOUR=" + "1," * 600, "characters"),
    ],
)  # fmt: skip
def test_a_rule_is_refused_with_its_reason(text, reason):
    with pytest.raises(InvalidSchedule) as caught:
        rrule(text, BERLIN)
    assert reason in caught.value.message
    assert caught.value.field == "rrule"


def test_a_start_that_names_the_zone_of_the_routine_is_read():
    named = rrule("DTSTART;TZID=Europe/Berlin:20260105T090000\nRRULE:FREQ=DAILY", BERLIN)
    assert named == rrule("DTSTART:20260105T090000\nRRULE:FREQ=DAILY", BERLIN)
    assert rrule("DTSTART:20260105T090000Z RRULE:FREQ=DAILY", "UTC").names(utc("2026-01-05T09:00"))


# Cost


def calls(question) -> int:
    """How many Python functions are called to answer."""
    count = 0

    def counter(frame, event, arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counter)
    try:
        question()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("schedule", "most"),
    [
        (cron("* * * * *", BERLIN), 50),
        (cron("0 9 * * *", BERLIN), 50),
        (cron("0 9 * * 1", BERLIN), 100),
        (cron("0 0 29 2 *", BERLIN), 1000),
        # Follows the clock, so that each stretch between two changes is looked at.
        (cron("* * 29 2 */7", BERLIN), 6000),
        (every(timedelta(minutes=1), tz="UTC"), 20),
        (rrule("DTSTART:19700101T090000 RRULE:FREQ=DAILY", BERLIN), 500),
        (rrule("DTSTART:19700101T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR", BERLIN), 2000),
    ],
    ids=lambda value: value if isinstance(value, int) else value.text(),
)  # fmt: skip
def test_the_newest_slot_costs_no_more_after_a_long_absence(schedule, most):
    now = utc("2071-06-15T03:00")
    # Once to warm the table of changes.
    schedule.newest_at_or_before(now)
    schedule.next_after(now)
    assert calls(lambda: schedule.newest_at_or_before(now)) < most
    assert calls(lambda: schedule.next_after(now)) < most


def test_counts_are_exact_up_to_a_bound_and_say_more_beyond():
    schedule = cron("* * * * *", "UTC")
    start = utc("2026-01-01T00:00")
    assert count_between(schedule, start, start) == 0
    assert count_between(schedule, start, start + HOUR) == 60
    assert count_between(schedule, start, start + timedelta(minutes=1000)) == 1000
    assert count_between(schedule, start, start + 3650 * DAY) == 1001
    assert count_between(schedule, start, start + HOUR, most=10) == 11


def test_slots_between_leaves_out_its_start_and_holds_its_end():
    schedule = cron("0 * * * *", "UTC")
    found = list(slots_between(schedule, utc("2026-01-01T01:00"), utc("2026-01-01T03:00")))
    assert found == [utc("2026-01-01T02:00"), utc("2026-01-01T03:00")]


# What can be said about the whole


@pytest.mark.parametrize(
    ("expressions", "gap"),
    [
        ("* * * * *", "1m"),
        ("*/10 * * * *", "10m"),
        # The first pair is half an hour apart; over the hour it is five minutes.
        ("0,30,55 * * * *", "5m"),
        ("*/45 * * * *", "15m"),
        ("0 0,23 * * *", "60m"),
        # Over midnight.
        ("55 23 * * *", "1440m"),
        (["55 23 * * *", "0 0 * * *"], "5m"),
        # Over midnight only where the days are neighbours.
        (["55 23 14 * *", "0 0 15 * *"], "5m"),
        (["55 23 15 * *", "0 0 15 * *"], "1435m"),
        # Over the end of a month, of February, of a year.
        (["55 23 31 12 *", "0 0 1 1 *"], "5m"),
        (["58 23 28 2 *", "0 0 1 3 *"], "2m"),
        (["0 9 * * 1", "5 9 * * 2"], "1445m"),
        ("0 0 1 * *", "40320m"),
    ],
)  # fmt: skip
def test_the_shortest_gap_is_that_of_the_whole_pattern(expressions, gap):
    schedule, minutes = cron(expressions, BERLIN), int(gap[:-1])
    span = timedelta(minutes=minutes)
    assert shortest_gap(schedule) == span
    assert never_closer_than(schedule, span)
    assert not never_closer_than(schedule, span + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        (every(timedelta(minutes=7), tz="UTC"), timedelta(minutes=7)),
        (at("2026-11-30 09:00", BERLIN), None),
        (rrule("DTSTART:20260105T090000 RRULE:FREQ=HOURLY;INTERVAL=3", BERLIN), 3 * HOUR),
        (rrule("DTSTART:20260105T090000 RRULE:FREQ=DAILY;BYHOUR=1,23", BERLIN), 2 * HOUR),
        (rrule("DTSTART:20260105T090000 RRULE:FREQ=DAILY;INTERVAL=3", BERLIN), 3 * DAY),
        (rrule("DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYMONTHDAY=1,2", BERLIN), DAY),
    ],
)  # fmt: skip
def test_the_shortest_gap_of_other_schedules(schedule, gap):
    assert shortest_gap(schedule) == gap
    assert never_closer_than(schedule, timedelta(minutes=7))


def test_only_what_can_end_has_ended():
    assert not has_ended(cron("0 0 29 2 *", "UTC"), NOW)
    assert not has_ended(every(HOUR, tz="UTC"), NOW)
    assert not has_ended(at("2026-11-30 09:00", BERLIN), NOW)
    assert has_ended(at("2026-11-29 09:00", BERLIN), NOW)


def test_check_says_how_two_day_fields_are_read():
    assert remarks(cron("0 9 13 * 5", "UTC"), NOW) == [
        (
            "day and weekday are both set, so either one is enough; next Fri 04 Dec 2026 09:00 +00:00,"
            " Fri 11 Dec 2026 09:00 +00:00, Sun 13 Dec 2026 09:00 +00:00"
        )
    ]
    both = remarks(cron("0 9 */3 * 1", "UTC"), NOW)[0]
    assert both.startswith(
        "day and weekday are both set and one begins with '*', so both must match"
    )
    assert remarks(cron("0 9 13 * *", "UTC"), NOW) == []


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        (
            "*/45 * * * *",
            ("minute */45 starts over with each hour: after 45 comes 0, which is not 45 later;"
            " next Sun 29 Nov 2026 12:45 +00:00, Sun 29 Nov 2026 13:00 +00:00"),
        ),
        (
            "0 */5 * * *",
            ("hour */5 starts over with each day: after 20 comes 0, which is not 5 later;"
            " next Sun 29 Nov 2026 20:00 +00:00, Mon 30 Nov 2026 00:00 +00:00"),
        ),
        (
            "0 0 */2 * *",
            ("day */2 starts over with each month: after 31 comes 1, which is not 2 later;"
            " next Thu 31 Dec 2026 00:00 +00:00, Fri 01 Jan 2027 00:00 +00:00"),
        ),
        (
            "*/90 * * * *",
            ("minute */90 is the same as 0: the step is longer than the hour; next"
            " Sun 29 Nov 2026 13:00 +00:00, Sun 29 Nov 2026 14:00 +00:00, Sun 29 Nov 2026 15:00 +00:00"),
        ),
    ],
)  # fmt: skip
def test_check_says_when_a_step_does_not_divide_its_range(expression, remark):
    assert remarks(cron(expression, "UTC"), NOW) == [remark]


@pytest.mark.parametrize(
    "expression", ["*/15 * * * *", "5/20 * * * *", "0 */6 * * *", "0 0 1 */3 *", "0-30/7 9 * * *"]
)
def test_a_step_that_divides_its_range_needs_no_remark(expression):
    assert remarks(cron(expression, "UTC"), NOW) == []


def test_remarks_on_a_list_say_which_expression_they_mean():
    found = remarks(cron(["0 9 * * *", "*/45 * * * *"], "UTC"), NOW)
    assert [remark.split(": ")[0] for remark in found] == ["*/45 * * * *"]


@pytest.mark.parametrize(
    "spec",
    [{}, {"cron": "0 9 * * *", "tz": "UTC"}, {"cron": ["0 9 * * *"]}, {"in": "5m", "tz": "UTC"}],
)
def test_a_spec_that_no_schedule_wrote_is_refused(spec):
    with pytest.raises(InvalidSchedule, match="no schedule"):
        from_spec(spec)
