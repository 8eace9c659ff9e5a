"""A session's ledger from turn to turn: which conversation goes on, and what it has cost."""

from datetime import datetime
from typing import Any

from routines.agents.base import Turn, TurnResult, Usage
from routines.domain.ledger import (
    Known,
    Totals,
    chooses_id,
    resumes_unfinished,
    this_turn,
    why_new_epoch,
)
from routines.domain.outcome import Outcome
from routines.domain.record import Record
from routines.domain.versions import is_at_least
from routines.engine.held_turn import HeldTurn
from routines.engine.work import Work
from routines.store.claims import ClaimStore
from routines.store.sessions import Ledger
from routines.store.state import State


def open_ledger(held: HeldTurn, work: Work, now: datetime) -> Ledger:
    """Bring the ledger up to this turn, with the stamp and the first launch written down."""
    ledger = absorb_stamp(held.state, held.lease.ledger, own=held.claim.record.path)
    reason = why_new_epoch(
        Known(
            agent=ledger.agent,
            epoch=ledger.epoch,
            native_session=ledger.native_session,
            first_turn_begun=ledger.first_turn_begun is not None,
            epoch_turns=ledger.epoch_turns,
        ),
        agent=work.agent_name,
        spec=work.agent,
        session_turns=work.session_turns,
    )
    if reason is not None:
        ledger = ledger.new_epoch(reason, agent=work.agent_name)
    if _goes_on_unfinished(work, ledger):
        native = ledger.uuid(held.state.workspace)
        ledger = ledger.with_(native_session=native, minted_by="us")
    ledger = ledger.with_(
        agent=work.agent_name,
        claim=held.claim.record.path,
        first_turn_begun=ledger.first_turn_begun or now,
    )
    held.lease.write(ledger)
    return ledger


def _goes_on_unfinished(work: Work, ledger: Ledger) -> bool:
    """Return whether this is the second try of a first turn, under the id of the first."""
    return (
        ledger.first_turn_begun is not None
        and ledger.native_session is None
        and work.agent is not None
        and resumes_unfinished(work.agent)
    )


def absorb_stamp(state: State, ledger: Ledger, *, own: str) -> Ledger:
    """Return *ledger* with what a settled claim still under its stamp adds to it.

    Its owner may have died between the outcome and the ledger; without this the conversation's
    first turn would look cut short, and the conversation would be lost.
    """
    if ledger.claim is None:
        return ledger
    record = ClaimStore(state).read_path(ledger.claim)
    if record is None or (record.end is None and ledger.claim != own):
        return ledger.with_(claim=None)
    return after_turn(ledger, record)


def after_turn(ledger: Ledger, record: Record) -> Ledger:
    """Return *ledger* after the turn that *record* tells of, its stamp cleared."""
    ledger = ledger.with_(claim=None, held_by=None)
    end = record.end
    if record.started is None and not ledger.epoch_turns and not ledger.native_session:
        # It was about to be launched, and provably was not: the conversation is as new as before.
        return ledger.with_(first_turn_begun=None)
    if record.started is None:
        return ledger
    totals = (record.events[-1] if end is None else end).get("totals") or {}
    ledger = ledger.with_(
        usd_total=totals.get("usd_total", ledger.usd_total),
        tokens_total=totals.get("tokens_total", ledger.tokens_total),
    )
    if end is None:
        return ledger
    finished = record.outcome is Outcome.COMPLETED
    native = end.get("native_session") if finished else None
    return ledger.with_(
        turns=ledger.turns + 1,
        epoch_turns=ledger.epoch_turns + (1 if finished or ledger.native_session else 0),
        native_session=native or ledger.native_session,
        last_at=record.ended_at,
    )


def spent(held: HeldTurn, work: Work, result: TurnResult) -> dict[str, Any]:
    """Return what the occurrence has cost by now, and the totals of its conversation."""
    usage, totals = _usage(held, work, result.reply.usage)
    for key, before in held.claim.record.spent_before.items():
        # An earlier turn of it was put off: what that cost was spent all the same.
        usage[key] = round(usage.get(key, 0) + before, 6)
    return {"usage": usage, "totals": totals}


def _usage(
    held: HeldTurn, work: Work, usage: Usage | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the turn alone cost, and the totals of its conversation."""
    if usage is None:
        return {}, {}
    ledger = held.lease.ledger
    since = None if work.agent is None else work.agent.totals_from
    turn, totals = this_turn(
        alone=Totals(usd=usage.usd, tokens=usage.tokens),
        reported=Totals(usd=usage.usd_total, tokens=usage.tokens_total),
        before=Totals(usd=ledger.usd_total, tokens=ledger.tokens_total),
        running=is_at_least(held.agent_version, since),
    )
    said = {"usd": turn.usd, "tokens": turn.tokens}
    kept = {"usd_total": totals.usd, "tokens_total": totals.tokens}
    return (
        {key: value for key, value in said.items() if value is not None},
        {key: value for key, value in kept.items() if value is not None},
    )


def own_id(work: Work, turn: Turn) -> str | None:
    """Return the id of the conversation where we chose it ourselves."""
    if work.agent is not None and chooses_id(work.agent):
        return turn.native_session or turn.session_uuid
    return turn.native_session
