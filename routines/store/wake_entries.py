"""Entries: `wakeups/<session>/<id>.json`, each one wake-up, changed under its session's lock.

The order of writing keeps an entry and its hint from vanishing in silence:

- a hint is on the disk before the entry that needs it: a crash between leaves a hint without an
  entry, which the first look at it removes;
- an entry that moves has its new hint before it says so, and its old hint goes last: a crash
  between leaves one hint too many, which the first look at it removes;
- a hint is removed only under the session's lock, once the entry is seen to be gone or to wait for
  another instant whose hint is there.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta

from routines.domain.names import day_name, safe_name, same_name
from routines.domain.occurrence import Kind, Occurrence, instant_of_file
from routines.domain.wakeup import Wakeup, is_id
from routines.errors import StoreError
from routines.store import files
from routines.store.sessions import session_key
from routines.store.state import State
from routines.store.wake_hints import Hint, Hints

_ENDING = ".json"
# What a program made under a key is kept when it has ended: asked for again, it is not made anew.
_ENDED = ".json.ended"
CORRUPT = ".json.corrupt"
# Lock files stay for ever, since one that is removed can be locked by two. A fixed number of them
# serves any number of sessions: two that share one wait a few milliseconds for each other.
_LOCKS = 3  # hexadecimal digits: 4096


def session_folder(session: str) -> str:
    """Return the name of a session's folder below `wakeups/`."""
    folder = safe_name(session)
    if same_name(folder) != "due":
        return folder
    # `wakeups/due` is where the hints are.
    return f"%{ord(folder[0]):02X}{folder[1:]}"


def lock_path(state: State, session: str) -> str:
    """Return the absolute path of the lock under which a session's wake-ups are changed."""
    # Names that a file system may confuse share a folder, so they have to share a lock.
    return _lock_path(state, session_folder(session))


def _lock_path(state: State, folder: str) -> str:
    return state.at("locks", "wake", f"{session_key(same_name(folder))[:_LOCKS]}.lock")


def occurrence_of(wakeup: Wakeup, instant: datetime) -> Occurrence:
    """Return what a firing of *wakeup* for *instant* is."""
    return Occurrence(Kind.WAKE, wakeup.session, instant, wakeup.id)


