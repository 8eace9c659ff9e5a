"""Which session has which native session: `natives/<ab>/<key>.json`.

A program's conversation that two sessions continued would be had by two turns at once, each
behind a lease of its own. So the first session that is answered from it has it.
"""

import contextlib
import json
import os

from routines.domain.decoding import UNREADABLE
from routines.domain.names import key_of
from routines.errors import StoreBusy
from routines.store import files
from routines.store.sessions import SessionStore
from routines.store.state import State

# It is held for a read and a write; a turn whose program has just said its id waits for no more.
_PATIENCE_S = 2.0


class NativeStore:
    """The native sessions of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sessions = SessionStore(state)

    def _path(self, native: str) -> str:
        key = key_of(native)
        return self._state.at("natives", key[:2], f"{key}.json")

    def take(
        self, native: str, *, program: str, session: str, patience: float = _PATIENCE_S
    ) -> str | None:
        """Let *session* have the conversation *native* of *program*.

        Args:
            native: The conversation's own id.
            program: Whose it is.
            session: Who is to have it.
            patience: Seconds to wait for the lock.

        Returns:
            None if it has it now; else the session that has it.

        Raises:
            StoreError: It can't be told who has it.
            NotDurable: It could not be written down.
        """
        try:
            with self._looking(patience):
                return self._take(native, program, session)
        except StoreBusy:
            # Whoever holds it so long was stopped in the middle; a turn does not wait for that.
            return self._take(native, program, session)

    def _take(self, native: str, program: str, session: str) -> str | None:
        path = self._path(native)
        other = self._holder(path, native, program)
        if other is not None and other != session:
            return other
        data = json.dumps({"native": native, "program": program, "session": session}).encode()
        try:
            files.make_folder(os.path.dirname(path))
            files.replace(path, data + b"\n")
        except OSError as error:
            raise files.fault(error, "write", path) from error
        return None

    def prune(self, *, patience: float = _PATIENCE_S) -> int:
        """Remove what names conversations that their sessions no longer have; return how many.

        What a turn is looking at for longer than *patience* seconds stays until the next time.

        Raises:
            NotDurable: Something could not be removed.
        """
        count = 0
        for shard in files.names(self._state.at("natives")):
            for name in files.names(self._state.at("natives", shard)):
                path = self._state.at("natives", shard, name)
                if not name.endswith(".json") or not self._is_left(path):
                    continue
                try:
                    with self._looking(patience):
                        # Again: a session may have taken it since.
                        count += self._is_left(path) and files.remove(path)
                except StoreBusy:
                    return count
                except OSError as error:
                    raise files.fault(error, "remove", path) from error
        return count

    def _looking(self, patience: float) -> contextlib.AbstractContextManager[None]:
        """Hold the lock under which it is looked who has a conversation, and written down."""
        lock = self._state.at("locks", "natives.lock")
        return files.section(lock, patience=patience, what="who has which conversation")

    def _is_left(self, path: str) -> bool:
        """Return whether a file says of a conversation what is no longer so."""
        found = _read(path)
        if found is None:
            return False
        native, program = str(found.get("native")), str(found.get("program"))
        return self._holder(path, native, program) is None

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


def _read(path: str) -> dict[str, object] | None:
    try:
        found = json.loads(files.read(path) or b"")
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
