"""`list`: every routine, where it stands, what comes next and what was last."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from routines.domain.durations import humanize
from routines.domain.names import format_instant
from routines.domain.outcome import State
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.domain.schedule import Schedule
from routines.domain.silence import silent_since
from routines.errors import Problem
from routines.operations.agents_found import agents_found
from routines.operations.ahead import Ahead, ahead_of
from routines.operations.alarms import Alarms, pending_alarms
from routines.operations.context import Context
from routines.operations.entries import Entry
from routines.operations.last_good import last_good, tagged
from routines.operations.life import Schedulers, schedulers
from routines.operations.past import Past
from routines.operations.pending import (
    Due,
    Held,
    Open,
    due_slots,
    due_words,
    held,
    held_of,
    open_claims,
)
from routines.operations.queued import count_queued
from routines.store.cursors import CursorStore
from routines.store.sessions import SessionStore
from routines.store.switches import Switch, SwitchStore

# Over all routines: what `7 DAYS` may open, so that `list` answers within a second.
_WEEK_BUDGET = 6000
_LEAST_A_ROUTINE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One routine.

    Attributes:
        name: Its name.
        state: A word: armed, running, waiting, owed, failing, paused, broken, ...
        count: The number beside the state (`failing 3`, `owed 1`), or None.
        since: Since when it is in that state, where that is shown.
        schedule: Its schedule as text; None without one, and where the file is broken.
        tz: Its zone.
        next: The next slot; None if there is none or it is held back.
        due: Whether a slot is due now.
        last: The newest thing that ended, or None.
        note: What a slot that is due waits for, or why nothing is left to come; stands in the
            place of the last one.
        ok, bad: How many of the last seven days completed, and were problems; None if not asked.
        partial: Whether only the newest of those days were counted.
        turns: Finished turns of its session; None for a fresh one.
        fresh: Whether each slot has a session of its own.
        problem: What a person has to do about it, or None.
        paused: What holds it back, or None.
        retry_at: When what waits for that is tried again, or None.
        buffered: The slot that waits for the turn that runs, or None.
    """

    name: str
    state: str
    count: int | None = None
    since: datetime | None = None
    schedule: str | None = None
    tz: str = "UTC"
    next: datetime | None = None
    due: bool = False
    last: Entry | None = None
    note: str = ""
    ok: int | None = None
    bad: int | None = None
    partial: bool = False
    turns: int | None = None
    fresh: bool = False
    problem: "Trouble | None" = None
    paused: Held | None = None
    retry_at: datetime | None = None
    buffered: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as `list --json` shows it."""
        return {
            "name": self.name,
            "state": self.state,
            "count": self.count,
            "since": _instant(self.since),
            "schedule": self.schedule,
            "tz": self.tz,
            "next": _instant(self.next),
            "due": self.due,
            "note": self.note,
            "last": None if self.last is None else self.last.to_json(),
            "completed_7d": self.ok,
            "problems_7d": self.bad,
            "turns": self.turns,
            "problem": None if self.problem is None else self.problem.to_json(),
            "paused": None if self.paused is None else self.paused.to_json(),
            "retry_at": _instant(self.retry_at),
            "buffered": _instant(self.buffered),
        }


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a routine needs a person.

    Attributes:
        kind: `broken`, `no agent`, `failing`, `silent`, `lost`, `parked`, `warned`.
        text: In words.
        detail: What there is besides, where there is room.
        file: What is wrong with a file, for `broken`.
        since: Since when, for `failing`; for `warned` if it is told, and not a stumble.
        armed: Whether it goes on in its last good version, for `broken`.
    """

    kind: str
    text: str
    file: Problem | None = None
    since: datetime | None = None
    armed: bool = False
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as `list --json` shows it."""
        place = None if self.file is None else self.file.place()
        return {"kind": self.kind, "text": self.text, "place": place, "since": _instant(self.since)}


@dataclass(frozen=True, slots=True)
class Listing:
    """What `list` answers.

    Attributes:
        root: The workspace folder.
        now: The present that everything was compared with.
        schedulers: Who is alive, who was.
        rows: One for each routine, sorted by name.
        alarms: What wake-ups are pending.
        queued: How many jobs are queued and due; beyond `MOST_COUNTED` only that there are more.
        settings_problems: Why routines.yaml can't be used.
        zone_note: Whether no zone is set while the machine has one of its own.
        paused: The pause of everything, or None.
        others: What needs a person and is of no routine here: its id, and why.
    """

    root: str
    now: datetime
    schedulers: Schedulers
    rows: tuple[Row, ...]
    alarms: Alarms
    queued: int = 0
    settings_problems: tuple[Problem, ...] = ()
    zone_note: str | None = None
    paused: Held | None = None
    others: tuple[tuple[str, Trouble], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as `list --json` shows it."""
        return {
            "root": self.root,
            "now": _instant(self.now),
            "schedulers": [one.to_json() for one in self.schedulers.live],
            "no_scheduler_since": None
            if self.schedulers.alive
            else _instant(self.schedulers.last_at),
            "routines": [row.to_json() for row in self.rows],
            "wakeups": {
                "pending": self.alarms.count,
                "sessions": self.alarms.sessions,
                "next": _instant(self.alarms.next_at),
            },
            "jobs": {"queued": self.queued},
            "problems": [problem.place() for problem in self.settings_problems],
            "paused": None if self.paused is None else self.paused.to_json(),
            "others": [{"id": ref, "problem": one.to_json()} for ref, one in self.others],
        }


