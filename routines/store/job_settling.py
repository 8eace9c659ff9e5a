"""How a job's end and what is asked of it meet: in one order, so that neither is lost.

A cancel that is recorded before the settlement makes the outcome `cancelled`. So whoever records
one, and whoever settles, does it under one short lock of that job.
"""

import contextlib
from typing import Any

from routines.domain.names import key_of
from routines.domain.occurrence import Occurrence
from routines.domain.record import Event, Record
from routines.store import files
from routines.store.cancels import Cancel, CancelStore
from routines.store.state import State

# Lock files stay for ever, since one that is removed can be locked by two. A fixed number of them
# serves any number of jobs: two that share one wait a few milliseconds for each other.
_LOCKS = 3  # hexadecimal digits: 4096


def settling(state: State, occurrence: Occurrence) -> contextlib.AbstractContextManager[None]:
    """Hold the lock under which a job is settled or cancelled; nothing for what is no job."""
    if not occurrence.is_job:
        return contextlib.nullcontext()
    name = f"{key_of(occurrence.id)[:_LOCKS]}.lock"
    return files.section(state.at("locks", "jobs", name), what=occurrence.ref)


def called_off(state: State, record: Record) -> Cancel | None:
    """Take up a cancel of a job that was recorded and has not ended it, or None; under its lock."""
    return CancelStore(state).take_up(record.ref)


def intents_of(state: State, record: Record) -> dict[str, Any]:
    """Return what an outcome says of the intents that programs had: a repeat is known by it."""
    found = [*_noted(record), *CancelStore(state).intents(record.ref)]
    return {"intents": sorted(set(found))} if found else {}


def _noted(record: Record) -> list[str]:
    line = record.newest(Event.CANCELLING) or {}
    intent = line.get("intent")
    return [] if intent is None else [str(intent)]


def knows_intent(state: State, record: Record, intent: str) -> bool:
    """Return whether an intent of that name was recorded for a job before."""
    end = record.end or {}
    return intent in (*(end.get("intents") or ()), *intents_of(state, record).get("intents", ()))
