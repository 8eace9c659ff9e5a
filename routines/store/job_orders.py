"""In which order jobs go, and where each is looked for: names that sort, and the next number.

A name in an order decides nothing: what was taken and what was purged is told by the claim and by
the acceptance. So a name too many is removed by whoever looks at it, and removing one again is
harmless.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from routines.domain.job import Job
from routines.domain.job_place import Place
from routines.store import files
from routines.store.job_index import JobIndex, queued, waits
from routines.store.job_later import LaterStore, Waiting
from routines.store.state import State

# Queues that one program works at a time are few; it may have had any number of them.
_INDEXES = 1024


class JobOrders:
    """The orders of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queued = queued(state)
        self._later = LaterStore(state)
        # Orders of one queue, by what makes them and queue, until what they emptied is removed.
        self._own: dict[tuple[Callable[[State, str], JobIndex], str], JobIndex] = {}

    def _queue(self, queue: str) -> JobIndex:
        return self._own_order(queued, queue)

    def _waits(self, queue: str) -> JobIndex:
        return self._own_order(waits, queue)

    def _own_order(self, order: Callable[[State, str], JobIndex], queue: str) -> JobIndex:
        found = self._own.get((order, queue))
        if found is None:
            if len(self._own) >= _INDEXES:
                # A program that only adds removes nothing: whoever walks finds what is empty.
                self._own.clear()
            found = self._own[order, queue] = order(self._state, queue)
        return found

    # Numbers ------------------------------------------------------------------------------------

    def _next_path(self) -> str:
        return self._state.at("jobs", "next")

    def current(self) -> int:
        """Return the number that the next job gets, as far as that is known without looking."""
        words = (files.read(self._next_path()) or b"").split(b"\n")[0].split()
        boot = (self._state.format.boot or "-").encode()
        if len(words) == 2 and words[0].isdigit() and words[1] == boot:  # noqa: PLR2004
            return int(words[0])
        return 0

    def count_on(self, number: int) -> None:
        """Note the number that the next job gets. OSError if that fails."""
        line = f"{number:012d} {self._state.format.boot or '-'}\n"
        files.make_folder(os.path.dirname(self._next_path()))
        # Not synced: after a power cut it is another boot, and the orders are asked.
        files.overwrite(self._next_path(), line.encode())

    def newest_number(self) -> int:
        """Return the highest number that has a name, 0 for none."""
        return max(self._queued.newest_number(), self._later.newest_number())

    # Looking ------------------------------------------------------------------------------------

    def has(self, job: Job) -> bool:
        """Return whether *job* has the name of one that waits to be claimed, or for its time."""
        return self._queued.has(job.place) or self._waits(job.queue).has(job.place)

    def is_empty(self) -> bool:
        """Return whether nothing is named, due or not."""
        return self._queued.is_empty() and self._later.is_empty()

    def queued(self, queue: str | None = None, *, after: Place | None = None) -> Iterator[Place]:
        """Yield what is queued and due, in the order it goes; of one queue or of all."""
        yield from (self._queued if queue is None else self._queue(queue)).walk(after=after)

    def waiting_for_their_time(self, queue: str) -> Iterator[Place]:
        """Yield what is queued in *queue* and waits for its time."""
        yield from self._waits(queue).walk()

    def later_places(self) -> Iterator[Place]:
        """Yield what waits for its time in any queue, earliest first."""
        yield from (one.place for one in self._later.waiting())

    def is_waiting(self, job: Job) -> bool:
        """Return whether a queued job waits for its time."""
        return not self._queued.has(job.place) and self._waits(job.queue).has(job.place)

    def next_later(
        self, queue: str | None = None, *, until: datetime | None = None
    ) -> datetime | None:
        """Return when the next job that waits for its time is due, in one queue or in all.

        With *until*, of all queues, nothing is read of what waits longer, and it may be left out.
        """
        if queue is None:
            return self._later.next_at(until=until)
        own = self._waits(queue)
        if own.is_empty():
            return None
        return next((one.at for one in self._later.waiting() if own.has(one.place)), None)

    # Naming -------------------------------------------------------------------------------------

    def put(self, jobs: Sequence[Job], now: datetime) -> list[str]:
        """Name jobs where they will be looked for; return the folders that are to be synced."""
        due = [job for job in jobs if job.not_before is None or job.not_before <= now]
        later = [job for job in jobs if job.not_before is not None and job.not_before > now]
        folders = self._queued.name(job.place for job in due)
        for queue, places in _by_queue(due).items():
            folders += self._queue(queue).name(places)
        for queue, places in _by_queue(later).items():
            folders += self._waits(queue).name(places)
        return folders + self._later.name(later)

    def due(self, now: datetime) -> Iterator[list[Waiting]]:
        """Yield what has waited for its time and is due by *now*; see `LaterStore.due`."""
        return self._later.due(now)

    def stop_waiting(self, names: Iterable[Waiting], jobs: Iterable[Job] = ()) -> None:
        """Take away the names of what waited for its time, and of *jobs* in their queues, too."""
        self._later.remove(names)
        current = self.current()
        for job in jobs:
            self._waits(job.queue).remove(job.place, current=current)

    def remove_place(self, place: Place, queue: str | None) -> None:
        """Take away a due name that leads to no job, of all and of *queue*."""
        self._queued.remove(place, current=self.current())
        if queue is not None:
            self._queue(queue).remove(place, current=self.current())

    def remove(self, job: Job) -> None:
        """Take the names of a job out of every order."""
        current, place = self.current(), job.place
        self._queued.remove(place, current=current)
        self._queue(job.queue).remove(place, current=current)
        if job.not_before is not None:
            self._waits(job.queue).remove(place, current=current)
            self._later.remove(filter(None, [Waiting.of(job)]))

    def tidy(self) -> None:
        """Remove folders that were found empty on the way."""
        current = self.current()
        self._queued.tidy(current=current)
        for name, index in list(self._own.items()):
            # Programs may use any number of queues: what has nothing to remove is made anew.
            if index.tidy(current=current):
                self._own.pop(name, None)


def _by_queue(jobs: Sequence[Job]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for job in jobs:
        found.setdefault(job.queue, []).append(job.place)
    return found
