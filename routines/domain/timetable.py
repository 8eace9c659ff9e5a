"""When slots fall due: the slot itself, and a stable offset from it.

The slot names the occurrence; the offset (`jitter`) only spreads load. It is a hash of name and
slot, so that every machine finds the same, and it is never longer than the shortest gap between
two slots, so that slots fall due in their order.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from routines.domain.schedule import Schedule

_SECOND = timedelta(seconds=1)


def offset_of(name: str, slot: datetime, jitter: timedelta) -> timedelta:
    """Return the offset of *slot*: whole seconds, from none up to and including *jitter*."""
    seconds = int(jitter.total_seconds())
    if seconds <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{name}@{int(slot.timestamp())}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % (seconds + 1))


@dataclass(frozen=True, slots=True)
class Timetable:
    """The slots of one routine, and when each falls due.

    Attributes:
        name: The routine.
        schedule: Yields the slots.
        jitter: The longest offset; zero for none.
    """

    name: str
    schedule: Schedule
    jitter: timedelta = timedelta(0)

    def due_at(self, slot: datetime) -> datetime:
        """Return when *slot* falls due."""
        return slot + offset_of(self.name, slot, self.jitter)

    def newest_due(self, now: datetime) -> datetime | None:
        """Return the newest slot that has fallen due by *now*, or None."""
        slot = self.schedule.newest_at_or_before(now)
        if slot is not None and self.due_at(slot) > now:
            return self.before(slot)
        return slot

    def before(self, slot: datetime) -> datetime | None:
        """Return the slot before *slot*, or None."""
        return self.schedule.newest_at_or_before(slot - _SECOND)

    def next_due(self, now: datetime) -> datetime | None:
        """Return when the next slot falls due, strictly after *now*; None if none is to come."""
        passed = self.schedule.newest_at_or_before(now)
        if passed is not None and self.due_at(passed) > now:
            return self.due_at(passed)
        coming = self.schedule.next_after(now)
        return None if coming is None else self.due_at(coming)
