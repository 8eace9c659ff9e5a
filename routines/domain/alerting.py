"""Who is told what went wrong, and when: once, and once on recovery. Values in, values out.

What is told follows from the history alone; what was told is the only thing that is remembered.
So it does not matter who settled an occurrence, who died, or how often anyone looks.
"""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from routines.domain.names import format_instant, parse_instant
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.schedule import Schedule

# Slots at least this far apart are few enough for each to be missed by somebody.
SPARSE = timedelta(hours=1)
# Dense slots may stumble; the third time in a row it is no stumble.
DENSE_THRESHOLD = 3
# A routine that fails and recovers all day long is one piece of news, and not twenty.
PAIR_EVERY = timedelta(hours=6)
# Longer than sending may take (60 s): whoever was at it has died.
SENDING_LIMIT = timedelta(minutes=3)
# Until a target that refused is tried again; what is wrong at 3:00 may be the very network.
SEND_AGAIN = (timedelta(minutes=5), timedelta(minutes=15), timedelta(hours=1), timedelta(hours=4))
# How many coming slots are looked at to tell sparse from dense.
_SLOTS_LOOKED_AT = 4
_LONGEST_TEXT = 300


class Weight(StrEnum):
    """What an end says of a routine's health."""

    WELL = "well"
    PROBLEM = "problem"
    NOTHING = "nothing"


# What a person has asked for, or what another slot has made good.
_CALM = frozenset(
    [
        (Outcome.SKIPPED, Reason.GATE),
        (Outcome.SKIPPED, Reason.EDITED),
        (Outcome.MISSED, Reason.PAUSED),
        (Outcome.MISSED, Reason.DISABLED),
        (Outcome.MISSED, Reason.NOT_ARMED),
    ]
)
_ABSENCES = frozenset([Reason.NO_SCHEDULER, Reason.ASLEEP])


def weight(
    kind: Kind,
    outcome: Outcome,
    reason: Reason | None,
    *,
    warned: bool = False,
    made_good: bool = False,
) -> Weight:
    """Return what an end says.

    Args:
        kind: Of what. Who runs something by hand sees how it ends; a wake-up that completes says
            nothing of the slots.
        outcome: How it ended.
        reason: Why.
        warned: Whether it carries warnings.
        made_good: Whether the routine catches up, so that an absence costs it nothing but time.
    """
    if outcome is Outcome.COMPLETED and not warned:
        return Weight.NOTHING if kind is Kind.WAKE else Weight.WELL
    if kind is Kind.MANUAL or outcome in (Outcome.CANCELLED, Outcome.SUPERSEDED):
        return Weight.NOTHING
    if (outcome, reason) in _CALM:
        return Weight.NOTHING
    if outcome is Outcome.MISSED and reason in _ABSENCES and made_good:
        return Weight.NOTHING
    return Weight.PROBLEM


def threshold(schedule: Schedule | None, now: datetime) -> int:
    """Return how many problems in a row are told: 1 where slots are an hour or more apart."""
    if schedule is None:
        return 1
    slot, gaps = schedule.next_after(now), []
    for _ in range(_SLOTS_LOOKED_AT):
        following = None if slot is None else schedule.next_after(slot)
        if slot is None or following is None:
            break
        gaps.append(following - slot)
        slot = following
    return DENSE_THRESHOLD if gaps and min(gaps) < SPARSE else 1


def silent_from(
    base: datetime, *, schedule: Schedule | None, silent_for: timedelta | None, timeout: timedelta
) -> datetime | None:
    """Return from when on a routine that has not completed since *base* is silent, or None.

    By default that is when two slots have passed without, and the second one's time limit too:
    counted in slots, a weekend without any is no silence.
    """
    if silent_for is not None:
        return base + silent_for
    first = None if schedule is None else schedule.next_after(base)
    second = None if schedule is None or first is None else schedule.next_after(first)
    return None if second is None else second + timeout


