"""Jobs: what a program has put into the queue, and how the work on one may end.

A job is one more producer of turns: claimed, run and settled like a slot or a firing. What may be
asked is in `job_request`, the order that jobs go in is in `job_place`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.job_place import HIGHEST_NUMBER, HIGHEST_PRIORITY, Place, short_key
from routines.domain.names import OutOfReach, format_instant, key_of, parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.zones import EARLIEST, LATEST

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
    def place(self) -> Place:
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
                added_at=in_reach(parse_instant(data["added_at"])),
                by=_text(data["by"]),
                number=_between(data["number"], 0, HIGHEST_NUMBER),
                digest=_text(data["digest"]),
            )
        except UNREADABLE:
            return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _between(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no number from {least} to {most}")
    return value


def in_reach(instant: datetime) -> datetime:
    """Return *instant* if it can be reckoned with in every zone; OutOfReach if it can't."""
    if not EARLIEST <= instant <= LATEST:
        raise OutOfReach(f"{instant.isoformat()} is too far away")
    return instant.astimezone(UTC)


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
