"""References: NAME, NAME@WHEN, a wake-up's id, or the full id, to what they mean."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from routines.domain.names import (
    day_name,
    format_instant,
    instant_name,
    safe_name,
)
from routines.domain.occurrence import Kind, Occurrence, parse_ref
from routines.domain.record import Record
from routines.domain.schedule import from_spec
from routines.domain.when import parse_when
from routines.domain.zones import shown
from routines.errors import RoutinesError, UnknownOccurrence, UnknownRoutine
from routines.operations.context import Context
from routines.operations.endings import is_of_slot, name_key
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Missed
from routines.store.state import State

_WAKEUP_ID = re.compile(r"w-[a-z0-9]{4,40}", re.ASCII)
_BARE_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|today|yesterday", re.ASCII)
_WORKSPACE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/", re.ASCII)
# What is due by the second is filed under that second; a run by hand may be asked for within it.
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Named:
    """A routine and an instant that a reference names.

    Attributes:
        routine: The routine.
        at: The instant; None for its newest.
        whole_day: Whether only a day was named: then anything within it is meant.
    """

    routine: str
    at: datetime | None
    whole_day: bool = False


def known_routines(context: Context) -> list[str]:
    """Return the names of routines that have a file, or ever had one and left a trace."""
    known = set(context.workspace.names)
    state = context.state_or_none
    if state is not None:
        known.update(cursor.routine for cursor in CursorStore(state).all())
    return sorted(known)


def check_known(context: Context, routine: str) -> str:
    """Return *routine* if there is or was one of that name.

    Raises:
        UnknownRoutine: There never was; the error names the near one.
    """
    if routine in context.workspace.names:
        return routine
    state = context.state_or_none
    if state is not None and os.path.isdir(state.at("claims", safe_name(routine))):
        return routine
    known = known_routines(context)
    if routine not in known:
        raise UnknownRoutine(routine, known)
    return routine


def parse_named(context: Context, text: str) -> Named:
    """Return the routine and instant of `NAME` or `NAME@WHEN`; WHEN is read in its zone."""
    name, at, when = text.partition("@")
    check_known(context, name)
    if not at:
        return Named(name, None)
    return named_at(context, name, when)


def named_at(context: Context, routine: str, when: str) -> Named:
    """Return *routine* and the instant that *when* names in its zone, the past first."""
    zone = context.zone_of(routine)
    instant = parse_when(when, zone=zone, now=context.clock.now(), past=True)
    return Named(routine, instant, whole_day=bool(_BARE_DAY.fullmatch(when.strip().lower())))


def next_day(context: Context, named: Named) -> datetime:
    """Return the end of the day that *named* names, in the zone of its routine."""
    zone = context.zone_of(named.routine)
    at = named.at or context.clock.now()
    day = shown(at, zone) + timedelta(days=1)
    return day.replace(tzinfo=zone).astimezone(UTC)


def find(context: Context, ref: str) -> Record | Missed:
    """Return what *ref* means.

    Raises:
        UnknownRoutine, UnknownOccurrence: There is nothing under that name.
        StateMissing: Nothing was ever recorded here.
    """
    text = _WORKSPACE.sub("", ref.strip(), count=1)
    state = context.state
    # First what names a slot or a firing in full: it is no job's, and need not be looked for there.
    found = _by_full_id(state, text) or _job(context, text)
    if found is not None:
        return found
    if _WAKEUP_ID.fullmatch(text):
        return _newest_firing(state, text)
    if text.startswith(("manual:", "wake:", "job:")):
        raise UnknownOccurrence(
            f"nothing is recorded under {text!r}", hint="`routines history` names what is"
        )
    return _of_routine(context, state, parse_named(context, text))


def _job(context: Context, text: str) -> Record | None:
    """Return the record of a job by its id or `job:<id>`, or of a purge.

    Raises:
        UnknownOccurrence: It is queued, and nothing is recorded of it yet.
    """
    # Here and not above: most references are of routines.
    from routines.operations.job_finding import job_named, purge_record

    job = job_named(context, text)
    if job is None:
        return purge_record(context, text)
    if job.record is None:
        name = job.status.id
        raise UnknownOccurrence(
            f"the job {name!r} is queued: nothing is recorded of it yet",
            hint=f"`routines jobs show {name}` shows it, `routines explain job:{name}` says why",
        )
    return job.record


def _by_full_id(state: State, text: str) -> Record | Missed | None:
    occurrence = parse_ref(text)
    if occurrence is None:
        return None
    if occurrence.kind is Kind.SLOT:
        return ClaimStore(state).read(occurrence) or covering(
            state, occurrence.owner, occurrence.instant
        )
    for owner in _owners(state, occurrence.kind):
        path = _path_under(owner, occurrence)
        if os.path.exists(state.at(path)):
            return ClaimStore(state).read_path(path)
    return None


def _owners(state: State, kind: Kind) -> Iterator[str]:
    for folder in ClaimStore(state).owners():
        if folder.startswith("wake/") == (kind is Kind.WAKE):
            yield folder


def _path_under(folder: str, occurrence: Occurrence) -> str:
    prefix = "manual-" if occurrence.is_by_hand else ""
    stem = f"{instant_name(occurrence.instant)}.{prefix}{safe_name(occurrence.id)}"
    return f"claims/{folder}/{day_name(occurrence.instant)}/{stem}.jsonl"


def _newest_firing(state: State, wakeup_id: str) -> Record:
    claims = ClaimStore(state)
    folders = list(_owners(state, Kind.WAKE))
    for path in claims.walk(folders):
        if path.endswith(f".{wakeup_id}.jsonl"):
            record = claims.read_path(path)
            if record is not None:
                return record
    # Here and not above: few references are of wake-ups.
    from routines.store.wakeups import WakeupStore

    if WakeupStore(state).find(wakeup_id) is None:
        raise UnknownOccurrence(
            f"nothing is known of a wake-up {wakeup_id!r}",
            hint="`routines wakeups` lists those that are pending",
        )
    raise UnknownOccurrence(
        f"the wake-up {wakeup_id!r} has not fired",
        hint=f"it is pending: `routines wakeups show {wakeup_id}` shows it, `routines unwake"
        f" {wakeup_id}` cancels it",
    )


def _of_routine(context: Context, state: State, named: Named) -> Record | Missed:
    if named.at is None:
        return newest(state, named.routine, until=context.clock.now() + _SECOND)
    if named.whole_day:
        end = next_day(context, named)
        zone = context.zone_of(named.routine)
        return newest(
            state,
            named.routine,
            since=named.at,
            until=end - _SECOND,
            now=context.clock.now(),
            zone=zone,
        )
    occurrence = Occurrence(Kind.SLOT, named.routine, named.at.replace(microsecond=0))
    claims = ClaimStore(state)
    record = claims.read(occurrence) or _within_minute(state, named)
    found = record or covering(state, named.routine, named.at, now=context.clock.now())
    if found is None:
        raise _nothing_at(context, state, named)
    return found


def _within_minute(state: State, named: Named) -> Record | None:
    """Return what was run by hand in the minute that was named: `16:12` means 16:12:37 too."""
    if named.at is None or named.at.second:
        return None
    claims = ClaimStore(state)
    until = named.at + timedelta(seconds=59)
    return _newest_claim(
        claims, claims.walk([safe_name(named.routine)], since=named.at, until=until)
    )


def newest(
    state: State,
    routine: str,
    *,
    since: datetime | None = None,
    until: datetime,
    slots_only: bool = False,
    now: datetime | None = None,
    zone: ZoneInfo | None = None,
) -> Record | Missed:
    """Return the newest thing that is recorded of *routine*.

    Args:
        state: Where.
        routine: Whose.
        since: Not before this instant.
        until: Not after this one. With *since* a counted record that goes on beyond it is found
            too, if a slot that it counts lies between them.
        slots_only: Whether runs by hand are passed over.
        now: Counted records that reach beyond it are passed over: see `covering`.
        zone: Whose days an error names.

    Raises:
        UnknownOccurrence: There is nothing.
    """
    claims = ClaimStore(state)
    paths = claims.walk([safe_name(routine)], since=since, until=until)
    if slots_only:
        paths = filter(is_of_slot, paths)
    record = _newest_claim(claims, paths)
    missed = next(CursorStore(state).missed(routine, since=since, until=until), None)
    if since is not None:
        missed = _reaching_over(state, routine, since, until, now) or missed
    if missed is not None:
        slot = slot_within(missed, until)
        if record is None or (slot is not None and slot > record.occurrence.instant):
            return missed
    if record is not None:
        return record
    raise _nothing_of(routine, since, zone)


def slot_within(missed: Missed, until: datetime) -> datetime | None:
    """Return the newest slot not after *until* that a counted record counts; None if none is."""
    if missed.last <= until:
        return missed.last
    if missed.after >= until or missed.schedule is None:
        return None
    try:
        slot = from_spec(missed.schedule).newest_at_or_before(until)
    except RoutinesError:
        return None
    return slot if slot is not None and slot > missed.after else None


def _reaching_over(
    state: State, routine: str, since: datetime, until: datetime, now: datetime | None
) -> Missed | None:
    """Return the record of a longer absence, filed under its end, that counts a slot in between."""
    found = None
    for missed in CursorStore(state).missed(routine):
        if missed.last <= until:
            break
        if now is not None and missed.last > now:
            continue
        slot = slot_within(missed, until)
        if slot is not None and slot >= since:
            found = missed
    return found


def _newest_claim(claims: ClaimStore, paths: Iterator[str]) -> Record | None:
    """Return the newest of *paths*; of those filed under one second the one claimed last."""
    first = next(paths, None)
    if first is None:
        return None
    same = takewhile(lambda path: name_key(path) == name_key(first), paths)
    found = [claims.read_path(path) for path in (first, *same)]
    return max((record for record in found if record is not None), key=claim_order, default=None)


def claim_order(record: Record) -> tuple[datetime, str]:
    """Return what tells the order of two that are filed under the same second."""
    return record.claimed_at or record.occurrence.instant, record.ref


def _nothing_of(routine: str, since: datetime | None, zone: ZoneInfo | None) -> UnknownOccurrence:
    if since is None:
        when, asked = "yet", routine
    else:
        # The day as its zone has it: in UTC its first moment may lie on the day before.
        day = since.astimezone(zone or UTC).date().isoformat()
        when, asked = f"on {day}", f"{routine} {day}"
    return UnknownOccurrence(
        f"nothing is recorded of {routine} {when}",
        hint=f"`routines explain {asked}` says why",
    )


def covering(
    state: State, routine: str, slot: datetime, *, now: datetime | None = None
) -> Missed | None:
    """Return the counted record that *slot* lies in, or None.

    Args:
        state: Where.
        routine: Whose.
        slot: Which.
        now: A record that ends after it is from a clock that was ahead: only its last slot is
            dealt with (PROMISES L1). None to go by the record alone.
    """
    best = None
    for missed in CursorStore(state).missed(routine):
        if missed.last < slot:
            break
        if now is not None and missed.last > now and missed.last != slot:
            continue
        # A record's own instant is when it was written; it counts what lies in its range.
        if missed.after < slot <= missed.last:
            best = missed
    return best


def _nothing_at(context: Context, state: State, named: Named) -> RoutinesError:
    at = named.at or context.clock.now()
    claims = ClaimStore(state)
    folder = [safe_name(named.routine)]
    before = next(claims.walk(folder, until=at), None)
    near = None if before is None else claims.read_path(before)
    hint = f"`routines explain {named.routine} {format_instant(at)}` says why"
    if near is not None:
        hint = f"the one before it is {near.ref}; {hint}"
    return UnknownOccurrence(
        f"nothing is recorded of {named.routine} at {format_instant(at)}", hint=hint
    )


def has_output(state: State, place: str) -> bool:
    """Return whether a turn left files under `output/`."""
    return bool(files.names(state.at("output", *place.split("/"))))
