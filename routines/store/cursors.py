"""Where catching up may begin, and what was given up: `cursors/` and `missed/`."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.domain.names import (
    day_name,
    format_instant,
    instant_name,
    parse_instant,
    parse_instant_name,
    safe_name,
)
from routines.domain.outcome import Reason
from routines.store import files
from routines.store.state import State


class Standing(StrEnum):
    """How a routine was last seen."""

    ARMED = "armed"
    DISABLED = "disabled"
    NOT_ARMED = "not-armed"  # its file is broken
    ABSENT = "absent"  # its file is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What has to be remembered of a routine besides its claims.

    Attributes:
        routine: Its name.
        first_seen_at: It owes nothing from before.
        since: Where catching up may begin at the earliest: first seen, another schedule or zone,
            enabled again, back, resumed.
        schedule: The spec of the schedule that it was seen with, or None.
        standing: How it was last seen.
        standing_at: Since when.
        by: Who saw it so.
    """

    routine: str
    first_seen_at: datetime
    since: datetime
    schedule: dict[str, Any] | None
    standing: Standing = Standing.ARMED
    standing_at: datetime | None = None
    by: str = ""

    def with_(self, **changes: Any) -> "Cursor":
        """Return a copy with *changes*."""
        return replace(self, **changes)

    def encode(self) -> bytes:
        """Return the content of its file."""
        data = {
            "routine": self.routine,
            "first_seen_at": format_instant(self.first_seen_at),
            "since": format_instant(self.since),
            "schedule": self.schedule,
            "standing": self.standing.value,
            "standing_at": None if self.standing_at is None else format_instant(self.standing_at),
            "by": self.by,
        }
        return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A counted record of slots that were given up.

    Attributes:
        routine: Whose slots.
        first: The first of them; None if it has not been worked out yet.
        last: The last of them: what the record is filed under.
        after: They lie after this instant.
        count: How many; None while it has not been worked out, 1001 for "more than 1000".
        reason: Why.
        detail: One line.
        schedule: The spec that yields them, so that the record explains itself.
        at: When they were given up.
        by: By whom.
        path: Where it was read, below the state folder.
    """

    routine: str
    after: datetime
    last: datetime
    reason: Reason
    at: datetime
    first: datetime | None = None
    count: int | None = None
    detail: str = ""
    schedule: dict[str, Any] | None = None
    by: str = ""
    path: str = ""

    def encode(self) -> bytes:
        """Return the content of its file."""
        data = {
            "routine": self.routine,
            "after": format_instant(self.after),
            "from": None if self.first is None else format_instant(self.first),
            "to": format_instant(self.last),
            "count": self.count,
            "reason": self.reason.value,
            "detail": self.detail,
            "schedule": self.schedule,
            "at": format_instant(self.at),
            "by": self.by,
        }
        return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"


class CursorStore:
    """The cursors and counted records of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def section(self, routine: str, *, patience: float) -> contextlib.AbstractContextManager[None]:
        """Return the routine's lock as a context: under it claims are made in order.

        Raises (on entry):
            StoreBusy: Another process has it and did not let go in time.
        """
        path = self._state.at("locks", f"{safe_name(routine)}.routine.lock")
        return files.section(path, patience=patience, what=f"the routine {routine}")

    def read(self, routine: str) -> Cursor | None:
        """Return the cursor of *routine*, or None if it was never seen.

        A file that can't be read is set aside: the routine is then new, and owes nothing.
        """
        path = self._state.at("cursors", f"{safe_name(routine)}.json")
        data = files.read(path)
        if data is None:
            return None
        cursor = _decode_cursor(data)
        if cursor is None:
            files.set_aside(path)
        return cursor

    def peek(self, routine: str) -> Cursor | None:
        """Return the cursor as `read` does, changing nothing."""
        data = files.read(self._state.at("cursors", f"{safe_name(routine)}.json"))
        return None if data is None else _decode_cursor(data)

    def write(self, cursor: Cursor) -> None:
        """Keep *cursor*.

        Raises:
            NotDurable: It could not be written.
        """
        path = self._state.at("cursors", f"{safe_name(cursor.routine)}.json")
        try:
            files.in_folder(path, lambda: files.replace(path, cursor.encode()))
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def write_new(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """Keep the cursors of routines that were never seen, with two rounds of syncs in all.

        Returns:
            Those that were written; one that another process wrote first is left as it is.

        Raises:
            NotDurable: They could not be written.
        """
        folder = self._state.at("cursors")
        paths = {
            cursor.routine: os.path.join(folder, f"{safe_name(cursor.routine)}.json")
            for cursor in cursors
        }
        try:
            if cursors:
                files.make_folder(folder)
            created = files.create_many([(paths[c.routine], c.encode()) for c in cursors])
        except OSError as error:
            raise files.fault(error, "write", folder) from error
        return [cursor for cursor in cursors if paths[cursor.routine] in created]

    def all(self) -> Iterator[Cursor]:
        """Yield the cursors of all routines that were ever seen; not what can't be read."""
        folder = self._state.at("cursors")
        for name in files.names(folder):
            if name.endswith(".json"):
                data = files.read(os.path.join(folder, name))
                cursor = None if data is None else _decode_cursor(data)
                if cursor is not None:
                    yield cursor

    # Counted records ------------------------------------------------------------------------

    def _missed_path(self, missed: Missed) -> str:
        return (
            f"missed/{safe_name(missed.routine)}/{day_name(missed.last)}"
            f"/{instant_name(missed.last)}.json"
        )

    def give_up(self, missed: Missed) -> Missed:
        """Keep a counted record; one that is there already for its last slot stays.

        Raises:
            NotDurable: It could not be written; nothing was given up.
        """
        where = self._missed_path(missed)
        path = self._state.at(where)
        try:
            files.in_folder(path, lambda: files.create(path, missed.encode()))
        except OSError as error:
            raise files.fault(error, "write", path) from error
        return replace(missed, path=where)

    def is_given_up(self, routine: str, slot: datetime) -> bool:
        """Return whether a record ends with this very slot: a newer one is asked for by listing."""
        folder = self._state.at("missed", safe_name(routine), day_name(slot))
        return files.exists(os.path.join(folder, f"{instant_name(slot)}.json"))

    def fill_in(self, missed: Missed) -> None:
        """Put a record that has been counted since in the place of the uncounted one."""
        path = self._state.at(self._missed_path(missed))
        try:
            files.replace(path, missed.encode())
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def newest_missed(self, routine: str, *, until: datetime) -> Missed | None:
        """Return the newest record whose last slot is not after *until*."""
        return next(self.missed(routine, until=until), None)

    def missed(
        self, routine: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Iterator[Missed]:
        """Yield the records of *routine*, newest first; what can't be read is passed over."""
        folder = safe_name(routine)
        for day in reversed(files.names(self._state.at("missed", folder))):
            if since is not None and day < day_name(since):
                return
            for name in reversed(files.names(self._state.at("missed", folder, day))):
                last = parse_instant_name(name.removesuffix(".json"))
                if last is None or (until is not None and last > until):
                    continue
                if since is not None and last < since:
                    return
                where = f"missed/{folder}/{day}/{name}"
                record = _decode_missed(files.read(self._state.at(where)), where)
                if record is not None:
                    yield record


def _decode_cursor(data: bytes) -> Cursor | None:
    try:
        found = json.loads(data)
        at = found["standing_at"]
        return Cursor(
            routine=str(found["routine"]),
            first_seen_at=parse_instant(found["first_seen_at"]),
            since=parse_instant(found["since"]),
            schedule=found["schedule"],
            standing=Standing(found["standing"]),
            standing_at=None if at is None else parse_instant(at),
            by=str(found.get("by", "")),
        )
    except UNREADABLE:
        return None


def _decode_missed(data: bytes | None, path: str) -> Missed | None:
    if data is None:
        return None
    try:
        found = json.loads(data)
        first, count = found["from"], found["count"]
        return Missed(
            routine=str(found["routine"]),
            after=parse_instant(found["after"]),
            first=None if first is None else parse_instant(first),
            last=parse_instant(found["to"]),
            count=None if count is None else int(count),
            reason=Reason(found["reason"]),
            detail=str(found["detail"]),
            schedule=found["schedule"],
            at=parse_instant(found["at"]),
            by=str(found["by"]),
            path=path,
        )
    except UNREADABLE:
        return None
