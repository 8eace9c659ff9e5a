"""Room for a turn: a place under `concurrency`, and its `exclusive` group.

Each is a kernel lock, handed on with the turn that takes it. So both hold over all processes on
one state folder, and both are free again however the turn ends.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from routines.domain.names import safe_name
from routines.store import files, locks
from routines.store.state import State


@dataclass(slots=True)
class Room:
    """What one turn takes up besides its session.

    Attributes:
        fds: Descriptors with a lock on each; handed to a turn process, they keep the room.
    """

    fds: tuple[int, ...] = ()

    def let_go(self) -> None:
        """Close our descriptors; what was handed on keeps the room."""
        for fd in self.fds:
            locks.let_go(fd)
        self.fds = ()


class PlaceStore:
    """The places and groups of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def take(self, *, places: int | None, group: str | None) -> Room | str:
        """Return room for a turn, or why there is none.

        Args:
            places: How many turns may run at once; None for a turn that needs no place.
            group: The `exclusive` group of the turn, or None.

        Raises:
            NotDurable: The lock files could not be made.
        """
        folder = self._state.at("locks", "places")
        fds: list[int] = []
        try:
            if group is not None:
                fd = self._lock(self._group(group))
                if fd is None:
                    return f"a turn of the group {group} runs"
                fds.append(fd)
            if places is not None:
                fd = next(self._free(folder, places), None)
                if fd is None:
                    Room(tuple(fds)).let_go()
                    return f"no free place ({places} in use)"
                fds.append(fd)
        except OSError as error:
            Room(tuple(fds)).let_go()
            raise files.fault(error, "lock", folder) from error
        return Room(tuple(fds))

    def is_taken(self, group: str) -> bool:
        """Return whether a turn has *group*, taking no lock that another could meet."""
        return locks.path_is_locked(f"{self._group(group)}.lock") is True

    def _group(self, group: str) -> str:
        return os.path.join(self._state.at("locks", "groups"), safe_name(group))

    def _free(self, folder: str, places: int) -> Iterator[int]:
        for number in range(places):
            fd = self._lock(os.path.join(folder, str(number)))
            if fd is not None:
                yield fd

    def _lock(self, path: str) -> int | None:
        files.add_folder(os.path.dirname(path))
        fd = files.open_append(f"{path}.lock", create=True)
        if locks.try_lock(fd):
            return fd
        files.close(fd)
        return None
