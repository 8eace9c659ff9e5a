"""From the agent's result to the record: put off or settled, what was said handed over."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from routines.agents.base import Turn, TurnResult
from routines.agents.output import bounded
from routines.domain.delivery_time import time_to_deliver
from routines.domain.names import safe_name
from routines.domain.occurrence import Kind
from routines.domain.outcome import SHOWN, Outcome, Reason, Warn, one_line
from routines.domain.record import Record
from routines.domain.targets import Target, TargetKind
from routines.domain.zones import local_text, zone
from routines.engine.held_turn import HeldTurn
from routines.engine.ledgers import own_id, spent
from routines.engine.putting_off import leave_open, next_slot
from routines.engine.settling import settle
from routines.engine.verdicts import cancelled
from routines.engine.work import Work
from routines.errors import InvalidFiles

log = logging.getLogger("routines")


def finish(held: HeldTurn, work: Work, turn: Turn, result: TurnResult) -> Record:
    """Write down how the turn ended, and bring the ledger up to it."""
    if held.taken_by is not None:
        # It is theirs, and so is what was said there: also where their turn made it busy, which
        # would be tried again, and would be said with 75.
        result = replace(result, outcome=Outcome.FAILED, reason=Reason.SESSION_CHANGED)
    reply, cut = bounded(held.masker.mask(result.reply.text))
    if reply:
        held.keep("reply.md", reply)
    outcome, reason, detail = _end_of(held, result)
    if result.outcome is None or result.reason is Reason.NOT_FOUND:
        held.note_not_started(result)
    spending = spent(held, work, result)
    left = leave_open(held, work, result, detail, spending)
    if left is not None:
        return left
    warnings = {held.masker.mask(warning) for warning in result.reply.warnings}
    if cut:
        warnings.add(Warn.TRUNCATED.value)
    if not reply.strip():
        warnings.add(Warn.EMPTY_REPLY.value)
    delivered: dict[str, Any] = {}
    if outcome is Outcome.COMPLETED:
        try:
            delivered = _deliver(held, work, turn, reply, is_clean=not warnings)
        except Exception as error:
            # Whatever it is, the turn has completed, and its outcome is to be written.
            log.exception("not-delivered", extra={"ref": held.ref})
            why = one_line(f"{type(error).__name__}: {error}")
            delivered = {"delivered": [{"to": "nobody", "ok": False, "detail": why}]}
        if not all(one["ok"] for one in delivered.get("delivered", ())):
            warnings.add(Warn.NOT_DELIVERED.value)
    return settle(
        held,
        outcome,
        reason,
        detail,
        **delivered,
        by=None if held.cancelled_by is None else held.cancelled_by.by,
        warnings=sorted(warnings) if outcome is Outcome.COMPLETED else [],
        exit_code=result.exit_code,
        signal=result.signal,
        **spending,
        reply=one_line(reply, most=SHOWN),
        native_session=result.reply.native_session or own_id(work, turn),
    )


def _end_of(held: HeldTurn, result: TurnResult) -> tuple[Outcome, Reason | None, str]:
    if held.taken_by is not None:
        whose = f"it answered in {held.taken}, which is the conversation of {held.taken_by}"
        return Outcome.FAILED, Reason.SESSION_CHANGED, whose
    if result.outcome is None and result.reason is Reason.SESSION_LOST:
        return Outcome.FAILED, Reason.SESSION_LOST, result.detail
    if result.outcome is None:
        busy = result.reason is Reason.BUSY
        if busy and held.claim.occurrence.kind is Kind.WAKE:
            # Busy is never a failure of a wake-up (W4).
            return Outcome.SKIPPED, Reason.BUSY, result.detail
        said = "the agent's own session is busy" if busy else "the agent is not available"
        detail = f"{said}: {result.detail}" if result.detail else said
        return Outcome.FAILED, Reason.NOT_STARTED, detail
    if held.cancelled_by is not None and result.outcome is Outcome.CANCELLED:
        verdict = cancelled(held.cancels.with_reason(held.cancelled_by), result.detail)
        return verdict.outcome, verdict.reason, verdict.detail
    return result.outcome, result.reason, result.detail


def _deliver(
    held: HeldTurn, work: Work, turn: Turn, reply: str, *, is_clean: bool
) -> dict[str, Any]:
    """Hand the reply of a completed turn over; return what the outcome says of it."""
    if not work.deliver:
        return {}
    # Here and not above: most turns deliver nothing.
    from routines.engine import delivering

    occurrence = held.claim.occurrence
    quiet = work.quiet is not None and reply.strip() == work.quiet.strip()
    targets = [one for one in work.deliver if one.kind is not TargetKind.PING]
    if quiet or not reply.strip():
        targets = []
    pings = [one for one in work.deliver if one.kind is TargetKind.PING]
    try:
        env = held.environment(work, turn, dict(os.environ))
    except InvalidFiles:
        # The agent's; broken since it was started. The targets can do without.
        env = delivering.plain_environment(os.environ, root=work.root)
    who = work.routine or turn.session
    place = zone(str(held.claim.record.claim.get("tz") or "UTC"))
    message = delivering.Message(
        title=f"{one_line(who)}, {local_text(occurrence.instant, place)}",
        body=reply,
        name=f"{safe_name(who)}.{occurrence.stem}.md",
    )

    now, began = held.clock.now(), held.clock.awake()
    together = time_to_deliver(now=now, next_slot=next_slot(work, now))

    def hand_over(some: Sequence[Target]) -> list[dict[str, Any]]:
        passed = timedelta(seconds=held.clock.awake() - began)
        found = delivering.deliver(
            some,
            message,
            env=env,
            cwd=work.root,
            clock=held.clock,
            stop_requested=held.stop_requested,
            together=together - passed,
        )
        # What a program of theirs printed may hold what it was given to log in with.
        return [{**one.to_json(), "detail": held.masker.mask(one.detail)} for one in found]

    nobody = delivering.Delivered("nobody", ok=True, detail="quiet").to_json()
    results = [nobody] if quiet else hand_over(targets)
    if is_clean and occurrence.kind is Kind.SLOT and all(one["ok"] for one in results):
        # A dead-man service is to hear of slots that really are well, and of nothing else.
        results += hand_over(pings)
    return {"delivered": results}
