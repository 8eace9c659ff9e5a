"""The process that owns one turn: claim and lease are handed to it, and it settles what it began.

Its words are FDS STATE CLAIM WORK; the first descriptor is the claim's, the
second the lease's (see `engine.running`).

It outlives the scheduler that started it: a crash, a kill -9 or an upgrade of that one loses no
turn. For a command agent it imports neither asyncio nor the command line, since it lives as long
as the agent does, beside every agent (PROMISES T1).
"""

import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType

from routines.agents.base import Reply, Turn, TurnResult
from routines.agents.command import run_command
from routines.agents.trees import become_subreaper
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.outcome import Outcome, Reason
from routines.engine import host
from routines.engine.clock import SystemClock
from routines.engine.stop_signals import StopSignals
from routines.engine.turns import TurnSteps
from routines.engine.verdicts import Verdict
from routines.engine.work import Work, decode_work
from routines.errors import InvalidFiles, StoreError
from routines.store import files, locks
from routines.store.claim import claim_of_fd
from routines.store.sessions import SessionStore, transcript_path
from routines.store.state import open_for_reading
from routines.version import VERSION

log = logging.getLogger("routines")

# A cancel is seen within so long; a beat for other hosts is given every so often.
_LOOK_EVERY = timedelta(seconds=1)
_BEAT_EVERY = timedelta(seconds=15)


class _Watch:
    """What the turn is asked while it runs: to stop, or whether anyone cancelled it."""

    def __init__(self, steps: TurnSteps, signals: StopSignals, clock: SystemClock) -> None:
        self._steps = steps
        self._signals = signals
        self._clock = clock
        self._looked = self._beat = float("-inf")

    def __call__(self) -> str | None:
        """Return the word that ends the turn, or None."""
        word = self._signals.word()
        if word is not None:
            return word
        if self._steps.cancelled_by is not None:
            return "cancel"
        if self._steps.taken_by is not None:
            # Two turns in one conversation lose what either of them says.
            return "taken"
        now = self._clock.awake()
        if now - self._beat >= _BEAT_EVERY.total_seconds():
            self._beat = now
            self._steps.claim.touch()
        if now - self._looked < _LOOK_EVERY.total_seconds():
            return None
        self._looked = now
        try:
            return None if self._steps.take_up_cancel() is None else "cancel"
        except StoreError as error:
            # A disk that refuses must not end a turn that nobody could record as cancelled.
            log.warning("cancel-not-read", extra={"error": error.message})
            return None


def run(steps: TurnSteps, work: Work, clock: SystemClock) -> None:
    """Run one turn from its gate to its outcome."""
    signals = StopSignals()
    base = dict(os.environ)
    if steps.claim.record.is_durable:
        _durable().go_on(steps, work, clock, signals, base)
        return
    verdict = steps.gate(work, base)
    if verdict is not None:
        steps.settle(verdict)
        return
    if signals.stops:
        # Not started, so it stays owed: the next scheduler takes it up.
        return
    steps.agent_version = _version(steps, work, base, clock)
    if work.agent is not None and _may_be_durable(work.agent):
        agents = _durable().Finder(steps, clock, signals, base)
        begun = steps.begin(work, agents.is_durable)
        if begun is not None and agents.found is not None:
            _durable().run(steps, *begun, agents.found, clock, signals, base)
            return
    else:
        begun = steps.begin(work)
    if begun is None:
        return
    work, turn = begun
    try:
        result = _answer(steps, work, turn, base, clock, _Watch(steps, signals, clock))
        lost = result.outcome is None and result.reason is Reason.SESSION_LOST
        if lost and steps.taken_by is None:
            # It provably did nothing, and would say the same for ever: this very turn goes into
            # a new conversation, which can't be lost for it has not been had.
            steps.lose(work, result)
            begun = steps.begin(work)
            if begun is None:
                return
            work, turn = begun
            result = _answer(steps, work, turn, base, clock, _Watch(steps, signals, clock))
        result = steps.verify(work, turn, result, base)
    except InvalidFiles as error:
        result = TurnResult(
            outcome=Outcome.FAILED, reason=Reason.NOT_FOUND, detail=error.message, reply=Reply()
        )
    steps.stop_requested = signals.word
    steps.finish(work, turn, result)


def _may_be_durable(spec: AgentSpec) -> bool:
    """Return whether an agent may be durable: which function is, only the function itself tells."""
    if spec.http is not None:
        return spec.http.durable is not None
    return spec.kind is AgentKind.PYTHON


def _durable() -> ModuleType:
    # Here and not above: it waits in a loop, which a command's turn process never does.
    from routines.engine import durable_process

    return durable_process


def _version(steps: TurnSteps, work: Work, base: dict[str, str], clock: SystemClock) -> str | None:
    """Return which version of its program the agent is; a turn does not depend on it."""
    spec = work.agent
    if spec is None or not spec.version:
        return None
    from routines.agents.versions import version_of
    from routines.store.programs import ProgramStore

    try:
        env = steps.preview(work, base)
    except InvalidFiles:
        # The turn will say so itself.
        return None
    return version_of(
        spec.version, env=env, cwd=work.cwd, clock=clock, store=ProgramStore(steps.state)
    )


