"""Which session has which native session: `natives/<ab>/<key>.json`.

A program's conversation that two sessions continued would be had by two turns at once, each
behind a lease of its own. So the first session that is answered from it has it.
"""

import json
import os

from routines.domain.clock import Clock
from routines.domain.names import key_of
from routines.store import files, locks
from routines.store.sessions import SessionStore
from routines.store.state import State

# It is held for a read and a write.
_PATIENCE_S = 2.0
_STEP_S = 0.02


class NativeStore:
    """The native sessions of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sessions = SessionStore(state)

    def _path(self, native: str) -> str:
        key = key_of(native)
        return self._state.at("natives", key[:2], f"{key}.json")

    def take(self, native: str, *, program: str, session: str, clock: Clock) -> str | None:
        """Let *session* have the conversation *native* of *program*.

        Returns:
            None if it has it now; else the session that has it.

        Raises:
            NotDurable: It could not be written down.
        """
        path = self._path(native)
        data = json.dumps({"native": native, "program": program, "session": session}).encode()
        try:
            with_lock = self._lock(clock)
            try:
                other = self._holder(path, native, program)
                if other is None or other == session:
                    files.make_folder(os.path.dirname(path))
                    files.replace(path, data + b"\n")
                    return None
                return other
            finally:
                locks.let_go(with_lock)
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def prune(self, *, clock: Clock) -> int:
        """Remove what names conversations that their sessions no longer have; return how many.

        Raises:
            NotDurable: Something could not be removed.
        """
        count = 0
        for shard in files.names(self._state.at("natives")):
            for name in files.names(self._state.at("natives", shard)):
                if name.endswith(".json"):
                    path = self._state.at("natives", shard, name)
                    try:
                        count += self._prune_one(path, clock)
                    except OSError as error:
                        raise files.fault(error, "remove", path) from error
        return count

    def _prune_one(self, path: str, clock: Clock) -> bool:
        with_lock = self._lock(clock)
        try:
            found = _read(path)
            if found is None:
                return False
            native, program = str(found.get("native")), str(found.get("program"))
            return self._holder(path, native, program) is None and files.remove(path)
        finally:
            locks.let_go(with_lock)

    def _holder(self, path: str, native: str, program: str) -> str | None:
        found = _read(path)
        if found is None or found.get("program") != program:
            return None
        other = found.get("session")
        if not isinstance(other, str):
            return None
        ledger = self._sessions.peek(other)
        if ledger is not None and ledger.native_session == native:
            return other
        # It may be about to write it down: its turn says so by its lease.
        return other if self._sessions.is_busy(other) is not None else None

    def _lock(self, clock: Clock) -> int:
        path = self._state.at("natives", "lock")
        files.make_folder(os.path.dirname(path))
        fd = files.open_append(path, create=True)
        for _ in range(int(_PATIENCE_S / _STEP_S)):
            if locks.try_lock(fd):
                return fd
            clock.sleep(_STEP_S)
        # Whoever holds it so long has been stopped in the middle; a turn does not wait for that.
        return fd


def _read(path: str) -> dict[str, object] | None:
    try:
        found = json.loads(files.read(path) or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
