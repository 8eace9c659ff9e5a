"""When a session goes on, and when it begins anew: decided from what its ledger says."""

from dataclasses import dataclass

from routines.domain.agent import AgentKind, AgentSpec, Unfinished


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
    if not known.first_turn_begun or known.native_session is not None:
        return None
    if spec is None or not keeps_own_sessions(spec):
        return None
    if spec.acp is not None and known.epoch_turns > 0:
        # Its id is kept only where it says that it can take the conversation up again.
        return f"{agent} can't take up a conversation again"
    if known.epoch_turns > 0:
        # Where we chose the id it is known all the same.
        if chooses_id(spec) or not _needs_own_id(spec):
            return None
        # Also where it named one: the record of that turn shows it.
        return f"{agent} named no id that can be used"
    # The first turn of this epoch was launched and never finished.
    if resumes_unfinished(spec):
        return None
    return f"the first turn of epoch {known.epoch} did not finish"


def _needs_own_id(spec: AgentSpec) -> bool:
    """Return whether a later turn hands over the id that the program chose."""
    if spec.http is not None:
        return spec.http.uses("native_session")
    return any("{native_session}" in word for word in spec.command)


def resumes_unfinished(spec: AgentSpec) -> bool:
    """Return whether a first turn that did not finish is resumed, by the id that we chose."""
    return spec.unfinished is Unfinished.RESUME and chooses_id(spec)


def keeps_own_sessions(spec: AgentSpec) -> bool:
    """Return whether the program has conversations of its own that have to be begun and found."""
    if spec.http is not None:
        return _needs_own_id(spec)
    if spec.acp is not None:
        return True
    return spec.kind is AgentKind.COMMAND and (spec.first is not None or _needs_own_id(spec))


def chooses_id(spec: AgentSpec) -> bool:
    """Return whether we choose the id of the conversation, and not the program."""
    if spec.http is not None:
        return spec.http.uses("session_uuid")
    return spec.first is not None and any("{session_uuid}" in word for word in spec.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a conversation has cost so far, as far as it is known.

    Attributes:
        usd: In US dollars.
        tokens: Input and output together.
    """

    usd: float | None = None
    tokens: int | None = None


def this_turn(
    *, alone: Totals, reported: Totals, before: Totals, running: bool
) -> tuple[Totals, Totals]:
    """Return what a turn cost, and what its conversation has cost with it.

    Args:
        alone: What the program says of the turn alone.
        reported: What it says where a running total of the conversation is expected.
        before: What the conversation had cost before.
        running: Whether that really is a running total in this version of the program.
    """
    usd, usd_total = _rise(alone.usd, reported.usd, before.usd, running=running)
    tokens, tokens_total = _rise(alone.tokens, reported.tokens, before.tokens, running=running)
    turn = Totals(
        usd=None if usd is None else round(usd, 6),
        tokens=None if tokens is None else int(tokens),
    )
    totals = Totals(
        usd=None if usd_total is None else round(usd_total, 6),
        tokens=None if tokens_total is None else int(tokens_total),
    )
    return turn, totals


def _rise(
    alone: float | None, reported: float | None, before: float | None, *, running: bool
) -> tuple[float | None, float | None]:
    if reported is None:
        return alone, before
    known = before or 0
    if not running:
        # Added up by us, so that a program that is brought up to date goes on from there.
        return (reported if alone is None else alone), known + reported
    # A total that fell was begun anew (another process of the program, its history cleared):
    # all of it is new. So no turn is ever counted below zero.
    rise = reported - known if reported >= known else reported
    return (rise if alone is None else alone), reported