# What is told ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong with a routine.

    Attributes:
        kind: `failing`, `silent`, `parked`, `broken` or `paused`.
        at: The slot, or since when.
        what: The outcome, or what is the matter, in a few words.
        why: Its reason, in words of whoever knew it.
        count: How many in a row.
        since: The first of them.
    """

    kind: str
    at: datetime
    what: str
    why: str = ""
    count: int = 1
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told about one thing, and what of it is yet to reach its targets.

    Attributes:
        open: Whether the next word is the recovery.
        kind: Of the trouble.
        at: When it was told.
        recovered_at: When the recovery was told; None while it is open.
        word: The newest word: `alert` or `recovery`.
        title, body: What it says.
        unsent: The targets that do not have it, by `target_key`.
        sending_at: Since when somebody is at it; None if nobody is.
        tries: How often it was sent.
        again_at: When it is sent again.
        results: What became of each target at the last try.
    """

    open: bool = False
    kind: str = ""
    at: datetime | None = None
    recovered_at: datetime | None = None
    word: str = ""
    title: str = ""
    body: str = ""
    unsent: tuple[str, ...] = ()
    sending_at: datetime | None = None
    tries: int = 0
    again_at: datetime | None = None
    results: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept."""
        return {
            "open": self.open,
            "kind": self.kind,
            "at": _text(self.at),
            "recovered_at": _text(self.recovered_at),
            "word": self.word,
            "title": self.title,
            "body": self.body,
            "unsent": list(self.unsent),
            "sending_at": _text(self.sending_at),
            "tries": self.tries,
            "again_at": _text(self.again_at),
            "results": list(self.results),
        }

    @classmethod
    def from_json(cls, data: Any) -> "Told":
        """Return what `to_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: It is something else.
        """
        return cls(
            open=bool(data["open"]),
            kind=str(data["kind"]),
            at=_instant(data["at"]),
            recovered_at=_instant(data["recovered_at"]),
            word=str(data["word"]),
            title=str(data["title"]),
            body=str(data["body"]),
            unsent=tuple(str(one) for one in data["unsent"]),
            sending_at=_instant(data["sending_at"]),
            tries=int(data["tries"]),
            again_at=_instant(data["again_at"]),
            results=tuple(dict(one) for one in data["results"]),
        )


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


class Step(StrEnum):
    """What is to be done."""

    NOTHING = "nothing"
    ALERT = "alert"
    RECOVERY = "recovery"
    SEND_AGAIN = "send-again"


def decide(
    told: Told, *, now: datetime, trouble: Trouble | None, well_since: datetime | None
) -> Step:
    """Return what is to be done.

    Args:
        told: What was told before.
        now: The present.
        trouble: What is wrong now.
        well_since: When what is well now began to be so; None if that can't be said.
    """
    if told.open:
        if trouble is None and well_since is not None and not _before(well_since, told.at):
            return Step.RECOVERY
    elif trouble is not None and not _within(told.at, now, PAIR_EVERY):
        return Step.ALERT
    return Step.SEND_AGAIN if _is_to_be_sent(told, now) else Step.NOTHING


def _before(one: datetime, other: datetime | None) -> bool:
    return other is not None and one < other


def _within(at: datetime | None, now: datetime, span: timedelta) -> bool:
    # An instant of a clock that was wrong lies ahead, and must silence nobody for years.
    return at is not None and timedelta(0) <= now - at < span


def _is_to_be_sent(told: Told, now: datetime) -> bool:
    if not told.unsent:
        return False
    if told.sending_at is not None:
        return not _within(told.sending_at, now, SENDING_LIMIT)
    return told.again_at is not None and told.again_at <= now


def after(
    step: Step,
    told: Told,
    *,
    now: datetime,
    kind: str = "",
    title: str = "",
    body: str = "",
    targets: Iterable[str] = (),
) -> Told:
    """Return what is told once *step* is done; its targets are yet to be sent to."""
    if step is Step.SEND_AGAIN:
        return replace(told, sending_at=now, again_at=None, tries=told.tries + 1)
    unsent = tuple(targets)
    new = replace(
        told,
        word="alert" if step is Step.ALERT else "recovery",
        title=title,
        body=body,
        unsent=unsent,
        sending_at=now if unsent else None,
        tries=1,
        again_at=None,
        results=(),
    )
    if step is Step.ALERT:
        return replace(new, open=True, kind=kind, at=now, recovered_at=None)
    return replace(new, open=False, recovered_at=now)


def sent(
    told: Told, *, now: datetime, unsent: tuple[str, ...], results: tuple[dict[str, Any], ...]
) -> Told:
    """Return what is told once its targets were tried."""
    again = None
    if unsent and told.tries <= len(SEND_AGAIN):
        again = now + SEND_AGAIN[told.tries - 1]
    return replace(told, unsent=unsent, sending_at=None, again_at=again, results=results)


# In words ----------------------------------------------------------------------------------------


def alert_text(
    name: str,
    trouble: Trouble,
    *,
    root: str,
    last_completed: datetime | None,
    next_slot: datetime | None,
    say: Callable[[datetime], str],
) -> tuple[str, str]:
    """Return title and body of an alert: what, when, why, what was before and what comes.

    Args:
        name: The routine; empty for the workspace.
        trouble: What is wrong.
        root: The workspace.
        last_completed: When it last completed.
        next_slot: What comes next.
        say: Says an instant in the routine's zone.
    """
    who = _whose(name, trouble.kind)
    body = [f"{trouble.what} {say(trouble.at)}" + (f": {trouble.why}" if trouble.why else "")]
    if trouble.count > 1 and trouble.since is not None:
        body.append(f"{trouble.count} in a row since {say(trouble.since)}")
    if trouble.kind not in ("broken", "paused"):
        last = "never, as far as is recorded" if last_completed is None else say(last_completed)
        body.append(f"Last completed: {last}")
    if name and trouble.kind != "paused":
        body.append(f"Next: {'nothing' if next_slot is None else say(next_slot)}")
    body.append(f"Workspace: {root}")
    if trouble.kind == "paused":
        body.append(f"Go on: routines resume {shlex.quote(name) if name else '--all'}")
    else:
        command = "check" if trouble.kind == "broken" else f"explain {shlex.quote(name)}"
        body.append(f"Why: routines {command}")
    lines = [one_line(line, most=_LONGEST_TEXT) for line in body]
    return f"{who}: {_TITLES[trouble.kind]}", "\n".join(lines)


def recovery_text(
    name: str, told: Told, *, root: str, well_since: datetime, say: Callable[[datetime], str]
) -> tuple[str, str]:
    """Return title and body of a recovery."""
    who = _whose(name, told.kind)
    was = "" if told.at is None else f"It was {told.kind}, as told {say(told.at)}"
    how = _RECOVERED.get(told.kind, "completed")
    body = [f"{how} {say(well_since)}", was, f"Workspace: {root}"]
    lines = [one_line(line, most=_LONGEST_TEXT) for line in body if line]
    return f"{who}: well again", "\n".join(lines)


def _whose(name: str, kind: str) -> str:
    return one_line(name) or ("everything" if kind == "paused" else "routines.yaml")


_RECOVERED = {"broken": "can be used again", "paused": "goes on again, as seen"}
_TITLES = {
    "paused": "was paused by a turn",
    "failing": "needs you",
    "silent": "has not completed",
    "parked": "is parked",
    "broken": "its file can't be used",
}


def end_text(reason: str | None, detail: str, warnings: Iterable[str]) -> str:
    """Return why something ended as it did, in one line."""
    parts = [", ".join(warnings), reason or "", detail]
    return one_line(": ".join(part for part in parts if part), most=_LONGEST_TEXT)
