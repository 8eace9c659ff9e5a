"""What a model reads about wake-ups: the tools, their answers, and the line that wakes it.

The words are data and functions of values, so that the MCP server, `routines wake --help` and the
Python functions say the same. Times are shown in local time, with zone and UTC.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from keyword import iskeyword
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain.durations import format_span, humanize
from routines.domain.outcome import one_line
from routines.domain.wake_request import AlreadySet
from routines.domain.wake_words import pending_line, rule_text, short_day
from routines.domain.wakeup import DEFAULT_BOUNDS, Bounds, Wakeup
from routines.domain.zones import offset_text, zone
from routines.errors import RoutinesError

# A turn that begins within a minute of its time is on time: nobody plans in seconds.
LATE_FROM = timedelta(minutes=1)
_INDENT = 10
_ONE_PARAM_AT = 48
_NAME_WIDTH = 8
# The name of a session beside its wake-up: enough to tell it from the others.
_OWNER = 60


# The tools --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that an agent is offered.

    Attributes:
        name: What it is called by.
        title: For people who look at a list of tools.
        lines: What it does and what it is for, in lines of a terminal.
        params: Its arguments, all of them texts, with what they mean.
        required: Those that can't be left out.
        read_only: Whether it changes nothing.
        idempotent: Whether calling it again changes nothing more.
    """

    name: str
    title: str
    lines: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    read_only: bool = False
    idempotent: bool = False

    @property
    def description(self) -> str:
        """What it does, without its arguments: they have their own place in the schema."""
        return " ".join(self.lines)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its arguments: texts only, no unions, nothing nested."""
        return {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": meaning}
                for name, meaning in self.params.items()
            },
            "required": list(self.required),
            "additionalProperties": False,
        }

    def docstring(self) -> str:
        """Return it as the docstring of a Python function, with `in` as `in_`."""
        head = in_python("\n".join(self.lines))
        if not self.params:
            return head
        words = [f"    {python_name(name)}: {meaning}" for name, meaning in self.params.items()]
        return "\n".join([head, "", "Args:", *words])

    def annotations(self) -> dict[str, Any]:
        """Return what an MCP server says about it besides."""
        return {
            "title": self.title,
            "readOnlyHint": self.read_only,
            "destructiveHint": False,
            "idempotentHint": self.idempotent or self.read_only,
            "openWorldHint": False,
        }

    def help(self) -> str:
        """Return it for a wide terminal, as `routines wake --help` shows it."""
        first, *more = self.lines
        if len(self.params) == 1:
            ((name, meaning),) = self.params.items()
            return f"{self.name:<{_INDENT}}{first:<{_ONE_PARAM_AT}}{name}  {meaning}"
        head = [f"{self.name:<{_INDENT}}{first}", *(f"{'':{_INDENT}}{line}" for line in more)]
        params = [f"  {name:<{_NAME_WIDTH}}{meaning}" for name, meaning in self.params.items()]
        return "\n".join(head + params)


def python_name(argument: str) -> str:
    """Return how Python has to spell an argument: `in` is a word of its own there."""
    return f"{argument}_" if iskeyword(argument) else argument


def in_python(text: str) -> str:
    """Return *text* with the arguments that it names spelled as Python has to."""
    return _IN.sub("in_", text)


# Where it is the argument and not the word: `in="10m"`, `exactly one of in, at`.
_IN = re.compile(r'\bin(?==")|(?<=one of )in(?=,)')


def tools(*, zone_key: str, bounds: Bounds = DEFAULT_BOUNDS) -> tuple[Tool, Tool, Tool]:
    """Return `wake`, `unwake` and `wakeups` as a workspace with these bounds offers them."""
    return _wake(zone_key, bounds), _UNWAKE, _WAKEUPS


# The lines break where those of the screens do.
_WAKE = """\
Be called again later, in this same conversation. Finish this turn now; at the time you are given `prompt`
as a new turn, with all of this conversation behind you.
For: a check that must wait (deploy, build, a reply), or that repeats. Not for: waiting less than {least}, or work
that you can do now. Use this and not a sleep, a cron job or another scheduling tool: only this one lasts.
Exactly one of in, at, every, cron."""  # noqa: E501

_UNWAKE = Tool(
    "unwake",
    "Cancel a wake-up",
    ("Cancel one of your pending wake-ups.",),
    {"id": '"w-7k3m9q"'},
    ("id",),
    idempotent=True,
)
_WAKEUPS = Tool(
    "wakeups",
    "List your wake-ups",
    ("Your pending wake-ups: id, when, start of prompt.",),
    read_only=True,
)
_PROMPT = "what you will be told. Say what to look at, what to do then, and when to stop."
_AT = '"2026-11-30T09:00" or "09:00" (its next coming), read in tz; or with an offset'


def _wake(zone_key: str, bounds: Bounds) -> Tool:
    ahead, apart = format_span(bounds.ahead), format_span(bounds.apart)
    apart_in_cron = _in_words(bounds.apart, "min", "min")
    params = {
        "prompt": _PROMPT,
        "in": f'"10m", "2h30m", "1d"; at least {ahead}',
        "at": _AT,
        "every": f'"30m"; at least {apart}; goes on until unwake',
        "cron": f'"0 9 * * 1-5"; at least {apart_in_cron} apart; goes on until unwake',
        "tz": f"an IANA name, for at and cron; default {zone_key}",
    }
    least = _in_words(bounds.ahead, "minute", "minutes")
    lines = tuple(_WAKE.format(least=least).splitlines())
    return Tool("wake", "Be called again later", lines, params, ("prompt",))


def _in_words(span: timedelta, one: str, many: str) -> str:
    minutes, rest = divmod(int(span.total_seconds()), 60)
    if rest or not minutes:
        return format_span(span)
    return f"{minutes} {one if minutes == 1 else many}"


def instructions(*, who: str, session: str, reply_to: Sequence[str]) -> str:
    """Return the one line that tells an agent who it is here, and where its reply goes."""
    return (
        f"You are {one_line(who)}, in the conversation {one_line(session)}."
        f" Your plain reply goes to {recipients(reply_to)}."
    )


def instructions_outside(reply_to: Sequence[str]) -> str:
    """Return the same for who asks outside of a turn."""
    return (
        "You are outside of a turn: a wake-up begins a new conversation, so its prompt must say all"
        f" that it needs. The reply then goes to {recipients(reply_to)}."
    )


def recipients(reply_to: Sequence[str]) -> str:
    """Return `digests/`, `digests/ and desktop`, or `nobody`."""
    places = [one_line(place) for place in reply_to]
    if not places:
        return "nobody"
    *some, last = places
    return f"{', '.join(some)} and {last}" if some else last


# Answers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where an answer is given: what the agent has to know besides its wake-up.

    Attributes:
        now: The present instant.
        zone_key: The workspace's zone.
        reply_to: Where the reply of the woken turn goes, in words.
        pending: How many are pending in the session now.
        bounds: The guardrails.
        here: Whether it fires in the conversation that asked, and not in a fresh one.
        no_scheduler: The workspace as a person writes it if no scheduler is alive, else None.
    """

    now: datetime
    zone_key: str
    reply_to: Sequence[str] = ()
    pending: int = 1
    bounds: Bounds = DEFAULT_BOUNDS
    here: bool = True
    no_scheduler: str | None = None


