"""One RFC 5545 rule: DTSTART and RRULE as text, and the wall times that they name.

The one module that names python-dateutil, imported when the first rule is met. Nothing here knows a
zone but to read UNTIL, which most calendars write in UTC.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
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
_COUNTED_HORIZON = timedelta(days=400 * 366)

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_PERIODS = {"WEEKLY": 7 * _DAY, "DAILY": _DAY, "HOURLY": _HOUR}
# With longer ones, two neighbours could be further apart than the horizon.
_LONGEST_INTERVAL = {"YEARLY": 10, "MONTHLY": 120, "WEEKLY": 520, "DAILY": 3660, "HOURLY": 87600}
_FREQUENCIES = tuple(_LONGEST_INTERVAL)
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
# Lowest and highest value of each list of numbers, and whether it may count from the end. What
# dateutil is given unchecked it may answer with an IndexError much later, or never.
_LISTS = {
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYSETPOS": (1, 366, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
}
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
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
    _check_dates(parts)
    if "BYWEEKNO" in parts and frequency != "YEARLY":
        raise bad_rule("BYWEEKNO needs FREQ=YEARLY", None)


def _check_dates(parts: dict[str, str]) -> None:
    # 30 February would be looked for through fifty years of days.
    if "BYMONTH" not in parts or "BYMONTHDAY" not in parts:
        return
    longest = max(_LONGEST_MONTHS[int(month) - 1] for month in parts["BYMONTH"].split(","))
    if all(abs(int(day)) > longest for day in parts["BYMONTHDAY"].split(",")):
        raise bad_rule("the rule never comes: no such month has such a day", "see BYMONTHDAY")


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


def _coarser(parts: dict[str, str]) -> dict[str, str]:
    """Return a rule with the same times and fewer, longer periods, where there is one.

    To look for 29 February hour by hour takes seconds, month by month it takes milliseconds.
    """
    if parts.get("INTERVAL", "1") != "1" or "BYSETPOS" in parts:
        return parts
    coarser = dict(parts)
    if coarser["FREQ"] == "HOURLY":
        coarser["FREQ"] = "DAILY"
        coarser.setdefault("BYHOUR", ",".join(map(str, range(24))))
    if coarser["FREQ"] == "DAILY":
        coarser["FREQ"] = "MONTHLY"
        coarser.setdefault("BYMONTHDAY", ",".join(map(str, range(1, 32))))
    return coarser


class Recurrence:
    """The times of a rule on a wall clock, found without walking from its start.

    A rule without COUNT is asked from the beginning of the period that is looked at: as many whole
    intervals behind DTSTART as fit, with everything that DTSTART implies spelled out.
    """

    def __init__(self, start: datetime, rule: str) -> None:
        parts = _coarser(_parts(rule))
        self._start = start
        self._frequency = parts["FREQ"]
        self._interval = int(parts.get("INTERVAL", "1"))
        self._week_start = _WEEKDAYS.index(parts.get("WKST", "MO"))
        self._hours = sorted({int(hour) for hour in parts.get("BYHOUR", "0").split(",")})
        self._until = WALL_LATEST
        if "UNTIL" in parts:
            self._until = min(_ical_time("UNTIL", parts["UNTIL"]), self._until)
        self._rule = self._spelled_out(parts)
        self._counted = self._count(int(parts["COUNT"])) if "COUNT" in parts else None

    def after(self, wall: datetime) -> datetime | None:
        """Return the first time strictly after *wall*, or None if there is none for fifty years."""
        if self._counted is not None:
            index = bisect_right(self._counted, wall)
            return self._counted[index] if index < len(self._counted) else None
        wall = max(wall, self._start - _SECOND)
        horizon = self._until
        if wall < self._until - _HORIZON:
            horizon = wall + _HORIZON
        return next((time for time in self._walk(wall, horizon) if time > wall), None)

    def at_or_before(self, wall: datetime) -> datetime | None:
        """Return the last time not after *wall*, or None if there was none for fifty years."""
        if self._counted is not None:
            index = bisect_right(self._counted, wall)
            return self._counted[index - 1] if index else None
        wall = min(wall, self._until)
        reach = timedelta(days=1)
        while wall >= self._start:
            begin = max(wall - reach, self._start) if wall - self._start > reach else self._start
            found = None
            for found in self._walk(begin, wall):  # noqa: B007 - the last one is wanted
                pass
            if found is not None or begin == self._start or reach > _HORIZON:
                return found
            # Each look reaches four times as far: a rare rule costs a few more looks, not more
            # for each year of absence.
            reach *= 4
        return None

    def _walk(self, wall: datetime, until: datetime) -> Iterable[datetime]:
        from dateutil.rrule import rrulestr

        return rrulestr(f"{self._rule};UNTIL={_ical(until)}", dtstart=self._period_of(wall))

    def _count(self, count: int) -> list[datetime]:
        last = self._until
        if self._start < last - _COUNTED_HORIZON:
            last = self._start + _COUNTED_HORIZON
        return list(islice(self._walk(self._start, last), count))

    def _period_of(self, wall: datetime) -> datetime:
        """Return where the period of *wall* begins, in phase with DTSTART; DTSTART for its own."""
        begin, step = self._start, self._interval
        if self._frequency == "YEARLY":
            years = (wall.year - begin.year) // step * step
            return begin if years <= 0 else datetime(begin.year + years, 1, 1)  # noqa: DTZ001
        if self._frequency == "MONTHLY":
            months = (wall.year - begin.year) * 12 + wall.month - begin.month
            months = months // step * step
            years, month = divmod(begin.month - 1 + months, 12)
            return begin if months <= 0 else datetime(begin.year + years, month + 1, 1)  # noqa: DTZ001
        period = step * _PERIODS[self._frequency]
        if self._frequency == "HOURLY":
            first = begin.replace(minute=0, second=0)
        else:
            first = begin.replace(hour=0, minute=0, second=0)
        if self._frequency == "WEEKLY":
            first -= (first.weekday() - self._week_start) % 7 * _DAY
        count = (wall - first) // period
        return begin if count <= 0 else first + count * period

    def _spelled_out(self, parts: dict[str, str]) -> str:
        said = {key: value for key, value in parts.items() if key not in ("COUNT", "UNTIL")}
        if not said.keys() & {"BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"}:
            if self._frequency == "YEARLY":
                said.setdefault("BYMONTH", str(self._start.month))
            if self._frequency in ("YEARLY", "MONTHLY"):
                said["BYMONTHDAY"] = str(self._start.day)
            if self._frequency == "WEEKLY":
                said["BYDAY"] = _WEEKDAYS[self._start.weekday()]
        if self._frequency != "HOURLY":
            said.setdefault("BYHOUR", str(self._start.hour))
        said.setdefault("BYMINUTE", str(self._start.minute))
        said["BYSECOND"] = str(self._start.second)
        return ";".join(f"{key}={value}" for key, value in said.items())

    def shortest_gap(self) -> timedelta:
        """Return a span that no two of its times are closer than."""
        if self._frequency == "HOURLY":
            return self._interval * _HOUR
        if len(self._hours) > 1:
            pairs = pairwise([*self._hours, self._hours[0] + 24])
            return min(later - earlier for earlier, later in pairs) * _HOUR
        return self._interval * _DAY if self._frequency == "DAILY" else _DAY
