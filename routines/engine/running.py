"""From ready to settled: a turn process, or an agent object in the engine's own process."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, cast

from routines.agents.base import (
    Agent,
    AgentUnavailable,
    DurableAgent,
    OutcomeUnknown,
    Reply,
    SessionBusy,
    Turn,
    TurnFailed,
    TurnResult,
)
from routines.agents.durable import agent_of, is_durable
from routines.agents.processes import start_turn_process
from routines.agents.programs import HURRY
from routines.agents.surroundings import without_surroundings
from routines.domain.outcome import Outcome, Reason, one_line
from routines.domain.record import Owner, Record
from routines.engine.clock import EngineClock
from routines.engine.durable import Follower
from routines.engine.needs import Ready
from routines.engine.off_loop import in_thread, start_thread
from routines.engine.recovering import Recoverer
from routines.engine.resuming import resume
from routines.engine.turns import TurnSteps
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.errors import StoreError
from routines.store import files
from routines.store.state import State

log = logging.getLogger("routines")

# A cancelled coroutine gets so long to end; then its session stays busy until it has ended.
_GRACE = timedelta(seconds=10)
# The package may have been found by a relative path or by PYTHONPATH, and the process starts in
# `/`; PYTHONPATH is not set for it, since its agent would inherit that.
_PACKAGE_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_TURN_PROCESS = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from routines.engine.turn_process import start; start(sys.argv[1:])"
)
# How often a running turn of the host's agent looks for a cancel, and beats.
_LOOK_S = 1.0
_PlainAgent = Agent | Callable[[Turn], Any]
# The turn that whoever reads this runs in, if any: it must not wait for itself.
turn_of_caller: contextvars.ContextVar["Running | None"] = contextvars.ContextVar(
    "turn_of_caller", default=None
)


class Leaving:
    """What a stop says to whoever watches a durable run."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.soon = False
        self.now = False


class Running:
    """One turn under way.

    Attributes:
        ref: The occurrence.
        routine: Whose it is, or None.
        path: Its claim, below the state folder.
        ended: What `done` follows; nobody but the engine awaits it.
        leave: What whoever watches its run has been told, if it is durable.
    """

    def __init__(self, ref: str, routine: str | None, path: str) -> None:
        self.ref = ref
        self.routine = routine
        self.path = path
        self.leave = Leaving()
        self.ended: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._stops = 0
        self._pid: int | None = None
        self.stopping = asyncio.Event()

    @property
    def done(self) -> asyncio.Future[Record | None]:
        """Its record, once it is settled, or once its run was left to go on.

        None if it was let go of unstarted. Each time a future of its own: whoever is cancelled
        while awaiting one cancels neither the turn nor the wait of others for it.
        """
        return asyncio.shield(self.ended)

    @property
    def is_process(self) -> bool:
        """Whether the turn has a process of its own, which outlives this one."""
        return self._pid is not None

    def has_process(self, pid: int) -> None:
        """Note the turn's process; a stop that came while it was being started is passed on."""
        self._pid = pid
        if self._stops:
            self._tell()

    def detach(self) -> None:
        """Leave a durable run to go on, once what it is being asked has been answered."""
        self.leave.soon = True
        self.leave.wake.set()
        self._tell()

    def stop(self) -> None:
        """End the turn, the second time at once; a durable run is left to go on."""
        self._stops += 1
        self.stopping.set()
        self.leave.now = True
        self.leave.wake.set()
        self._tell()

    def _tell(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)