def _answer(
    steps: TurnSteps,
    work: Work,
    turn: Turn,
    base: dict[str, str],
    clock: SystemClock,
    stop_requested: Callable[[], str | None],
) -> TurnResult:
    spec = work.agent
    if spec is None:
        raise AssertionError("an agent of the host program has no turn process")
    env = steps.environment(work, turn, base)
    match spec.kind:
        case AgentKind.COMMAND:
            return _command(steps, work, spec, turn, env, clock, stop_requested)
        case AgentKind.PYTHON:
            from routines.agents.own_output import kept_output
            from routines.agents.python_agent import run_python

            with kept_output(steps.folder, steps.masker):
                return run_python(
                    spec,
                    turn,
                    cwd=work.cwd,
                    clock=clock,
                    timeout=steps.left(work),
                    env=env,
                    stop_requested=stop_requested,
                )
        case AgentKind.HTTP:
            from routines.agents.http_agent import run_http

            return run_http(
                spec,
                turn,
                model=work.model,
                env=env,
                folder=steps.folder,
                clock=clock,
                timeout=steps.left(work),
                stop_requested=stop_requested,
                on_native_session=steps.learn_native_session,
                masker=steps.masker,
            )
        case AgentKind.ACP:
            return _acp(steps, work, spec, turn, env, clock, stop_requested)
        case AgentKind.ECHO:
            from routines.agents.echo import run_echo

            epoch = steps.lease.ledger.epoch
            return run_echo(turn, transcript=transcript_path(steps.state, turn.session, epoch))


def _command(
    steps: TurnSteps,
    work: Work,
    spec: AgentSpec,
    turn: Turn,
    env: dict[str, str],
    clock: SystemClock,
    stop_requested: Callable[[], str | None],
) -> TurnResult:
    if work.wake_tools and spec.mcp is not None:
        from routines.agents.handover import hand_over

        spec, env = hand_over(spec, env)
    return run_command(
        spec,
        turn,
        args=work.args,
        model=work.model,
        cwd=work.cwd,
        env=env,
        folder=steps.folder,
        clock=clock,
        timeout=steps.left(work),
        stop_requested=stop_requested,
        on_native_session=steps.learn_native_session,
        masker=steps.masker,
    )


def _acp(
    steps: TurnSteps,
    work: Work,
    spec: AgentSpec,
    turn: Turn,
    env: dict[str, str],
    clock: SystemClock,
    stop_requested: Callable[[], str | None],
) -> TurnResult:
    from routines.agents.acp_agent import run_acp
    from routines.agents.acp_protocol import WAKE_TITLES
    from routines.agents.handover import server_of

    found = server_of(env) if work.wake_tools else None
    servers = [] if found is None else [found]
    return run_acp(
        spec,
        turn,
        args=work.args,
        model=work.model,
        cwd=work.cwd,
        env=env,
        folder=steps.folder,
        clock=clock,
        timeout=steps.left(work),
        stop_requested=stop_requested,
        on_native_session=steps.learn_native_session,
        masker=steps.masker,
        servers=servers,
        own_tools=WAKE_TITLES if servers else (),
        version=VERSION,
    )


def main(argv: list[str]) -> int:
    """Take over what was handed to this process, and run its turn."""
    fds, state_path, claim_path, work_path = argv
    claim_fd, lease_fd, *room = (int(fd) for fd in fds.split(","))
    become_subreaper()
    for fd in (claim_fd, lease_fd, *room):
        locks.adopt(fd)
    clock = SystemClock()
    state = open_for_reading(state_path)
    claim = claim_of_fd(state, claim_path, claim_fd)
    if claim.record.end is not None or not claim.still_named():
        return 0
    data = files.read(work_path)
    if data is None:
        # Nothing was started: whoever handed it over sees an unstarted claim.
        log.error("work-missing", extra={"path": work_path})
        return 1
    work = decode_work(data)
    # It holds what `env_file` says, and nobody reads it again.
    files.discard(work_path)
    lease = SessionStore(state).adopt(str(claim.record.session), lease_fd)

    def reread(old: Work) -> Work | Verdict:
        from routines.config.workspace import FoundBy, Root
        from routines.engine.definitions import reread_from_files

        # Not looked for: the folder is known, also if its last file has just vanished.
        root = Root(path=old.root, found_by=FoundBy.OPTION, state=state.path)
        return reread_from_files(root, old, claim.occurrence)

    steps = TurnSteps(state, claim, lease, clock=clock, owner=host.owner(), reread=reread)
    run(steps, work, clock)
    return 0


def start(argv: list[str]) -> None:
    """Run one turn and end this process."""
    code = main(argv)
    sys.stderr.flush()
    # A plain function that ignored its limit still sits in a thread: it must not keep us alive.
    os._exit(code)