def answer_wake(answer: Wakeup | AlreadySet, setting: Setting) -> str:
    """Return what `wake` answers."""
    if isinstance(answer, AlreadySet):
        return (
            f"Already set: {answer.wakeup.id} is the same prompt at the same time."
            " Nothing was added."
        ) + _unless_alive(answer.wakeup, setting)
    if setting.no_scheduler is not None:
        return f"Set, but {_nobody_alive(setting)}\n{_due(answer, setting)}"
    if answer.next_at != answer.asked_for:
        return f"{_not_today(answer, setting)}\n{_then(answer, setting)}"
    place = _fires_in(setting)
    return (
        f"Set. {answer.id} fires {moment(answer.next_at, answer.tz, now=setting.now)}, in"
        f" {humanize(answer.next_at - setting.now)}{_often(answer)}, {place}"
        f"\n{_then(answer, setting)}"
    )


def _fires_in(setting: Setting) -> str:
    if setting.here:
        return "in this conversation."
    return "in a new conversation: the prompt must say all that it needs."


def _often(wakeup: Wakeup) -> str:
    if not wakeup.recurs:
        return ""
    return f", then {rule_text(wakeup)} until unwake"


def _then(wakeup: Wakeup, setting: Setting) -> str:
    return (
        f"Your reply then goes to {recipients(setting.reply_to)}. {setting.pending} of"
        f" {setting.bounds.pending} pending here. {_cancel(wakeup)}"
    )


