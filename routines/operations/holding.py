"""`session hold`, `open` and `reset`: what a person does with a conversation, under its lease."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from routines.domain.names import check_session_name, routine_of
from routines.domain.outcome import one_line
from routines.engine.recipients import in_charge_of
from routines.errors import SessionBusyError, UnknownSession, UsageError
from routines.operations.context import Context
from routines.store.sessions import Lease, Ledger, SessionStore, native_path

if TYPE_CHECKING:
    from routines.domain.agent import AgentSpec
    from routines.domain.routine import Routine


# Of a command that holds a session: enough to recognise it by, in a line that says more.
_LONGEST_COMMAND = 120


def session_of(context: Context, name: str) -> str:
    """Return the session that a person means: a routine's name stands for its stable session.

    It may have had no turn yet; of a name that has no form of ours it must have had one. Writes
    nothing.

    Raises:
        InvalidName: No named session can be called that.
        UnknownSession: There is none like that.
    """
    if name.startswith("named:"):
        return check_session_name(name)
    if name.startswith("job:") or routine_of(name) in context.workspace.names:
        # It may be the first that is said there.
        return name
    routine = context.workspace.routines.get(name)
    if routine is not None:
        return routine.lasting_session
    state = context.state_or_none
    known = [] if state is None else [one.session for one in SessionStore(state).all()]
    # A program that embeds an engine names its sessions as it likes.
    if name in known:
        return name
    raise UnknownSession(name, [*known, *context.workspace.routines])


def _take(context: Context, session: str) -> Lease:
    """Take the lease of *session*, as `run` does: what a killed turn left in it ends first."""
    sessions = SessionStore(context.writable_state)
    lease = sessions.take(session, clock=context.clock)
    if not isinstance(lease, Lease) and not lease.locked and lease.claim is not None:
        _settle(context, lease.claim)
        lease = sessions.take(session, clock=context.clock)
    if not isinstance(lease, Lease) and lease.opened is not None:
        from routines.engine.opened import end_opened

        end_opened(context.writable_state, session, clock=context.clock)
        lease = sessions.take(session, clock=context.clock)
    if isinstance(lease, Lease):
        return lease
    raise SessionBusyError(session, lease.holder)


def _settle(context: Context, claim_path: str) -> None:
    """Settle the claim of a turn whose process is gone; without a scheduler nobody else does.

    A turn that lives keeps its claim locked, and a program that works a job its lease: they stay.
    """
    from routines.engine import host
    from routines.engine.recovering import Recoverer

    recoverer = Recoverer(
        context.writable_state,
        clock=context.clock,
        owner=host.owner(),
        # Alerts are told by who runs turns: the record says it to them.
        on_settled=lambda _: None,
    )
    recoverer.recover_path(claim_path)
    recoverer.wait()


def session_hold(context: Context, session: str, command: Sequence[str]) -> int:
    """Run *command* while holding the lease of *session*; return its exit code.

    Raises:
        SessionBusyError: It is in use.
    """
    if not command:
        raise UsageError(
            "session hold needs a command",
            hint="routines session hold SESSION -- COMMAND, which runs while the session is held",
        )
    session = session_of(context, session)
    what = f"session hold: {shlex.join(command)}"
    return _held(context, session, what, command, cwd=context.cwd, env=dict(context.environ))


def session_open(context: Context, session: str) -> int:
    """Run the agent's own interactive program on a conversation, under its lease.

    It is handed the wake tools as a turn is; what it sets fires in this conversation.

    Raises:
        UnknownSession: It has had no turn yet.
        UsageError: Its agent has no interactive program.
        SessionBusyError: It is in use.
    """
    from routines.agents.command_words import fill_words
    from routines.agents.handover import hand_over
    from routines.domain.ledger import chooses_id
    from routines.engine.opened import marks_around

    session = session_of(context, session)
    state = context.writable_state
    ledger = SessionStore(state).peek(session)
    if ledger is None or ledger.agent is None:
        name = routine_of(session)
        mine = name if name in context.workspace.names else None
        known = [one.session for one in SessionStore(state).all()]
        raise UnknownSession(session, known, routine=mine)
    spec = context.workspace.settings.spec_of(ledger.agent)
    if spec is None or spec.interactive is None:
        raise UsageError(
            f"the agent {ledger.agent} has no interactive program",
            hint=f"say under `agents: {ledger.agent}:` how it is opened: interactive: [..]",
        )
    native = ledger.native_session or (ledger.uuid(state.workspace) if chooses_id(spec) else None)
    if native is None and any("{native_session}" in word for word in spec.interactive):
        raise UsageError(
            f"{ledger.agent} has not said yet by which id it knows {session}",
            hint="it says it in its first turn: routines run NAME",
        )
    words = fill_words(
        spec.interactive,
        session=session,
        session_uuid=ledger.uuid(state.workspace),
        session_file=native_path(state, session, ledger.epoch),
        native_session=native or "",
    )
    routine = in_charge_of(session, context.workspace.routines)
    cwd = context.root.path if routine is None or routine.cwd is None else routine.cwd
    env = _environment_of(context, routine, spec, session)
    what = f"session open: {shlex.join(words)}"
    if routine is None or routine.wake_tools:
        # Words of `args` are for turns alone, and an interactive program may know other ones.
        handed, env = hand_over(replace(spec, args=()), env)
        words += handed.args
    env |= marks_around(context.environ)
    return _held(context, session, what, words, cwd=cwd, env=env)


def _environment_of(
    context: Context, routine: "Routine | None", spec: "AgentSpec", session: str
) -> dict[str, str]:
    """Return the environment of a turn, as far as it says where a program keeps its things.

    An alarm that is set in there fires in this conversation.
    """
    from routines.agents.environment import read_env_file
    from routines.agents.surroundings import without_surroundings

    env = without_surroundings(context.environ)
    env_file = context.workspace.settings.env_file if routine is None else routine.env_file
    if env_file is not None:
        env |= read_env_file(env_file)
    env |= dict(() if routine is None else routine.env) | dict(spec.env)
    return env | {
        "ROUTINES_ROOT": context.root.path,
        "ROUTINES_STATE": context.root.state,
        "ROUTINES_SESSION": session,
    }


def _held(
    context: Context,
    session: str,
    what: str,
    words: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
) -> int:
    """Run a program while holding *session*; it is known for what it is, should we be killed."""
    from routines.agents.processes import run_in_foreground
    from routines.engine.opened import to_be_opened

    lease = _take(context, session)
    opened = to_be_opened(context.clock)
    held_by = f"{context.who} ({one_line(what, most=_LONGEST_COMMAND)})"
    try:
        lease.stamp(None, held_by=held_by, opened=opened)
        return run_in_foreground(
            words, cwd=cwd, env={**env, **opened.variable(context.writable_state.path)}
        )
    finally:
        try:
            lease.stamp(None)
        finally:
            lease.let_go()


def session_reset(context: Context, session: str, *, reason: str) -> Ledger:
    """Begin a new epoch: the next turn of *session* finds an empty conversation.

    Raises:
        SessionBusyError: It is in use; nothing was changed.
    """
    session = session_of(context, session)
    lease = _take(context, session)
    try:
        why = f"reset by {context.who}" + (f": {reason}" if reason else "")
        lease.write(lease.ledger.new_epoch(why, agent=lease.ledger.agent))
        return lease.ledger
    finally:
        lease.let_go()
