"""`cancel`: an occurrence that is open ends, by whoever asks for it (PROMISES L17)."""

from dataclasses import dataclass

from routines.domain.outcome import Outcome
from routines.domain.record import Record
from routines.errors import UnknownOccurrence
from routines.operations.context import Context
from routines.operations.life import is_unwatched, schedulers
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What came of a cancel.

    Attributes:
        ref: The occurrence.
        message: One line: asked for, settled, or too late.
    """

    ref: str
    message: str


# Cancel -----------------------------------------------------------------------------------------


def cancel(context: Context, ref: str, *, reason: str) -> list[CancelResult]:
    """Cancel an occurrence, or what of a routine runs or waits.

    What has not started is settled at once; a running turn is asked to end, and its owner settles
    it within seconds.

    Raises:
        UnknownOccurrence: Nothing of that name is open, or older slots are owed before it.
    """
    claims = ClaimStore(context.writable_state)
    job = _cancel_job(context, ref, reason)
    if job is not None:
        return [job]
    # First what nobody has claimed: if a scheduler is quicker, it is found among what is open.
    settled = _cancel_due(context, ref, reason)
    named = ref in context.workspace.names
    targets = open_targets(context, claims, ref) if named or not settled else []
    if not targets and not settled:
        return [_of_ended(context, ref, named=named)]
    results = [cancel_one(context, claims, record, reason) for record in targets]
    return results + [CancelResult(one.ref, "cancelled before it started") for one in settled]


def _of_ended(context: Context, ref: str, *, named: bool) -> CancelResult:
    """Return that an occurrence was cancelled before: repeating it is harmless (L17).

    Raises:
        UnknownOccurrence: It has ended in another way, or nothing of that name runs or waits.
    """
    from routines.operations.finding import find

    found = None if named else find(context, ref)
    if not isinstance(found, Record) or found.outcome is None:
        raise UnknownOccurrence(
            f"nothing of {ref} runs or waits", hint="`routines list` shows what does"
        )
    end = found.end or {}
    said = ", ".join(str(end[key]) for key in ("reason", "detail") if end.get(key))
    how = f"it has ended already: {found.outcome.value}" + (f": {said}" if said else "")
    if found.outcome is Outcome.CANCELLED:
        return CancelResult(found.ref, how)
    raise UnknownOccurrence(f"{found.ref}: {how}", hint=f"`routines explain {found.ref}` says more")


def _cancel_due(context: Context, ref: str, reason: str) -> list[Record]:
    """Settle the slots that *ref* names and that wait unclaimed."""
    from routines.operations.cancelling_due import cancel_due
    from routines.operations.finding import parse_named

    if ref in context.workspace.names:
        return cancel_due(context, ref, reason=reason)
    name, at, _ = ref.partition("@")
    if not at or name not in context.workspace.names:
        return []
    named = parse_named(context, ref)
    if named.at is None or named.whole_day:
        return []
    only = named.at.replace(microsecond=0)
    return cancel_due(context, name, reason=reason, only=only)


def _cancel_job(context: Context, ref: str, reason: str) -> CancelResult | None:
    """Cancel the job that *ref* names; None if it names none, or one that has ended."""
    from routines.operations.job_finding import job_named
    from routines.operations.queue import cancel_shown

    job = job_named(context, ref)
    if job is None or job.status.outcome is not None:
        return None
    answer = cancel_shown(context, job.status, intent=None, only_if_queued=False, reason=reason)
    if answer.word != "recorded":
        return None
    how = "cancelled before it started"
    if answer.outcome is None:
        how = "asked to end; its end is recorded when it has ended"
    return CancelResult(f"job:{job.status.id}", how)


def open_targets(context: Context, claims: ClaimStore, ref: str) -> list[Record]:
    """Return the open occurrences that *ref* names: of a routine all, else the one.

    Raises:
        UnknownOccurrence: There never was one of that name.
    """
    from routines.operations.finding import find

    found = []
    named = ref in context.workspace.names
    for record in claims.open_records(routine=ref if named else None):
        wakeup = record.claim.get("wakeup")
        ids = {record.ref, record.occurrence.id}
        if isinstance(wakeup, dict):
            ids.add(str(wakeup.get("id")))
        if named or ref in ids:
            found.append(record)
    if found or named:
        return found
    # Settled, or named in another way; an unknown name is an error that says so.
    other = find(context, ref)
    return [other] if isinstance(other, Record) and other.end is None else []


def cancel_one(context: Context, claims: ClaimStore, record: Record, reason: str) -> CancelResult:
    """Record the intent to cancel an open occurrence, and settle it if it has not started."""
    now = context.clock.now()
    # An intent first, so that a turn that starts this moment finds it before it does.
    cancels = CancelStore(context.writable_state)
    intent = cancels.ask(
        record.ref, by=context.who, person=context.is_person, at=now, reason=reason
    )
    if record.is_under_way:
        alone = is_unwatched(claims, record)
        if alone and not schedulers(context.state, now=now).alive:
            said = "asked to end; nobody watches its run, so that waits for a scheduler"
            return CancelResult(record.ref, said)
        return CancelResult(record.ref, "asked to end; its end is recorded when it has ended")
    for entry in claims.open_entries():
        if entry.claim_path != record.path:
            continue
        claim = claims.hold(entry)
        if claim is None:
            break
        try:
            if not claim.record.is_under_way and cancels.accept(intent):
                claim.settle(*intent.end, reason, at=now, by=context.who)
                cancels.clear(record.ref)
                return CancelResult(record.ref, "cancelled before it started")
        finally:
            claim.let_go()
    return CancelResult(record.ref, "asked to end; it may end without having started")
