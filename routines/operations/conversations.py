"""`session list` and `session show`: which conversation a session is, and who has it now."""

from dataclasses import dataclass
from typing import Any

from routines.errors import UnknownSession
from routines.operations.busy import busy_in
from routines.operations.context import Context
from routines.operations.holding import session_of
from routines.store.sessions import Busy, Ledger, SessionStore

# A session of each slot (`fresh`) leaves a ledger until its claim goes; a list is for people.
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session.

    Attributes:
        ledger: What is known of it.
        busy: Who has it now, or None.
    """

    ledger: Ledger
    busy: Busy | None

    def to_json(self) -> dict[str, Any]:
        """Return it as `session show --json` does."""
        from routines.domain.names import format_instant

        ledger = self.ledger
        return {
            "session": ledger.session,
            "agent": ledger.agent,
            "epoch": ledger.epoch,
            "epoch_reason": ledger.epoch_reason or None,
            "native_session": ledger.native_session,
            "minted_by": ledger.minted_by,
            "turns": ledger.turns,
            "epoch_turns": ledger.epoch_turns,
            "usd_total": ledger.usd_total,
            "tokens_total": ledger.tokens_total,
            "last_at": None if ledger.last_at is None else format_instant(ledger.last_at),
            "busy": self.busy is not None,
            "holder": None if self.busy is None else self.busy.holder,
        }


def list_conversations(context: Context) -> list[Conversation]:
    """Return the sessions, the one with the newest turn first."""
    state = context.state_or_none
    if state is None:
        return []
    store = SessionStore(state)
    ledgers = sorted(store.all(), key=_newest_first)[:MOST_LISTED]
    return [Conversation(ledger, busy_in(state, ledger.session)) for ledger in ledgers]


def _newest_first(ledger: Ledger) -> tuple[float, str]:
    return (-ledger.last_at.timestamp() if ledger.last_at else 0.0, ledger.session)


def show_conversation(context: Context, name: str) -> Conversation:
    """Return one session; the name of a routine stands for its stable session.

    Raises:
        UnknownSession: It has had no turn.
    """
    session = session_of(context, name)
    state = context.state_or_none
    store = None if state is None else SessionStore(state)
    ledger = None if store is None else store.peek(session)
    if state is None or store is None or ledger is None:
        known = [] if store is None else [one.session for one in store.all()]
        raise UnknownSession(session, known)
    return Conversation(ledger, busy_in(state, session))
