"""Claims: the durable fact that one process owns an occurrence, and its record for ever after.

A claim is made as a draft in `open/`, locked, written, synced, and then linked to its name under
`claims/`: that link is the decision, and the file is whole, locked and durable from the moment
that it can be seen. The name in `open/` goes when the outcome is on the disk, so that what has
none is found there and nowhere else (PROMISES D1 to D3).

Only the holder of a claim's lock appends to it. The inode never changes, so that the lock never
moves, and the first outcome line is final.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from routines.domain.names import day_name, format_instant, safe_name
from routines.domain.occurrence import (
    Kind,
    Occurrence,
    instant_of_file,
    open_to_claim,
    slot_of_file,
)
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Owner, Record, encode, fold, outcome_event
from routines.errors import NotDurable, StoreError
from routines.store import files, locks
from routines.store.state import State

# Two claims of one slot can't both be drafts for longer than a slow disk takes.
ABANDONED_AFTER = timedelta(minutes=1)
# What file systems without hard links answer (exFAT, some shares and FUSE mounts; EMLINK: full).
_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])


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
        self._open_path = open_path

    @property
    def occurrence(self) -> Occurrence:
        """Whose claim it is."""
        return self.record.occurrence

    @property
    def path(self) -> str:
        """The name of the claim, absolute."""
        return self._state.at(self.record.path)

    @property
    def open_path(self) -> str:
        """The name it has while it is open, absolute."""
        return self._state.at(self._open_path)

    def reread(self) -> Record:
        """Read the file again, through the descriptor; what another holder wrote is then known."""
        self.record = _fold_fd(self.fd, self.record.occurrence, self.record.path)
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
        if self.reread().end is None:
            self._append(
                outcome_event(at=at, outcome=outcome, reason=reason, detail=detail, **more)
            )
        with contextlib.suppress(OSError):
            # Only a second name: whoever reconciles next removes it if this fails.
            files.remove(self.open_path)
        return self.record

    def _append(self, event: dict[str, Any]) -> None:
        line = encode(event)
        try:
            if not self.still_named():
                self._publish_anew()
            files.append_line(self.fd, line)
        except OSError as error:
            raise files.fault(error, "append to", self.path) from error
        self.reread()

    def _publish_anew(self) -> None:
        """Give the record its name back, after its folder was taken away under us."""
        for parent in files.add_folder(os.path.dirname(self.path)):
            files.sync_folder(parent)
        if not os.path.exists(self.open_path):
            for parent in files.add_folder(os.path.dirname(self.open_path)):
                files.sync_folder(parent)
        draft = files.draft_name(self.open_path)
        data = files.read_fd(self.fd)
        fd = files.open_new(draft)
        try:
            _lock_own(fd)
            files.write_all(fd, data)
            files.calls.fsync(fd)
            files.link(draft, self.path)
        except FileExistsError:
            files.remove(draft)
            locks.let_go(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None
        with contextlib.suppress(OSError):
            files.calls.rename(draft, self.open_path)
        files.sync_folder(os.path.dirname(self.path))
        locks.let_go(self.fd)
        self.fd = fd

    def let_go(self) -> None:
        """Close the descriptor; unless it was handed on, the claim is then nobody's."""
        if self.fd >= 0:
            locks.let_go(self.fd)
            self.fd = -1

    def touch(self) -> None:
        """Show owners on other hosts that this one lives."""
        with contextlib.suppress(OSError):
            files.touch(self.fd)


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim that is to be made.

    Attributes:
        occurrence: Whose it will be.
        claim: What its first line says besides event, id, kind and time.
        end: The outcome line if it is settled in the same moment, else None.
    """

    occurrence: Occurrence
    claim: dict[str, Any]
    end: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """A name in `open/`.

    Attributes:
        name: The name itself.
        claim_path: The claim that it belongs to, below the state folder.
    """

    name: str
    claim_path: str


@dataclass(frozen=True, slots=True)
class _Made:
    draft: Draft
    open_path: str
    fd: int


class ClaimStore:
    """The claims of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    # Making ---------------------------------------------------------------------------------

    def take(self, draft: Draft, *, at: datetime) -> Claim | None:
        """Claim an occurrence: whole, locked and durable, or not at all.

        Returns:
            The claim, or None if the occurrence has one already; that one is then on the disk.

        Raises:
            NotDurable: It could not be written, and the occurrence is still free; or it was
                linked and could not be synced, and is then settled `failed: not-durable`.
        """
        (taken,) = self.take_many([draft], at=at)
        if isinstance(taken, StoreError):
            raise taken
        return taken

    def take_many(
        self, drafts: Sequence[Draft], *, at: datetime
    ) -> list["Claim | StoreError | None"]:
        """Claim many occurrences with three rounds of syncs in all; results as `take` gives.

        A failure of one is its own result and no other's.
        """
        results: list[Claim | StoreError | None] = [None] * len(drafts)
        made: dict[int, _Made] = {}
        unsynced: list[str] = []
        for index, draft in enumerate(drafts):
            try:
                unsynced += files.add_folder(self._state.at("open"))
                unsynced += files.add_folder(
                    os.path.dirname(self._state.at(draft.occurrence.claim_path))
                )
                made[index] = self._write(draft, at=at)
            except FileExistsError:
                # The name in open/ of a kind that has its own id: it is claimed, or about to be.
                results[index] = None
            except OSError as error:
                results[index] = files.fault(error, "write", draft.occurrence.claim_path)

        # Round 1: the drafts themselves, and new folders in their parents.
        _settle_failures(
            results,
            made,
            _sync_all({index: one.fd for index, one in made.items()}, unsynced),
            self._abandon,
        )
        if not made:
            return results
        # Round 2: their names in open/. A claim that could be seen and not be found there would
        # stay open for ever.
        _settle_failures(
            results,
            made,
            _sync_folders({index: self._state.at("open") for index in made}),
            self._abandon,
        )
        linked: dict[int, Claim] = {}
        for index, one in made.items():
            try:
                linked_claim = self._link(one)
            except OSError as error:
                self._abandon(one)
                results[index] = files.fault(error, "link", one.draft.occurrence.claim_path)
                continue
            if linked_claim is not None:
                linked[index] = linked_claim
                results[index] = linked_claim
        # Round 3: the names that decide. Who answers "already" syncs them too, since the winner
        # may have died before it could.
        folders = {
            index: os.path.dirname(self._state.at(one.draft.occurrence.claim_path))
            for index, one in made.items()
            if not isinstance(results[index], StoreError)
        }
        for index, failure in _sync_folders(folders).items():
            fault = files.fault(failure, "sync", folders[index])
            results[index] = fault
            claim = linked.get(index)
            if claim is not None:
                _fail_not_durable(claim, fault, at=at)
        for index, claim in linked.items():
            if drafts[index].end is not None and results[index] is claim:
                with contextlib.suppress(OSError):
                    files.remove(claim.open_path)
        return results

    def _write(self, draft: Draft, *, at: datetime) -> _Made:
        occurrence = draft.occurrence
        open_path = occurrence.open_path(secrets.token_hex(4))
        made = _Made(draft, open_path, files.open_new(self._state.at(open_path)))
        fd = made.fd
        try:
            _lock_own(fd)
            first = {
                "event": Event.CLAIM.value,
                "at": format_instant(at),
                "id": occurrence.ref,
                "kind": occurrence.kind.value,
                "draft": open_path.rpartition("~")[2],
                **draft.claim,
            }
            lines = [first] if draft.end is None else [first, draft.end]
            files.write_all(fd, b"".join(encode(line) + b"\n" for line in lines))
        except OSError:
            self._abandon(made)
            raise
        return made

    def _link(self, one: _Made) -> Claim | None:
        occurrence = one.draft.occurrence
        try:
            files.link(self._state.at(one.open_path), self._state.at(occurrence.claim_path))
        except FileExistsError:
            self._abandon(one)
            return None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_in_place(one)
        record = _fold_fd(one.fd, occurrence, occurrence.claim_path)
        return Claim(self._state, record, one.fd, one.open_path)

    def _create_in_place(self, one: _Made) -> Claim | None:
        """Claim where there are no hard links: exclusive creation decides, the draft is the marker.

        Dying between creation and writing leaves an empty claim. That is claimed, owner unknown,
        and never free.
        """
        occurrence = one.draft.occurrence
        try:
            fd = files.open_new(self._state.at(occurrence.claim_path))
        except FileExistsError:
            self._abandon(one)
            return None
        _lock_own(fd)
        files.write_all(fd, files.read_fd(one.fd))
        files.calls.fsync(fd)
        locks.let_go(one.fd)
        record = _fold_fd(fd, occurrence, occurrence.claim_path)
        return Claim(self._state, record, fd, one.open_path)

    def _abandon(self, one: _Made) -> None:
        with contextlib.suppress(OSError):
            files.remove(self._state.at(one.open_path))
        locks.let_go(one.fd)

    # What is open ---------------------------------------------------------------------------

    def open_entries(self, *, routine: str | None = None) -> list[OpenEntry]:
        """Return the names in `open/`, of one routine or of all; foreign names are nothing."""
        prefix = "" if routine is None else f"{safe_name(routine)}~"
        found = []
        for name in files.names(self._state.at("open")):
            claim_path = open_to_claim(name) if name.startswith(prefix) else None
            if claim_path is not None:
                found.append(OpenEntry(name, claim_path))
        return found

    def hold(self, entry: OpenEntry) -> Claim | None:
        """Take the lock of an open claim and read it again.

        Returns:
            The claim; None if its owner has the lock, if it is settled (its name in `open/` then
            goes), or if the name belongs to a draft that was never linked (see `sweep`).
        """
        try:
            fd = files.open_append(self._state.at(entry.claim_path))
        except FileNotFoundError:
            return None
        if not locks.try_lock(fd):
            files.close(fd)
            return None
        record = _fold_fd(fd, _occurrence_of(entry.claim_path, files.read_fd(fd)), entry.claim_path)
        claim = Claim(self._state, record, fd, f"open/{entry.name}")
        if not self._is_name_of(entry, claim):
            claim.let_go()
            return None
        if record.end is not None:
            with contextlib.suppress(OSError):
                files.remove(claim.open_path)
            claim.let_go()
            return None
        return claim

    def _is_name_of(self, entry: OpenEntry, claim: Claim) -> bool:
        """Return whether a name in `open/` is the second name of *claim*, not a loser's draft."""
        if files.leads_to(claim.open_path, claim.fd):
            return True
        # Without hard links the two are two files, and the claim says which marker is its own.
        return entry.name.rpartition("~")[2] == claim.record.claim.get("draft")

    def sweep(self, entry: OpenEntry, *, server_now: datetime) -> bool:
        """Remove a draft that was never linked, once it is a minute old and nobody's.

        Args:
            entry: The name in `open/`.
            server_now: The present by the clock that sets modification times.
        """
        open_path = self._state.at("open", entry.name)
        try:
            fd = files.open_append(open_path)
        except FileNotFoundError:
            return False
        try:
            age = server_now.timestamp() - os.fstat(fd).st_mtime
            if age < ABANDONED_AFTER.total_seconds() or not locks.try_lock(fd):
                return False
            record = self.read_path(entry.claim_path)
            if files.leads_to(self._state.at(entry.claim_path), fd) or (
                record is not None and record.claim.get("draft") == entry.name.rpartition("~")[2]
            ):
                return False
            return files.remove(open_path)
        finally:
            locks.let_go(fd)

    # Reading --------------------------------------------------------------------------------

    def read(self, occurrence: Occurrence) -> Record | None:
        """Return the record of *occurrence*, or None if it was never claimed."""
        data = files.read(self._state.at(occurrence.claim_path))
        if data is None:
            return None
        return fold(files.whole_lines(data), occurrence=occurrence, path=occurrence.claim_path)

    def read_path(self, claim_path: str) -> Record | None:
        """Return the record of a claim by its path below the state folder."""
        data = files.read(self._state.at(claim_path))
        if data is None:
            return None
        occurrence = _occurrence_of(claim_path, data)
        return fold(files.whole_lines(data), occurrence=occurrence, path=claim_path)

    def is_claimed(self, occurrence: Occurrence) -> bool:
        """Return whether *occurrence* has a claim, whatever is in it."""
        return os.path.exists(self._state.at(occurrence.claim_path))

    def is_held(self, record: Record) -> bool | None:
        """Return whether somebody holds the claim's lock; asked, not taken. None: can't be told."""
        return locks.path_is_locked(self._state.at(record.path))

    def newest_slot(
        self, routine: str, *, until: datetime
    ) -> tuple[datetime | None, list[datetime]]:
        """Return the newest claimed slot not after *until*, and the claimed ones after it.

        Looks day by day backwards, since a day's folder may be empty or hold only runs by hand.
        """
        ahead: list[datetime] = []
        folder = self._state.at("claims", safe_name(routine))
        for day in reversed(files.names(folder)):
            slots = [slot_of_file(name) for name in files.names(os.path.join(folder, day))]
            past = None
            for slot in slots:
                if slot is None:
                    continue
                if slot > until:
                    ahead.append(slot)
                else:
                    past = slot if past is None or slot > past else past
            if past is not None:
                return past, sorted(ahead)
        return None, sorted(ahead)

    def owners(self) -> list[str]:
        """Return the folders below `claims/` that hold days: `daily`, `wake/<session>`, `job`."""
        found = []
        for name in files.names(self._state.at("claims")):
            if name == "wake":
                sessions = files.names(self._state.at("claims", name))
                found += [f"wake/{session}" for session in sessions]
            else:
                found.append(name)
        return found

    def walk(
        self,
        folders: Sequence[str],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[str]:
        """Yield claim paths of *folders*, newest instant first, opening none of them."""
        days: dict[str, list[str]] = {}
        for folder in folders:
            for day in files.names(self._state.at("claims", folder)):
                days.setdefault(day, []).append(folder)
        first = None if since is None else day_name(since)
        last = None if until is None else day_name(until)
        for day in sorted(days, reverse=True):
            if (first is not None and day < first) or (last is not None and day > last):
                continue
            found = []
            for folder in days[day]:
                for name in files.names(self._state.at("claims", folder, day)):
                    instant = instant_of_file(name)
                    if instant is not None:
                        found.append((instant, f"claims/{folder}/{day}/{name}"))
            for instant, path in sorted(found, reverse=True):
                if (since is None or instant >= since) and (until is None or instant <= until):
                    yield path


def _occurrence_of(claim_path: str, data: bytes) -> Occurrence:
    """Return whose claim a file is: by its first line where that can be read, else by its name."""
    _, *owner, _day, name = claim_path.split("/")
    instant = instant_of_file(name) or datetime.min.replace(tzinfo=UTC)
    last = name.removesuffix(".jsonl").partition(".")[2]
    named = fold(files.whole_lines(data), occurrence=Occurrence(Kind.SLOT, "", instant)).claim
    if owner[0] == "wake":
        session = named.get("session")
        return Occurrence(Kind.WAKE, str(session or owner[-1]), instant, last)
    if owner[0] == "job":
        return Occurrence(Kind.JOB, "", instant, last)
    routine = str(named.get("routine") or owner[0])
    if last.startswith("manual-"):
        return Occurrence(Kind.MANUAL, routine, instant, last.removeprefix("manual-"))
    return Occurrence(Kind.SLOT, routine, instant)


def _lock_own(fd: int) -> None:
    """Lock a file that nobody else can know yet; what has no locks is given up."""
    if not locks.try_lock(fd):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def _fold_fd(fd: int, occurrence: Occurrence, path: str) -> Record:
    return fold(files.whole_lines(files.read_fd(fd)), occurrence=occurrence, path=path)


def _settle_failures(
    results: "list[Claim | StoreError | None]",
    made: dict[int, _Made],
    failures: dict[int, OSError],
    abandon: Callable[[_Made], None],
) -> None:
    for index, error in failures.items():
        one = made.pop(index)
        abandon(one)
        results[index] = files.fault(error, "sync", one.draft.occurrence.claim_path)


def _fail_not_durable(claim: Claim, fault: StoreError, *, at: datetime) -> None:
    """Settle a claim whose name could not be synced: no turn follows from it."""
    try:
        claim.settle(Outcome.FAILED, Reason.NOT_DURABLE, fault.message, at=at)
    except NotDurable:
        # Its lock stays with this process, so that nobody takes it for free while we live.
        return
    claim.let_go()


def _sync_all(fds: dict[int, int], folders: Sequence[str]) -> dict[int, OSError]:
    """Sync files, and folders that all of them need; return what failed by index."""
    failures = files.in_parallel({index: (files.calls.fsync, fd) for index, fd in fds.items()})
    try:
        files.sync_folders(folders)
    except OSError as error:
        failures = dict.fromkeys(fds, error)
    return failures


def _sync_folders(folders: dict[int, str]) -> dict[int, OSError]:
    """Sync each folder once; return what failed, by the index of everyone who needed it."""
    failed = files.in_parallel({path: (files.sync_folder, path) for path in set(folders.values())})
    return {index: failed[path] for index, path in folders.items() if path in failed}


def claim_of_fd(state: State, claim_path: str, fd: int) -> Claim:
    """Return the claim that came with a descriptor from another process."""
    occurrence = _occurrence_of(claim_path, files.read_fd(fd))
    record = _fold_fd(fd, occurrence, claim_path)
    # Its second name is known by what the claim says of its draft.
    draft = str(record.claim.get("draft", ""))
    return Claim(state, record, fd, occurrence.open_path(draft))


def describe_owner(owner: Owner | None) -> str:
    """Return an owner for a person: `ana@studio (pid 4121)`."""
    return "an unknown process" if owner is None else f"{owner.user} (pid {owner.pid})"
