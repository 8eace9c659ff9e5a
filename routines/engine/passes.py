"""What one look at everything came to."""

from dataclasses import dataclass, field

from routines.domain.record import Record
from routines.engine.needs import Ready
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
        unstarted: Paths of claims that were made and have to wait: for their predecessor, or for
            their session after all.
        faults: Routines that the store refused.
        busy: Routines whose lock another process had.
        done: Routines about which nothing is left to do now.
        superseding: Running turns that were asked to make way for a newer slot.
        unarmed: Routines whose cursor says that they are not armed.
        sessions: Sessions that are about to be taken.
    """

    ready: list[Ready] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    unstarted: list[str] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    superseding: list[Cancel] = field(default_factory=list)
    unarmed: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
