"""Blocking work off the loop, counted by loop: a test can wait until there is none under way."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

log = logging.getLogger("routines")

_T = TypeVar("_T")

# No chain of callbacks between two pieces of blocking work is as long as this.
_ROUNDS = 30


class UnderWay:
    """The blocking work of one loop that has not ended yet."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """Count one more."""
        self._count += 1

    def end(self) -> None:
        """Count one less."""
        self._count -= 1
        self._changed.set()

    async def none(self) -> bool:
        """Return once there is none; whether that had to be waited for."""
        waited = self._count > 0
        while self._count:
            self._changed.clear()
            await self._changed.wait()
        return waited


_under_way: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, UnderWay] = (
    weakref.WeakKeyDictionary()
)


def under_way() -> UnderWay:
    """Return the count of the running loop."""
    return _under_way.setdefault(asyncio.get_running_loop(), UnderWay())


async def quiet() -> None:
    """Return once the engines of this loop have nothing left to do but to wait.

    That is: no look at the store is under way, and no callback is ready. It depends on no speed.
    """
    rounds = 0
    while rounds < _ROUNDS:
        rounds = 0 if await under_way().none() else rounds + 1
        await asyncio.sleep(0)


def start_thread(
    function: Callable[..., _T],
    *args: Any,
    counted: bool = True,
    abandoned: Callable[[_T], None] | None = None,
) -> asyncio.Future[_T]:
    """Start *function* in a thread of its own, and return what will hold its result.

    Args:
        function: What to call.
        args: Its arguments.
        counted: Whether `quiet` waits for it; not for what may take as long as it likes.
        abandoned: What is done, in a thread, with a result that came after the future was
            cancelled: for one that owns a lock, which nobody would let go of.
    """
    name = getattr(function, "__name__", type(function).__name__)

    def spawn(work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True, name=f"routines-{name}").start()

    return _start(spawn, function, args, counted=counted, abandoned=abandoned)


async def in_thread(
    function: Callable[..., _T],
    *args: Any,
    counted: bool = True,
    abandoned: Callable[[_T], None] | None = None,
) -> _T:
    """Return what *function* does in a thread of its own; see `start_thread`.

    Not the loop's pool: a turn may take hours, and a disk that is full makes a store wait.
    """
    future = start_thread(function, *args, counted=counted, abandoned=abandoned)
    return await _awaited(future, abandoned)


async def in_pool(
    pool: Executor,
    function: Callable[..., _T],
    *args: Any,
    abandoned: Callable[[_T], None] | None = None,
) -> _T:
    """Return what *function* does in *pool*; see `start_thread`.

    What is cancelled before the pool has come to it is not done.
    """

    def spawn(work: Callable[[], None]) -> None:
        pool.submit(work)

    future = _start(spawn, function, args, counted=True, abandoned=abandoned)
    return await _awaited(future, abandoned)


async def _awaited(future: asyncio.Future[_T], abandoned: Callable[[_T], None] | None) -> _T:
    try:
        return await future
    except asyncio.CancelledError:
        if abandoned is not None and not future.cancelled() and future.exception() is None:
            # Cancelled between the result and its being picked up here.
            _give_up(abandoned, future.result())
        raise


def _start(
    spawn: Callable[[Callable[[], None]], None],
    function: Callable[..., _T],
    args: tuple[Any, ...],
    *,
    counted: bool,
    abandoned: Callable[[_T], None] | None,
) -> asyncio.Future[_T]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()
    count = under_way()

    def end(then: Callable[[], None]) -> None:
        def end_and_then() -> None:
            then()
            if counted:
                count.end()

        # A loop that has been closed meanwhile has nobody left to tell.
        loop.call_soon_threadsafe(end_and_then)

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def answer(result: _T) -> None:
        if not future.done():
            future.set_result(result)
        elif abandoned is not None:
            _give_up(abandoned, result)

    def work() -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):
                end(lambda: None)
            return
        try:
            result = context.run(function, *args)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            with contextlib.suppress(RuntimeError):
                end(functools.partial(fail, error))
            return
        if future.cancelled() and abandoned is not None:
            # Here, and not by way of the loop: a pool that is shut down has done this too.
            _let_go(abandoned, result)
            with contextlib.suppress(RuntimeError):
                end(lambda: None)
            return
        try:
            end(functools.partial(answer, result))
        except RuntimeError:
            if abandoned is not None:
                _let_go(abandoned, result)

    spawn(work)
    if counted:
        count.begin()
    return future


def _give_up(abandoned: Callable[[_T], None], result: _T) -> None:
    """Do with *result* what is done with one that nobody awaits any more, off this loop."""
    count = under_way()
    loop = asyncio.get_running_loop()

    def work() -> None:
        _let_go(abandoned, result)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(count.end)

    threading.Thread(target=work, daemon=True, name="routines-abandoned").start()
    count.begin()


def _let_go(abandoned: Callable[[_T], None], result: _T) -> None:
    try:
        abandoned(result)
    except Exception:
        # Nobody is left to raise it to.
        log.exception("abandoned-failed")
