"""Purging a queue: what is queued in it is forgotten, ids and all, and one record says how many.

The decision is one file, `jobs/purging/<id>.json`, with the number up to which jobs are meant: what
is added after it stays. Whoever looks next finishes what a crash has left. Before anything is
forgotten the file says which jobs are meant. Those that were not claimed meanwhile are counted,
also when it takes several processes to forget them. A job that is claimed is not queued any more,
and is not purged.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from routines.domain.clock import Clock
from routines.domain.decoding import UNREADABLE
from routines.domain.job import Job
from routines.domain.names import format_instant, key_of, parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import outcome_event
from routines.errors import StoreBusy, StoreError
from routines.store import files
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.jobs import JobStore, job_of
from routines.store.state import State

_ENDING = ".json"
# So many share their rounds of syncs.
_AT_ONCE = 1000
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Purge:
    """A purge that was decided.

    Attributes:
        id: Its own.
        queue: Which queue.
        until: Jobs with a lower number are meant.
        by: Who did it.
        at: When, a whole second; its record is filed under it.
        meant: The jobs that were queued then, without prompts; None until they were listed.
    """

    id: str
    queue: str
    until: int
    by: str
    at: datetime
    meant: tuple[Job, ...] | None = None

    def encode(self) -> bytes:
        """Return the content of its file."""
        data = {
            "queue": self.queue,
            "until": self.until,
            "by": self.by,
            "at": format_instant(self.at),
            # Where each stands is all that is needed; a prompt may have a MiB.
            "meant": None
            if self.meant is None
            else [replace(job, prompt="").to_json() for job in self.meant],
        }
        text = json.dumps(data, ensure_ascii=False)
        # Half a surrogate pair in an id has no UTF-8; its escape means the same.
        return text.encode("utf-8", "backslashreplace") + b"\n"


def _decode(data: bytes, purge_id: str) -> Purge | None:
    try:
        found = json.loads(data)
        meant = found["meant"]
        return Purge(
            purge_id,
            str(found["queue"]),
            int(found["until"]),
            str(found["by"]),
            parse_instant(found["at"]),
            None if meant is None else tuple(filter(None, map(Job.from_json, meant))),
        )
    except UNREADABLE:
        return None


class PurgeStore:
    """The purges of one state folder."""

    def __init__(self, state: State, jobs: JobStore, *, clock: Clock) -> None:
        self._state = state
        self._jobs = jobs
        self._clock = clock
        self._claims = ClaimStore(state)
        self._folder = state.at("jobs", "purging")

    def _path(self, purge_id: str) -> str:
        return os.path.join(self._folder, f"{purge_id}{_ENDING}")

    def purge(self, queue: str, *, by: str) -> int:
        """Forget what is queued in *queue*, due or not; return how many there were.

        Raises:
            StoreBusy: The queue is being changed. Nothing was purged.
            NotDurable: It could not be written: nothing was purged, or the rest is purged by
                whoever looks next.
        """
        now = self._clock.now()
        until = self._clock.awake() + files.PATIENCE_S
        while not self._jobs.bring_up(now):
            if self._clock.awake() >= until:
                raise StoreBusy(
                    "many jobs are being added by another process",
                    hint="nothing was purged; try again",
                )
            self._clock.sleep(_STEP_S)
        try:
            # Held from before the decision: else another could finish it, and know the count.
            with self._purging():
                for purge_id in self._decided():
                    self._finish(purge_id)
                with self._jobs.adding():
                    purge = Purge(
                        secrets.token_hex(8),
                        queue,
                        self._jobs.newest_number() + 1,
                        by,
                        now.replace(microsecond=0),
                    )
                    files.make_folder(self._folder)
                    files.create(self._path(purge.id), purge.encode())
                return self._finish(purge.id)
        except OSError as error:
            raise files.fault(error, "write", self._folder) from error

    def _purging(
        self, *, patience: float = files.PATIENCE_S
    ) -> contextlib.AbstractContextManager[None]:
        lock = self._state.at("locks", "jobs", "purge.lock")
        return files.section(lock, patience=patience, what="a queue")

    def _decided(self) -> list[str]:
        names = files.names(self._folder)
        return [name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)]

    def finish(self) -> None:
        """Finish what was decided and is not done; what another process does is left to it.

        Raises:
            NotDurable: It is not finished: to be done again.
        """
        if not self._decided():
            return
        with contextlib.suppress(StoreBusy), self._purging(patience=0.0):
            for purge_id in self._decided():
                self._finish(purge_id)

    def _finish(self, purge_id: str) -> int:
        """Finish a purge under the lock; return how many jobs it has purged."""
        path = self._path(purge_id)
        purge = _decode(files.read(path) or b"", purge_id)
        if purge is None:
            return 0
        try:
            files.sync_folder(self._folder)
            if purge.meant is None:
                purge = replace(purge, meant=tuple(self._queued(purge)))
                files.replace(path, purge.encode())
            count = self._forget(purge.meant or ())
            if count:
                self._record(purge, count)
            files.remove(path)
            # Else it would come back, and purge what was added since under old numbers.
            files.sync_folder(self._folder)
        except OSError as error:
            raise files.fault(error, "purge", path) from error
        return count

    def _queued(self, purge: Purge) -> Iterator[Job]:
        """Yield the jobs that are queued and meant."""
        places = [
            *self._jobs.orders.queued(purge.queue),
            *self._jobs.orders.waiting_for_their_time(purge.queue),
        ]
        for place in places:
            job = self._jobs.peek(place) if place.number < purge.until else None
            if job is None or job.queue != purge.queue:
                continue
            if not self._claims.is_claimed(job.occurrence):
                yield job

    def _forget(self, meant: Sequence[Job]) -> int:
        """Forget the jobs that are meant; return how many were purged, and not claimed."""
        for start in range(0, len(meant), _AT_ONCE):
            self._jobs.forget(meant[start : start + _AT_ONCE])
        return sum(not self._was_claimed(one) for one in meant)

    def _was_claimed(self, meant: Job) -> bool:
        if not self._claims.is_claimed(meant.occurrence):
            return False
        record = self._claims.read(meant.occurrence)
        job = None if record is None else job_of(record)
        # The id may have been used again within the second.
        return job is None or job.number == meant.number

    def _record(self, purge: Purge, count: int) -> None:
        """Write the one record of a purge; again is harmless."""
        occurrence = Occurrence(Kind.JOB, "", purge.at, f"purge-{purge.id}")
        claim: dict[str, Any] = {
            "trigger": Trigger.JOB.value,
            "by": purge.by,
            "recurs": False,
            "purge": {"queue": purge.queue, "count": count},
            "key": key_of(occurrence.id),
        }
        jobs = "1 job" if count == 1 else f"{count} jobs"
        end = outcome_event(
            at=purge.at,
            outcome=Outcome.CANCELLED,
            reason=Reason.PURGE,
            detail=f"{jobs} queued in {purge.queue}",
        )
        taken = self._claims.take(Draft(occurrence, claim, end), at=purge.at)
        if taken is not None:
            taken.let_go()
        elif not self._claims.is_claimed(occurrence):
            raise StoreError(f"the purge of {purge.queue} could not be recorded")
