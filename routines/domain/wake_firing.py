"""What becomes of a wake-up when it falls due (PROMISES W3, W4): values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain import schedule as schedules
from routines.domain.names import format_instant, parse_instant
from routines.domain.outcome import Reason
from routines.domain.wakeup import Bounds, Wakeup
from routines.domain.zones import as_utc, day_of

# Often enough that a turn of a minute delays nobody by another; two tries a minute cost nothing.
TRY_EVERY = timedelta(seconds=30)
# What has not found its session free for an hour would come as a surprise after it.
GIVE_UP_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Passed:
    """Firings of a recurring wake-up that an absence passed over: one counted range.

    Attributes:
        first: The first of them.
        last: The last of them.
        count: How many; 1001 for more than 1000.
    """

    first: datetime
    last: datetime
    count: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a claim keeps it under `missed`."""
        return {
            "from": format_instant(self.first),
            "to": format_instant(self.last),
            "count": self.count,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Passed":
        """Return what `to_json` wrote."""
        return cls(parse_instant(data["from"]), parse_instant(data["to"]), int(data["count"]))


@dataclass(frozen=True, slots=True)
class Fire:
    """It is due: claim its firing and run the turn, unless its session is busy.

    Attributes:
        instant: What the firing is for.
        passed: The older ones that it stands for too, or None.
    """

    instant: datetime
    passed: Passed | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """It is due, and its firing is claimed and settled without a turn in one.

    Attributes:
        instant: What the firing was for.
        reason: `limit`, `busy` or `refused`; `not-found` if no agent is there to be woken.
        passed: The older ones that it stands for too, or None.
    """

    instant: datetime
    reason: Reason
    passed: Passed | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """It stays pending.

    Attributes:
        until: When to look again.
        limit: Whether it waits for another day with firings left; it is then for that instant.
    """

    until: datetime
    limit: bool = False


def passed_over(wakeup: Wakeup, now: datetime) -> Passed | None:
    """Return the firings of a recurring one that fell due by *now* and are passed over, or None."""
    if wakeup.schedule is None or wakeup.next_at > now:
        return None
    schedule = schedules.from_spec(wakeup.schedule)
    more = schedules.count_between(schedule, wakeup.next_at, now)
    last = schedule.newest_at_or_before(now)
    return Passed(
        wakeup.next_at, wakeup.next_at if last is None else max(last, wakeup.next_at), 1 + more
    )


def joined(earlier: dict[str, Any] | None, later: Passed | None) -> Passed | None:
    """Return one range for two that were passed over, the first as a file has it."""
    try:
        before = None if earlier is None else Passed.from_json(earlier)
    except (KeyError, ValueError, TypeError):
        before = None
    if before is None or later is None:
        return before or later
    return Passed(before.first, later.last, before.count + later.count)


def due_instant(wakeup: Wakeup, now: datetime) -> datetime | None:
    """Return the instant that a firing at *now* is for, or None if nothing is due.

    After an absence that is the newest instant of a recurring one; a one-shot has only one.
    """
    if wakeup.look_at > now:
        return None
    if wakeup.schedule is None:
        return wakeup.next_at
    newest = schedules.from_spec(wakeup.schedule).newest_at_or_before(now)
    # An instant that was put off, or a zone whose rules have changed since, is still its own.
    return wakeup.next_at if newest is None else max(newest, wakeup.next_at)


def plan_firing(
    wakeup: Wakeup, *, now: datetime, fired: int, bounds: Bounds, place: ZoneInfo
) -> Fire | Skip | Wait:
    """Decide what becomes of *wakeup* at *now*.

    Args:
        wakeup: As it is pending.
        now: The present instant.
        fired: How many firings of its session were due on the day of `due_instant`.
        bounds: The guardrails.
        place: The workspace's zone, whose days count.
    """
    now = as_utc(now)
    instant = due_instant(wakeup, now)
    if instant is None:
        return Wait(wakeup.look_at)
    if fired < bounds.firings:
        return Fire(instant, _passed(wakeup, instant))
    if wakeup.recurs:
        return Skip(instant, Reason.LIMIT, _passed(wakeup, instant))
    _, next_day = day_of(instant, place)
    return Wait(next_day, limit=True)


def _passed(wakeup: Wakeup, instant: datetime) -> Passed | None:
    return joined(wakeup.passed, _before(wakeup, instant))


def _before(wakeup: Wakeup, instant: datetime) -> Passed | None:
    if wakeup.schedule is None or wakeup.next_at >= instant:
        return None
    schedule = schedules.from_spec(wakeup.schedule)
    before = instant - timedelta(microseconds=1)
    last = schedule.newest_at_or_before(before)
    # From the instant that was waited for: it is one of them, whatever the rules say today.
    more = schedules.count_between(schedule, wakeup.next_at, before)
    last = wakeup.next_at if last is None else max(last, wakeup.next_at)
    return Passed(wakeup.next_at, last, 1 + more)


def plan_busy(wakeup: Wakeup, due: Fire, *, now: datetime) -> Skip | Wait:
    """Decide what becomes of a due firing that finds its session busy (W4).

    A recurring one is skipped, and the next comes as planned. A one-shot stays pending and is tried
    again; an hour after its first try it is given up.
    """
    if wakeup.recurs:
        return Skip(due.instant, Reason.BUSY, due.passed)
    if wakeup.deferred_since is not None and now - wakeup.deferred_since >= GIVE_UP_AFTER:
        return Skip(due.instant, Reason.BUSY)
    return Wait(now + TRY_EVERY)


def after_firing(
    wakeup: Wakeup, instant: datetime, *, fired: bool, refused: bool = False
) -> Wakeup | None:
    """Return what stays pending once the firing for *instant* is claimed; None if nothing does.

    Args:
        wakeup: As it was pending.
        instant: What the firing was for.
        fired: Whether a turn follows; a skipped firing is not counted.
        refused: Whether it was skipped since the program's hook said no.
    """
    if wakeup.schedule is None:
        return None
    following = schedules.from_spec(wakeup.schedule).next_after(instant)
    if following is None:
        return None
    return wakeup.with_(
        next_at=following,
        firings=wakeup.firings + fired,
        deferred_since=None,
        try_at=None,
        last_at=instant,
        previous_at=wakeup.last_at,
        refused_at=instant if refused else wakeup.refused_at,
        passed=None,
    )
