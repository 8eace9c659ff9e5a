"""The port: what an agent is given, what it answers, and how it says no.

    class MyAgent:
        async def run(self, turn: Turn) -> Reply: ...

An agent raises `SessionBusy` or `AgentUnavailable` to say that it provably did nothing,
`TurnFailed` if it started and failed, `OutcomeUnknown` if nobody can tell. Any other exception,
and a `SessionBusy` or `AgentUnavailable` after the first output, is a failure that counts as
started.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from routines.domain.outcome import Outcome, Reason, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt for one session.

    Attributes:
        key: The idempotency key, the same on every attempt and host.
        session: The conversation, as routines names it.
        native_session: The id by which the agent program knows it, once that is known.
        session_uuid: A UUIDv5 of workspace, session and epoch, for programs that let us choose.
        session_file: A path that belongs to session and epoch alone, for programs that keep a
            conversation in a file that we name. Nothing of ours is in it.
        first: Whether this epoch has had no turn yet.
        prompt: Exactly what the agent is to be given.
        routine: The routine, or None for a wake-up of a session without one.
        slot: The planned instant, aware UTC; None for a run by hand.
        trigger: Why it runs.
        late: How long after it was due it started.
        missed: How many slots before it were given up.
        deadline: When the turn is ended, aware UTC.
    """

    key: str
    session: str
    native_session: str | None
    session_uuid: str
    first: bool
    prompt: str
    routine: str | None
    slot: datetime | None
    trigger: Trigger
    late: timedelta
    missed: int
    deadline: datetime
    session_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a turn cost, as far as the agent says.

    Attributes:
        usd: Of this turn alone.
        usd_total: A running total of the native session; a difference is taken by the ledger.
        tokens: Of this turn alone, input and output together.
        tokens_total: As `usd_total`.
    """

    usd: float | None = None
    usd_total: float | None = None
    tokens: int | None = None
    tokens_total: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is known, for the record."""
        known = {
            "usd": self.usd,
            "usd_total": self.usd_total,
            "tokens": self.tokens,
            "tokens_total": self.tokens_total,
        }
        return {key: value for key, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent answered.

    Attributes:
        text: The reply.
        native_session: The id of the conversation as the program knows it, if it says.
        usage: Cost and tokens, if it says.
        failed: A failure that the agent itself declared, in its words; None if it did not.
        warnings: Words of `domain.outcome.Warn`, each with an optional detail after a colon.
    """

    text: str = ""
    native_session: str | None = None
    usage: Usage | None = None
    failed: str | None = None
    warnings: tuple[str, ...] = ()


class Agent(Protocol):
    """Whatever answers a turn."""

    async def run(self, turn: Turn) -> Reply:
        """Put the turn to the agent and return when it has finished it."""


class SessionBusy(Exception):
    """Never started: the agent's own session is in use."""


class AgentUnavailable(Exception):
    """Never started: the agent can't be reached now, and that may heal."""


class SessionLost(Exception):
    """Never started: the conversation is gone, and the turn may go into a new one."""


class TurnFailed(Exception):
    """Started and failed."""


class BadOutput(TurnFailed):
    """Started, and what came back is not what the entry promises."""


class SessionChanged(TurnFailed):
    """Started, and went into another conversation than the one asked for."""


class NotFound(Exception):
    """There is nothing that could be run: nothing was started, and trying again heals nothing."""


class OutcomeUnknown(Exception):
    """Nobody can tell whether it ran; it is never run again because of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended, in the words of the record.

    Attributes:
        outcome: The outcome; None if the agent provably never started.
        reason: From the list of that outcome; for a turn that never started `busy`,
            `not-started` or `not-found`.
        detail: One line.
        reply: The reply as far as there is one.
        exit_code: Of a command that exited, else None.
        signal: The number of the signal that ended a command, else None.
    """

    outcome: Outcome | None
    reason: Reason | None = None
    detail: str = ""
    reply: Reply = Reply()
    exit_code: int | None = None
    signal: int | None = None
