"""Pause, resume and recover: what a person in charge holds back, and lets go again.

Each act says who did it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from routines.domain.names import format_instant
from routines.domain.record import Event
from routines.errors import UnknownOccurrence, UnknownRoutine, UsageError
from routines.operations.context import Context
from routines.operations.stepping_in import CancelResult, cancel_one, open_targets
from routines.store.claims import ClaimStore
from routines.store.control import SwitchStore

if TYPE_CHECKING:
    from routines.engine.pausing import Pausing


@dataclass(frozen=True, slots=True)
class PauseResult:
    """What came of a pause or a resume.

    Attributes:
        routine: Which; None for everything.
        changed: Whether it was not so before.
        until: Until when it is paused, or None.
        cancelled: What of it was asked to end.
    """

    routine: str | None
    changed: bool
    until: datetime | None = None
    cancelled: tuple[CancelResult, ...] = ()


def pause(
    context: Context,
    names: Sequence[str],
    *,
    all_: bool = False,
    tag: str | None = None,
    until: datetime | None = None,
    reason: str = "",
    now_: bool = False,
) -> list[PauseResult]:
    """Keep routines armed and start nothing of them, their sessions' wake-ups included.

    Args:
        context: Where and when, and who asks.
        names: The routines.
        all_: Everything instead, wake-ups and all.
        tag: The routines that carry it, besides *names*.
        until: When it ends by itself, aware; None for when it is resumed.
        reason: In words, for those who wonder.
        now_: Whether what runs is cancelled too.

    Raises:
        UnknownRoutine: There is none of that name; nothing was paused.
    """
    pausing = _pausing(context)
    now = context.clock.now()
    results = []
    for name in _chosen(context, names, all_=all_, tag=tag):
        before = SwitchStore(context.writable_state).held(name, now=now)
        pausing.pause(name, now=now, until=until, reason=reason)
        ended = tuple(_cancel_all(context, name, reason or "paused")) if now_ else ()
        results.append(PauseResult(name, before is None, until, ended))
    return results


def resume(
    context: Context, names: Sequence[str], *, all_: bool = False, tag: str | None = None
) -> list[PauseResult]:
    """End pauses; what was passed over is one counted record for each routine.

    Raises:
        UnknownRoutine: There is none of that name; nothing was resumed.
    """
    pausing = _pausing(context)
    now = context.clock.now()
    return [
        PauseResult(name, pausing.resume(name, now=now) is not None)
        for name in _chosen(context, names, all_=all_, tag=tag)
    ]


def _pausing(context: Context) -> "Pausing":
    from routines.engine.pausing import Pausing

    return Pausing(context.writable_state, by=context.who)


def _chosen(
    context: Context, names: Sequence[str], *, all_: bool, tag: str | None
) -> list[str | None]:
    if all_:
        return [None]
    known = context.workspace.names
    for name in names:
        if name not in known:
            raise UnknownRoutine(name, known)
    routines = context.workspace.routines.values()
    tagged = [routine.name for routine in routines if tag is not None and tag in routine.tags]
    chosen = list(dict.fromkeys([*names, *tagged]))
    if not chosen:
        raise UsageError(
            "which routines?" if tag is None else f"no routine carries the tag {tag!r}",
            hint="name one, or say --tag TAG or --all",
        )
    return list(chosen)


def _cancel_all(context: Context, name: str | None, reason: str) -> list[CancelResult]:
    claims = ClaimStore(context.writable_state)
    found = []
    for entry in claims.open_entries(routine=name):
        record = claims.read_path(entry.claim_path)
        if record is not None and record.end is None and record.is_under_way:
            found.append(cancel_one(context, claims, record, reason))
    return found


def recover(context: Context, ref: str) -> CancelResult:
    """Let a parked occurrence run after all, however late it is.

    Raises:
        UnknownOccurrence: Nothing of that name is parked.
    """
    claims = ClaimStore(context.writable_state)
    now = context.clock.now()
    for record in open_targets(context, claims, ref):
        if record.last != Event.PARKED.value:
            continue
        for entry in claims.open_entries():
            claim = claims.hold(entry) if entry.claim_path == record.path else None
            if claim is None:
                continue
            try:
                if claim.record.last == Event.PARKED.value:
                    claim.append(
                        Event.RETRY,
                        at=now,
                        until=format_instant(now),
                        by=context.who,
                        person=True,
                        detail="recovered",
                    )
                    return CancelResult(record.ref, "is tried again within seconds")
            finally:
                claim.let_go()
    raise UnknownOccurrence(
        f"nothing of {ref} is parked", hint="`routines list` shows what is, as parked"
    )
