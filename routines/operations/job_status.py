"""Where a job stands, and what runs and comes next of a queue: read from the files alone."""

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from routines.domain.job import Job
from routines.domain.names import format_instant
from routines.domain.outcome import State
from routines.domain.record import Event, Record
from routines.operations.entries import asked_to_end, cancel_words, reply_of
from routines.operations.life import (
    is_left_unstarted,
    lease_words,
    state_word,
    unstarted_words,
    waits_for_lease,
)
from routines.store.claims import ClaimStore
from routines.store.jobs import JobStore, Known, job_of
from routines.store.state import State as StateFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job, and where it stands.

    Attributes:
        job: What was asked.
        state: `waiting` (queued), `deferred` (queued, not before its time), `claimed`, `running`,
            `retrying`, `parked`, `lost`, `unknown` (it can't be told from here whether its worker
            lives), `settled`.
        outcome, reason: How it ended; None before that.
        detail: Why, or what is known of it before its end; may be empty.
        recovered: How many of its recoveries are used.
        cancel_asked: Whether its cancel was asked for and has not ended it yet.
        claimed_at, started_at, ended_at: When; None for what has not happened.
        reply: The reply, or None: its beginning in a list, and where its output is not kept any
            more; else all of it, within what is kept of one (1 MiB).
    """

    job: Job
    state: str
    outcome: str | None = None
    reason: str | None = None
    detail: str = ""
    recovered: int = 0
    cancel_asked: bool = False
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reply: str | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    def to_json(self) -> dict[str, Any]:
        """Return it as `routines jobs --json` shows it."""
        asked = self.job.to_json()
        del asked["digest"], asked["number"]
        return {
            **asked,
            "state": self.state,
            "outcome": self.outcome,
            "reason": self.reason,
            "detail": self.detail,
            "recovered": self.recovered,
            "cancel_asked": self.cancel_asked,
            "claimed_at": _text(self.claimed_at),
            "started_at": _text(self.started_at),
            "ended_at": _text(self.ended_at),
            "reply": self.reply,
        }


def head_of(
    state: StateFolder, store: JobStore, *, queue: str | None, limit: int
) -> list[JobStatus]:
    """Return what runs of a queue, then what is next in it, at most *limit*."""
    claims = ClaimStore(state)
    found = []
    for record in store.open_records():
        job = job_of(record)
        if job is not None and queue in (None, job.queue):
            found.append(status_of(state, claims, job, record))
    found.sort(key=lambda one: (one.state != State.RUNNING.value, one.job.place.order))
    # A few more names than are shown: some may lead to what was claimed this moment.
    for job in islice(store.in_order(queue), limit + len(found) + 16):
        if len(found) >= limit:
            break
        if job is not None and not claims.is_claimed(job.occurrence):
            found.append(JobStatus(job=job, state=State.WAITING.value))
    return found[:limit]


def standing_of(state: StateFolder, store: JobStore, claims: ClaimStore, known: Known) -> JobStatus:
    """Return where a job stands, claimed or not."""
    if known.record is not None:
        return status_of(state, claims, known.job, known.record)
    if not known.is_queued:
        detail = "its record is not kept any more"
        return JobStatus(job=known.job, state=State.SETTLED.value, detail=detail)
    queued = State.DEFERRED if store.is_waiting(known.job) else State.WAITING
    return JobStatus(job=known.job, state=queued.value)


def with_whole_reply(state: StateFolder, one: JobStatus, record: Record | None) -> JobStatus:
    """Return a job with all of its reply, as far as that is kept; one that has none as it is."""
    if record is None or one.reply is None:
        return one
    return replace(one, reply=reply_of(state, record) or one.reply)


def status_of(state: StateFolder, claims: ClaimStore, job: Job, record: Record) -> JobStatus:
    """Return where a claimed job stands."""
    end = record.end or {}
    last = record.events[-1] if record.events else {}
    cancel = asked_to_end(state, record)
    said = str(end.get("detail") or last.get("detail") or "")
    if waits_for_lease(claims, record):
        said = lease_words(record)
    elif is_left_unstarted(claims, record):
        said = unstarted_words(record)
    return JobStatus(
        job=job,
        state=state_word(claims, record),
        outcome=None if record.outcome is None else record.outcome.value,
        reason=None if record.reason is None else record.reason.value,
        detail="; ".join(part for part in (said, cancel_words(cancel)) if part),
        recovered=record.reruns,
        cancel_asked=cancel is not None or record.last == Event.CANCELLING.value,
        claimed_at=record.claimed_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        reply=end.get("reply") or None,
    )


def _text(at: datetime | None) -> str | None:
    return None if at is None else format_instant(at)
