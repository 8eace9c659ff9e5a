"""One RFC 5545 rule: DTSTART and RRULE as text, and the wall times that they name.

It is imported when the first rule is met. Nothing here knows a zone but to read UNTIL, which most
calendars write in UTC.
"""

import re
from bisect import bisect_right
from calendar import isleap, monthrange
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from routines.domain.zones import WALL_EARLIEST, WALL_LATEST, shown
from routines.errors import InvalidSchedule

# The longest useful rule is some hundred characters.
LONGEST_RULE = 1000
# So many are listed once and kept; a rule that needs more wants no COUNT.
MOST_COUNTED = 10_000
# How long a rule may have nothing to say before it counts as over. Longer than the longest pause
# of a date on a given weekday (29 February on a Sunday, over 2100: 40 years).
_HORIZON = timedelta(days=50 * 366)

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_PERIODS = {"WEEKLY": 7 * _DAY, "DAILY": _DAY, "HOURLY": _HOUR}
# With longer ones, two neighbours could be further apart than the horizon.
_LONGEST_INTERVAL = {"YEARLY": 10, "MONTHLY": 120, "WEEKLY": 520, "DAILY": 3660, "HOURLY": 87600}
_FREQUENCIES = tuple(_LONGEST_INTERVAL)
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
# Lowest and highest value of each list of numbers, and whether it may count from the end.
_LISTS = {
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYSETPOS": (1, 366, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
}
_KEYS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_LISTS)
_ICAL_TIME = re.compile(r"[0-9]{8}T[0-9]{6}", re.ASCII)
_WEEKS = r"(?:[1-9]|[1-4][0-9]|5[0-3])"
_BY_DAY = re.compile(rf"([+-]?{_WEEKS})?(?:MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,4}", re.ASCII)
_NATURAL = re.compile(r"[0-9]{1,6}", re.ASCII)
_EXAMPLE = 'write it like "DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR"'


def bad_rule(message: str, hint: str | None) -> InvalidSchedule:
    """Return the refusal of a rule."""
    return InvalidSchedule(message, field="rrule", hint=hint)


def read_recurrence(text: str, place: ZoneInfo) -> tuple[datetime, str]:
    """Return DTSTART and the RRULE in one spelling, both on the clock of *place*.

    Raises:
        InvalidSchedule: It can't be read, or is finer than hourly.
    """
    if len(text) > LONGEST_RULE:
        raise bad_rule(f"the rule has {len(text)} characters", f"at most {LONGEST_RULE}")
    start, rule = _split(text.split(), place)
    parts = _parts(rule)
    if "UNTIL" in parts:
        parts["UNTIL"] = _ical(_read_until(parts["UNTIL"], place))
    _check(parts)
    return start, ";".join(f"{key}={value}" for key, value in parts.items())


def _split(words: list[str], place: ZoneInfo) -> tuple[datetime, str]:
    start, rule = None, None
    for written in words:
        word = written.upper()
        if word.startswith(("DTSTART:", "DTSTART;")) and start is None:
            start = _read_start(word, place)
        elif word.startswith(("RRULE:", "FREQ=")) and rule is None:
            rule = word.removeprefix("RRULE:")
        else:
            raise bad_rule(f"{written[:40]!r} has no place", "one DTSTART and one RRULE is all")
    if start is None:
        raise bad_rule("the rule has no DTSTART", _EXAMPLE)
    if rule is None:
        raise bad_rule("the rule has no RRULE", _EXAMPLE)
    return start, rule


def _read_start(word: str, place: ZoneInfo) -> datetime:
    head, _, value = word.partition(":")
    zone_given = head.removeprefix("DTSTART").removeprefix(";TZID=")
    if zone_given and zone_given != place.key.upper():
        raise bad_rule(f"{head} is another zone than `tz`, {place.key}", "let `tz` alone say it")
    if value.endswith("Z") and place.key != "UTC":
        raise bad_rule(
            f"DTSTART ends in Z, which is UTC, and `tz` is {place.key}",
            "leave the Z out, or set `tz: UTC`",
        )
    return _ical_time("DTSTART", value.removesuffix("Z"))


def _read_until(value: str, place: ZoneInfo) -> datetime:
    until = _ical_time("UNTIL", value.removesuffix("Z"))
    # Most calendars write UNTIL in UTC, and the rule is walked on the clock of the zone.
    return shown(until.replace(tzinfo=UTC), place) if value.endswith("Z") else until


