"""Which agents do the jobs of a workspace need, whether or not a routine uses them too?"""

from collections.abc import Iterator
from itertools import islice

from routines.domain.job import Job
from routines.engine.recipients import in_charge_of
from routines.operations.context import Context
from routines.operations.job_status import head_of
from routines.store import files
from routines.store.jobs import JobStore
from routines.store.sessions import SessionStore
from routines.store.state import State

# What goes next says enough of who is to answer; a queue may hold any number.
_LOOKED_AT = 200


def agents_of_jobs(context: Context) -> list[str]:
    """Return the agents that jobs are for, sorted; an empty name where none is named anywhere.

    The workspace's is one of them as soon as anything was ever put into the queue. Of what is
    queued the jobs that run and go next are read, and those that wait for their time.
    """
    state = context.state_or_none
    if state is None or not files.names(state.at("jobs")):
        return []
    usual = context.workspace.settings.agent
    found = {_agent_of(context, state, job) for job in _jobs(context, state)}
    return sorted(found if usual is None else found | {usual})


def _jobs(context: Context, state: State) -> Iterator[Job]:
    store = JobStore(state, clock=context.clock)
    for one in head_of(state, store, queue=None, limit=_LOOKED_AT):
        yield one.job
    for place in islice(store.orders.later_places(), _LOOKED_AT):
        job = store.peek(place)
        if job is not None:
            yield job


def _agent_of(context: Context, state: State, job: Job) -> str:
    """Return who would answer a job, in the order in which a turn of it looks."""
    if job.agent is not None:
        return job.agent
    routine = in_charge_of(job.session, context.workspace.routines)
    if routine is not None:
        return routine.agent or ""
    settings = context.workspace.settings
    ledger = SessionStore(state).peek(job.session)
    known = None if ledger is None else ledger.agent
    if known is not None and settings.spec_of(known) is not None:
        return known
    return settings.agent or ""
