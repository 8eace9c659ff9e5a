"""What people and programs ask of a running scheduler, and the signs of life it gives.

`cancels/` holds intents to cancel, `switches/` what is paused, `schedulers/` who is alive and who
was. Everything here says who did it.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from routines.domain.names import (
    cased_name,
    day_name,
    format_instant,
    instant_name,
    parse_instant,
    safe_name,
)
from routines.domain.outcome import Outcome, Reason, end_of_cancel
from routines.errors import StoreError
from routines.store import files, locks
from routines.store.state import State

# Six beats a minute would be noise on a laptop's disk; at four a death is seen within a minute.
BEAT_EVERY = timedelta(seconds=15)
# What is accepted or done carries this ending, and is no pending intent any more.
_ACCEPTED = ".accepted"


def _write(path: str, data: dict[str, Any], *, sync: bool = True) -> None:
    text = json.dumps(data, ensure_ascii=False, indent=1)
    content = text.encode("utf-8", "backslashreplace") + b"\n"
    try:
        if sync:
            files.in_folder(path, lambda: files.replace(path, content))
        else:
            files.add_folder(os.path.dirname(path))
            files.replace(path, content, sync=False)
    except OSError as error:
        raise files.fault(error, "write", path) from error


def _read(path: str) -> dict[str, Any] | None:
    data = files.read(path)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A recorded intent to cancel one occurrence.

    Attributes:
        ref: The occurrence.
        id: The intent's own.
        by: `user@host`, or the turn that asked.
        person: Whether a person asked, not a turn.
        at: When.
        reason: In words, may be empty.
        newer: The newer slot that is to take its place, or None.
        intent: What the program that asked calls it, or None.
        lane: Whether the job's whole lane is failed: it then ends so, and not as cancelled.
    """

    ref: str
    id: str
    by: str
    person: bool
    at: datetime
    reason: str = ""
    newer: str | None = None
    intent: str | None = None
    lane: bool = False

    @property
    def end(self) -> tuple[Outcome, Reason]:
        """How the occurrence ends by it."""
        return end_of_cancel(person=self.person, lane=self.lane)


