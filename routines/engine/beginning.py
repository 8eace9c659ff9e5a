"""Whether a claimed turn may start after all; if so, ledger and `started` are on the disk first."""

import contextlib
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from routines.agents.base import Turn
from routines.domain.limits import DayLimit, over_limit
from routines.domain.names import format_instant, safe_name
from routines.domain.occurrence import Kind, slot_of_file
from routines.domain.outcome import SHOWN, Outcome, Reason, one_line
from routines.domain.record import Event, Record
from routines.domain.zones import day_of, zone
from routines.engine.held_turn import HeldTurn
from routines.engine.ledgers import open_ledger
from routines.engine.settling import settle_verdict
from routines.engine.verdicts import Verdict, cancelled
from routines.engine.work import Work
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.switches import SwitchStore
from routines.store.works import WorkStore

# Younger claims are the newest of their routine: they were made under its lock a moment ago.
_MAY_BE_STALE_AFTER = timedelta(seconds=5)


def begin(
    held: HeldTurn,
    work: Work,
    *,
    reread: Callable[[Work], "Work | Verdict"] | None,
    is_durable: Callable[[Work], bool],
) -> tuple[Work, Turn] | None:
    """Begin the turn, or settle it instead: see `TurnSteps.begin`."""
    record = held.claim.reread()
    if record.end is not None or not held.claim.still_named():
        return None
    now = held.clock.now()
    if work.is_edited() and reread is not None:
        changed = reread(work)
        if isinstance(changed, Verdict):
            settle_verdict(held, changed)
            return None
        work = changed
    verdict = _why_not(held, work, record, now)
    if verdict is not None:
        settle_verdict(held, verdict)
        return None
    if not record.occurrence.is_by_hand and _is_paused(held, work, now):
        # Unstarted and unsettled: it goes on when that is resumed.
        return None
    # Before the locks: it may import a host's module, for as long as the turn has time, and each
    # other turn under these limits waits for them.
    durable = is_durable(work)
    now = held.clock.now()
    with contextlib.ExitStack() as counted:
        # Held until `started` is on the disk: two turns at once can't both be the last one.
        for limit in work.limits:
            counted.enter_context(files.section(_limit_lock(held, limit)))
        over = _over_limit(held, work, now)
        if over is None:
            return work, _start(held, work, now, durable=durable)
    if record.occurrence.is_job:
        _wait_for_tomorrow(held, over, now)
    else:
        settle_verdict(held, Verdict(Outcome.SKIPPED, Reason.LIMIT, over))
    return None


def _wait_for_tomorrow(held: HeldTurn, over: str, now: datetime) -> None:
    """Put a job off until the day has turns left: it is to be done, not only today."""
    place = zone(str(held.claim.record.claim.get("tz") or "UTC"))
    until = format_instant(day_of(now, place)[1])
    held.claim.append(Event.RETRY, at=now, until=until, detail=over, by=held.owner.user)


def _is_paused(held: HeldTurn, work: Work, now: datetime) -> bool:
    return SwitchStore(held.state).held(work.routine, now=now) is not None


def _limit_lock(held: HeldTurn, limit: DayLimit) -> str:
    name = ".workspace" if limit.routine is None else safe_name(limit.routine)
    return held.state.at("locks", "limits", f"{name}.lock")


def _over_limit(held: HeldTurn, work: Work, now: datetime) -> str | None:
    for limit in work.limits:
        place = zone(limit.zone)
        records = ClaimStore(held.state).changed_since(day_of(now, place)[0])
        over = over_limit(limit, records, now=now, place=place)
        if over is not None:
            return over
    return None


def _start(held: HeldTurn, work: Work, now: datetime, *, durable: bool) -> Turn:
    held.program = os.path.basename((work.agent and work.agent.program) or work.agent_name)
    ledger = open_ledger(held, work, now)
    turn = held.turn_of(work, ledger)
    anew = turn.first and ledger.epoch > 1
    held.keep("prompt.md", work.prompt)
    more: dict[str, Any] = {}
    if durable:
        # Whoever goes on with it asks the same agent the same thing, whatever is edited.
        WorkStore(held.state).keep(held.claim.record, work.encode())
        more = {"durable": True, "exclusive": work.exclusive}
    held.claim.append(
        Event.STARTED,
        at=now,
        owner=held.owner.to_json(),
        definition=work.digest,
        session=ledger.session,
        epoch=ledger.epoch,
        epoch_reason=ledger.epoch_reason if anew else None,
        turn=ledger.turns + 1,
        native_session=turn.native_session,
        agent=work.agent_name,
        agent_version=_shown_version(held, work),
        model=work.model,
        cwd=work.cwd,
        late_s=round(turn.late.total_seconds(), 3),
        prompt=one_line(work.prompt, most=SHOWN),
        rerun_interrupted=work.rerun_interrupted,
        **more,
    )
    return turn


def _shown_version(held: HeldTurn, work: Work) -> str | None:
    program = None if work.agent is None else work.agent.program
    if held.agent_version is None or program is None:
        return None
    return f"{os.path.basename(program)} {held.agent_version}"


def _why_not(held: HeldTurn, work: Work, record: Record, now: datetime) -> Verdict | None:
    cancel = held.cancels.take_up(record.ref)
    if cancel is not None:
        return cancelled(cancel, "before it started")
    if record.occurrence.kind is not Kind.SLOT:
        return None
    if record.by_person:
        return None
    late = now - record.due_at
    if work.start_within is not None and late > work.start_within:
        return Verdict(
            Outcome.MISSED,
            Reason.TOO_LATE,
            f"start_within passed {late - work.start_within} ago",
        )
    claimed_at = record.claimed_at or now
    if now - claimed_at > _MAY_BE_STALE_AFTER and _is_stale(held, record, now):
        return Verdict(Outcome.MISSED, Reason.STALE, "a newer slot was claimed or recorded")
    return None


def _is_stale(held: HeldTurn, record: Record, now: datetime) -> bool:
    routine, slot = record.occurrence.owner, record.occurrence.instant
    given_up = CursorStore(held.state).newest_missed(routine, until=now)
    if given_up is not None and given_up.last > slot:
        return True
    claims = ClaimStore(held.state)
    newer = claims.walk([safe_name(routine)], since=slot + timedelta(seconds=1), until=now)
    return any(
        _took_its_place(claims.read_path(path))
        for path in newer
        if slot_of_file(os.path.basename(path)) is not None
    )


def _took_its_place(newer: Record | None) -> bool:
    """Return whether a newer slot goes before one that is about to start.

    One that was skipped since this one was on its way, or waits for its end, does not: to give
    this one up for it would lose both.
    """
    if newer is None or newer.last == Event.BUFFERED.value:
        return False
    return newer.outcome is not Outcome.SKIPPED or newer.reason is not Reason.OVERLAP
