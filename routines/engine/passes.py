"""What one look at everything came to."""

from dataclasses import dataclass, field

from routines.domain.record import Record
from routines.engine.needs import Ready
from routines.errors import RoutinesError, StoreError
from routines.store import files
from routines.store.cancels import Cancel
from routines.store.cursors import Missed


@dataclass(slots=True)
class Pass:
    """What one look came to.

    Attributes:
        ready: Turns to be started, oldest slot first.
        settled: Records that ended without a turn.
        missed: Counted records that were made.
        waiting: Routines that are due and wait, with why.
        held_back: Claims of before and wake-ups that are due and wait, with their routine.
        unstarted: Paths of claims that were made and have to wait: for their predecessor, or for
            their session after all.
        faults: Routines that the store refused.
        troubles: What else could not be done, by routine, wake-up, job or claim.
        busy: Routines whose lock another process had, with the error that says so.
        done: Routines about which nothing is left to do now.
        superseding: Running turns that were asked to make way for a newer slot.
        unarmed: Routines whose cursor says that they are not armed.
        sessions: Sessions that are about to be taken.
    """

    ready: list[Ready] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    held_back: dict[str, str | None] = field(default_factory=dict)
    unstarted: list[str] = field(default_factory=list)
    faults: dict[str, RoutinesError] = field(default_factory=dict)
    troubles: dict[str, RoutinesError] = field(default_factory=dict)
    busy: dict[str, RoutinesError] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    superseding: list[Cancel] = field(default_factory=list)
    unarmed: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ticked:
    """What the passes of one `tick` came to.

    Attributes:
        records: What its turns came to, None for one that was claimed and not started, and what
            else was settled.
        refused: What the store refused, and routines whose lock another process kept; by routine,
            wake-up, job or claim.
        waiting: What is due and could not start: routines, claims and wake-ups, with their routine.
    """

    records: list[Record | None] = field(default_factory=list)
    refused: dict[str, RoutinesError] = field(default_factory=dict)
    waiting: dict[str, str | None] = field(default_factory=dict)


def trouble(error: Exception) -> RoutinesError:
    """Return *error* as one that says in words, and with a code, what is wrong."""
    if isinstance(error, RoutinesError):
        return error
    if isinstance(error, OSError):
        if error.errno is None:
            return StoreError(str(error))
        return files.fault(error, "write", str(error.filename or "the state folder"))
    return RoutinesError(f"{type(error).__name__}: {error}")
