"""What a durable turn was given, kept until it has ended: `output/<place>/durable.json`.

Whoever goes on with a run after a crash or a restart asks the very agent that was asked, and asks
it the very same thing, whatever became of the routine's file meanwhile.
"""

from routines.domain.record import Record
from routines.store import files
from routines.store.state import State


class WorkStore:
    """The kept work of the durable turns of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _path(self, record: Record) -> str:
        return self._state.at("output", record.occurrence.place, "durable.json")

    def keep(self, record: Record, content: bytes) -> None:
        """Put the work of a turn on the disk, before it begins.

        Raises:
            NotDurable: It could not be written: nothing may be started.
        """
        path = self._path(record)
        try:
            files.in_folder(path, lambda: files.replace(path, content))
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def read(self, record: Record) -> bytes | None:
        """Return what was kept, or None if there is nothing."""
        return files.read(self._path(record))

    def discard(self, record: Record) -> None:
        """Forget it: the turn has ended."""
        files.discard(self._path(record))
