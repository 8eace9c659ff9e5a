"""The four ways to give a time, `in`, `at`, `every` and `cron`: read leniently, bounded exactly."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain import schedule as schedules
from routines.domain.durations import format_span, parse_span
from routines.domain.outcome import one_line
from routines.domain.wake_words import now_text
from routines.domain.wakeup import Bounds, Timing
from routines.domain.when import names_a_day, parse_when, read_date_time
from routines.domain.zones import second_from, shown, zone
from routines.errors import InvalidSchedule, InvalidSpan, InvalidWhen, InvalidZone, WakeupRefused

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
NOTHING = "Nothing was scheduled."


def quoted(value: Any) -> str:
    """Return what somebody wrote, bounded and in one line."""
    return one_line(str(value), most=60)


def refused(message: str, hint: str | None = None) -> WakeupRefused:
    """Return a refusal that says that nothing was scheduled."""
    return WakeupRefused(f"{message} {NOTHING}", hint=hint)


def is_given(value: Any) -> bool:
    """Return whether an argument was meant: models fill in every one that a schema has."""
    return value is not None and str(value).strip() != ""


def checked_zone(tz: Any, default: str) -> str:
    """Return the key of the zone *tz*, or *default* if none is given."""
    if not is_given(tz):
        return default
    try:
        return zone(str(tz).strip()).key
    except InvalidZone as error:
        raise refused(f'tz "{quoted(tz)}": {error.message}.', sentence(error.hint)) from error


def sentence(hint: str | None) -> str | None:
    """Return *hint* as a sentence."""
    return None if not hint else f"{hint[0].upper()}{hint[1:]}{'' if hint[-1] in '.?!' else '.'}"


_UNIT_WORDS = {
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "w": "w wk wks week weeks",
}
_UNITS = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_WORDED_PART = re.compile(r"([0-9]{1,9}) ?([a-z]+)(?: ?(?:,|and) ?| |(?=[0-9])|$)", re.ASCII)
_ISO_SPAN = re.compile(
    r"p(?:(?P<w>[0-9]{1,9})w)?(?:(?P<d>[0-9]{1,9})d)?"
    r"(?:t(?:(?P<h>[0-9]{1,9})h)?(?:(?P<m>[0-9]{1,9})m)?(?:(?P<s>[0-9]{1,9})s)?)?",
    re.ASCII,
)
_NUMBER = r"[0-9]+(\.[0-9]+)?"
_MOST_DIGITS = 9
_HOURS, _MINUTES = 24, 60
_MINUTE = timedelta(minutes=1)
_MINUTES_LEFT_OUT = re.compile(r"([0-9]+ ?h(?:ours?|rs?)?) ?([0-9]{1,2})", re.ASCII)


def read_span(text: str) -> timedelta:
    """Return the span that *text* names, also as people and models write it.

    `10m` and what else `parse_span` reads, `10 minutes`, `1 hour and 30 min`, `1h30`, `PT10M`.

    Raises:
        InvalidSpan: It is something else.
    """
    words = " ".join(text.lower().split()).removeprefix("in ")
    if (iso := _ISO_SPAN.fullmatch(words)) and any(iso.groups()):
        return parse_span("".join(f"{n}{unit}" for unit, n in iso.groupdict().items() if n))
    if left_out := _MINUTES_LEFT_OUT.fullmatch(words):
        words = f"{left_out[1]} {left_out[2]}m"
    parts, at = [], 0
    while at < len(words):
        part = _WORDED_PART.match(words, at)
        if part is None or part[2] not in _UNITS:
            return parse_span(text)
        parts.append(f"{part[1]}{_UNITS[part[2]]}")
        at = part.end()
    return parse_span("".join(parts))


def _checked_span(timing: Timing, asked: str, least: timedelta, most: timedelta) -> timedelta:
    name = timing.value
    try:
        return read_span(asked)
    except InvalidSpan as error:
        if re.fullmatch(_NUMBER, asked, re.ASCII):
            instead = _with_units(asked, least, most)
            raise WakeupRefused(
                f'{name} "{quoted(asked)}": {quoted(asked)} what? {NOTHING} {instead}'
            ) from error
        raise refused(
            f'{name} "{quoted(asked)}" is no span of time.',
            f'Ask again with {name}="30m", "2h30m" or "1d".',
        ) from error


def _with_units(number: str, least: timedelta, most: timedelta) -> str:
    """Return what the number may have meant, as far as it would be allowed."""
    # More digits are beyond the most in any unit.
    count = float(number) if len(number) <= _MOST_DIGITS else 10.0**_MOST_DIGITS
    meant: dict[timedelta, list[str]] = {}
    for unit, seconds in {"s": 1, "m": 60, "h": 3600}.items():
        if count * seconds <= most.total_seconds():
            span = timedelta(seconds=int(count * seconds))
            usual = format_span(span)
            written = f"{int(count)}{unit}" if count == int(count) else usual
            # `600s` is `10m`: with both it is plain which of them was meant.
            meant[span] = [written, usual] if unit == "s" and usual != written else [written]
    allowed = [words for span, words in meant.items() if span >= least]
    if not meant:
        return f'The most is "{most // _DAY}d".'
    if not allowed:
        return f'The least is "{format_span(least)}".'
    if len(allowed) == 1 and len(allowed[0]) == 1:
        return f'Write "{allowed[0][0]}"; the least is "{format_span(least)}".'
    one, other, *_ = [word for words in allowed for word in words]
    return f'Write "{one}" or "{other}".'


def _later(least: str, *, can_wait: bool) -> str:
    """Return what to do about a time that is too near."""
    if can_wait:
        return f'Wait within this turn, or ask again with in="{least}".'
    return f'Ask again with in="{least}".'


def checked_in(asked: str, now: datetime, bounds: Bounds, *, can_wait: bool) -> datetime:
    """Return the instant that `in` means, or refuse it."""
    span = _checked_span(Timing.IN, asked, bounds.ahead, bounds.furthest)
    least = format_span(bounds.ahead)
    if span < bounds.ahead:
        raise refused(
            f'in "{quoted(asked)}" is too soon; the shortest is {least}.',
            _later(least, can_wait=can_wait),
        )
    if span > bounds.furthest:
        raise _too_far(Timing.IN, asked, bounds)
    return second_from(now + span)


def _too_far(timing: Timing, asked: str, bounds: Bounds) -> WakeupRefused:
    days = bounds.furthest // _DAY
    return refused(
        f'{timing.value} "{quoted(asked)}" is too far ahead; the most is {days} days.',
        f'Ask again with in="{days}d", and let that turn set the next one.',
    )


def checked_at(
    asked: str, now: datetime, bounds: Bounds, place: ZoneInfo, *, can_wait: bool
) -> datetime:
    """Return the instant that `at` means, or refuse it."""
    try:
        instant = second_from(parse_when(asked, zone=place, now=now, past=False))
    except InvalidWhen as error:
        if re.fullmatch(_NUMBER, asked, re.ASCII):
            raise refused(f'at "{quoted(asked)}" is no time.', _time_like(asked)) from error
        raise refused(
            f'at "{quoted(asked)}": {error.message}.',
            'Write it like at="2026-11-30T09:00" or at="09:00", or ask with in="10m".',
        ) from error
    said = f'at "{quoted(asked)}"'
    named = read_date_time(asked)
    if named is not None and named.tzinfo is not None:
        # With an offset of its own it can't be compared with the clock beside it at a glance.
        said += f" ({now_text(instant, place)})"
    if instant <= now:
        instead = _next_like(asked, instant, now, bounds, place)
        raise refused(f"{said} is past: it is {now_text(now, place)}.", instead)
    if instant < now + bounds.ahead:
        least = format_span(bounds.ahead)
        raise refused(
            f"{said} is too soon: it is {now_text(now, place)}; the shortest is {least} ahead.",
            _later(least, can_wait=can_wait),
        )
    if instant > now + bounds.furthest:
        raise _too_far(Timing.AT, asked, bounds)
    return instant


def _time_like(number: str) -> str:
    """Return how to write the instant that a bare number may have meant."""
    if number.isdigit() and len(number) <= 2 and int(number) < _HOURS:  # noqa: PLR2004
        return f'Write at="{int(number):02}:00" for that time of day, or in="10m" for a span.'
    return 'Write it like at="2026-11-30T09:00" or at="09:00", or ask with in="10m".'


def _next_like(
    asked: str, instant: datetime, now: datetime, bounds: Bounds, place: ZoneInfo
) -> str:
    """Return the words to ask with for the next coming of the same time of day."""
    clock, today = shown(instant, place).time(), shown(now, place).date()
    if names_a_day(asked):
        # Nobody who names a day means midnight: there is no time of day to repeat.
        return (
            "A day alone is its first moment. Write the time too, like"
            f' at="{today + _DAY:%Y-%m-%d}T09:00", or ask with in="10m".'
        )
    coming = datetime.combine(today, clock)
    word = "today"
    if coming < shown(now, place) + bounds.ahead:
        coming, word = coming + _DAY, "tomorrow"
    return f'For {word}: at="{coming:%Y-%m-%dT%H:%M}".'


def checked_every(
    asked: str, anchor: datetime, bounds: Bounds, place: ZoneInfo
) -> schedules.Schedule:
    """Return the schedule that `every` means, counted from *anchor*, or refuse it."""
    words = asked.lower().removeprefix("every ")
    period = _checked_span(Timing.EVERY, words, bounds.apart, bounds.furthest)
    if period < bounds.apart:
        least = format_span(bounds.apart)
        raise refused(
            f'every "{quoted(asked)}" is too often; the least is {least}.',
            f'Ask again with every="{least}".',
        )
    # By default from now: the first firing is one period away, not at some round time before it.
    try:
        return schedules.every(period, anchor=second_from(anchor), tz=place.key)
    except InvalidSchedule as error:
        raise refused(f'every "{quoted(asked)}": {error.message}.', sentence(error.hint)) from error


def checked_cron(asked: str, bounds: Bounds, place: ZoneInfo) -> schedules.Cron:
    """Return the schedule that `cron` means, or refuse it."""
    try:
        schedule = schedules.cron(asked, place.key)
    except InvalidSchedule as error:
        raise refused(f'cron "{quoted(asked)}": {error.message}.', sentence(error.hint)) from error
    # Over the whole pattern: "0,5 9 * * *" is a day apart at first sight.
    if not schedules.never_closer_than(schedule, bounds.apart):
        closest = format_span(schedules.shortest_gap(schedule) or timedelta(0))
        raise refused(
            f'cron "{quoted(asked)}" is too often: two of its times are {closest} apart;'
            f" the least is {format_span(bounds.apart)}.",
            f"Ask again with {_wider(schedule, bounds.apart)}.",
        )
    return schedule


def _wider(schedule: schedules.Cron, apart: timedelta) -> str:
    """Return what is nearest to a pattern that is too dense, and allowed."""
    (fields,) = schedule.fields
    minute, *others = fields.text.split()
    step = max(-(-apart // _MINUTE), 1)
    tries = []
    if minute.startswith("*"):
        # A step that does not divide the hour comes too early when the hour turns.
        if not _MINUTES % step:
            tries.append(f"*/{step}" if step < _MINUTES else "0")
    else:
        tries.append(",".join(map(str, _moved_apart(fields.minutes, step))))
    if not minute.startswith("*") or others != ["*"] * 4:
        tries.append(str(fields.minutes[0]))
    for one in tries if len(others) == 4 else ():  # noqa: PLR2004
        pattern = " ".join([one, *others])
        if schedules.never_closer_than(schedules.cron(pattern, schedule.zone_key), apart):
            return f'cron="{pattern}"'
    return f'every="{format_span(apart)}"'


def _moved_apart(minutes: Sequence[int], step: int) -> list[int]:
    """Return *minutes*, each moved on to *step* after the last, as far as the hour goes."""
    moved: list[int] = []
    for minute in minutes:
        at = max(minute, moved[-1] + step) if moved else minute
        if at < _MINUTES:
            moved.append(at)
    return moved


def first_of(
    schedule: schedules.Schedule, timing: Timing, asked: str, now: datetime, bounds: Bounds
) -> datetime:
    """Return the first instant of a recurring one that is far enough ahead."""
    # A pattern whose next time is seconds away is no mistake of the one who asks.
    first = schedule.next_after(now + bounds.ahead - timedelta(microseconds=1))
    if first is None or first > now + bounds.furthest + _SECOND:
        raise _too_far(timing, asked, bounds)
    return first
