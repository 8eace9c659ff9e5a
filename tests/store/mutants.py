"""Stores that are wrong in the ways in which such stores are wrong: tests of the tests.

Each is a way to write it that looks right, was seen in programs that people use, and must turn its
own check red.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from routines.domain.names import format_instant, parse_instant
from routines.domain.record import encode
from routines.store import claims as claims_module
from routines.store import files, locks
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore, OpenEntry


@contextlib.contextmanager
def exists_then_write() -> Iterator[None]:
    """Look whether the slot is claimed, and claim it if not: two look, two claim."""

    def take(self: ClaimStore, draft: Draft, *, at: datetime) -> Claim | None:
        if self.is_claimed(draft.occurrence):
            return None
        path = self._state.at(draft.occurrence.claim_path)
        files.make_folder(os.path.dirname(path))
        first = {"event": "claim", "at": format_instant(at), "draft": os.urandom(4).hex()}
        files.replace(path, encode({**first, **draft.claim}) + b"\n")
        fd = files.open_append(path)
        locks.try_lock(fd)
        record = claims_module.fold_fd(fd, draft.occurrence, draft.occurrence.claim_path)
        return Claim(self._state, record, fd, draft.occurrence.open_path(first["draft"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimStore, "take", take)
        yield


@contextlib.contextmanager
def settle_by_replace() -> Iterator[None]:
    """Write the claim anew and put it in the old one's place: the lock stays on a file unseen."""

    def append(self: Claim, event: dict[str, Any]) -> None:
        files.replace(self.path, files.read_fd(self.fd) + encode(event) + b"\n")
        fd = files.open_append(self.path)
        locks.let_go(self.fd)
        locks.try_lock(fd)
        self.fd = fd
        self.reread()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "_append", append)
        patch.setattr(ClaimStore, "_is_name_of", lambda *given: True)
        yield


@contextlib.contextmanager
def no_sync_of_folders() -> Iterator[None]:
    """Sync what is in the file, and not the name that leads to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync_folder", lambda path: None)
        yield


@contextlib.contextmanager
def shared_draft_name() -> Iterator[None]:
    """Write to `.tmp` beside the file, all of them to the same."""

    def open_new(path: str, mode: int = 0o600) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return int(files.calls.open(path, flags, mode))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "draft_name", lambda path: f"{path}.tmp")
        patch.setattr(files, "open_new", open_new)
        yield


@contextlib.contextmanager
def life_by_number() -> Iterator[None]:
    """Ask whether there is a process of that number."""

    def hold(self: ClaimStore, entry: OpenEntry) -> Claim | None:
        fd = files.open_append(self._state.at(entry.claim_path))
        record = self.read_path(entry.claim_path)
        assert record is not None
        assert record.owner is not None
        try:
            os.kill(record.owner.pid, 0)
        except ProcessLookupError:
            return Claim(self._state, record, fd, f"open/{entry.name}")
        files.close(fd)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimStore, "hold", hold)
        yield


@contextlib.contextmanager
def pointer_to_the_newest() -> Iterator[None]:
    """Keep a file that says which slot is the newest, written after each claim."""
    real = ClaimStore.take

    def take(self: ClaimStore, draft: Draft, *, at: datetime) -> Claim | None:
        claim = real(self, draft, at=at)
        if claim is not None:
            content = json.dumps(format_instant(draft.occurrence.instant)).encode()
            files.replace(self._state.at("newest"), content)
        return claim

    def newest_slot(
        self: ClaimStore, routine: str, *, until: datetime
    ) -> tuple[datetime, list[Any]]:
        return parse_instant(json.loads(files.read(self._state.at("newest")) or b"")), []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimStore, "take", take)
        patch.setattr(ClaimStore, "newest_slot", newest_slot)
        yield
