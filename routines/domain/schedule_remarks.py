"""What a schedule's author may not have meant, and what a change of the clock does to a slot.

Said by `check`, `next` and `new`; nothing here decides when anything fires.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from routines.domain.cron import CronFields, Step
from routines.domain.schedule import (
    Cron,
    Once,
    RRule,
    Schedule,
    WallTimes,
    recurrence_of,
    slots_between,
)
from routines.domain.zones import (
    LATEST,
    LONGEST_GAP,
    Change,
    as_utc,
    changes,
    day_text,
    instant_of,
    local_text,
    shown,
    zone,
)

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
# What `check` looks ahead for changes of the clock: once round the year.
_YEAR = timedelta(days=366)
# Beside a remark: enough dates to see the pattern, few enough for one line.
_DATES_SHOWN = 3
# A step by the minute starts over within the hour; one by the month may need a year.
_SLOTS_LOOKED_AT = 100


def note_for(schedule: Schedule, slot: datetime) -> str | None:
    """Return what a change of the clock has to do with *slot*, or None if it has nothing.

    `02:30 does not exist that day: the first minute after the gap`.
    """
    place = zone(schedule.zone_key)
    wall = shown(slot, place)
    for change in changes(place, after=slot - _DAY, until=slot + _DAY):
        if change.at == slot and not _names_wall(schedule, wall):
            gone = _times_in(schedule, change.wall_before, change.wall_after)
            if gone:
                return f"{_absent(gone)} that day: the first minute after the gap"
        repeated = change.wall_after <= wall < change.wall_before
        if repeated and (isinstance(schedule, Cron) or _fixed_times(schedule)):
            which = "first" if slot < change.at else "second"
            return f"{wall:%H:%M} comes twice that day: the {which} time"
    return None


def remarks(schedule: Schedule, now: datetime) -> list[str]:
    """Return what its author may not have meant, each in a line with the next dates.

    Both day fields set; a step that does not divide its range; fixed times that a change of the
    clock skips or repeats within a year.
    """
    found = []
    if isinstance(schedule, Cron):
        for fields in schedule.fields:
            about = _about_fields(fields, Cron((fields,), schedule.zone_key), as_utc(now))
            found += about if len(schedule.fields) == 1 else [f"{fields.text}: {a}" for a in about]
    for change in changes(zone(schedule.zone_key), after=now, until=as_utc(now) + _YEAR):
        remark = _about_change(schedule, change)
        if remark is not None:
            found.append(remark)
    return found


def _about_fields(fields: CronFields, alone: Cron, now: datetime) -> list[str]:
    place = zone(alone.zone_key)
    found = []
    if fields.day_is_set and fields.weekday_is_set:
        slots = list(islice(slots_between(alone, now, LATEST), _DATES_SHOWN))
        found.append(f"{_about_days(fields)}; next {_dates(slots, place)}")
    for step in fields.steps:
        if not step.is_even:
            slots = _around_the_turn(step, alone, now)
            found.append(f"{_about_step(step)}; next {_dates(slots, place)}")
    return found


def _dates(slots: Sequence[datetime], place: ZoneInfo) -> str:
    return ", ".join(local_text(slot, place) for slot in slots)


def _around_the_turn(step: Step, alone: Cron, now: datetime) -> list[datetime]:
    """Return the next two slots between which *step* starts over, or else just the next ones."""
    place = zone(alone.zone_key)
    slots = list(islice(slots_between(alone, now, LATEST), _SLOTS_LOOKED_AT))
    for earlier, later in pairwise(slots):
        if step.field.value_in(shown(later, place)) < step.field.value_in(shown(earlier, place)):
            return [earlier, later]
    return slots[:_DATES_SHOWN]


def _about_days(fields: CronFields) -> str:
    if fields.both_days:
        return "day and weekday are both set and one begins with '*', so both must match"
    return "day and weekday are both set, so either one is enough"


def _about_step(step: Step) -> str:
    name, turn = step.field.name, step.field.turn
    if len(step.values) == 1:
        return f"{name} {step.text} is the same as {step.first}: the step is longer than the {turn}"
    return (
        f"{name} {step.text} starts over with each {turn}: after {step.values[-1]} comes"
        f" {step.first}, which is not {step.every} later"
    )


def _about_change(schedule: Schedule, change: Change) -> str | None:
    place = zone(schedule.zone_key)
    first, last = sorted([change.wall_before, change.wall_after])
    met = _times_in(schedule, first, last)
    if not met:
        return None
    where = f"on {day_text(met[0])} in {place.key}"
    if change.length > LONGEST_GAP:
        return f"{_absent(met)} {where}: it is not made up for"
    if change.length > timedelta(0):
        return f"{_absent(met)} {where}: it fires at {local_text(change.at, place)}"
    firsts = [slot for wall in met if (slot := instant_of(wall, place)) is not None]
    times = _joined([f"{wall:%H:%M}" for wall in met])
    come = "comes" if len(met) == 1 else "come"
    return f"{times} {come} twice {where}: it fires the first time, {local_text(firsts[0], place)}"


def _absent(walls: Sequence[datetime]) -> str:
    times = _joined([f"{wall:%H:%M}" for wall in walls])
    return f"{times} {'does' if len(walls) == 1 else 'do'} not exist"


def _joined(times: Sequence[str]) -> str:
    if len(times) > _DATES_SHOWN:
        return f"{times[0]} to {times[-1]}"
    return " and ".join([", ".join(times[:-1]), times[-1]] if len(times) > 1 else times)


class _OneTime:
    """The wall time of an `at`, to be asked like the others."""

    def __init__(self, wall: datetime) -> None:
        self._wall = wall

    def after(self, wall: datetime) -> datetime | None:
        return self._wall if self._wall > wall else None

    def at_or_before(self, wall: datetime) -> datetime | None:
        return self._wall if self._wall <= wall else None


def _fixed_times(schedule: Schedule) -> list[WallTimes]:
    match schedule:
        case Cron():
            return [fields for fields in schedule.fields if not fields.follows_clock]
        case RRule():
            return [recurrence_of(schedule)]
        case Once(wall=datetime() as wall):
            return [_OneTime(wall)]
        case _:
            return []


def _times_in(schedule: Schedule, first: datetime, end: datetime) -> list[datetime]:
    """Return the fixed times in [*first*, *end*), earliest first."""
    found = set()
    for times in _fixed_times(schedule):
        wall = times.after(first - _SECOND)
        while wall is not None and wall < end:
            found.add(wall)
            wall = times.after(wall)
    return sorted(found)


def _names_wall(schedule: Schedule, wall: datetime) -> bool:
    if isinstance(schedule, Cron):
        return any(fields.matches(wall) for fields in schedule.fields)
    return any(times.at_or_before(wall) == wall for times in _fixed_times(schedule))
