"""Hints: when somebody has to look at which wake-up, as empty files (PROMISES W2).

    wakeups/due/2026-11-29/15/<instant>~<session>~<id>

The entry is the truth; the hint, named by instant, session and id, only says when to look, so that
waiting costs one listing of two small folders and not a walk over all that is pending.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from routines.domain.names import day_name, instant_name, parse_instant_name
from routines.domain.wakeup import is_id
from routines.store import files
from routines.store.state import State

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HOUR = re.compile(r"[01][0-9]|2[0-3]", re.ASCII)
_HOUR_LONG = timedelta(hours=1)


@dataclass(frozen=True, slots=True, order=True)
class Hint:
    """That somebody has to look at a wake-up.

    Attributes:
        look_at: When.
        folder: The folder of its session below `wakeups/`.
        id: The wake-up.
    """

    look_at: datetime
    folder: str
    id: str

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{instant_name(self.look_at)}~{self.folder}~{self.id}"

    @property
    def hour(self) -> tuple[str, str]:
        """The day and the hour that it is kept under."""
        return day_name(self.look_at), f"{self.look_at.astimezone(UTC):%H}"


def _parse_hint(name: str) -> Hint | None:
    parts = name.split("~")
    if len(parts) != 3:  # noqa: PLR2004  # instant, session, id
        return None
    look_at = parse_instant_name(parts[0])
    if look_at is None or not parts[1] or not is_id(parts[2]):
        return None
    return Hint(look_at, parts[1], parts[2])


class Hints:
    """The hints of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def path(self, hint: Hint) -> str:
        """Return the absolute path of *hint*."""
        return self._state.at("wakeups", "due", *hint.hour, hint.name)

    def make(self, hint: Hint) -> None:
        """Put *hint* on the disk; OSError if that fails."""
        files.mark(self.path(hint))

    def make_anew(self, hint: Hint) -> None:
        """Put *hint* on the disk; NotDurable if that fails."""
        try:
            self.make(hint)
        except OSError as error:
            raise files.fault(error, "write", self.path(hint)) from error

    def drop(self, hint: Hint) -> None:
        """Remove *hint* and the folders that it leaves empty. A hint too many does no harm."""
        path = self.path(hint)
        with contextlib.suppress(OSError):
            files.remove(path)
            hour = os.path.dirname(path)
            if files.remove_folder(hour):
                files.remove_folder(os.path.dirname(hour))

    def _hour_folders(self) -> Iterator[tuple[datetime, str]]:
        """Yield the folders of hints with the start of their hour, earliest first."""
        root = self._state.at("wakeups", "due")
        for day in files.names(root):
            if not _DAY.fullmatch(day):
                continue
            for hour in files.names(os.path.join(root, day)):
                start = (
                    parse_instant_name(f"{day}T{hour}-00-00Z") if _HOUR.fullmatch(hour) else None
                )
                if start is not None:
                    yield start, os.path.join(root, day, hour)

    def all(self) -> Iterator[Hint]:
        """Yield every hint, those of the earliest hour first."""
        for _, hour in self._hour_folders():
            yield from filter(None, map(_parse_hint, files.names(hour)))

    def due(self, now: datetime) -> list[Hint]:
        """Return what has to be looked at by *now*, longest waiting first.

        Folders vanish when they empty, so that what is listed is what is due, after any absence.
        """
        found: list[Hint] = []
        for start, folder in self._hour_folders():
            if start > now:
                break
            hints = (_parse_hint(name) for name in files.names(folder))
            found += [hint for hint in hints if hint is not None and hint.look_at <= now]
        return sorted(found)

    def next_due(self, after: datetime) -> datetime | None:
        """Return when there is something to look at next, strictly after *after*, or None."""
        for start, folder in self._hour_folders():
            if start + _HOUR_LONG <= after:
                continue
            hints = (_parse_hint(name) for name in files.names(folder))
            ahead = [h.look_at for h in hints if h is not None and h.look_at > after]
            if ahead:
                return min(ahead)
        return None
