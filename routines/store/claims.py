"""Claims: the durable fact that one process owns an occurrence, and its record for ever after.

How one is made is in `claim_making`. Its name in `open/` goes when the outcome is on the disk, so
that what has none is found there and nowhere else (PROMISES D2).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from routines.domain.names import day_name, safe_name
from routines.domain.occurrence import (
    Occurrence,
    instant_of_file,
    open_to_claim,
    slot_of_file,
)
from routines.domain.record import Record, fold
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.claim import Claim, fold_fd, occurrence_of
from routines.store.state import State

if TYPE_CHECKING:
    from routines.store.claim_making import Draft, Maker

# Two claims of one slot can't both be drafts for longer than a slow disk takes.
ABANDONED_AFTER = timedelta(minutes=1)
_DAY = timedelta(days=1)
# A slot that is caught up with later than this counts for no day any more.
_OLDEST_TURN = timedelta(days=35)


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


class ClaimStore:
    """The claims of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._maker: Maker | None = None

    # Making ---------------------------------------------------------------------------------

    def take(self, draft: "Draft", *, at: datetime) -> Claim | None:
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
        self, drafts: "Sequence[Draft]", *, at: datetime
    ) -> list["Claim | StoreError | None"]:
        """Claim many occurrences with three rounds of syncs in all; results as `take` gives.

        A failure of one is its own result and no other's.
        """
        if self._maker is None:
            # Here and not above: what only reads the claims, as `list` does, makes none.
            from routines.store.claim_making import Maker

            self._maker = Maker(self._state)
        return self._maker.take_many(drafts, at=at)

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

    def newest_at_or_before(self, routine: str, *, until: datetime) -> datetime | None:
        """Return the newest claimed slot not after *until*; None if there is none.

        Mostly it is one of that day or of the day before, and of years of others none is listed.
        """
        folder = self._state.at("claims", safe_name(routine))
        for day in (day_name(until), day_name(until - _DAY)):
            slots = map(slot_of_file, reversed(files.names(os.path.join(folder, day))))
            found = next((slot for slot in slots if slot is not None and slot <= until), None)
            if found is not None:
                return found
        return self.newest_slot(routine, until=until)[0]

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
