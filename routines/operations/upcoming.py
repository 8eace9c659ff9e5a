"""`next`: the coming instants, of one routine or of all."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any

from routines.domain.names import format_instant
from routines.domain.routine import Routine
from routines.domain.schedule_remarks import note_for
from routines.domain.zones import local_text
from routines.domain.zones import zone as zone_named
from routines.errors import UnknownRoutine, UsageError
from routines.operations.context import Context
from routines.operations.deciding import Decider
from routines.operations.finding import check_known
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
    """

    routine: str
    slot: datetime
    tz: str
    jitter: timedelta = timedelta(0)
    note: str | None = None
    decision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as `next --json` shows it."""
        return {
            "routine": self.routine,
            "slot": format_instant(self.slot),
            "tz": self.tz,
            "jitter_s": int(self.jitter.total_seconds()),
            "note": self.note,
            "decision": self.decision,
        }


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What `next` answers.

    Attributes:
        routine: Whose instants, or None for all.
        schedule: Its schedule as text, or None.
        coming: Earliest first.
        silent: Routines of which something, or all, is left out, with the reason.
        decided: Whether each says what it would meet.
    """

    routine: str | None
    schedule: str | None
    coming: tuple[Coming, ...]
    silent: tuple[tuple[str, str], ...] = ()
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
    routines = _wanted(context, routine)
    now = context.clock.now()
    after = now if start is None else start - _SECOND
    over = {r.name: _over(r, now, decide=decide) for r in routines}
    switches = {
        r.name: None if decide else held_by(context.state_or_none, r.name, now=now)
        for r in routines
        if over[r.name] is None
    }
    silent = {r.name: over[r.name] or _paused(switches[r.name], r.zone) for r in routines}
    if routine is None:
        silent |= dict.fromkeys(context.workspace.broken, "broken: routines check")
    streams = [
        _slots(one, _resumed(switches[one.name], after))
        for one in routines
        if over[one.name] is None and not _for_good(switches[one.name])
    ]
    merged: Iterator[Coming] = heapq.merge(*streams, key=attrgetter("slot", "routine"))
    if end is not None:
        merged = takewhile(lambda one: one.slot <= end, merged)
    found = list(islice(merged, count))
    decider = Decider(context) if decide else None
    return Upcoming(
        routine=routine,
        schedule=_text(routines[0]) if routine is not None else None,
        coming=tuple(_noted(context, one, decider) for one in found),
        silent=tuple((name, why) for name, why in sorted(silent.items()) if why is not None),
        decided=decide,
    )


def _wanted(context: Context, name: str | None) -> list[Routine]:
    routines = context.workspace.routines
    if name is None:
        return list(routines.values())
    if name not in routines:
        check_known(context, name)
        if name in context.workspace.broken:
            from routines.errors import InvalidFiles

            raise InvalidFiles(context.workspace.broken[name])
        raise UnknownRoutine(name, list(routines))
    return [routines[name]]


def _over(routine: Routine, now: datetime, *, decide: bool) -> str | None:
    """Return why nothing of *routine* is to come, or None; with *decide* its slots say it."""
    if routine.schedule is None:
        return "no schedule: it is reached by name only"
    if routine.schedule.next_after(now) is None:
        return "over: its schedule has nothing left to come"
    return "disabled" if not routine.enabled and not decide else None


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


def _text(routine: Routine) -> str | None:
    return None if routine.schedule is None else routine.schedule.text()


def _slots(routine: Routine, after: datetime) -> Iterator[Coming]:
    if routine.schedule is None:
        return
    slot = routine.schedule.next_after(after)
    while slot is not None:
        yield Coming(routine=routine.name, slot=slot, tz=routine.zone)
        slot = routine.schedule.next_after(slot)


def _noted(context: Context, one: Coming, decider: Decider | None) -> Coming:
    routine = context.workspace.routines[one.routine]
    schedule, timetable = routine.schedule, routine.timetable
    return Coming(
        routine=one.routine,
        slot=one.slot,
        tz=one.tz,
        jitter=timedelta(0) if timetable is None else timetable.due_at(one.slot) - one.slot,
        note=None if schedule is None else note_for(schedule, one.slot),
        decision=None if decider is None else decider.decide(routine, one.slot),
    )
