"""The claim of a durable turn: its run is written down, and whoever comes next goes on with it."""

from dataclasses import replace
from datetime import timedelta

from routines.agents.base import Turn
from routines.domain.names import parse_instant
from routines.domain.record import Event, Record
from routines.engine.turns import TurnSteps
from routines.engine.work import Work
from routines.store import files
from routines.store.cancels import Cancel, CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.state import State


def resume(steps: TurnSteps, work: Work) -> Turn | None:
    """Become the owner of a durable turn that was begun before; None if it has ended since.

    Raises:
        StoreError: That could not be written: nothing is asked.
    """
    record = steps.claim.reread()
    if record.end is not None or is_lost(steps.claim):
        return None
    now = steps.clock.now()
    cancel = _accepted(steps.state, record)
    # Without an id while nobody knows it: the start is repeated.
    steps.claim.append(
        Event.RUN, at=now, run_id=record.run_id, resumed=True, owner=steps.owner.to_json()
    )
    steps.cancelled_by = cancel
    if record.started_at is not None:
        steps.count_from(record.started_at)
    late = (record.started or {}).get("late_s")
    turn = steps.turn_of(work, steps.lease.ledger)
    return replace(turn, late=timedelta(seconds=late)) if isinstance(late, int | float) else turn


def _accepted(state: State, record: Record) -> Cancel | None:
    """Return the cancel that a former owner took up: it can't be withdrawn any more."""
    cancel = CancelStore(state).accepted(record.ref)
    line = record.newest(Event.CANCELLING)
    if cancel is not None or line is None:
        return cancel
    # What was asked has been removed, and its line alone tells of it.
    try:
        at = parse_instant(line["at"])
    except (KeyError, TypeError, ValueError):
        at = record.claimed_at or record.due_at
    return Cancel(
        record.ref,
        "",
        str(line.get("by")),
        bool(line.get("person")),
        at,
        newer=line.get("newer"),
        intent=line.get("intent"),
        lane=bool(line.get("lane")),
    )


def note_run(steps: TurnSteps, run_id: str) -> bool:
    """Write down which run the turn is, before anything follows from it; False if it is not ours.

    Raises:
        StoreError: It could not be written: nobody knows of the run but us.
    """
    record = steps.claim.reread()
    if record.end is not None or is_lost(steps.claim):
        return False
    steps.claim.append(Event.RUN, at=steps.clock.now(), run_id=run_id, owner=steps.owner.to_json())
    return True


def is_adopted(state: State, claim_path: str, run_id: str) -> bool:
    """Return whether a claim's record knows *run_id*, or may still come to know it.

    One that is open without a run repeats its start, and is told of this very run.
    """
    record = ClaimStore(state).read_path(claim_path)
    if record is None:
        return False
    return record.run_id == run_id or (record.run_id is None and record.is_durable)


def is_lost(claim: Claim) -> bool:
    """Return whether another file has the claim's name."""
    return files.exists(claim.path) and not claim.still_named()
