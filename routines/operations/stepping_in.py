"""What a person or a turn does to what is there: cancel, prune, adopt, sessions, wake-ups.

Each act says who did it.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.record import Record
from routines.errors import (
    SessionBusyError,
    StoreBusy,
    UnknownOccurrence,
    UnknownSession,
    UnknownWakeup,
    UsageError,
)
from routines.operations.context import Context
from routines.operations.life import is_unwatched, schedulers
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.control import CancelStore, SchedulerStore
from routines.store.retention import Keep, Pruned, RetentionStore
from routines.store.sessions import Lease, Ledger, SessionStore, native_path
from routines.store.state import State, check_place, open_for_reading
from routines.store.state import adopt as adopt_folder
from routines.store.wakeups import WakeupStore

if TYPE_CHECKING:
    from routines.domain.agent import AgentSpec
    from routines.domain.routine import Routine
    from routines.engine.tools import ToolAnswer, WakeTools


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What came of a cancel.

    Attributes:
        ref: The occurrence.
        message: One line: asked for, settled, or too late.
    """

    ref: str
    message: str


# Cancel -----------------------------------------------------------------------------------------


def cancel(context: Context, ref: str, *, reason: str) -> list[CancelResult]:
    """Cancel an occurrence, or what of a routine runs or waits.

    What has not started is settled at once; a running turn is asked to end, and its owner settles
    it within seconds.

    Raises:
        UnknownOccurrence: Nothing of that name is open.
    """
    claims = ClaimStore(context.writable_state)
    job = _cancel_job(context, ref, reason)
    if job is not None:
        return [job]
    targets = open_targets(context, claims, ref)
    if not targets:
        raise UnknownOccurrence(
            f"nothing of {ref} runs or waits", hint="`routines list` shows what does"
        )
    return [cancel_one(context, claims, record, reason) for record in targets]


def _cancel_job(context: Context, ref: str, reason: str) -> CancelResult | None:
    """Cancel the job that *ref* names; None if it names none, or one that has ended."""
    from routines.operations.queue import cancel_shown, job_named

    job = job_named(context, ref)
    if job is None or job.status.outcome is not None:
        return None
    answer = cancel_shown(context, job.status, intent=None, only_if_queued=False, reason=reason)
    if answer.word != "recorded":
        return None
    how = "cancelled before it started"
    if answer.outcome is None:
        how = "asked to end; its end is recorded when it has ended"
    return CancelResult(f"job:{job.status.id}", how)


def open_targets(context: Context, claims: ClaimStore, ref: str) -> list[Record]:
    """Return the open occurrences that *ref* names: of a routine all, else the one.

    Raises:
        UnknownOccurrence: There never was one of that name.
    """
    from routines.operations.finding import find

    found = []
    named = ref in context.workspace.names
    for entry in claims.open_entries(routine=ref if named else None):
        record = claims.read_path(entry.claim_path)
        if record is None or record.end is not None:
            continue
        wakeup = record.claim.get("wakeup")
        ids = {record.ref, record.occurrence.id}
        if isinstance(wakeup, dict):
            ids.add(str(wakeup.get("id")))
        if named or ref in ids:
            found.append(record)
    if found or named:
        return found
    # Settled, or named in another way; an unknown name is an error that says so.
    other = find(context, ref)
    return [other] if isinstance(other, Record) and other.end is None else []


def cancel_one(context: Context, claims: ClaimStore, record: Record, reason: str) -> CancelResult:
    """Record the intent to cancel an open occurrence, and settle it if it has not started."""
    now = context.clock.now()
    # An intent first, so that a turn that starts this moment finds it before it does.
    cancels = CancelStore(context.writable_state)
    intent = cancels.ask(
        record.ref, by=context.who, person=context.is_person, at=now, reason=reason
    )
    if record.is_under_way:
        alone = is_unwatched(claims, record)
        if alone and not schedulers(context.state, now=now).alive:
            said = "asked to end; nobody watches its run, so that waits for a scheduler"
            return CancelResult(record.ref, said)
        return CancelResult(record.ref, "asked to end; its end is recorded when it has ended")
    for entry in claims.open_entries():
        if entry.claim_path != record.path:
            continue
        claim = claims.hold(entry)
        if claim is None:
            break
        try:
            if not claim.record.is_under_way and cancels.accept(intent):
                claim.settle(*intent.end, reason, at=now, by=context.who)
                cancels.clear(record.ref)
                return CancelResult(record.ref, "cancelled before it started")
        finally:
            claim.let_go()
    return CancelResult(record.ref, "asked to end; it may end without having started")


