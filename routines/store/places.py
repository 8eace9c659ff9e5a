"""Places under `concurrency`: one kernel lock each, handed on with the turn that takes it.

So the limit holds over all processes on one state folder, and a place is free again however its
turn ends.
"""

import os

from routines.store import files, locks
from routines.store.state import State


class PlaceStore:
    """The places of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def take(self, limit: int) -> int | None:
        """Return the descriptor of a free place among *limit*, or None if the house is full.

        Raises:
            NotDurable: The lock files could not be made.
        """
        folder = self._state.at("locks", "places")
        try:
            files.add_folder(folder)
            for number in range(limit):
                fd = files.open_append(os.path.join(folder, f"{number}.lock"), create=True)
                if locks.try_lock(fd):
                    return fd
                files.close(fd)
        except OSError as error:
            raise files.fault(error, "lock", folder) from error
        return None
