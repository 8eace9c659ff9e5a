"""Wake-ups: what an agent may ask for, and what becomes of it when it falls due.

The guardrails (PROMISES W1) and the decisions of firing (W3, W4) are functions from values to
values. Nothing here looks at a clock, a file or a random number; the store asks them under its
lock, so that no two callers can pass a bound together.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain import schedule as schedules
from routines.domain.durations import format_span, parse_span
from routines.domain.names import format_instant, parse_instant
from routines.domain.outcome import Reason, one_line
from routines.domain.when import parse_when, read_date_time
from routines.domain.zones import as_utc, day_of, day_text, offset_text, shown, zone
from routines.errors import InvalidSchedule, InvalidSpan, InvalidWhen, InvalidZone, WakeupRefused

# Two thousand million ids: the store draws again if a session should ever draw one twice.
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 6
_ID = re.compile(r"w-[a-z0-9]{6}", re.ASCII)

# An answer that got lost makes an agent ask again within seconds, and `in` then means an instant a
# little later. Nobody means two wake-ups of one prompt that are closer than the closest allowed.
SAME_WITHIN = timedelta(minutes=1)
# Often enough that a turn of a minute delays nobody by another; two tries a minute cost nothing.
TRY_EVERY = timedelta(seconds=30)
# What has not found its session free for an hour would come as a surprise after it.
GIVE_UP_AFTER = timedelta(hours=1)
# Enough to recognise a wake-up by; short enough for one line beside an id and a time.
_START_OF_PROMPT = 29
# A list to choose from and not to read; `wakeups()` has the rest.
_SHOWN_WHEN_FULL = 2
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_NOTHING = "Nothing was scheduled."


class Timing(StrEnum):
    """How the time was given: the name of the argument."""

    IN = "in"
    AT = "at"
    EVERY = "every"
    CRON = "cron"

    @property
    def recurs(self) -> bool:
        """Whether it goes on until it is cancelled."""
        return self in (Timing.EVERY, Timing.CRON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The guardrails: what one session may ask for.

    Attributes:
        ahead: The least time ahead. Closer than this an agent can wait within its turn.
        apart: The least time between two firings of a recurring one.
        pending: How many one session may have. Enough for any plan that a person would make; few
            enough that one confused session can't bury the rest.
        firings: How many firings of one session may be due on one day of the workspace's zone: a
            little more than one every ten minutes, day and night.
        prompt_bytes: The longest prompt. What is longer belongs in a file that the prompt names.
        furthest: The most time ahead: a year, with its leap day.
    """

    ahead: timedelta = timedelta(seconds=60)
    apart: timedelta = timedelta(minutes=10)
    pending: int = 20
    firings: int = 150
    prompt_bytes: int = 32 * 1024
    furthest: timedelta = timedelta(days=366)


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakeup:
    """A turn that an agent asked for, in its own session.

    Attributes:
        id: `w-` and six letters or digits.
        session: Whose it is.
        prompt: What the agent will be told.
        timing: How the time was given.
        asked: The words it was given in.
        schedule: The spec of a recurring one; None for a one-shot.
        tz: The zone it was read in and is shown in.
        next_at: The instant that the next firing is for; the name of its claim.
        asked_for: The first instant asked for; later than it `next_at` may be, never earlier.
        created_at: When it was set.
        created_by: `user@host`, or the key of the turn that asked.
        created_in_turn: The key of that turn, or None if a person or a program asked.
        firings: How often it has fired.
        deferred_since: When a one-shot first found its session busy, or None.
        try_at: When it is to be looked at next, if that is later than `next_at`.
        revision: Of what was asked: 1 for what was set first.
    """

    id: str
    session: str
    prompt: str
    timing: Timing
    asked: str
    schedule: dict[str, Any] | None
    tz: str
    next_at: datetime
    asked_for: datetime
    created_at: datetime
    created_by: str
    created_in_turn: str | None = None
    firings: int = 0
    deferred_since: datetime | None = None
    try_at: datetime | None = None
    revision: int = 1

    @property
    def recurs(self) -> bool:
        """Whether it goes on until it is cancelled."""
        return self.schedule is not None

    @property
    def look_at(self) -> datetime:
        """When somebody has to look at it next."""
        return self.try_at or self.next_at

    @property
    def digest(self) -> str:
        """What shows that id, session, revision, instant and text belong together."""
        parts = (self.id, self.session, str(self.revision), format_instant(self.next_at))
        whole = "\0".join((*parts, self.prompt)).encode("utf-8", "surrogatepass")
        return hashlib.sha256(whole).hexdigest()

    def with_(self, **changes: Any) -> "Wakeup":
        """Return a copy with *changes*."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file; a claim of a firing holds the same."""
        return {
            "id": self.id,
            "session": self.session,
            "revision": self.revision,
            "timing": self.timing.value,
            "asked": self.asked,
            "schedule": self.schedule,
            "tz": self.tz,
            "next_at": format_instant(self.next_at),
            "asked_for": format_instant(self.asked_for),
            "created_at": format_instant(self.created_at),
            "created_by": self.created_by,
            "created_in_turn": self.created_in_turn,
            "firings": self.firings,
            "deferred_since": _written(self.deferred_since),
            "try_at": _written(self.try_at),
            "prompt": self.prompt,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Wakeup | None":
        """Return the wake-up that `to_json` wrote; None if *data* is something else.

        A text that its digest does not belong to is something else: it is never delivered.
        """
        try:
            found = cls(
                id=_text(data["id"]),
                session=_text(data["session"]),
                prompt=_text(data["prompt"]),
                timing=Timing(data["timing"]),
                asked=_text(data["asked"]),
                schedule=None if data["schedule"] is None else dict(data["schedule"]),
                tz=zone(data["tz"]).key,
                next_at=parse_instant(data["next_at"]),
                asked_for=parse_instant(data["asked_for"]),
                created_at=parse_instant(data["created_at"]),
                created_by=_text(data["created_by"]),
                created_in_turn=data["created_in_turn"],
                firings=int(data["firings"]),
                deferred_since=_read(data["deferred_since"]),
                try_at=_read(data["try_at"]),
                revision=int(data["revision"]),
            )
            sound = found.digest == data["digest"] and found.timing.recurs == found.recurs
            if found.schedule is not None:
                schedules.from_spec(found.schedule)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidZone, InvalidSchedule):
            return None
        return found if sound and is_id(found.id) else None


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _read(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def new_id(choose: Callable[[str], str]) -> str:
    """Return an id made of letters that *choose* picks, as `secrets.choice` does."""
    return "w-" + "".join(choose(ID_LETTERS) for _ in range(ID_LENGTH))


def is_id(text: str) -> bool:
    """Return whether *text* could be the id of a wake-up."""
    return _ID.fullmatch(text) is not None


# Asking -----------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class AlreadySet:
    """The same prompt at the same time is pending: nothing was added.

    Attributes:
        wakeup: The pending one.
    """

    wakeup: Wakeup


def request_from(
    arguments: Mapping[str, Any], *, session: str | None, by: str, turn: str | None
) -> WakeRequest:
    """Return the request that the arguments of a tool call make.

    Raises:
        WakeupRefused: One of them is no argument of `wake`; the message names the one meant.
    """
    known = ("prompt", *(timing.value for timing in Timing), "tz")
    for name in arguments:
        if name not in known:
            meant = "the text goes in prompt" if name in _PROMPTS else f"it has {', '.join(known)}"
            raise _refused(f'wake has no argument "{_quoted(name)}": {meant}.')
    given = dict(arguments)
    in_ = given.pop("in", None)
    given.setdefault("prompt", None)
    return WakeRequest(**given, in_=in_, session=session, by=by, turn=turn)


# What models call the text of a message elsewhere.
_PROMPTS = frozenset(["message", "text", "content", "reminder", "note", "task", "instructions"])


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
    prompt = _checked_prompt(request.prompt, bounds)
    timing, asked = _one_timing(request)
    tz = _checked_zone(request.tz, zone_key)
    place = zone(tz)
    schedule: schedules.Schedule | None = None
    if timing is Timing.IN:
        first = _checked_in(asked, now, bounds, can_wait=request.can_wait)
    elif timing is Timing.AT:
        first = _checked_at(asked, now, bounds, place, can_wait=request.can_wait)
    else:
        check = _checked_every if timing is Timing.EVERY else _checked_cron
        schedule = check(asked, now, bounds, place)
        first = _first_of(schedule, timing, asked, now, bounds)
    wanted = Wakeup(
        id=id,
        session=f"wake:{id}" if request.session is None else request.session,
        prompt=prompt,
        timing=timing,
        asked=one_line(asked),
        schedule=None if schedule is None else schedule.spec(),
        tz=tz,
        next_at=first,
        asked_for=first,
        created_at=now,
        created_by=request.by,
        created_in_turn=request.turn,
    )
    # Before the cap: whoever lost the answer to the twentieth must not be told that it is full.
    for other in pending:
        if _is_same(wanted, other):
            return AlreadySet(other)
    _check_room(pending, bounds, now, zone(zone_key))
    return _not_today(wanted, now, zone(zone_key)) if fired_today >= bounds.firings else wanted


def _quoted(value: Any) -> str:
    return one_line(str(value), most=60)


def _refused(message: str, hint: str | None = None) -> WakeupRefused:
    return WakeupRefused(f"{message} {_NOTHING}", hint=hint)


def _checked_prompt(prompt: Any, bounds: Bounds) -> str:
    if prompt is None or prompt == "" or (isinstance(prompt, str) and not prompt.strip()):
        raise _refused(
            "prompt is missing.", "Say what to look at then, what to do, and when to stop."
        )
    if not isinstance(prompt, str):
        raise _refused(f"prompt must be text, not {type(prompt).__name__}.")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > bounds.prompt_bytes:
        raise _refused(
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
    given = {timing: value for timing, value in values.items() if _is_given(value)}
    if len(given) == 1:
        ((timing, value),) = given.items()
        return timing, str(value).strip()
    if given:
        *some, last = [timing.value for timing in given]
        both = "both" if len(given) == 2 else "all"  # noqa: PLR2004
        raise _refused(
            f"{', '.join(some)} and {last} are {both} given; exactly one of in, at, every, cron.",
            f"Ask again with only {last}, or only {some[0]}.",
        )
    raise _refused("no time is given; exactly one of in, at, every, cron.", 'For example in="10m".')


def _is_given(value: Any) -> bool:
    return value is not None and str(value).strip() != ""


def _checked_zone(tz: Any, default: str) -> str:
    if not _is_given(tz):
        return default
    try:
        return zone(str(tz).strip()).key
    except InvalidZone as error:
        raise _refused(f'tz "{_quoted(tz)}": {error.message}.', _sentence(error.hint)) from error


def _sentence(hint: str | None) -> str | None:
    return None if not hint else f"{hint[0].upper()}{hint[1:]}{'' if hint[-1] in '.?!' else '.'}"


_UNIT_WORDS = {
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "w": "w wk wks week weeks",
}
_UNITS = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_WORDED_PART = re.compile(r"([0-9]{1,9}) ?([a-z]+)(?: ?(?:,|and) ?| |(?=[0-9])|$)", re.ASCII)
_ISO_SPAN = re.compile(
    r"p(?:(?P<w>[0-9]{1,9})w)?(?:(?P<d>[0-9]{1,9})d)?"
    r"(?:t(?:(?P<h>[0-9]{1,9})h)?(?:(?P<m>[0-9]{1,9})m)?(?:(?P<s>[0-9]{1,9})s)?)?",
    re.ASCII,
)
_MINUTES_LEFT_OUT = re.compile(r"([0-9]+ ?h(?:ours?|rs?)?) ?([0-9]{1,2})", re.ASCII)


def read_span(text: str) -> timedelta:
    """Return the span that *text* names, also as people and models write it.

    `10m` and what else `parse_span` reads, `10 minutes`, `1 hour and 30 min`, `1h30`, `PT10M`.

    Raises:
        InvalidSpan: It is something else.
    """
    words = " ".join(text.lower().split()).removeprefix("in ")
    if (iso := _ISO_SPAN.fullmatch(words)) and any(iso.groups()):
        return parse_span("".join(f"{n}{unit}" for unit, n in iso.groupdict().items() if n))
    if left_out := _MINUTES_LEFT_OUT.fullmatch(words):
        words = f"{left_out[1]} {left_out[2]}m"
    parts, at = [], 0
    while at < len(words):
        part = _WORDED_PART.match(words, at)
        if part is None or part[2] not in _UNITS:
            return parse_span(text)
        parts.append(f"{part[1]}{_UNITS[part[2]]}")
        at = part.end()
    return parse_span("".join(parts))


def _checked_span(timing: Timing, asked: str) -> timedelta:
    name = timing.value
    try:
        return read_span(asked)
    except InvalidSpan as error:
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", asked, re.ASCII):
            raise WakeupRefused(
                f'{name} "{_quoted(asked)}": {_quoted(asked)} what? {_NOTHING} {_with_units(asked)}'
            ) from error
        raise _refused(
            f'{name} "{_quoted(asked)}" is no span of time.',
            f'Ask again with {name}="30m", "2h30m" or "1d".',
        ) from error


def _with_units(number: str) -> str:
    whole = number.partition(".")[0][:6]
    seconds = format_span(timedelta(seconds=int(whole)))
    other = seconds if seconds != f"{whole}s" and int(whole) else f"{whole}m"
    return f'Write "{whole}s" or "{other}".'


def _whole_second_from(instant: datetime) -> datetime:
    """Return the first whole second that is not before *instant*: never early."""
    return instant if not instant.microsecond else instant.replace(microsecond=0) + _SECOND


def _later(least: str, *, can_wait: bool) -> str:
    """Return what to do about a time that is too near."""
    if can_wait:
        return f'Wait within this turn, or ask again with in="{least}".'
    return f'Ask again with in="{least}".'


def _checked_in(asked: str, now: datetime, bounds: Bounds, *, can_wait: bool) -> datetime:
    span = _checked_span(Timing.IN, asked)
    least = format_span(bounds.ahead)
    if span < bounds.ahead:
        raise _refused(
            f'in "{_quoted(asked)}" is too soon; the shortest is {least}.',
            _later(least, can_wait=can_wait),
        )
    if span > bounds.furthest:
        raise _too_far(Timing.IN, asked, bounds)
    return _whole_second_from(now + span)


def _too_far(timing: Timing, asked: str, bounds: Bounds) -> WakeupRefused:
    days = bounds.furthest // _DAY
    return _refused(
        f'{timing.value} "{_quoted(asked)}" is too far ahead; the most is {days} days.',
        f'Ask again with in="{days}d", and let that turn set the next one.',
    )


def now_text(now: datetime, place: ZoneInfo) -> str:
    """Return `Sun 29 Nov 16:18 +01:00 Europe/Berlin`."""
    local = now.astimezone(place)
    return f"{short_day(local)} {local:%H:%M} {offset_text(local)} {place.key}"


def short_day(local: datetime) -> str:
    """Return `Sun 29 Nov` for the day that *local* shows."""
    return day_text(local).rpartition(" ")[0]


def _checked_at(
    asked: str, now: datetime, bounds: Bounds, place: ZoneInfo, *, can_wait: bool
) -> datetime:
    try:
        instant = _whole_second_from(parse_when(asked, zone=place, now=now, past=False))
    except InvalidWhen as error:
        raise _refused(
            f'at "{_quoted(asked)}": {error.message}.',
            'Write it like at="2026-11-30T09:00" or at="09:00", or ask with in="10m".',
        ) from error
    said = f'at "{_quoted(asked)}"'
    named = read_date_time(asked)
    if named is not None and named.tzinfo is not None:
        # With an offset of its own it can't be compared with the clock beside it at a glance.
        said += f" ({now_text(instant, place)})"
    if instant <= now:
        instead = _next_like(instant, now, bounds, place)
        raise _refused(f"{said} is past: it is {now_text(now, place)}.", instead)
    if instant < now + bounds.ahead:
        least = format_span(bounds.ahead)
        raise _refused(
            f"{said} is too soon: it is {now_text(now, place)}; the shortest is {least} ahead.",
            _later(least, can_wait=can_wait),
        )
    if instant > now + bounds.furthest:
        raise _too_far(Timing.AT, asked, bounds)
    return instant


def _next_like(instant: datetime, now: datetime, bounds: Bounds, place: ZoneInfo) -> str:
    """Return the words to ask with for the next coming of the same time of day."""
    clock, today = shown(instant, place).time(), shown(now, place).date()
    coming = datetime.combine(today, clock)
    word = "today"
    if coming < shown(now, place) + bounds.ahead:
        coming, word = coming + _DAY, "tomorrow"
    return f'For {word}: at="{coming:%Y-%m-%dT%H:%M}".'


def _checked_every(
    asked: str, now: datetime, bounds: Bounds, place: ZoneInfo
) -> schedules.Schedule:
    period = _checked_span(Timing.EVERY, asked.lower().removeprefix("every "))
    if period < bounds.apart:
        raise _too_often(Timing.EVERY, asked, bounds, f'every="{format_span(bounds.apart)}"')
    # Counted from now: the first firing is one period away, not at some round time before it.
    return schedules.every(period, anchor=_whole_second_from(now), tz=place.key)


def _checked_cron(asked: str, _: datetime, bounds: Bounds, place: ZoneInfo) -> schedules.Schedule:
    try:
        schedule = schedules.cron(asked, place.key)
    except InvalidSchedule as error:
        raise _refused(
            f'cron "{_quoted(asked)}": {error.message}.', _sentence(error.hint)
        ) from error
    # Over the whole pattern: "0,5 9 * * *" is a day apart at first sight.
    if not schedules.never_closer_than(schedule, bounds.apart):
        raise _too_often(Timing.CRON, asked, bounds, _densest_cron(bounds.apart))
    return schedule


def _densest_cron(apart: timedelta) -> str:
    minutes = max(-(-apart // timedelta(minutes=1)), 1)
    # A step that does not divide the hour comes too early when the hour turns.
    if 60 % minutes:
        return f'every="{format_span(apart)}"'
    return f'cron="*/{minutes} * * * *"' if minutes < 60 else 'cron="0 * * * *"'  # noqa: PLR2004


def _too_often(timing: Timing, asked: str, bounds: Bounds, instead: str) -> WakeupRefused:
    return _refused(
        f'{timing.value} "{_quoted(asked)}" is too often; the least is '
        f"{format_span(bounds.apart)}.",
        f"Ask again with {instead}.",
    )


def _first_of(
    schedule: schedules.Schedule, timing: Timing, asked: str, now: datetime, bounds: Bounds
) -> datetime:
    # A pattern whose next time is seconds away is no mistake of the one who asks.
    first = schedule.next_after(now + bounds.ahead - timedelta(microseconds=1))
    if first is None or first > now + bounds.furthest + _SECOND:
        raise _too_far(timing, asked, bounds)
    return first


def _is_same(wanted: Wakeup, other: Wakeup) -> bool:
    if wanted.prompt != other.prompt or wanted.recurs != other.recurs:
        return False
    if wanted.timing is Timing.EVERY and other.timing is Timing.EVERY:
        # Their anchors differ by the moment of asking.
        return _period(wanted) == _period(other)
    if wanted.recurs:
        return wanted.schedule == other.schedule
    apart = abs(wanted.asked_for - other.asked_for)
    both_in = wanted.timing is Timing.IN and other.timing is Timing.IN
    return apart < SAME_WITHIN if both_in else not apart


def _period(wakeup: Wakeup) -> object:
    return (wakeup.schedule or {}).get("every")


def _check_room(pending: Sequence[Wakeup], bounds: Bounds, now: datetime, place: ZoneInfo) -> None:
    if len(pending) < bounds.pending:
        return
    nearest = sorted(pending, key=lambda one: (one.next_at, one.id))[:_SHOWN_WHEN_FULL]
    lines = [pending_line(one, now=now, place=place) for one in nearest]
    if more := len(pending) - len(nearest):
        lines.append(f"  ... {more} more: wakeups()")
    raise WakeupRefused(
        f"{len(pending)} of {bounds.pending} wake-ups are pending in this conversation."
        f" {_NOTHING} Cancel one first:",
        hint="\n".join(lines),
    )


def pending_line(wakeup: Wakeup, *, now: datetime, place: ZoneInfo) -> str:
    """Return `  w-9d2c41  16:21  "check the deploy again and..."`."""
    often = f"  {rule_text(wakeup)}" if wakeup.recurs else ""
    when = when_text(wakeup.next_at, now=now, place=place)
    return f'  {wakeup.id}  {when}{often}  "{one_line(wakeup.prompt, most=_START_OF_PROMPT)}"'


def rule_text(wakeup: Wakeup) -> str:
    """Return `every 30m` or `cron 0 9 * * 1-5`."""
    if wakeup.timing is Timing.EVERY:
        return f"every {_period(wakeup)}"
    return f"{wakeup.timing.value} {wakeup.asked}"


def when_text(instant: datetime, *, now: datetime, place: ZoneInfo) -> str:
    """Return `16:20` for today, `Mon 09:00` within a week, `23 Nov 09:00`, `2025-11-23 09:00`."""
    local, today = shown(instant, place), shown(now, place)
    clock = f"{local:%H:%M}"
    if local.date() == today.date():
        return clock
    if abs(local.date() - today.date()) < timedelta(days=7):
        return f"{day_text(local)[:3]} {clock}"
    if local.year == today.year:
        return f"{short_day(local)[4:]} {clock}"
    return f"{local:%Y-%m-%d} {clock}"


def _not_today(wanted: Wakeup, now: datetime, place: ZoneInfo) -> Wakeup:
    _, tomorrow = day_of(now, place)
    if wanted.next_at >= tomorrow:
        return wanted
    return wanted.with_(next_at=_first_from(wanted, tomorrow) or wanted.next_at)


def _first_from(wakeup: Wakeup, instant: datetime) -> datetime | None:
    if wakeup.schedule is None:
        return instant
    return schedules.from_spec(wakeup.schedule).next_after(instant - timedelta(microseconds=1))


# Firing -----------------------------------------------------------------------------------------


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
    """It is due, and its firing is claimed and settled `skipped` in one.

    Attributes:
        instant: What the firing was for.
        reason: `limit` or `busy`.
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


def after_firing(wakeup: Wakeup, instant: datetime, *, fired: bool) -> Wakeup | None:
    """Return what stays pending once the firing for *instant* is claimed; None if nothing does.

    Args:
        wakeup: As it was pending.
        instant: What the firing was for.
        fired: Whether a turn follows; a skipped firing is not counted.
    """
    if wakeup.schedule is None:
        return None
    following = schedules.from_spec(wakeup.schedule).next_after(instant)
    if following is None:
        return None
    return wakeup.with_(
        next_at=following, firings=wakeup.firings + fired, deferred_since=None, try_at=None
    )
