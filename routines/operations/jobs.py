"""The durable queue of prompts as programs have it: `routines.Jobs`.

    from routines import Jobs

    jobs = Jobs("agents/.routines")
    jobs.add("look at the build", id="build-42", priority=5)

A scheduler on the same state folder gives queued jobs to the agent; or a program works them itself
with `claim`, `renew` and `settle`. Every call is on the disk when it returns.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from routines.agents.output import bounded
from routines.domain.clock import Clock
from routines.domain.job import MOST_AT_ONCE, MOST_SETTLED
from routines.domain.job_request import (
    DEFAULT_QUEUE,
    JobRequest,
    check_ending,
    check_id,
    check_lane,
    check_queue,
    request_of,
)
from routines.domain.outcome import LONGEST_DETAIL, one_line
from routines.engine import host
from routines.errors import InvalidJob, UnknownJob
from routines.operations.job_status import JobStatus, head_of, standing_of, with_whole_reply
from routines.store.claims import ClaimStore
from routines.store.job_cancels import CancelAnswer, JobCanceller, LaneFailed
from routines.store.job_feed import JobFeed, Settled
from routines.store.job_purges import PurgeStore
from routines.store.job_returns import SettleAnswer
from routines.store.job_work import ClaimedJob, JobWork
from routines.store.jobs import Added, JobStore, job_of
from routines.store.state import State, open_for_writing, place_of

# More than there will ever be: what is longer than a word of the machine can't be counted to.
_MOST = 999_999_999_999
# A batch of a lane that a person can wait for.
_LANE_AT_ONCE = 256
# Turns that are asked to end get their own signals first.
_LANE_WAIT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledJob:
    """An entry of the settled feed.

    Attributes:
        number: Its place in the feed: ask for what comes after it.
        id: The job's id.
        queue: Its queue; of a purge the queue that was purged.
        lane: Its lane, or None.
        outcome, reason, detail: How it ended.
        recovered: How many recoveries were used.
        ended_at: When.
        reply: The beginning of the reply, in one line, or None; `Jobs.read` has all of it.
        purged: How many jobs were purged; None for the end of one job.
    """

    number: int
    id: str
    queue: str | None
    lane: str | None
    outcome: str | None
    reason: str | None
    detail: str
    recovered: int
    ended_at: datetime | None
    reply: str | None
    purged: int | None


class Jobs:
    """The durable queue of one state folder.

    Args:
        state: The state folder; it is made if it is missing.
        clock: The clock; tests give `routines.testing.FakeClock`.
        by: Who adds, cancels and settles, for the record; by default `user@host`.
        person: Whether a person or a program asks, and not an agent from inside its turn: the
            record says which of them cancelled.
        on_change: Called when something was added or cancelled; an engine looks again then.

    Raises:
        InvalidJob: *by* is no text, or empty.
        UsageError: *state* is no path that a folder can have.
        StoreError: The state folder can't be used.
    """

    def __init__(
        self,
        state: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        by: str | None = None,
        person: bool = True,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        # What is no text would be written down, and no job of it could be read again.
        self._by = host.user_at_host() if by is None else _said("by", by)
        self._person = person
        self._on_change = on_change
        self._clock = _system_clock() if clock is None else clock
        here = host.here()
        self._state: State = open_for_writing(place_of(state), boot=here.boot)
        owner = host.owner()
        self._jobs = JobStore(self._state, clock=self._clock)
        self._work = JobWork(
            self._state,
            self._jobs,
            clock=self._clock,
            owner=owner,
            here=here,
            end_opened=self._end_opened,
        )
        self._cancels = JobCanceller(
            self._state, self._jobs, self._work, clock=self._clock, owner=owner
        )
        self._purges = PurgeStore(self._state, self._jobs, clock=self._clock)
        self._feed = JobFeed(self._state)
        self._claims = ClaimStore(self._state)

    # Adding -------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str,
        *,
        id: str | None = None,  # noqa: A002  # it is what the job is called everywhere
        queue: str = DEFAULT_QUEUE,
        lane: str | None = None,
        priority: int = 0,
        session: str | None = None,
        agent: str | None = None,
        recoveries: int = 0,
        after: datetime | timedelta | str | None = None,
    ) -> Added:
        """Add a job; it is on the disk on return.

        The same id with the same content is a `duplicate`, also after the job has ended: ids are
        remembered for 30 days after that.

        Args:
            prompt: What the agent is told, exactly; at most 1 MiB of UTF-8.
            id: Your own name for it, at most 256 characters; by default a new one is made.
            queue: At most 256 characters.
            lane: What can be failed together; at most 512 characters.
            priority: A whole number of at most ten digits; higher goes first.
            session: The conversation; by default one of its own.
            agent: Who answers; by default that of the session's routine, or the workspace's.
            recoveries: How often it may be run again after an interrupted turn; at most
                1,000,000,000.
            after: Not before this instant (aware, or RFC 3339), or span from now (`30m`).

        Raises:
            InvalidJob: A field can't be used; `field` names it. Nothing was added.
            JobConflict: The id belongs to a job of other content. Nothing was added.
        """
        request = JobRequest(
            prompt=prompt,
            id=id,
            queue=queue,
            lane=lane,
            priority=priority,
            session=session,
            agent=agent,
            recoveries=recoveries,
            after=after,
        )
        (added,) = self.add_many([request])
        return added

    def add_many(self, jobs: Iterable[JobRequest | Mapping[str, Any] | str]) -> list[Added]:
        """Add many jobs, all or none; at most 10,000 at once.

        Args:
            jobs: What `add` takes, each as a mapping, a `JobRequest`, or a prompt alone.

        Returns:
            What became of each, in the same order.

        Raises:
            InvalidJob, JobConflict: Of any of them. None was added.
        """
        if isinstance(jobs, str | Mapping) or not isinstance(jobs, Iterable):
            raise InvalidJob("jobs", "it must be a list of jobs", hint="for one job use add")
        # One more than may be: what has no end would fill the memory before anybody counted it.
        first = list(islice(jobs, MOST_AT_ONCE + 1))
        if len(first) > MOST_AT_ONCE:
            raise InvalidJob("jobs", f"more than {MOST_AT_ONCE} at once", hint="add them in parts")
        requests = [request_of(one) for one in first]
        self._purges.finish()
        added = self._jobs.add(requests, by=self._by)
        self._changed(any(one.is_new for one in added))
        return added

    def _end_opened(self, session: str) -> None:
        # Here and not above: it is needed only after a `kill -9`.
        from routines.engine.opened import end_opened

        end_opened(self._state, session, clock=self._clock)

    def _changed(self, anything: bool) -> None:
        if anything and self._on_change is not None:
            self._on_change()

    # Looking ------------------------------------------------------------------------------------

    def read(self, job: str) -> JobStatus:
        """Return one job, and where it stands, with all of its reply.

        Of a reply the first and the last 512 KiB are kept, as long as output is; after that its
        beginning is left.

        Raises:
            UnknownJob: There is none of that id.
        """
        job_id = check_id(job, "job")
        self._purges.finish()
        known = self._jobs.find(job_id)
        if known is None:
            raise UnknownJob(job)
        status = standing_of(self._state, self._jobs, self._claims, known)
        return with_whole_reply(self._state, status, known.record)

    def head(self, queue: str | None = DEFAULT_QUEUE, *, limit: int = 20) -> list[JobStatus]:
        """Return what runs of a queue, then what is next, in its order.

        Args:
            queue: Which; None for all.
            limit: How many at most.
        """
        limit = _whole("limit", limit, least=1)
        queue = None if queue is None else check_queue(queue)
        self._purges.finish()
        return head_of(self._state, self._jobs, queue=queue, limit=limit)

    def settled(self, after: int = 0, limit: int = MOST_SETTLED) -> list[SettledJob]:
        """Return what was settled, in order, without a gap: the feed after the number *after*.

        Ask again with the last number that you have dealt with. Nothing is ever inserted before a
        number that was read; what retention has removed is passed over. Each shows the beginning
        of its reply, in one line: `read` has all of it.

        Args:
            after: A number that `settled` returned, 0 for the beginning.
            limit: 1 to 256.
        """
        after = _whole("after", after, least=0)
        limit = _whole("limit", limit, least=1, most=MOST_SETTLED)
        self._catch_up()
        return [self._settled(entry) for entry in self._feed.page(after, limit)]

    def _catch_up(self) -> None:
        """Finish what others have died over: a purge, and ends that are not in the feed."""
        self._purges.finish()
        self._work.publish_ended()

    def _settled(self, entry: Settled) -> SettledJob:
        record = self._feed.record(entry)
        job = None if record is None else job_of(record)
        end = {} if record is None or record.end is None else record.end
        purge = {} if record is None else record.claim.get("purge") or {}
        return SettledJob(
            number=entry.number,
            id=entry.key if record is None else record.occurrence.id,
            queue=purge.get("queue") if job is None else job.queue,
            lane=None if job is None else job.lane,
            outcome=end.get("outcome"),
            reason=end.get("reason"),
            detail=str(end.get("detail") or ""),
            recovered=0 if record is None else record.reruns,
            ended_at=None if record is None else record.ended_at,
            reply=end.get("reply") or None,
            purged=purge.get("count"),
        )

    def pending(self) -> bool:
        """Return whether any job is queued, waits for its time, or is not in the feed yet."""
        self._catch_up()
        return self._jobs.has_queued() or self._jobs.has_open()

    # Stepping in --------------------------------------------------------------------------------

    def cancel(
        self, job: str, intent_id: str, *, only_if_queued: bool = False, reason: str = ""
    ) -> CancelAnswer:
        """Cancel a job: one that is queued has ended on return, one that runs is asked to.

        Args:
            job: Its id.
            intent_id: Your own name for this cancel: with the same one, asking again is a repeat.
            only_if_queued: Whether one that runs is to be left alone.
            reason: Kept in the record.

        Returns:
            `recorded`, `replayed` (this intent was recorded before), `conflict` (it has ended, or
            runs and was to be left alone) or `missing`.

        Raises:
            StoreBusy: It was not free within a few seconds; nothing was recorded. Ask again, by
                the same intent.
        """
        answer = self._cancels.cancel(
            check_id(job, "job"),
            check_id(intent_id, "intent_id"),
            by=self._by,
            person=self._person,
            reason=_line("reason", reason),
            only_if_queued=_flag("only_if_queued", only_if_queued),
        )
        self._changed(answer.word == "recorded")
        return answer

    def fail_lane(
        self,
        lane: str,
        reason: str,
        *,
        limit: int = _LANE_AT_ONCE,
        wait: timedelta = _LANE_WAIT,
    ) -> LaneFailed:
        """Fail what runs and what is queued in a lane, what runs first, at most *limit* jobs.

        Call again while `more` is set. What an earlier call has asked to end is awaited again and
        does not count, so that each call gets on; a program that works a job and is gone holds it
        for as long as its lease lasts.

        Args:
            lane: Which.
            reason: Kept in each record; must not be empty.
            limit: How many in one call, at least 1.
            wait: How long the ends of running turns are awaited.
        """
        if not isinstance(wait, timedelta):
            raise InvalidJob(
                "wait", f"it must be a timedelta, not {type(wait).__name__}", hint="timedelta(0)"
            )
        if wait < timedelta(0):
            raise InvalidJob("wait", "it is negative", hint="timedelta(0)")
        return self._cancels.fail_lane(
            check_lane(lane),
            _said("reason", reason),
            by=self._by,
            person=self._person,
            limit=_whole("limit", limit, least=1),
            wait_s=wait.total_seconds(),
        )

    def purge(self, queue: str) -> int:
        """Forget what is queued in a queue, with its ids; return how many there were.

        What runs goes on. One record says how many were purged, and by whom.

        Raises:
            StoreBusy: The queue was not free within a few seconds; nothing was purged.
        """
        return self._purges.purge(check_queue(queue), by=self._by)

    # Working jobs oneself -----------------------------------------------------------------------

    def claim(self, queue: str | None = None) -> ClaimedJob | None:
        """Claim the next job of a queue, or of all queues; None if nothing may run now.

        The lease lasts 120 s: call `renew` every 10 s while you work, and `settle` at the end.
        Keep the token to yourself.
        """
        queue = None if queue is None else check_queue(queue)
        self._catch_up()
        return self._work.claim(queue)

    def renew(self, job: str, token: str) -> None:
        """Renew the lease of a job that you work.

        Raises:
            LeaseLost: It lapsed, was settled, is to be cancelled, or is not yours: stop working.
            UnknownJob: There is none of that id.
            StoreBusy: It was not free within a few seconds; the lease is as it was. Renew again.
        """
        self._work.renew(check_id(job, "job"), _token(token))

    def settle(
        self, job: str, token: str, ending: str, *, detail: str = "", reply: str = ""
    ) -> SettleAnswer:
        """Say how the work on a job has ended.

        Args:
            job: Its id.
            token: What `claim` gave you.
            ending: `completed`, `failed` (with a *detail*), `cancelled`, `interrupted` (it may be
                run again, if it has recoveries left) or `outcome-unknown` (it never is).
            detail: Why, in one line.
            reply: What came of it. Of a long one the first and the last 512 KiB are kept.
                What the record and the feed show of it is folded into one line. Half a surrogate
                pair, which has no bytes, is kept as its escape: a reply is never refused for it.

        Returns:
            `settled`, `requeued`, `replayed` (you said the same before) or `conflict` (it is not
            yours, has lapsed, or has ended otherwise).

        Raises:
            UnknownJob: There is none of that id.
            StoreBusy: It was not free within a few seconds; it is not settled. Say it again.
        """
        said = check_ending(ending, detail)
        if not isinstance(reply, str):
            raise InvalidJob("reply", f"it must be text, not {type(reply).__name__}")
        line = _line("detail", detail)
        job_id, secret = check_id(job, "job"), _token(token)
        self._work.publish_ended()
        kept, _ = bounded(reply)
        return self._work.settle(job_id, secret, said, detail=line, reply=kept)


def _whole(field: str, value: Any, *, least: int, most: int = _MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(field, f"it must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        # Without the number: one of many thousand digits can't even be written.
        raise InvalidJob(field, "it is out of bounds", hint=f"from {least} to {most}")
    return value


def _flag(field: str, value: Any) -> bool:
    # The text "false" would count as true: a job that runs would be left alone, or the reverse.
    if not isinstance(value, bool):
        raise InvalidJob(field, f"it must be True or False, not {type(value).__name__}")
    return value


def _line(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidJob(field, f"it must be text, not {type(value).__name__}")
    return one_line(value, most=LONGEST_DETAIL)


def _said(field: str, value: Any) -> str:
    line = _line(field, value)
    if not line:
        raise InvalidJob(field, "it is empty")
    return line


def _token(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidJob("token", f"it must be text, not {type(value).__name__}")
    return value


def _system_clock() -> Clock:
    from routines.engine.clock import SystemClock

    return SystemClock()


# What answers are made of.
__all__ = [
    "Added",
    "CancelAnswer",
    "ClaimedJob",
    "JobRequest",
    "JobStatus",
    "Jobs",
    "LaneFailed",
    "SettleAnswer",
    "SettledJob",
]
