"""Claims: the durable fact that one process owns an occurrence, and its record for ever after.

A claim is made as a draft in `open/`, locked, written, synced, and then linked to its name under
`claims/`: that link is the decision, and the file is whole, locked and durable from the moment
that it can be seen. The name in `open/` goes when the outcome is on the disk, so that what has
none is found there and nowhere else (PROMISES D1, D2).
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.names import day_name, format_instant, safe_name
from routines.domain.occurrence import (
    Occurrence,
    instant_of_file,
    open_to_claim,
    slot_of_file,
)
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Record, encode, fold
from routines.errors import StoreBusy, StoreError
from routines.store import files, locks
from routines.store.claim import Claim, NotWhole, fold_fd, lock_own, occurrence_of, publish
from routines.store.state import State

# Two claims of one slot can't both be drafts for longer than a slow disk takes.
ABANDONED_AFTER = timedelta(minutes=1)
# A slot that is caught up with later than this counts for no day any more.
_OLDEST_TURN = timedelta(days=35)


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim that is to be made.

    Attributes:
        occurrence: Whose it will be.
        claim: What its first line says besides event, id, kind and time.
        end: The outcome line if it is settled in the same moment, else None.
        event: Another line that it is born with, or None.
    """

    occurrence: Occurrence
    claim: dict[str, Any]
    end: dict[str, Any] | None = None
    event: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """A name in `open/`.

    Attributes:
        name: The name itself.
        claim_path: The claim that it belongs to, below the state folder.
    """

    name: str
    claim_path: str

    @property
    def is_by_hand(self) -> bool:
        """Whether it is of a run by hand."""
        return self.name.rpartition("~")[2].startswith("manual-") and not self.is_job

    @property
    def is_job(self) -> bool:
        """Whether it is of a job."""
        return self.name.startswith("job~")


