"""One cron expression as sets of numbers, and the days and minutes of a calendar that it names.

Nothing here knows a zone: a match is a wall time, and `schedule` decides when a clock shows it.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from routines.domain.zones import WALL_EARLIEST, WALL_LATEST
from routines.errors import InvalidSchedule, nearest

# No expression that a person writes comes near it; a list of 100 kB would cost a second to read.
LONGEST_EXPRESSION = 256

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_WEEK = timedelta(weeks=1)
# More digits are no number that any field has, and reading them would only cost time.
_MOST_DIGITS = 9

# Every pairing of leap year and weekday of 1 January, and every pair of neighbouring years at
# their border, is in these 28 years: what does not come here never comes.
CYCLE_START, CYCLE_END = date(2000, 1, 1), date(2027, 12, 31)


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its name, its range, and the words that stand for numbers.

    Attributes:
        turn: What begins when its highest value is followed by its lowest.
    """

    name: str
    turn: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()

    def value_in(self, wall: datetime) -> int:
        """Return what *wall* has in this field."""
        if self is WEEKDAY:
            return wall.isoweekday() % self.size
        value: int = getattr(wall, self.name)
        return value

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.highest - self.lowest + 1


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Sunday is 0 at the start of a range and 7 at its end: 5-7 is three days, 7-2 three others.
_SUNDAY_AGAIN = 7

MINUTE = Field("minute", "hour", 0, 59)
HOUR = Field("hour", "day", 0, 23)
DAY = Field("day", "month", 1, 31)
MONTH = Field("month", "year", 1, 12, _MONTHS)
WEEKDAY = Field("weekday", "week", 0, 6, _WEEKDAYS)
FIELDS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class Step:
    """A step over the whole of a field, `*/7` or `5/15`: where it starts and how far it goes."""

    field: Field
    text: str
    first: int
    every: int

    @property
    def values(self) -> range:
        """The values that it names."""
        return range(self.first, self.field.highest + 1, self.every)

    @property
    def gap_at_the_turn(self) -> int:
        """From its last value to its first one in the next hour, day, month, week or year."""
        return self.field.size - self.values[-1] + self.first

    @property
    def is_even(self) -> bool:
        """Whether the gap at the turn is as wide as all others."""
        return self.gap_at_the_turn == self.every


