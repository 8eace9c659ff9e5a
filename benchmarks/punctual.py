"""How much later than a bare asyncio timer a due slot starts its agent.

Engines with an agent object run in this process, their state where a flush costs nothing. A slot is
a whole second; to have many in little time there are several engines, each with a clock that is a
fraction of a second ahead (the `clock` that every engine takes), so that their slots are spread over
the second. Half-way between two slots a bare `loop.call_at` is due in the same loop. The figure is
the 99th percentile of the agents' lateness less that of the timers.
"""

import asyncio
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from benchmarks.measure import Places, Row, Size, percentile, room
from routines.agents.base import Turn
from routines.domain.routine import Routine
from routines.engine.clock import SystemClock
from routines.engine.engine import Engine

ENGINES = {Size.TINY: 2, Size.USUAL: 10, Size.FULL: 10}
SECONDS = {Size.TINY: 2, Size.USUAL: 20, Size.FULL: 102}
# The first slots of an engine make folders and import what is imported late.
WARM_S = 2


class EachSecond:
    """A schedule of a host: every second."""

    zone_key = "UTC"

    def next_after(self, instant: datetime) -> datetime:
        return instant.replace(microsecond=0) + timedelta(seconds=1)

    def newest_at_or_before(self, instant: datetime) -> datetime:
        return instant.replace(microsecond=0)

    def names(self, instant: datetime) -> bool:
        return instant.microsecond == 0

    def spec(self) -> dict[str, str]:
        return {"kind": "each-second"}

    def text(self) -> str:
        return "each second"


class Ahead(SystemClock):
    """The machine's clock, a fraction of a second ahead."""

    def __init__(self, ahead: float) -> None:
        self.ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Noting:
    """An agent that notes how late it was started."""

    def __init__(self, clock: Ahead) -> None:
        self.clock = clock
        self.late: list[float] = []

    async def run(self, turn: Turn) -> str:
        if turn.slot is not None:
            self.late.append((self.clock.now() - turn.slot).total_seconds())
        return "done"


async def _timers(offsets: list[float], until: float, late: list[float]) -> None:
    """Note how late bare timers are that are due at *offsets* of each second."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    drift = clock.now().timestamp() - loop.time()
    due = int(clock.now().timestamp()) + 1.0
    while due < until:
        for offset in offsets:
            at = due + offset - drift
            loop.call_at(at, lambda at=at: late.append(loop.time() - at))
        await asyncio.sleep(max(due + 1.0 - drift - loop.time() - 0.4, 0.05))
        due += 1.0
    await asyncio.sleep(1.1)


async def _measure(folder: str, engines: int, seconds: int) -> tuple[list[float], list[float]]:
    clocks = [Ahead(index / engines) for index in range(engines)]
    agents = [Noting(clock) for clock in clocks]
    running = [
        Engine(
            os.path.join(folder, str(index)),
            agent=agent,
            routines=[Routine(name="each", prompt="tick", schedule=EachSecond())],
            clock=clock,
        )
        for index, (agent, clock) in enumerate(zip(agents, clocks, strict=True))
    ]
    timers: list[float] = []
    for engine in running:
        await engine.start()
    try:
        await asyncio.sleep(WARM_S)
        for agent in agents:
            agent.late.clear()
        offsets = [(index + 0.5) / engines for index in range(engines)]
        until = datetime.now(UTC).timestamp() + seconds
        await _timers(offsets, until, timers)
    finally:
        for engine in running:
            await engine.stop()
    return [late for agent in agents for late in agent.late], timers


def run(size: Size, places: Places) -> Iterable[Row]:
    with room(places.memory) as folder:
        agents, timers = asyncio.run(_measure(folder, ENGINES[size], SECONDS[size]))
    for what, share, bound in (("99th percentile", 0.99, 5.0), ("median", 0.5, None)):
        mine, bare = percentile(agents, share) * 1e3, percentile(timers, share) * 1e3
        note = f"{len(agents)} slots {mine:.1f} ms, {len(timers)} timers {bare:.1f} ms"
        yield Row(f"later than a bare timer, {what}", mine - bare, bound, "ms", note)
