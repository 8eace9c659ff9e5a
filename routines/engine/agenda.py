"""When to look at which routine: all that an engine keeps in memory, and all of it can be lost."""

import heapq
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from routines.domain.due import ON_TIME
from routines.domain.routine import Routine

# A routine that could not be looked at (a lock, a full disk) is looked at again this much later.
_AGAIN = timedelta(seconds=1)
_AGAIN_AT_MOST = timedelta(seconds=60)
_AT_ONCE = datetime.min.replace(tzinfo=UTC)


class Agenda:
    """The next slot of each armed routine, and those that want another look.

    Finding out that nothing is due costs one comparison, whatever the number of routines.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, str, int]] = []
        self._version: dict[str, int] = {}
        self._waiting: dict[str, datetime] = {}
        self._faults: dict[str, int] = {}
        self._seen: dict[str, datetime] = {}
        self._routines: dict[str, Routine] = {}
        self._hurried = False

    def rebuild(self, routines: Mapping[str, Routine], now: datetime) -> None:
        """Forget everything and look at every routine at once: at boot, or after a clock step."""
        self._heap.clear()
        self._version.clear()
        self._waiting = dict.fromkeys(routines, now)
        self._routines = dict(routines)

    def refresh(self, routines: Mapping[str, Routine], now: datetime) -> None:
        """Look at once at the routines that an edit has changed: the others are as they were."""
        for name in self._routines.keys() - routines.keys():
            self.forget(name)
        for name, routine in routines.items():
            if self._routines.get(name) is not routine:
                self.forget(name)
                self._waiting[name] = now
        self._routines = dict(routines)

    def arm(self, routine: Routine, now: datetime) -> None:
        """Set the next slot of *routine* after *now*; what waited for it waits no more."""
        self.forget(routine.name)
        self.follow(routine, now)

    def follow(self, routine: Routine, now: datetime) -> None:
        """Set the next slot of *routine* after *now*, while an earlier one may still wait."""
        version = self._version[routine.name] = self._version.get(routine.name, 0) + 1
        timetable = routine.timetable
        if timetable is None or not routine.enabled:
            return
        following = timetable.next_due(now)
        if following is not None:
            heapq.heappush(self._heap, (following, routine.name, version))

    def forget(self, name: str) -> None:
        """Take a routine off the agenda."""
        self._version[name] = self._version.get(name, 0) + 1
        self._waiting.pop(name, None)
        self._faults.pop(name, None)

    def wait(self, name: str, now: datetime) -> None:
        """Look at a routine again soon: something stands in its way."""
        self._waiting[name] = now + _AGAIN

    def fault(self, name: str, now: datetime) -> None:
        """Look at a routine again later and later: the store refuses it."""
        faults = self._faults[name] = self._faults.get(name, 0) + 1
        self._waiting[name] = now + min(_AGAIN * 2 ** min(faults, 6), _AGAIN_AT_MOST)

    def hurry(self) -> None:
        """Look at everything that waits at the next pass: a turn has ended, a place is free.

        Called on the loop while a pass may be under way in the store's thread: a flag is all that
        it may touch. Changing what waits from here lost routines, and their slots with them.
        """
        self._hurried = True

    def _catch_breath(self, now: datetime) -> None:
        if self._hurried:
            self._hurried = False
            for name in self._waiting:
                if name not in self._faults:
                    self._waiting[name] = now

    def due(self, now: datetime, routines: Mapping[str, Routine]) -> list[str]:
        """Return the routines to look at, oldest slot first, and note which slots were seen."""
        self._catch_breath(now)
        names: dict[str, datetime] = {}
        while self._heap and self._heap[0][0] <= now:
            slot, name, version = heapq.heappop(self._heap)
            if self._version.get(name) == version:
                if now - slot <= ON_TIME:
                    # Later than that nobody was there: a suspended process is an absence (L3).
                    self._seen[name] = slot
                names[name] = slot
                self._waiting.setdefault(name, now)
        for name, look_at in self._waiting.items():
            # Where something has just fallen due, what waits already is asked first.
            if name not in names and (look_at <= now or (names and name not in self._faults)):
                names[name] = self._slot(routines.get(name), now)
        return sorted(names, key=lambda name: (names[name], name))

    def _slot(self, routine: Routine | None, now: datetime) -> datetime:
        """Return the slot that a routine waits for: the newest."""
        slot = None
        if routine is not None and routine.schedule is not None:
            slot = routine.schedule.newest_at_or_before(now)
        return slot or now

    def saw(self, name: str, slot: datetime) -> bool:
        """Return whether this engine was there when *slot* fell due, so that it only waits."""
        seen = self._seen.get(name)
        return seen is not None and seen >= slot

    def next_look(self) -> datetime | None:
        """Return the next instant at which something has to be looked at; None if none is known."""
        while self._heap and self._version.get(self._heap[0][1]) != self._heap[0][2]:
            heapq.heappop(self._heap)
        if self._hurried and self._waiting:
            return _AT_ONCE
        instants: Iterable[datetime] = [
            *(at for at, _, _ in self._heap[:1]),
            *self._waiting.values(),
        ]
        return min(instants, default=None)
