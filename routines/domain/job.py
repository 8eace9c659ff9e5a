"""Jobs: what a program may put into the queue, how two are told apart, and the order they go in.

A job is one more producer of turns: claimed, run and settled like a slot or a firing. What is
here are values: the limits, the digest by which a repeat is known, and the names that sort as the
jobs go (highest priority first, then arrival).
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from routines.domain.durations import format_span, is_negative, parse_span
from routines.domain.names import OutOfReach, format_instant, key_of, parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.zones import EARLIEST, LATEST
from routines.errors import InvalidJob, InvalidSpan

DEFAULT_QUEUE = "default"
LONGEST_NAME = 256
LONGEST_LANE = 512
# Its place has twelve digits for it.
_HIGHEST_NUMBER = 999_999_999_999
LONGEST_PROMPT = 1024 * 1024
# Ten digits tell any two; what sorts by a time in seconds fits too, until the year 2286.
HIGHEST_PRIORITY = 9_999_999_999
# Nobody recovers a job more often; far below what would not fit anywhere.
MOST_RECOVERIES = 1_000_000_000
# A page of the settled feed.
MOST_SETTLED = 256
# What was added once is known so long after it has ended.
REMEMBERED = timedelta(days=30)
# One decision is one file: so many jobs are read and spread within a few seconds.
MOST_AT_ONCE = 10_000
# A program that works a job shows that it lives by renewing its lease.
LEASE = timedelta(seconds=120)
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 10
# Ends like the key of a second turn of another job: the two would be one to an agent.
_LIKE_A_RERUN = re.compile(r"#[0-9]+$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job as it is asked for: nothing in it is checked yet.

    Attributes:
        prompt: What the agent is to be told; at most 1 MiB of UTF-8.
        id: The producer's own name for it, at most 256 characters; None for a new one.
        queue: Which queue; at most 256 characters.
        lane: What it belongs together with, to be failed together; at most 512 characters.
        priority: A whole number; higher goes first.
        session: The conversation it is for; None for one of its own, `job:<id>`.
        agent: Who answers it; None for the session's, or the workspace's.
        recoveries: How often it may be run again after an interrupted turn.
        after: Not before this instant (aware, or RFC 3339), or span from now.
    """

    prompt: Any
    id: Any = None
    queue: Any = DEFAULT_QUEUE
    lane: Any = None
    priority: Any = 0
    session: Any = None
    agent: Any = None
    recoveries: Any = 0
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that was accepted.

    Attributes:
        id: Unique in its state folder, and remembered for 30 days after its end.
        queue: Its queue.
        lane: Its lane, or None.
        priority: Higher goes first.
        session: The conversation that its turn is for.
        agent: Who answers it; None for the session's, or the workspace's.
        prompt: What the agent is told.
        recoveries: How often it may be run again after an interrupted turn.
        not_before: When it may start at the earliest, or None.
        added_at: When it was added, a whole second; its claim is filed under it.
        by: Who added it.
        number: Its place in the order of arrival.
        digest: Of all that was asked: a repeat has the same.
    """

    id: str
    queue: str
    lane: str | None
    priority: int
    session: str
    agent: str | None
    prompt: str
    recoveries: int
    not_before: datetime | None
    added_at: datetime
    by: str
    number: int
    digest: str

    @property
    def occurrence(self) -> Occurrence:
        """What is claimed, run and settled."""
        return Occurrence(Kind.JOB, "", self.added_at, self.id)

    @property
    def ref(self) -> str:
        """`job:<id>`."""
        return f"job:{self.id}"

    @property
    def due_at(self) -> datetime:
        """When its turn was to start."""
        return max(self.not_before or self.added_at, self.added_at)

    @property
    def place(self) -> "Place":
        """Where it stands in the order."""
        return Place(
            priority=self.priority,
            number=self.number,
            key=key_of(self.id),
            session=short_key(self.session),
            lane="-" if self.lane is None else short_key(self.lane),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file; its claim holds the same."""
        return {
            "id": self.id,
            "queue": self.queue,
            "lane": self.lane,
            "priority": self.priority,
            "session": self.session,
            "agent": self.agent,
            "recoveries": self.recoveries,
            "not_before": None if self.not_before is None else format_instant(self.not_before),
            "added_at": format_instant(self.added_at),
            "by": self.by,
            "number": self.number,
            "digest": self.digest,
            "prompt": self.prompt,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Job | None":
        """Return the job that `to_json` wrote; None if *data* is something else."""
        try:
            not_before = data["not_before"]
            return cls(
                id=_text(data["id"]),
                queue=_text(data["queue"]),
                lane=None if data["lane"] is None else _text(data["lane"]),
                priority=_between(data["priority"], -HIGHEST_PRIORITY, HIGHEST_PRIORITY),
                session=_text(data["session"]),
                agent=None if data["agent"] is None else _text(data["agent"]),
                prompt=_text(data["prompt"]),
                recoveries=_between(data["recoveries"], 0, MOST_RECOVERIES),
                # Later than any instant that can be reckoned with is as good as the last one.
                not_before=None if not_before is None else min(parse_instant(not_before), LATEST),
                added_at=_in_reach(parse_instant(data["added_at"])),
                by=_text(data["by"]),
                number=_between(data["number"], 0, _HIGHEST_NUMBER),
                digest=_text(data["digest"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _between(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no number from {least} to {most}")
    return value


# A part of a key tells sessions and lanes apart well enough to pass over names; then it is asked.
_SHORT = 16


def short_key(name: str) -> str:
    """Return what the name of a job in an order says of its session, or its lane."""
    return key_of(name)[:_SHORT]


# The order ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job stands in the order: all that choosing the next one has to know.

    Attributes:
        priority: Higher goes first.
        number: The order of arrival.
        key: Of its id: names its file.
        session: The beginning of its session's key: one that is busy is passed over unread.
        lane: The beginning of its lane's key; `-` without one.
    """

    priority: int
    number: int
    key: str
    session: str
    lane: str

    @property
    def order(self) -> tuple[int, int]:
        """What sorts places: highest priority first, then arrival."""
        return (-self.priority, self.number)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its path below an index. Every folder on the way is small, however many jobs there are.

        The priority counts downwards in ten digits and one more, in three parts, so that names
        sort as jobs go also where each has a priority of its own; the number in parts of 256.
        """
        down = f"{HIGHEST_PRIORITY - self.priority:012d}"
        return (
            down[:4],
            down[4:8],
            down[8:],
            f"{self.number >> 16:08d}",
            f"{self.number >> 8:010d}",
            self.name,
        )

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{self.number:012d}~{self.key}~{self.session}~{self.lane}"


# The folders between the index and the names.
DEPTH = 5
_PLACE_NAME = re.compile(r"([0-9]{12})~([0-9a-f]{32})~([0-9a-f]{16})~([0-9a-f]{16}|-)", re.ASCII)
_DIGITS = re.compile(r"[0-9]{4,12}", re.ASCII)


def is_index_folder(name: str) -> bool:
    """Return whether a folder of an index may be called *name*."""
    return _DIGITS.fullmatch(name) is not None


def parse_place(parts: tuple[str, ...]) -> Place | None:
    """Return the place that `Place.parts` wrote, or None if it did not write *parts*."""
    found = _PLACE_NAME.fullmatch(parts[-1])
    if found is None or len(parts) != DEPTH + 1:
        return None
    try:
        priority = HIGHEST_PRIORITY - int("".join(parts[:3]))
    except ValueError:
        return None
    number, key, session, lane = found.groups()
    return Place(priority=priority, number=int(number), key=key, session=session, lane=lane)


# Asking ------------------------------------------------------------------------------------------


def request_of(given: "JobRequest | Mapping[str, Any] | str") -> JobRequest:
    """Return the request that a caller means: a prompt alone, a mapping, or itself.

    Raises:
        InvalidJob: A mapping has a field that no job has, or no prompt.
    """
    if isinstance(given, JobRequest):
        return given
    if isinstance(given, str):
        return JobRequest(prompt=given)
    if not isinstance(given, Mapping):
        raise InvalidJob("prompt", f"a job is a prompt or a mapping, not {_kind(given)}")
    known = [one.name for one in fields(JobRequest)]
    for name in given:
        if name not in known:
            raise InvalidJob(
                str(name)[:60], "there is no such field", hint=f"a job has {', '.join(known)}"
            )
    if "prompt" not in given:
        raise InvalidJob("prompt", "it is missing", hint="say what the agent is to do")
    return JobRequest(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request that may become a job: only its place in the order is still to be given.

    Attributes:
        id: As `Job.id`, and so the others.
        digest: Of all that was asked, with `after` as it was asked.
    """

    id: str
    queue: str
    lane: str | None
    priority: int
    session: str
    agent: str | None
    prompt: str
    recoveries: int
    not_before: datetime | None
    digest: str

    def job(self, *, added_at: datetime, number: int, by: str) -> Job:
        """Return the job that it becomes."""
        mine = {one.name: getattr(self, one.name) for one in fields(self)}
        return Job(**mine, added_at=added_at.replace(microsecond=0), number=number, by=by)


def check_job(request: JobRequest, *, new_id: str, now: datetime) -> Checked:
    """Return *request* with every field checked.

    Args:
        request: What was asked.
        new_id: The id of a job that was given none.
        now: What a span counts from.

    Raises:
        InvalidJob: A field can't be used; the error names it.
    """
    job_id = new_id if request.id is None else _name("id", request.id, LONGEST_NAME)
    if _LIKE_A_RERUN.search(job_id):
        raise InvalidJob(
            "id", f"{job_id[-20:]!r} ends like the key of a second turn", hint="leave out the #"
        )
    queue = _name("queue", request.queue, LONGEST_NAME)
    lane = None if request.lane is None else _name("lane", request.lane, LONGEST_LANE)
    session = None if request.session is None else _name("session", request.session, LONGEST_LANE)
    agent = None if request.agent is None else _name("agent", request.agent, LONGEST_NAME)
    priority = _number("priority", request.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    recoveries = _number("recoveries", request.recoveries, 0, MOST_RECOVERIES)
    prompt = _prompt(request.prompt)
    asked, not_before = _after(request.after, now)
    # With `after` as it was asked: a span that is repeated a minute later is the same request.
    whole = [queue, lane, priority, session, agent, prompt, recoveries, asked]
    text = json.dumps(whole, ensure_ascii=True, separators=(",", ":"))
    return Checked(
        id=job_id,
        queue=queue,
        lane=lane,
        priority=priority,
        session=f"job:{job_id}" if session is None else session,
        agent=agent,
        prompt=prompt,
        recoveries=recoveries,
        not_before=not_before,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def check_queue(queue: Any) -> str:
    """Return the name of a queue, checked; InvalidJob names the field."""
    return _name("queue", queue, LONGEST_NAME)


def check_lane(lane: Any) -> str:
    """Return the name of a lane, checked; InvalidJob names the field."""
    return _name("lane", lane, LONGEST_LANE)


def check_id(job_id: Any, field: str = "id") -> str:
    """Return an id, checked; InvalidJob names the field."""
    return _name(field, job_id, LONGEST_NAME)


def _kind(value: object) -> str:
    return type(value).__name__


def _name(field: str, value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise InvalidJob(field, f"it must be text, not {_kind(value)}")
    # In one form, whatever keyboard or file system it came from.
    text = unicodedata.normalize("NFC", value)
    if not text.strip():
        raise InvalidJob(field, "it is empty")
    if len(text) > most:
        raise InvalidJob(field, f"it has {len(text)} characters; the most is {most}")
    if not text.isprintable():
        odd = next(c for c in text if not c.isprintable())
        raise InvalidJob(field, f"it holds \\x{ord(odd):02x}, which can't be shown")
    if text != text.strip():
        raise InvalidJob(field, "it begins or ends with a space")
    return text


def _number(field: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(field, f"it must be a whole number, not {_kind(value)}")
    if not least <= value <= most:
        said = "negative" if least == 0 and value < 0 else "out of bounds"
        raise InvalidJob(field, f"it is {said}", hint=f"from {least} to {most}")
    return value


def _prompt(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidJob("prompt", f"it must be text, not {_kind(value)}")
    if not value.strip():
        raise InvalidJob("prompt", "it is empty", hint="say what the agent is to do")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidJob(
            "prompt",
            f"it holds half a character at {error.start}, which has no bytes",
            hint="a pair of surrogates that was cut: leave it out, or decode the text again",
        ) from error
    if size > LONGEST_PROMPT:
        raise InvalidJob(
            "prompt",
            f"it has {size} bytes; the most is {LONGEST_PROMPT}",
            hint="write the details to a file, and let the prompt say where it is",
        )
    return value


def _after(value: Any, now: datetime) -> tuple[str | None, datetime | None]:
    """Return `after` as it was asked, and the instant that it comes to."""
    if value is None:
        return None, None
    span: timedelta | None = value if isinstance(value, timedelta) else None
    if isinstance(value, str):
        if is_negative(value):
            raise _before_now()
        try:
            span = parse_span(value)
        except InvalidSpan as error:
            try:
                value = parse_instant(value.strip())
            except OutOfReach:
                raise InvalidJob("after", "it is too far ahead") from error
            except ValueError:
                raise InvalidJob(
                    "after",
                    f"{value[:60]!r} is neither an instant nor a span",
                    hint=error.hint or "write it like 30m or 2026-07-01T09:00:00Z",
                ) from error
    if span is not None:
        if span < timedelta(0):
            raise _before_now()
        try:
            return format_span(span), _in_reach(now + span)
        except (OverflowError, OutOfReach):
            raise InvalidJob("after", "it is too far ahead") from None
    if not isinstance(value, datetime):
        raise InvalidJob("after", f"it must be an instant or a span, not {_kind(value)}")
    if value.tzinfo is None:
        raise InvalidJob("after", "the instant has no zone", hint="give one with tzinfo, as UTC")
    try:
        instant = _in_reach(value)
    except OutOfReach:
        raise InvalidJob("after", "it is too far ahead") from None
    return format_instant(instant), instant


def _before_now() -> InvalidJob:
    return InvalidJob("after", "a span must not be negative", hint="leave it out to start at once")


def _in_reach(instant: datetime) -> datetime:
    """Return *instant* if it can be reckoned with in every zone; OutOfReach if it can't."""
    if not EARLIEST <= instant <= LATEST:
        raise OutOfReach(f"{instant.isoformat()} is too far away")
    return instant.astimezone(UTC)


# Ending ------------------------------------------------------------------------------------------


class Ending(StrEnum):
    """How a program says that its work on a job has ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    OUTCOME_UNKNOWN = "outcome-unknown"


OUTCOMES: Mapping[Ending, tuple[Outcome, Reason | None]] = {
    Ending.COMPLETED: (Outcome.COMPLETED, None),
    Ending.FAILED: (Outcome.FAILED, Reason.AGENT),
    # By whoever works its turn: no person asked for it. The detail says that it was the worker.
    Ending.CANCELLED: (Outcome.CANCELLED, Reason.TURN),
    Ending.INTERRUPTED: (Outcome.INTERRUPTED, Reason.STOPPED),
    Ending.OUTCOME_UNKNOWN: (Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN),
}


def check_ending(ending: Any, detail: Any) -> Ending:
    """Return how a job ended, checked.

    Raises:
        InvalidJob: It is none of the five, or failed without a reason.
    """
    try:
        found = Ending(ending)
    except ValueError:
        words = ", ".join(one.value for one in Ending)
        raise InvalidJob(
            "ending", f"{str(ending)[:60]!r} is none", hint=f"one of {words}"
        ) from None
    if not isinstance(detail, str):
        raise InvalidJob("detail", f"it must be text, not {_kind(detail)}")
    if found is Ending.FAILED and not detail.strip():
        raise InvalidJob("detail", "a job that failed needs a reason")
    return found
