"""Wake-ups: a turn that was asked for, in a session, as it is kept.

What may be asked for is in `wake_request` and `wake_timing`, what becomes of it when it falls due
in `wake_firing`. Nothing in them looks at a clock, a file or a random number; the store asks them
under its lock, so that no two callers can pass a bound together.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from routines.domain import schedule as schedules
from routines.domain.decoding import UNREADABLE
from routines.domain.names import format_instant, parse_instant
from routines.domain.zones import zone
from routines.errors import InvalidSchedule, InvalidZone

# Two thousand million ids: the store draws again if a session should ever draw one twice.
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 6
# The ids of those that a program made under a key of its own follow from session and key, so that
# asking again finds the same one; 36^13 of them leave no room for two keys to meet by chance.
KEYED_LENGTH = 13
_ID = re.compile(r"w-(?:[a-z0-9]{6}|[a-z0-9]{13})", re.ASCII)

# When a paused one is looked at: never, and still in the order of what is looked at.
NEVER = datetime(9999, 12, 31, tzinfo=UTC)


class Timing(StrEnum):
    """How the time was given: the name of the argument."""

    IN = "in"
    AT = "at"
    EVERY = "every"
    CRON = "cron"

    @property
    def recurs(self) -> bool:
        """Whether it goes on until it is cancelled."""
        return self in (Timing.EVERY, Timing.CRON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The guardrails: what one session may ask for.

    Attributes:
        ahead: The least time ahead. Closer than this an agent can wait within its turn.
        apart: The least time between two firings of a recurring one.
        pending: How many one session may have. Enough for any plan that a person would make; few
            enough that one confused session can't bury the rest.
        firings: How many firings of one session may be due on one day of the workspace's zone: a
            little more than one every ten minutes, day and night.
        prompt_bytes: The longest prompt. What is longer belongs in a file that the prompt names.
        furthest: The most time ahead: a year, with its leap day.
    """

    ahead: timedelta = timedelta(seconds=60)
    apart: timedelta = timedelta(minutes=10)
    pending: int = 20
    firings: int = 150
    prompt_bytes: int = 32 * 1024
    furthest: timedelta = timedelta(days=366)


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakeup:
    """A turn that an agent asked for, in its own session.

    Attributes:
        id: `w-` and six letters or digits, thirteen for one that a program made under its key.
        session: Whose it is.
        prompt: What the agent will be told.
        timing: How the time was given.
        asked: The words it was given in.
        schedule: The spec of a recurring one; None for a one-shot.
        tz: The zone it was read in and is shown in.
        next_at: The instant that the next firing is for; the name of its claim.
        asked_for: The first instant asked for; later than it `next_at` may be, never earlier.
        created_at: When it was set.
        created_by: `user@host`, or the key of the turn that asked.
        created_in_turn: The key of that turn, or None if a person or a program asked.
        firings: How often it has fired.
        deferred_since: When a one-shot first found its session busy, or None.
        try_at: When it is to be looked at next, if that is later than `next_at`.
        revision: 1 for what was set first, and one more with each update, pause and resume.
        key: The id that the program which made it knows it by, or None.
        fingerprint: What its first content was, to tell a repeated creation from another.
        fresh: Whether each firing gets a new conversation, instead of its session.
        changed_at: When the present revision was made, if that is not the first.
        changed_by: By whom.
        paused_at: Since when it is paused, or None.
        cancelled_at: When it was cancelled, if it was: it is kept for those who ask.
        last_at: The instant of its newest firing, or None; its claim says what became of that.
        previous_at: The instant of the firing before that, or None.
        refused_at: The instant of the newest firing that was refused, or None.
        passed: What it passed over while it was paused, as a claim has it under `missed`, until the
            next firing says so.
    """

    id: str
    session: str
    prompt: str
    timing: Timing
    asked: str
    schedule: dict[str, Any] | None
    tz: str
    next_at: datetime
    asked_for: datetime
    created_at: datetime
    created_by: str
    created_in_turn: str | None = None
    firings: int = 0
    deferred_since: datetime | None = None
    try_at: datetime | None = None
    revision: int = 1
    key: str | None = None
    fingerprint: str | None = None
    fresh: bool = False
    changed_at: datetime | None = None
    changed_by: str | None = None
    paused_at: datetime | None = None
    cancelled_at: datetime | None = None
    last_at: datetime | None = None
    previous_at: datetime | None = None
    refused_at: datetime | None = None
    passed: dict[str, Any] | None = None

    @property
    def recurs(self) -> bool:
        """Whether it goes on until it is cancelled."""
        return self.schedule is not None

    @property
    def look_at(self) -> datetime:
        """When somebody has to look at it next."""
        return NEVER if self.paused_at is not None else self.try_at or self.next_at

    @property
    def asked_by(self) -> str:
        """Who asked for it as it is now."""
        return self.changed_by or self.created_by

    def session_at(self, instant: datetime) -> str:
        """The conversation of the firing for *instant*."""
        return f"wake:{self.id}@{format_instant(instant)}" if self.fresh else self.session

    @property
    def digest(self) -> str:
        """What shows that id, session, revision, instant and text belong together."""
        parts = (self.id, self.session, str(self.revision), format_instant(self.next_at))
        whole = "\0".join((*parts, self.prompt)).encode("utf-8", "surrogatepass")
        return hashlib.sha256(whole).hexdigest()

    def with_(self, **changes: Any) -> "Wakeup":
        """Return a copy with *changes*."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file; a claim of a firing holds the same."""
        return {
            "id": self.id,
            "session": self.session,
            "revision": self.revision,
            "timing": self.timing.value,
            "asked": self.asked,
            "schedule": self.schedule,
            "tz": self.tz,
            "next_at": format_instant(self.next_at),
            "asked_for": format_instant(self.asked_for),
            "created_at": format_instant(self.created_at),
            "created_by": self.created_by,
            "created_in_turn": self.created_in_turn,
            "firings": self.firings,
            "deferred_since": _written(self.deferred_since),
            "try_at": _written(self.try_at),
            "key": self.key,
            "fingerprint": self.fingerprint,
            "fresh": self.fresh,
            "changed_at": _written(self.changed_at),
            "changed_by": self.changed_by,
            "paused_at": _written(self.paused_at),
            "cancelled_at": _written(self.cancelled_at),
            "last_at": _written(self.last_at),
            "previous_at": _written(self.previous_at),
            "refused_at": _written(self.refused_at),
            "passed": self.passed,
            "prompt": self.prompt,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Wakeup | None":
        """Return the wake-up that `to_json` wrote; None if *data* is something else.

        A text that its digest does not belong to is something else: it is never delivered.
        """
        try:
            found = cls(
                id=_text(data["id"]),
                session=_text(data["session"]),
                prompt=_text(data["prompt"]),
                timing=Timing(data["timing"]),
                asked=_text(data["asked"]),
                schedule=None if data["schedule"] is None else dict(data["schedule"]),
                tz=zone(data["tz"]).key,
                next_at=parse_instant(data["next_at"]),
                asked_for=parse_instant(data["asked_for"]),
                created_at=parse_instant(data["created_at"]),
                created_by=_text(data["created_by"]),
                created_in_turn=data["created_in_turn"],
                firings=int(data["firings"]),
                deferred_since=_read(data["deferred_since"]),
                try_at=_read(data["try_at"]),
                revision=int(data["revision"]),
                # From here on: what an older version did not write.
                key=data.get("key"),
                fingerprint=data.get("fingerprint"),
                fresh=bool(data.get("fresh")),
                changed_at=_read(data.get("changed_at")),
                changed_by=data.get("changed_by"),
                paused_at=_read(data.get("paused_at")),
                cancelled_at=_read(data.get("cancelled_at")),
                last_at=_read(data.get("last_at")),
                previous_at=_read(data.get("previous_at")),
                refused_at=_read(data.get("refused_at")),
                passed=data.get("passed"),
            )
            sound = found.digest == data["digest"] and found.timing.recurs == found.recurs
            if found.schedule is not None:
                schedules.from_spec(found.schedule)
        except (*UNREADABLE, InvalidZone, InvalidSchedule):
            return None
        return found if sound and is_id(found.id) else None


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _read(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def new_id(choose: Callable[[str], str]) -> str:
    """Return an id made of letters that *choose* picks, as `secrets.choice` does."""
    return "w-" + "".join(choose(ID_LETTERS) for _ in range(ID_LENGTH))


def keyed_id(session: str, key: str) -> str:
    """Return the id of the wake-up that a program knows by *key* in *session*."""
    digest = hashlib.sha256(f"{session}\0{key}".encode("utf-8", "surrogatepass")).digest()
    number, letters = int.from_bytes(digest, "big"), ""
    for _ in range(KEYED_LENGTH):
        number, at = divmod(number, len(ID_LETTERS))
        letters += ID_LETTERS[at]
    return f"w-{letters}"


def is_id(text: str) -> bool:
    """Return whether *text* could be the id of a wake-up."""
    return _ID.fullmatch(text) is not None
