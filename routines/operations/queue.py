"""`routines jobs`: the queue as a person sees it, and what the command does to it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.errors import (
    InvalidJob,
    InvalidWhen,
    UnknownAgent,
    UnknownJob,
)
from routines.operations.context import Context
from routines.operations.job_finding import find_job
from routines.operations.job_status import JobStatus, head_of, with_whole_reply
from routines.operations.jobs import Jobs
from routines.operations.life import schedulers
from routines.operations.queued import count_queued
from routines.store import files
from routines.store.job_cancels import CancelAnswer
from routines.store.jobs import Added, JobStore


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
    from routines.operations.holding import session_of

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
    """Return `--after` as it was written, but a date with a time as the instant in our zone.

    No other words than these: `tomorrow` and `09:00` mean another instant when they are said again,
    and a repeat has to be the same (J1).
    """
    from routines.domain.when import parse_when, read_date_time

    if after is None:
        return None
    try:
        if read_date_time(after) is None:
            # A span, or refused where all else of the job is checked.
            return after
        return parse_when(after, zone=context.zone, now=context.clock.now(), past=False)
    except InvalidWhen as error:
        raise InvalidJob("after", error.message, hint=error.hint) from error
    except ValueError as error:
        raise InvalidJob("after", f"{after[:60]!r} is no time: {error}") from error


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


def show_job(context: Context, job_id: str) -> JobStatus:
    """Return one job whole, with all that is kept of its reply; writes nothing.

    Raises:
        UnknownJob: There is none of that id.
    """
    found = find_job(context, job_id)
    if found is None:
        raise UnknownJob(job_id)
    return with_whole_reply(context.state, found.status, found.record)


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
