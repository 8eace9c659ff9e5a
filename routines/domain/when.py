"""WHEN as a person types it: an instant, a day, a time of day, or how long ago."""

import re
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from routines.domain.durations import parse_span
from routines.domain.zones import EARLIEST, LATEST, as_utc, instant_of, shown
from routines.errors import InvalidSpan, InvalidWhen

# Patterns are compiled when the first WHEN is read: most commands have none.
_DATE_TIME = (
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[ Tt]"
    r"(?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?) ?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?"
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_EXAMPLES = 'write it like "2026-11-29 03:00", 03:00, "yesterday 03:00" or 2026-11-29T03:00:00Z'
# A date that a clock in some zone skips whole is followed by one that it does not.
_DAYS_NEAR = 2


def read_date_time(text: str) -> datetime | None:
    """Return the date with a time that *text* names: aware if it has an offset, else naive.

    None if it is written otherwise; ValueError if it is written so and no clock can show it.
    """
    parts = re.fullmatch(_DATE_TIME, text.strip())
    if parts is None:
        return None
    offset = (parts["offset"] or "").upper().replace("Z", "+00:00")
    return datetime.fromisoformat(f"{parts['date']}T{parts['time']}{offset}")


def read_time(text: str) -> time | None:
    """Return the time of day that *text* names, or None if it names something else."""
    if not re.fullmatch(_TIME, text.strip()):
        return None
    try:
        hour, minute, second = (int(part) for part in f"{text.strip()}:0".split(":")[:3])
        return time(hour, minute, second)
    except ValueError:
        return None


def names_a_day(text: str) -> bool:
    """Return whether *text* names a day and no time of it: its first instant is what is read."""
    words = text.strip().lower()
    return words in _DAYS or re.fullmatch(_DATE, words) is not None


def parse_when(text: str, *, zone: ZoneInfo, now: datetime, past: bool) -> datetime:
    """Return the instant that *text* names, aware UTC.

    RFC 3339, `2026-11-29 03:00`, `2026-11-29` (its first instant), `03:00`, `yesterday 03:00`, or
    a span. What has no offset is read in *zone*; a time that the clock skips is the first instant
    after the gap, one that comes twice its first coming.

    Args:
        text: As it was typed.
        zone: Where times without an offset are meant.
        now: The present instant.
        past: Whether what is meant has been: then a bare time is its latest passing and a span
            is ago. Otherwise a bare time is its next coming and a span is from now.

    Raises:
        InvalidWhen: It is something else, or no clock in *zone* ever shows it.
    """
    words = " ".join(text.split())
    now = as_utc(now)
    try:
        return _read(words, zone, now, past=past)
    except (ValueError, OverflowError) as error:
        raise InvalidWhen(f"{text[:60]!r} is no time: {error}", hint=_EXAMPLES) from error


def _read(words: str, zone: ZoneInfo, now: datetime, *, past: bool) -> datetime:
    if (named := read_date_time(words)) is not None:
        return _shown_at(named, words, zone) if named.tzinfo is None else _bounded(named)
    if re.fullmatch(_DATE, words):
        return _shown_at(datetime.combine(date.fromisoformat(words), time()), words, zone)
    if re.fullmatch(_TIME, words):
        return _nearest(_time(words), zone, now, past=past)
    day, _, clock = words.lower().partition(" ")
    if day in _DAYS:
        of_day = shown(now, zone).date() + timedelta(days=_DAYS[day])
        return _shown_at(datetime.combine(of_day, _time(clock or "00:00")), words, zone)
    return _apart(words, now, past=past)


def _time(words: str) -> time:
    clock = read_time(words)
    if clock is None:
        raise InvalidWhen(f"{words[:60]!r} is no time of day", hint="write it like 03:00")
    return clock


def _shown_at(wall: datetime, words: str, zone: ZoneInfo) -> datetime:
    instant = instant_of(wall, zone)
    if instant is None:
        raise InvalidWhen(
            f"no clock in {zone.key} ever shows {words}",
            hint="that day is left out there; name another one, or write an offset",
        )
    return instant


def _bounded(instant: datetime) -> datetime:
    utc = as_utc(instant)
    if not EARLIEST <= utc <= LATEST:
        raise InvalidWhen(f"the year {instant.year} is out of reach", hint=_EXAMPLES)
    return utc


def _nearest(clock: time, zone: ZoneInfo, now: datetime, *, past: bool) -> datetime:
    today = shown(now, zone).date()
    days = range(-_DAYS_NEAR, _DAYS_NEAR + 1)
    comings = [
        instant
        for day in days
        if (instant := instant_of(datetime.combine(today + timedelta(days=day), clock), zone))
    ]
    if past:
        return max(instant for instant in comings if instant <= now)
    return min(instant for instant in comings if instant > now)


def _apart(words: str, now: datetime, *, past: bool) -> datetime:
    span = words.removesuffix(" ago") if past else words.removeprefix("in ")
    try:
        length = parse_span(span)
    except InvalidSpan as error:
        if span.replace(".", "").isdigit():
            raise InvalidWhen(error.message, hint=error.hint) from error
        raise InvalidWhen(
            f"{words[:60]!r} is no time", hint=f"{_EXAMPLES}, or a span: 18h"
        ) from error
    return now - length if past else now + length
