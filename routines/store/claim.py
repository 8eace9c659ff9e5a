"""One claim: the file that its holder appends to, and the moment in which it gets its name.

Only the holder of a claim's lock appends to it. The inode never changes, so that the lock never
moves, and the first outcome line is final (PROMISES D3).
"""

import contextlib
import errno
import os
from datetime import UTC, datetime
from typing import Any

from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence, instant_of_file
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Record, encode, fold, fold_more, outcome_event
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.state import State


class Claim:
    """A claim that this process holds the lock of.

    Attributes:
        record: What its file says, kept up to date with what is appended here.
        fd: The descriptor with the lock on it; handed to a turn process, it keeps the claim.
    """

    def __init__(self, state: State, record: Record, fd: int, open_path: str) -> None:
        self._state = state
        self.record = record
        self.fd = fd
        self._path = state.at(record.path)
        self._open_path = open_path
        # Whether a sync of the file has failed: what it says then is not what the disk says.
        self._doubtful = False
        # The whole lines that `record` was folded from; empty where it came from elsewhere.
        self._folded = b""

    @property
    def occurrence(self) -> Occurrence:
        """Whose claim it is."""
        return self.record.occurrence

    @property
    def path(self) -> str:
        """The name of the claim, absolute."""
        return self._path

    @property
    def open_path(self) -> str:
        """The name it has while it is open, absolute."""
        return self._state.at(self._open_path)

    def reread(self) -> Record:
        """Read the file again, through the descriptor; what another holder wrote is then known."""
        return self._reread(None, b"")

    def _reread(self, event: dict[str, Any] | None, line: bytes) -> Record:
        """Read the file again; where it holds *line* more, that is known to say *event*."""
        data = files.read_fd(self.fd)
        known = self._folded
        if not known or not data.startswith(known):
            self.record, known = Record(self.record.occurrence, {}, path=self.record.path), b""
        if self.record.end is None:
            # Lines are only ever added: those that were read before say what they said.
            added = data[len(known) :]
            if event is not None and added == line + b"\n":
                self.record = self.record.with_line(event)
            else:
                self.record = fold_more(self.record, files.whole_lines(added))
        self._folded = data[: data.rfind(b"\n") + 1]
        return self.record

    def still_named(self) -> bool:
        """Return whether the claim's name leads to this very file."""
        return files.leads_to(self.path, self.fd)

    def append(self, event: Event, *, at: datetime, **more: Any) -> None:
        """Append one line and put it on the disk.

        Raises:
            NotDurable: It could not be written or synced. Nothing may follow from it.
        """
        self._append({"event": event.value, "at": format_instant(at), **more})

    def settle(
        self,
        outcome: Outcome,
        reason: Reason | None = None,
        detail: str = "",
        *,
        at: datetime,
        **more: Any,
    ) -> Record:
        """Write the outcome, once; return the record, which may show an earlier outcome.

        Raises:
            NotDurable: It could not be written; the claim stays open and locked.
        """
        end = self.reread().end
        if end is None:
            end = outcome_event(at=at, outcome=outcome, reason=reason, detail=detail, **more)
            self._append(end)
        elif self._doubtful:
            # Ours, from before a failed sync. Written once more, word for word: either line may
            # be the one that the disk keeps.
            self._append(end)
        self.drop_open_name()
        return self.record

    def drop_open_name(self) -> None:
        """Take the name in `open/` away: what it stood for has an outcome that is on the disk."""
        # Only a second name: whoever reconciles next does this if it fails.
        with contextlib.suppress(OSError, StoreError):
            if self.occurrence.is_job:
                # Here and not above: only jobs have a feed.
                from routines.store.job_feed import JobFeed

                JobFeed(self._state).publish(self.open_path, self.fd, self.occurrence.id)
            else:
                files.remove(self.open_path)

    def _append(self, event: dict[str, Any]) -> None:
        line = encode(event)
        try:
            if not files.leads_to(self._path, self.fd):
                self._publish_anew()
            files.append_line(self.fd, line, anew=self._doubtful)
        except OSError as error:
            self._doubtful = True
            raise files.fault(error, "append to", self.path) from error
        self._doubtful = False
        self._reread(event, line)

    def _publish_anew(self) -> None:
        """Give the record its name back, after its folder was taken away under us."""
        if os.path.lexists(self.path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        files.make_folder(os.path.dirname(self.path))
        files.make_folder(os.path.dirname(self.open_path))
        draft = files.draft_name(self.open_path)
        fd = files.open_new(draft)
        try:
            lock_own(fd)
            files.write_all(fd, files.read_fd(self.fd))
            files.calls.fsync(fd)
            # Before the link, as for every claim: one that is seen must be found in open/ too.
            files.calls.rename(draft, self.open_path)
            files.sync_folder(os.path.dirname(self.open_path))
            published = publish(self.open_path, self.path, fd)
        except OSError:
            files.discard(draft)
            locks.let_go(fd)
            raise
        if published is None:
            locks.let_go(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        locks.let_go(self.fd)
        self.fd = published
        files.sync_folder(os.path.dirname(self.path))

    def let_go(self) -> None:
        """Close the descriptor; unless it was handed on, the claim is then nobody's."""
        if self.fd >= 0:
            locks.let_go(self.fd)
            self.fd = -1

    def touch(self) -> None:
        """Show owners on other hosts that this one lives."""
        with contextlib.suppress(OSError):
            files.touch(self.fd)


class NotWhole(OSError):
    """A claim was created, and its content could not be written: it is claimed all the same."""

    def __init__(self, error: OSError, fd: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.fd = fd


def publish(open_path: str, path: str, fd: int) -> int | None:
    """Give a locked draft the name that decides; return the claim's descriptor, None if taken.

    Raises:
        NotWhole: It was decided, and could not be written (only without hard links).
    """
    try:
        files.link(open_path, path)
    except FileExistsError:
        return None
    except OSError as error:
        if error.errno not in files.NO_LINKS:
            raise
        return _create_in_place(path, fd)
    # The draft's name may have gone to another's draft before it was locked.
    return fd if files.leads_to(path, fd) else None


def _create_in_place(path: str, draft: int) -> int | None:
    """Claim where there are no hard links: exclusive creation decides, the draft is the marker.

    Dying between creation and writing leaves an empty claim. That is claimed, owner unknown, and
    never free.
    """
    try:
        fd = files.open_new(path)
    except FileExistsError:
        return None
    try:
        lock_own(fd)
        files.write_all(fd, files.read_fd(draft))
        files.calls.fsync(fd)
    except OSError as error:
        raise NotWhole(error, fd) from error
    locks.let_go(draft)
    return fd


def lock_own(fd: int) -> None:
    """Lock a file that nobody else can know yet; what has no locks is given up."""
    if not locks.try_lock(fd):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def occurrence_of(claim_path: str, data: bytes) -> Occurrence:
    """Return whose claim a file is: by its first line where that can be read, else by its name."""
    _, *owner, _day, name = claim_path.split("/")
    instant = instant_of_file(name) or datetime.min.replace(tzinfo=UTC)
    last = name.removesuffix(".jsonl").partition(".")[2]
    named = fold(files.whole_lines(data), occurrence=Occurrence(Kind.SLOT, "", instant)).claim
    if owner[0] == "wake":
        session = named.get("session")
        return Occurrence(Kind.WAKE, str(session or owner[-1]), instant, last)
    if owner[0] == "job":
        # The name may hold a hash of the id, where that is long or written in capitals.
        own = Occurrence(Kind.JOB, "", instant, str(named.get("id")).removeprefix("job:"))
        return own if own.claim_path == claim_path else Occurrence(Kind.JOB, "", instant, last)
    routine = str(named.get("routine") or owner[0])
    if last.startswith("manual-"):
        return Occurrence(Kind.MANUAL, routine, instant, last.removeprefix("manual-"))
    return Occurrence(Kind.SLOT, routine, instant)


def fold_fd(fd: int, occurrence: Occurrence, path: str) -> Record:
    """Return the record that the file behind *fd* holds."""
    return fold(files.whole_lines(files.read_fd(fd)), occurrence=occurrence, path=path)


def claim_of_fd(state: State, claim_path: str, fd: int) -> Claim:
    """Return the claim that came with a descriptor from another process."""
    occurrence = occurrence_of(claim_path, files.read_fd(fd))
    record = fold_fd(fd, occurrence, claim_path)
    # Its second name is known by what the claim says of its draft.
    draft = str(record.claim.get("draft", ""))
    return Claim(state, record, fd, occurrence.open_path(draft))
