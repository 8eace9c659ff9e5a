"""Many jobs at once: one file is the decision, and is then spread.

Until its name is there nothing was added; from then on everything was, and whoever looks at the
queue next spreads what its maker could not. The lock on the file says that somebody does. While it
is there its ids are taken as much as those that are spread.
"""

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from routines.domain.job import Job
from routines.domain.names import key_of
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.state import State

log = logging.getLogger("routines")

_ENDING = ".jsonl"
# So many jobs share their rounds of syncs.
_AT_ONCE = 500


@dataclass(slots=True)
class Batch:
    """A decided batch that this process holds.

    Attributes:
        path: Its file, absolute.
        fd: The descriptor with the lock on it.
        jobs: What is in it.
        damaged: Whether more was accepted than can be read.
    """

    path: str
    fd: int
    jobs: Sequence[Job]
    damaged: bool = False


class BatchStore:
    """The batches of one state folder.

    Args:
        state: The state folder.
        spread: Adds some of a batch's jobs; again is harmless.
    """

    def __init__(self, state: State, spread: Callable[[Sequence[Job]], None]) -> None:
        self._state = state
        self._spread = spread
        self._folder = state.at("jobs", "batches")

    def _paths(self) -> list[str]:
        names = (name for name in files.names(self._folder) if name.endswith(_ENDING))
        return [os.path.join(self._folder, name) for name in names]

    def is_empty(self) -> bool:
        """Return whether nothing is left to be spread."""
        return not self._paths()

    def jobs(self) -> Iterator[Job]:
        """Yield what is in batches."""
        for path in self._paths():
            yield from _jobs(files.read(path))

    def newest_number(self) -> int:
        """Return the highest number in a batch, 0 for none."""
        return max((job.number for job in self.jobs()), default=0)

    def digests(self) -> dict[str, str]:
        """Return the digests of what is in batches, by the key of its id."""
        found: dict[str, str] = {}
        for path in self._paths():
            found |= _digests(files.read(path) or b"")
        return found

    def find(self, key: str) -> Job | None:
        """Return the job of that key, if it is in a batch."""
        return next((job for job in self.jobs() if key_of(job.id) == key), None)

    def decide(self, jobs: Sequence[Job]) -> Batch:
        """Accept *jobs*, all at once; under the lock of adding. OSError if none was."""
        name = f"{jobs[0].number:012d}-{secrets.token_hex(4)}{_ENDING}"
        path = os.path.join(self._folder, name)
        files.make_folder(self._folder)
        digests = {key_of(job.id): job.digest for job in jobs}
        lines = [{"digests": digests}, *(job.to_json() for job in jobs)]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        draft = files.draft_name(path)
        fd = files.open_new(draft)
        published = False
        try:
            # Held before anybody can see it: what could not be synced is taken back unspread.
            locks.try_lock(fd)
            files.write_all(fd, text.encode("utf-8", "backslashreplace"))
            files.calls.fsync(fd)
            published = files.publish(draft, path)
            files.sync_folder(self._folder)
        except OSError:
            files.discard(path if published else draft)
            locks.let_go(fd)
            raise
        return Batch(path, fd, jobs)

    def spread(self, batch: Batch) -> bool:
        """Spread a decided batch and let go of it; False if that has to be tried again later.

        It was accepted all the same. One of which not all can be read is kept as `.corrupt`.
        """
        try:
            for start in range(0, len(batch.jobs), _AT_ONCE):
                self._spread(batch.jobs[start : start + _AT_ONCE])
            if batch.damaged:
                aside = files.set_aside(batch.path)
                log.error("batch-damaged", extra={"path": batch.path, "kept": aside})
            else:
                files.remove(batch.path)
            # A batch that came back after a purge would bring its jobs back.
            files.sync_folder(self._folder)
        except (OSError, StoreError) as error:
            log.warning("batch-not-spread", extra={"path": batch.path, "error": str(error)})
            return False
        finally:
            locks.let_go(batch.fd)
        return True

    def finish(self) -> bool:
        """Spread what nobody is spreading; return whether nothing is left."""
        whole = True
        for path in self._paths():
            try:
                fd = files.open_append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise files.fault(error, "open", path) from error
            if not locks.try_lock(fd):
                files.close(fd)
                whole = False
                continue
            if not files.leads_to(path, fd):
                locks.let_go(fd)
                continue
            try:
                # Its maker may have died before its sync: what is done next relies on it.
                files.sync_folder(self._folder)
            except OSError as error:
                locks.let_go(fd)
                raise files.fault(error, "sync", self._folder) from error
            whole = self.spread(_batch(path, fd)) and whole
        return whole


def _batch(path: str, fd: int) -> Batch:
    data = files.read_fd(fd)
    jobs = _jobs(data)
    # The first line names all that were accepted: one whose line can't be read is missed by it.
    damaged = not jobs or {key_of(job.id) for job in jobs} != _digests(data).keys()
    return Batch(path, fd, jobs, damaged)


def _digests(data: bytes) -> dict[str, str]:
    """Return the digests of a batch's jobs, by the key of the id, as its first line says."""
    first, _, _ = data.partition(b"\n")
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {str(key): str(one) for key, one in json.loads(first)["digests"].items()}
    return {}


def _jobs(data: bytes | None) -> list[Job]:
    found = []
    for line in files.whole_lines(data or b""):
        with contextlib.suppress(ValueError, RecursionError):
            job = Job.from_json(json.loads(line))
            if job is not None:
                found.append(job)
    return found
