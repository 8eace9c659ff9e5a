"""Turns: `start`, `run`, `fire`, `tick`. The engine does what is asked, here it is answered."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from routines.agents.processes import run_probe
from routines.config.workspace import Workspace
from routines.config.workspace_file import ECHO_NAME
from routines.domain.names import format_instant
from routines.domain.outcome import Outcome
from routines.domain.record import Event, Record
from routines.engine.definitions import FileDefinitions
from routines.engine.engine import Engine
from routines.engine.events import EngineEvent
from routines.engine.lifecycle import Limits
from routines.engine.measuring import PassFacts
from routines.engine.running import Running
from routines.errors import (
    InvalidFiles,
    NoScheduler,
    RoutinesError,
    StateUnusable,
    StoreError,
    UnknownRoutine,
)
from routines.operations.agents_found import AgentFound, agents_found, with_versions
from routines.operations.context import Context
from routines.operations.entries import reply_of
from routines.operations.holding import session_of
from routines.operations.life import schedulers
from routines.operations.log_lines import log_to
from routines.operations.wake_tools_found import HOW_TO_GET_IT, wake_tools_found
from routines.operations.zone_note import zone_note
from routines.store import files, probe
from routines.store.cursors import Missed
from routines.store.retention import Keep
from routines.store.state import State

log = logging.getLogger("routines")

_T = TypeVar("_T")

_WHY_NOT_STARTED = (
    "its process ended at once: mostly the disk is full (`routines doctor`). What it could still"
    " say is in {state}/output"
)
# As a shell tells of a program that ^C ended.
_INTERRUPTED = 130
# As for a session that is busy: what was asked for has to be asked for again.
_WAITS = 75


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run by hand came to.

    Attributes:
        record: Its record; None if it was handed to a scheduler.
        ref: Its id.
        reply: The agent's whole reply, as far as it is kept; None if there is none.
        exit_code: 0 completed, 1 any other outcome, 75 busy, 130 cancelled by ^C,
            SIGTERM or SIGHUP.
    """

    record: Record | None
    ref: str
    reply: str | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class FireResult:
    """What a delivered slot came to.

    Attributes:
        exit_code: 0 dealt with, 1 its turn failed, or it is parked and waits for a person, 75 it
            is claimed and has to wait on: deliver it again.
        message: Why it did not run, or how it ended: one line.
        record: Its record, if it has one of its own.
        missed: The counted record that it is in, if it was given up.
    """

    exit_code: int
    message: str
    record: Record | None
    missed: Missed | None = None


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one pass came to.

    Attributes:
        counts: How many occurrences ended in which outcome; those that have to wait on by their
            state.
        exit_code: 0 if all that it claimed completed or was recorded without running, or nothing
            was due; 1 with any error.
        waiting: How many routines, claims and wake-ups are due and could not start: they wait for
            their session, their group, a place, or an older slot.
        errors: What is owed and could not be dealt with, one for each kind of refusal.
    """

    counts: dict[str, int]
    exit_code: int
    errors: tuple[RoutinesError, ...] = ()
    waiting: int = 0


class Companion(Protocol):
    """What accompanies a scheduler on its loop, and is told what happens there."""

    @property
    def line(self) -> str:
        """What `start` says of it."""

    def on_event(self, event: EngineEvent) -> None:
        """Take note of an event."""

    def on_pass(self, facts: PassFacts) -> None:
        """Take note of a look at everything."""

    def alongside(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Be there for the block, which the scheduler starts and stops in."""


def engine_of(
    context: Context,
    *,
    live: bool,
    is_scheduler: bool,
    external_clock: bool = False,
    companion: Companion | None = None,
) -> Engine:
    """Return an engine on the workspace's files.

    Raises:
        InvalidFiles: routines.yaml can't be used.
        StateUnusable: The file system lacks what claims need.
    """
    definitions = FileDefinitions(context.root, live=live)
    workspace = context.workspace
    if workspace.settings_problems:
        raise InvalidFiles(workspace.settings_problems)
    definitions.workspace = workspace if not live else None
    _check_file_system(context.writable_state)
    retention = workspace.settings.retention
    return Engine(
        context.root.state,
        routines=definitions,
        limits=Limits(concurrency=workspace.settings.concurrency),
        keep=Keep(
            claims=retention.claims,
            days=retention.days,
            output_days=retention.output_days,
            output_mib=retention.output_mib,
        ),
        is_scheduler=is_scheduler,
        external_clock=external_clock,
        on_event=None if companion is None else companion.on_event,
        on_pass=None if companion is None else companion.on_pass,
    )


