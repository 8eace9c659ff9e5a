"""A claim read back: the lines of its file folded into one record.

The first line is the claim, each further one an event, and the first outcome line is final.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from routines.domain.decoding import UNREADABLE, is_amount, text, text_or_none, whole
from routines.domain.names import format_instant, parse_instant, routine_of
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import LONGEST_DETAIL, Outcome, Reason, State, Trigger, one_line


class Event(StrEnum):
    """The lines that a claim may hold."""

    CLAIM = "claim"
    ATTEMPT = "attempt"
    STARTED = "started"
    RUN = "run"
    NOT_STARTED = "not-started"
    RETRY = "retry"
    BUFFERED = "buffered"
    PARKED = "parked"
    CANCELLING = "cancelling"
    OUTCOME = "outcome"


# Larger is none that a kernel gives, and breaks the calls that ask about one.
_LARGEST_PID = 2**31 - 1
_UNDER_WAY = frozenset([Event.STARTED.value, Event.RUN.value, Event.CANCELLING.value])
_PUT_OFF = frozenset([Event.RETRY.value, Event.PARKED.value])


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process in a form that can be checked for life.

    Attributes:
        host: The machine's own id; None inside a container, which has none.
        boot: The id of the boot.
        pid: Its number, meaningful only with the three others.
        start: When the kernel says it started, in its own units.
        pidns: The pid namespace, in which alone the number means it.
        user: `user@host`, for people.
    """

    host: str | None
    boot: str | None
    pid: int
    start: str | None
    pidns: str | None
    user: str

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in a claim."""
        return {
            "host": self.host,
            "boot": self.boot,
            "pid": self.pid,
            "start": self.start,
            "pidns": self.pidns,
            "user": self.user,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Owner | None":
        """Return the owner that `to_json` wrote; None if *data* is something else."""
        try:
            return cls(
                host=text_or_none(data["host"]),
                boot=text_or_none(data["boot"]),
                pid=whole(data["pid"], 1, _LARGEST_PID),
                start=text_or_none(data["start"]),
                pidns=text_or_none(data["pidns"]),
                user=text(data["user"]),
            )
        except UNREADABLE:
            return None


def encode(event: dict[str, Any]) -> bytes:
    """Return *event* as one line of JSON without its end.

    The word comes first: a lease knows a line by how it begins, without reading the rest.
    """
    return _ENCODER.encode(event).encode("utf-8", "backslashreplace")


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return format_instant(value)
    return str(value)


# Made once: json.dumps with options makes an encoder a line, which costs more than the write.
# An event is a tree that was just built, so that no ring is looked for in it.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain
)


def outcome_event(
    *,
    at: datetime,
    outcome: Outcome,
    reason: Reason | None = None,
    detail: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Return the line that ends a claim."""
    return {
        "event": Event.OUTCOME.value,
        "at": format_instant(at),
        "outcome": outcome.value,
        "reason": None if reason is None else reason.value,
        "detail": one_line(detail, most=LONGEST_DETAIL),
        **more,
    }