def _instant(value: datetime | None) -> str | None:
    return None if value is None else format_instant(value)


def list_routines(context: Context, *, week: bool, tags: Iterable[str] = ()) -> Listing:
    """Return every routine and where it stands.

    Args:
        context: Where and when.
        week: Whether to count the outcomes of the last seven days, which opens their records.
        tags: Only routines that have one of these; none for all.
    """
    return _Lister(context, week=week, tags=frozenset(tags)).listing()


class _Lister:
    """Gathers once what all rows need."""

    def __init__(self, context: Context, *, week: bool, tags: frozenset[str]) -> None:
        self.context = context
        self.week = week
        self.now = context.clock.now()
        self.workspace = context.workspace
        self.state = context.state_or_none
        self.alive = schedulers(self.state, now=self.now)
        self.open = open_claims(self.state)
        self.kept = last_good(context, self.alive)
        self.tags = tags
        self.switches = self._switches()
        self.names = tuple(tagged(context, tags, kept=self.kept))
        self.due = self._due()
        self.no_agent = self._without_agent()
        self.share = max(_WEEK_BUDGET // max(len(self.names), 1), _LEAST_A_ROUTINE)

    def _switches(self) -> dict[str | None, Switch]:
        switches = [] if self.state is None else SwitchStore(self.state).all()
        return {s.routine: s for s in switches if s.until is None or s.until > self.now}

    def _held_by(self, name: str) -> Held | None:
        return held_of((self.switches.get(None), self.switches.get(name)), now=self.now)

    def _due(self) -> dict[str, Due]:
        return due_slots(
            self.state,
            self.workspace.routines.values(),
            now=self.now,
            alive=self.alive,
            opened=self.open,
            known=self.workspace.routines,
            concurrency=self.workspace.settings.concurrency,
        )

    def _without_agent(self) -> dict[str, str]:
        found = agents_found(
            self.workspace.settings, self.workspace.routines, path=search_path(self.context)
        )
        return {name: one.problem for one in found if one.problem for name in one.used_by}

    def listing(self) -> Listing:
        from routines.operations.zone_note import zone_note

        return Listing(
            root=self.workspace.root.path,
            now=self.now,
            schedulers=self.alive,
            rows=tuple(self._row(name) for name in self.names),
            alarms=pending_alarms(self.state),
            queued=count_queued(self.context),
            settings_problems=self.workspace.settings_problems,
            zone_note=zone_note(self.context),
            paused=held(self.switches.get(None)),
            others=() if self.tags else tuple(self._others()),
        )

    def _others(self) -> Iterator[tuple[str, Trouble]]:
        """Yield what is parked or lost of sessions that belong to no routine here."""
        known = frozenset(self.workspace.names)
        for one in self.open:
            if one.standing in ("lost", "parked") and one.record.routine not in known:
                yield one.record.occurrence.id or one.record.ref, _open_trouble(one)

    def _row(self, name: str) -> Row:
        routine = self.workspace.routines.get(name)
        past = Past(self.state, name, now=self.now, known=routine)
        mine = [one for one in self.open if one.record.routine == name]
        ahead = ahead_of(self.state, name, now=self.now)
        state, count, since = self._stands(name, routine, past, mine, ahead)
        paused = self._held_by(name)
        still = state in ("broken", "paused", "disabled", "over", "by name", "no agent")
        # What runs or is stale is said first, and nothing comes after it all the same.
        still = still or paused is not None or (routine is not None and not routine.enabled)
        due = self.due.get(name)
        waits = None if still else due
        retrying = _retrying(mine) if state == "retrying" else None
        schedule, zone = self._schedule(name, routine)
        ok, bad, part = past.week(self.share) if self.week else (None, None, False)
        return Row(
            name=name,
            state=state,
            count=count,
            since=since,
            schedule=None if schedule is None else schedule.text(),
            tz=zone,
            next=None if still or schedule is None else ahead.next_after(schedule, self.now),
            due=due is not None and not still,
            last=past.last,
            note=_over_words(ahead) if state == "over" else self._note(state, waits, retrying),
            ok=ok,
            bad=bad,
            partial=part,
            turns=self._turns(name, routine),
            fresh=routine is not None and routine.session == "fresh",
            problem=self._problem(name, past, mine),
            paused=paused,
            retry_at=None if retrying is None else retrying.retry_at,
            buffered=_buffered(mine),
        )

    def _schedule(self, name: str, routine: Routine | None) -> tuple[Schedule | None, str]:
        """Return what it fires by, if it fires, and the zone that its times are read in."""
        if routine is not None:
            return routine.schedule, routine.zone
        kept = self.kept.get(name)
        if kept is None:
            return None, self.workspace.settings.tz
        return (None if kept.timetable is None else kept.timetable.schedule), kept.zone

    def _note(self, state: str, due: Due | None, retrying: Record | None) -> str:
        if retrying is not None:
            return str(retrying.events[-1].get("detail") or "")
        if state in ("waiting", "owed") and due is None:
            return "claimed, not started yet"
        if due is None:
            return ""
        return due_words(due, self.alive, concurrency=self.workspace.settings.concurrency)

    def _turns(self, name: str, routine: Routine | None) -> int | None:
        if self.state is None or (routine is not None and routine.session == "fresh"):
            return None
        session = f"routine:{name}" if routine is None else routine.session_for("")
        ledger = SessionStore(self.state).peek(session)
        return None if ledger is None else ledger.turns

    def _stands(
        self, name: str, routine: Routine | None, past: Past, mine: "list[Open]", ahead: Ahead
    ) -> tuple[str, int | None, datetime | None]:
        """Return the word of its state, the number beside it, and since when."""
        under_way = _standing(mine, ("running", "lost", "unknown", "parked"))
        if under_way is not None:
            return under_way
        if routine is None:
            return ("stale edit" if name in self.kept else "broken"), None, None
        paused = self._held_by(name)
        if paused is not None:
            return "paused", None, paused.since
        unstarted = _standing(mine, ("retrying", "buffered", "claimed"))
        if unstarted is not None:
            word, count, since = unstarted
            # Where no scheduler is alive, nobody is there to whom it could come.
            owed = word == State.WAITING.value and not self.alive.alive
            return (State.OWED.value if owed else word), count, since
        if not routine.enabled:
            return "disabled", None, None
        if name in self.no_agent:
            return "no agent", None, None
        due = self.due.get(name)
        if due is not None:
            count = due.count if due.state is State.OWED else None
            return due.state.value, count or None, due.slot
        if past.failing and not past.is_warned_once:
            return "failing", past.failing, past.failing_since
        silent = self._silent_since(routine, past, mine)
        if silent is not None:
            return "silent", None, silent
        if routine.schedule is None:
            return "by name", None, None
        to_come = ahead.next_after(routine.schedule, self.now)
        return ("over" if to_come is None else "armed"), None, None

    def _silent_since(self, routine: Routine, past: Past, mine: "list[Open]") -> datetime | None:
        """Return since when it has not completed, if that is for longer than it should be."""
        if self.state is None:
            return None
        cursor = CursorStore(self.state).peek(routine.name)
        if cursor is None:
            return None
        gates = routine.silent_for is None
        sign = past.newest_sign(gates=gates)
        # It counts from when it was first seen, changed or switched on again.
        base = max(cursor.since, cursor.first_seen_at, *([] if sign is None else [sign]))
        since = partial(
            silent_since,
            now=self.now,
            base=base,
            schedule=routine.schedule,
            silent_for=routine.silent_for,
            timeout=routine.timeout,
        )
        # Records are opened for few: most have completed of late.
        if since() is None:
            return None
        begun = [one.record.claimed_at or one.record.due_at for one in mine]
        return since(
            watched_since=self.alive.watched_since, begun=[*begun, *past.begun(gates=gates)]
        )

    def _problem(self, name: str, past: Past, mine: "list[Open]") -> Trouble | None:
        if name in self.workspace.broken:
            problems = self.workspace.broken[name]
            armed = name in self.kept
            text = problems[0].message if problems else "routines.yaml can't be used"
            return Trouble("broken", text, problems[0] if problems else None, armed=armed)
        for one in mine:
            if one.standing in ("lost", "parked"):
                return _open_trouble(one)
        if name in self.no_agent:
            return Trouble("no agent", self.no_agent[name])
        if past.failing and not past.is_warned_once:
            return Trouble("failing", f"{past.failing} in a row", since=past.failing_since)
        routine = self.workspace.routines.get(name)
        owed = name in self.due and not self.alive.alive
        if routine is not None and routine.enabled and not owed and self._held_by(name) is None:
            silent = self._silent_since(routine, past, mine)
            if silent is not None:
                return Trouble("silent", f"nothing has completed for {_days(self.now - silent)}")
        if past.last is not None and past.last.warnings:
            since = past.failing_since
            return Trouble("warned", ", ".join(past.last.warnings), since=since)
        return None


def _over_words(ahead: Ahead) -> str:
    """Return that what an ended schedule names ahead has been dealt with; empty if nothing is."""
    return "dealt with: a clock was ahead" if ahead.claimed else ""


def _standing(
    mine: "list[Open]", words: Iterable[str]
) -> tuple[str, int | None, datetime | None] | None:
    """Return the first of *words* that something open stands at, and since when."""
    for word in words:
        found = next((one.record for one in mine if one.standing == word), None)
        if found is not None:
            # Claimed and not started: what stands in its way is what a person wants to know.
            shown = State.WAITING.value if word == State.CLAIMED.value else word
            return shown, None, found.started_at or found.claimed_at
    return None


def _retrying(mine: "list[Open]") -> Record | None:
    return next((one.record for one in mine if one.standing == State.RETRYING.value), None)


def _buffered(mine: "list[Open]") -> datetime | None:
    found = (o.record for o in mine if o.standing == State.BUFFERED.value)
    return next((record.occurrence.instant for record in found), None)


def _open_trouble(one: "Open") -> Trouble:
    record = one.record
    detail = str(record.events[-1].get("detail") or "") if record.events else ""
    return Trouble(one.standing, f"{record.ref} is {one.standing}", detail=detail)


def _days(span: timedelta) -> str:
    return " ".join(humanize(span).split()[:4])


def search_path(context: Context) -> str:
    """Return the PATH that programs are found on: our own."""
    return context.environ.get("PATH", os.defpath)
