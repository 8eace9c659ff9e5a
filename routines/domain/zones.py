"""Time zones by IANA name, and what a clock on the wall of a zone shows.

Nothing else turns a wall time into an instant: a wall time can be shown never, once or twice, and
which of them is meant is one rule, kept here.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pkgutil import get_data
from zoneinfo import ZoneInfo, available_timezones

from routines.errors import InvalidZone, nearest

# What is asked about lies between these. A datetime ends at year 9999, and an offset or a look
# into the neighbouring year must not run over the edge.
EARLIEST = datetime(3, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 28, tzinfo=UTC)
# On the wall too: a little further out, so that no offset leads from one over the edge.
WALL_EARLIEST = datetime(3, 1, 1)  # noqa: DTZ001 - a wall time has no zone
WALL_LATEST = datetime(9998, 12, 30)  # noqa: DTZ001

# A larger step is no summer time but a clock put right or a day dropped at the date line: what it
# passes over is not made up for. Three hours is where cron draws the line too.
LONGEST_GAP = timedelta(hours=3)

# Two changes between two looks would hide each other. The shortest time that any zone has ever
# kept one offset is just under four days (Freetown, 1939).
_LOOK = timedelta(days=1)
_A_DAY = timedelta(days=1)

# Names that zoneinfo opens and that mean another thing on every machine, or nothing at all.
_NO_ZONES = frozenset(["localtime", "Factory", "posixrules"])
_OFFSET = r"(?:UTC|GMT|Z)? ?([+-])([0-9]{1,2})(?::?([0-9]{2}))?"
_EXAMPLE = "write an IANA name like Europe/Berlin, America/New_York or UTC"

# strftime would follow the locale of the machine.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@cache
def zone(key: str) -> ZoneInfo:
    """Return the zone with the IANA name *key*; aliases like `US/Eastern` are names too.

    Raises:
        InvalidZone: There is no such name, or it does not mean the same on every machine.
    """
    if not key.strip():
        raise InvalidZone("a time zone needs a name", hint=_EXAMPLE)
    if key in _NO_ZONES or key.startswith(("posix/", "right/")):
        raise InvalidZone(f"{key!r} names no place: it is not the same everywhere", hint=_EXAMPLE)
    # On a file system that ignores case, zoneinfo would open `europe/berlin`, and another machine
    # would then refuse the same file. So the list decides, not the file system.
    if not _is_listed(key):
        raise InvalidZone(f"no time zone is called {key[:60]!r}", hint=_hint_for(key))
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidZone(
            f"the data of time zone {key!r} can't be read: {error}",
            hint="install the Python package tzdata again",
        ) from error


@cache
def _packaged() -> frozenset[str]:
    # The list in tzdata is one small file; available_timezones() opens some six hundred.
    listed = get_data("tzdata", "zones")
    return frozenset() if listed is None else frozenset(listed.decode("ascii").split())


def _is_listed(key: str) -> bool:
    return key in _packaged() or key in available_timezones()


def _hint_for(key: str) -> str:
    if offset := re.fullmatch(_OFFSET, key.strip(), re.ASCII | re.IGNORECASE):
        return _hint_for_offset(*offset.groups())
    names = {name.lower(): name for name in _packaged() or available_timezones()}
    wanted = key.strip().lower().replace(" ", "_")
    if wanted in names:
        return f"did you mean {names[wanted]!r}? Capitals count"
    # `Berlin` is nearer to Europe/Berlin than spelling can tell.
    cities = [name for lower, name in sorted(names.items()) if lower.endswith(f"/{wanted}")]
    if cities:
        return f"did you mean {cities[0]!r}?"
    close = nearest(wanted[:60], names, cutoff=0.75)
    return f"did you mean {names[close]!r}?" if close else _EXAMPLE


def _hint_for_offset(sign: str, hours: str, minutes: str | None) -> str:
    example = "an offset is no zone, it knows no summer time: write the place, like Asia/Shanghai"
    fixed = f"Etc/GMT{'-' if sign == '+' else '+'}{int(hours)}"
    if int(minutes or 0) or fixed not in _packaged():
        return example
    return f"{example}, or {fixed} for {sign}{int(hours):02}:00 all year (its sign is reversed)"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a zone's offset.

    Attributes:
        at: The first instant with the new offset, UTC.
        before: The offset until then.
        after: The offset from then on.
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def length(self) -> timedelta:
        """How far the clock is put forward: of a gap positive, of an overlap negative."""
        return self.after - self.before

    @property
    def wall_before(self) -> datetime:
        """What the clock would have shown at `at` without the change."""
        return self.at.replace(tzinfo=None) + self.before

    @property
    def wall_after(self) -> datetime:
        """What the clock shows at `at`."""
        return self.at.replace(tzinfo=None) + self.after


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which a zone keeps one offset.

    It may be cut at a turn of the year, at least a year away from the instant asked about.

    Attributes:
        start: Its first instant, UTC.
        end: The first instant behind it, UTC.
        offset: What the zone adds to UTC all the time.
        furthest_before: What the clock had reached when *start* came: later than what it shows
            at *start* if it was set back there.
    """

    start: datetime
    end: datetime
    offset: timedelta
    furthest_before: datetime

    @property
    def wall_start(self) -> datetime:
        """What the clock shows at `start`."""
        return self.start.replace(tzinfo=None) + self.offset

    @property
    def wall_end(self) -> datetime:
        """What the clock would show at `end` if nothing changed then."""
        return self.end.replace(tzinfo=None) + self.offset


