"""What agent programs answered when they were asked for their version: `programs/<key>.json`.

Asking starts the program, which takes some of them a second; so it is done once, and again when
the file has changed. Losing all of this costs that second.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.names import format_instant, key_of, parse_instant
from routines.store import files
from routines.store.state import State

# A wrapper script stays as it is when the program behind it is brought up to date.
_GOOD_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells whether a program's file is another one than it was.

    Attributes:
        path: Where it really is, all links followed.
        size: In bytes.
        changed: Its time of change, in nanoseconds.
        inode: Its number on its file system.
    """

    path: str
    size: int
    changed: int
    inode: int

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept."""
        return {name: getattr(self, name) for name in self.__slots__}


def mark_of(program: str) -> Mark | None:
    """Return the mark of the file at *program*, None if it can't be looked at."""
    try:
        path = os.path.realpath(program)
        found = os.stat(path)
    except OSError:
        return None
    return Mark(path, found.st_size, found.st_mtime_ns, found.st_ino)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a program said.

    Attributes:
        version: Its version; None if it said none.
    """

    version: str | None


class ProgramStore:
    """The versions of programs, in one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _path(self, mark: Mark, words: Sequence[str]) -> str:
        key = key_of("\0".join([mark.path, *words]))
        return self._state.at("programs", f"{key}.json")

    def read(self, mark: Mark, words: Sequence[str], *, now: datetime) -> Answered | None:
        """Return what the program answered to the words after its name, None if it never was."""
        data = files.read(self._path(mark, words))
        try:
            found = json.loads(data or b"")
            fresh = timedelta(0) <= now - parse_instant(found["at"]) < _GOOD_FOR
            if not fresh or found["program"] != mark.to_json():
                return None
            version = found["version"]
        except UNREADABLE:
            return None
        return Answered(version) if version is None or isinstance(version, str) else None

    def remember(
        self, mark: Mark, words: Sequence[str], version: str | None, *, now: datetime
    ) -> None:
        """Keep what the program of *mark* answered to the words after it.

        Raises:
            StoreError: It could not be kept; it will be asked again.
        """
        path = self._path(mark, words)
        content = {"at": format_instant(now), "version": version, "program": mark.to_json()}
        data = json.dumps(content, indent=1).encode("utf-8", "backslashreplace") + b"\n"
        try:
            files.add_folder(os.path.dirname(path))
            files.replace(path, data, sync=False)
        except OSError as error:
            raise files.fault(error, "write", path) from error
