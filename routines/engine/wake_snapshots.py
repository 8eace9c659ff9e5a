"""What a program is told of a wake-up that it manages (PROMISES W7)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.names import format_instant
from routines.domain.outcome import Outcome
from routines.domain.record import Record
from routines.domain.wake_managing import anchor_of
from routines.domain.wakeup import Wakeup
from routines.store.wake_managing import Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One firing of a wake-up.

    Attributes:
        ref: Its id in the history.
        instant: What it is for.
        revision: The revision that it was taken with.
        session: The conversation that it goes to.
        state: `claimed`, `running`, `retrying`, `parked`, `buffered` or `settled`.
        attempts: How often it was tried.
        retry_at: When it is tried again, or None.
        outcome: How it ended, or None.
        reason: Why, or None.
        detail: The same in words.
        ended_at: When, or None.
        late: How late it started, or is now; zero if it is not.
    """

    ref: str
    instant: datetime
    revision: int
    session: str
    state: str
    attempts: int
    retry_at: datetime | None
    outcome: str | None
    reason: str | None
    detail: str
    ended_at: datetime | None
    late: timedelta

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types, instants as text, spans in seconds."""
        return _plain({name: getattr(self, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeupSnapshot:
    """A wake-up as it is at one moment.

    Attributes:
        id: `w-` and letters or digits.
        key: The id that the program gave it, or None if an agent or a person made it.
        session: Whose it is.
        revision: What a change has to name.
        state: `pending`, `deferred` (due, its conversation is busy), `paused`, `firing` (nothing
            more is to come of it, and its firing has no outcome yet), `parked` (the same, until
            `recover`), `cancelled` or `ended`.
        prompt: What is told.
        timing: `in`, `at`, `every` or `cron`.
        asked: The words of it.
        anchor: Where `every` is counted from, or None.
        tz: The zone that it is read in.
        fresh: Whether each firing gets a new conversation.
        next_at: The next instant, None if none is to come or while it is paused.
        firing: The firing that has no outcome yet, or None.
        last: The newest firing that has one, or None.
        refusal: The newest firing that the program's hook refused, or None.
        passed: The range that was passed over before the newest firing, or is to be counted in the
            next: `from`, `to`, `count`; or None.
        firings: How often it has fired.
        created_at: When it was made.
        created_by: By whom.
        created_in_turn: The key of the turn that made it, or None.
        changed_at: When its revision was made, or None for the first.
        changed_by: By whom.
        age: How old it is.
        late: How long it has been due without being taken; zero if it is not.
    """

    id: str
    key: str | None
    session: str
    revision: int
    state: str
    prompt: str
    timing: str
    asked: str
    anchor: datetime | None
    tz: str
    fresh: bool
    next_at: datetime | None
    firing: Firing | None
    last: Firing | None
    refusal: Firing | None
    passed: dict[str, Any] | None
    firings: int
    created_at: datetime
    created_by: str
    created_in_turn: str | None
    changed_at: datetime | None
    changed_by: str | None
    age: timedelta
    late: timedelta

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types, instants as text, spans in seconds."""
        found = {name: getattr(self, name) for name in self.__slots__}
        for name in ("firing", "last", "refusal"):
            found[name] = None if found[name] is None else found[name].to_json()
        return _plain(found)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    def one(value: Any) -> Any:
        if isinstance(value, datetime):
            return format_instant(value)
        return value.total_seconds() if isinstance(value, timedelta) else value

    return {name: one(value) for name, value in values.items()}


def snapshot(known: Known, *, now: datetime) -> WakeupSnapshot:
    """Return what a program is told of a wake-up at *now*."""
    wakeup, newest = known.wakeup, known.firing
    is_open = newest is not None and newest.end is None
    ended = known.previous if is_open else newest
    waits = known.pending and wakeup.paused_at is None
    late = now - wakeup.next_at if waits and wakeup.next_at <= now else timedelta(0)
    passed = wakeup.passed
    if passed is None and newest is not None:
        passed = newest.claim.get("missed")
    return WakeupSnapshot(
        id=wakeup.id,
        key=wakeup.key,
        session=wakeup.session,
        revision=wakeup.revision,
        state=_state(known),
        prompt=wakeup.prompt,
        timing=wakeup.timing.value,
        asked=wakeup.asked,
        anchor=anchor_of(wakeup),
        tz=wakeup.tz,
        fresh=wakeup.fresh,
        next_at=wakeup.next_at if waits else None,
        firing=firing(newest, now=now) if newest is not None and is_open else None,
        last=None if ended is None else firing(ended, now=now),
        refusal=None if known.refusal is None else firing(known.refusal, now=now),
        passed=passed,
        firings=wakeup.firings,
        created_at=wakeup.created_at,
        created_by=wakeup.created_by,
        created_in_turn=wakeup.created_in_turn,
        changed_at=wakeup.changed_at,
        changed_by=wakeup.changed_by,
        age=now - wakeup.created_at,
        late=late,
    )


def _state(known: Known) -> str:
    wakeup, newest = known.wakeup, known.firing
    if known.pending:
        if wakeup.paused_at is not None:
            return "paused"
        return "pending" if wakeup.deferred_since is None else "deferred"
    if newest is not None and newest.end is None:
        return "parked" if newest.written_state == "parked" else "firing"
    return "ended" if wakeup.cancelled_at is None else "cancelled"


def firing(record: Record, *, now: datetime) -> Firing:
    """Return what a program is told of a firing."""
    taken = Wakeup.from_json(record.claim.get("wakeup"))
    end = record.end or {}
    began = record.started_at or record.ended_at or now
    outcome = record.outcome
    return Firing(
        ref=record.ref,
        instant=record.occurrence.instant,
        revision=0 if taken is None else taken.revision,
        session=record.session or record.occurrence.owner,
        state=record.written_state.value,
        attempts=record.attempts,
        retry_at=record.retry_at,
        outcome=outcome.value if isinstance(outcome, Outcome) else None,
        reason=None if record.reason is None else record.reason.value,
        detail=str(end.get("detail") or ""),
        ended_at=record.ended_at,
        late=max(began - record.due_at, timedelta(0)),
    )
