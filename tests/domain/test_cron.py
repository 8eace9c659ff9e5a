from datetime import date, datetime

import pytest

from routines.domain.cron import ALIASES, LONGEST_EXPRESSION, parse_cron
from routines.errors import InvalidSchedule


def ints(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("5", "5"),
        ("5,7,5", "5 7"),
        ("5-8", "5 6 7 8"),
        # One value, not the whole field as croniter reads it.
        ("5-5", "5"),
        ("*/20", "0 20 40"),
        ("10/20", "10 30 50"),
        ("10-40/15", "10 25 40"),
        ("59/15", "59"),
        ("*/90", "0"),
        # Wrapped.
        ("58-1", "58 59 0 1"),
        ("50-10/7", "50 57 4"),
        ("007", "7"),
    ],
)  # fmt: skip
def test_minutes(text, minutes):
    assert parse_cron(f"{text} * * * *").minutes == tuple(sorted(ints(minutes)))


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("0", "0"),
        ("7", "0"),
        ("1-5", "1 2 3 4 5"),
        ("mon-fri", "1 2 3 4 5"),
        ("FRI-Mon", "5 6 0 1"),
        ("5-7", "5 6 0"),
        ("7-2", "0 1 2"),
        ("0-7", "0 1 2 3 4 5 6"),
        ("fri-sun", "5 6 0"),
        ("sun", "0"),
        ("7/2", "0"),
        ("6/1", "6"),
        ("5-1/2", "5 0"),
        ("*/2", "0 2 4 6"),
    ],
)  # fmt: skip
def test_weekdays(text, weekdays):
    assert parse_cron(f"0 0 * * {text}").weekdays == set(ints(weekdays))


def test_hours_and_months_wrap_too():
    assert parse_cron("0 22-2 * * *").hours == (0, 1, 2, 22, 23)
    assert parse_cron("0 22-2/2 * * *").hours == (0, 2, 22)
    assert parse_cron("0 0 1 11-2 *").months == (1, 2, 11, 12)
    assert parse_cron("0 0 1 oct-Feb/2 *").months == (2, 10, 12)
    assert parse_cron("0 0 30-2 * *").days == {30, 31, 1, 2}


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_expression_in_any_case_and_keeps_its_name(alias):
    fields, meant = parse_cron(f" {alias.upper()} "), parse_cron(ALIASES[alias])
    assert (fields.minutes, fields.hours, fields.months) == (
        meant.minutes,
        meant.hours,
        meant.months,
    )
    assert (fields.days, fields.weekdays) == (meant.days, meant.weekdays)
    assert fields.text == alias.upper()


def test_blanks_and_tabs_are_one_blank():
    assert parse_cron("\t0   9 * *\t* ").text == "0 9 * * *"


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        # Either is enough if both are set ...
        ("0 0 13 11 5", [6, 13, 20, 27]),
        ("0 0 1-2 11 0", [1, 2, 8, 15, 22, 29]),
        # ... and both must match as soon as one begins with '*'.
        ("0 0 */2 11 1", [9, 23]),
        ("0 0 13 11 */5", [13]),
        ("0 0 *,13 11 1", [2, 9, 16, 23, 30]),
        ("0 0 13 11 *", [13]),
        ("0 0 * 11 5", [6, 13, 20, 27]),
        # Last and n-th.
        ("0 0 L 11 *", [30]),
        ("0 0 1,L 11 *", [1, 30]),
        ("0 0 * 11 5L", [27]),
        ("0 0 * 11 L5", [27]),
        ("0 0 * 11 friL", [27]),
        ("0 0 * 11 1L", [30]),
        ("0 0 * 11 5#2", [13]),
        ("0 0 * 11 fri#2", [13]),
        ("0 0 * 11 7#1", [1]),
        ("0 0 * 11 0#5", [29]),
        ("0 0 * 11 5#5", []),
        ("0 0 * 11 1,5#2", [2, 9, 13, 16, 23, 30]),
    ],
)  # fmt: skip
def test_days_of_november_2026(expression, days):  # BR-42
    fields = parse_cron(expression)
    assert [n for n in range(1, 31) if fields.on(date(2026, 11, n))] == days


@pytest.mark.parametrize(
    ("expression", "follows"),
    [
        ("* * * * *", True),
        ("*/15 2 * * *", True),
        ("30 */2 * * *", True),
        ("0 * * * *", True),
        ("@hourly", True),
        ("0 0-23 * * *", False),
        ("0-59 2 * * *", False),
        ("0 9 * * *", False),
        ("@daily", False),
    ],
)  # fmt: skip
def test_a_minute_or_hour_field_that_begins_with_a_star_follows_the_clock(expression, follows):
    assert parse_cron(expression).follows_clock is follows