class Runner:
    """Starts turns, and sees them to their end."""

    def __init__(
        self,
        state: State,
        *,
        clock: EngineClock,
        owner: Owner,
        recoverer: Recoverer,
        agent: Agent | DurableAgent | Callable[[Turn], Any] | None,
        reread: Callable[[Ready, Work], Work | Verdict],
    ) -> None:
        self._state = state
        self._clock = clock
        self._owner = owner
        self._recoverer = recoverer
        self._durable = agent_of(agent) if is_durable(agent) else None
        self._agent = None if is_durable(agent) else cast(_PlainAgent | None, agent)
        self._reread = reread
        # Turns that were given up and whose function still runs: their sessions stay busy.
        self._lingering: set[asyncio.Future[Any]] = set()

    async def run(self, ready: Ready, running: Running) -> Record | None:
        """Run one turn, or go on with its run; return its record, or None if it never began.

        The record of a durable run that was left to go on has no outcome.
        """
        if ready.work.agent is not None:
            return await self._in_process(ready, running)
        return await self._here(ready, running)

    # A process of its own -----------------------------------------------------------------------

    async def _in_process(self, ready: Ready, running: Running) -> Record | None:
        try:
            process = await in_thread(self._start, ready)
        except (StoreError, OSError) as error:
            log.error(  # noqa: TRY400 - the cause is in the message
                "turn-process-not-started", extra={"ref": running.ref, "error": str(error)}
            )
            # Nothing was started: the claim is owed again.
            ready.let_go()
            return None
        running.has_process(process.pid)
        try:
            await in_thread(process.wait, counted=False)
            running._pid = None  # noqa: SLF001
            record = await in_thread(self._recoverer.settle_lost, ready.claim)
        except StoreError as error:
            # The claim stays open; whoever looks next settles it.
            log.error("settle-failed", extra={"ref": running.ref, "error": error.message})  # noqa: TRY400
            record = ready.claim.record
        finally:
            # A process that died before it read this has left it: it holds what `env_file` says.
            files.discard(self._work_path(ready))
            ready.claim.let_go()
        over = record.end is not None or record.is_put_off or record.is_durable
        return record if over else None

    def _work_path(self, ready: Ready) -> str:
        return self._state.at("output", ready.claim.occurrence.place, "work.json")

    def _start(self, ready: Ready) -> Any:
        folder = self._state.at("output", ready.claim.occurrence.place)
        files.add_folder(folder)
        work_path = self._work_path(ready)
        files.replace(work_path, ready.work.encode(), sync=False)
        fds = (ready.claim.fd, ready.lease.fd, *ready.room.fds)
        process = start_turn_process(
            [
                sys.executable,
                "-c",
                _TURN_PROCESS,
                _PACKAGE_HOME,
                ",".join(str(fd) for fd in fds),
                self._state.path,
                ready.claim.record.path,
                work_path,
            ],
            pass_fds=fds,
            env=without_surroundings(os.environ),
            cwd="/",
            stderr_path=os.path.join(folder, "turn.log"),
        )
        # The lease is the turn process's alone: it must be free when that has ended. The claim
        # stays ours too, so that we can settle it if it dies.
        ready.lease.let_go()
        ready.room.let_go()
        return process

    # The host's own agent -----------------------------------------------------------------------

    async def _here(self, ready: Ready, running: Running) -> Record | None:
        steps = TurnSteps(
            self._state,
            ready.claim,
            ready.lease,
            clock=self._clock,
            owner=self._owner,
            reread=lambda work: self._reread(ready, work),
        )
        lingering: asyncio.Future[Any] | None = None
        try:
            if self._durable is not None:
                return await self._follow(steps, ready, running, self._durable)
            if ready.work.only_if is not None:
                verdict = await in_thread(steps.gate, ready.work, dict(os.environ))
                if verdict is not None:
                    return await in_thread(steps.settle, verdict)
            begun = await in_thread(steps.begin, ready.work)
            if begun is None:
                return ready.claim.record if ready.claim.record.end is not None else None
            work, turn = begun
            result, lingering = await self._ask(steps, work, turn, running)
            return await self._finish(steps, work, turn, result, running)
        except StoreError as error:
            log.error("turn-not-started", extra={"ref": running.ref, "error": error.message})  # noqa: TRY400
            return None
        finally:
            ready.claim.let_go()
            if lingering is None:
                ready.room.let_go()
                ready.lease.let_go()
            else:
                self._linger(lingering, ready)

    async def _finish(
        self, steps: TurnSteps, work: Work, turn: Turn, result: TurnResult, running: Running
    ) -> Record:
        if work.verify is not None:
            result = await in_thread(steps.verify, work, turn, result, dict(os.environ))
        steps.stop_requested = lambda: HURRY if running.stopping.is_set() else None
        return await in_thread(steps.finish, work, turn, result)

    async def _follow(
        self, steps: TurnSteps, ready: Ready, running: Running, agent: DurableAgent
    ) -> Record | None:
        """Begin a durable turn, or go on with one, and see it to its end or to a stop."""
        work, record = ready.work, ready.claim.record
        resumed = record.is_durable
        if resumed:
            turn = await in_thread(resume, steps, work)
            if turn is None:
                return ready.claim.record
        else:
            if work.only_if is not None:
                verdict = await in_thread(steps.gate, work, dict(os.environ))
                if verdict is not None:
                    return await in_thread(steps.settle, verdict)
            begun = await in_thread(steps.begin, work, lambda _: True)
            if begun is None:
                return ready.claim.record if ready.claim.record.end is not None else None
            work, turn = begun
        follower = Follower(
            steps, work, turn, agent, clock=self._clock, leave=running.leave, resumed=resumed
        )
        result = await follower.follow()
        if result is None:
            return ready.claim.record
        return await self._finish(steps, work, turn, result, running)

    def _linger(self, future: asyncio.Future[Any], ready: Ready) -> None:
        """Keep session and room until a function that ignored its limit has really ended (T5)."""
        log.warning("still-running", extra={"ref": ready.claim.record.ref})
        self._lingering.add(future)

        def free(ended: asyncio.Future[Any]) -> None:
            self._lingering.discard(ended)
            if not ended.cancelled():
                ended.exception()
            ready.room.let_go()
            ready.lease.let_go()

        future.add_done_callback(free)

    async def _ask(
        self, steps: TurnSteps, work: Work, turn: Turn, running: Running
    ) -> tuple[TurnResult, asyncio.Future[Any] | None]:
        """Put *turn* to the agent; return how it ended, and what of it still runs."""
        if self._agent is None:
            missing = TurnResult(
                outcome=Outcome.FAILED, reason=Reason.NOT_FOUND, detail="the engine has no agent"
            )
            return missing, None
        answer, work_left = _begin(self._agent, turn)
        wake = asyncio.Event()
        answer.add_done_callback(lambda _: wake.set())
        stopping = asyncio.ensure_future(running.stopping.wait())
        stopping.add_done_callback(lambda _: wake.set())
        try:
            ended = await self._watch(steps, work, answer, running, wake)
        finally:
            stopping.cancel()
        if ended is None:
            return _result(answer), None
        answer.cancel()
        await wait_for([answer], _GRACE, self._clock)
        if not answer.done():
            return ended, answer
        if not work_left.done():
            return ended, work_left
        if not answer.cancelled() and answer.exception() is None:
            # It ended by itself in the last moment: it is judged by how it did.
            return _result(answer), None
        return ended, None

    async def _watch(
        self,
        steps: TurnSteps,
        work: Work,
        answer: asyncio.Future[Any],
        running: Running,
        wake: asyncio.Event,
    ) -> TurnResult | None:
        """Wait for the answer; return how the turn ends if it has to be ended first."""
        while not answer.done():
            left = steps.left(work)
            if left <= timedelta(0):
                return TurnResult(
                    outcome=Outcome.TIMED_OUT,
                    reason=Reason.TIMEOUT,
                    detail=f"ended after {work.timeout}",
                )
            if running.stopping.is_set():
                return TurnResult(
                    outcome=Outcome.INTERRUPTED, reason=Reason.STOPPED, detail="the engine stopped"
                )
            if await in_thread(self._cancelled, steps):
                return TurnResult(outcome=Outcome.CANCELLED, detail="ended on request")
            wake.clear()
            if answer.done() or running.stopping.is_set():
                continue
            await self._clock.wait(min(left.total_seconds(), _LOOK_S), wake)
        return None

    def _cancelled(self, steps: TurnSteps) -> bool:
        steps.claim.touch()
        try:
            return steps.take_up_cancel() is not None
        except StoreError as error:
            log.warning("cancel-not-read", extra={"ref": steps.ref, "error": error.message})
            return False


