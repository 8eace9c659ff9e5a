"""What programs ask of the queue, checked: a job that is to be added, a name, how one has ended.

A repeat is known by a digest of all that was asked.
"""

import hashlib
import json
import re
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from routines.domain.durations import format_span, is_negative, parse_span
from routines.domain.job import MOST_RECOVERIES, Ending, Job, in_reach
from routines.domain.job_place import HIGHEST_PRIORITY
from routines.domain.names import OutOfReach, format_instant, parse_instant
from routines.errors import InvalidJob, InvalidSpan

DEFAULT_QUEUE = "default"
LONGEST_NAME = 256
LONGEST_LANE = 512
LONGEST_PROMPT = 1024 * 1024
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
    own = f"job:{job_id}"
    session = own if request.session is None else _name("session", request.session, LONGEST_LANE)
    agent = None if request.agent is None else _name("agent", request.agent, LONGEST_NAME)
    priority = _number("priority", request.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    recoveries = _number("recoveries", request.recoveries, 0, MOST_RECOVERIES)
    prompt = _prompt(request.prompt)
    asked, not_before = _after(request.after, now)
    # With `after` as it was asked: a span that is repeated a minute later is the same request.
    # Its own session is what none means, and counts as that, whoever writes it out.
    said = None if session == own else session
    whole = [queue, lane, priority, said, agent, prompt, recoveries, asked]
    text = json.dumps(whole, ensure_ascii=True, separators=(",", ":"))
    return Checked(
        id=job_id,
        queue=queue,
        lane=lane,
        priority=priority,
        session=session,
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
    # What else Python strips, as U+2028, is no empty text to whoever sent it.
    if not text.strip(string.whitespace):
        raise InvalidJob(field, "it is empty")
    if len(text) > most:
        raise InvalidJob(field, f"it has {len(text)} characters; the most is {most}")
    if not text.isprintable():
        odd = next(c for c in text if not c.isprintable())
        raise InvalidJob(field, f"it holds U+{ord(odd):04X}, which can't be shown")
    if text != text.strip():
        raise InvalidJob(field, "it begins or ends with a space")
    return text


def _number(field: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(field, f"it must be a whole number, not {_kind(value)}")
    if not least <= value <= most:
        # Without the number: one of many thousand digits can't even be written.
        raise InvalidJob(field, f"it must lie between {least:,} and {most:,}")
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
                # In no year of UTC: of the first year or of the last.
                raise _out_of_reach(back=value.strip().startswith("0")) from error
            except ValueError:
                is_bare = value.strip().replace(".", "").isdigit()
                raise InvalidJob(
                    "after",
                    f"{value[:60]!r} is neither an instant nor a span",
                    hint=error.hint if is_bare else "write it like 30m or 2026-07-01T09:00:00Z",
                ) from error
    if span is not None:
        if span < timedelta(0):
            raise _before_now()
        try:
            return format_span(span), in_reach(now + span)
        except (OverflowError, OutOfReach):
            raise _out_of_reach(back=False) from None
    if not isinstance(value, datetime):
        raise InvalidJob("after", f"it must be an instant or a span, not {_kind(value)}")
    if value.tzinfo is None:
        raise InvalidJob("after", "the instant has no zone", hint="give one with tzinfo, as UTC")
    try:
        instant = in_reach(value)
    except OutOfReach:
        raise _out_of_reach(back=value.year < now.year) from None
    return format_instant(instant), instant


def _out_of_reach(*, back: bool) -> InvalidJob:
    return InvalidJob("after", "it is too far back" if back else "it is too far ahead")


def _before_now() -> InvalidJob:
    return InvalidJob("after", "a span must not be negative", hint="leave it out to start at once")


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
