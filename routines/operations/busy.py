"""Who has a session now, for those who only look."""

from routines.store.sessions import Busy, SessionStore
from routines.store.state import State


def busy_in(state: State, session: str) -> Busy | None:
    """Return who has *session*, or None; changes nothing.

    The record of an opened program that has ended keeps nobody out: who wants the session next
    takes it away.
    """
    busy = SessionStore(state).is_busy(session)
    if busy is None or busy.opened is None:
        return busy
    # Here and not above: processes are looked at only after a `kill -9`.
    from routines.engine.opened import may_live

    return busy if may_live(state, busy.opened) else None
