"""When a session goes on, and when it begins anew: decided from what its ledger says."""

from dataclasses import dataclass

from routines.domain.agent import AgentKind, AgentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a session's ledger says that this decision needs.

    Attributes:
        agent: Whose conversation it is; None before the first turn.
        epoch: The count of its native sessions.
        native_session: The id by which the program knows it, if that is known.
        first_turn_begun: Whether the first turn of this epoch was ever about to be launched.
        epoch_turns: Finished turns of this epoch.
    """

    agent: str | None
    epoch: int
    native_session: str | None
    first_turn_begun: bool
    epoch_turns: int


def why_new_epoch(
    known: Known, *, agent: str, spec: AgentSpec | None, session_turns: int | None
) -> str | None:
    """Return why the conversation has to begin anew, or None if it goes on."""
    if known.agent is not None and known.agent != agent:
        return f"the agent changed from {known.agent} to {agent}"
    if session_turns is not None and known.epoch_turns >= session_turns:
        return f"it had {known.epoch_turns} turns, and session_turns is {session_turns}"
    if not known.first_turn_begun or known.epoch_turns > 0:
        return None
    # The first turn of this epoch was launched and never finished.
    if spec is None or not keeps_own_sessions(spec) or known.native_session is not None:
        return None
    return f"the first turn of epoch {known.epoch} did not finish"


def keeps_own_sessions(spec: AgentSpec) -> bool:
    """Return whether the program has conversations of its own that have to be begun and found."""
    return spec.kind is AgentKind.COMMAND and (
        spec.first is not None or any("{native_session}" in word for word in spec.command)
    )


def chooses_id(spec: AgentSpec) -> bool:
    """Return whether we choose the id of the conversation, and not the program."""
    return spec.first is not None and any("{session_uuid}" in word for word in spec.first)