def _cancel(wakeup: Wakeup) -> str:
    return f'Cancel: unwake("{wakeup.id}").'


def _nobody_alive(setting: Setting) -> str:
    return (
        f"no scheduler is alive on {one_line(setting.no_scheduler or '')}: it fires only once one"
        " is started. Tell the person: routines start"
    )


def _unless_alive(wakeup: Wakeup, setting: Setting) -> str:
    if setting.no_scheduler is None:
        return ""
    return f" But {_nobody_alive(setting)}\n{_due(wakeup, setting)}"


def _due(wakeup: Wakeup, setting: Setting) -> str:
    when = moment(wakeup.next_at, wakeup.tz, now=setting.now)
    # Within a turn it is this conversation, as always; another one has to be said in each answer.
    place = "." if setting.here else f", {_fires_in(setting)}"
    return f"{wakeup.id} is due {when}{_often(wakeup)}{place} {_cancel(wakeup)}"


def _not_today(wakeup: Wakeup, setting: Setting) -> str:
    local = wakeup.next_at.astimezone(zone(setting.zone_key))
    return (
        f"Set, but this conversation has used its {setting.bounds.firings} firings of today:"
        f" {wakeup.id} fires {_day(local, setting.now)} {local:%H:%M} {setting.zone_key}"
        " at the earliest."
    )


def refusal(error: RoutinesError) -> str:
    """Return what a tool answers when a guardrail, or the store, says no."""
    message = error.message if error.message.endswith((".", "?", ":", '"')) else f"{error.message}."
    return f"Refused: {message}" + (f"\n{error.hint}" if error.hint else "")


def answer_wakeups(pending: Sequence[Wakeup], setting: Setting) -> str:
    """Return what `wakeups` answers: one line each, next first."""
    if not pending:
        return "Nothing is pending in this conversation."
    place = zone(setting.zone_key)
    local = setting.now.astimezone(place)
    head = (
        f"{len(pending)} of {setting.bounds.pending} pending here; it is"
        f" {short_day(local)} {local:%H:%M} {offset_text(local)} {setting.zone_key}:"
    )
    in_order = sorted(pending, key=lambda one: (one.next_at, one.id))
    return "\n".join([head, *(_listed(one, setting.now, place) for one in in_order)])


def answer_all_wakeups(pending: Sequence[Wakeup], total: int, setting: Setting) -> str:
    """Return what `wakeups` answers outside of a turn: those of all sessions, next first.

    Args:
        pending: The first of them.
        total: How many there are.
        setting: Where it is asked.
    """
    if not total:
        return "Nothing is pending."
    place = zone(setting.zone_key)
    local = setting.now.astimezone(place)
    head = (
        f"{total} pending over all conversations; it is"
        f" {short_day(local)} {local:%H:%M} {offset_text(local)} {setting.zone_key}:"
    )
    in_order = sorted(pending, key=lambda one: (one.next_at, one.id))
    lines = [
        f"{_listed(one, setting.now, place)}  in {one_line(one.session, most=_OWNER)}"
        for one in in_order
    ]
    left = total - len(pending)
    more = [f"  ... {left} more: routines wakeups"] if left > 0 else []
    return "\n".join([head, *lines, *more])


def _listed(wakeup: Wakeup, now: datetime, place: ZoneInfo) -> str:
    line = pending_line(wakeup, now=now, place=place)
    return line if wakeup.deferred_since is None else f"{line}  (waits: this conversation is busy)"


def unwoken_gone(wakeup_id: str, setting: Setting) -> str:
    """Return what `unwake` answers when it was pending and never fires."""
    return (
        f"Cancelled: {wakeup_id} never fires."
        f" {setting.pending} of {setting.bounds.pending} pending here."
    )


def unwoken_not_started(wakeup_id: str) -> str:
    """Return what `unwake` answers when its firing was claimed and had not started."""
    return f"Cancelled: {wakeup_id} was due and had not started; it does not."


