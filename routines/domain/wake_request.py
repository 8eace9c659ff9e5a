"""What an agent may ask for: the guardrails (PROMISES W1), as a function from values to a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain import schedule as schedules
from routines.domain.outcome import one_line
from routines.domain.wake_timing import (
    NOTHING,
    checked_at,
    checked_cron,
    checked_every,
    checked_in,
    checked_zone,
    first_of,
    is_given,
    refused,
)
from routines.domain.wake_words import pending_line, period_of
from routines.domain.wakeup import Bounds, Timing, Wakeup
from routines.domain.zones import as_utc, day_of, zone
from routines.errors import WakeupRefused

# An answer that got lost makes an agent ask again within seconds, and `in` then means an instant a
# little later. Nobody means two wake-ups of one prompt that are closer than the closest allowed.
SAME_WITHIN = timedelta(minutes=1)
# A list to choose from and not to read; `wakeups()` has the rest.
_SHOWN_WHEN_FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeRequest:
    """What was asked, as it was asked: nothing in it is checked yet.

    Attributes:
        prompt: What the agent is to be told.
        in_: A span from now.
        at: An instant, or a time of day: its next coming.
        every: A span between firings.
        cron: A cron expression.
        tz: An IANA name, for `at` and `cron`.
        session: Whose wake-up; None gives it a session of its own, `wake:<id>`.
        by: `user@host`, or the key of the turn that asks.
        turn: The key of the turn that asks, or None.
        can_wait: Whether the asker is in a turn, and may wait within it.
        anchor: Where `every` is counted from; None for now.
        key: The id that a program knows it by; None for what an agent or a person asks.
        fingerprint: What tells its content from another's under the same key.
        fresh: Whether each firing gets a new conversation.
    """

    prompt: Any
    in_: Any = None
    at: Any = None
    every: Any = None
    cron: Any = None
    tz: Any = None
    session: str | None = None
    by: str = ""
    turn: str | None = None
    can_wait: bool = True
    anchor: datetime | None = None
    key: str | None = None
    fingerprint: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """A time that was asked for, read and found to be within the bounds.

    Attributes:
        timing: How it was given.
        asked: The words it was given in.
        schedule: Of a recurring one; None for a one-shot.
        tz: The zone that it is read in.
        first: The first instant.
    """

    timing: Timing
    asked: str
    schedule: schedules.Schedule | None
    tz: str
    first: datetime


@dataclass(frozen=True, slots=True)
class AlreadySet:
    """The same prompt at the same time is pending: nothing was added.

    Attributes:
        wakeup: The pending one.
    """

    wakeup: Wakeup


def check_request(
    request: WakeRequest,
    *,
    id: str,  # noqa: A002  # it is what the wake-up will be called
    now: datetime,
    pending: Sequence[Wakeup],
    fired_today: int,
    bounds: Bounds,
    zone_key: str,
) -> Wakeup | AlreadySet:
    """Return the wake-up that was asked for, or the pending one that is the same.

    Args:
        request: What was asked.
        id: What it will be called.
        now: The present instant.
        pending: What is pending in its session.
        fired_today: How many firings of its session were due today.
        bounds: The guardrails.
        zone_key: The workspace's zone: the default of `tz`, and the one whose days count.

    Raises:
        WakeupRefused: A guardrail says no; the message says which, and what to ask instead.
    """
    now = as_utc(now)
    prompt = checked_prompt(request.prompt, bounds)
    when = timed(request, now=now, bounds=bounds, zone_key=zone_key)
    wanted = Wakeup(
        id=id,
        session=f"wake:{id}" if request.session is None else request.session,
        prompt=prompt,
        timing=when.timing,
        asked=one_line(when.asked),
        schedule=None if when.schedule is None else when.schedule.spec(),
        tz=when.tz,
        next_at=when.first,
        asked_for=when.first,
        created_at=now,
        created_by=request.by,
        created_in_turn=request.turn,
        key=request.key,
        fingerprint=request.fingerprint,
        fresh=request.fresh,
    )
    # Before the cap: whoever lost the answer to the twentieth must not be told that it is full.
    # A program tells its own apart by their keys.
    for other in pending if request.key is None else ():
        if _is_same(wanted, other):
            return AlreadySet(other)
    check_room(pending, bounds, now, zone(zone_key))
    return not_today(wanted, now, zone(zone_key)) if fired_today >= bounds.firings else wanted


def timed(request: WakeRequest, *, now: datetime, bounds: Bounds, zone_key: str) -> Timed:
    """Return the time that *request* asks for.

    Raises:
        WakeupRefused: It asks for none or several, can't be read, or is out of bounds.
    """
    timing, asked = _one_timing(request)
    tz = checked_zone(request.tz, zone_key)
    place = zone(tz)
    if request.anchor is not None and timing is not Timing.EVERY:
        raise refused("anchor goes with every alone.")
    if timing is Timing.IN:
        first = checked_in(asked, now, bounds, can_wait=request.can_wait)
        return Timed(timing, asked, None, tz, first)
    if timing is Timing.AT:
        first = checked_at(asked, now, bounds, place, can_wait=request.can_wait)
        return Timed(timing, asked, None, tz, first)
    if timing is Timing.EVERY:
        schedule = checked_every(asked, request.anchor or now, bounds, place)
    else:
        schedule = checked_cron(asked, bounds, place)
    return Timed(timing, asked, schedule, tz, first_of(schedule, timing, asked, now, bounds))


def checked_prompt(prompt: Any, bounds: Bounds) -> str:
    """Return *prompt* if it is text of a length that is allowed, or refuse it."""
    if prompt is None or prompt == "" or (isinstance(prompt, str) and not prompt.strip()):
        raise refused(
            "prompt is missing.", "Say what to look at then, what to do, and when to stop."
        )
    if not isinstance(prompt, str):
        raise refused(f"prompt must be text, not {type(prompt).__name__}.")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > bounds.prompt_bytes:
        raise refused(
            f"the prompt has {size} bytes; the most is {bounds.prompt_bytes}.",
            "Write the details to a file, and let the prompt say where it is.",
        )
    return prompt


def _one_timing(request: WakeRequest) -> tuple[Timing, str]:
    # Models fill in every argument that a schema has: an empty one was not meant.
    values = {
        Timing.IN: request.in_,
        Timing.AT: request.at,
        Timing.EVERY: request.every,
        Timing.CRON: request.cron,
    }
    given = {timing: value for timing, value in values.items() if is_given(value)}
    if len(given) == 1:
        ((timing, value),) = given.items()
        return timing, str(value).strip()
    if given:
        *some, last = [timing.value for timing in given]
        both = "both" if len(given) == 2 else "all"  # noqa: PLR2004
        raise refused(
            f"{', '.join(some)} and {last} are {both} given; exactly one of in, at, every, cron.",
            f"Ask again with only {last}, or only {some[0]}.",
        )
    raise refused("no time is given; exactly one of in, at, every, cron.", 'For example in="10m".')


def _is_same(wanted: Wakeup, other: Wakeup) -> bool:
    if wanted.prompt != other.prompt or wanted.recurs != other.recurs:
        return False
    if other.paused_at is not None or other.fresh:
        # It does not come as it was asked for, or not to this conversation.
        return False
    if wanted.timing is Timing.EVERY and other.timing is Timing.EVERY:
        # Their anchors differ by the moment of asking.
        return period_of(wanted) == period_of(other)
    if wanted.recurs:
        return wanted.schedule == other.schedule
    apart = abs(wanted.asked_for - other.asked_for)
    both_in = wanted.timing is Timing.IN and other.timing is Timing.IN
    return apart < SAME_WITHIN if both_in else not apart


def check_room(pending: Sequence[Wakeup], bounds: Bounds, now: datetime, place: ZoneInfo) -> None:
    """Refuse one more than a session may have beside *pending*."""
    if len(pending) < bounds.pending:
        return
    nearest = sorted(pending, key=lambda one: (one.next_at, one.id))[:_SHOWN_WHEN_FULL]
    lines = [pending_line(one, now=now, place=place) for one in nearest]
    if more := len(pending) - len(nearest):
        lines.append(f"  ... {more} more: wakeups()")
    raise WakeupRefused(
        f"{len(pending)} of {bounds.pending} wake-ups are pending in this conversation."
        f" {NOTHING} Cancel one first:",
        hint="\n".join(lines),
    )


def not_today(wanted: Wakeup, now: datetime, place: ZoneInfo) -> Wakeup:
    """Return *wanted* put off to tomorrow: its session has used its firings of today."""
    _, tomorrow = day_of(now, place)
    if wanted.next_at >= tomorrow:
        return wanted
    return wanted.with_(next_at=first_from(wanted, tomorrow) or wanted.next_at)


def first_from(wakeup: Wakeup, instant: datetime) -> datetime | None:
    """Return the first instant of *wakeup* that is not before *instant*, or None."""
    if wakeup.schedule is None:
        return instant
    return schedules.from_spec(wakeup.schedule).next_after(instant - timedelta(microseconds=1))
