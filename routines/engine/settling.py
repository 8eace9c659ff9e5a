"""The outcome of a turn, written down whatever the store refuses meanwhile."""

import logging
from collections.abc import Callable
from typing import Any

from routines.domain.clock import Clock
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Record
from routines.engine.held_turn import HeldTurn
from routines.engine.ledgers import after_turn
from routines.engine.verdicts import Verdict, cancelled
from routines.errors import StoreError
from routines.store.job_settling import called_off, intents_of, settling
from routines.store.works import WorkStore

log = logging.getLogger("routines")


# How long between tries to write an outcome: the disk may be full for hours.
_SETTLE_AGAIN_S = (0.1, 0.5, 2.0, 5.0, 15.0, 30.0)


def settle_verdict(held: HeldTurn, verdict: Verdict) -> Record:
    """Settle a turn that did not start."""
    return settle(held, verdict.outcome, verdict.reason, verdict.detail, by=verdict.by)


def settle(
    held: HeldTurn, outcome: Outcome, reason: Reason | None, detail: str, **more: Any
) -> Record:
    """Write the outcome of a turn and bring the ledger up to it; tried until it is written."""
    started = held.claim.record.started_at
    detail = held.masker.mask(detail)
    now = held.clock.now()
    more["duration_s"] = None if started is None else round((now - started).total_seconds(), 3)

    def once() -> Record:
        # Locked for one try alone: whoever cancels the job must not wait for a full disk.
        with settling(held.state, held.claim.occurrence):
            end, why, said, besides = outcome, reason, detail, more
            if held.claim.occurrence.is_job:
                end, why, said, besides = _called_off(held, end, why, said, besides)
            return held.claim.settle(
                end, why, said, at=held.clock.now(), settled_by=held.owner.user, **besides
            )

    record = _calmly(once, ref=held.ref, clock=held.clock)
    held.cancels.clear(held.ref)
    if (record.started or {}).get("durable"):
        WorkStore(held.state).discard(record)
    try:
        ledger = held.lease.ledger
        if ledger.claim == record.path:
            held.lease.write(after_turn(ledger, record))
    except StoreError as error:
        # The stamp names a settled claim: the next turn takes it from there.
        log.warning("ledger-not-written", extra={"ref": held.ref, "error": error.message})
    return record


def _called_off(
    held: HeldTurn, outcome: Outcome, reason: Reason | None, detail: str, more: dict[str, Any]
) -> tuple[Outcome, Reason | None, str, dict[str, Any]]:
    """Return how a job ends: a cancel that was recorded before its end makes it that (J4)."""
    more = more | intents_of(held.state, held.claim.record)
    cancel = held.cancelled_by
    if cancel is None or cancel.lane:
        # One that was recorded while the turn was ended for its lane goes before that.
        cancel = called_off(held.state, held.claim.record) or cancel
    if cancel is None or outcome in (Outcome.CANCELLED, Outcome.SUPERSEDED):
        return outcome, reason, detail, more
    what = "turn"
    if reason is Reason.LANE:
        if cancel.lane:
            return outcome, reason, detail, more
        what = "lane"
    ended = f"its {what} was {outcome.value}" + (f": {detail}" if detail else "")
    verdict = cancelled(cancel, ended)
    return verdict.outcome, verdict.reason, verdict.detail, more | {"by": verdict.by}


def _calmly(settle: Callable[[], Record], *, ref: str, clock: Clock) -> Record:
    """Settle; where the store refuses, try again as long as this process lives (D4)."""
    tries = 0
    while True:
        try:
            return settle()
        except (StoreError, OSError) as error:
            pause = _SETTLE_AGAIN_S[min(tries, len(_SETTLE_AGAIN_S) - 1)]
            tries += 1
            log.error(  # noqa: TRY400 - the cause is in the message; the traceback would repeat it
                "outcome-not-written", extra={"ref": ref, "error": str(error)}
            )
            clock.sleep(pause)
