"""A host's own hook: who may do what with wake-ups, and whether one may fire (PROMISES W8).

    def authorize(action: str, caller: str, schedule: Mapping | None) -> bool | Decision: ...

It may be a function or a coroutine function. A refusal is an answer; a hook that raises, hangs or
answers with something else has not answered, which is an outage: nothing is done, and it is asked
again.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.names import format_instant
from routines.domain.outcome import one_line
from routines.domain.wakeup import Wakeup
from routines.engine.clock import EngineClock
from routines.engine.off_loop import start_thread, under_way
from routines.engine.running import wait_for
from routines.errors import AuthorizationUnavailable, NotAuthorized

log = logging.getLogger("routines")

# A hook that asks a service over the network answers within a second or two, or it is down.
DEADLINE = timedelta(seconds=10)
# Threads of hooks that hang can't be ended. So many are left behind; after that it is an outage at
# once, until one of them comes back. More are never asked at once, or more could come to hang.
_MOST_HANGING = 8
# After outages the pauses grow: a service that is down must not be asked each second by everybody.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
# A firing that waits for a place takes its answer with it only for so long: it may be withdrawn.
_GOOD_FOR_S = 60.0
# How long `quiet` waits for a hook in a thread, in real seconds: one that hangs never comes back.
_COUNTED_S = 2.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a hook says.

    Attributes:
        allowed: Whether it may be done.
        reason: Why not, in words; may be empty.
    """

    allowed: bool
    reason: str = ""


Answer = bool | Decision
Authorize = Callable[[str, str, Mapping[str, Any] | None], Answer | Awaitable[Answer]]
_Key = tuple[str, str, int, datetime]


@dataclass(slots=True)
class _Asked:
    """What came of asking about one firing."""

    decision: Decision | None = None
    at: datetime | None = None
    awake: float = 0.0
    asking: bool = False
    outages: int = 0

    @property
    def again_at(self) -> float:
        """When it is asked again, in seconds awake."""
        if self.decision is not None:
            return self.awake + _GOOD_FOR_S
        if not self.outages:
            return 0.0
        return self.awake + min(_FIRST_PAUSE_S * 2.0 ** (self.outages - 1), _LONGEST_PAUSE_S)


