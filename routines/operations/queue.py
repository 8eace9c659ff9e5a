"""`routines jobs`: the queue as a person sees it, and what the command does to it."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.record import Record
from routines.errors import RoutinesError, UnknownAgent, UnknownJob
from routines.operations.context import Context
from routines.operations.jobs import Jobs, JobStatus, head_of, standing_of
from routines.operations.life import schedulers
from routines.operations.queued import count_queued
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.job_cancels import CancelAnswer
from routines.store.jobs import Added, JobStore

_RERUN = re.compile(r"#[0-9]+$", re.ASCII)
# What a purge is recorded under; of a job of that name the id goes first.
_PURGE = re.compile(r"(?:job:)?(purge-[0-9a-f]{16})", re.ASCII)


@dataclass(frozen=True, slots=True)
class QueueList:
    """What runs and what is next.

    Attributes:
        queue: Which queue, or None for all.
        jobs: What runs first, then what is queued, in its order.
        waiting: How many are queued and due; `MOST_COUNTED + 1` means more than that.
        next_later: When the next one of them that waits for its time is due, or None.
        alive: Whether a scheduler is alive that drains it.
    """

    queue: str | None
    jobs: tuple[JobStatus, ...]
    waiting: int
    next_later: datetime | None
    alive: bool

    def to_json(self) -> list[dict[str, Any]]:
        """Return them as `jobs list --json` shows them."""
        return [one.to_json() for one in self.jobs]


@dataclass(frozen=True, slots=True)
class AddedJob:
    """What became of `jobs add`.

    Attributes:
        added: The id, and whether it is new.
        status: Where the job stands.
        alive: Whether a scheduler is alive that drains the queue.
    """

    added: Added
    status: JobStatus
    alive: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as `jobs add --json` shows it."""
        return {"id": self.added.id, "result": self.added.word, "job": self.status.to_json()}


def _jobs(context: Context) -> Jobs:
    return Jobs(
        context.writable_state.path,
        clock=context.clock,
        by=context.who,
        person=context.is_person,
    )


def add_job(
    context: Context,
    prompt: str,
    *,
    job_id: str | None,
    queue: str,
    lane: str | None,
    priority: int,
    session: str | None,
    agent: str | None,
    recoveries: int,
    after: str | None,
) -> AddedJob:
    """Add one job.

    Raises:
        InvalidJob, JobConflict: Nothing was added.
        UnknownAgent, UnknownSession: The workspace has none of that name; nothing was added.
    """
    from routines.operations.stepping_in import session_of

    settings = context.workspace.settings
    if agent is not None and settings.spec_of(agent) is None:
        raise UnknownAgent(agent, settings.agent_names)
    jobs = _jobs(context)
    added = jobs.add(
        prompt,
        id=job_id,
        queue=queue,
        lane=lane,
        priority=priority,
        session=None if session is None else session_of(context, session),
        agent=agent,
        recoveries=recoveries,
        after=_after(context, after),
    )
    alive = schedulers(context.state, now=context.clock.now()).alive
    return AddedJob(added, jobs.read(added.id), alive)


def _after(context: Context, after: str | None) -> str | datetime | None:
    """Return `--after` as a span, or as the instant that WHEN names in the workspace's zone."""
    from routines.domain.durations import parse_span
    from routines.domain.when import parse_when

    if after is None:
        return None
    try:
        parse_span(after)
    except RoutinesError:
        return parse_when(after, zone=context.zone, now=context.clock.now(), past=False)
    return after


def list_jobs(context: Context, *, queue: str | None, count: int) -> QueueList:
    """Return what runs and what is next, of one queue or of all; writes nothing."""
    state = context.state_or_none
    now = context.clock.now()
    alive = schedulers(state, now=now).alive
    if state is None or not files.names(state.at("jobs")):
        return QueueList(queue, (), 0, None, alive)
    store = JobStore(state, clock=context.clock)
    found = head_of(state, store, queue=queue, limit=count)
    waiting = count_queued(context, queue)
    return QueueList(queue, tuple(found), waiting, store.orders.next_later(queue), alive)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a reference names.

    Attributes:
        status: The job, and where it stands.
        record: Its claim; None while it is queued, or if that is not kept any more.
    """

    status: JobStatus
    record: Record | None


def show_job(context: Context, job_id: str) -> JobStatus:
    """Return one job whole; writes nothing.

    Raises:
        UnknownJob: There is none of that id.
    """
    found = find_job(context, job_id)
    if found is None:
        raise UnknownJob(job_id)
    return found.status


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


def cancel_job(
    context: Context,
    job_id: str,
    *,
    intent: str | None,
    only_if_queued: bool,
    reason: str,
) -> CancelAnswer:
    """Cancel a job.

    Raises:
        UnknownJob: There is none of that id.
    """
    job = show_job(context, job_id)
    return cancel_shown(context, job, intent=intent, only_if_queued=only_if_queued, reason=reason)


def cancel_shown(
    context: Context, job: JobStatus, *, intent: str | None, only_if_queued: bool, reason: str
) -> CancelAnswer:
    """Cancel a job that was looked up just now."""
    import secrets

    return _jobs(context).cancel(
        job.id,
        intent or f"cancel-{secrets.token_hex(6)}",
        only_if_queued=only_if_queued,
        reason=reason,
    )