@dataclass(frozen=True, slots=True)
class CronFields:
    """What one expression names.

    Attributes:
        text: The expression, one blank between fields; an alias as it was written.
        minutes: Ascending, never empty; so are *hours* and *months*.
        days: Days of the month.
        last_day: Whether the last day of the month is named (`L`).
        weekdays: 0 is Sunday.
        nth_weekdays: (weekday, n) for the n-th of the month (`5#2`).
        last_weekdays: The last such weekday of the month (`5L`).
        both_days: Whether day and weekday must both match; else either is enough.
        day_is_set: Whether the day field restricts anything; so *weekday_is_set*.
        follows_clock: Whether each showing of a matching minute counts; else times are fixed.
        steps: Steps over a whole field, as written.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    last_weekdays: frozenset[int]
    both_days: bool
    day_is_set: bool
    weekday_is_set: bool
    follows_clock: bool
    steps: tuple[Step, ...]

    def on(self, day: date) -> bool:
        """Return whether *day* is named."""
        return day.month in self.months and self._on_day_of_month(day)

    def _on_day_of_month(self, day: date) -> bool:
        by_date = day.day in self.days or (self.last_day and (day + _DAY).day == 1)
        weekday = day.isoweekday() % 7
        by_weekday = (
            weekday in self.weekdays
            or (weekday, (day.day + 6) // 7) in self.nth_weekdays
            or (weekday in self.last_weekdays and (day + _WEEK).month != day.month)
        )
        return (by_date and by_weekday) if self.both_days else (by_date or by_weekday)

    def matches(self, wall: datetime) -> bool:
        """Return whether the minute that *wall* lies in is named."""
        return wall.minute in self.minutes and wall.hour in self.hours and self.on(wall.date())

    def times(self) -> list[time]:
        """Return the times of a day that it names, earliest first."""
        return [time(hour, minute) for hour in self.hours for minute in self.minutes]

    def after(self, wall: datetime) -> datetime | None:
        """Return the first named minute strictly after *wall*, naive."""
        return self.first_match(next_minute(wall), WALL_LATEST)

    def at_or_before(self, wall: datetime) -> datetime | None:
        """Return the last named minute not after *wall*, naive."""
        return self.last_match(WALL_EARLIEST, wall)

    def first_match(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first named minute in [*start*, *end*), naive, or None."""
        start = _ceil_minute(start)
        found = self._first_on(start.date(), start.time())
        if found is None:
            day = self._first_day(start.date() + _DAY, end.date())
            if day is None:
                return None
            found = datetime.combine(day, time(self.hours[0], self.minutes[0]))
        return found if found < end else None

    def last_match(self, start: datetime, end: datetime) -> datetime | None:
        """Return the last named minute in [*start*, *end*], naive, or None."""
        found = self._last_on(end.date(), end.time())
        if found is None:
            day = self._last_day(end.date() - _DAY, start.date())
            if day is None:
                return None
            found = datetime.combine(day, time(self.hours[-1], self.minutes[-1]))
        return found if found >= start else None

    def _first_on(self, day: date, earliest: time) -> datetime | None:
        if not self.on(day):
            return None
        for hour in self.hours:
            if hour == earliest.hour:
                for minute in self.minutes:
                    if minute >= earliest.minute:
                        return datetime.combine(day, time(hour, minute))
            elif hour > earliest.hour:
                return datetime.combine(day, time(hour, self.minutes[0]))
        return None

    def _last_on(self, day: date, latest: time) -> datetime | None:
        if not self.on(day):
            return None
        for hour in reversed(self.hours):
            if hour == latest.hour:
                for minute in reversed(self.minutes):
                    if minute <= latest.minute:
                        return datetime.combine(day, time(hour, minute))
            elif hour < latest.hour:
                return datetime.combine(day, time(hour, self.minutes[-1]))
        return None

    def _first_day(self, day: date, last: date) -> date | None:
        while day <= last:
            if day.month not in self.months:
                day = (day.replace(day=1) + 32 * _DAY).replace(day=1)
            elif self._on_day_of_month(day):
                return day
            else:
                day += _DAY
        return None

    def _last_day(self, day: date, first: date) -> date | None:
        while day >= first:
            if day.month not in self.months:
                day = day.replace(day=1) - _DAY
            elif self._on_day_of_month(day):
                return day
            else:
                day -= _DAY
        return None

    def comes(self) -> bool:
        """Return whether it names any day at all."""
        return self._first_day(CYCLE_START, CYCLE_END) is not None


def next_minute(wall: datetime) -> datetime:
    """Return the first whole minute strictly after *wall*."""
    return wall.replace(second=0, microsecond=0) + _MINUTE


def _ceil_minute(wall: datetime) -> datetime:
    floor = wall.replace(second=0, microsecond=0)
    return floor if floor == wall else floor + _MINUTE


def parse_cron(expression: str) -> CronFields:
    """Return what *expression* names: five fields, or an alias like `@daily`.

    Raises:
        InvalidSchedule: It can't be read, or it would never fire; the message names the field.
    """
    if len(expression) > LONGEST_EXPRESSION:
        raise InvalidSchedule(
            f"the expression has {len(expression)} characters",
            hint=f"at most {LONGEST_EXPRESSION}: write it as a list of expressions",
        )
    if odd := next(
        (c for c in expression if not (c.isascii() and (c.isprintable() or c == "\t"))), ""
    ):
        raise InvalidSchedule(
            f"{odd!r} does not belong into a cron expression",
            hint="only plain digits, letters, blanks and * , - / # @: was it pasted from a page?",
        )
    text = " ".join(expression.split())
    parts = _alias(text).split() if text.startswith("@") else text.split()
    if len(parts) != len(FIELDS):
        raise _wrong_count(text, parts)
    fields = _fields(text, parts)
    if not fields.comes():
        raise InvalidSchedule(
            f"{text!r} never fires: no year has such a day",
            field="day",
            hint="look at day and month: which months have that many days?",
        )
    return fields


