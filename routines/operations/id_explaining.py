"""`explain` for what only its id names: a wake-up's firing or a run by hand; by the files alone."""

import re

from routines.domain.occurrence import Kind
from routines.domain.record import Record
from routines.operations.context import Context
from routines.operations.entries import asked_to_end
from routines.operations.explanation import Explanation, Verdict
from routines.operations.finding import find
from routines.operations.history import as_entry
from routines.operations.pending import held_by
from routines.operations.steps import steps_of

_NAMES_ONE = re.compile(r"w-[a-z0-9]{4,40}|([0-9a-f-]{36}/)?(wake|manual):.+", re.ASCII)


def explain_id(context: Context, text: str) -> Explanation | None:
    """Return what became of what *text* names by its id, or of a wake-up's newest firing.

    None if it has not the form of such an id.

    Raises:
        UnknownOccurrence: It has, and nothing is recorded of it.
    """
    if text in context.workspace.names or not _NAMES_ONE.fullmatch(text):
        return None
    record = find(context, text)
    if not isinstance(record, Record) or record.occurrence.kind not in (Kind.WAKE, Kind.MANUAL):
        return None
    entry = as_entry(context, record)
    waits = entry.outcome is None and not entry.is_running
    held = held_by(context.state, record.routine, now=context.clock.now()) if waits else None
    cancel = asked_to_end(context.state, record)
    return Explanation(
        routine=record.routine or record.session or record.occurrence.owner,
        at=record.occurrence.instant,
        tz=context.zone_of(record.routine).key,
        verdict=Verdict.RECORDED,
        entry=entry,
        steps=tuple(steps_of(record, entry, None, digest=None, cancel=cancel)),
        # What comes next is no slot of a routine.
        job="",
        paused=held,
    )