@dataclass(frozen=True, slots=True)
class Record:
    """What the files say of one occurrence.

    Attributes:
        occurrence: Whose record it is; from its file name where the first line can't be read.
        claim: The first line; empty if it can't be read.
        events: The lines after it, up to and including the outcome.
        path: Where it was read, below the state folder.
    """

    occurrence: Occurrence
    claim: dict[str, Any]
    events: tuple[dict[str, Any], ...] = ()
    path: str = field(default="", compare=False)

    def with_line(self, event: dict[str, Any]) -> "Record":
        """Return the record with one line more, which says *event*."""
        return Record(self.occurrence, self.claim, (*self.events, event), self.path)

    @property
    def ref(self) -> str:
        """The id of the occurrence."""
        return self.occurrence.ref

    @property
    def readable(self) -> bool:
        """Whether the claim line is there; else the owner is unknown."""
        return bool(self.claim)

    @property
    def last(self) -> str:
        """The word of the last line."""
        return str(self.events[-1]["event"]) if self.events else _CLAIM

    def newest(self, event: Event) -> dict[str, Any] | None:
        """Return the newest line of that kind, or None."""
        for line in self.events[::-1]:
            if line["event"] == event.value:
                return line
        return None

    @property
    def end(self) -> dict[str, Any] | None:
        """The outcome line, or None while it is open."""
        newest = self.events[-1] if self.events else None
        return newest if newest is not None and newest["event"] == _OUTCOME else None

    @property
    def outcome(self) -> Outcome | None:
        """The final outcome, or None while it is open."""
        end = self.end
        return None if end is None else Outcome(end["outcome"])

    @property
    def reason(self) -> Reason | None:
        """The reason of the outcome, if it has one."""
        end = self.end
        return Reason(end["reason"]) if end and end.get("reason") else None

    @property
    def started(self) -> dict[str, Any] | None:
        """The newest `started` line that no `not-started` followed, or None."""
        for line in self.events[::-1]:
            if line["event"] == Event.NOT_STARTED.value:
                return None
            if line["event"] == Event.STARTED.value:
                return line
        return None

    @property
    def starts(self) -> tuple[datetime, ...]:
        """When each of its turns was begun, less those that the agent never started (L18).

        What a program works itself is no turn of ours.
        """
        begun: list[datetime | None] = []
        is_open = False
        for line in self.events:
            if "worker" in line:
                is_open = False
            elif line["event"] == Event.STARTED.value:
                begun.append(_instant(line.get("at")))
                is_open = True
            elif is_open and _says_never_started(line):
                begun.pop()
                is_open = False
            elif line["event"] in _PUT_OFF:
                # It says how its turn ended: what a person then does to it says nothing of that.
                is_open = False
        return tuple(at for at in begun if at is not None)

    @property
    def usage(self) -> dict[str, float]:
        """What it has cost by now: `usd` and `tokens`, as far as is known."""
        return _numbers((self.end or {}).get("usage")) or self.spent_before

    @property
    def spent_before(self) -> dict[str, float]:
        """What turns of it cost that were put off since: `usd` and `tokens`, as far as is known."""
        for line in self.events[::-1]:
            if line["event"] in _PUT_OFF and "usage" in line:
                return _numbers(line["usage"])
        return {}

    @property
    def attempts(self) -> int:
        """How often it was tried: 1 for the claim, and one each time it was taken up again."""
        return 1 + [line["event"] for line in self.events].count(Event.ATTEMPT.value)

    @property
    def is_taken_up_again(self) -> bool:
        """Whether its newest line takes up what may have been fired before.

        What only waited behind its predecessor, or was left to a scheduler by a person, has not.
        """
        if self.last != Event.ATTEMPT.value:
            return False
        if len(self.events) == 1:
            return not self.claim.get("detached")
        return bool(self.events[-2]["event"] != Event.BUFFERED.value)

    @property
    def idle_attempts(self) -> int:
        """How often it was taken up since it last came to anything, the claim itself included."""
        for count, line in enumerate(reversed(self.events)):
            if line["event"] != Event.ATTEMPT.value:
                return count
        return len(self.events) + 1

    @property
    def is_under_way(self) -> bool:
        """Whether its turn was begun and nothing says that it is over."""
        return self.last in _UNDER_WAY

    @property
    def is_put_off(self) -> bool:
        """Whether it waits for another try, or for a person to decide."""
        return self.last in _PUT_OFF

    @property
    def is_about_to_start(self) -> bool:
        """Whether it is claimed, and neither begun, nor put off, nor ended."""
        return self.last in (Event.CLAIM.value, Event.ATTEMPT.value)

    @property
    def is_durable(self) -> bool:
        """Whether its turn is a run that outlives its owner, and nothing says that it is over."""
        return self.is_under_way and bool((self.started or {}).get("durable"))

    @property
    def run_id(self) -> str | None:
        """The id of the durable run of its present turn, once the agent has said it."""
        for line in self.events[::-1]:
            if line["event"] == Event.STARTED.value:
                return None
            if line["event"] == Event.RUN.value and isinstance(line.get("run_id"), str):
                return str(line["run_id"])
        return None

    @property
    def group(self) -> str | None:
        """The `exclusive` group that its durable run keeps, also while nobody watches it."""
        group = (self.started or {}).get("exclusive")
        return group if isinstance(group, str) else None

    @property
    def retries(self) -> int:
        """How often it was put off to be tried again."""
        return [line["event"] for line in self.events].count(Event.RETRY.value)

    @property
    def retry_at(self) -> datetime | None:
        """When it is to be tried again, if it waits for that."""
        return _instant(self.events[-1].get("until")) if self.last == Event.RETRY.value else None

    @property
    def reruns(self) -> int:
        """How often an interrupted turn of it was run again."""
        return sum("rerun" in line for line in self.events)

    @property
    def by_person(self) -> bool:
        """Whether a person said that it is to run after all: then it is never too late or stale."""
        line = self.newest(Event.RETRY)
        return line is not None and bool(line.get("person"))

    @property
    def turn_ref(self) -> str:
        """The id of its present turn: the same on every attempt, `#2` and on for a rerun.

        And for another try after a durable run that has ended: under the same key it would be
        that run again.
        """
        before = sum("rerun" in line or "anew" in line for line in self.events)
        return self.ref if before == 0 else f"{self.ref}#{before + 1}"

    @property
    def recurs(self) -> bool:
        """Whether another occurrence comes by itself."""
        wakeup = self.claim.get("wakeup")
        if isinstance(wakeup, dict):
            return wakeup.get("schedule") is not None
        return bool(self.claim.get("recurs", True))

    @property
    def owner(self) -> Owner | None:
        """The process that last said it owns it."""
        for line in self.events[::-1]:
            if "owner" in line:
                return Owner.from_json(line["owner"])
        return Owner.from_json(self.claim.get("owner"))

    @property
    def session(self) -> str | None:
        """The session that its turn is for."""
        session = self.claim.get("session")
        return session if isinstance(session, str) else None

    @property
    def routine(self) -> str | None:
        """The routine, or None for a wake-up or a job of a session without one."""
        if self.occurrence.kind in (Kind.SLOT, Kind.MANUAL):
            return self.occurrence.owner
        routine = self.claim.get("routine")
        if routine is None and self.occurrence.is_job:
            # A program that works a job knows no routines, and the session says whose it is.
            return routine_of(self.session or "")
        return routine if isinstance(routine, str) else None

    @property
    def trigger(self) -> Trigger:
        """Why it runs."""
        try:
            return Trigger(self.claim["trigger"])
        except (KeyError, ValueError):
            return {
                Kind.SLOT: Trigger.SCHEDULE,
                Kind.MANUAL: Trigger.MANUAL,
                Kind.WAKE: Trigger.WAKE_UP,
                Kind.JOB: Trigger.JOB,
            }[self.occurrence.kind]

    def instant(self, key: str) -> datetime | None:
        """Return an instant of the claim line, or None."""
        return _instant(self.claim.get(key))

    @property
    def claimed_at(self) -> datetime | None:
        """When it was claimed."""
        return self.instant("at")

    @property
    def due_at(self) -> datetime:
        """When its turn was to start."""
        return self.instant("due_at") or self.occurrence.instant

    @property
    def started_at(self) -> datetime | None:
        """When its turn started, if it did."""
        line = self.started
        return None if line is None else _instant(line.get("at"))

    @property
    def ended_at(self) -> datetime | None:
        """When it was settled, if it is."""
        end = self.end
        return None if end is None else _instant(end.get("at"))

    @property
    def written_state(self) -> State:
        """The state that the last line says, whoever lives: readers ask for life on top."""
        states = {
            Event.OUTCOME.value: State.SETTLED,
            Event.BUFFERED.value: State.BUFFERED,
            Event.PARKED.value: State.PARKED,
            Event.RETRY.value: State.RETRYING,
            Event.STARTED.value: State.RUNNING,
            Event.RUN.value: State.RUNNING,
            Event.CANCELLING.value: State.RUNNING,
        }
        return states.get(self.last, State.CLAIMED)


