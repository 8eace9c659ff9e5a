"""`explain` for a job: what became of it, or what it waits for; from the files alone."""

from datetime import datetime
from itertools import islice

from routines.domain.names import routine_of
from routines.domain.record import Record
from routines.errors import UnknownJob
from routines.operations.busy import busy_in
from routines.operations.context import Context
from routines.operations.deciding import Decider
from routines.operations.entries import asked_to_end
from routines.operations.explanation import Explanation, Verdict, escaped, silence
from routines.operations.history import as_entry
from routines.operations.job_finding import job_named, purge_record
from routines.operations.job_status import JobStatus
from routines.operations.life import schedulers
from routines.operations.pending import Held, held_by, ordinal
from routines.operations.queued import MOST_COUNTED
from routines.operations.steps import steps_of
from routines.store.jobs import JobStore, job_of


def explain_job(context: Context, text: str) -> Explanation | None:
    """Return what became of a job or a purge, or what it waits for; None if *text* names neither.

    Raises:
        UnknownJob: It is `job:<id>`, and there is none of that id.
    """
    job = job_named(context, text)
    record = purge_record(context, text) if job is None else job.record
    if record is not None:
        return _of_record(context, record)
    if job is not None:
        return _queued(context, job.status)
    if text.startswith("job:"):
        raise UnknownJob(text.removeprefix("job:"))
    return None


def _of_record(context: Context, record: Record) -> Explanation:
    entry = as_entry(context, record)
    job = job_of(record)
    session = record.session or ""
    waits = entry.outcome is None and not entry.is_running
    return Explanation(
        routine=record.routine or session,
        at=record.occurrence.instant,
        tz=context.zone.key,
        verdict=Verdict.RECORDED,
        entry=entry,
        steps=tuple(
            steps_of(record, entry, None, digest=None, cancel=asked_to_end(context.state, record))
        ),
        job=record.occurrence.id if job is not None else "",
        paused=_held(context, session) if waits else None,
    )


def _held(context: Context, session: str) -> Held | None:
    return held_by(context.state_or_none, routine_of(session), now=context.clock.now())


def _queued(context: Context, status: JobStatus) -> Explanation:
    job, now = status.job, context.clock.now()
    verdict, why = Verdict.WAITING, ""
    instants: tuple[datetime, ...] = ()
    alive = schedulers(context.state, now=now)
    held = _held(context, job.session)
    if status.state == "settled":
        verdict, why = Verdict.UNKNOWN, "it has ended, and its record is not kept any more"
    elif status.state == "deferred" and job.not_before is not None:
        verdict, why, instants = Verdict.NOT_YET, "it is not to start before {0}", (job.not_before,)
    elif held is not None:
        what = "everything is paused" if held.everything else "its routine is paused"
        verdict, why, instants = Verdict.PAUSED, f"{what} by {held.by} since {{0}}", (held.since,)
    elif not alive.alive:
        said, since = silence(alive)
        verdict, instants = Verdict.OWED, since
        over = _over_limit(context, job.session, now)
        then = "The next start runs it, unless a program claims it first"
        why = f"{said}. {f'And until tomorrow {over}' if over else then}"
    else:
        over = _over_limit(context, job.session, now)
        why = f"until tomorrow: {over}" if over else _waits_for(context, status)
    return Explanation(
        routine=routine_of(job.session) or job.session,
        at=job.added_at,
        tz=context.zone.key,
        verdict=verdict,
        why=why,
        instants=instants,
        job=job.id,
    )


def _over_limit(context: Context, session: str, now: datetime) -> str:
    routine = context.workspace.routines.get(routine_of(session) or "")
    return Decider(context).over_limit(routine, now)


def _waits_for(context: Context, status: JobStatus) -> str:
    state, job = context.state, status.job
    busy = busy_in(state, job.session)
    if busy is not None:
        return "its session is busy" + (f": {escaped(busy.holder)}" if busy.holder else "")
    places = islice(JobStore(state, clock=context.clock).orders.queued(), MOST_COUNTED)
    for index, place in enumerate(places, 1):
        if place.key == job.place.key:
            return f"{ordinal(index)} in line over all queues"
    return f"more than {MOST_COUNTED} are before it"