REFUSED = [
    # How many fields.
    ("", None, "empty"),
    ("   ", None, "empty"),
    ("5 4 * *", None, "4 fields"),
    ("0 0 9 * * *", None, "6 fields"),
    ("0 0 9 * * * 2026", None, "7 fields"),
    ("0 9 * * * 0 17 * * *", None, "10 fields"),
    # Characters.
    ("\uff10 \uff19 * * *", None, "does not belong"),
    ("0 \u0669 * * *", None, "does not belong"),
    ("0\u00a09 * * *", None, "does not belong"),
    ("0 9 * * *\n0 17 * * *", None, "does not belong"),
    ("0 9 * * \u2013", None, "does not belong"),
    ("0 9 * * " + "1," * 150 + "1", None, "309 characters"),
    # Other tools' words.
    ("@reboot", None, "names no time"),
    ("@every 5m", None, "is no cron"),
    ("@dayly", None, "no alias"),
    ("0 9 ? * *", "day", "Quartz"),
    ("0 9 * * ?", "weekday", "Quartz"),
    ("0 9 15W * *", "day", "nearest weekday"),
    ("0 10 LW * *", "day", "nearest weekday"),
    ("0 9 L-2 * *", "day", "days before the last"),
    ("0 9 * * L", "weekday", "'L' alone"),
    ("H 9 * * *", "minute", "Jenkins"),
    ("H(0-7) 9 * * *", "minute", "Jenkins"),
    ("0 H/2 * * *", "hour", "Jenkins"),
    ("R 9 * * *", "minute", "random"),
    ("L 9 * * *", "minute", "'l' is no minute"),
    ("5#2 9 * * *", "minute", "for weekdays alone"),
    # Relative days beside others: no two crons agree.
    ("0 0 13 * 5#2", "weekday", "can't stand beside"),
    ("0 0 */2 * 5L", "weekday", "can't stand beside"),
    ("0 0 L * 5", "day", "can't stand beside"),
    ("0 0 L * 5#2", "weekday", "can't stand beside"),
    # Numbers.
    ("60 * * * *", "minute", "not between 0 and 59"),
    ("0 24 * * *", "hour", "not between 0 and 23"),
    ("0 0 0 * *", "day", "not between 1 and 31"),
    ("0 0 32 * *", "day", "not between 1 and 31"),
    ("0 0 1 13 *", "month", "not between 1 and 12"),
    ("0 0 1 0 *", "month", "not between 1 and 12"),
    ("0 0 * * 8", "weekday", "not between 0 and 7"),
    ("0 0 * * 5#6", "weekday", "no such week"),
    ("0 0 * * 5#0", "weekday", "no such week"),
    ("0 0 * * 5#2-3", "weekday", "no such week"),
    ("9" * 200 + " * * * *", "minute", "is no minute"),
    ("+5 * * * *", "minute", "is no minute"),
    ("1_0 * * * *", "minute", "is no minute"),
    ("5.5 * * * *", "minute", "is no minute"),
    # Steps and ranges.
    ("*/0 * * * *", "minute", "step 0"),
    ("*/ * * * *", "minute", "is no step"),
    ("*/x * * * *", "minute", "is no step"),
    ("1/2/3 * * * *", "minute", "is no step"),
    ("5- * * * *", "minute", "lacks an end"),
    ("-5 * * * *", "minute", "lacks an end"),
    ("1-2-3 * * * *", "minute", "is no minute"),
    ("*-5 * * * *", "minute", "is no minute"),
    ("*5 * * * *", "minute", "is no minute"),
    ("1,,2 * * * *", "minute", "empty place"),
    (", * * * *", "minute", "empty place"),
    # Names.
    ("0 0 * * monday", "weekday", "written out"),
    ("0 0 1 january *", "month", "written out"),
    ("0 0 * * mo", "weekday", "is no weekday"),
    ("0 mon * * *", "hour", "is no hour"),
    ("0 0 * mon *", "month", "is no month"),
    ("0 0 wed * *", "day", "is no day"),
    # Days that never come. BR-41
    ("0 0 30 2 *", "day", "never fires"),
    ("0 0 31 4 *", "day", "never fires"),
    ("0 0 31 2,4,6,9,11 *", "day", "never fires"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "field", "reason"), REFUSED)
def test_everything_else_is_refused_naming_field_and_reason(expression, field, reason):  # BR-42
    with pytest.raises(InvalidSchedule) as caught:
        parse_cron(expression)
    assert reason in caught.value.message
    assert caught.value.field == field
    if field is not None and "never" not in reason:
        assert caught.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("0 9 * *", "write '0 9 * * *'"),
        ("0 0 9 * * *", "no seconds and no years"),
        ("@every 5m", "`every: 5m`"),
        ("@dayly", "'@daily'"),
        ("0 9 ? * *", "write '*'"),
        ("0 0 * * monday", "write 'mon'"),
        ("0 24 * * *", "midnight is 0"),
        ("0 0 32 * *", "`L`"),
        ("0 9 * * *, 0 17 * * *", "as a list"),
        ("0 9 * * * 0 17 * * *", "as a list"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_write_instead(expression, hint):
    with pytest.raises(InvalidSchedule) as caught:
        parse_cron(expression)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("expression", "day"),
    [
        ("0 0 29 2 *", date(2028, 2, 29)),
        # Twenty-eight years apart, or forty over 2100: rare is not never.
        ("0 0 29 2 */7", date(2032, 2, 29)),
        ("0 0 30 2 1", date(2026, 2, 2)),
        ("0 0 * 2 1#5", date(2044, 2, 29)),
    ],
)  # fmt: skip
def test_rare_days_are_not_refused(expression, day):  # BR-41
    first = parse_cron(expression).after(datetime(2026, 1, 1))
    assert first.date() == day


def test_the_longest_expression_is_read():
    text = "0 9 * * " + ",".join(["1"] * 124)
    assert len(text) == LONGEST_EXPRESSION - 1
    assert parse_cron(text).weekdays == {1}
