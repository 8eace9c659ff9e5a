"""How a record ended, known from its last line alone: for those who look at thousands."""

import json
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.outcome import Outcome, Reason

# An outcome line begins with this word, however its spaces were set by hand.
_WORD, _WITHIN = b'"outcome"', 32


def name_key(path: str) -> str:
    """Return the instant that a claim's file name begins with; it sorts as instants do."""
    return path.rpartition("/")[2].partition(".")[0]


def is_of_slot(path: str) -> bool:
    """Return whether a claim's file is that of a slot: those of runs by hand carry an id too."""
    return path.rpartition("/")[2].count(".") == 1


def ending(data: bytes) -> dict[str, Any] | None:
    """Return the outcome line of a claim's file; None if its last whole line is something else.

    Args:
        data: The content of the file.
    """
    last = data[: data.rfind(b"\n")].rpartition(b"\n")[2]
    if _WORD not in last[:_WITHIN]:
        return None
    try:
        end = json.loads(last)
        Outcome(end["outcome"])
    except UNREADABLE:
        return None
    found: dict[str, Any] = end
    return found


def is_calm(end: dict[str, Any]) -> bool:
    """Return whether `--problems` leaves it out: completed without warnings, or gated (O3)."""
    if end["outcome"] == Outcome.COMPLETED.value:
        return not end.get("warnings")
    gated = end.get("reason") == Reason.GATE.value
    return bool(end["outcome"] == Outcome.SKIPPED.value and gated)
