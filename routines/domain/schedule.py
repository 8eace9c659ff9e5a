"""Schedules: the rules that yield slots.

Cron expressions are walked here, on the fields of `cron`; an `rrule` is asked through `recurrence`.
No other module knows that. To the rest of the program a schedule is `Schedule`.

Clocks change, and the rule is cron's, made exact. A cron expression whose minute or hour field
begins with `*` follows the clock: each showing of a matching minute is a slot. Everything else
names fixed times: one that the clock skips is the first instant after the gap, one that comes twice
its first coming, and a skip of more than three hours is not made up for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from routines.domain.cron import CYCLE_END, CYCLE_START, CronFields, next_minute, parse_cron
from routines.domain.durations import format_span, parse_span, shown_span
from routines.domain.names import format_instant, parse_instant
from routines.domain.when import read_date_time, read_time
from routines.domain.zones import (
    EARLIEST,
    LATEST,
    as_utc,
    furthest_shown,
    instant_of,
    segment_at,
    shown,
    zone,
)
from routines.errors import InvalidSchedule

if TYPE_CHECKING:
    from routines.domain.recurrence import Recurrence

SHORTEST_PERIOD = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Schedule(Protocol):
    """A rule that yields slots: aware UTC instants of whole seconds, each later than the last."""

    @property
    def zone_key(self) -> str:
        """The IANA name of the zone in which its times are read and shown."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after *instant*, or None if there is none."""

    def newest_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last slot not after *instant*, or None if there is none."""

    def names(self, instant: datetime) -> bool:
        """Return whether *instant* is one of its slots."""

    def spec(self) -> dict[str, Any]:
        """Return it as JSON that `from_spec` reads; equal ones are the same schedule."""

    def text(self) -> str:
        """Return it for one line: `*/15 * * * *`, `every 30m`, `at 2026-11-30 09:00`."""


class WallTimes(Protocol):
    """Fixed times on a wall clock, before any zone has its say."""

    def after(self, wall: datetime) -> datetime | None:
        """Return the first one strictly after *wall*."""

    def at_or_before(self, wall: datetime) -> datetime | None:
        """Return the last one not after *wall*."""


def _fixed_after(times: WallTimes, place: ZoneInfo, instant: datetime) -> datetime | None:
    # What the clock has shown or skipped by now has had its slot: a second showing gets none.
    wall = times.after(furthest_shown(instant, place))
    while wall is not None:
        if (slot := instant_of(wall, place)) is not None:
            return slot
        wall = times.after(wall)
    return None


def _fixed_at_or_before(times: WallTimes, place: ZoneInfo, instant: datetime) -> datetime | None:
    wall = times.at_or_before(furthest_shown(instant, place))
    while wall is not None:
        if (slot := instant_of(wall, place)) is not None:
            return slot
        wall = times.at_or_before(wall - _SECOND)
    return None


def _following_after(fields: CronFields, place: ZoneInfo, instant: datetime) -> datetime | None:
    start = next_minute(shown(instant, place))
    while instant < LATEST:
        part = segment_at(place, instant)
        wall = fields.first_match(start, part.wall_end)
        if wall is not None:
            return (wall - part.offset).replace(tzinfo=UTC)
        instant = part.end
        start = shown(instant, place)
    return None


def _following_at_or_before(
    fields: CronFields, place: ZoneInfo, instant: datetime
) -> datetime | None:
    while instant > EARLIEST:
        part = segment_at(place, instant)
        wall = fields.last_match(part.wall_start, shown(instant, place))
        if wall is not None:
            return (wall - part.offset).replace(tzinfo=UTC)
        instant = part.start - _SECOND
    return None


def _within(instant: datetime) -> datetime:
    """Return *instant* in UTC, moved to the edge of what can be asked if it lies beyond."""
    return min(max(as_utc(instant), EARLIEST), LATEST)


def _in_reach(slot: datetime | None) -> datetime | None:
    """Return *slot*, or None at the ends of time: next and newest must draw the line alike."""
    return slot if slot is not None and EARLIEST < slot <= LATEST else None


@dataclass(frozen=True, slots=True)
class Cron:
    """One cron expression or several, read in a zone; several that coincide are one slot."""

    fields: tuple[CronFields, ...]
    zone_key: str

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after *instant*."""
        instant, place = _within(instant), zone(self.zone_key)
        found = [_cron_after(fields, place, instant) for fields in self.fields]
        return _in_reach(min((slot for slot in found if slot is not None), default=None))

    def newest_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last slot not after *instant*."""
        instant, place = _within(instant), zone(self.zone_key)
        found = [_cron_at_or_before(fields, place, instant) for fields in self.fields]
        return _in_reach(max((slot for slot in found if slot is not None), default=None))

    def names(self, instant: datetime) -> bool:
        """Return whether *instant* is one of its slots."""
        return self.newest_at_or_before(instant) == instant

    def spec(self) -> dict[str, Any]:
        """Return `{"cron": [...], "tz": ...}`."""
        return {"cron": [fields.text for fields in self.fields], "tz": self.zone_key}

    def text(self) -> str:
        """Return the expression; several with `; ` between them."""
        return "; ".join(fields.text for fields in self.fields)


def _cron_after(fields: CronFields, place: ZoneInfo, instant: datetime) -> datetime | None:
    if fields.follows_clock:
        return _following_after(fields, place, instant)
    return _fixed_after(fields, place, instant)


def _cron_at_or_before(fields: CronFields, place: ZoneInfo, instant: datetime) -> datetime | None:
    if fields.follows_clock:
        return _following_at_or_before(fields, place, instant)
    return _fixed_at_or_before(fields, place, instant)


@dataclass(frozen=True, slots=True)
class Every:
    """A slot each *period*, counted from *anchor*; none before it. No clock change touches it."""

    period: timedelta
    anchor: datetime
    zone_key: str

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after *instant*."""
        count = max((as_utc(instant) - self.anchor) // self.period + 1, 0)
        try:
            slot = self.anchor + count * self.period
        except OverflowError:
            return None
        return slot if slot <= LATEST else None

    def newest_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last slot not after *instant*; None before the anchor."""
        count = (_within(instant) - self.anchor) // self.period
        return None if count < 0 else self.anchor + count * self.period

    def names(self, instant: datetime) -> bool:
        """Return whether *instant* is one of its slots."""
        return self.newest_at_or_before(instant) == instant

    def spec(self) -> dict[str, Any]:
        """Return `{"every": ..., "anchor": ..., "tz": ...}`."""
        return {
            "every": format_span(self.period),
            "anchor": format_instant(self.anchor),
            "tz": self.zone_key,
        }

    def text(self) -> str:
        """Return `every 30m`, with the anchor if it is not the usual one."""
        text = f"every {shown_span(self.period)}"
        return text if self.anchor == EPOCH else f"{text} from {format_instant(self.anchor)}"


@dataclass(frozen=True, slots=True)
class Once:
    """One slot.

    Attributes:
        written: In one spelling: `2026-11-30 09:00`, or RFC 3339 where an offset was written.
        wall: The wall time that was written, or None where an offset was.
        slot: The instant.
        zone_key: The zone in which *wall* is read.
    """

    written: str
    wall: datetime | None
    slot: datetime
    zone_key: str

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the slot if it lies after *instant*."""
        return self.slot if self.slot > as_utc(instant) else None

    def newest_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the slot if it does not lie after *instant*."""
        return self.slot if self.slot <= as_utc(instant) else None

    def names(self, instant: datetime) -> bool:
        """Return whether *instant* is the slot."""
        return self.slot == instant

    def spec(self) -> dict[str, Any]:
        """Return `{"at": ..., "tz": ...}`: what was written, so that a new zone reads it anew."""
        return {"at": self.written, "tz": self.zone_key}

    def text(self) -> str:
        """Return `at 2026-11-30 09:00`."""
        return f"at {self.written}"


@dataclass(frozen=True, slots=True)
class RRule:
    """An RFC 5545 rule, its times fixed times on the clock of a zone."""

    start: datetime
    rule: str
    zone_key: str

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first slot strictly after *instant*."""
        return _in_reach(_fixed_after(recurrence_of(self), zone(self.zone_key), _within(instant)))

    def newest_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last slot not after *instant*."""
        newest = _fixed_at_or_before(recurrence_of(self), zone(self.zone_key), _within(instant))
        return _in_reach(newest)

    def names(self, instant: datetime) -> bool:
        """Return whether *instant* is one of its slots."""
        return self.newest_at_or_before(instant) == instant

    def spec(self) -> dict[str, Any]:
        """Return `{"rrule": ..., "tz": ...}`."""
        start = self.start.isoformat().replace("-", "").replace(":", "")
        return {"rrule": f"DTSTART:{start}\nRRULE:{self.rule}", "tz": self.zone_key}

    def text(self) -> str:
        """Return `rrule FREQ=MONTHLY;BYDAY=-1FR from 2026-01-30 09:00`."""
        return f"rrule {self.rule} from {self.start.isoformat(' ', 'minutes')}"


def cron(expressions: str | Sequence[str], tz: str) -> Cron:
    """Return the schedule that one cron expression or a list of them names in zone *tz*.

    Raises:
        InvalidSchedule: One can't be read or would never fire; the message names the field.
        InvalidZone: There is no such zone.
    """
    listed = [expressions] if isinstance(expressions, str) else list(expressions)
    if not listed:
        raise InvalidSchedule("the list is empty", hint="for 9:00 every day: '0 9 * * *'")
    # An expression that is listed twice would only cost time.
    fields = tuple(dict.fromkeys(parse_cron(expression) for expression in listed))
    return Cron(fields, zone(tz).key)


def every(period: timedelta, *, anchor: datetime | None = None, tz: str) -> Every:
    """Return the schedule with a slot each *period* from *anchor*, by default from 1970 on.

    Raises:
        InvalidSchedule: The period is under a minute, or one of the two has parts of a second.
        InvalidZone: There is no such zone.
    """
    start = EPOCH if anchor is None else as_utc(anchor)
    if period < SHORTEST_PERIOD:
        raise InvalidSchedule(
            f"every {format_span(max(period, timedelta(0)))} is too often",
            field="every",
            hint=f"at least {format_span(SHORTEST_PERIOD)}",
        )
    if period.microseconds or start.microsecond:
        raise InvalidSchedule("slots are whole seconds", field="every", hint="leave parts out")
    if not EARLIEST <= start <= LATEST:
        raise InvalidSchedule(f"the anchor {anchor} is out of reach", field="anchor")
    return Every(period, start, zone(tz).key)


def at(text: str, tz: str) -> Once:
    """Return the schedule with the one slot that *text* names; without an offset, read in *tz*.

    Raises:
        InvalidSchedule: It is no instant; a bare time of day is answered with the cron meant.
        InvalidZone: There is no such zone.
    """
    place = zone(tz)
    named = _read_at(text)
    written = named.isoformat(" " if named.tzinfo is None else "T")
    written = written.removesuffix(":00") if named.tzinfo is None else written
    slot = instant_of(named, place) if named.tzinfo is None else as_utc(named)
    if slot is None:
        raise InvalidSchedule(
            f"no clock in {place.key} ever shows {written}", field="at", hint="name another day"
        )
    if not EARLIEST <= slot <= LATEST:
        raise InvalidSchedule(f"the year {named.year} is out of reach", field="at")
    return Once(written, named if named.tzinfo is None else None, slot, place.key)


def _read_at(text: str) -> datetime:
    example = 'write it like "2026-11-30 09:00"'
    if (clock := read_time(text)) is not None:
        raise InvalidSchedule(
            f"{text.strip()!r} is a time of day, and `at` is one instant",
            field="at",
            hint=f'for every day write `cron: "{clock.minute} {clock.hour} * * *"`;'
            f' for one day write it like "2026-11-30 {clock:%H:%M}"',
        )
    try:
        named = read_date_time(text)
    except ValueError as error:
        raise InvalidSchedule(f"{text[:60]!r}: {error}", field="at", hint=example) from error
    if named is None:
        raise InvalidSchedule(f"{text[:60]!r} is no instant", field="at", hint=example)
    if named.microsecond:
        raise InvalidSchedule("slots are whole seconds", field="at", hint=example)
    return named


def rrule(text: str, tz: str) -> RRule:
    """Return the schedule that an RFC 5545 DTSTART and RRULE name, read in zone *tz*.

    Raises:
        InvalidSchedule: It can't be read, is finer than hourly, or never comes.
        InvalidZone: There is no such zone.
    """
    from routines.domain.recurrence import bad_rule, read_recurrence

    place = zone(tz)
    schedule = RRule(*read_recurrence(text, place), place.key)
    if recurrence_of(schedule).after(schedule.start - _SECOND) is None:
        raise bad_rule(f"{schedule.rule!r} never comes", "look at its days and at UNTIL")
    return schedule


@lru_cache(maxsize=1024)
def recurrence_of(schedule: RRule) -> "Recurrence":
    """Return the rule of *schedule*, read once."""
    from routines.domain.recurrence import Recurrence

    return Recurrence(schedule.start, schedule.rule)


def from_spec(spec: dict[str, Any]) -> Schedule:
    """Return the schedule whose `spec()` was written down as *spec*.

    Raises:
        InvalidSchedule: It is no such thing.
    """
    match spec:
        case {"cron": list(expressions), "tz": str(tz)}:
            return cron([str(expression) for expression in expressions], tz)
        case {"every": str(span), "anchor": str(anchor), "tz": str(tz)}:
            return every(parse_span(span), anchor=parse_instant(anchor), tz=tz)
        case {"at": str(text), "tz": str(tz)}:
            return at(text, tz)
        case {"rrule": str(text), "tz": str(tz)}:
            return rrule(text, tz)
        case _:
            raise InvalidSchedule(f"{str(spec)[:80]} is no schedule")


def slots_between(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the slots in (*after*, *until*], earliest first."""
    slot = schedule.next_after(after)
    while slot is not None and slot <= until:
        yield slot
        slot = schedule.next_after(slot)


def count_between(schedule: Schedule, after: datetime, until: datetime, most: int = 1000) -> int:
    """Return how many slots lie in (*after*, *until*]; *most* + 1 says that there are more."""
    return sum(1 for _ in islice(slots_between(schedule, after, until), most + 1))


def has_ended(schedule: Schedule, now: datetime) -> bool:
    """Return whether nothing is left to come after *now*."""
    return schedule.next_after(now) is None


def shortest_gap(schedule: Schedule) -> timedelta | None:
    """Return a span that no two slots are closer than; None if there is but one slot.

    It is proved over the whole pattern, not over its first pair, and for cron it is the shortest
    one that comes. It is measured on the clock: twice a year a change of it can bring two slots
    closer together, or further apart.
    """
    match schedule:
        case Cron():
            return _shortest_cron_gap(schedule.fields)
        case Every():
            return schedule.period
        case RRule():
            return recurrence_of(schedule).shortest_gap()
        case _:
            return None


def never_closer_than(schedule: Schedule, gap: timedelta) -> bool:
    """Return whether no two slots are ever closer than *gap* on the clock."""
    if isinstance(schedule, Cron) and _clear_of_each_other(schedule.fields, gap):
        return True
    shortest = shortest_gap(schedule)
    return shortest is None or shortest >= gap


def _clear_of_each_other(expressions: Sequence[CronFields], gap: timedelta) -> bool:
    """Say yes without a look at any day: were all to fire on each day, it would be far enough."""
    times = sorted({_of_day(clock) for fields in expressions for clock in fields.times()})
    pairs = pairwise([*times, times[0] + _DAY])
    return gap <= _DAY and all(later - earlier >= gap for earlier, later in pairs)


def _of_day(clock: time) -> timedelta:
    return timedelta(hours=clock.hour, minutes=clock.minute)


@lru_cache(maxsize=1024)
def _shortest_cron_gap(expressions: tuple[CronFields, ...]) -> timedelta | None:
    shortest: timedelta | None = None
    last: datetime | None = None
    day, end = (datetime.combine(date, time()) for date in (CYCLE_START, CYCLE_END))
    times_of = cache(_times_of)
    while day <= end and shortest != SHORTEST_PERIOD:
        first_time, last_time, within = times_of(tuple(f for f in expressions if f.on(day)))
        if first_time is not None and last_time is not None:
            gaps = [within, None if last is None else day + first_time - last, shortest]
            shortest = min((gap for gap in gaps if gap is not None), default=None)
            last = day + last_time
        day += _DAY
    return shortest


def _times_of(
    expressions: tuple[CronFields, ...],
) -> tuple[timedelta | None, timedelta | None, timedelta | None]:
    """Return first and last time of a day on which these fire, and the shortest gap between."""
    times = sorted({_of_day(clock) for fields in expressions for clock in fields.times()})
    if not times:
        return None, None, None
    gaps = (later - earlier for earlier, later in pairwise(times))
    return times[0], times[-1], min(gaps, default=None)