# Prune ------------------------------------------------------------------------------------------


def prune(context: Context) -> Pruned:
    """Remove now what retention would remove within the hour."""
    kept = context.workspace.settings.retention
    keep = Keep(
        claims=kept.claims,
        days=kept.days,
        output_days=kept.output_days,
        output_mib=kept.output_mib,
    )
    store = RetentionStore(context.writable_state, clock=context.clock)
    return store.prune(keep, now=context.clock.now())


# A state folder that was copied or moved ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of a state folder that was copied or moved.

    Attributes:
        state: The folder as it is now.
        interrupted: Claims that the original goes on with, settled here.
        epochs: Sessions that begin anew here.
    """

    state: State
    interrupted: int
    epochs: int


def adopt(context: Context, *, fork: bool) -> Adopted:
    """Take a state folder as it is: moved, or with *fork* as a copy beside the original.

    A copy shares nothing with its original afterwards (PROMISES D10): it has an id of its own,
    the turns that were under way go on there and are interrupted here, and no conversation of
    the original's is continued. The id comes last: what is cut short is still refused, and done
    again.

    Raises:
        StoreBusy: Something of routines runs on this very folder; nothing was changed.
        StateMissing, StateForeign: There is none, or it is another user's.
    """
    from routines.agents.identity import boot_id

    found = open_for_reading(context.root.state)
    check_place(found.path)
    for scheduler, held in SchedulerStore(found).live():
        if held:
            pid = scheduler.owner.get("pid", "?")
            raise StoreBusy(
                f"a scheduler (pid {pid}) is alive on {found.path}",
                hint="nothing was changed; stop it first",
                path=found.path,
            )
    interrupted = epochs = 0
    if fork:
        files.root(found.path)
        interrupted = _interrupt_copied(context, found)
        epochs = _begin_anew(context, found)
    adopted = adopt_folder(found.path, boot=boot_id() or None, fork=fork)
    context.forget_state()
    return Adopted(adopted, interrupted, epochs)


def _interrupt_copied(context: Context, copied: State) -> int:
    claims, count = ClaimStore(copied), 0
    for entry in claims.open_entries():
        # No process is looked for: whatever has that turn is the original's.
        claim = claims.hold(entry)
        if claim is None:
            continue
        try:
            now = context.clock.now()
            why = "the state folder was copied while it was open"
            claim.settle(Outcome.INTERRUPTED, Reason.COPIED, why, at=now, by=context.who)
            CancelStore(copied).clear(claim.record.ref)
            count += 1
        finally:
            claim.let_go()
    return count


def _begin_anew(context: Context, copied: State) -> int:
    sessions, count = SessionStore(copied), 0
    for known in list(sessions.all()):
        lease = sessions.take(known.session, clock=context.clock, own_claim=known.claim)
        if not isinstance(lease, Lease):
            raise SessionBusyError(known.session, lease.holder)
        try:
            ledger = lease.ledger.new_epoch("the state folder was copied", agent=known.agent)
            lease.write(ledger.with_(claim=None, held_by=None))
            count += 1
        finally:
            lease.let_go()
    return count


# Of a command that holds a session: enough to recognise it by, in a line that says more.
_LONGEST_COMMAND = 120

# Sessions ---------------------------------------------------------------------------------------


def session_of(context: Context, name: str) -> str:
    """Return the session that a person means: a routine's name stands for its stable session.

    Raises:
        UnknownSession: There is none like that.
    """
    if name.startswith(("routine:", "named:", "wake:", "job:")):
        return name
    routine = context.workspace.routines.get(name)
    if routine is not None:
        return routine.session if routine.session.startswith("named:") else f"routine:{name}"
    known = [ledger.session for ledger in SessionStore(context.writable_state).all()]
    raise UnknownSession(name, [*known, *context.workspace.routines])


def _take(context: Context, session: str) -> Lease:
    lease = SessionStore(context.writable_state).take(session, clock=context.clock)
    if isinstance(lease, Lease):
        return lease
    raise SessionBusyError(session, lease.holder)


def session_hold(context: Context, session: str, command: Sequence[str]) -> int:
    """Run *command* while holding the lease of *session*; return its exit code.

    Raises:
        SessionBusyError: It is in use.
    """
    from routines.agents.processes import run_in_foreground

    if not command:
        raise UsageError(
            "session hold needs a command",
            hint="routines session hold SESSION -- COMMAND, which runs while the session is held",
        )
    session = session_of(context, session)
    what = f"session hold: {shlex.join(command)}"
    return _held(context, session, what, lambda: run_in_foreground(command, cwd=context.cwd))


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
    from routines.agents.processes import run_in_foreground
    from routines.domain.ledger import chooses_id

    session = session_of(context, session)
    state = context.writable_state
    ledger = SessionStore(state).peek(session)
    if ledger is None or ledger.agent is None:
        raise UnknownSession(session, [one.session for one in SessionStore(state).all()])
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
    routine = _routine_of(context, session)
    cwd = context.root.path if routine is None or routine.cwd is None else routine.cwd
    env = _environment_of(context, routine, spec, session)
    what = f"session open: {shlex.join(words)}"
    if routine is None or routine.wake_tools:
        # Words of `args` are for turns alone, and an interactive program may know other ones.
        handed, env = hand_over(replace(spec, args=()), env)
        words += handed.args
    return _held(context, session, what, lambda: run_in_foreground(words, cwd=cwd, env=env))


def _routine_of(context: Context, session: str) -> "Routine | None":
    """Return the routine whose settings hold for a session: the first that names it."""
    routines = context.workspace.routines
    own = routines.get(session.removeprefix("routine:").partition("@")[0])
    return own or next((one for one in routines.values() if one.session == session), None)


def _environment_of(
    context: Context, routine: "Routine | None", spec: "AgentSpec", session: str
) -> dict[str, str]:
    """Return the environment of a turn, as far as it says where a program keeps its things.

    An alarm that is set in there fires in this conversation.
    """
    from routines.agents.environment import read_env_file, without_surroundings

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


def _held(context: Context, session: str, what: str, work: Callable[[], int]) -> int:
    lease = _take(context, session)
    try:
        lease.stamp(None, held_by=f"{context.who} ({one_line(what, most=_LONGEST_COMMAND)})")
        return work()
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


# Wake-ups ---------------------------------------------------------------------------------------


def wake_tools(context: Context, *, session: str | None) -> "WakeTools":
    """Return the tools of *session*, or of the turn that this process belongs to."""
    from routines.domain.wakeup import DEFAULT_BOUNDS
    from routines.engine.recipients import reply_to
    from routines.engine.tools import WakeTools

    state = context.writable_state
    turn = context.environ.get("ROUTINES_TURN")
    own = session or context.environ.get("ROUTINES_SESSION")

    def no_scheduler() -> str | None:
        alive = schedulers(state, now=context.clock.now()).alive
        return None if alive else context.short(context.root.path)

    return WakeTools(
        state,
        session=own,
        by=context.who,
        turn=turn,
        clock=context.clock,
        zone=context.workspace.settings.tz,
        bounds=DEFAULT_BOUNDS,
        no_scheduler=no_scheduler,
        reply_to=lambda name: reply_to(
            name, context.workspace.routines, context.workspace.settings.deliver
        ),
        in_turn=turn is not None,
    )


def wake(
    context: Context,
    *,
    prompt: str,
    in_: str | None,
    at: str | None,
    every: str | None,
    cron: str | None,
    tz: str | None,
    session: str | None,
) -> "ToolAnswer":
    """Set a wake-up in the turn's session, in *session*, or in a fresh one.

    Raises:
        WakeupRefused: A guardrail says no; nothing was scheduled.
    """
    if session is not None:
        session = session_of(context, session)
    tools = wake_tools(context, session=session)
    return tools.ask(prompt=prompt, in_=in_, at=at, every=every, cron=cron, tz=tz)


def unwake(context: Context, wakeup_id: str) -> "ToolAnswer":
    """Cancel a wake-up: inside a turn one of its session, outside any."""
    return wake_tools(context, session=None).cancel(wakeup_id)


def wakeups_cancel(
    context: Context, *, wakeup_id: str | None, session: str | None, all_: bool
) -> "list[ToolAnswer]":
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
    claims = ClaimStore(context.writable_state)
    found = []
    for entry in claims.open_entries():
        record = claims.read_path(entry.claim_path)
        if record is None or record.end is not None:
            continue
        if session is None or session in (record.session, _owner_of(record)):
            found.append(record)
    return found


def _owner_of(record: Record) -> str:
    """Return the session whose wake-up a firing is of; its turn may be in another."""
    wakeup = record.claim.get("wakeup")
    return str(wakeup.get("session")) if isinstance(wakeup, dict) else str(record.session)


# More than any store should hold; what is left is cancelled by asking again.
_ALL = 1_000_000
