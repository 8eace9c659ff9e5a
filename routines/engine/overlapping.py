"""A slot whose predecessor has not ended: who that is, and what becomes of the newer one (L13)."""

from datetime import datetime

from routines.domain.names import format_instant
from routines.domain.occurrence import Occurrence
from routines.domain.outcome import STILL_RUNNING, Outcome, Reason, Trigger
from routines.domain.record import Event, Owner, Record, outcome_event
from routines.domain.routine import Routine
from routines.engine.host import is_gone
from routines.engine.passes import Pass
from routines.engine.slots import Slots
from routines.engine.verdicts import displaced
from routines.engine.work import Work
from routines.errors import StoreBusy
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.state import State


class Overlaps:
    """The open slots of a routine, and what a newer one means for them."""

    def __init__(self, state: State, *, owner: Owner) -> None:
        self._state = state
        self._owner = owner
        self._claims = ClaimStore(state)
        self._slots = Slots(state, owner=owner)

    def in_flight(
        self, routine: Routine, now: datetime, done: Pass
    ) -> tuple[list[Record], list[str]]:
        """Return the routine's own open slots: those with a live owner, and paths of lost ones.

        One that was never started and that nobody holds only waited: the newer slot takes its
        place, and it is missed.
        """
        running: list[Record] = []
        lost: list[str] = []
        for entry in self._claims.open_entries(routine=routine.name):
            if entry.is_by_hand:
                continue
            claim = self._claims.hold(entry)
            if claim is None:
                record = self._claims.read_path(entry.claim_path)
                if record is None or record.end is not None or not record.readable:
                    continue
                if record.last == Event.PARKED.value:
                    continue
                if record.last in (Event.BUFFERED.value, Event.RETRY.value):
                    # Nobody's: it is held for no longer than a look takes, in another process.
                    raise StoreBusy(
                        f"{record.ref} is being looked at by another process",
                        hint="nothing was changed; it is looked at again",
                        path=entry.claim_path,
                    )
                if record.started is not None and is_gone(record.owner):
                    # Somebody is ending what its dead owner left: its end is near.
                    lost.append(entry.claim_path)
                else:
                    running.append(record)
                continue
            try:
                ended = displaced(claim.record)
                if ended is not None:
                    done.settled.append(
                        claim.settle(
                            ended.outcome,
                            ended.reason,
                            ended.detail,
                            at=now,
                            settled_by=self._owner.user,
                        )
                    )
                elif claim.record.is_durable:
                    # Its run goes on, watched or not.
                    running.append(claim.record)
                elif claim.record.is_under_way or not claim.record.readable:
                    lost.append(entry.claim_path)
            finally:
                claim.let_go()
        return running, lost

    def predecessor(self, own: Record) -> Record | None:
        """Return the earlier slot that the buffered claim *own* still waits for, or None."""
        for entry in self._claims.open_entries(routine=own.occurrence.owner):
            if entry.claim_path == own.path or entry.is_by_hand:
                continue
            record = self._claims.read_path(entry.claim_path)
            if (
                record is not None
                and record.end is None
                and (record.is_under_way or self._claims.is_held(record))
            ):
                return record
        return None

    def skip(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        running: Record,
        now: datetime,
        done: Pass,
    ) -> None:
        """Settle a slot as skipped, for *running*."""
        detail = f"{running.ref}{STILL_RUNNING}"
        end = outcome_event(at=now, outcome=Outcome.SKIPPED, reason=Reason.OVERLAP, detail=detail)
        self._slots.settle(routine, occurrence, trigger, end, now, done)

    def buffer(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        work: Work,
        now: datetime,
        done: Pass,
    ) -> None:
        """Claim a slot unstarted: it goes when its predecessor has ended (L13)."""
        event = {"event": Event.BUFFERED.value, "at": format_instant(now)}
        draft = self._slots.draft(routine, occurrence, work, trigger, event=event)
        claim = self._claims.take(draft, at=now)
        if claim is not None:
            claim.let_go()
            done.unstarted.append(claim.record.path)
        done.done.append(routine.name)

    def make_way(self, running: Record, newer: Occurrence, now: datetime, done: Pass) -> None:
        """Ask the running turn to end for a newer slot, unless it is being ended already."""
        cancels = CancelStore(self._state)
        if running.last == Event.CANCELLING.value or cancels.pending(running.ref) is not None:
            return
        done.superseding.append(
            cancels.ask(
                running.ref,
                by=self._owner.user,
                person=False,
                at=now,
                reason="superseded",
                newer=newer.ref,
            )
        )
