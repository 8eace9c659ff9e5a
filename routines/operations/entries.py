"""One row of the history: what `history`, `show` and `--json` say of an occurrence.

It comes from a claim, from a counted record of missed slots, or is worked out from what is due
now; a reader need not know which.
"""

import os
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from routines.domain.alerting import Weight, weight
from routines.domain.names import format_instant, parse_instant, shown_who
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason, State, Trigger
from routines.domain.record import Event, Record
from routines.domain.schedule import count_between, from_spec
from routines.errors import RoutinesError
from routines.operations.life import (
    is_left_unstarted,
    is_unwatched,
    lease_words,
    state_word,
    unstarted_words,
    waits_for_lease,
)
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import Missed
from routines.store.state import State as StateFolder

if TYPE_CHECKING:
    from routines.store.cancels import Cancel

# Beyond this a count says "more than", as the engine's own.
MOST_COUNTED = 1000
# What `files` names, in this order.
OUTPUT_FILES = ("prompt.md", "reply.md", "stdout.log", "stderr.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one occurrence; field for field the record of `history --json`.

    Attributes:
        id: The turn key without the workspace id.
        routine: Its routine, None for a wake-up of a session without one.
        slot: The planned instant; None for a run by hand.
        tz: The zone in which it is read.
        trigger: Why it runs.
        by: Who asked for it, or gave it up.
        state: A word of O4; `settled` at the end, `unknown` where its owner can't be seen.
        instant: What it is filed under, for order.
        files: Paths below the state folder by name, as far as they exist.
        cancelled_by: Who cancelled it, or None.
    """

    id: str
    routine: str | None
    instant: datetime
    state: str
    trigger: str
    slot: datetime | None = None
    tz: str | None = None
    by: str | None = None
    outcome: str | None = None
    reason: str | None = None
    detail: str = ""
    warnings: tuple[str, ...] = ()
    due_at: datetime | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    late_s: float | None = None
    session: str | None = None
    epoch: int | None = None
    turn: int | None = None
    native_session: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None
    cwd: str | None = None
    exit_code: int | None = None
    signal: str | int | None = None
    usage: dict[str, Any] | None = None
    prompt: str | None = None
    reply: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    delivered: Any = None
    attempts: int = 0
    recoveries: int = 0
    definition: str | None = None
    owner: dict[str, Any] | None = None
    run_id: str | None = None
    wakeup: dict[str, Any] | None = None
    job: dict[str, Any] | None = None
    missed: dict[str, Any] | None = None
    retry_at: datetime | None = None
    cancelled_by: str | None = None

    @property
    def usd(self) -> float | None:
        """What its turn cost, if the agent says."""
        amount = (self.usage or {}).get("usd")
        return float(amount) if isinstance(amount, int | float) else None

    @property
    def tokens(self) -> int | None:
        """How many tokens its turn took, if the agent says."""
        amount = (self.usage or {}).get("tokens")
        return int(amount) if isinstance(amount, int | float) else None

    @property
    def delivered_to(self) -> tuple[str, ...]:
        """Where its reply went, in words; what a quiet one has kept back is said in brackets."""
        return tuple(
            f"{one.get('to')} ({one['detail']})" if one.get("detail") else str(one.get("to"))
            for one in _list(self.delivered)
            if isinstance(one, dict) and one.get("ok")
        )

    @property
    def not_delivered(self) -> tuple[str, ...]:
        """Where its reply did not go and why, in words."""
        return tuple(
            f"{one.get('to')}: {one.get('detail')}"
            for one in _list(self.delivered)
            if isinstance(one, dict) and not one.get("ok")
        )

    @property
    def duration(self) -> timedelta | None:
        """How long its turn took."""
        return None if self.duration_s is None else timedelta(seconds=self.duration_s)

    @property
    def is_problem(self) -> bool:
        """Whether `history --problems` lists it (O3)."""
        if self.outcome is None:
            return self.state in (State.LOST.value, State.PARKED.value)
        if self.outcome == Outcome.SKIPPED.value:
            return self.reason != Reason.GATE.value
        return self.outcome != Outcome.COMPLETED.value or bool(self.warnings)

    @property
    def needs_a_person(self) -> bool:
        """Whether it is marked with `!`: what an alert counts, so that both say the same.

        A run by hand is marked too, though whoever ran it has seen how it ended.
        """
        if self.outcome is None:
            return self.is_problem
        reason = None if self.reason is None else Reason(self.reason)
        found = weight(Kind.SLOT, Outcome(self.outcome), reason, warned=bool(self.warnings))
        return found is Weight.PROBLEM

    @property
    def is_running(self) -> bool:
        """Whether its turn is under way."""
        return self.state == State.RUNNING.value

    def to_json(self) -> dict[str, Any]:
        """Return the record of `history --json`, keys in their fixed order."""
        return {key: _plain(getattr(self, key)) for key in JSON_KEYS}


# Closed within a major version: keys are only added.
JSON_KEYS = (
    "id", "routine", "slot", "tz", "trigger", "by", "state",
    "outcome", "reason", "detail", "warnings",
    "due_at", "claimed_at", "started_at", "ended_at", "duration_s", "late_s",
    "session", "epoch", "turn", "native_session", "agent", "agent_version", "model", "cwd",
    "exit_code", "signal", "usage", "prompt", "reply", "files", "delivered",
    "attempts", "recoveries", "definition", "owner", "run_id", "wakeup", "job", "missed",
    "retry_at",
)  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_instant(value)
    return list(value) if isinstance(value, tuple) else value


def as_it_stands(record: Record, *, state: StateFolder, claims: ClaimStore) -> Entry:
    """Return the row of a claim, and where it stands at the moment."""
    entry = from_record(record, state=state, standing=state_word(claims, record))
    if record.end is not None:
        return entry
    if is_unwatched(claims, record):
        entry = replace(entry, detail="nobody asks how it stands until a scheduler starts")
    elif waits_for_lease(claims, record):
        entry = replace(entry, detail=lease_words(record))
    elif is_left_unstarted(claims, record):
        entry = replace(entry, detail=unstarted_words(record))
    asked = cancel_words(asked_to_end(state, record))
    return replace(entry, detail="; ".join(part for part in (entry.detail, asked) if part))


def asked_to_end(state: StateFolder, record: Record) -> "Cancel | None":
    """Return a cancel that was asked for and of which the record says nothing yet, or None."""
    if record.end is not None or record.newest(Event.CANCELLING) is not None:
        return None
    # Here and not above: of most of what is listed nothing is under way.
    from routines.store.cancels import CancelStore

    cancels = CancelStore(state)
    return cancels.pending(record.ref) or cancels.accepted(record.ref)


def cancel_words(cancel: "Cancel | None") -> str:
    """Return that a cancel was asked for, by whom and why; empty if none was."""
    if cancel is None:
        return ""
    why = f": {cancel.reason}" if cancel.reason else ""
    return f"its cancel was asked for by {shown_who(cancel.by)}{why}"


def from_record(record: Record, *, state: StateFolder, standing: str) -> Entry:
    """Return the row of a claim.

    Args:
        record: The claim, read back.
        state: The folder that it lies in.
        standing: Where it stands, as `life.state_word` says.
    """
    claim, end = record.claim, record.end or {}
    started = record.newest(Event.STARTED) or {}
    run = record.newest(Event.RUN) or {}
    occurrence = record.occurrence
    return Entry(
        id=record.ref,
        routine=record.routine,
        slot=None if occurrence.kind in (Kind.MANUAL, Kind.JOB) else occurrence.instant,
        tz=_text(claim.get("tz")),
        trigger=record.trigger.value,
        by=_text(claim.get("by")),
        state=standing,
        instant=occurrence.instant,
        outcome=None if record.outcome is None else record.outcome.value,
        reason=None if record.reason is None else record.reason.value,
        detail=str(end.get("detail") or _open_detail(record)),
        warnings=tuple(str(word) for word in _list(end.get("warnings"))),
        due_at=record.due_at,
        claimed_at=record.claimed_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        duration_s=_number(end.get("duration_s")) or _duration(record),
        late_s=_first_number(started.get("late_s"), claim.get("late_s")),
        session=_text(started.get("session")) or record.session,
        epoch=started.get("epoch"),
        turn=started.get("turn"),
        native_session=_text(end.get("native_session")) or _text(started.get("native_session")),
        agent=_text(started.get("agent")) or _text(claim.get("agent")),
        agent_version=_text(started.get("agent_version")),
        model=_text(claim.get("model")),
        cwd=_text(claim.get("cwd")),
        exit_code=end.get("exit_code"),
        signal=end.get("signal"),
        usage=record.usage or ({} if isinstance(end.get("usage"), dict) else None),
        prompt=_text(claim.get("prompt")),
        reply=_text(end.get("reply")),
        files=output_files(state, occurrence.place),
        delivered=end.get("delivered"),
        attempts=record.attempts,
        recoveries=record.reruns,
        definition=_text(started.get("definition")) or _text(claim.get("definition")),
        owner=None if record.owner is None else record.owner.to_json(),
        run_id=_text(run.get("run_id")),
        wakeup=claim.get("wakeup") if isinstance(claim.get("wakeup"), dict) else None,
        job=_job(claim.get("job")),
        missed=claim.get("missed") if isinstance(claim.get("missed"), dict) else None,
        retry_at=record.retry_at,
        cancelled_by=_canceller(record),
    )


def _canceller(record: Record) -> str | None:
    """Return who cancelled it; what ended otherwise was signed by whoever settled it."""
    if record.reason not in (Reason.PERSON, Reason.TURN):
        return None
    return _text((record.end or {}).get("by"))


def _job(found: object) -> dict[str, Any] | None:
    """Return what was asked of a job, less its prompt: that is a megabyte at the most."""
    if not isinstance(found, dict):
        return None
    return {key: value for key, value in found.items() if key not in ("prompt", "digest")}


def _open_detail(record: Record) -> str:
    """Return what the newest line of an open claim says of it."""
    if record.end is not None or not record.events:
        return ""
    line = record.events[-1]
    if record.last == Event.BUFFERED.value:
        return str(line.get("detail") or "waits until the turn before it has ended")
    return str(line.get("detail") or "")


def _duration(record: Record) -> float | None:
    if record.started_at is None or record.ended_at is None:
        return None
    return max((record.ended_at - record.started_at).total_seconds(), 0.0)


def output_files(state: StateFolder, place: str) -> dict[str, str]:
    """Return the files that a turn left, by name, as paths below the state folder."""
    found = set(files.names(state.at("output", *place.split("/"))))
    return {name: f"output/{place}/{name}" for name in OUTPUT_FILES if name in found}


def from_missed(missed: Missed) -> Entry:
    """Return the row of a counted record; its count is worked out if nobody has yet."""
    first, count = counted(missed)
    return Entry(
        id=f"{missed.routine}@{format_instant(missed.last)}",
        routine=missed.routine,
        slot=missed.last,
        tz=_text((missed.schedule or {}).get("tz")),
        trigger=Trigger.SCHEDULE.value,
        by=missed.by or None,
        state=State.SETTLED.value,
        instant=missed.last,
        outcome=Outcome.MISSED.value,
        reason=missed.reason.value,
        detail=missed.detail,
        due_at=missed.last,
        ended_at=missed.at,
        missed={
            "from": None if first is None else format_instant(first),
            "to": format_instant(missed.last),
            "count": count,
        },
    )


def counted(missed: Missed) -> tuple[datetime | None, int | None]:
    """Return the first slot and the count of a record; `MOST_COUNTED + 1` means more than that."""
    if missed.count is not None:
        return missed.first, missed.count
    if missed.schedule is None:
        return missed.first, None
    try:
        schedule = from_spec(missed.schedule)
    except (RoutinesError, ValueError, KeyError, TypeError):
        return missed.first, None
    first = missed.first or schedule.next_after(missed.after)
    return first, count_between(schedule, missed.after, missed.last)


def owed_entry(
    routine: str, slot: datetime, *, tz: str, state: State, detail: str, session: str | None = None
) -> Entry:
    """Return a row that is written nowhere: what is due now and not claimed yet."""
    return Entry(
        id=f"{routine}@{format_instant(slot)}",
        routine=routine,
        slot=slot,
        tz=tz,
        trigger=Trigger.SCHEDULE.value,
        state=state.value,
        instant=slot,
        detail=detail,
        due_at=slot,
        session=session,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def _first_number(*values: object) -> float | None:
    return next((n for value in values if (n := _number(value)) is not None), None)


def missed_range(entry: Entry) -> tuple[datetime | None, datetime | None, int | None]:
    """Return from, to and count of what an entry says was given up."""
    found = entry.missed or {}
    return _instant(found.get("from")), _instant(found.get("to")), found.get("count")


def _instant(value: object) -> datetime | None:
    try:
        return parse_instant(value) if isinstance(value, str) else None
    except ValueError:
        return None


def output_path(state: StateFolder, entry: Entry, name: str) -> str | None:
    """Return the absolute path of one of its files, or None if there is none."""
    where = entry.files.get(name)
    return None if where is None else os.path.join(state.path, where)


def reply_of(state: StateFolder, record: Record) -> str | None:
    """Return the whole reply of a turn, as far as it is kept."""
    data = files.read(state.at("output", record.occurrence.place, "reply.md"))
    return None if data is None else data.decode("utf-8", "replace")