class Entries:
    """The wake-ups of one state folder as files."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._hints = Hints(state)

    def path(self, folder: str, wakeup_id: str) -> str:
        """Return the absolute path of an entry."""
        return self._state.at("wakeups", folder, f"{wakeup_id}{_ENDING}")

    def locked(
        self, folder: str, patience: float = files.PATIENCE_S
    ) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a session's folder for a block; StoreBusy if it is not free in time."""
        return files.section(
            _lock_path(self._state, folder),
            patience=patience,
            what="what is pending in this conversation",
        )

    # Reading --------------------------------------------------------------------------------

    def folders(self) -> list[str]:
        """Return the folders of sessions that have any."""
        return [name for name in files.names(self._state.at("wakeups")) if name != "due"]

    def all_names(self) -> Iterator[tuple[str, str]]:
        """Yield folder and id of every entry, opening none."""
        for folder in self.folders():
            for wakeup_id in self.ids(folder):
                yield folder, wakeup_id

    def ids(self, folder: str) -> list[str]:
        """Return the ids of the entries in *folder*."""
        # Only names that a writer could have made: a leftover `w-7k3m9q.json.123.tmp` is nothing.
        names = files.names(self._state.at("wakeups", folder))
        stems = (name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING))
        return [stem for stem in stems if is_id(stem)]

    def peek(self, folder: str, wakeup_id: str) -> Wakeup | None:
        """Return an entry; None if there is none, or it can't be read. Changes nothing."""
        found = self._read(self.path(folder, wakeup_id), folder, wakeup_id)
        return None if found is None or found.cancelled_at is not None else found

    def ended(self, folder: str, wakeup_id: str) -> Wakeup | None:
        """Return what a program's wake-up was when it ended; None if none is kept."""
        path = self.path(folder, wakeup_id)
        found = self._read(f"{path.removesuffix(_ENDING)}{_ENDED}", folder, wakeup_id)
        if found is None:
            found = self._read(path, folder, wakeup_id)
            return found if found is not None and found.cancelled_at is not None else None
        return found

    def is_ended(self, folder: str, wakeup_id: str) -> bool:
        """Return whether one is kept as ended, also if it can't be read any more."""
        return os.path.exists(f"{self.path(folder, wakeup_id).removesuffix(_ENDING)}{_ENDED}")

    def all_ended(self) -> Iterator[tuple[str, str]]:
        """Yield folder and id of every one that is kept though it has ended."""
        for folder in self.folders():
            for name in files.names(self._state.at("wakeups", folder)):
                wakeup_id = name.removesuffix(_ENDED)
                if name.endswith(_ENDED) and is_id(wakeup_id):
                    yield folder, wakeup_id

    def forget_ended(self, folder: str, wakeup_id: str) -> None:
        """Remove what was kept of one that has ended; OSError if that fails."""
        path = self.path(folder, wakeup_id)
        files.remove(f"{path.removesuffix(_ENDING)}{_ENDED}")
        files.remove_folder(os.path.dirname(path))

    def _read(self, path: str, folder: str, wakeup_id: str) -> Wakeup | None:
        try:
            data = files.read(path)
        except OSError as error:
            raise files.fault(error, "read", path) from error
        return None if data is None else _decode(data, folder, wakeup_id)

    def hold(self, folder: str, wakeup_id: str) -> Wakeup | None:
        """Return an entry, under its lock; one that can't be read is set aside."""
        path = self.path(folder, wakeup_id)
        wakeup = self._read(path, folder, wakeup_id)
        if wakeup is None and os.path.exists(path):
            try:
                files.set_aside(path)
            except OSError as error:
                raise files.fault(error, "rename", path) from error
        if wakeup is not None and wakeup.cancelled_at is not None:
            # Whoever cancelled it died before it was out of the way.
            self._end(wakeup, path)
            return None
        return wakeup

    def is_pending(self, wakeup: Wakeup, session: str) -> bool:
        """Return whether *wakeup* is *session*'s, and still to come."""
        # Names that differ only in case may share a folder. And the firing of a one-shot that a
        # crash has left behind is claimed: to call it pending would promise what never comes.
        return wakeup.session == session and (wakeup.recurs or not self.has_claim(wakeup))

    def has_claim(self, wakeup: Wakeup) -> bool:
        """Return whether the instant that it waits for is claimed already."""
        return os.path.exists(self._state.at(occurrence_of(wakeup, wakeup.next_at).claim_path))

    def readable(self, session: str) -> list[Wakeup]:
        """Return what is pending in *session*, under its lock."""
        folder = session_folder(session)
        found = (self.hold(folder, wakeup_id) for wakeup_id in self.ids(folder))
        return [one for one in found if one is not None and self.is_pending(one, session)]

    def held(self, session: str, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of *session*, under its lock."""
        found = self.hold(session_folder(session), wakeup_id)
        return found if found is not None and self.is_pending(found, session) else None

    def fired(self, session: str, start: datetime, end: datetime) -> int:
        """Return how many firings of *session* were due in [*start*, *end*), by their claims.

        A firing counts on the day that it was due, also if it was late or skipped.
        """
        root = self._state.at("claims", "wake", safe_name(session))
        day, count = start, 0
        while day_name(day) <= day_name(end):
            instants = map(instant_of_file, files.names(os.path.join(root, day_name(day))))
            count += sum(1 for one in instants if one is not None and start <= one < end)
            day += timedelta(days=1)
        return count

    # Writing, under the session's lock ------------------------------------------------------

    def add(self, wakeup: Wakeup) -> bool:
        """Write a new entry and its hint; False if its id is taken."""
        folder = session_folder(wakeup.session)
        path = self.path(folder, wakeup.id)
        try:
            files.make_folder(os.path.dirname(path))
            if os.path.exists(path):
                return False
            # Session folders go when they empty: this one may have been made again by a process
            # that died before it could sync the name.
            files.sync_folder(self._state.at("wakeups"))
            self._hints.make(Hint(wakeup.look_at, folder, wakeup.id))
            return files.create(path, _encode(wakeup))
        except OSError as error:
            # `create` takes back what it could not sync: told "failed", nobody sees it fire later.
            self._hints.drop(Hint(wakeup.look_at, folder, wakeup.id))
            raise files.fault(error, "write", path) from error

    def sync(self, folder: str) -> None:
        """Sync a folder; NotDurable if that fails."""
        try:
            files.sync_folder(folder)
        except OSError as error:
            raise files.fault(error, "sync", folder) from error

    def move_on(self, wakeup: Wakeup, following: Wakeup | None) -> None:
        """Put *following* in the place of a pending wake-up; None removes it. Under its lock.

        Raises:
            NotDurable: It could not be written, or not synced. It stays pending, for the one
                instant or the other, and both have their hints.
        """
        folder = session_folder(wakeup.session)
        old = Hint(wakeup.look_at, folder, wakeup.id)
        path = self.path(folder, wakeup.id)
        if following is None:
            self._end(wakeup, path)
        else:
            new = Hint(following.look_at, folder, wakeup.id)
            try:
                self._hints.make(new)
                files.replace(path, _encode(following))
            except OSError as error:
                raise files.fault(error, "write", path) from error
            if new == old:
                return
        self._hints.drop(old)

    def cancel(self, wakeup: Wakeup, *, by: str, at: datetime) -> None:
        """Remove a pending wake-up, and keep who did it where a program may ask. Under its lock.

        Raises:
            NotDurable: It could not be written. It is still pending.
        """
        if wakeup.key is None:
            self.move_on(wakeup, None)
            return
        path = self.path(session_folder(wakeup.session), wakeup.id)
        gone = wakeup.with_(cancelled_at=at, changed_at=at, changed_by=by)
        try:
            # This decides it; where it lies is put right by whoever comes by next.
            files.replace(path, _encode(gone))
        except OSError as error:
            # As in `_remove`: told "failed", the caller must find it as it was.
            with contextlib.suppress(OSError):
                files.replace(path, _encode(wakeup), sync=False)
            raise files.fault(error, "write", path) from error
        with contextlib.suppress(StoreError):
            self._end(gone, path)
        self._hints.drop(Hint(wakeup.look_at, session_folder(wakeup.session), wakeup.id))

    def _end(self, wakeup: Wakeup, path: str) -> None:
        """Take an entry out of what is pending; a program's own is kept. Under its lock."""
        if wakeup.key is None:
            self._remove(wakeup, path)
            return
        aside = f"{path.removesuffix(_ENDING)}{_ENDED}"
        try:
            files.move(path, aside)
            files.sync_folder(os.path.dirname(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                files.move(aside, path)
            raise files.fault(error, "rename", path) from error

    def _remove(self, wakeup: Wakeup, path: str) -> None:
        try:
            files.remove(path)
            files.sync_folder(os.path.dirname(path))
        except OSError as error:
            # Told "failed", the caller must find it as it was. Its hint is still there. Not synced:
            # a disk that refused a sync will refuse the next, and there is nothing better to do.
            with contextlib.suppress(OSError):
                files.replace(path, _encode(wakeup), sync=False)
            raise files.fault(error, "remove", path) from error
        with contextlib.suppress(OSError):
            files.remove_folder(os.path.dirname(path))

    def forget_hint(self, hint: Hint) -> bool:
        """Remove *hint* unless its entry is waiting for it; an entry that is sound keeps one."""
        with self.locked(hint.folder):
            wakeup = self.hold(hint.folder, hint.id)
            if wakeup is not None:
                if wakeup.look_at == hint.look_at:
                    return False
                self._hints.make_anew(Hint(wakeup.look_at, hint.folder, hint.id))
            self._hints.drop(hint)
            return True


def _encode(wakeup: Wakeup) -> bytes:
    text = json.dumps(wakeup.to_json(), ensure_ascii=False, indent=1)
    # Half a surrogate pair has no UTF-8; its escape means the same to a reader of JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _decode(data: bytes, folder: str, wakeup_id: str) -> Wakeup | None:
    try:
        found = Wakeup.from_json(json.loads(data))
    except (ValueError, RecursionError):
        return None
    if found is None or found.id != wakeup_id:
        return None
    # A copy that was put into another session's folder is not that session's.
    return found if same_name(session_folder(found.session)) == same_name(folder) else None
