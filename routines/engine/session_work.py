"""What a turn does that no slot asks for: a wake-up's or a job's, in whatever session it is."""

import contextlib
from dataclasses import replace

from routines.domain.names import routine_of
from routines.engine.definitions import Definitions
from routines.engine.recipients import sharer_of
from routines.engine.work import Work
from routines.errors import UnknownAgent
from routines.store.sessions import SessionStore


def work_in_session(
    session: str,
    prompt: str,
    *,
    definitions: Definitions,
    sessions: SessionStore,
    agent: str | None = None,
) -> Work:
    """Return the work of a turn with *prompt* in *session*: as its routine's turns, if it has one.

    Args:
        session: Its name.
        prompt: Exactly what the agent gets.
        definitions: The routines and agents that there are.
        sessions: Whose conversation it is.
        agent: Who is to answer instead of the session's own.

    Raises:
        UnknownAgent: Nobody is there to answer it.
    """
    work = _of_session(session, definitions, sessions, agent)
    # Gate, schedule and the limit on lateness belong to slots alone: one that comes again may be
    # given up, and this would be lost.
    return replace(work, prompt=prompt, only_if=None, start_within=None, schedule=None, files=())


def _of_session(
    session: str, definitions: Definitions, sessions: SessionStore, agent: str | None
) -> Work:
    routine = definitions.current(routine_of(session) or "")
    if routine is not None:
        return definitions.work(routine, agent=agent)
    sharer = sharer_of(session, definitions.routines)
    if sharer is None:
        work = _without_routine(session, definitions, sessions, agent)
        return replace(work, deliver=definitions.deliver)
    # Its agent, folder and environment are those of the session; another agent would begin
    # the conversation anew. Its days and limits are those of its own turns.
    work = definitions.work(sharer, agent=agent)
    own = tuple(limit for limit in work.limits if limit.routine is None)
    return replace(work, routine=None, limits=own)


def _without_routine(
    session: str, definitions: Definitions, sessions: SessionStore, agent: str | None
) -> Work:
    """Return the work of a session that no routine has, by the agent whose conversation it is.

    Its routine may have been removed or renamed since: another agent would begin it anew.
    """
    ledger = None if agent is not None else sessions.peek(session)
    if ledger is not None and ledger.agent is not None:
        with contextlib.suppress(UnknownAgent):
            return definitions.work_without_routine(agent=ledger.agent)
    return definitions.work_without_routine(agent=agent)
