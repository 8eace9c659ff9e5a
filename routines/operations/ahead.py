"""Slots that are ahead and dealt with all the same, by a clock that was ahead.

What is dated in the future holds nothing up (PROMISES L1, L6), and a slot that has a claim or ends
a counted record does not run again when its time comes.
"""

from dataclasses import dataclass
from datetime import datetime

from routines.domain.schedule import Schedule
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.state import State

DEALT_WITH = "never: it was dealt with already, by a clock that was ahead"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What of one routine is dealt with, and lies ahead.

    Attributes:
        claimed: Slots that have a claim.
        recorded: Slots that end a counted record.
    """

    claimed: frozenset[datetime] = frozenset()
    recorded: frozenset[datetime] = frozenset()

    def has(self, slot: datetime) -> bool:
        """Return whether *slot* does not run when its time comes."""
        return slot in self.claimed or slot in self.recorded

    def next_after(self, schedule: Schedule, at: datetime) -> datetime | None:
        """Return the first slot after *at* that runs when its time comes; None if none does."""
        slot = schedule.next_after(at)
        while slot is not None and self.has(slot):
            slot = schedule.next_after(slot)
        return slot


def ahead_of(state: State | None, routine: str, *, now: datetime) -> Ahead:
    """Return what of *routine* is dealt with and lies ahead; mostly nothing."""
    if state is None:
        return Ahead()
    _, claimed = ClaimStore(state).newest_slot(routine, until=now)
    recorded = (one.last for one in CursorStore(state).missed(routine, since=now))
    return Ahead(frozenset(claimed), frozenset(slot for slot in recorded if slot > now))
