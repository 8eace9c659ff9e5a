"""The one module that reads the time or waits."""

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from routines.domain.clock import Clock

if TYPE_CHECKING:
    import asyncio

# A suspended machine doesn't count its sleep as waiting, and a wall clock may be set: so the wall
# clock is looked at again at least this often (PROMISES L7).
LONGEST_WAIT_S = 30.0
# No wait is shorter: a loop that finds its next instant in the past must not spin.
SHORTEST_WAIT_S = 0.001


class EngineClock(Clock, Protocol):
    """A clock that a loop can wait by."""

    async def wait(self, seconds: float, wake: "asyncio.Event") -> None:
        """Return after *seconds*, or as soon as *wake* is set; never later than 30 s."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC."""
        return datetime.now(UTC)

    def awake(self) -> float:
        """Return seconds awake: on Linux and macOS the monotonic clock stands still in a sleep."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    async def wait(self, seconds: float, wake: "asyncio.Event") -> None:
        """Return after *seconds*, or as soon as *wake* is set; never later than 30 s."""
        # Here and not above: a turn process never waits in a loop, and lives as long as its agent.
        import asyncio

        span = min(max(seconds, SHORTEST_WAIT_S), LONGEST_WAIT_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(span):
                await wake.wait()
