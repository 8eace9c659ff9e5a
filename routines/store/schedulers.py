"""The signs of life that schedulers give: who is alive and who was, in `schedulers/`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.names import day_name, format_instant, instant_name, parse_instant
from routines.errors import StoreError
from routines.store import files, locks, objects
from routines.store.state import State

# Six beats a minute would be noise on a laptop's disk; at four a death is seen within a minute.
BEAT_EVERY = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """A scheduler as it shows itself.

    Attributes:
        id: Its own, a UUID.
        owner: Its process, as `domain.record.Owner.to_json`.
        version: Of routines.
        started_at: When it started.
        beat_at: When it last gave a sign of life.
        armed: The digest of each armed routine, by name.
        kept: What goes on in its last good version, since its file is broken now: by name what a
            reader can't find in the file, as `engine.presence` writes it.
        path: Its PATH.
        programs: Agent programs that it found, with versions where known.
        sleeps: Absences of over 2 min: from and to.
        set_back: When the clock was set back under it, and by how much.
        external_clock: Whether slots are delivered to it from outside, so that it starts none.
        faults: What the store refused when it was last asked to claim a slot, by routine.
        ended_at: When it ended, or its last beat; None while it lives.
        why: How it ended.
    """

    id: str
    owner: dict[str, Any]
    version: str
    started_at: datetime
    beat_at: datetime
    armed: dict[str, str] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: str = ""
    programs: dict[str, str] = field(default_factory=dict)
    sleeps: tuple[tuple[datetime, datetime], ...] = ()
    set_back: tuple[tuple[datetime, timedelta], ...] = ()
    external_clock: bool = False
    faults: dict[str, str] = field(default_factory=dict)
    ended_at: datetime | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file."""
        return {
            "id": self.id,
            "owner": self.owner,
            "version": self.version,
            "started_at": format_instant(self.started_at),
            "beat_at": format_instant(self.beat_at),
            "ended_at": None if self.ended_at is None else format_instant(self.ended_at),
            "why": self.why,
            "armed": self.armed,
            "kept": self.kept,
            "path": self.path,
            "programs": self.programs,
            "sleeps": [[format_instant(a), format_instant(b)] for a, b in self.sleeps],
            "set_back": [[format_instant(at), by.total_seconds()] for at, by in self.set_back],
            "external_clock": self.external_clock,
            "faults": self.faults,
        }


def _scheduler(found: dict[str, Any] | None) -> Scheduler | None:
    if found is None:
        return None
    try:
        ended = found["ended_at"]
        return Scheduler(
            id=str(found["id"]),
            owner=dict(found["owner"]),
            version=str(found["version"]),
            started_at=parse_instant(found["started_at"]),
            beat_at=parse_instant(found["beat_at"]),
            armed=dict(found["armed"]),
            kept={name: dict(one) for name, one in found.get("kept", {}).items()},
            path=str(found["path"]),
            programs=dict(found["programs"]),
            sleeps=tuple((parse_instant(a), parse_instant(b)) for a, b in found["sleeps"]),
            set_back=tuple(
                (parse_instant(at), timedelta(seconds=by)) for at, by in found.get("set_back", ())
            ),
            external_clock=bool(found.get("external_clock", False)),
            faults={name: str(why) for name, why in found.get("faults", {}).items()},
            ended_at=None if ended is None else parse_instant(ended),
            why=str(found["why"]),
        )
    except UNREADABLE:
        return None


class SchedulerStore:
    """Who is alive on one state folder, and who was.

    A scheduler holds a kernel lock for its life, so that its death is known however it died; the
    heartbeat tells readers where locks can't be asked about, and when it died.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def _live(self, scheduler_id: str, ending: str) -> str:
        return self._state.at("schedulers", "live", f"{scheduler_id}.{ending}")

    def enter(self, scheduler: Scheduler) -> int:
        """Show *scheduler* as alive; return the descriptor whose lock says so."""
        path = self._live(scheduler.id, "lock")
        try:
            files.make_folder(os.path.dirname(path))
            fd = files.open_append(path, create=True)
        except OSError as error:
            raise files.fault(error, "write", path) from error
        try:
            locks.try_lock(fd)
            self.beat(scheduler)
        except (OSError, StoreError) as error:
            files.discard(path)
            locks.let_go(fd)
            if isinstance(error, OSError):
                raise files.fault(error, "lock", path) from error
            raise
        return fd

    def beat(self, scheduler: Scheduler) -> None:
        """Give a sign of life. Not synced: after a power cut nobody is alive."""
        objects.write(self._live(scheduler.id, "json"), scheduler.to_json(), sync=False)

    def leave(self, scheduler: Scheduler, fd: int | None) -> None:
        """Move *scheduler* to the past; its `ended_at` and `why` say how it ended."""
        ended = scheduler.ended_at or scheduler.beat_at
        path = self._state.at(
            "schedulers", "past", day_name(ended), f"{instant_name(ended)}~{scheduler.id}.json"
        )
        objects.write(path, scheduler.to_json())
        with contextlib.suppress(OSError):
            files.remove(self._live(scheduler.id, "json"))
            files.remove(self._live(scheduler.id, "lock"))
        if fd is not None:
            locks.let_go(fd)

    def live(self) -> Iterator[tuple[Scheduler, bool | None]]:
        """Yield who is shown as alive, and whether the lock is held (None: can't be told)."""
        folder = self._state.at("schedulers", "live")
        for name in files.names(folder):
            if name.endswith(".json"):
                found = _scheduler(objects.read(os.path.join(folder, name)))
                if found is not None:
                    yield found, locks.path_is_locked(self._live(found.id, "lock"))

    def past(self) -> Iterator[Scheduler]:
        """Yield those that have ended, newest first."""
        folder = self._state.at("schedulers", "past")
        for day in reversed(files.names(folder)):
            for name in reversed(files.names(os.path.join(folder, day))):
                found = _scheduler(objects.read(os.path.join(folder, day, name)))
                if found is not None:
                    yield found
