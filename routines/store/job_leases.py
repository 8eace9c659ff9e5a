"""Whether the program that works a job still lives: by the lease that it has to renew.

The lease is a file of its own, written over at each renewal: by the clock that nobody can set where
whoever asks runs on the same boot, else by the file server's, which wrote its modification time.
"""

import contextlib
import os
from datetime import UTC, datetime, timedelta

from routines.domain.clock import Clock
from routines.domain.job import LEASE, Job
from routines.domain.names import key_of
from routines.domain.record import Record
from routines.domain.recovery import Here
from routines.store import files
from routines.store.state import State


def is_worked(record: Record) -> bool:
    """Return whether a program of its own works a job, and not a turn of ours."""
    return record.is_under_way and "worker" in (record.started or {})


class JobLeases:
    """The leases of the jobs of one state folder that programs work."""

    def __init__(self, state: State, *, clock: Clock, here: Here) -> None:
        self._state = state
        self._clock = clock
        self._here = here

    def _path(self, job_id: str) -> str:
        key = key_of(job_id)
        return self._state.at("jobs", "leases", key[:2], key)

    def write(self, job: Job) -> None:
        """Begin a lease, or renew it: it lasts 120 s from now."""
        path = self._path(job.id)
        line = f"{self._clock.awake():020.3f} {self._here.boot or '-'}\n".encode()
        try:
            files.add_folder(os.path.dirname(path))
            files.overwrite(path, line)
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def is_lapsed(self, record: Record) -> bool:
        """Return whether the lease of a job that a program works has lapsed."""
        return self.age(record) >= LEASE

    def age(self, record: Record) -> timedelta:
        """Return how long ago the lease of a job was renewed.

        Raises:
            StoreError: That can't be told.
        """
        path = self._path(record.occurrence.id)
        words = (files.read(path) or b"").split()
        boot = (self._here.boot or "").encode()
        if boot and len(words) == 2 and words[1] == boot:  # noqa: PLR2004
            with contextlib.suppress(ValueError):
                # A clock that is set, here or there, takes nobody's job.
                return timedelta(seconds=max(self._clock.awake() - float(words[0]), 0.0))
        try:
            touched = datetime.fromtimestamp(self._touched(path, record), UTC)
            return max(self._server_now() - touched, timedelta(0))
        except OSError as error:
            raise files.fault(error, "read", path) from error

    def _touched(self, path: str, record: Record) -> float:
        try:
            return os.stat(path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            # Never written, or taken away since it was read: the claim's own file counts.
            return os.stat(self._state.at(record.path)).st_mtime

    def _server_now(self) -> datetime:
        probe = files.draft_name(self._state.at("open", "clock"))
        fd = files.open_new(probe)
        try:
            return datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
        finally:
            files.close(fd)
            files.discard(probe)

    def drop(self, job_id: str) -> None:
        """Forget the lease of a job that nobody works any more."""
        files.discard(self._path(job_id))
