"""The settled feed: jobs in the order in which they were settled, each under a number of its own.

A number is given under one short lock, to the newest plus one, and shows at once: no number ever
appears below one that a reader has seen. The entry is a second name of the claim itself (a hard
link; where there are none, what says whose claim it is). It is on the disk before the name in
`open/` goes, so that a crash anywhere leaves a job that is settled and still open, which whoever
reconciles brings here. A reader syncs what it shows: a number that a power cut takes away, and that
another job then gets, was never read by anybody.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from routines.domain.job import Job
from routines.domain.names import key_of
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.record import Record, fold
from routines.errors import StoreBusy
from routines.store import files
from routines.store.state import State

_NAME = re.compile(r"([0-9]{12})~([0-9a-f]{32})", re.ASCII)
_FOLDER = re.compile(r"[0-9]{8}|[0-9]{10}", re.ASCII)
# Whatever was settled between a crash and its repair lies behind an entry that is looked for: more
# than that a minute's work never is.
_LOOKED_BACK = 4096


@dataclass(frozen=True, slots=True)
class Settled:
    """A name in the feed.

    Attributes:
        number: Its place, counted from 1.
        key: Of the job's id.
        path: Absolute.
    """

    number: int
    key: str
    path: str


_NOTHING = Occurrence(Kind.JOB, "", datetime.min.replace(tzinfo=UTC), "")


def _filed_under(record: Record) -> datetime:
    """Return the second that the claim of an entry is filed under."""
    job = Job.from_json(record.claim.get("job"))
    if job is not None:
        return job.added_at
    # A purge is filed under the second that it was decided in.
    return (record.claimed_at or _NOTHING.instant).replace(microsecond=0)


class JobFeed:
    """The settled feed of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._root = state.at("jobs", "settled")

    def _bucket(self, number: int) -> str:
        return os.path.join(self._root, f"{number >> 16:08d}", f"{number >> 8:010d}")

    def _path(self, number: int, key: str) -> str:
        return os.path.join(self._bucket(number), f"{number:012d}~{key}")

    def publish(self, open_path: str, fd: int, job_id: str) -> None:
        """Bring a settled job into the feed, and take its name in `open/` away. Its claim is held.

        Again is harmless: a job is in the feed once.

        Raises:
            StoreBusy, OSError: It is not in the feed, or still in `open/`: to be done again.
        """
        if not os.path.exists(open_path):
            return
        key = key_of(job_id)
        entry = self._find(key) if self._may_be_here(open_path, fd) else None
        folder = self._append(open_path, key) if entry is None else os.path.dirname(entry.path)
        # Also one that was here: whoever made it may have died before its sync.
        files.sync_folder(folder)
        files.remove(open_path)

    def _may_be_here(self, open_path: str, fd: int) -> bool:
        """Return whether a crash may have come between an entry and the end of the open name."""
        found = os.fstat(fd)
        # The claim, its name in open/, and the one here. Other links are a person's own copies.
        return found.st_nlink > 2 or not os.path.samestat(os.stat(open_path), found)  # noqa: PLR2004

    def _append(self, open_path: str, key: str) -> str:
        """Give a settled job the next number; return the folder to be synced."""
        with files.section(self._state.at("locks", "jobs", "feed.lock"), what="the feed"):
            path = self._path(self.newest() + 1, key)
            files.make_folder(os.path.dirname(path))
            try:
                files.link(open_path, path)
            except OSError as error:
                if error.errno not in files.NO_LINKS:
                    raise
                # Whole or not at all, and on the disk: what it says whose it is is all there is.
                if not files.create(path, files.read(open_path) or b""):
                    raise StoreBusy(
                        "the feed is being changed by another process",
                        hint="the end is shown by whoever looks next",
                        path=path,
                    ) from None
        return os.path.dirname(path)

    def _find(self, key: str) -> Settled | None:
        for looked, entry in enumerate(self._backwards()):
            if entry.key == key or looked >= _LOOKED_BACK:
                return entry if entry.key == key else None
        return None

    def _folders(self, folder: str) -> list[str]:
        return [name for name in files.names(folder) if _FOLDER.fullmatch(name)]

    def _in(self, bucket: str) -> list[Settled]:
        found = []
        for name in files.names(bucket):
            parsed = _NAME.fullmatch(name)
            if parsed is not None:
                found.append(Settled(int(parsed[1]), parsed[2], os.path.join(bucket, name)))
        return found

    def _backwards(self) -> Iterator[Settled]:
        for high in reversed(self._folders(self._root)):
            above = os.path.join(self._root, high)
            for low in reversed(self._folders(above)):
                yield from reversed(self._in(os.path.join(above, low)))

    def newest(self) -> int:
        """Return the newest number; 0 if nothing was settled yet. Lists three small folders."""
        return next((entry.number for entry in self._backwards()), 0)

    def page(self, after: int, limit: int) -> list[Settled]:
        """Return at most *limit* entries that follow the number *after*, without a gap.

        What retention has removed is passed over; nothing else is: where a number does not show
        yet, the page ends before it.

        Raises:
            StoreError: What is shown could not be read, or not synced.
        """
        try:
            return self._page(after, limit)
        except OSError as error:
            raise files.fault(error, "sync", self._root) from error

    def _page(self, after: int, limit: int) -> list[Settled]:
        found: list[Settled] = []
        expected = after + 1
        bucket = self._bucket(expected)
        while len(found) < limit:
            if not os.path.isdir(bucket):
                following = self._next_bucket(bucket)
                if following is None or found:
                    break
                # Whole buckets are removed, the oldest first: what is left begins here.
                bucket, expected = following, 0
                continue
            names = self._in(bucket)
            if any(entry.number >= expected for entry in names):
                files.sync_folder(bucket)
            for entry in names:
                if entry.number < expected or len(found) >= limit:
                    continue
                if expected and entry.number > expected:
                    return found
                found.append(entry)
                expected = entry.number + 1
            following_path = self._bucket(expected) if expected else bucket
            if following_path == bucket:
                break
            bucket = following_path
        return found

    def record(self, entry: Settled) -> Record | None:
        """Return the record behind an entry, whole also after its claim was pruned."""
        data = files.read(entry.path)
        if data is None:
            return None
        first = fold(files.whole_lines(data), occurrence=_NOTHING)
        job_id = str(first.claim.get("id") or "").removeprefix("job:")
        at = _filed_under(first)
        occurrence = Occurrence(Kind.JOB, "", at, job_id)
        if first.end is None:
            # Without hard links the entry only says whose it is.
            data = files.read(self._state.at(occurrence.claim_path)) or data
        return fold(files.whole_lines(data), occurrence=occurrence, path=occurrence.claim_path)

    def _next_bucket(self, bucket: str) -> str | None:
        """Return the first bucket there is after *bucket*, or None."""
        for high in self._folders(self._root):
            above = os.path.join(self._root, high)
            for low in self._folders(above):
                path = os.path.join(above, low)
                if path > bucket:
                    return path
        return None

    def buckets(self) -> list[str]:
        """Return the buckets, oldest first."""
        return [
            os.path.join(self._root, high, low)
            for high in self._folders(self._root)
            for low in self._folders(os.path.join(self._root, high))
        ]

    def drop_bucket(self, bucket: str) -> int:
        """Remove a whole bucket; return how many entries went. The newest one must stay."""
        many = len(self._in(bucket))
        gone = os.path.join(os.path.dirname(bucket), f".{os.path.basename(bucket)}.gone")
        # At once for readers: a bucket that is there is whole.
        files.move(bucket, gone)
        files.remove_tree(gone)
        files.remove_folder(os.path.dirname(bucket))
        return many
