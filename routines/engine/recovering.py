"""Open claims whose owner is gone: what is left of them is ended, and they are settled (L10).

Looked at on boot and every minute, in every process that makes claims. The lock decides who does
it; what is done follows from the last line; nothing is ever run again because something is not
known.
"""

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from routines.agents.trees import Tree, end_tree
from routines.domain.clock import Clock
from routines.domain.names import format_instant
from routines.domain.outcome import Outcome, Reason, end_of_cancel
from routines.domain.record import Event, Owner, Record
from routines.domain.recovery import Recovery, decide, owner_is_this_boot
from routines.engine import host
from routines.engine.ledgers import after_turn
from routines.engine.opened import end_opened, may_live
from routines.errors import StoreError
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.job_leases import is_worked
from routines.store.job_settling import called_off, intents_of, settling
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore
from routines.store.opened import Opened
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State

log = logging.getLogger("routines")

# What a turn left behind had its chance while it lived: a short word, then the end.
_STOP_LEFTOVERS = ("TERM", "KILL")
_STOP_INTERVAL_S = 5.0
_WITH_LEFTOVERS = (Recovery.END_AND_CANCEL, Recovery.END_AND_INTERRUPT)


@dataclass(slots=True)
class Recovered:
    """What a look at the open claims came to.

    Attributes:
        settled: Records that were settled here.
        owed_again: Claims that were never started and that this process now holds.
        followed: Likewise claims whose durable run goes on, and that nobody watches.
        look_at: When the next retry is due; None if none waits.
        rerun: Whether an interrupted turn is to be run again.
        troubles: What could not be looked after, by entry, with why.
    """

    settled: list[Record]
    owed_again: list[Claim]
    followed: list[Claim] = field(default_factory=list)
    look_at: datetime | None = None
    rerun: bool = False
    troubles: dict[str, StoreError | OSError] = field(default_factory=dict)


