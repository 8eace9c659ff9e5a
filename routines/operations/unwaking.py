"""`wakeups cancel`: what is pending never fires, and which turns under way may set more."""

from routines.domain.occurrence import Kind
from routines.domain.record import Record
from routines.engine.tools import ToolAnswer
from routines.errors import UnknownWakeup, UsageError
from routines.operations.context import Context
from routines.operations.holding import session_of
from routines.operations.waking import wake_tools
from routines.store.claims import ClaimStore
from routines.store.wakeups import WakeupStore

# More than any store should hold; what is left is cancelled by asking again.
_ALL = 1_000_000


def wakeups_cancel(
    context: Context, *, wakeup_id: str | None, session: str | None, all_: bool
) -> list[ToolAnswer]:
    """Cancel one wake-up, those of a session, or all, as the operator.

    Raises:
        UnknownWakeup: None is pending by that id.
    """
    store = WakeupStore(context.writable_state)
    tools = wake_tools(context, session=None)
    if wakeup_id is not None:
        found = store.find(wakeup_id)
        if found is None:
            raise UnknownWakeup(wakeup_id)
        return [tools.cancel(wakeup_id, session=found.session)]
    if session is not None:
        session = session_of(context, session)
        wanted = store.pending(session)
    elif all_:
        wanted = store.pending_all(_ALL)
    else:
        raise UsageError("which wake-ups?", hint="name an ID, or say --session S or --all")
    named = [(one.session, one.id) for one in wanted]
    # What is due and has not started is no longer pending: it is cancelled all the same.
    named += [
        (_owner_of(record), record.occurrence.id)
        for record in _open_in(context, session)
        if record.occurrence.kind is Kind.WAKE and not record.is_under_way
    ]
    return [tools.cancel(one, session=whose) for whose, one in dict.fromkeys(named)]


def turns_under_way(context: Context, *, session: str | None) -> list[str]:
    """Return the turns that run, in one session or in all.

    Each may set wake-ups: to cancel what is pending does not end them.
    """
    if session is not None:
        session = session_of(context, session)
    return [one.ref for one in _open_in(context, session) if one.is_under_way]


def _open_in(context: Context, session: str | None) -> list[Record]:
    return [
        record
        for record in ClaimStore(context.writable_state).open_records()
        if session is None or session in (record.session, _owner_of(record))
    ]


def _owner_of(record: Record) -> str:
    """Return the session whose wake-up a firing is of; its turn may be in another."""
    wakeup = record.claim.get("wakeup")
    return str(wakeup.get("session")) if isinstance(wakeup, dict) else str(record.session)
