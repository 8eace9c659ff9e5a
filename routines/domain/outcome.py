"""How occurrences end, and the words for the way there: closed lists.

The values are the words that a person types and that files, logs and `--json` show.
"""

from enum import StrEnum
from types import MappingProxyType


class Trigger(StrEnum):
    """Why a turn was given to the agent."""

    SCHEDULE = "schedule"
    CATCH_UP = "catch-up"
    EXTERNAL = "external"
    MANUAL = "manual"
    WAKE_UP = "wake-up"
    JOB = "job"


class Outcome(StrEnum):
    """The one final end of an occurrence."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"
    MISSED = "missed"


class Reason(StrEnum):
    """Why it ended so; which reasons an outcome may have is in `REASONS`."""

    OVERLAP = "overlap"
    BUSY = "busy"
    GATE = "gate"
    LIMIT = "limit"
    EDITED = "edited"
    REFUSED = "refused"
    NO_SCHEDULER = "no-scheduler"
    ASLEEP = "asleep"
    PAUSED = "paused"
    DISABLED = "disabled"
    NOT_ARMED = "not-armed"
    TOO_LATE = "too-late"
    OVER_BOUND = "over-bound"
    STALE = "stale"
    AGENT = "agent"
    EXIT = "exit"
    SIGNAL = "signal"
    NOT_FOUND = "not-found"
    NOT_STARTED = "not-started"
    LANE = "lane"
    VERIFY = "verify"
    SESSION_CHANGED = "session-changed"
    SESSION_LOST = "session-lost"
    BAD_OUTPUT = "bad-output"
    NOT_DURABLE = "not-durable"
    STOPPED = "stopped"
    OWNER_DIED = "owner-died"
    PRESUMED = "presumed"
    OWNER_UNKNOWN = "owner-unknown"
    OUTCOME_UNKNOWN = "outcome-unknown"
    COPIED = "copied"
    TIMEOUT = "timeout"
    PERSON = "person"
    TURN = "turn"
    PURGE = "purge"


def _reasons(words: str) -> frozenset[Reason]:
    return frozenset(Reason(word) for word in words.split())


REASONS = MappingProxyType(
    {
        Outcome.COMPLETED: frozenset[Reason](),
        Outcome.SKIPPED: _reasons("overlap busy gate limit edited refused"),
        Outcome.MISSED: _reasons(
            "no-scheduler asleep paused disabled not-armed too-late over-bound busy stale"
        ),
        Outcome.FAILED: _reasons(
            "agent exit signal not-found not-started lane verify gate session-changed"
            " session-lost bad-output not-durable"
        ),
        Outcome.INTERRUPTED: _reasons(
            "stopped owner-died presumed owner-unknown outcome-unknown copied"
        ),
        Outcome.TIMED_OUT: _reasons("timeout"),
        Outcome.CANCELLED: _reasons("person turn purge"),
        Outcome.SUPERSEDED: frozenset[Reason](),
    }
)


def end_of_cancel(*, person: bool, lane: bool = False) -> tuple[Outcome, Reason]:
    """Return how an occurrence ends that was cancelled, or whose lane was failed."""
    if lane:
        return Outcome.FAILED, Reason.LANE
    return Outcome.CANCELLED, Reason.PERSON if person else Reason.TURN


class State(StrEnum):
    """Where an occurrence stands. The first eight are on disk, the last two are computed."""

    CLAIMED = "claimed"
    RUNNING = "running"
    BUFFERED = "buffered"
    DEFERRED = "deferred"
    PARKED = "parked"
    RETRYING = "retrying"
    LOST = "lost"
    SETTLED = "settled"
    WAITING = "waiting"
    OWED = "owed"


class Warn(StrEnum):
    """What a completed turn is not quite clean of; it then counts as a problem."""

    DENIED = "denied"
    EMPTY_REPLY = "empty-reply"
    TRUNCATED = "truncated"
    NOT_DELIVERED = "not-delivered"


# One line of `detail` at most this long: enough for any message that a person would read.
LONGEST_DETAIL = 500
# History shows the beginnings of prompt and reply; the whole is in the output folder.
SHOWN = 200
# After the turn that it names, the detail of a slot that was skipped for it.
STILL_RUNNING = " is still running"


def one_line(text: str, *, most: int = LONGEST_DETAIL) -> str:
    """Return *text* folded into one line of printable characters, at most *most* long."""
    # A text of megabytes is cut first: folding it whole would cost memory for nothing.
    folded = " ".join(text[: most * 8].split())
    safe = folded
    if not folded.isprintable():
        safe = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in folded)
    return safe if len(safe) <= most else safe[: most - 3] + "..."