@dataclass(frozen=True, slots=True)
class _Made:
    draft: Draft
    claim_path: str
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
        claimed: set[int] = set()
        unsynced: list[str] = []
        folders_there: set[str] = set()
        # Worked out once: each is made from the name of its owner and its instant.
        paths = [draft.occurrence.claim_path for draft in drafts]
        days = [os.path.dirname(self._state.at(path)) for path in paths]
        opened = self._state.at("open")
        for index, draft in enumerate(drafts):
            try:
                for folder in (opened, days[index]):
                    if folder not in folders_there:
                        unsynced += files.add_folder(folder)
                        folders_there.add(folder)
                one = self._write(draft, paths[index], at=at)
                if one is not None:
                    made[index] = one
                elif self.is_claimed(draft.occurrence):
                    claimed.add(index)
                else:
                    results[index] = _busy(draft.occurrence, paths[index])
            except OSError as error:
                results[index] = files.fault(error, "write", paths[index])
            except StoreError as error:
                results[index] = error

        # Round 1: the drafts themselves, and new folders in their parents.
        _settle_failures(
            results,
            made,
            files.sync_together({index: one.fd for index, one in made.items()}, unsynced),
            self._abandon,
        )
        # Round 2: their names in open/. A claim that could be seen and not be found there would
        # stay open for ever.
        _settle_failures(
            results,
            made,
            _sync_folders(dict.fromkeys(made, opened)),
            self._abandon,
        )
        linked: dict[int, Claim] = {}
        for index, one in made.items():
            try:
                linked_claim = self._link(one)
            except NotWhole as error:
                # Claimed, and not whole: as after a sync that failed.
                torn = Claim(self._state, _blank(one), error.fd, one.open_path)
                results[index] = fault = files.fault(error, "write", torn.path)
                locks.let_go(one.fd)
                _fail_not_durable(torn, fault, at=at)
                continue
            except OSError as error:
                self._abandon(one)
                results[index] = files.fault(error, "link", one.claim_path)
                if isinstance(error, FileNotFoundError):
                    # Taken for a dead one's before it was locked: whoever did that goes on.
                    results[index] = _busy(one.draft.occurrence, one.claim_path)
                continue
            if linked_claim is not None:
                linked[index] = linked_claim
                results[index] = linked_claim
        # Round 3: the names that decide. Who answers "already" syncs them too, since the winner
        # may have died before it could.
        folders = {
            index: days[index]
            for index in [*made, *claimed]
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
                claim.drop_open_name()
        return results

    def _write(self, draft: Draft, claim_path: str, *, at: datetime) -> _Made | None:
        """Make the draft; None if its name is taken, which only kinds with their own id know."""
        occurrence = draft.occurrence
        open_path = occurrence.open_path(secrets.token_hex(4))
        path = self._state.at(open_path)
        try:
            fd = files.open_new(path)
        except FileExistsError:
            if not self._remove_if_dead(path, occurrence):
                return None
            try:
                fd = files.open_new(path)
            except FileExistsError:
                return None
        made = _Made(draft, claim_path, open_path, fd)
        try:
            lock_own(fd)
            first = {
                "event": Event.CLAIM.value,
                "at": format_instant(at),
                "id": occurrence.ref,
                "kind": occurrence.kind.value,
                "draft": open_path.rpartition("~")[2],
                **draft.claim,
            }
            lines = [line for line in (first, draft.event, draft.end) if line is not None]
            files.write_all(fd, b"".join(encode(line) + b"\n" for line in lines))
        except OSError:
            self._abandon(made)
            raise
        return made

    def _remove_if_dead(self, open_path: str, occurrence: Occurrence) -> bool:
        """Remove a draft whose maker died before its link; return whether the name is free.

        A maker that has not locked it yet gives up, or finds after its link that the claim is
        another's.
        """
        try:
            fd = files.open_append(open_path)
        except FileNotFoundError:
            return True
        try:
            if not locks.try_lock(fd) or self.is_claimed(occurrence):
                return False
            if files.leads_to(open_path, fd):
                files.remove(open_path)
            return True
        finally:
            locks.let_go(fd)

    def _link(self, one: _Made) -> Claim | None:
        path = self._state.at(one.claim_path)
        try:
            fd = publish(self._state.at(one.open_path), path, one.fd)
        except FileNotFoundError:
            # Its folder was taken away since.
            files.make_folder(os.path.dirname(path))
            fd = publish(self._state.at(one.open_path), path, one.fd)
        if fd is None:
            self._abandon(one)
            return None
        claim = Claim(self._state, _blank(one), fd, one.open_path)
        claim.reread()
        return claim

    def _abandon(self, one: _Made) -> None:
        open_path = self._state.at(one.open_path)
        with contextlib.suppress(OSError):
            # The name may have gone to another's draft in the meantime.
            if files.leads_to(open_path, one.fd):
                files.remove(open_path)
        locks.let_go(one.fd)

    def sync(self, occurrence: Occurrence) -> None:
        """Put the name of a claim that somebody else made on the disk, before relying on it (D5).

        Raises:
            NotDurable: It could not be synced.
        """
        folder = os.path.dirname(self._state.at(occurrence.claim_path))
        try:
            files.sync_folder(folder)
        except OSError as error:
            raise files.fault(error, "sync", folder) from error

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

    def open_records(self, *, routine: str | None = None) -> list[Record]:
        """Return what the open claims say, of one routine or of all.

        A draft that was never linked has no claim, and one that was settled this moment may still
        have its name: both are left out. One claim may have two names.
        """
        paths = dict.fromkeys(one.claim_path for one in self.open_entries(routine=routine))
        read = (self.read_path(path) for path in paths)
        return [record for record in read if record is not None and record.end is None]

    def any_handed_over(self) -> bool:
        """Return whether a run by hand waits for a scheduler to take it: open, and nobody's.

        Cheap enough for each look: it opens nothing but open runs by hand, and there are few.
        """
        return any(
            locks.path_is_locked(self._state.at(entry.claim_path)) is not True
            for entry in self.open_entries()
            if entry.is_by_hand
        )

    def hold(self, entry: OpenEntry, *, sync: bool = True) -> Claim | None:
        """Take the lock of an open claim and read it again.

        What it says is synced first, since whoever wrote it may have died before that: what is
        done next would otherwise stand on something that a power cut takes away.

        Args:
            entry: Which.
            sync: False for a caller who was told what it says, and so knows it on the disk.

        Returns:
            The claim; None if its owner has the lock, if it is settled (its name in `open/` then
            goes), or if the name belongs to a draft that was never linked (see `sweep`).

        Raises:
            StoreError: It can't be read or synced; nothing was done.
        """
        path = self._state.at(entry.claim_path)
        try:
            fd = files.open_append(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.fault(error, "open", path) from error
        try:
            claim = self._hold(entry, fd, sync=sync)
        except OSError as error:
            locks.let_go(fd)
            raise files.fault(error, "hold", path) from error
        if claim is None:
            locks.let_go(fd)
        return claim

    def _hold(self, entry: OpenEntry, fd: int, *, sync: bool) -> Claim | None:
        if not locks.try_lock(fd):
            return None
        record = fold_fd(fd, occurrence_of(entry.claim_path, files.read_fd(fd)), entry.claim_path)
        claim = Claim(self._state, record, fd, f"open/{entry.name}")
        if not self._is_name_of(entry, claim):
            return None
        if sync or record.end is not None:
            files.calls.fsync(fd)
            files.sync_folder(os.path.dirname(claim.path))
        if record.end is not None:
            claim.drop_open_name()
            return None
        return claim

    def _is_name_of(self, entry: OpenEntry, claim: Claim) -> bool:
        """Return whether a name in `open/` is the second name of *claim*, not a loser's draft."""
        if files.leads_to(claim.open_path, claim.fd):
            return True
        return _is_marker_of(entry, claim.record)

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
        except OSError as error:
            raise files.fault(error, "open", open_path) from error
        try:
            age = server_now.timestamp() - os.fstat(fd).st_mtime
            if age < ABANDONED_AFTER.total_seconds() or not locks.try_lock(fd):
                return False
            record = self.read_path(entry.claim_path)
            if record is not None and (
                files.leads_to(self._state.at(entry.claim_path), fd) or _is_marker_of(entry, record)
            ):
                return False
            return files.leads_to(open_path, fd) and files.remove(open_path)
        except OSError as error:
            raise files.fault(error, "remove", open_path) from error
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
        occurrence = occurrence_of(claim_path, data)
        return fold(files.whole_lines(data), occurrence=occurrence, path=claim_path)

    def is_claimed(self, occurrence: Occurrence) -> bool:
        """Return whether *occurrence* has a claim, whatever is in it."""
        return files.exists(self._state.at(occurrence.claim_path))

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
            # Names sort as their instants do: the first from behind is the newest.
            for name in reversed(files.names(os.path.join(folder, day))):
                slot = slot_of_file(name)
                if slot is None:
                    continue
                if slot <= until:
                    return slot, sorted(ahead)
                ahead.append(slot)
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

    def changed_since(self, instant: datetime) -> Iterator[Record]:
        """Yield the records that anything was appended to at or after *instant*.

        Goes by modification time, over the days that a turn could still be for; one day's turns
        are read, however many are kept.
        """
        first = day_name(instant - _OLDEST_TURN)
        for folder in self.owners():
            root = self._state.at("claims", folder)
            for day in files.names(root):
                if day < first:
                    continue
                for name in files.changed_names(os.path.join(root, day), instant.timestamp()):
                    record = self.read_path(f"claims/{folder}/{day}/{name}")
                    if instant_of_file(name) is not None and record is not None:
                        yield record


def _is_marker_of(entry: OpenEntry, record: Record) -> bool:
    """Return whether a name in `open/` belongs to a claim that is another file than it.

    Without hard links the two are two files, and the claim says which marker is its own; one that
    says nothing (its maker died before it could) must be found by any of them.
    """
    return not record.readable or entry.name.rpartition("~")[2] == record.claim.get("draft")


def _busy(occurrence: Occurrence, claim_path: str) -> StoreBusy:
    return StoreBusy(
        f"{occurrence.ref} is being claimed by another process",
        hint="nothing was changed; it is looked at again",
        path=claim_path,
    )


def _blank(one: _Made) -> Record:
    return Record(one.draft.occurrence, {}, path=one.claim_path)


def _settle_failures(
    results: "list[Claim | StoreError | None]",
    made: dict[int, _Made],
    failures: dict[int, OSError],
    abandon: Callable[[_Made], None],
) -> None:
    for index, error in failures.items():
        one = made.pop(index)
        abandon(one)
        results[index] = files.fault(error, "sync", one.claim_path)


def _fail_not_durable(claim: Claim, fault: StoreError, *, at: datetime) -> None:
    """Settle a claim whose name could not be synced: no turn follows from it."""
    try:
        claim.settle(Outcome.FAILED, Reason.NOT_DURABLE, fault.message, at=at)
    except StoreError:
        # Its lock stays with this process, so that nobody takes it for free while we live.
        return
    claim.let_go()


def _sync_folders(folders: dict[int, str]) -> dict[int, OSError]:
    """Sync each folder once; return what failed, by the index of everyone who needed it."""
    failed = files.in_parallel(
        {path: (files.sync_folder, path) for path in dict.fromkeys(folders.values())}
    )
    return {index: failed[path] for index, path in folders.items() if path in failed}