def _offset(place: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(place).utcoffset()
    return timedelta(0) if offset is None else offset


# Some zones, a few years each; a routine that looks forty years ahead pays again for the rest.
@lru_cache(maxsize=2048)
def _changes_in(place: ZoneInfo, year: int) -> tuple[Change, ...]:
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    offset = _offset(place, start)
    while start < end:
        then = start + _LOOK
        new = _offset(place, then)
        if new != offset:
            found.append(Change(_first_with(place, new, start, then), offset, new))
        start, offset = then, new
    return tuple(found)


def _first_with(place: ZoneInfo, offset: timedelta, old: datetime, new: datetime) -> datetime:
    while new - old > timedelta(seconds=1):
        middle = (old + (new - old) / 2).replace(microsecond=0)
        if _offset(place, middle) == offset:
            new = middle
        else:
            old = middle
    return new


def changes(place: ZoneInfo, *, after: datetime, until: datetime) -> list[Change]:
    """Return the changes of the offset in (*after*, *until*], oldest first."""
    after, until = max(as_utc(after), EARLIEST), min(as_utc(until), LATEST)
    # A change at the very start of a year is listed with the year before.
    years = range(after.year - 1, until.year + 1)
    every = (change for year in years for change in _changes_in(place, year))
    return [change for change in every if after < change.at <= until]


def segment_at(place: ZoneInfo, instant: datetime) -> Segment:
    """Return the segment that *instant* lies in; it must be between `EARLIEST` and `LATEST`."""
    year = instant.year
    near = (*_changes_in(place, year - 1), *_changes_in(place, year))
    later = bisect_right(near, instant, key=lambda change: change.at)
    end = near[later].at if later < len(near) else datetime(year + 1, 1, 1, tzinfo=UTC)
    if later:
        last = near[later - 1]
        # The clock was set back just before it would have shown `wall_before`.
        furthest = max(last.wall_before - datetime.resolution, last.wall_after)
        return Segment(last.at, end, last.after, furthest)
    start, offset = datetime(year - 1, 1, 1, tzinfo=UTC), _offset(place, instant)
    return Segment(start, end, offset, start.replace(tzinfo=None) + offset)


def as_utc(instant: datetime) -> datetime:
    """Return the same instant in UTC; a naive one is refused, it would mean the machine's zone."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    if instant.tzinfo is UTC:
        return instant
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        # UTC can't hold it. Any instant out of reach will do: all of them are answered alike.
        step = timedelta(days=1)
        return LATEST + step if instant.year > LATEST.year else EARLIEST - step


def shown(instant: datetime, place: ZoneInfo) -> datetime:
    """Return the wall time, naive, that a clock in *place* shows at *instant*."""
    return instant.astimezone(place).replace(tzinfo=None, fold=0)


def furthest_shown(instant: datetime, place: ZoneInfo) -> datetime:
    """Return the latest wall time that a clock in *place* has shown or passed over by *instant*.

    It is later than what the clock shows while an hour is repeated.
    """
    return max(shown(instant, place), segment_at(place, instant).furthest_before)


def second_from(instant: datetime) -> datetime:
    """Return the first whole second that is not before *instant*: never early."""
    whole = instant.replace(microsecond=0)
    return whole if whole == instant else whole + timedelta(seconds=1)


def instant_of(wall: datetime, place: ZoneInfo) -> datetime | None:
    """Return when a fixed time comes: *wall*, naive, read in *place*.

    A time that comes twice is its first coming; one that a gap swallows is the first instant after
    the gap. None if the gap is longer than `LONGEST_GAP`, or outside `EARLIEST` and `LATEST`.
    """
    if not WALL_EARLIEST + LONGEST_GAP <= wall <= WALL_LATEST:
        return None
    # With fold=0 a time in a gap is read with the offset before it, so it lies behind the gap.
    instant = wall.replace(tzinfo=place, fold=0).astimezone(UTC)
    if shown(instant, place) == wall:
        return instant
    gap = changes(place, after=instant - LONGEST_GAP, until=instant)[-1:]
    return gap[0].at if gap and gap[0].length <= LONGEST_GAP else None


def day_of(instant: datetime, place: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the first instant of the calendar day of *instant* in *place*, and of the next."""
    day = shown(instant, place).date()
    midnight = datetime.combine(day, datetime.min.time())
    start = instant_of(midnight, place) or as_utc(instant)
    # A zone may leave a whole day out: the next one then follows at once.
    ends = (instant_of(midnight + n * _A_DAY, place) for n in (1, 2))
    end = next((end for end in ends if end is not None), start + _A_DAY)
    return start, end


def local_text(instant: datetime, place: ZoneInfo) -> str:
    """Return `Sat 27 Mar 2027 02:30 +01:00`: the same words on every machine."""
    local = instant.astimezone(place)
    seconds = f":{local.second:02}" if local.second else ""
    return f"{day_text(local)} {local:%H:%M}{seconds} {offset_text(local)}"


def day_text(day: datetime) -> str:
    """Return `Sat 27 Mar 2027` for the day that *day* itself shows."""
    return f"{_WEEKDAYS[day.weekday()]} {day.day:02} {_MONTHS[day.month - 1]} {day.year:04}"


def offset_text(local: datetime) -> str:
    """Return `+01:00`, the offset of an aware *local*; seconds only where a zone had some."""
    offset = local.utcoffset() or timedelta(0)
    sign = "-" if offset < timedelta(0) else "+"
    minutes, seconds = divmod(int(abs(offset).total_seconds()), 60)
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text
