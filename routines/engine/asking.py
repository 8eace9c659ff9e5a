"""Asking a durable agent: each call has a deadline, and a stop is not kept waiting by it.

What is heard too late is not lost: a run that a start names after its turn was given up, and that
no record knows, is cancelled.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from routines.agents.base import DurableAgent, Turn
from routines.domain.durable import CANCEL_WITHIN, INSPECT_WITHIN, START_WITHIN, checked_run_id
from routines.domain.durations import format_span
from routines.domain.outcome import one_line
from routines.engine.clock import EngineClock
from routines.engine.off_loop import in_thread, start_thread
from routines.errors import StoreError

log = logging.getLogger("routines")

# A cancel is seen within so long (L17), and a stop that can wake nobody.
TICK_S = 1.0
# What nobody waits for; the loop itself keeps only weak references to tasks.
_aside: set[asyncio.Task[None]] = set()


class Leave(Protocol):
    """What a stop says to whoever watches a run.

    Attributes:
        wake: Set when anything of it changes, where that can be done.
    """

    wake: asyncio.Event

    @property
    def soon(self) -> bool:
        """Whether to leave once a start or a cancel under way has been answered."""

    @property
    def now(self) -> bool:
        """Whether to leave at once."""


class Left(Exception):
    """We were told to leave before there was an answer."""


class Fault(Exception):
    """There was no answer that says anything."""


class Asker:
    """Puts the questions of one turn to its agent.

    Args:
        agent: What is asked.
        ref: The occurrence, for the log.
        clock: Counts deadlines.
        leave: What a stop says.
        pulse: Called about once a second while an answer is awaited.
        is_known: Whether the record of the turn knows a run, or may still come to know it.
    """

    def __init__(
        self,
        agent: DurableAgent,
        *,
        ref: str,
        clock: EngineClock,
        leave: Leave,
        pulse: Callable[[], Awaitable[None]],
        is_known: Callable[[str], bool],
    ) -> None:
        self._agent = agent
        self._ref = ref
        self._clock = clock
        self._leave = leave
        self._pulse = pulse
        self._is_known = is_known

    async def start(self, turn: Turn) -> str:
        """Start the run of *turn*; a stop waits for the answer.

        Raises:
            Left, Fault: There was no answer.
            Exception: What the agent raised.
        """
        answer, call = _begin(self._agent.start, turn)
        try:
            said = await self._answer(answer, START_WITHIN, patient=True)
        except (Left, Fault, asyncio.CancelledError):
            self._hear_late(call)
            raise
        run_id = checked_run_id(said)
        if run_id is None:
            raise Fault("it answered no run id")
        return run_id

    async def inspect(self, run_id: str) -> Any:
        """Return what the agent says of a run; a stop does not wait for it."""
        answer, _ = _begin(self._agent.inspect, run_id)
        return await self._answer(answer, INSPECT_WITHIN, patient=False)

    async def cancel(self, run_id: str) -> None:
        """Tell the agent to end a run; a stop waits for the answer."""
        answer, _ = _begin(self._agent.cancel, run_id)
        await self._answer(answer, CANCEL_WITHIN, patient=True)

    async def call_off(self, run_id: str) -> None:
        """Cancel a run, unless the turn's record knows it: else nobody would ever look at it."""
        try:
            if await in_thread(self._is_known, run_id):
                return
        except (StoreError, OSError) as error:
            # It may be the turn's own: to end that would be worse than to leave one behind.
            log.error(  # noqa: TRY400 - the cause is in the message
                "run-not-called-off",
                extra={"ref": self._ref, "run": run_id, "error": str(error)},
            )
            return
        log.warning("run-called-off", extra={"ref": self._ref, "run": run_id})
        answer, _ = _begin(self._agent.cancel, run_id)
        wake = asyncio.Event()
        answer.add_done_callback(lambda _: wake.set())
        limit = self._clock.awake() + CANCEL_WITHIN.total_seconds()
        while not answer.done() and self._clock.awake() < limit:
            wake.clear()
            await self._clock.wait(limit - self._clock.awake(), wake)
        if not answer.done():
            answer.cancel()
            answer.add_done_callback(_leave_unheard)
            why = f"no answer within {format_span(CANCEL_WITHIN)}"
        elif answer.cancelled() or answer.exception() is None:
            return
        else:
            why = one_line(str(answer.exception()))
        log.error("run-not-called-off", extra={"ref": self._ref, "run": run_id, "error": why})

    async def wait(self, seconds: float) -> None:
        """Wait, for a tick at most; what a stop says ends it."""
        await self._clock.wait(min(seconds, TICK_S), self._leave.wake)
        self._leave.wake.clear()

    async def _answer(
        self, answer: asyncio.Future[Any], within: timedelta, *, patient: bool
    ) -> Any:
        """Return an answer once it is there, and raise what the agent raised."""
        answer.add_done_callback(lambda _: self._leave.wake.set())
        limit = self._clock.awake() + within.total_seconds()
        try:
            while not answer.done() and limit > self._clock.awake() and not self._leaves(patient):
                await self._pulse()
                if not answer.done():
                    await self.wait(limit - self._clock.awake())
        finally:
            heard = answer.done()
            if not heard:
                answer.cancel()
                answer.add_done_callback(_leave_unheard)
        if not heard and self._leaves(patient):
            raise Left
        if not heard:
            raise Fault(f"no answer within {format_span(within)}")
        if answer.cancelled():
            raise Fault("it cancelled itself")
        return answer.result()

    def _leaves(self, patient: bool) -> bool:
        return self._leave.now or (self._leave.soon and not patient)

    def _hear_late(self, call: asyncio.Future[Any]) -> None:
        """See to a start that nobody waits for any more: its run is somebody's, or it ends."""

        def heard(ended: asyncio.Future[Any]) -> None:
            if ended.cancelled() or ended.exception() is not None:
                return
            run_id = checked_run_id(ended.result())
            if run_id is not None:
                _in_background(self.call_off(run_id))

        call.add_done_callback(heard)


def _begin(
    method: Callable[..., Any], about: Any
) -> tuple[asyncio.Future[Any], asyncio.Future[Any]]:
    """Ask; return the answer, and what is done when the call itself has ended."""
    if inspect.iscoroutinefunction(method):
        task = asyncio.ensure_future(method(about))
        return task, task
    # A thread of its own: a method that blocks delays no other turn, and no look at the store.
    call = start_thread(method, about, counted=False)
    return asyncio.ensure_future(_unwrapped(call)), call


async def _unwrapped(call: asyncio.Future[Any]) -> Any:
    # Cancelling the answer ends nothing in the thread.
    answer = await asyncio.shield(call)
    return await answer if inspect.isawaitable(answer) else answer


def _leave_unheard(ended: asyncio.Future[Any]) -> None:
    """Take note of an error that comes too late to mean anything: asyncio tells of it otherwise."""
    if not ended.cancelled():
        ended.exception()


def _in_background(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    _aside.add(task)
    task.add_done_callback(_aside.discard)