def _begin(agent: _PlainAgent, turn: Turn) -> tuple[asyncio.Future[Any], asyncio.Future[Any]]:
    """Put *turn* to the agent; return its answer, and what is done when it really has ended."""
    run = agent if not hasattr(agent, "run") else agent.run
    if inspect.iscoroutinefunction(run):
        answer = asyncio.ensure_future(run(turn))
        return answer, answer
    function = start_thread(run, turn, counted=False)
    # Cancelling the answer ends nothing in the thread.
    return asyncio.ensure_future(_answer(asyncio.shield(function))), function


async def _answer(function: Awaitable[Any]) -> Any:
    answer = await function
    return await answer if isinstance(answer, Awaitable) else answer


async def wait_for(
    futures: Collection[asyncio.Future[Any]], span: timedelta, clock: EngineClock
) -> set[asyncio.Future[Any]]:
    """Wait until all of *futures* are done, for *span* at most; return those that are not."""
    until = clock.awake() + span.total_seconds()
    wake = asyncio.Event()
    for future in futures:
        future.add_done_callback(lambda _: wake.set())
    while True:
        wake.clear()
        left = {future for future in futures if not future.done()}
        seconds = until - clock.awake()
        if not left or seconds <= 0:
            return left
        await clock.wait(seconds, wake)


def _result(answer: asyncio.Future[Any]) -> TurnResult:
    try:
        said = answer.result()
    except asyncio.CancelledError:
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail="it cancelled itself")
    except SessionBusy as error:
        return TurnResult(outcome=None, reason=Reason.BUSY, detail=one_line(str(error)))
    except AgentUnavailable as error:
        return TurnResult(outcome=None, reason=Reason.NOT_STARTED, detail=one_line(str(error)))
    except TurnFailed as error:
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=one_line(str(error)))
    except OutcomeUnknown as error:
        return TurnResult(
            outcome=Outcome.INTERRUPTED, reason=Reason.OUTCOME_UNKNOWN, detail=one_line(str(error))
        )
    except Exception as error:  # noqa: BLE001 - an agent may fail in any way, and it is one turn's end
        return TurnResult(
            outcome=Outcome.FAILED,
            reason=Reason.AGENT,
            detail=one_line(f"{type(error).__name__}: {error}"),
        )
    if not isinstance(said, str | Reply | None):
        return TurnResult(
            outcome=Outcome.FAILED,
            reason=Reason.BAD_OUTPUT,
            detail=f"the agent answered {type(said).__name__}, not a Reply or a text",
        )
    reply = said if isinstance(said, Reply) else Reply(text=said or "")
    if reply.failed is not None:
        return TurnResult(
            outcome=Outcome.FAILED, reason=Reason.AGENT, detail=one_line(reply.failed), reply=reply
        )
    return TurnResult(outcome=Outcome.COMPLETED, reply=reply)
