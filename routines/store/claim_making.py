"""How claims are made: one, or many at once for the price of three rounds of syncs.

A claim is made as a draft in `open/`, locked, written, synced, and then linked to its name under
`claims/`: that link is the decision, and the file is whole, locked and durable from the moment
that it can be seen (PROMISES D1).
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.names import format_instant
from routines.domain.occurrence import Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Record, encode
from routines.errors import StoreBusy, StoreError
from routines.store import files, locks
from routines.store.claim import Claim, NotWhole, lock_own, publish
from routines.store.state import State


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
class _Made:
    draft: Draft
    claim_path: str
    open_path: str
    fd: int


class Maker:
    """Makes the claims of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def take_many(
        self, drafts: Sequence[Draft], *, at: datetime
    ) -> list["Claim | StoreError | None"]:
        """Claim many occurrences; results as `ClaimStore.take` gives, errors among them."""
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
                elif self._is_claimed(paths[index]):
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
            if not self._remove_if_dead(path, claim_path):
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

    def _remove_if_dead(self, open_path: str, claim_path: str) -> bool:
        """Remove a draft whose maker died before its link; return whether the name is free.

        A maker that has not locked it yet gives up, or finds after its link that the claim is
        another's.
        """
        try:
            fd = files.open_append(open_path)
        except FileNotFoundError:
            return True
        try:
            if not locks.try_lock(fd) or self._is_claimed(claim_path):
                return False
            if files.leads_to(open_path, fd):
                files.remove(open_path)
            return True
        finally:
            locks.let_go(fd)

    def _is_claimed(self, claim_path: str) -> bool:
        return files.exists(self._state.at(claim_path))

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
