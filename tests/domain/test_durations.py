from datetime import timedelta

import pytest

from routines.domain.durations import format_limit, format_span, humanize, parse_span
from routines.errors import InvalidSpan

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3600, 86400))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", 90 * SECOND),
        ("30m", 30 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1w2d3h4m5s", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND),
        ("30m1h", 90 * MINUTE),
        ("0s", 0 * SECOND),
        ("007m", 7 * MINUTE),
        (" 5m ", 5 * MINUTE),
        ("36600d", 36600 * DAY),
    ],
)  # fmt: skip
def test_a_span_is_numbers_with_units(text, span):
    assert parse_span(text) == span


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        # A bare number is asked for its unit.
        ("30", '"30s" or "30m"'),
        ("1.5", '"1.5s" or "1.5m"'),
        ("0", '"0s"'),
        # Anything else.
        ("", "1h30m"),
        ("h", "1h30m"),
        ("-5m", "1h30m"),
        ("+5m", "1h30m"),
        ("1.5h", "1h30m"),
        ("5 m", "1h30m"),
        ("5M", "1h30m"),
        ("5min", "1h30m"),
        ("5ms", "1h30m"),
        ("1y", "1h30m"),
        ("P1D", "1h30m"),
        ("٣m", "1h30m"),
        ("1h1h", "1h30m"),
        ("9" * 5000 + "s", "1h30m"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_a_hint(text, hint):
    with pytest.raises(InvalidSpan) as caught:
        parse_span(text)
    assert hint in caught.value.hint
    assert len(caught.value.message) < 200


def test_a_span_of_more_than_a_hundred_years_is_refused():
    with pytest.raises(InvalidSpan, match="hundred years"):
        parse_span("36601d")


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0 * SECOND, "0s"),
        (59 * SECOND, "59s"),
        (60 * SECOND, "1m"),
        (90 * MINUTE, "1h30m"),
        (DAY + SECOND, "1d1s"),
        (15 * DAY, "2w1d"),
    ],
)  # fmt: skip
def test_a_span_is_written_exactly_as_it_is_read(span, text):
    assert format_span(span) == text
    assert parse_span(text) == span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (0.999, "1s"), (0.001, "1s"), (59.01, "1m"), (0, "0s"), (-0.5, "0s")],
)
def test_what_is_left_of_a_limit_is_never_shown_as_less(seconds, text):
    assert format_limit(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("seconds", [1, 61, 3599, 3661, 86399, 90061, 604799, 694861, 10**9])
def test_writing_and_reading_a_span_is_the_identity(seconds):
    span = timedelta(seconds=seconds)
    assert parse_span(format_span(span)) == span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0 * SECOND, "0 s"),
        (SECOND / 2, "0 s"),
        (41 * SECOND, "41 s"),
        (60 * SECOND, "1 m"),
        (61 * SECOND, "1 m 1 s"),
        (HOUR + 59 * SECOND, "1 h"),
        (4 * HOUR + 12 * MINUTE + 30 * SECOND, "4 h 12 m"),
        (3 * DAY + 2 * HOUR + 59 * MINUTE, "3 d 2 h"),
        (2 * DAY + 59 * MINUTE, "2 d"),
        (117 * DAY, "117 d"),
        (-41 * SECOND, "41 s"),
        (-90 * MINUTE, "1 h 30 m"),
    ],
)  # fmt: skip
def test_a_person_reads_two_units_at_most(span, text):
    assert humanize(span) == text
