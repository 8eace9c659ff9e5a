"""Whether a turn that did not start, or failed, is tried again, and when (PROMISES L12)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.durations import format_span, parse_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy.

    Attributes:
        attempts: How often in all, the first one included.
        first: The pause after the first attempt; it doubles with each further one.
        most: And is never longer than this.
        started: Whether a turn that started and failed is tried again too. A prompt is not safe to
            repeat, so that only the author can say so.
        park: Whether the last failure parks a recurring slot until a person decides.
    """

    attempts: int = 3
    first: timedelta = timedelta(minutes=1)
    most: timedelta = timedelta(minutes=15)
    started: bool = False
    park: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "attempts": self.attempts,
            "first": format_span(self.first),
            "most": format_span(self.most),
            "started": self.started,
            "park": self.park,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Retry":
        """Return what `to_json` wrote."""
        return cls(
            attempts=data["attempts"],
            first=parse_span(data["first"]),
            most=parse_span(data["most"]),
            started=data["started"],
            park=data["park"],
        )


USUAL = Retry()


@dataclass(frozen=True, slots=True)
class Again:
    """It is tried again, not before *at*."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Park:
    """It waits until a person recovers or cancels it; it blocks no later slot."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is settled as it ended."""


def next_try(
    policy: Retry,
    *,
    attempts: int,
    recurs: bool,
    now: datetime,
    next_slot: datetime | None,
) -> Again | Park | GiveUp:
    """Decide what follows an attempt that may be repeated.

    Args:
        policy: The routine's.
        attempts: How many there were, this one included.
        recurs: Whether another occurrence comes by itself: not for `at`, wake-ups and jobs.
        now: When the attempt ended.
        next_slot: The routine's next slot: no attempt is made at or after it.
    """
    if attempts < policy.attempts:
        at = now + min(policy.first * 2 ** (attempts - 1), policy.most)
        if next_slot is None or at < next_slot:
            return Again(at)
    return GiveUp() if recurs and not policy.park else Park()