def _alias(text: str) -> str:
    word = text.lower()
    if word in ALIASES:
        return ALIASES[word]
    if word == "@reboot":
        raise InvalidSchedule(
            "'@reboot' names no time, so it has no slots",
            hint="leave the schedule out and call `routines run` when the machine starts",
        )
    if word.startswith("@every"):
        span = text[len("@every") :].strip() or "30m"
        raise InvalidSchedule(f"{text!r} is no cron", hint=f"write `every: {span}`")
    close = nearest(word, ALIASES)
    raise InvalidSchedule(
        f"there is no alias {text[:30]!r}",
        hint=f"did you mean {close!r}?" if close else f"there are {', '.join(ALIASES)}",
    )


def _wrong_count(text: str, parts: list[str]) -> InvalidSchedule:
    if not parts:
        return InvalidSchedule("the expression is empty", hint="for 9:00 every day: '0 9 * * *'")
    names = "minute hour day month weekday"
    message = f"{text!r} has {len(parts)} field{'s' if len(parts) > 1 else ''}, and cron needs 5"
    if len(parts) in (6, 7):
        return InvalidSchedule(
            message,
            hint=f"there are no seconds and no years here: write only {names}",
        )
    if len(parts) % len(FIELDS) == 0:
        return InvalidSchedule(message, hint="several expressions are written as a list")
    return InvalidSchedule(message, hint=f"they are {names}; for 9:00 every day write '0 9 * * *'")


@dataclass(slots=True)
class _Read:
    """What the items of one field came to."""

    values: set[int]
    nth: set[tuple[int, int]]
    last: set[int]
    last_day: bool
    steps: list[Step]


def _fields(text: str, parts: list[str]) -> CronFields:
    minute, hour, day, month, weekday = (
        _read(field, part) for field, part in zip(FIELDS, parts, strict=True)
    )
    _refuse_relative_beside_set(parts[2], parts[4], day, weekday)
    return CronFields(
        text=text,
        minutes=tuple(sorted(minute.values)),
        hours=tuple(sorted(hour.values)),
        months=tuple(sorted(month.values)),
        days=frozenset(day.values),
        last_day=day.last_day,
        weekdays=frozenset(weekday.values),
        nth_weekdays=frozenset(weekday.nth),
        last_weekdays=frozenset(weekday.last),
        both_days=parts[2].startswith("*") or parts[4].startswith("*"),
        day_is_set=parts[2] != "*",
        weekday_is_set=parts[4] != "*",
        follows_clock=parts[0].startswith("*") or parts[1].startswith("*"),
        steps=tuple(step for read in (minute, hour, day, month, weekday) for step in read.steps),
    )


def _refuse_relative_beside_set(
    day_text: str, weekday_text: str, day: _Read, weekday: _Read
) -> None:
    # Other crons disagree whether `0 0 13 * 5#2` means both or either, so nobody can know.
    if (weekday.nth or weekday.last) and day_text != "*":
        raise InvalidSchedule(
            f"weekday: {weekday_text!r} can't stand beside a day of the month ({day_text!r})",
            field="weekday",
            hint="put '*' in the day field, or write two expressions as a list",
        )
    if day.last_day and weekday_text != "*":
        raise InvalidSchedule(
            f"day: {day_text!r} can't stand beside a weekday ({weekday_text!r})",
            field="day",
            hint="put '*' in the weekday field, or write two expressions as a list",
        )


def _read(field: Field, text: str) -> _Read:
    read = _Read(values=set(), nth=set(), last=set(), last_day=False, steps=[])
    for item in text.split(","):
        if not item:
            raise _refused(field, f"{text!r} has an empty place", "take the extra comma out")
        _read_item(field, item.lower(), read)
    return read