def _says_never_started(line: dict[str, Any]) -> bool:
    """Return whether *line* takes the `started` before it back.

    A disk may have refused the `not-started`. Then the line after it says it: an outcome by its
    reason, what is put off by not saying how its turn ended.
    """
    match line["event"]:
        case Event.NOT_STARTED.value:
            return True
        case Event.OUTCOME.value:
            return line.get("reason") in (Reason.NOT_STARTED.value, Reason.NOT_FOUND.value)
        case Event.RETRY.value | Event.PARKED.value:
            return not {"ended", "rerun"} & line.keys()
        case _:
            return False


def _numbers(usage: object) -> dict[str, float]:
    if not isinstance(usage, dict):
        return {}
    # Infinity and NaN are JSON to Python, and no number of tokens.
    return {key: value for key, value in usage.items() if is_amount(value)}


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_instant(value)
    except ValueError:
        return None


def fold(lines: Iterable[bytes], *, occurrence: Occurrence, path: str = "") -> Record:
    """Return the record that the whole lines of a claim file make.

    A line that is no event of ours is passed over, and nothing after the first outcome counts.
    """
    return fold_more(Record(occurrence, {}, path=path), lines)


def fold_more(record: Record, lines: Iterable[bytes]) -> Record:
    """Return the open *record* with the lines that were added since it was folded."""
    claim = record.claim
    events = list(record.events)
    for line in lines:
        event = _event(line)
        if event is None:
            continue
        word = event["event"]
        if word == _CLAIM:
            claim = claim or event
            continue
        events.append(event)
        if word == _OUTCOME:
            break
    return Record(record.occurrence, claim, tuple(events), record.path)


# Made once: a claim is folded after each of its lines, and json.loads first guesses an encoding.
_DECODER = json.JSONDecoder()
_CLAIM, _OUTCOME = Event.CLAIM.value, Event.OUTCOME.value
_WORDS = frozenset(event.value for event in Event)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        text = line.decode()
        event, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if end != len(text) or not isinstance(event, dict):
        return None
    word = event.get("event")
    if not isinstance(word, str) or word not in _WORDS:
        return None
    if word == _OUTCOME:
        try:
            Outcome(event.get("outcome", ""))
            Reason(event["reason"]) if event.get("reason") else None
        except ValueError:
            return None
    return event