def _check_file_system(state: State) -> None:
    """Try what claims and leases need, once for each device (PROMISES D9)."""
    remembered = state.at("locks", "probed")
    device = str(os.stat(state.path).st_dev).encode()
    if files.read(remembered) == device:
        return
    code = run_probe(state.path)
    if code == probe.FAILED:
        refused = probe.try_writing(state.path)
        if refused is not None:
            raise refused
    if code != probe.FINE:
        what = {
            probe.NO_LOCKS: "locks don't work there between processes",
            probe.NO_EXCLUSION: "a name can be created twice there",
        }.get(code, "files can't be written there")
        raise StateUnusable(
            f"{state.path}: {what}, so that a slot could fire twice: nothing was started",
            hint="put the state folder on a local disk: `state: PATH` in routines.yaml",
            path=state.path,
        )
    try:
        files.make_folder(os.path.dirname(remembered))
        files.replace(remembered, device)
    except OSError as error:
        raise files.fault(error, "write", remembered) from error


# The scheduler --------------------------------------------------------------------------------


def start(
    context: Context,
    *,
    grace: timedelta,
    leave_turns: bool,
    log_format: str,
    external_clock: bool = False,
    companion: Companion | None = None,
) -> int:
    """Run the scheduler until it is told to stop; return the exit code.

    Args:
        context: Where and when.
        grace: How long turns may take to end at a stop.
        leave_turns: Whether turns are left to their own processes at a stop.
        log_format: `text` or `json`.
        external_clock: Whether slots come from outside, so that only wake-ups fire here.
        companion: What accompanies it, or None.
    """
    log_to(sys.stderr, log_format)
    refused = probe.try_writing(context.writable_state.path)
    if refused is not None:
        # It would live, and beat, and fire nothing.
        raise refused
    engine = engine_of(
        context,
        live=True,
        is_scheduler=True,
        external_clock=external_clock,
        companion=companion,
    )
    others = schedulers(context.state, now=context.clock.now()).live
    beside_us = [str(other.owner.get("pid")) for other in others]
    for line in start_lines(context, beside_us, external_clock=external_clock):
        sys.stderr.write(line + "\n")
    if companion is not None:
        sys.stderr.write(companion.line + "\n")
    sys.stderr.flush()
    beside = contextlib.nullcontext() if companion is None else companion.alongside()
    return asyncio.run(serve(engine, grace=grace, leave_turns=leave_turns, beside=beside))


def start_lines(
    context: Context, others: Sequence[str], *, external_clock: bool = False
) -> list[str]:
    """Return what `start` says first: root, state, what is armed, with which programs."""
    workspace = context.workspace
    armed = _armed_words(workspace)
    if external_clock:
        armed = f"nothing, {armed} would be: slots come from outside, by fire or tick"
    lines = [
        f"root      {context.short(context.root.path)} ({context.root.found_by.value})",
        f"state     {context.short(context.root.state)}",
        f"armed     {armed}",
    ]
    lines += [f"broken    {one.place()}: {one.message}" for one in workspace.problems]
    path = context.environ.get("PATH", "")
    agents = agents_found(workspace.settings, workspace.routines, path=path)
    for found in with_versions(context, agents, keep=True):
        lines.append(f"agent     {_agent_words(context, found)}")
    note = zone_note(context)
    if note:
        lines.append(f"note      {note}")
    lack = wake_tools_found(workspace.settings, workspace.routines).lack
    if lack is not None:
        lines.append(f"note      {lack}; {HOW_TO_GET_IT}")
    if others:
        lines.append(f"beside    {len(others)} other scheduler(s): pid {', '.join(others)}")
    return lines


def _armed_words(workspace: Workspace) -> str:
    """Return `2 of 3 routines, 1 by name`: what has no schedule is not there to be armed."""
    routines = workspace.routines.values()
    by_name = sum(r.schedule is None for r in routines)
    armed = sum(r.enabled and r.schedule is not None for r in routines)
    count = len(workspace.names) - by_name
    text = f"{armed} of {count} routine{'' if count == 1 else 's'}"
    return f"{text}, {by_name} by name" if by_name else text


def _agent_words(context: Context, found: AgentFound) -> str:
    if found.name == ECHO_NAME:
        return f"{found.name}, built in"
    where = found.problem or context.short(found.program or "")
    version = f" {found.version}" if found.version else ""
    return f"{found.name or '(no agent)'}: {where}{version}"


