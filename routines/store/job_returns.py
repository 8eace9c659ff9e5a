"""How a job comes back from the program that works it: settled by it, or since its lease lapsed.

An interrupted one goes back to the queue under the same claim, or is settled (PROMISES J2, J3).
Whoever calls holds the claim, and the lock under which a job is settled or cancelled.
"""

import contextlib
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.clock import Clock
from routines.domain.job import OUTCOMES, Ending
from routines.domain.names import format_instant
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.record import Event, Owner, Record
from routines.errors import StoreError
from routines.store import files
from routines.store.cancels import Cancel, CancelStore
from routines.store.claim import Claim
from routines.store.job_leases import JobLeases
from routines.store.job_settling import called_off, intents_of
from routines.store.jobs import job_of
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State

# History shows the beginning of a reply.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """What came of a settlement.

    Attributes:
        word: `settled`, `requeued` (interrupted, with recoveries left), `replayed` or `conflict`.
        outcome: How the job has ended, or None if it has not.
        detail: Why it is a conflict, or why the outcome is another than was said.
    """

    word: str
    outcome: str | None
    detail: str = ""


def _why_otherwise(cancel: Cancel | None) -> str:
    """Return why the outcome is another than was said; empty if it is not."""
    if cancel is None:
        return ""
    return "its lane was failed" if cancel.lane else "it was cancelled"


class JobReturns:
    """Takes the jobs of one state folder back from the programs that work them."""

    def __init__(self, state: State, *, clock: Clock, owner: Owner, leases: JobLeases) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner
        self._leases = leases
        self._sessions = SessionStore(state)
        self._cancels = CancelStore(state)

    def settle(
        self, claim: Claim, ending: Ending, detail: str, reply: str, asked: str
    ) -> SettleAnswer:
        """Settle a job as the program says that worked it, or put it back; its claim is held.

        Under its lock. *asked* tells a repeat of the same settlement.
        """
        now = self._clock.now()
        record = claim.record
        cancel = called_off(self._state, record)
        outcome, reason = OUTCOMES[ending]
        more: dict[str, Any] = {"asked": asked, "reply": one_line(reply, most=_SHOWN)}
        # What has no words of its own is told by its reason, as if it had been a turn of ours.
        said = detail or f"its worker said {ending.value}"
        if cancel is not None:
            outcome, reason = cancel.end
            more["by"] = cancel.by
            detail = "; ".join(part for part in (cancel.reason, said) if part)
        elif ending is Ending.INTERRUPTED and self._requeue(claim, said, now, asked=asked):
            return SettleAnswer("requeued", None)
        elif ending is not Ending.COMPLETED:
            detail = said
            if ending is Ending.CANCELLED:
                more["by"] = self._owner.user
        if reply:
            self._keep(claim, reply)
        self._end(claim, outcome, reason, detail, now, **more)
        return SettleAnswer("settled", outcome.value, _why_otherwise(cancel))

    def _keep(self, claim: Claim, reply: str) -> None:
        """Keep a whole reply where `show` looks for it; for people, so nothing fails for it."""
        folder = self._state.at("output", claim.occurrence.place)
        with contextlib.suppress(OSError):
            files.add_folder(folder)
            data = reply.encode("utf-8", "backslashreplace")
            files.replace(os.path.join(folder, "reply.md"), data, sync=False)

    def take_back(self, claim: Claim) -> Record:
        """Take a job back whose lease has lapsed and whose claim is held, under its lock."""
        now, record = self._clock.now(), claim.record
        cancel = called_off(self._state, record)
        owner = record.owner
        who = "its worker" if owner is None else f"{owner.user} (pid {owner.pid})"
        detail = f"the lease of {who} lapsed"
        if cancel is not None:
            outcome, reason = cancel.end
            said = "; ".join(part for part in (cancel.reason, detail) if part)
            self._end(claim, outcome, reason, said, now, by=cancel.by)
        elif not self._requeue(claim, detail, now):
            self._end(claim, Outcome.INTERRUPTED, Reason.OWNER_DIED, detail, now)
        return claim.record

    def _requeue(self, claim: Claim, detail: str, now: datetime, **more: Any) -> bool:
        """Put an interrupted job back if it has recoveries left (J3); return whether it has."""
        record = claim.record
        rerun = record.reruns + 1
        job = job_of(record)
        if job is None or rerun > job.recoveries:
            return False
        until = format_instant(now)
        by = self._owner.user
        claim.append(Event.RETRY, at=now, detail=detail, until=until, rerun=rerun, by=by, **more)
        self._let_session_go(record)
        return True

    def _end(
        self,
        claim: Claim,
        outcome: Outcome,
        reason: Reason | None,
        detail: str,
        now: datetime,
        **more: Any,
    ) -> None:
        started = claim.record.started_at
        if started is not None:
            more["duration_s"] = round(max((now - started).total_seconds(), 0.0), 3)
        more |= intents_of(self._state, claim.record)
        claim.settle(outcome, reason, detail, at=now, settled_by=self._owner.user, **more)
        self._cancels.clear(claim.record.ref)
        self._let_session_go(claim.record)

    def _let_session_go(self, record: Record) -> None:
        self._leases.drop(record.occurrence.id)
        job = job_of(record)
        if job is None:
            return
        # The claim has let go of it already, by its last line: the stamp is only taken away.
        with contextlib.suppress(StoreError):
            lease = self._sessions.take(job.session, clock=self._clock, own_claim=record.path)
            if isinstance(lease, Lease):
                try:
                    if lease.ledger.claim == record.path and lease.ledger.is_blank:
                        # A program keeps its own conversations: each job would leave two files.
                        lease.forget()
                    elif lease.ledger.claim == record.path:
                        lease.stamp(None)
                finally:
                    lease.let_go()
