"""How long things took, for whoever keeps numbers: lateness, the start of a turn, the turn."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.names import parse_instant
from routines.domain.record import Event, Record


@dataclass(frozen=True, slots=True)
class PassFacts:
    """What one look at everything took, and what the store refused.

    Attributes:
        seconds: From its begin until its turns were begun.
        faults: Routines that the store refused when it was last asked, by name.
    """

    seconds: float
    faults: tuple[str, ...]


def measures(record: Record) -> dict[str, Any]:
    """Return `late_s`, `start_s` and `duration_s` of a settled record; None where unknown.

    `late_s` is what lay between the instant at which it was due and its start, `start_s` what
    lay between the moment that it was taken up and its start, `duration_s` how long it ran.
    """
    started, end = record.started or {}, record.end or {}
    return {
        "late_s": _number(started.get("late_s")),
        "start_s": _start_s(record),
        "duration_s": _number(end.get("duration_s")),
    }


def _start_s(record: Record) -> float | None:
    started_at, taken_up_at = record.started_at, record.claimed_at
    for line in record.events:
        if line is record.started:
            break
        if line["event"] == Event.ATTEMPT.value:
            # Tried again, or let go of and taken up later: what lay before is no start.
            taken_up_at = _instant(line.get("at"))
    if started_at is None or taken_up_at is None:
        return None
    # A clock that was set back meanwhile made no turn start before it was taken up.
    return max((started_at - taken_up_at).total_seconds(), 0.0)


def _instant(value: object) -> datetime | None:
    try:
        return parse_instant(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
