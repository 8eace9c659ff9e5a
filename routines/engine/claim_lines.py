"""What the lines of a claim say that make it, and that take it up again."""

from datetime import datetime
from typing import Any

from routines.domain import schedule as schedules
from routines.domain.names import format_instant
from routines.domain.occurrence import Occurrence
from routines.domain.outcome import SHOWN, Trigger, one_line
from routines.domain.record import Event, Owner
from routines.domain.routine import Routine
from routines.domain.timetable import offset_of
from routines.engine.work import Work
from routines.errors import RoutinesError
from routines.store.claim import Claim


def claim_line(
    work: Work,
    *,
    owner: Owner,
    key: str,
    session: str,
    trigger: Trigger,
    zone: str,
    due_at: datetime,
    by: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return what the first line of a claim says besides its identity."""
    return {
        "routine": work.routine,
        "session": session,
        "trigger": trigger.value,
        "by": by or owner.user,
        "tz": zone,
        "due_at": due_at,
        "agent": work.agent_name,
        "model": work.model,
        "cwd": work.cwd,
        "definition": work.digest,
        "key": key,
        "prompt": one_line(work.prompt, most=SHOWN),
        "recurs": _recurs(work, due_at),
        "owner": owner.to_json(),
        **more,
    }


def slot_line(
    routine: Routine,
    occurrence: Occurrence,
    work: Work,
    *,
    owner: Owner,
    key: str,
    trigger: Trigger,
) -> dict[str, Any]:
    """Return what the first line of the claim of a slot says besides its identity."""
    return claim_line(
        work,
        owner=owner,
        key=key,
        session=session_of(routine, occurrence.instant),
        trigger=trigger,
        zone=routine.zone,
        due_at=due_at(routine, occurrence.instant),
    )


def workless_line(
    routine: Routine, occurrence: Occurrence, *, owner: Owner, trigger: Trigger
) -> dict[str, Any]:
    """Return what the first line of the claim of a slot says that ends as it is claimed."""
    return {
        "routine": routine.name,
        "session": session_of(routine, occurrence.instant),
        "trigger": trigger.value,
        "by": owner.user,
        "tz": routine.zone,
        "due_at": due_at(routine, occurrence.instant),
        "owner": owner.to_json(),
    }


def session_of(routine: Routine, slot: datetime) -> str:
    """Return the session of the turn of *slot*."""
    return routine.session_for(format_instant(slot))


def due_at(routine: Routine, slot: datetime) -> datetime:
    """Return when *slot* falls due, its jitter included."""
    return slot + offset_of(routine.name, slot, routine.jitter)


def _recurs(work: Work, at: datetime) -> bool:
    """Return whether another slot comes after *at*: what comes only once is never given up."""
    if work.schedule is None:
        return False
    try:
        return schedules.from_spec(work.schedule).next_after(at) is not None
    except (RoutinesError, KeyError, TypeError, ValueError):
        # A host's own kind of schedule can't be made from its spec; such schedules go on.
        return True


def note_attempt(claim: Claim, *, owner: Owner, at: datetime) -> None:
    """Note that an unstarted claim is taken up again, and by whom."""
    claim.append(Event.ATTEMPT, at=at, n=claim.record.attempts + 1, owner=owner.to_json())
