"""What is paused, by whom and until when, and how that ended: `switches/`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.names import format_instant, parse_instant, safe_name
from routines.errors import StoreError
from routines.store import files, objects
from routines.store.state import State


@dataclass(frozen=True, slots=True)
class Switch:
    """That a routine, or everything, is paused.

    Attributes:
        routine: Which; None for everything, wake-ups included.
        by: Who did it.
        since: When.
        until: Until when, or None until it is resumed.
        reason: In words, may be empty.
    """

    routine: str | None
    by: str
    since: datetime
    until: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """How the newest pause of a routine, or of everything, ended.

    Attributes:
        by: Who ended it, or whoever found that its time was over.
        at: When.
    """

    by: str
    at: datetime


# The switch of everything; no routine's name begins with a dot.
_ALL = ".all"
# Beside it, once it is gone, how it ended: a name that no look at what is paused has to read.
_ENDED = ".ended"


class SwitchStore:
    """What is paused in one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _path(self, routine: str | None) -> str:
        name = _ALL if routine is None else safe_name(routine)
        return self._state.at("switches", f"{name}.json")

    def read(self, routine: str | None) -> Switch | None:
        """Return the switch of *routine*, or of everything if None; None if it is not paused."""
        return _switch(objects.read(self._path(routine)))

    def held(self, routine: str | None, *, now: datetime) -> Switch | None:
        """Return the switch that holds *routine* at *now*, its own or that of everything."""
        for name in (None, routine) if routine is not None else (None,):
            switch = self.read(name)
            if switch is not None and (switch.until is None or switch.until > now):
                return switch
        return None

    def all(self) -> Iterator[Switch]:
        """Yield every switch; those that can't be read are passed over."""
        switches = [self.read(None)]
        folder = self._state.at("switches")
        switches += [
            _switch(objects.read(os.path.join(folder, name)))
            for name in files.names(folder)
            if not name.endswith(_ENDED)
        ]
        yield from (switch for switch in switches if switch is not None)

    def write(self, switch: Switch) -> None:
        """Pause what *switch* names.

        Raises:
            NotDurable: It could not be written; the old one stands, if there was one.
        """
        path = self._path(switch.routine)
        before = files.read(path)
        data = {
            "routine": switch.routine,
            "by": switch.by,
            "since": format_instant(switch.since),
            "until": None if switch.until is None else format_instant(switch.until),
            "reason": switch.reason,
        }
        try:
            objects.write(path, data)
        except StoreError:
            # Where only the last sync failed it is there: told "failed", nobody sees it happen.
            _put_back(path, before)
            raise

    def end(self, routine: str | None, *, by: str, at: datetime) -> bool:
        """End the pause of *routine*, or of everything if None; False if there was none.

        Who ended it is written first: a crash between the two leaves it paused.

        Args:
            routine: Which.
            by: Who ends it.
            at: When.

        Raises:
            NotDurable: It could not be removed, or may come back after a power cut.
        """
        path = self._path(routine)
        before = files.read(path)
        if before is None:
            return False
        objects.write(path + _ENDED, {"routine": routine, "by": by, "at": format_instant(at)})
        try:
            removed = files.remove(path)
            if removed:
                files.sync_folder(os.path.dirname(path))
        except OSError as error:
            _put_back(path, before)
            raise files.fault(error, "remove", path) from error
        return removed

    def resumed(self, routine: str | None) -> Resumed | None:
        """Return how the newest pause of *routine* that has ended did; None if it is not known."""
        found = objects.read(self._path(routine) + _ENDED)
        try:
            return None if found is None else Resumed(str(found["by"]), parse_instant(found["at"]))
        except UNREADABLE:
            return None


def _put_back(path: str, content: bytes | None) -> None:
    """Make *path* what it was before a change that failed, as far as the disk allows."""
    if content is None:
        files.discard(path)
    elif files.read(path) != content:
        with contextlib.suppress(OSError):
            files.replace(path, content, sync=False)


def _switch(found: dict[str, Any] | None) -> Switch | None:
    if found is None:
        return None
    try:
        routine, until = found["routine"], found["until"]
        return Switch(
            None if routine is None else str(routine),
            str(found["by"]),
            parse_instant(found["since"]),
            None if until is None else parse_instant(until),
            str(found["reason"]),
        )
    except UNREADABLE:
        return None
