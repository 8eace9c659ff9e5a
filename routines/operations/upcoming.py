"""`next`: the coming instants, of one routine or of all."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any

from routines.domain.names import format_instant
from routines.domain.routine import Routine
from routines.domain.schedule_remarks import note_for
from routines.domain.timetable import Timetable
from routines.domain.zones import local_text
from routines.domain.zones import zone as zone_named
from routines.errors import UnknownRoutine, UsageError
from routines.operations.ahead import DEALT_WITH, Ahead, ahead_of
from routines.operations.context import Context
from routines.operations.deciding import LAST_GOOD_DECIDES, Decider
from routines.operations.finding import check_known
from routines.operations.last_good import last_good
from routines.operations.pending import Held, held_by

USUAL_COUNT = 10
MOST_LISTED = 10_000
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """One instant that is ahead.

    Attributes:
        routine: Whose.
        slot: When.
        tz: The zone that it is read in.
        jitter: How much later than the slot it falls due.
        note: What a change of the clock has to do with it, or None.
        decision: What it would meet from today's state; None if that was not asked.
        stale: Whether it is of a last good version, since the file is broken now.
    """

    routine: str
    slot: datetime
    tz: str
    jitter: timedelta = timedelta(0)
    note: str | None = None
    decision: str | None = None
    stale: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as `next --json` shows it."""
        return {
            "routine": self.routine,
            "slot": format_instant(self.slot),
            "tz": self.tz,
            "jitter_s": int(self.jitter.total_seconds()),
            "note": self.note,
            "decision": self.decision,
            "stale": self.stale,
        }


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What `next` answers.

    Attributes:
        routine: Whose instants, or None for all.
        schedule: Its schedule as text, or None.
        coming: Earliest first.
        silent: Routines of which something, or all, is left out, with the reason.
        stale: Routines that go on in their last good version.
        decided: Whether each says what it would meet.
    """

    routine: str | None
    schedule: str | None
    coming: tuple[Coming, ...]
    silent: tuple[tuple[str, str], ...] = ()
    stale: tuple[str, ...] = ()
    decided: bool = False

    def to_json(self) -> list[dict[str, Any]]:
        """Return it as `next --json` shows it."""
        return [one.to_json() for one in self.coming]


def upcoming(
    context: Context,
    routine: str | None,
    *,
    count: int = USUAL_COUNT,
    start: datetime | None = None,
    end: datetime | None = None,
    decide: bool = False,
) -> Upcoming:
    """Return the next instants at or after *start*, up to *end*.

    Raises:
        UnknownRoutine: There is no routine of that name.
        UsageError: The range is empty, or the count is no count.
    """
    if not 1 <= count <= MOST_LISTED:
        raise UsageError(f"-n {count}: expected 1 to {MOST_LISTED}")
    if start is not None and end is not None and end < start:
        raise UsageError("--to lies before --from")
    sources = _wanted(context, routine)
    now = context.clock.now()
    after = now if start is None else start - _SECOND
    state = context.state_or_none
    # With a decision each says itself that it was dealt with.
    ahead = {one.name: Ahead() if decide else ahead_of(state, one.name, now=now) for one in sources}
    over = {one.name: _over(one, ahead[one.name], now, decide=decide) for one in sources}
    switches = {
        one.name: None if decide else held_by(state, one.name, now=now)
        for one in sources
        if over[one.name] is None
    }
    silent = {
        one.name: over[one.name]
        or _paused(switches[one.name], one.zone)
        or _left_out(ahead[one.name], one.zone)
        for one in sources
    }
    if routine is None:
        shown = {one.name for one in sources}
        silent |= {n: "broken: routines check" for n in context.workspace.broken if n not in shown}
    streams = [
        _slots(one, _resumed(switches[one.name], after), ahead[one.name])
        for one in sources
        if over[one.name] is None and not _for_good(switches[one.name])
    ]
    merged: Iterator[tuple[datetime, str, _Source]] = heapq.merge(*streams, key=itemgetter(0, 1))
    if end is not None:
        merged = takewhile(lambda one: one[0] <= end, merged)
    decider = Decider(context) if decide else None
    return Upcoming(
        routine=routine,
        schedule=_text(sources[0]) if routine is not None else None,
        coming=tuple(_coming(one, slot, decider) for slot, _, one in islice(merged, count)),
        silent=tuple((name, why) for name, why in sorted(silent.items()) if why is not None),
        stale=tuple(sorted(one.name for one in sources if one.definition is None)),
        decided=decide,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """What the slots of one routine come from.

    Attributes:
        name: Of the routine.
        zone: In which its times are read.
        timetable: Yields them; None if it is reached by name only.
        definition: What its file says; None for a last good version.
    """

    name: str
    zone: str
    timetable: Timetable | None
    definition: Routine | None


def _wanted(context: Context, name: str | None) -> list[_Source]:
    routines, kept = context.workspace.routines, last_good(context)
    if name is not None and name not in routines and name not in kept:
        check_known(context, name)
        if name in context.workspace.broken:
            from routines.errors import InvalidFiles

            raise InvalidFiles(context.workspace.broken[name])
        raise UnknownRoutine(name, list(routines))
    sources = [_Source(one.name, one.zone, one.timetable, one) for one in routines.values()]
    sources += [_Source(one.name, one.zone, one.timetable, None) for one in kept.values()]
    return [one for one in sources if name in (None, one.name)]


def _over(source: _Source, ahead: Ahead, now: datetime, *, decide: bool) -> str | None:
    """Return why nothing of *source* is to come, or None; with *decide* its slots say it."""
    if source.timetable is None:
        return "no schedule: it is reached by name only"
    if source.timetable.schedule.next_after(now) is None:
        return "over: its schedule has nothing left to come"
    if ahead.next_after(source.timetable.schedule, now) is None:
        return "over: what was left to come was dealt with already, by a clock that was ahead"
    enabled = source.definition is None or source.definition.enabled
    return "disabled" if not enabled and not decide else None


def _paused(switch: Held | None, zone: str) -> str | None:
    """Return what a pause leaves out, in words; None without one."""
    if switch is None:
        return None
    what = "everything is paused" if switch.everything else "paused"
    if switch.until is None:
        return f"{what}: nothing starts until it is resumed"
    return f"{what}: nothing starts until {local_text(switch.until, zone_named(zone))}"


def _for_good(switch: Held | None) -> bool:
    return switch is not None and switch.until is None


def _resumed(switch: Held | None, after: datetime) -> datetime:
    """Return after which instant slots start again."""
    return after if switch is None or switch.until is None else max(after, switch.until)


def _text(source: _Source) -> str | None:
    return None if source.timetable is None else source.timetable.schedule.text()


def _left_out(ahead: Ahead, zone: str) -> str | None:
    """Return which slot is left out since it was dealt with, in words; None if none is."""
    slot = min(ahead.claimed | ahead.recorded, default=None)
    if slot is None:
        return None
    more = len(ahead.claimed | ahead.recorded) - 1
    also = f" and {more} more" if more else ""
    return f"{local_text(slot, zone_named(zone))}{also}: {DEALT_WITH}"


def _slots(
    source: _Source, after: datetime, ahead: Ahead
) -> Iterator[tuple[datetime, str, _Source]]:
    if source.timetable is None:
        return
    slot = ahead.next_after(source.timetable.schedule, after)
    while slot is not None:
        yield slot, source.name, source
        slot = ahead.next_after(source.timetable.schedule, slot)


def _coming(source: _Source, slot: datetime, decider: Decider | None) -> Coming:
    timetable = source.timetable
    due_at = slot if timetable is None else timetable.due_at(slot)
    decision = None
    if decider is not None and slot <= decider.now:
        decision = "past: routines explain says what became of it"
    elif decider is not None and source.definition is not None:
        decision = decider.decide(source.definition, slot)
    elif decider is not None:
        decision = decider.paused(source.name, source.zone, due_at) or LAST_GOOD_DECIDES
    return Coming(
        routine=source.name,
        slot=slot,
        tz=source.zone,
        jitter=due_at - slot,
        note=None if timetable is None else note_for(timetable.schedule, slot),
        decision=decision,
        stale=source.definition is None,
    )