async def serve(
    engine: Engine,
    *,
    grace: timedelta,
    leave_turns: bool,
    beside: contextlib.AbstractAsyncContextManager[None] | None = None,
) -> int:
    """Run *engine* until a signal, with what serves beside it, and return the exit code."""
    loop = asyncio.get_running_loop()
    told: list[int] = []
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        told.append(number)
        if len(told) > 1:
            engine.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    async with beside or contextlib.nullcontext():
        await engine.start()
        log.info("started", extra={"pid": os.getpid()})
        await stop.wait()
        log.info("stopping", extra={"signal": signal.Signals(told[0]).name})
        await engine.stop(grace=grace, leave_turns=leave_turns)
    log.info("stopped")
    return _INTERRUPTED if told[0] == signal.SIGINT else 0


# One turn ---------------------------------------------------------------------------------------


def run(
    context: Context,
    name: str,
    *,
    append: str | None,
    agent: str | None,
    session: str | None,
    detach: bool,
) -> RunResult:
    """Run a routine now, by hand.

    Raises:
        UnknownRoutine, InvalidFiles: It can't be run.
        InvalidName, UnknownSession: There is no such session; nothing was run.
        SessionBusyError: Its session is in use; nothing was run.
        NoScheduler: With *detach*, when nobody is alive to take it; nothing was claimed.
    """
    _check_known(context, name)
    engine = engine_of(context, live=False, is_scheduler=False)
    # A name with a slip in it would begin a conversation of its own, and report success.
    session = None if session is None else session_of(context, session)
    asked = {"append": append, "agent": agent, "session": session, "by": context.who}
    if detach:
        if not schedulers(context.state, now=context.clock.now()).alive:
            raise NoScheduler(
                f"no scheduler is alive on {context.root.state} to take it: nothing was claimed",
                hint="`routines start`, or run it without --detach",
            )
        ref = asyncio.run(_opened(engine, lambda: engine.detach_run(name, **asked)))
        return RunResult(None, ref, None, 0)
    record, interrupted = asyncio.run(_run_by_hand(context, engine, name, asked))
    if interrupted:
        code = _INTERRUPTED
    else:
        code = 0 if record.outcome is Outcome.COMPLETED else exit_code_of(record)
    return RunResult(record, record.ref, reply_of(context.state, record), code)


def exit_code_of(record: Record) -> int:
    """Return 75 for a turn that the agent itself refused as busy, else 1."""
    line = record.events[-2] if len(record.events) > 1 else {}
    busy = line.get("event") == "not-started" and line.get("reason") == "busy"
    return 75 if busy else 1


async def _opened(engine: Engine, ask: Callable[[], Awaitable[_T]]) -> _T:
    async with engine.opened():
        return await ask()


async def _run_by_hand(
    context: Context, engine: Engine, name: str, asked: dict[str, Any]
) -> tuple[Record, bool]:
    """Run one turn; ^C, SIGTERM or SIGHUP cancels it, and its end is awaited."""
    from routines.store.cancels import CancelStore

    loop = asyncio.get_running_loop()
    said: list[str] = []
    running: Running | None = None

    def cancel(turn: Running) -> None:
        try:
            CancelStore(context.writable_state).ask(
                turn.ref, by=context.who, person=True, at=context.clock.now(), reason=said[0]
            )
        except StoreError:
            # What can't be recorded as a cancel is ended all the same.
            turn.stop()

    def on_signal(number: int) -> None:
        # Nobody typed ^C where a service manager or `kill` ends us.
        said.append("^C" if number == signal.SIGINT else signal.Signals(number).name)
        if running is not None:
            if len(said) > 1:
                running.stop()
            else:
                cancel(running)

    # Before the claim: between it and a later handler a ^C would leave the turn to itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    async with engine.opened():
        running = await engine.begin_run(name, **asked)
        if said:
            cancel(running)
        record = await running.done
    if record is None:
        raise StoreError(
            f"{running.ref} was not started",
            hint=_WHY_NOT_STARTED.format(state=context.root.state),
        )
    return record, bool(said)


def _check_known(context: Context, name: str) -> None:
    workspace = context.workspace
    if name in workspace.routines:
        return
    if name in workspace.broken:
        raise InvalidFiles(workspace.broken[name])
    raise UnknownRoutine(name, workspace.names)


# Outside clocks ---------------------------------------------------------------------------------


