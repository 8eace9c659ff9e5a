"""What is due now and has no outcome: open claims, and slots that nobody has claimed.

Worked out from the files and written nowhere: `waiting` and `owed` are computed states (O4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from routines.domain.due import Owed, Plan, find_owed, plan
from routines.domain.names import format_instant
from routines.domain.outcome import Reason, State
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.domain.schedule import count_between, slots_between
from routines.operations.life import Schedulers, state_word
from routines.operations.refusing import refusal
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Standing
from routines.store.state import State as StateFolder
from routines.store.switches import Switch, SwitchStore

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Open:
    """A claim without an outcome.

    Attributes:
        record: What its file says.
        standing: Where it stands, as `life.state_word` says.
    """

    record: Record
    standing: str


def open_claims(state: StateFolder | None, *, routine: str | None = None) -> list[Open]:
    """Return the claims without an outcome, of one routine or of all, oldest first."""
    if state is None:
        return []
    claims = ClaimStore(state)
    found = [Open(one, state_word(claims, one)) for one in claims.open_records(routine=routine)]
    return sorted(found, key=lambda one: (one.record.occurrence.instant, one.record.ref))


@dataclass(frozen=True, slots=True)
class Due:
    """A slot that has passed and is neither claimed nor recorded.

    Attributes:
        routine: Whose.
        slot: The newest of them.
        owed: What lies between the routine's cursor and now.
        first: The slot that runs first; None if all is given up.
        count: How many turns the routine's catch-up policy makes of it; 0 if all is given up.
        too_late: Whether something is given up because `start_within` has passed.
        state: `waiting` or `owed`.
        why: What it waits for, in words; empty if nothing stands in its way.
        place: Its place in the line, counted from 1, and the length of the line; None if the
            house is not full.
    """

    routine: str
    slot: datetime
    owed: Owed
    first: datetime | None
    count: int
    too_late: bool
    state: State
    why: str = ""
    place: tuple[int, int] | None = None


def owed_now(state: StateFolder | None, routine: Routine, *, now: datetime) -> Owed | None:
    """Return what lies between the cursor of *routine* and now, or None if it owes nothing."""
    timetable = routine.timetable
    if state is None or timetable is None or not routine.enabled:
        return None
    cursors = CursorStore(state)
    cursor = cursors.peek(routine.name)
    if cursor is None or cursor.standing is not Standing.ARMED:
        # Not seen yet, or about to be seen again: it owes nothing from before that.
        return None
    if cursor.schedule != timetable.schedule.spec() or held_by(state, routine.name, now=now):
        return None
    newest = ClaimStore(state).newest_at_or_before(routine.name, until=now)
    missed = cursors.newest_missed(routine.name, until=now)
    return find_owed(
        timetable,
        since=cursor.since,
        newest_claim=newest,
        newest_missed=None if missed is None else missed.last,
        now=now,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """That a routine, or everything, is paused.

    Attributes:
        by: Who did it.
        since: When.
        until: When it ends by itself, or None.
        reason: In words, may be empty.
        everything: Whether everything is paused, and not one routine.
        besides: The other pause that holds it too, and ends no later; None if this is the one.
    """

    by: str
    since: datetime
    until: datetime | None
    reason: str
    everything: bool
    besides: "Held | None" = None

    def holds(self, at: datetime) -> "tuple[Held, ...]":
        """Return those of the two that are in force at *at*, as things stand."""
        both = (self, self.besides)
        return tuple(one for one in both if one and (one.until is None or at <= one.until))

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {
            "by": self.by,
            "since": format_instant(self.since),
            "until": None if self.until is None else format_instant(self.until),
            "reason": self.reason,
            "everything": self.everything,
            "besides": None if self.besides is None else self.besides.to_json(),
        }


def held(switch: Switch | None) -> Held | None:
    """Return what a switch says, or None where there is none."""
    if switch is None:
        return None
    everything = switch.routine is None
    return Held(switch.by, switch.since, switch.until, switch.reason, everything)


def lasting(switches: Iterable[Switch | None], *, at: datetime) -> list[Switch]:
    """Return those in force at *at*, the one that lasts longest first, else that of everything."""
    found = [s for s in switches if s is not None and (s.until is None or s.until > at)]
    return sorted(found, key=lambda s: (s.until is not None, -_seconds(s.until), s.routine or ""))


def _seconds(until: datetime | None) -> float:
    return 0.0 if until is None else until.timestamp()


def held_of(switches: Iterable[Switch | None], *, now: datetime) -> Held | None:
    """Return what holds a routine now of its own switch and that of everything.

    Of two it is the one that ends last: nothing starts before that, and nothing else may be
    promised.
    """
    found = [held(switch) for switch in lasting(switches, at=now)]
    first, second, *_ = [*found, None, None]
    return None if first is None else replace(first, besides=second)


def held_by(state: StateFolder | None, routine: str | None, *, now: datetime) -> Held | None:
    """Return what holds *routine* now, or everything if None; None if nothing does."""
    if state is None:
        return None
    store = SwitchStore(state)
    own = None if routine is None else store.read(routine)
    return held_of((store.read(None), own), now=now)


def due_slots(
    state: StateFolder | None,
    routines: Iterable[Routine],
    *,
    now: datetime,
    alive: Schedulers,
    opened: Iterable[Open],
    known: Mapping[str, Routine],
    concurrency: int,
) -> dict[str, Due]:
    """Return what is due and unclaimed, by routine.

    Args:
        state: The state folder.
        routines: Those that are asked about.
        now: The present.
        alive: Who schedules.
        opened: All claims without an outcome.
        known: All routines by name.
        concurrency: How many turns may be under way.
    """
    turns = [one.record for one in opened if one.standing == State.RUNNING.value]
    groups = groups_in_use(turns, known)
    found: list[tuple[Routine, Owed]] = []
    for routine in routines:
        owed = owed_now(state, routine, now=now)
        if owed is not None:
            found.append((routine, owed))
    found.sort(key=lambda pair: (pair[1].newest, pair[0].name))
    full = alive.alive and len(turns) >= concurrency
    return {
        routine.name: _due(
            state,
            routine,
            owed,
            now=now,
            alive=alive,
            place=(index + 1, len(found)) if full else None,
            groups=groups,
        )
        for index, (routine, owed) in enumerate(found)
    }


def _due(
    state: StateFolder | None,
    routine: Routine,
    owed: Owed,
    *,
    now: datetime,
    alive: Schedulers,
    place: tuple[int, int] | None,
    groups: Mapping[str, Record],
) -> Due:
    decided = _plan(routine, owed, now=now, seen=alive.alive)
    return Due(
        routine=routine.name,
        slot=owed.newest,
        owed=owed,
        first=decided.run,
        count=_turns(routine, decided.run, owed.newest),
        too_late=any(one.reason is Reason.TOO_LATE for one in decided.give_up),
        state=State.WAITING if alive.alive else State.OWED,
        why=""
        if place or not alive.alive
        else session_busy(state, routine)
        or group_busy(state, routine, groups)
        or refusal(state, alive, routine.name),
        place=place,
    )


def _plan(routine: Routine, owed: Owed, *, now: datetime, seen: bool) -> Plan:
    """Return what a scheduler decides about *owed*: the engine asks the same function."""
    timetable = routine.timetable
    if timetable is None:
        return Plan()
    return plan(
        owed,
        timetable,
        now=now,
        catch_up=routine.catch_up,
        most=routine.max_catch_up,
        start_within=routine.start_within,
        seen=seen,
        why_older=Reason.NO_SCHEDULER,
    )


def _turns(routine: Routine, first: datetime | None, newest: datetime) -> int:
    if first is None or routine.schedule is None:
        return 0
    return 1 if first == newest else count_between(routine.schedule, first - _SECOND, newest)


def slots_of(due: Due, routine: Routine) -> list[datetime]:
    """Return the slots that are to run of what is due, newest first; the newest if none is."""
    if due.first is None or routine.schedule is None or due.count <= 1:
        return [due.slot]
    return sorted(slots_between(routine.schedule, due.first - _SECOND, due.slot), reverse=True)


def session_busy(state: StateFolder | None, routine: Routine) -> str:
    """Return who holds the session that a slot of *routine* waits for; empty if nobody does."""
    if state is None or routine.session == "fresh":
        return ""
    # Here and not above: most of what is listed waits for nothing.
    from routines.operations.busy import busy_in

    busy = busy_in(state, routine.session_for(""))
    if busy is None:
        return ""
    return "its session is busy" + (f": {busy.holder}" if busy.holder else "")


def groups_in_use(turns: Iterable[Record], known: Mapping[str, Routine]) -> dict[str, Record]:
    """Return which of the *turns* that are under way has which `exclusive` group."""
    found: dict[str, Record] = {}
    for record in turns:
        routine = known.get(record.routine or "")
        group = record.group or (None if routine is None else routine.exclusive)
        if group is not None:
            found.setdefault(group, record)
    return found


def group_busy(state: StateFolder | None, routine: Routine, groups: Mapping[str, Record]) -> str:
    """Return what has the group that a slot of *routine* waits for; empty if nothing has."""
    group = routine.exclusive
    if state is None or group is None:
        return ""
    if group in groups:
        return f"a turn of the group {group} runs: {groups[group].ref}"
    # Here and not above: likewise.
    from routines.store.places import PlaceStore

    # It may be one whose file says something else by now, or nothing any more.
    return f"a turn of the group {group} runs" if PlaceStore(state).is_taken(group) else ""


def due_words(due: Due, alive: Schedulers, *, concurrency: int) -> str:
    """Return what a slot that is due and unclaimed waits for, in words."""
    if due.place is not None:
        index, length = due.place
        return f"{ordinal(index)} of {length} in line (concurrency {concurrency})"
    if due.why:
        return due.why
    if alive.waits_for_outside:
        return "for the outside clock to deliver it: routines tick, or fire"
    if alive.alive:
        return "about to start" if due.count else "about to be recorded as missed"
    if due.first is None:
        why = "start_within has passed" if due.too_late else "catch_up is none"
        return f"{why}: the next start records it as missed"
    more = "; older ones are recorded as missed" if _is_older(due) else ""
    return f"no scheduler: the next start runs it{more}"


def _is_older(due: Due) -> bool:
    """Return whether slots before the first one to run are given up."""
    return due.count == 1 and due.owed.previous is not None


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`, `11th`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