class CancelStore:
    """The intents to cancel of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _folder(self, ref: str) -> str:
        # Ids of jobs are a program's own, and may differ in case alone.
        name = cased_name(ref) if ref.startswith("job:") else safe_name(ref)
        return self._state.at("cancels", name)

    def ask(
        self,
        ref: str,
        *,
        by: str,
        person: bool,
        at: datetime,
        reason: str = "",
        newer: str | None = None,
        intent: str | None = None,
        lane: bool = False,
    ) -> Cancel:
        """Record an intent; asking again adds another, which is harmless.

        Args:
            ref: The occurrence.
            by: `user@host`, or the turn that asks.
            person: Whether a person asks.
            at: When.
            reason: In words.
            newer: The newer slot that is to take its place, or None.
            intent: What the program that asks calls it, or None.
            lane: Whether the job's whole lane is failed.

        Raises:
            NotDurable: It could not be written; nothing was asked.
        """
        cancel = Cancel(ref, secrets.token_hex(6), by, person, at, reason, newer, intent, lane)
        path = os.path.join(self._folder(ref), f"{cancel.id}.json")
        data = {
            "ref": ref,
            "by": by,
            "person": person,
            "at": format_instant(at),
            "reason": reason,
            "newer": newer,
            "intent": intent,
            "lane": lane,
        }
        try:
            _write(path, data)
        except StoreError:
            # Where only the last sync failed it is there: told "failed", nobody sees it happen.
            files.discard(path)
            raise
        return cancel

    def pending(self, ref: str) -> Cancel | None:
        """Return an intent that has been neither accepted nor withdrawn, or None."""
        return self._first(ref, ".json")

    def accepted(self, ref: str) -> Cancel | None:
        """Return an intent that was accepted, of an occurrence that is not settled yet, or None."""
        return self._first(ref, f".json{_ACCEPTED}")

    def _first(self, ref: str, ending: str) -> Cancel | None:
        for name in files.names(self._folder(ref)):
            if not name.endswith(ending):
                continue
            found = _read(os.path.join(self._folder(ref), name))
            if found is not None:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    return Cancel(
                        ref,
                        name.removesuffix(ending),
                        str(found["by"]),
                        bool(found["person"]),
                        parse_instant(found["at"]),
                        str(found["reason"]),
                        found.get("newer"),
                        found.get("intent"),
                        bool(found.get("lane")),
                    )
        return None

    def intents(self, ref: str) -> list[str]:
        """Return what programs call their intents to cancel *ref*, accepted or not."""
        folder = self._folder(ref)
        found = (_read(os.path.join(folder, name)) for name in files.names(folder))
        return [str(one["intent"]) for one in found if one and one.get("intent") is not None]

    def accept(self, cancel: Cancel) -> bool:
        """Take an intent up, so that it can't be withdrawn any more; False if it was."""
        path = os.path.join(self._folder(cancel.ref), f"{cancel.id}.json")
        try:
            return files.move(path, path + _ACCEPTED)
        except OSError as error:
            raise files.fault(error, "rename", path) from error

    def take_up(self, ref: str) -> Cancel | None:
        """Accept a pending intent and return it, else one that was accepted before; None if none.

        Whoever accepted one may have been kept from writing what follows from it, by a full disk
        or a crash: it holds for whoever comes next.
        """
        cancel = self.pending(ref)
        return cancel if cancel is not None and self.accept(cancel) else self.accepted(ref)

    def withdraw(self, cancel: Cancel) -> bool:
        """Take an intent back; False if it was accepted before.

        Raises:
            NotDurable: It could not be taken back for good: it may still be accepted.
        """
        folder = self._folder(cancel.ref)
        try:
            if not files.remove(os.path.join(folder, f"{cancel.id}.json")):
                return False
            # Else a power cut would bring it back, and with it the cancel. A folder that is gone
            # was cleared by whoever settled the occurrence.
            with contextlib.suppress(FileNotFoundError):
                files.sync_folder(folder)
        except OSError as error:
            raise files.fault(error, "remove", folder) from error
        return True

    def clear(self, ref: str) -> None:
        """Remove what was asked of an occurrence that is settled."""
        folder = self._folder(ref)
        with contextlib.suppress(OSError):
            for name in files.names(folder):
                files.remove(os.path.join(folder, name))
            files.remove_folder(folder)

    def folders(self) -> list[str]:
        """Return the safe names of occurrences that something was asked of."""
        return files.names(self._state.at("cancels"))


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
            ended_at=None if ended is None else parse_instant(ended),
            why=str(found["why"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
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
        _write(self._live(scheduler.id, "json"), scheduler.to_json(), sync=False)

    def leave(self, scheduler: Scheduler, fd: int | None) -> None:
        """Move *scheduler* to the past; its `ended_at` and `why` say how it ended."""
        ended = scheduler.ended_at or scheduler.beat_at
        path = self._state.at(
            "schedulers", "past", day_name(ended), f"{instant_name(ended)}~{scheduler.id}.json"
        )
        _write(path, scheduler.to_json())
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
                found = _scheduler(_read(os.path.join(folder, name)))
                if found is not None:
                    yield found, locks.path_is_locked(self._live(found.id, "lock"))

    def past(self) -> Iterator[Scheduler]:
        """Yield those that have ended, newest first."""
        folder = self._state.at("schedulers", "past")
        for day in reversed(files.names(folder)):
            for name in reversed(files.names(os.path.join(folder, day))):
                found = _scheduler(_read(os.path.join(folder, day, name)))
                if found is not None:
                    yield found


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
        return _switch(_read(self._path(routine)))

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
            _switch(_read(os.path.join(folder, name)))
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
            _write(path, data)
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
        _write(path + _ENDED, {"routine": routine, "by": by, "at": format_instant(at)})
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
        found = _read(self._path(routine) + _ENDED)
        try:
            return None if found is None else Resumed(str(found["by"]), parse_instant(found["at"]))
        except (ValueError, KeyError, TypeError):
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
    except (ValueError, KeyError, TypeError):
        return None