class Authorizer:
    """Asks a host's hook; without one everything is allowed.

    Args:
        hook: The host's, or None.
        clock: Measures its deadline.
        on_answer: Called on the loop when a firing has been decided, or could not be.
    """

    def __init__(
        self, hook: Authorize | None, *, clock: EngineClock, on_answer: Callable[[], None]
    ) -> None:
        self._hook = hook
        self._clock = clock
        self._on_answer = on_answer
        self._is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
            getattr(hook, "__call__", None)  # noqa: B004 - whether it is async, not whether it is one
        )
        # The calls in threads that have not come back, and when each began, in seconds awake. Each
        # thread takes its own away: a number that all of them count down would lose some.
        self._calls: dict[object, float] = {}
        self._came_back = asyncio.Event()
        self._firings: dict[_Key, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_answers = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask on *loop* from now on; what was asked before is forgotten."""
        self._loop = loop
        self._came_back = asyncio.Event()
        self._firings = {}
        self._tasks = set()

    async def detach(self) -> None:
        """End what is being asked."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def check(self, action: str, caller: str, schedule: Mapping[str, Any] | None) -> None:
        """Return if *caller* may do *action*.

        Raises:
            NotAuthorized: The hook said no.
            AuthorizationUnavailable: It raised, hung, or said something else.
        """
        decision = await self.ask(action, caller, schedule)
        if not decision.allowed:
            raise NotAuthorized(action, decision.reason)

    async def ask(self, action: str, caller: str, schedule: Mapping[str, Any] | None) -> Decision:
        """Return what the hook says.

        Raises:
            AuthorizationUnavailable: It raised, hung, or said something else.
        """
        hook = self._hook
        if hook is None:
            return Decision(allowed=True)
        if not self._is_async:
            await self._place(action)
        answer = self._begin(hook, action, caller, schedule)
        try:
            left = await wait_for([answer], DEADLINE, self._clock)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if left:
            answer.cancel()
            seconds = round(DEADLINE.total_seconds())
            raise AuthorizationUnavailable(action, f"no answer within {seconds} s")
        try:
            said = answer.result()
        except asyncio.CancelledError as error:
            # The hook's own, or that of what it called: passed on, it would look to the host as if
            # somebody had cancelled the caller, and would end a firing's question without a word.
            log.exception("authorize-failed", extra={"action": action})
            raise AuthorizationUnavailable(action, "it cancelled itself") from error
        except Exception as error:
            log.exception("authorize-failed", extra={"action": action})
            why = one_line(f"{type(error).__name__}: {error}")
            raise AuthorizationUnavailable(action, why) from error
        if isinstance(said, Decision):
            return Decision(said.allowed is True, one_line(str(said.reason)))
        if not isinstance(said, bool):
            # A hook that forgot to return must not let everything through, nor refuse for good.
            why = f"it answered {type(said).__name__}, and not True, False or a Decision"
            raise AuthorizationUnavailable(action, why)
        return Decision(said)

    async def _place(self, action: str) -> None:
        """Wait while as many calls are under way as may be; they come back, or turn out to hang.

        Raises:
            AuthorizationUnavailable: All of them hang.
        """
        while len(began := tuple(self._calls.values())) >= _MOST_HANGING:
            left = max(began) + DEADLINE.total_seconds() - self._clock.awake()
            if left <= 0:
                raise AuthorizationUnavailable(action, f"{len(began)} earlier calls hang")
            self._came_back.clear()
            await self._clock.wait(left, self._came_back)

    def _begin(
        self, hook: Authorize, action: str, caller: str, schedule: Mapping[str, Any] | None
    ) -> asyncio.Future[Any]:
        # A copy: what a hook does to it must not reach what is decided.
        told = None if schedule is None else dict(schedule)
        if self._is_async:

            async def call() -> Any:
                return await hook(action, caller, told)  # type: ignore[misc]

            return asyncio.ensure_future(call())
        mine = object()
        self._calls[mine] = self._clock.awake()
        loop, came_back = asyncio.get_running_loop(), self._came_back

        def in_its_thread() -> Any:
            try:
                return hook(action, caller, told)
            finally:
                del self._calls[mine]
                # A loop that has been closed meanwhile has nobody left who waits for it.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(came_back.set)

        answer = start_thread(in_its_thread, counted=False)
        _count_for_a_while(answer)
        return answer

    # Firings ------------------------------------------------------------------------------------

    def firing(self, wakeup: Wakeup, instant: datetime) -> tuple[Decision, datetime] | None:
        """Return what the hook says of a firing, and when it said so; None if it is not known yet.

        It is then asked, and `on_answer` is called. For the thread that looks at the store.
        """
        if self._hook is None:
            return Decision(allowed=True), self._clock.now()
        key = (wakeup.session, wakeup.id, wakeup.revision, instant)
        asked = self._firings.setdefault(key, _Asked())
        awake = self._clock.awake()
        if not asked.asking and awake >= asked.again_at:
            loop = self._loop
            if loop is None:
                return None
            asked.decision, asked.asking = None, True
            told = {**wakeup.to_json(), "instant": format_instant(instant)}
            loop.call_soon_threadsafe(self._ask_soon, key, wakeup.asked_by, told)
        if asked.decision is None or asked.at is None:
            return None
        return asked.decision, asked.at

    def is_asked(self) -> bool:
        """Whether there is a hook to ask."""
        return self._hook is not None

    def done_with(self, wakeup: Wakeup, instant: datetime) -> None:
        """Forget what was said of a firing: it is taken, or no longer to come."""
        self._firings.pop((wakeup.session, wakeup.id, wakeup.revision, instant), None)
        if len(self._firings) > _MOST_REMEMBERED:
            # Of firings that were cancelled or changed before they were taken.
            idle = [key for key, one in self._firings.items() if not one.asking]
            for key in idle[: len(idle) // 2]:
                del self._firings[key]

    async def answered(self) -> bool:
        """Wait until what is asked about firings is answered, or is not.

        Returns:
            Whether anything was since this was last asked: it is time to look again.
        """
        # What a pass has asked for begins on the loop, after it.
        await asyncio.sleep(0)
        asked = list(self._tasks)
        if asked:
            await asyncio.wait(asked)
        # A quick hook has answered before the pass that asked had ended.
        answered, self._has_answers = self._has_answers, False
        return answered

    def _ask_soon(self, key: _Key, caller: str, told: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._decide(key, caller, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, key: _Key, caller: str, told: dict[str, Any]) -> None:
        asked = self._firings.setdefault(key, _Asked())
        try:
            asked.decision = await self.ask("fire", caller, told)
            asked.outages = 0
        except AuthorizationUnavailable as error:
            asked.outages += 1
            log.warning(
                "authorize-outage",
                extra={"wakeup": key[1], "session": key[0], "error": error.message},
            )
        finally:
            asked.asking = False
            asked.at, asked.awake = self._clock.now(), self._clock.awake()
            self._has_answers = True
        self._on_answer()


# Far more than fall due at once.
_MOST_REMEMBERED = 10_000


def _count_for_a_while(answer: asyncio.Future[Any]) -> None:
    """Let `quiet` wait for a hook in a thread, but not for one that never comes back."""
    count = under_way()
    count.begin()
    open_ = [True]

    def end(_: object = None) -> None:
        if open_:
            open_.clear()
            count.end()

    answer.add_done_callback(end)
    asyncio.get_running_loop().call_later(_COUNTED_S, end)
