"""Pause, resume and recover: what a person in charge holds back, and lets go again.

Each act says who did it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from routines.domain.outcome import Reason
from routines.domain.record import Event, Record
from routines.domain.zones import local_text
from routines.errors import UnknownOccurrence, UsageError
from routines.operations.cancelling import CancelResult, cancel_one, open_targets
from routines.operations.context import Context
from routines.operations.entries import counted
from routines.operations.finding import check_known
from routines.operations.last_good import tagged
from routines.operations.life import schedulers
from routines.operations.pending import Held, held, held_by
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.switches import SwitchStore

if TYPE_CHECKING:
    from routines.engine.pausing import Pausing


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseResult:
    """What came of a pause or a resume.

    Attributes:
        routine: Which; None for everything.
        changed: Whether it was not so before.
        paused: What holds it now; after a resume only where everything is paused besides.
        passed: How many slots it passed over, for a resume; None if none, or not known.
        cancelled: What of it was asked to end.
    """

    routine: str | None
    changed: bool
    paused: Held | None = None
    passed: int | None = None
    cancelled: tuple[CancelResult, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as `pause --json` and `resume --json` show it."""
        return {
            "routine": self.routine,
            "changed": self.changed,
            "paused": None if self.paused is None else self.paused.to_json(),
            "passed": self.passed,
            "cancelled": [{"id": one.ref, "message": one.message} for one in self.cancelled],
        }


def pause(
    context: Context,
    names: Sequence[str],
    *,
    all_: bool = False,
    tags: Sequence[str] = (),
    until: datetime | None = None,
    reason: str = "",
    now_: bool = False,
) -> list[PauseResult]:
    """Keep routines armed and start nothing of them, their sessions' wake-ups included.

    Args:
        context: Where and when, and who asks.
        names: The routines.
        all_: Everything instead, wake-ups and all.
        tags: The routines that carry one of them, besides *names*.
        until: When it ends by itself, aware; None for when it is resumed.
        reason: In words, for those who wonder.
        now_: Whether what runs is cancelled too.

    Raises:
        UnknownRoutine: There is none of that name; nothing was paused.
        UsageError: It is not said which, or *until* has been; nothing was paused.
    """
    now = context.clock.now()
    if until is not None and until <= now:
        # As it was read: in the zone of the routine if it is one, else in the workspace's.
        zone = context.zone_of(names[0] if len(names) == 1 else None)
        raise UsageError(
            f"--until {local_text(until, zone)} has passed",
            hint=f"it is {local_text(now, zone)} {zone.key} now",
        )
    chosen = _chosen(context, names, all_=all_, tags=tags)
    pausing = _pausing(context)
    switches = SwitchStore(context.writable_state)
    results = []
    for name in chosen:
        before = switches.read(name)
        was = before is not None and (before.until is None or before.until > now)
        switch = pausing.pause(name, now=now, until=until, reason=reason)
        ended = tuple(_cancel_all(context, name, reason or "paused")) if now_ else ()
        results.append(
            PauseResult(routine=name, changed=not was, paused=held(switch), cancelled=ended)
        )
    return results


def resume(
    context: Context, names: Sequence[str], *, all_: bool = False, tags: Sequence[str] = ()
) -> list[PauseResult]:
    """End pauses; what was passed over is one counted record for each routine.

    Raises:
        UnknownRoutine: There is none of that name; nothing was resumed.
        UsageError: It is not said which.
    """
    chosen = _chosen(context, names, all_=all_, tags=tags)
    now = context.clock.now()
    pausing = _pausing(context)
    results = []
    for name in chosen:
        ended = pausing.resume(name, now=now)
        results.append(
            PauseResult(
                routine=name,
                changed=ended is not None,
                paused=None if name is None else held_by(context.state, name, now=now),
                passed=None if ended is None or name is None else _passed(context, name, now),
            )
        )
    return results


def _pausing(context: Context) -> "Pausing":
    from routines.engine.pausing import Pausing

    return Pausing(context.writable_state, by=context.who)


def _passed(context: Context, name: str, now: datetime) -> int | None:
    """Return how many slots the pause that has just ended passed over."""
    found = CursorStore(context.writable_state).newest_missed(name, until=now)
    if found is None or found.reason is not Reason.PAUSED or found.at != now:
        return None
    return counted(found)[1]


def _chosen(
    context: Context, names: Sequence[str], *, all_: bool, tags: Sequence[str]
) -> list[str | None]:
    if all_:
        if names or tags:
            raise UsageError("--all means everything", hint="leave the names and tags away")
        return [None]
    for name in names:
        check_known(context, name)
    chosen = list(dict.fromkeys([*names, *(tagged(context, tags) if tags else ())]))
    if not chosen:
        raise UsageError(
            f"no routine carries the tag {tags[0]!r}" if tags else "which routines?",
            hint="name one, or say --tag TAG or --all",
        )
    return list(chosen)


def _cancel_all(context: Context, name: str | None, reason: str) -> list[CancelResult]:
    claims = ClaimStore(context.writable_state)
    # Turns of its wake-ups are its own too.
    return [
        cancel_one(context, claims, record, reason)
        for record in claims.open_records()
        if record.is_under_way and (name is None or record.routine == name)
    ]


def recover(context: Context, ref: str) -> list[CancelResult]:
    """Let what is parked run after all, however late it is: of a routine all, else the one.

    Raises:
        UnknownOccurrence: Nothing of that name is parked.
    """
    claims = ClaimStore(context.writable_state)
    parked = [
        record for record in open_targets(context, claims, ref) if record.last == Event.PARKED.value
    ]
    found = [_unpark(context, claims, record) for record in parked]
    recovered = [one for one in found if one is not None]
    if not recovered:
        raise UnknownOccurrence(
            f"nothing of {ref} is parked", hint="`routines list` shows what is, as parked"
        )
    return recovered


def _unpark(context: Context, claims: ClaimStore, record: Record) -> CancelResult | None:
    from routines.engine.unparking import unpark

    now = context.clock.now()
    if not unpark(claims, record.path, at=now, by=context.who, person=context.is_person):
        return None
    alive = schedulers(context.state, now=now).alive
    when = "within seconds" if alive else "at the next start: no scheduler is alive"
    return CancelResult(record.ref, f"is tried again {when}")