class Recoverer:
    """Looks after the open claims of one state folder."""

    def __init__(
        self,
        state: State,
        *,
        clock: Clock,
        owner: Owner,
        on_settled: Callable[[Record], None],
    ) -> None:
        self._on_settled = on_settled
        # Claims and opened programs whose leftovers are being ended, each in a thread of its own:
        # that may take as long as a stubborn program likes, and nothing else waits for it.
        self._ending: dict[str, threading.Thread] = {}
        self._state = state
        self._clock = clock
        self._owner = owner
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)
        jobs = JobStore(state, clock=clock)
        self._work = JobWork(state, jobs, clock=clock, owner=owner, here=host.here())

    def recover(self, *, keep_unstarted: bool = True) -> Recovered:
        """Look at every open claim whose lock is free.

        Args:
            keep_unstarted: Whether claims that are owed again, or whose run is to be followed,
                are held and returned; else they are let go of, for whoever starts turns.
        """
        result = Recovered([], [])
        entries = self._claims.open_entries()
        server_now = files.server_now(self._state.at("open", "clock")) if entries else None
        for entry in entries:
            try:
                self._recover_one(entry, server_now, result, keep_unstarted=keep_unstarted)
            except (StoreError, OSError) as error:
                # One claim that can't be settled keeps no other from it; it is tried again.
                result.troubles[entry.name] = error
                log.error(  # noqa: TRY400 - the cause is in the message
                    "recover-failed", extra={"entry": entry.name, "error": str(error)}
                )
        return result

    def recover_path(self, claim_path: str) -> None:
        """Look at the one claim of that name, since something waits for it."""
        for entry in self._claims.open_entries():
            if entry.claim_path == claim_path:
                found = Recovered([], [])
                server_now = files.server_now(self._state.at("open", "clock"))
                self._recover_one(entry, server_now, found, keep_unstarted=False)
                for record in found.settled:
                    self._on_settled(record)

    def recover_opened(self, session: str, opened: Opened) -> None:
        """End a program that outlived who opened it in *session*: something waits for that."""

        def end() -> None:
            end_opened(self._state, session, clock=self._clock)

        if may_live(self._state, opened):
            self._aside(opened.mark, session, end)
        else:
            end()

    def settle_lost(self, claim: Claim) -> Record:
        """Settle a claim that we hold and whose turn process has ended without an outcome."""
        record = claim.reread()
        if record.end is not None:
            return record
        if not record.is_under_way:
            # It never began: it is owed again under the same claim, for whoever takes it up.
            return record
        if record.is_durable:
            # Its run goes on: whoever takes it up asks how it stands.
            return record
        recovery = decide(record, here=host.here(), silent_for=timedelta(0), now=self._clock.now())
        if recovery not in (Recovery.END_AND_CANCEL, Recovery.END_AND_INTERRUPT):
            recovery = Recovery.END_AND_INTERRUPT
        return self._end(claim, recovery)

    def _recover_one(
        self,
        entry: OpenEntry,
        server_now: datetime | None,
        result: Recovered,
        *,
        keep_unstarted: bool,
    ) -> None:
        claim = self._claims.hold(entry)
        if claim is None:
            if server_now is not None and self._claims.sweep(entry, server_now=server_now):
                log.info("draft-removed", extra={"entry": entry.name})
            return
        kept = False
        try:
            if is_worked(claim.record):
                self._recover_worked(claim, result)
                return
            silent = self._silent_for(claim, server_now)
            now = self._clock.now()
            recovery = decide(claim.record, here=host.here(), silent_for=silent, now=now)
            at = claim.record.retry_at
            if recovery is Recovery.LEAVE and self._is_called_off(claim.record):
                # Whoever takes it up finds the cancel first.
                recovery = Recovery.OWED_AGAIN
            if recovery is Recovery.LEAVE and at is not None:
                result.look_at = at if result.look_at is None else min(at, result.look_at)
            if recovery is Recovery.OWED_AGAIN and keep_unstarted:
                kept = True
                result.owed_again.append(claim)
            elif recovery is Recovery.FOLLOW and keep_unstarted:
                kept = True
                result.followed.append(claim)
            elif recovery in _WITH_LEFTOVERS and self._leftovers(claim.record).members():
                kept = True
                self._end_aside(claim, recovery)
            elif recovery not in (Recovery.LEAVE, Recovery.OWED_AGAIN, Recovery.FOLLOW):
                record = self._end(claim, recovery)
                if record.end is not None:
                    result.settled.append(record)
                else:
                    self._on_settled(record)
                result.rerun = result.rerun or record.retry_at is not None
        finally:
            if not kept:
                claim.let_go()

    def _recover_worked(self, claim: Claim, result: Recovered) -> None:
        """Take a job back that a program works itself, if its lease has lapsed (J2)."""
        if not self._work.leases.is_lapsed(claim.record):
            return
        with settling(self._state, claim.occurrence):
            record = self._work.returns.take_back(claim)
        if record.end is not None:
            result.settled.append(record)
            return
        self._on_settled(record)
        result.rerun = True

    def _is_called_off(self, record: Record) -> bool:
        """Return whether what waits for its time or a person was cancelled meanwhile (L17)."""
        if record.last not in (Event.PARKED.value, Event.RETRY.value):
            return False
        cancels = CancelStore(self._state)
        return (cancels.pending(record.ref) or cancels.accepted(record.ref)) is not None

    def _end_aside(self, claim: Claim, recovery: Recovery) -> None:
        def end() -> None:
            try:
                self._on_settled(self._end(claim, recovery))
            finally:
                claim.let_go()

        self._aside(claim.record.path, claim.record.ref, end)

    def _aside(self, key: str, ref: str, end: Callable[[], None]) -> None:
        """End something in a thread of its own, unless one does so already."""
        if key in self._ending:
            return

        def run() -> None:
            try:
                end()
            except (StoreError, OSError) as error:
                log.error(  # noqa: TRY400 - the cause is in the message
                    "recover-failed", extra={"ref": ref, "error": str(error)}
                )
            finally:
                self._ending.pop(key, None)

        thread = threading.Thread(target=run, daemon=True, name="routines-ending")
        self._ending[key] = thread
        thread.start()

    def wait(self) -> None:
        """Wait until what is being ended has ended: before a process that did it goes."""
        for thread in list(self._ending.values()):
            thread.join()

    def _end(self, claim: Claim, recovery: Recovery) -> Record:
        if recovery in _WITH_LEFTOVERS:
            # Before the lock of its settlement: a stubborn program may take as long as it likes.
            remain = self._end_leftovers(claim.record)
            if remain:
                # The session stays busy: something of that turn still works in it.
                raise StoreError(
                    f"{claim.record.ref}: processes {remain} of its turn can't be ended",
                    hint="end them by hand; the claim is settled then",
                )
        if not claim.occurrence.is_job:
            return self._end_now(claim, recovery)
        with settling(self._state, claim.occurrence):
            cancel = called_off(self._state, claim.record)
            before = claim.record.newest(Event.CANCELLING) or {}
            if cancel is not None and (
                recovery is Recovery.END_AND_INTERRUPT
                or (recovery is Recovery.END_AND_CANCEL and before.get("lane") and not cancel.lane)
            ):
                # Asked for before its end: it is cancelled, and not run again (J3); also where
                # its owner died while it was ending it for its lane.
                claim.append(
                    Event.CANCELLING,
                    at=self._clock.now(),
                    by=cancel.by,
                    person=cancel.person,
                    intent=cancel.intent,
                    lane=cancel.lane,
                )
                recovery = Recovery.END_AND_CANCEL
            return self._end_now(claim, recovery)

    def _end_now(self, claim: Claim, recovery: Recovery) -> Record:
        record = claim.record
        outcome, reason, detail = self._verdict(record, recovery)
        if recovery is Recovery.SET_ASIDE:
            files.copy_aside(claim.path)
        if recovery is Recovery.PARK:
            return self._leave_open(claim, Event.PARKED, detail=detail)
        rerun = record.reruns + 1
        if recovery is Recovery.END_AND_INTERRUPT and rerun <= _reruns_allowed(record):
            now = format_instant(self._clock.now())
            return self._leave_open(claim, Event.RETRY, detail=detail, until=now, rerun=rerun)
        settled = claim.settle(
            outcome,
            reason,
            detail,
            at=self._clock.now(),
            settled_by=self._owner.user,
            by=self._who_cancelled(record),
            **(intents_of(self._state, record) if record.occurrence.is_job else {}),
        )
        self._clear_stamp(settled, presumed=recovery is Recovery.PRESUME)
        CancelStore(self._state).clear(record.ref)
        return settled

    def _leave_open(self, claim: Claim, event: Event, **more: Any) -> Record:
        """Write that a claim waits, for another try or for a person, and free its session."""
        claim.append(event, at=self._clock.now(), by=self._owner.user, **more)
        self._clear_stamp(claim.record, presumed=False)
        return claim.record

    def _verdict(self, record: Record, recovery: Recovery) -> tuple[Outcome, Reason | None, str]:
        owner = record.owner
        who = "its owner" if owner is None else f"{owner.user} (pid {owner.pid})"
        match recovery:
            case Recovery.END_AND_CANCEL:
                line = record.newest(Event.CANCELLING) or {}
                if line.get("newer"):
                    return Outcome.SUPERSEDED, None, f"by {line['newer']}"
                person, lane = bool(line.get("person", True)), bool(line.get("lane"))
                outcome, reason = end_of_cancel(person=person, lane=lane)
                died = "its owner died while it was being ended"
                return outcome, reason, "; ".join(filter(None, (self._why_cancelled(record), died)))
            case Recovery.END_AND_INTERRUPT:
                return Outcome.INTERRUPTED, Reason.OWNER_DIED, f"{who} died during the turn"
            case Recovery.PRESUME:
                return Outcome.INTERRUPTED, Reason.PRESUMED, f"no sign of {who} for 10 min"
            case Recovery.NEVER_STARTED | Recovery.PARK:
                tries = record.idle_attempts
                return Outcome.FAILED, Reason.NOT_STARTED, f"{tries} attempts, none started"
            case Recovery.DROP_MANUAL:
                return Outcome.FAILED, Reason.NOT_STARTED, f"{who} died before it started"
            case _:
                return Outcome.INTERRUPTED, Reason.OWNER_UNKNOWN, "the claim can't be read"

    def _why_cancelled(self, record: Record) -> str:
        """Return the reason of the cancel that was taken up; its line does not have it."""
        cancels = CancelStore(self._state)
        asked = cancels.accepted(record.ref)
        return "" if asked is None or asked.newer else cancels.with_reason(asked).reason

    def _who_cancelled(self, record: Record) -> str | None:
        line = record.newest(Event.CANCELLING)
        return None if line is None else str(line.get("by"))

    def _leftovers(self, record: Record) -> Tree:
        """Return the processes of a turn, none where its owner's numbers don't mean ours."""
        here = owner_is_this_boot(record.owner, host.here())
        key = self._state.key(record.turn_ref) if here else ""
        return Tree(state=self._state.path, turn_key=key)

    def _end_leftovers(self, record: Record) -> list[int]:
        return end_tree(
            self._leftovers(record),
            stop=_STOP_LEFTOVERS,
            clock=self._clock,
            interval=_STOP_INTERVAL_S,
        )

    def _clear_stamp(self, record: Record, *, presumed: bool) -> None:
        """Bring the session's ledger up to a settled claim, unless somebody has the session."""
        if record.session is None:
            return
        lease = self._sessions.take(record.session, clock=self._clock, own_claim=record.path)
        if not isinstance(lease, Lease):
            return
        try:
            if lease.ledger.claim == record.path:
                ledger = after_turn(lease.ledger, record)
                if presumed:
                    # The other host may still be at work in that conversation.
                    ledger = ledger.new_epoch(
                        f"its turn {record.ref} was presumed dead on another host",
                        agent=ledger.agent,
                    )
                lease.write(ledger)
        finally:
            lease.let_go()

    def _silent_for(self, claim: Claim, server_now: datetime | None) -> timedelta:
        if server_now is None:
            return timedelta(0)
        touched = datetime.fromtimestamp(os.fstat(claim.fd).st_mtime, UTC)
        return max(server_now - touched, timedelta(0))


def _reruns_allowed(record: Record) -> int:
    line = record.started or {}
    allowed = line.get("rerun_interrupted")
    return allowed if isinstance(allowed, int) else 0