def _read_item(field: Field, item: str, read: _Read) -> None:
    if field is DAY and item == "l":
        read.last_day = True
    elif field is WEEKDAY and "#" in item:
        weekday, _, which = item.partition("#")
        read.nth.add((_number(field, weekday) % field.size, _which(which, item)))
    elif field is WEEKDAY and len(item) > 1 and (item[0] == "l" or item[-1] == "l"):
        read.last.add(_number(field, item[1:] if item[0] == "l" else item[:-1]) % field.size)
    else:
        _refuse_dialect(field, item)
        read.values |= _plain(field, item, read.steps)


def _which(number: str, item: str) -> int:
    if number not in ("1", "2", "3", "4", "5"):
        raise _refused(WEEKDAY, f"{item!r}: a month has no such week", "write #1 to #5, or 5L")
    return int(number)


def _refuse_dialect(field: Field, item: str) -> None:
    """Refuse what other crons have, by its name: read in our way it would fire at other times."""
    if "?" in item:
        raise _refused(field, "'?' is Quartz", "write '*'")
    if "#" in item:
        raise _refused(field, f"{item!r}: '#' is for weekdays alone", "write it like 5#2")
    if field is DAY and re.fullmatch(r"(l|[0-9]+)w", item):
        raise _refused(field, f"{item!r}: 'W' (the nearest weekday) is Quartz", "use `rrule`")
    if field is DAY and item.startswith("l-"):
        raise _refused(field, f"{item!r}: days before the last are Quartz", "use `rrule`")
    if field is WEEKDAY and item == "l":
        raise _refused(field, "'L' alone is Saturday to some and Sunday to others", "write 5L")
    if re.fullmatch(r"h(\(.*\))?(/.*)?", item):
        raise _refused(
            field, f"{item.upper()!r} is Jenkins", "write a number; `jitter` spreads load"
        )
    if re.fullmatch(r"r(\(.*\))?(/.*)?", item):
        raise _refused(
            field, f"{item.upper()!r} is random: no two machines agree", "write a number"
        )


def _plain(field: Field, item: str, steps: list[Step]) -> set[int]:
    span, slash, step_text = item.partition("/")
    step = _step(field, item, step_text) if slash else 1
    if span == "*":
        first, last = field.lowest, field.highest
    elif "-" in span:
        first, last = _ends(field, span)
    else:
        first = _number(field, span)
        # `5/15` is 5-59/15. A lone 7 is Sunday and has nothing behind it.
        last = max(first, field.highest) if slash else first
    if slash and (first, last) == (first, field.highest) and (span == "*" or first != last):
        steps.append(Step(field, item, first, step))
    length = field.size if last < first else 0
    named = range(first, last + length + 1, step)
    return {field.lowest + (value - field.lowest) % field.size for value in named}


def _ends(field: Field, span: str) -> tuple[int, int]:
    left, _, right = span.partition("-")
    if not left or not right:
        raise _refused(field, f"{span!r} lacks an end", "write it like 1-5")
    first, last = _number(field, left), _number(field, right)
    if field is WEEKDAY and first == _SUNDAY_AGAIN != last:
        first = 0
    return first, last


def _step(field: Field, item: str, text: str) -> int:
    if not _is_number(text):
        raise _refused(field, f"{item!r}: {text!r} is no step", "write it like */5")
    if not int(text):
        raise _refused(field, f"{item!r} has step 0", "write it like */5")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _number(field: Field, text: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.lowest
    highest = _SUNDAY_AGAIN if field is WEEKDAY else field.highest
    if _is_number(text):
        value = int(text)
        if field.lowest <= value <= highest:
            return value
        raise _refused(
            field, f"{text} is not between {field.lowest} and {highest}", _OUTSIDE.get(field.name)
        )
    short = text[:3]
    if len(text) > len(short) and short in field.words:
        raise _refused(field, f"{text!r} is written out", f"write {short!r}")
    raise _refused(
        field,
        f"{text!r} is no {field.name}",
        f"numbers from {field.lowest} to {highest}"
        + (f", or {field.words[0]} to {field.words[-1]}" if field.words else ""),
    )


_OUTSIDE = {"hour": "midnight is 0", "day": "`L` is the last day of a month"}


def _refused(field: Field, reason: str, hint: str | None) -> InvalidSchedule:
    return InvalidSchedule(f"{field.name}: {reason}", field=field.name, hint=hint)
