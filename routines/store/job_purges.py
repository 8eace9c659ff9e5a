"""Purging a queue: what is queued in it is forgotten, ids and all, and one record says how many.

The decision is one file, `jobs/purging/<id>.json`, with the number up to which jobs are meant: what
is added after it stays. Whoever looks next finishes what a crash has left. A job that is claimed
meanwhile is not queued any more, and is not purged.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import Job, key_of
from routines.domain.names import format_instant, parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import outcome_event
from routines.errors import StoreBusy, StoreError
from routines.store import files
from routines.store.claims import ClaimStore, Draft
from routines.store.jobs import JobStore
from routines.store.state import State

_ENDING = ".json"
# So many share their rounds of syncs.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Purge:
    """A purge that was decided.

    Attributes:
        id: Its own.
        queue: Which queue.
        until: Jobs with a lower number are meant.
        by: Who did it.
        at: When, a whole second; its record is filed under it.
        count: How many were queued; None until they were counted.
    """

    id: str
    queue: str
    until: int
    by: str
    at: datetime
    count: int | None = None

    def encode(self) -> bytes:
        """Return the content of its file."""
        data = {
            "queue": self.queue,
            "until": self.until,
            "by": self.by,
            "at": format_instant(self.at),
            "count": self.count,
        }
        return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def _decode(data: bytes, purge_id: str) -> Purge | None:
    try:
        found = json.loads(data)
        count = found["count"]
        return Purge(
            purge_id,
            str(found["queue"]),
            int(found["until"]),
            str(found["by"]),
            parse_instant(found["at"]),
            None if count is None else int(count),
        )
    except (ValueError, KeyError, TypeError):
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
        if not self._jobs.bring_up(now):
            raise StoreBusy(
                "many jobs are being added by another process",
                hint="nothing was purged; try again",
            )
        try:
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
        except OSError as error:
            raise files.fault(error, "write", self._folder) from error
        return self._finish(purge.id) or 0

    def finish(self) -> None:
        """Finish what was decided and is not done; what another process does is left to it."""
        for name in files.names(self._folder):
            if name.endswith(_ENDING):
                with contextlib.suppress(StoreBusy):
                    self._finish(name.removesuffix(_ENDING), patience=0.0)

    def _finish(self, purge_id: str, *, patience: float = files.PATIENCE_S) -> int | None:
        path = self._path(purge_id)
        lock = self._state.at("locks", "jobs", "purge.lock")
        with files.section(lock, patience=patience, what="a queue"):
            purge = _decode(files.read(path) or b"", purge_id)
            if purge is None:
                return None
            try:
                files.sync_folder(self._folder)
                if purge.count is None:
                    purge = replace(purge, count=sum(1 for _ in self._meant(purge)))
                    files.replace(path, purge.encode())
                if purge.count:
                    self._forget(purge)
                    self._record(purge)
                files.remove(path)
                # Else it would come back, and purge what was added since under old numbers.
                files.sync_folder(self._folder)
            except OSError as error:
                raise files.fault(error, "purge", path) from error
            return purge.count

    def _meant(self, purge: Purge) -> Iterator[Job]:
        """Yield the jobs that are queued and meant."""
        places = [*self._jobs.queued(purge.queue), *self._jobs.waiting_for_their_time(purge.queue)]
        for place in places:
            job = self._jobs.peek(place) if place.number < purge.until else None
            if job is None or job.queue != purge.queue:
                continue
            if not self._claims.is_claimed(job.occurrence):
                yield job

    def _forget(self, purge: Purge) -> None:
        meant = self._meant(purge)
        while some := list(islice(meant, _AT_ONCE)):
            self._jobs.forget(some)

    def _record(self, purge: Purge) -> None:
        """Write the one record of a purge; again is harmless."""
        occurrence = Occurrence(Kind.JOB, "", purge.at, f"purge-{purge.id}")
        count = purge.count or 0
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
