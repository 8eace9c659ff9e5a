"""What a person does to a state folder as a whole: prune it, or adopt it, moved or copied."""

from dataclasses import dataclass

from routines.domain.outcome import Outcome, Reason
from routines.errors import SessionBusyError, StoreBusy
from routines.operations.context import Context
from routines.store import files
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.retention import Keep, Pruned, RetentionStore
from routines.store.schedulers import SchedulerStore
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State, check_place, open_for_reading
from routines.store.state import adopt as adopt_folder


def prune(context: Context) -> Pruned:
    """Remove now what retention would remove within the hour."""
    kept = context.workspace.settings.retention
    keep = Keep(
        claims=kept.claims,
        days=kept.days,
        output_days=kept.output_days,
        output_mib=kept.output_mib,
    )
    store = RetentionStore(context.writable_state, clock=context.clock)
    return store.prune(keep, now=context.clock.now())


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of a state folder that was copied or moved.

    Attributes:
        state: The folder as it is now.
        interrupted: Claims that the original goes on with, settled here.
        epochs: Sessions that begin anew here.
    """

    state: State
    interrupted: int
    epochs: int


def adopt(context: Context, *, fork: bool) -> Adopted:
    """Take a state folder as it is: moved, or with *fork* as a copy beside the original.

    A copy shares nothing with its original afterwards (PROMISES D10): it has an id of its own,
    the turns that were under way go on there and are interrupted here, and no conversation of
    the original's is continued. The id comes last: what is cut short is still refused, and done
    again.

    Raises:
        StoreBusy: Something of routines runs on this very folder; nothing was changed.
        StateMissing, StateForeign: There is none, or it is another user's.
    """
    from routines.agents.identity import boot_id

    found = open_for_reading(context.root.state)
    check_place(found.path)
    for scheduler, held in SchedulerStore(found).live():
        if held:
            pid = scheduler.owner.get("pid", "?")
            raise StoreBusy(
                f"a scheduler (pid {pid}) is alive on {found.path}",
                hint="nothing was changed; stop it first",
                path=found.path,
            )
    interrupted = epochs = 0
    if fork:
        files.root(found.path)
        interrupted = _interrupt_copied(context, found)
        epochs = _begin_anew(context, found)
    adopted = adopt_folder(found.path, boot=boot_id() or None, fork=fork)
    context.forget_state()
    return Adopted(adopted, interrupted, epochs)


def _interrupt_copied(context: Context, copied: State) -> int:
    claims, count = ClaimStore(copied), 0
    for entry in claims.open_entries():
        # No process is looked for: whatever has that turn is the original's.
        claim = claims.hold(entry)
        if claim is None:
            continue
        try:
            now = context.clock.now()
            why = "the state folder was copied while it was open"
            claim.settle(Outcome.INTERRUPTED, Reason.COPIED, why, at=now, by=context.who)
            CancelStore(copied).clear(claim.record.ref)
            count += 1
        finally:
            claim.let_go()
    return count


def _begin_anew(context: Context, copied: State) -> int:
    sessions, count = SessionStore(copied), 0
    for known in list(sessions.all()):
        lease = sessions.take(
            known.session, clock=context.clock, own_claim=known.claim, past=known.opened
        )
        if not isinstance(lease, Lease):
            raise SessionBusyError(known.session, lease.holder)
        try:
            ledger = lease.ledger.new_epoch("the state folder was copied", agent=known.agent)
            lease.write(ledger.with_(claim=None, held_by=None, opened=None))
            count += 1
        finally:
            lease.let_go()
    return count
