"""Names that sort as jobs go: an index says which job is next, and nothing else.

A name is empty and its path is the order (`domain.job_place.Place`): choosing the next job lists
a few small folders, however many jobs there are. An index only ever names what is kept elsewhere: a
name too many is removed by whoever finds nothing behind it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator

from routines.domain.job_place import DEPTH, Place, is_index_folder, parse_place
from routines.domain.names import key_of
from routines.store import files
from routines.store.state import State


def queued(state: State, queue: str | None = None) -> "JobIndex":
    """Return the order of what is queued and due: of one queue, or of all."""
    return JobIndex(state, "queued") if queue is None else JobIndex(state, "queues", key_of(queue))


def waits(state: State, queue: str) -> "JobIndex":
    """Return the order of what is queued in one queue and waits for its time."""
    return JobIndex(state, "waits", key_of(queue))


class JobIndex:
    """One order of jobs.

    Args:
        state: The state folder.
        folder: Where it lies below `jobs/`.
    """

    def __init__(self, state: State, *folder: str) -> None:
        self._state = state
        self._root = state.at("jobs", *folder)
        # Folders that may be empty, and are looked at once no new name needs them.
        self._empty: set[str] = set()

    def _path(self, place: Place) -> str:
        return os.path.join(self._root, *place.parts)

    def name(self, places: Iterable[Place]) -> list[str]:
        """Name *places*; return the folders that are yet to be synced. OSError if that fails."""
        folders: dict[str, None] = {}
        for place in places:
            path = self._path(place)
            files.mark(path, sync=False, forget=self._forget)
            folders[os.path.dirname(path)] = None
        return list(folders)

    def _forget(self, folder: str) -> None:
        if not os.path.isdir(folder):
            files.doubt(folder, below=self._state.path)

    def has(self, place: Place) -> bool:
        """Return whether *place* is named."""
        return files.exists(self._path(place))

    def remove(self, place: Place, *, current: int) -> None:
        """Take a name away, and folders that it leaves empty and that no new name will need.

        Args:
            place: What.
            current: The number that the next job gets.
        """
        path = self._path(place)
        files.discard(path)
        if place.number >> 8 < current >> 8:
            self._tidy(os.path.dirname(path))
        else:
            self._empty.add(os.path.dirname(path))

    def tidy(self, *, current: int) -> bool:
        """Remove folders that emptied, but those that the next job needs.

        Returns:
            Whether none is left to be looked at.
        """
        empty, self._empty = self._empty, set()
        for folder in empty:
            name = os.path.basename(folder)
            if len(name) < len(f"{0:010d}") or int(name) < current >> 8:
                self._tidy(folder)
            else:
                self._empty.add(folder)
        return not self._empty

    def _tidy(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            while folder != self._root and files.remove_folder(folder):
                folder = os.path.dirname(folder)

    def walk(self, *, after: Place | None = None) -> Iterator[Place]:
        """Yield places in their order, those behind *after*; lists no further than it is asked."""
        beyond = None if after is None else after.parts
        yield from self._walk(self._root, (), beyond)

    def _walk(
        self, folder: str, parts: tuple[str, ...], beyond: tuple[str, ...] | None
    ) -> Iterator[Place]:
        names = files.names(folder)
        if not names and parts:
            self._empty.add(folder)
        depth = len(parts)
        for name in names:
            bound = None if beyond is None else beyond[depth]
            if bound is not None and name < bound:
                continue
            rest = beyond if name == bound else None
            if depth == DEPTH:
                place = parse_place((*parts, name)) if rest is None else None
                if place is not None:
                    yield place
            elif is_index_folder(name):
                yield from self._walk(os.path.join(folder, name), (*parts, name), rest)

    def is_empty(self) -> bool:
        """Return whether nothing is named."""
        return next(self.walk(), None) is None

    def newest_number(self) -> int:
        """Return the highest number that is named, 0 for none; lists what leads to it alone."""
        return max((self._newest(path) for path in self._priorities(self._root, 3)), default=0)

    def _priorities(self, folder: str, depth: int) -> Iterator[str]:
        if depth == 0:
            yield folder
            return
        for name in filter(is_index_folder, files.names(folder)):
            yield from self._priorities(os.path.join(folder, name), depth - 1)

    def _newest(self, folder: str) -> int:
        for high in reversed(files.names(folder)):
            for low in reversed(files.names(os.path.join(folder, high))):
                for name in reversed(files.names(os.path.join(folder, high, low))):
                    if name[:12].isdigit():
                        return int(name[:12])
        return 0
