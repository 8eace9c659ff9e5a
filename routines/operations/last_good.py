"""Routines whose file is broken now and which go on in their last good version.

Their definition is in the memory of the scheduler alone; what tells when they fire is shown by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from routines.domain.durations import parse_span
from routines.domain.schedule import from_spec
from routines.domain.timetable import Timetable
from routines.errors import RoutinesError
from routines.operations.context import Context
from routines.operations.life import Schedulers, schedulers


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGood:
    """What is known of a last good version.

    Attributes:
        name: Of the routine.
        zone: In which its times are read.
        timetable: When it fires; None if it is reached by name only, or that is not known.
        tags: What commands select it by.
    """

    name: str
    zone: str
    timetable: Timetable | None = None
    tags: tuple[str, ...] = ()


def last_good(context: Context, alive: Schedulers | None = None) -> dict[str, LastGood]:
    """Return what is armed in its last good version, by name.

    Args:
        context: Where and when.
        alive: Who schedules, if that has been looked at.
    """
    broken = context.workspace.broken
    if not broken:
        return {}
    found = schedulers(context.state_or_none, now=context.clock.now()) if alive is None else alive
    armed = {name: one.kept.get(name, {}) for one in found.live for name in one.armed}
    return {name: _last_good(context, name, armed[name]) for name in broken if name in armed}


def _last_good(context: Context, name: str, shown: dict[str, Any]) -> LastGood:
    try:
        return LastGood(
            name=name,
            zone=str(shown["zone"]),
            timetable=Timetable(name, from_spec(shown["schedule"]), parse_span(shown["jitter"])),
            tags=tuple(map(str, shown["tags"])),
        )
    except (KeyError, TypeError, AttributeError, RoutinesError):
        # By name only, or shown by another version: that it goes on is known all the same.
        tags = shown.get("tags")
        known = tuple(map(str, tags)) if isinstance(tags, list) else ()
        return LastGood(name=name, zone=context.zone_of(name).key, tags=known)


def tagged(
    context: Context, tags: Iterable[str], *, kept: dict[str, LastGood] | None = None
) -> list[str]:
    """Return the routines that carry one of *tags*, sorted; all for none.

    Args:
        context: Where and when.
        tags: Any of them will do.
        kept: The last good versions, if they have been looked at.
    """
    wanted = frozenset(tags)
    workspace = context.workspace
    if not wanted:
        return list(workspace.names)
    kept = last_good(context) if kept is None else kept
    carried = {name: one.tags for name, one in workspace.routines.items()}
    carried |= {name: one.tags for name, one in kept.items()}
    return sorted(name for name, own in carried.items() if not wanted.isdisjoint(own))
