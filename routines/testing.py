"""What users need to test their own routines: a clock that moves when told, an agent that records.

clock = FakeClock()
agent = RecordingAgent()
async with Engine(tmp_path / "state", agent=agent, routines=[digest], clock=clock) as engine:
    await clock.advance(timedelta(hours=1))
    assert [turn.prompt for turn in agent.turns] == ["Summarise what was merged."]
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from routines.agents.base import Reply, Turn
from routines.engine.clock import LONGEST_WAIT_S, SHORTEST_WAIT_S
from routines.engine.off_loop import quiet

# A Monday, well away from any change of the clocks.
START = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    until: float
    ring: asyncio.Event
    loop: asyncio.AbstractEventLoop


class FakeClock:
    """A clock that stands still until it is told to move.

    `advance` depends on nothing but what the engine does: it moves on when every look at the store
    has ended and nothing is left to do but to wait, however fast or slow the machine is.

    Args:
        start: What it shows at first; aware, any zone.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = start.astimezone(UTC)
        self._awake = 0.0
        self._waits: list[_Wait] = []
        # Stores sleep in threads.
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return what it shows."""
        return self._now

    def awake(self) -> float:
        """Return the seconds that it has been moved by while awake."""
        return self._awake

    def sleep(self, seconds: float) -> None:
        """Pass *seconds* at once."""
        self.move(timedelta(seconds=seconds))

    async def wait(self, seconds: float, wake: asyncio.Event) -> None:
        """Return once the clock has been moved by *seconds*, or *wake* is set."""
        span = min(max(seconds, SHORTEST_WAIT_S), LONGEST_WAIT_S)
        wait = _Wait(self._awake + span, asyncio.Event(), asyncio.get_running_loop())
        with self._lock:
            self._waits.append(wait)
        first = [asyncio.ensure_future(wait.ring.wait()), asyncio.ensure_future(wake.wait())]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in first:
                one.cancel()
            with self._lock:
                if wait in self._waits:
                    self._waits.remove(wait)

    def move(self, span: timedelta) -> None:
        """Let *span* pass, awake; whoever waited for it goes on."""
        with self._lock:
            self._now += span
            self._awake += span.total_seconds()
            due = [wait for wait in self._waits if wait.until <= self._awake]
            self._waits = [wait for wait in self._waits if wait.until > self._awake]
        for wait in due:
            wait.loop.call_soon_threadsafe(wait.ring.set)

    def sleep_machine(self, span: timedelta) -> None:
        """Let *span* pass as a suspended machine does: the time awake stands still."""
        self._now += span

    def set(self, now: datetime) -> None:
        """Set the wall clock, as a person or a time server does."""
        self._now = now.astimezone(UTC)

    async def advance(
        self, span: timedelta = timedelta(0), *, step: timedelta = timedelta(minutes=1)
    ) -> None:
        """Let *span* pass, and let engines do at each step what falls due there.

        Args:
            span: How much; nothing at all only lets them finish what they are at.
            step: It stops at each whole one of these. Schedules name whole minutes; for wake-ups
                and limits to the second take a step of a second.
        """
        await quiet()
        left = span
        while left > timedelta(0):
            to_next = step - (self._now - _EPOCH) % step
            moved = min(to_next, left)
            left -= moved
            self.move(moved)
            await quiet()

    async def advance_to(
        self, instant: datetime, *, step: timedelta = timedelta(minutes=1)
    ) -> None:
        """Let time pass until *instant*; see `advance`."""
        await self.advance(instant - self._now, step=step)


class RecordingAgent:
    """An agent that notes each turn and answers what it is told.

    Args:
        answer: Gives the reply of a turn, or raises; by default it repeats the prompt.

    Attributes:
        turns: Those that it was given, oldest first.
    """

    def __init__(self, answer: Callable[[Turn], Reply | str] | None = None) -> None:
        self.turns: list[Turn] = []
        self._answer = answer
        self._held: asyncio.Event | None = None
        self._only: tuple[str, ...] = ()

    def hold(self, *routines: str) -> None:
        """Work at each turn from here on until `release`; of *routines* alone if any are named."""
        self._held = asyncio.Event()
        self._only = routines

    def release(self) -> None:
        """Answer the turns that are held, and again every turn at once."""
        if self._held is not None:
            self._held.set()
        self._held = None

    async def run(self, turn: Turn) -> Reply:
        """Note *turn* and answer it."""
        self.turns.append(turn)
        if self._held is not None and (not self._only or turn.routine in self._only):
            await self._held.wait()
        answer = turn.prompt if self._answer is None else self._answer(turn)
        return answer if isinstance(answer, Reply) else Reply(text=answer)
