"""Wake-ups as a person sees them: what is pending, for which session, and one in full."""

import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from routines.domain.names import format_instant
from routines.domain.zones import EARLIEST
from routines.errors import UnknownSession, UnknownWakeup
from routines.operations.context import Context
from routines.store import files
from routines.store.state import State

if TYPE_CHECKING:
    from routines.domain.wakeup import Wakeup

# More than a person would read, and what a listing may open within a second.
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Alarms:
    """What is pending over all sessions.

    Attributes:
        count: How many.
        sessions: In how many sessions.
        next_at: When the next one is to be looked at, or None.
    """

    count: int = 0
    sessions: int = 0
    next_at: datetime | None = None


def pending_alarms(state: State | None) -> Alarms:
    """Return how many wake-ups are pending, opening none of them."""
    if state is None or not files.names(state.at("wakeups")):
        return Alarms()
    # Here and not above: most state folders have none, and `list` is to be quick.
    from routines.store.wakeups import WakeupStore

    store = WakeupStore(state)
    count, sessions = store.count()
    return Alarms(count, sessions, store.next_due(EARLIEST) if count else None)


@dataclass(frozen=True, slots=True)
class AlarmList:
    """Pending wake-ups.

    Attributes:
        session: Whose, or None for all.
        wakeups: Next first.
        total: How many are pending in all.
    """

    session: str | None
    wakeups: "tuple[Wakeup, ...]"
    total: int

    def to_json(self) -> list[dict[str, Any]]:
        """Return them as `wakeups --json` shows them."""
        return [alarm_json(one) for one in self.wakeups]


def alarm_json(wakeup: "Wakeup") -> dict[str, Any]:
    """Return one wake-up as `wakeups --json` shows it."""
    deferred, is_paused = wakeup.deferred_since, wakeup.paused_at is not None
    return {
        "state": "paused" if is_paused else "pending" if deferred is None else "deferred",
        "look_at": None if is_paused else format_instant(wakeup.look_at),
        **wakeup.to_json(),
    }


def list_alarms(context: Context, *, session: str | None = None) -> AlarmList:
    """Return what is pending, of one session or of all.

    Raises:
        InvalidName: No session can be called that.
    """
    if session is not None:
        from routines.operations.holding import session_of

        # The name of a routine stands for its own, here as wherever a session is named. One that
        # has had no turn yet may have wake-ups all the same.
        with contextlib.suppress(UnknownSession):
            session = session_of(context, session)
    state = context.state_or_none
    if state is None:
        return AlarmList(session, (), 0)
    from routines.store.wakeups import WakeupStore

    store = WakeupStore(state)
    if session is not None:
        found = tuple(store.pending(session))
        return AlarmList(session, found, len(found))
    total, _sessions = store.count()
    return AlarmList(None, tuple(store.pending_all(MOST_LISTED)), total)


def show_alarm(context: Context, wakeup_id: str) -> "Wakeup":
    """Return a pending wake-up.

    Raises:
        UnknownWakeup: None is pending under that id.
    """
    state = context.state_or_none
    if state is None:
        raise UnknownWakeup(wakeup_id)
    from routines.store.wakeups import WakeupStore

    store = WakeupStore(state)
    found = store.find(wakeup_id)
    if found is None:
        raise UnknownWakeup(wakeup_id, [one.id for one in store.pending_all(MOST_LISTED)])
    return found
