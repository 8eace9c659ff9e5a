"""What users need to test their own routines: a clock that moves when told, an agent that records.

    clock = FakeClock()
    agent = RecordingAgent()
    async with Engine(tmp_path / "state", agent=agent, routines=[digest], clock=clock) as engine:
        await clock.advance(timedelta(hours=1))
        assert [turn.prompt for turn in agent.turns] == ["Summarise what was merged."]
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from routines.agents.base import Reply, Turn

# A Monday, well away from any change of the clocks.
START = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
# A loop that is asked to move on gets so many rounds to do what it has to, real threads included.
_ROUNDS = 200


class FakeClock:
    """A clock that stands still until it is told to move.

    Args:
        start: What it shows at first; aware, any zone.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = start.astimezone(UTC)
        self._awake = 0.0
        self._waits: list[tuple[float, asyncio.Event]] = []

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
        ring = asyncio.Event()
        self._waits.append((self._awake + min(seconds, 30.0), ring))
        first = [asyncio.ensure_future(ring.wait()), asyncio.ensure_future(wake.wait())]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in first:
                one.cancel()

    def move(self, span: timedelta) -> None:
        """Let *span* pass, awake; whoever waited for it goes on."""
        self._now += span
        self._awake += span.total_seconds()
        self._ring()

    def sleep_machine(self, span: timedelta) -> None:
        """Let *span* pass as a suspended machine does: the time awake stands still."""
        self._now += span

    def set(self, now: datetime) -> None:
        """Set the wall clock, as a person or a time server does."""
        self._now = now.astimezone(UTC)

    async def advance(self, span: timedelta, *, step: timedelta = timedelta(seconds=1)) -> None:
        """Let *span* pass in steps, and give the loop time to do what falls due in each."""
        until = self._now + span
        while self._now < until:
            self.move(min(step, until - self._now))
            await settle()

    def _ring(self) -> None:
        due = [ring for at, ring in self._waits if at <= self._awake]
        self._waits = [(at, ring) for at, ring in self._waits if at > self._awake]
        for ring in due:
            ring.set()


async def settle(until: Callable[[], bool] = lambda: False) -> None:
    """Give the loop and its threads rounds to do what they have to, or until *until* says so."""
    for _ in range(_ROUNDS):
        if until():
            return
        await asyncio.sleep(0.0005)


class RecordingAgent:
    """An agent that notes each turn and answers what it is told.

    Args:
        answer: Gives the reply of a turn, or raises; by default it repeats the prompt.
    """

    def __init__(self, answer: Callable[[Turn], Reply | str] | None = None) -> None:
        self.turns: list[Turn] = []
        self._answer = answer

    async def run(self, turn: Turn) -> Reply:
        """Note *turn* and answer it."""
        self.turns.append(turn)
        answer = turn.prompt if self._answer is None else self._answer(turn)
        return answer if isinstance(answer, Reply) else Reply(text=answer)
