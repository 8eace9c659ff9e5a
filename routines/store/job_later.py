"""Jobs that wait for their time: `jobs/later/<day>/<minute>/`, empty names as wake-ups have hints.

Nothing due means nothing listed but the folders of minutes. What is due is put in order and its
name here goes; a crash between leaves both, and the next look does it again.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from routines.domain.job import Job
from routines.domain.job_place import HIGHEST_PRIORITY, Place, parse_place
from routines.domain.names import day_name, instant_name, parse_instant_name
from routines.store import files
from routines.store.state import State

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MINUTE = re.compile(r"[0-9]{2}-[0-9]{2}", re.ASCII)
_AT = re.compile(r"([0-9T-]{19})(?:_([0-9]{6}))?Z", re.ASCII)
# So many are put in order in one look; the others at the next.
_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A name of what waits.

    Attributes:
        at: When it is due.
        place: Where it then stands.
    """

    at: datetime
    place: Place

    @classmethod
    def of(cls, job: Job) -> "Waiting | None":
        """Return the name that *job* has while it waits; None for one that waits for no time."""
        if job.not_before is None:
            return None
        return cls(job.not_before, job.place)


class LaterStore:
    """What waits for its time in one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._root = state.at("jobs", "later")

    def _folder(self, at: datetime) -> str:
        return os.path.join(self._root, day_name(at), f"{at.astimezone(UTC):%H-%M}")

    def _path(self, one: Waiting) -> str:
        down = f"{HIGHEST_PRIORITY - one.place.priority:012d}"
        return os.path.join(self._folder(one.at), f"{_exactly(one.at)}~{down}~{one.place.name}")

    def name(self, jobs: Iterable[Job]) -> list[str]:
        """Name *jobs*; return the folders that are yet to be synced. OSError if that fails."""
        folders: dict[str, None] = {}
        for one in filter(None, map(Waiting.of, jobs)):
            path = self._path(one)
            files.mark(path, sync=False, forget=self._forget)
            folders[os.path.dirname(path)] = None
        return list(folders)

    def _forget(self, folder: str) -> None:
        files.doubt(folder, below=self._root)

    def _minutes(self) -> Iterator[tuple[datetime, str]]:
        for day in filter(_DAY.fullmatch, files.names(self._root)):
            for minute in filter(_MINUTE.fullmatch, files.names(os.path.join(self._root, day))):
                start = parse_instant_name(f"{day}T{minute}-00Z")
                if start is not None:
                    yield start, os.path.join(self._root, day, minute)

    def due(self, now: datetime) -> Iterator[list[Waiting]]:
        """Yield what is due by *now*, folder by folder, as many as one look takes.

        Whoever has put them in order calls `remove`.
        """
        left = _AT_ONCE
        for start, folder in self._minutes():
            if start > now or left <= 0:
                break
            names = files.names(folder)
            due = [one for one in map(_parse, names) if one is not None and one.at <= now]
            if not names:
                self._drop(folder)
            if due:
                yield due[:left]
                left -= len(due)

    def waiting(self) -> Iterator[Waiting]:
        """Yield what waits for its time, earliest first."""
        for _, folder in self._minutes():
            yield from filter(None, map(_parse, files.names(folder)))

    def next_at(self, *, until: datetime | None = None) -> datetime | None:
        """Return when the next one is due, or None; no minute that begins after *until* is read."""
        for start, folder in self._minutes():
            if until is not None and start > until:
                break
            first = next(filter(None, map(_parse, files.names(folder))), None)
            if first is not None:
                return first.at
        return None

    def is_empty(self) -> bool:
        """Return whether nothing waits for its time."""
        return self.next_at() is None

    def newest_number(self) -> int:
        """Return the highest number of what waits, 0 for none."""
        return max((one.place.number for one in self.waiting()), default=0)

    def remove(self, names: Iterable[Waiting]) -> None:
        """Take names away, and folders that they leave empty. A name too many does no harm."""
        folders = set()
        for one in names:
            path = self._path(one)
            files.discard(path)
            folders.add(os.path.dirname(path))
        for folder in folders:
            self._drop(folder)

    def _drop(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            if files.remove_folder(folder):
                files.remove_folder(os.path.dirname(folder))


def _exactly(at: datetime) -> str:
    """Return the name of an instant. A fraction follows the second, and sorts behind it whole."""
    second = instant_name(at)
    return f"{second[:-1]}_{at.microsecond:06d}Z" if at.microsecond else second


def _instant(text: str) -> datetime | None:
    found = _AT.fullmatch(text)
    second = None if found is None else parse_instant_name(f"{found[1]}Z")
    if found is None or second is None:
        return None
    return second + timedelta(microseconds=int(found[2] or 0))


def _parse(name: str) -> Waiting | None:
    at, _, rest = name.partition("~")
    down, _, last = rest.partition("~")
    instant = _instant(at)
    number = last[:12]
    if instant is None or not (down.isdigit() and number.isdigit()):
        return None
    high = f"{int(number) >> 16:08d}"
    place = parse_place((down[:4], down[4:8], down[8:], high, f"{int(number) >> 8:010d}", last))
    return None if place is None else Waiting(instant, place)
