"""The clock as everything below the engine sees it: an argument."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits. `engine.clock.SystemClock` is real, `testing.FakeClock` moves."""

    def now(self) -> datetime:
        """Return the wall clock: aware, UTC."""

    def awake(self) -> float:
        """Return seconds that the machine has been awake since some fixed point; never back."""

    def sleep(self, seconds: float) -> None:
        """Block this thread for *seconds* awake."""