def fire(context: Context, name: str, *, slot: datetime) -> FireResult:
    """Claim a slot for an outside clock, run it, and wait for its end.

    Raises:
        SlotRefused: The schedule does not name it.
        SessionBusyError: Its session or its group is in use: deliver it again.
    """
    _check_known(context, name)
    engine = engine_of(context, live=False, is_scheduler=False)
    delivery = asyncio.run(_opened(engine, lambda: engine.fire(name, slot)))
    ref = f"{name}@{format_instant(slot)}"
    record, missed = delivery.record, delivery.missed
    match delivery.word:
        case _ if record is not None and record.end is None and record.last == Event.PARKED:
            said = f"{ref} is parked: `routines recover {ref}` runs it, `routines cancel` ends it"
            return FireResult(1, said, record)
        case "retrying" if record is not None and record.is_under_way:
            return FireResult(0, f"{ref} was delivered before{_since(record)}", record)
        case "claimed" | "buffered" | "retrying" if record is not None and record.end is None:
            at = "" if record.retry_at is None else f" at {format_instant(record.retry_at)}"
            again = "deliver it again, or leave it to the next look"
            return FireResult(_WAITS, f"{ref} {_ended(record)}{at} and waits on: {again}", record)
        case "claimed" | "buffered" | "retrying" if record is None:
            return FireResult(1, f"{ref} was claimed and not started: the log says why", None)
        case "claimed" | "buffered" | "retrying" if record is not None:
            return FireResult(0 if _is_clean(record) else 1, f"{ref} {_ended(record)}", record)
        case "duplicate" if missed is not None:
            said = f"{ref} was delivered before: missed: {missed.reason.value}"
            return FireResult(0, said, None, missed)
        case "duplicate":
            return FireResult(0, f"{ref} was delivered before{_since(record)}", record)
        case "skipped":
            return FireResult(0, f"{ref} {'skipped' if record is None else _ended(record)}", record)
        case word:
            why = "" if missed is None else f": {missed.reason.value}"
            said = "is stale, a newer slot was dealt with" if word == "stale" else f"is missed{why}"
            return FireResult(0, f"{ref} {said}", record, missed)


def _is_clean(record: Record) -> bool:
    """Return whether it is dealt with as it should be: completed, or recorded without running."""
    if record.outcome is Outcome.CANCELLED:
        # Somebody wanted just that; a turn that was ended half way is another matter.
        return record.started is None
    return record.outcome in (Outcome.COMPLETED, Outcome.SKIPPED, Outcome.MISSED)


def _since(record: Record | None) -> str:
    """Return what became of a slot that was delivered before: `: completed`, ` and is running`."""
    if record is None:
        return ""
    return f" and {_ended(record)}" if record.outcome is None else f": {_ended(record)}"


def _ended(record: Record) -> str:
    if record.outcome is None:
        return f"is {record.written_state.value}"
    why = f": {record.reason.value}" if record.reason is not None else ""
    detail = str((record.end or {}).get("detail") or "")
    return f"{record.outcome.value}{why}" + (f", {detail}" if detail else "")


def tick(context: Context, names: list[str]) -> TickResult:
    """Do one pass, wait for its turns, and count how they ended.

    What the store refuses keeps nothing else from its turn, and is told beside the counts.
    """
    for name in names:
        _check_known(context, name)
    engine = engine_of(context, live=False, is_scheduler=False)
    ticked = asyncio.run(_opened(engine, lambda: engine.tick_through(names or None)))
    records = ticked.records
    counts = Counter(
        (record.outcome or record.written_state).value for record in records if record is not None
    )
    failed = any(record is None or not _is_clean(record) for record in records)
    # Of a routine that was not asked about nobody wants to hear.
    others = set(context.workspace.names).difference(names) if names else set()
    errors = _told({key: why for key, why in ticked.refused.items() if key not in others})
    unstarted = sum(record is None for record in records)
    if unstarted:
        errors.append(
            StoreError(
                f"{unstarted} claimed and not started; the next tick takes up what is left of it",
                hint=_WHY_NOT_STARTED.format(state=context.root.state),
            )
        )
    waiting = sum(routine not in others for routine in ticked.waiting.values())
    return TickResult(dict(counts), 1 if failed or errors else 0, tuple(errors), waiting)


def _told(refused: Mapping[str, RoutinesError]) -> list[RoutinesError]:
    """Return one error for each kind and hint: a full disk refuses everything alike."""
    alike: dict[tuple[str, str | None], list[tuple[str, RoutinesError]]] = {}
    for key, error in refused.items():
        alike.setdefault((error.code, error.hint), []).append((key, error))
    told = []
    for found in alike.values():
        key, first = found[0]
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        error = copy(first)
        error.message = f"{key}: {first.message}{more}"
        told.append(error)
    return told
