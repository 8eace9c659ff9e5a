"""Which places of the queue does a look go through, so that no crowd hides what can start?"""

from collections.abc import Iterator

from routines.domain.job_place import Place
from routines.store.jobs import JobStore

# So many names are looked at from the head of the queue, and so many from where the last look
# stopped: a crowd that waits for one session hides nobody for ever, and no look takes long.
LOOK_AHEAD = 1000


class Choosing:
    """Walks the queue past what can't start now: a bounded stretch at a time, and on from there."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._stopped: dict[str | None, Place] = {}

    def places(self, queue: str | None = None) -> Iterator[Place]:
        """Yield the places to look at, in their order."""
        last: Place | None = None
        for looked, place in enumerate(self._jobs.orders.queued(queue), 1):
            yield place
            last = place
            if looked >= LOOK_AHEAD:
                break
        else:
            self._stopped.pop(queue, None)
            return
        before = self._stopped.get(queue)
        if before is not None and last is not None and before.order > last.order:
            last = before
        for looked, place in enumerate(self._jobs.orders.queued(queue, after=last), 1):
            yield place
            if looked >= LOOK_AHEAD:
                self._stopped[queue] = place
                return
        self._stopped.pop(queue, None)
