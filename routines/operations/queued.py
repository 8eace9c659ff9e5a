"""How many jobs are queued, by names alone: for screens that are to be quick."""

from itertools import islice

from routines.operations.context import Context
from routines.store import files

# Beyond this a count says "more than": nobody waits for the names of a million.
MOST_COUNTED = 1000


def count_queued(context: Context, queue: str | None = None) -> int:
    """Return how many jobs are queued and due, in one queue or in all.

    More than `MOST_COUNTED` only says that.
    """
    state = context.state_or_none
    if state is None or not files.names(state.at("jobs")):
        return 0
    # Here and not above: most state folders have none. And no more than the order: the whole store
    # takes longer to load than its names to count.
    from routines.store.job_index import queued

    if files.names(state.at("jobs", "batches")):
        # Many were accepted at once, and are not all named yet: for seconds, or since a crash.
        from routines.store.jobs import JobStore

        jobs = JobStore(state, clock=context.clock).in_order(queue)
        return sum(1 for _ in islice(filter(None, jobs), MOST_COUNTED + 1))
    return sum(1 for _ in islice(queued(state, queue).walk(), MOST_COUNTED + 1))
