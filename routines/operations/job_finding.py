"""Which job a person means: by its id, or where routines are named too."""

import re
from dataclasses import dataclass

from routines.domain.record import Record
from routines.operations.context import Context
from routines.operations.job_status import JobStatus, standing_of
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.jobs import JobStore

_RERUN = re.compile(r"#[0-9]+$", re.ASCII)
# What a purge is recorded under; of a job of that name the id goes first.
_PURGE = re.compile(r"(?:job:)?(purge-[0-9a-f]{16})", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a reference names.

    Attributes:
        status: The job, and where it stands.
        record: Its claim; None while it is queued, or if that is not kept any more.
    """

    status: JobStatus
    record: Record | None


def find_job(context: Context, ref: str) -> FoundJob | None:
    """Return the job that an id, or `job:<id>`, names; None if there is none."""
    state = context.state_or_none
    if state is None or not files.names(state.at("jobs")):
        return None
    store = JobStore(state, clock=context.clock)
    known = store.find(ref.removeprefix("job:")) or store.find(ref)
    if known is None:
        return None
    return FoundJob(standing_of(state, store, ClaimStore(state), known), known.record)


def job_named(context: Context, text: str) -> FoundJob | None:
    """Return the job that *text* names where routines are named too: their names go first."""
    if text in context.workspace.names:
        return None
    # The key of a second turn names the same job.
    first = _RERUN.sub("", text) if text.startswith("job:") else text
    return find_job(context, first)


def purge_record(context: Context, ref: str) -> Record | None:
    """Return the record of the purge that *ref* names; None if it names none."""
    state, named = context.state_or_none, _PURGE.fullmatch(ref)
    if state is None or named is None or ref in context.workspace.names:
        return None
    claims = ClaimStore(state)
    for path in claims.walk(["job"]):
        record = claims.read_path(path) if named[1] in path else None
        if record is not None and record.occurrence.id == named[1]:
            return record
    return None