def _ical_time(name: str, value: str) -> datetime:
    example = f"write it like {name}{':' if name == 'DTSTART' else '='}20260105T090000"
    if not _ICAL_TIME.fullmatch(value):
        raise bad_rule(f"{name}: {value[:40]!r} is no date with a time", example)
    try:
        named = datetime.strptime(value, "%Y%m%dT%H%M%S")  # noqa: DTZ007 - a wall time has no zone
    except ValueError as error:
        raise bad_rule(f"{name}: {error}", example) from error
    if not WALL_EARLIEST <= named <= WALL_LATEST:
        raise bad_rule(f"{name}: the year {named.year} is out of reach", example)
    return named


def _ical(wall: datetime) -> str:
    return wall.replace(microsecond=0).isoformat().replace("-", "").replace(":", "")


def _parts(rule: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in rule.rstrip(";").split(";"):
        key, _, value = part.partition("=")
        if key == "BYSECOND":
            raise bad_rule("BYSECOND: a rule is hourly at the finest", "leave it out")
        if key not in _KEYS:
            raise bad_rule(f"{key[:40]!r} is not part of a rule", f"there are {', '.join(_KEYS)}")
        if key in parts:
            raise bad_rule(f"{key} stands there twice", "once each")
        if not value:
            raise bad_rule(f"{key} has no value", _EXAMPLE)
        parts[key] = value
    return parts


def _check(parts: dict[str, str]) -> None:
    frequency = parts.get("FREQ", "")
    if frequency in ("MINUTELY", "SECONDLY"):
        raise bad_rule(f"FREQ={frequency}: a rule is hourly at the finest", "use `every` or `cron`")
    if frequency not in _FREQUENCIES:
        raise bad_rule(f"FREQ={frequency[:20]} is unknown", f"one of {', '.join(_FREQUENCIES)}")
    _check_number(parts, "INTERVAL", _LONGEST_INTERVAL[frequency])
    _check_number(parts, "COUNT", MOST_COUNTED)
    if "COUNT" in parts and "UNTIL" in parts:
        raise bad_rule("COUNT and UNTIL exclude each other", "leave one of them out")
    if parts.get("WKST", "MO") not in _WEEKDAYS:
        raise bad_rule(f"WKST={parts['WKST'][:20]} is no weekday", f"one of {' '.join(_WEEKDAYS)}")
    _check_by_day(parts, frequency)
    for key, (lowest, highest, signed) in _LISTS.items():
        for value in parts[key].split(",") if key in parts else ():
            _check_listed(key, value, lowest, highest, signed=signed)
    if "," in parts.get("BYMINUTE", ""):
        raise bad_rule("BYMINUTE has several values: a rule is hourly at the finest", "use `cron`")
    if "BYWEEKNO" in parts and frequency != "YEARLY":
        raise bad_rule("BYWEEKNO needs FREQ=YEARLY", None)


def _check_number(parts: dict[str, str], key: str, most: int) -> None:
    value = parts.get(key, "1")
    if not (_NATURAL.fullmatch(value) and 1 <= int(value) <= most):
        raise bad_rule(f"{key}={value[:20]} is not between 1 and {most}", None)


def _check_by_day(parts: dict[str, str], frequency: str) -> None:
    for value in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        day = _BY_DAY.fullmatch(value)
        if day is None:
            raise bad_rule(f"BYDAY: {value[:20]!r} is no weekday", "write it like MO, 2FR or -1SU")
        if day[1] and frequency not in ("MONTHLY", "YEARLY"):
            raise bad_rule(f"BYDAY: {value} needs FREQ=MONTHLY or YEARLY", None)


def _check_listed(key: str, value: str, lowest: int, highest: int, *, signed: bool) -> None:
    if _INTEGER.fullmatch(value):
        number = int(value)
        if lowest <= (abs(number) if signed else number) <= highest:
            return
    raise bad_rule(f"{key}: {value[:20]!r} is not between {lowest} and {highest}", None)


class Recurrence:
    """The times of a rule on a wall clock, walked period by period from where one looks.

    A period is what FREQ names: a year, a month, a week, a day or an hour, each INTERVAL-th since
    DTSTART. Each look is bounded: libraries look for a date that never comes until the year 9999.
    """

    def __init__(self, start: datetime, rule: str) -> None:
        parts = _parts(rule)
        self._start = start
        self._frequency = parts["FREQ"]
        self._interval = int(parts.get("INTERVAL", "1"))
        self._days = _Days(parts, start)
        self._positions = _numbers(parts, "BYSETPOS")
        self._times = _times(parts, start)
        self._until = WALL_LATEST
        if "UNTIL" in parts:
            self._until = min(_ical_time("UNTIL", parts["UNTIL"]), self._until)
        self._counted = self._count(int(parts["COUNT"])) if "COUNT" in parts else None

    def after(self, wall: datetime) -> datetime | None:
        """Return the first time strictly after *wall*, or None if there is none for fifty years."""
        if self._counted is not None:
            index = bisect_right(self._counted, wall)
            return self._counted[index] if index < len(self._counted) else None
        return self._after(max(wall, self._start - _SECOND))

    def at_or_before(self, wall: datetime) -> datetime | None:
        """Return the last time not after *wall*, or None if there was none for fifty years."""
        if self._counted is not None:
            index = bisect_right(self._counted, wall)
            return self._counted[index - 1] if index else None
        wall = min(wall, self._until)
        number = self._number_of(wall)
        while number >= 0 and wall - self._begin(number) < _HORIZON:
            times = [time for time in self._times_of(number) if self._start <= time <= wall]
            if times:
                return times[-1]
            number = self._number_before(number)
        return None

    def shortest_gap(self) -> timedelta:
        """Return a span that no two of its times are closer than."""
        if self._frequency == "HOURLY":
            return self._interval * _HOUR
        if len(self._times) > 1:
            since = [datetime.combine(self._start, time) for time in self._times]
            pairs = pairwise([*since, since[0] + _DAY])
            return min(later - earlier for earlier, later in pairs)
        return self._interval * _DAY if self._frequency == "DAILY" else _DAY

    def _after(self, wall: datetime) -> datetime | None:
        if not self._times:
            return None
        number = max(self._number_of(wall), 0)
        while (begin := self._begin(number)) <= self._until and begin - wall < _HORIZON:
            for found in self._times_of(number):
                if found > wall:
                    return found if found <= self._until else None
            number = self._number_after(number)
        return None

    def _count(self, count: int) -> list[datetime]:
        found: list[datetime] = []
        wall: datetime | None = self._start - _SECOND
        while len(found) < count and wall is not None:
            wall = self._after(wall)
            if wall is not None:
                found.append(wall)
        return found

    def _number_of(self, wall: datetime) -> int:
        """Return the number of the last period that begins at or before *wall*; DTSTART's is 0."""
        start = self._start
        if self._frequency == "YEARLY":
            return (wall.year - start.year) // self._interval
        if self._frequency == "MONTHLY":
            return ((wall.year - start.year) * 12 + wall.month - start.month) // self._interval
        return (wall - self._begin(0)) // (self._interval * _PERIODS[self._frequency])

    def _begin(self, number: int) -> datetime:
        """Return where a period begins; beyond the last year, the end of all that can be asked."""
        start, steps = self._start, number * self._interval
        if self._frequency in ("YEARLY", "MONTHLY"):
            months = start.year * 12 + (start.month - 1 if self._frequency == "MONTHLY" else 0)
            months += steps * (1 if self._frequency == "MONTHLY" else 12)
            year, month = divmod(months, 12)
            return datetime(year, month + 1, 1) if year <= WALL_LATEST.year else datetime.max  # noqa: DTZ001, DTZ901
        if self._frequency == "HOURLY":
            first = start.replace(minute=0, second=0)
        else:
            first = start.replace(hour=0, minute=0, second=0)
        if self._frequency == "WEEKLY":
            first = self._days.week_start(first)
        return first + steps * _PERIODS[self._frequency]

    def _times_of(self, number: int) -> list[datetime]:
        begin = self._begin(number)
        if self._frequency == "HOURLY":
            named = self._days.name(begin)
            times = [time for time in self._times if named and time.hour == begin.hour]
            found = [datetime.combine(begin, time) for time in times]
        else:
            days = (begin + n * _DAY for n in range(self._length(begin)))
            found = [
                datetime.combine(day, time)
                for day in days
                if self._days.name(day)
                for time in self._times
            ]
        if self._positions:
            chosen = {n - 1 if n > 0 else len(found) + n for n in self._positions}
            found = [time for index, time in enumerate(found) if index in chosen]
        return found

    def _length(self, begin: datetime) -> int:
        if self._frequency == "YEARLY":
            return 366 if isleap(begin.year) else 365
        if self._frequency == "MONTHLY":
            return monthrange(begin.year, begin.month)[1]
        return _PERIODS[self._frequency].days

    def _number_after(self, number: int) -> int:
        # The hours of a day that is not named are passed over at once.
        if self._frequency == "HOURLY" and not self._days.name(begin := self._begin(number)):
            return max(self._number_of(begin.replace(hour=23)), number) + 1
        return number + 1

    def _number_before(self, number: int) -> int:
        if self._frequency == "HOURLY" and not self._days.name(begin := self._begin(number)):
            return self._number_of(begin.replace(hour=0) - _SECOND)
        return number - 1


def _times(parts: dict[str, str], start: datetime) -> list[time]:
    """Return the times of day, earliest first; what the rule leaves open is as in DTSTART."""
    hours = _numbers(parts, "BYHOUR")
    if not hours:
        hours = frozenset(range(24)) if parts["FREQ"] == "HOURLY" else frozenset([start.hour])
    if parts["FREQ"] == "HOURLY":
        # What the interval steps over would be looked for hour by hour through fifty years.
        interval = int(parts.get("INTERVAL", "1"))
        hours &= {(start.hour + n * interval) % 24 for n in range(24)}
    minute = min(_numbers(parts, "BYMINUTE"), default=start.minute)
    return [time(hour, minute, start.second) for hour in sorted(hours)]


def _numbers(parts: dict[str, str], key: str) -> frozenset[int]:
    return frozenset(int(value) for value in parts[key].split(",")) if key in parts else frozenset()


class _Days:
    """The days that a rule names, whatever its periods; what it leaves open is as in DTSTART."""

    def __init__(self, parts: dict[str, str], start: datetime) -> None:
        frequency = parts["FREQ"]
        self._months = _numbers(parts, "BYMONTH")
        self._month_days = _numbers(parts, "BYMONTHDAY")
        self._year_days = _numbers(parts, "BYYEARDAY")
        self._weeks = _numbers(parts, "BYWEEKNO")
        self._week_start = _WEEKDAYS.index(parts.get("WKST", "MO"))
        # Each weekday with its n; 0 is any.
        self._weekdays = frozenset(
            (_WEEKDAYS.index(value[-2:]), int(value[:-2] or 0))
            for value in (parts["BYDAY"].split(",") if "BYDAY" in parts else ())
        )
        self._of_month = frequency == "MONTHLY" or bool(self._months)
        if not (self._month_days or self._year_days or self._weeks or self._weekdays):
            if frequency == "YEARLY":
                self._months = self._months or frozenset([start.month])
            if frequency in ("YEARLY", "MONTHLY"):
                self._month_days = frozenset([start.day])
            if frequency == "WEEKLY":
                self._weekdays = frozenset([(start.weekday(), 0)])

    def week_start(self, day: datetime) -> datetime:
        """Return the first day of the week of *day*."""
        return day - (day.weekday() - self._week_start) % 7 * _DAY

    def name(self, day: datetime) -> bool:
        """Return whether the rule names *day*."""
        if self._months and day.month not in self._months:
            return False
        if self._month_days:
            length = monthrange(day.year, day.month)[1]
            if not self._month_days & {day.day, day.day - length - 1}:
                return False
        if self._year_days:
            number, length = _place_in_year(day)
            if not self._year_days & {number, number - length - 1}:
                return False
        if self._weeks and not self._weeks & self._week_numbers(day):
            return False
        return not self._weekdays or self._names_weekday(day)

    def _names_weekday(self, day: datetime) -> bool:
        weekday = day.weekday()
        if (weekday, 0) in self._weekdays:
            return True
        if self._of_month:
            number, length = day.day, monthrange(day.year, day.month)[1]
        else:
            number, length = _place_in_year(day)
        nth = {(weekday, (number + 6) // 7), (weekday, -((length - number) // 7 + 1))}
        return bool(nth & self._weekdays)

    def _week_numbers(self, day: datetime) -> set[int]:
        """Return the number of the week of *day*, from the start and from the end of its year."""
        # A week belongs to the year of its fourth day.
        number, length = _place_in_year(self.week_start(day) + 3 * _DAY)
        week, weeks_behind = (number + 6) // 7, (length - number) // 7
        return {week, -(weeks_behind + 1)}


def _place_in_year(day: datetime) -> tuple[int, int]:
    return day.timetuple().tm_yday, 366 if isleap(day.year) else 365