def unwoken_started(wakeup_id: str, *, own_turn: bool, stopped: bool) -> str:
    """Return what `unwake` answers when its firing runs.

    Args:
        wakeup_id: Which.
        own_turn: Whether the turn that asks is that firing.
        stopped: Whether more firings were to come, and don't.
    """
    running = (
        f"This turn is the firing of {wakeup_id}: it goes on, and its result is kept."
        if own_turn
        else f"Too late for the firing that runs: {wakeup_id} has started, and goes on."
    )
    return f"{running} No other one comes." if stopped else running


def unwoken_ended(wakeup_id: str, outcome: str) -> str:
    """Return what `unwake` answers when it has fired and nothing is left to cancel."""
    return f"Nothing to cancel: {wakeup_id} has fired already ({outcome}), and is not pending."


# Times ------------------------------------------------------------------------------------------


def moment(instant: datetime, zone_key: str, *, now: datetime) -> str:
    """Return `Sun 29 Nov 16:28 +01:00 Europe/Berlin (15:28Z)`; the year where it is another."""
    local, utc = instant.astimezone(zone(zone_key)), instant.astimezone(UTC)
    there = f"{utc:%H:%M}Z"
    if utc.date() != local.date():
        there = f"{short_day(utc)} {there}"
    return f"{_day(local, now)} {local:%H:%M} {offset_text(local)} {zone_key} ({there})"


def _day(local: datetime, now: datetime) -> str:
    year = "" if now.astimezone(local.tzinfo).year == local.year else f" {local.year}"
    return f"{short_day(local)}{year}"


# Being woken ------------------------------------------------------------------------------------


def wrap(
    wakeup: Wakeup,
    *,
    now: datetime,
    reply_to: Sequence[str],
    late_because: str = "",
    passed: int = 0,
) -> str:
    """Return what the woken agent is given: one line, then the prompt as it was set.

    Args:
        wakeup: As it was taken: its `next_at` is what the firing is for, its `firings` count it.
        now: When the turn starts.
        reply_to: Where its reply goes, in words.
        late_because: Why it is late, in words, where that is known.
        passed: How many older firings this one stands for.
    """
    place = zone(wakeup.tz)
    by_agent = wakeup.created_in_turn is not None
    said = _set(wakeup, place) if not wakeup.recurs else _set_recurring(wakeup, place)
    setter = "you" if by_agent else one_line(wakeup.created_by)
    when = f"{_now(wakeup, now, place)}{_late(wakeup, now, late_because, passed)}"
    parts = [f"[wake-up {wakeup.id}, set by {setter} {said}; now {when}."]
    if by_agent:
        parts.append("Not a message from a person.")
    parts.append(f"Your reply goes to {recipients(reply_to)}.")
    if wakeup.recurs:
        parts.append(f'Stop it: unwake("{wakeup.id}").')
    return f"{' '.join(parts)}]\n{wakeup.prompt}"


def _set(wakeup: Wakeup, place: ZoneInfo) -> str:
    created, due = wakeup.created_at.astimezone(place), wakeup.asked_for.astimezone(place)
    day = "" if created.date() == due.date() else f"{short_day(due)} "
    return f"{short_day(created)} {created:%H:%M} for {day}{due:%H:%M} {offset_text(due)}"


def _set_recurring(wakeup: Wakeup, place: ZoneInfo) -> str:
    created = wakeup.created_at.astimezone(place)
    return f"{short_day(created)}, {rule_text(wakeup)}, {ordinal(wakeup.firings)} time"


def _now(wakeup: Wakeup, now: datetime, place: ZoneInfo) -> str:
    local = now.astimezone(place)
    if wakeup.recurs:
        return f"{short_day(local)} {local:%H:%M} {offset_text(local)}"
    due = wakeup.asked_for.astimezone(place)
    day = "" if local.date() == due.date() else f"{short_day(local)} "
    return f"{day}{local:%H:%M}"


def _late(wakeup: Wakeup, now: datetime, because: str, passed: int) -> str:
    due = wakeup.next_at if wakeup.recurs else wakeup.asked_for
    text = ""
    if now - due > LATE_FROM:
        why = f" ({one_line(because)})" if because else ""
        text = f", {humanize(now - due)} late{why}"
    if passed:
        # Counting stops at a thousand.
        count = f"{passed}" if passed <= 1000 else "more than 1000"  # noqa: PLR2004
        text += f", in place of {count} missed before it"
    return text


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `11th`, `41st`."""
    teens = number % 100 in (11, 12, 13)
    ending = "th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
