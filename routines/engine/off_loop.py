"""Blocking work off the loop, counted by loop: a test can wait until there is none under way."""

import asyncio
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

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
    function: Callable[..., _T], *args: Any, counted: bool = True
) -> asyncio.Future[_T]:
    """Start *function* in a thread of its own, and return what will hold its result.

    Args:
        function: What to call.
        args: Its arguments.
        counted: Whether `quiet` waits for it; not for what may take as long as it likes.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()
    count = under_way()

    def tell(set_: Callable[..., None], value: Any) -> None:
        def unless_done() -> None:
            if counted:
                count.end()
            if not future.done():
                set_(value)

        # A loop that has been closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(unless_done)

    def work() -> None:
        try:
            result = context.run(function, *args)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            tell(future.set_exception, error)
        else:
            tell(future.set_result, result)

    if counted:
        count.begin()
    name = getattr(function, "__name__", type(function).__name__)
    threading.Thread(target=work, daemon=True, name=f"routines-{name}").start()
    return future


async def in_thread(function: Callable[..., _T], *args: Any, counted: bool = True) -> _T:
    """Return what *function* does in a thread of its own; see `start_thread`.

    Not the loop's pool: a turn may take hours, and a disk that is full makes a store wait.
    """
    return await start_thread(function, *args, counted=counted)
