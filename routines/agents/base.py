"""The port: what an agent is given, what it answers, and how it says no.

    class MyAgent:
        async def run(self, turn: Turn) -> Reply: ...

An agent raises `SessionBusy` or `AgentUnavailable` to say that it provably did nothing,
`TurnFailed` if it started and failed, `OutcomeUnknown` if nobody can tell. Any other exception,
and a `SessionBusy` or `AgentUnavailable` after the first output, is a failure that counts as
started.

An agent whose runs outlive the process that asked for them has three methods instead:

    class MyDurableAgent:
        async def start(self, turn: Turn) -> str: ...
        async def inspect(self, run_id: str) -> RunState: ...
        async def cancel(self, run_id: str) -> None: ...
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


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a durable run stands, as its agent says.

    Attributes:
        word: `active`, `completed`, `failed`, `cancelled` or `missing` (the agent knows no such
            run); any other word counts as `active`.
        reply: What it answered, once it is completed; a text will do.
        detail: In the agent's own words: why it failed, what it is at.
    """

    word: str
    reply: Reply | str = Reply()
    detail: str = ""


class DurableAgent(Protocol):
    """An agent whose runs outlive the process that started them.

    Whatever has these three methods is one, also where it has a `run` besides. Each may be sync or
    async, and may be called from another process than the one that started the run.
    """

    async def start(self, turn: Turn) -> str:
        """Start the run of *turn* and return its id: the same run for the same `turn.key`, always.

        It is called again under the same key whenever its answer was not heard: after a time-out
        (4 min), an exception that is none of the port's, or a crash. A key that is known starts
        nothing. `SessionBusy` and `AgentUnavailable` say that nothing was started, and
        `TurnFailed` that it never will be; `Waiting` that a person has to approve of it first.
        """

    async def inspect(self, run_id: str) -> RunState:
        """Return where a run stands, within 30 s. An exception says nothing about the run."""

    async def cancel(self, run_id: str) -> None:
        """End a run, within 30 s: return if that was taken up, or if it has ended already.

        An exception means that it goes on. How it ended is what `inspect` says. Asked twice is
        asked once: where that takes an idempotency key, it is `cancel:<run id>`.
        """


class Waiting(Exception):
    """Of `start` alone: a person has to approve of the run first, and nothing has started.

    It is asked again under the same key after 1, 2, 4 ... 128 s; then the turn has failed.
    """


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
