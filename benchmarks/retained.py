"""What a million retained claims cost: boot and fire, and `history NAME -n 20`.

Settled claims are made as hard links of one that the product wrote, where a flush costs nothing:
all of one routine that fires each minute, which is the dearest case: two years of it. Then

- an engine is opened on the state folder and fires one slot of that routine, by turns with an
  engine on a state folder with no claim but the first;
- a slot is due and a pass starts it, likewise;
- `routines history NAME -n 20` runs as a process of its own, by turns with a state folder that has
  a hundred claims.
"""

import asyncio
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from statistics import median

from benchmarks.measure import Places, Row, Size, in_turn, ratio, room, routines, timed
from benchmarks.measure import run as go
from benchmarks.workspaces import make_workspace
from routines.domain import schedule
from routines.domain.names import day_name, instant_name
from routines.domain.routine import Routine
from routines.engine.engine import Engine
from routines.testing import FakeClock

COUNT = {Size.TINY: 300, Size.USUAL: 50_000, Size.FULL: 1_000_000}
ROUNDS = {Size.TINY: 2, Size.USUAL: 15, Size.FULL: 25}
NAME = "r00000"
_FEW = 100
_MINUTE = timedelta(minutes=1)
_ROUTINE = Routine(name=NAME, prompt="tick", schedule=schedule.cron("* * * * *", "UTC"))


async def _agent(_turn: object) -> str:
    return "done"


def engine_of(root: str, clock: FakeClock) -> Engine:
    """Return an engine with the one routine, on the state folder of *root*."""
    state = os.path.join(root, ".routines")
    return Engine(state, agent=_agent, routines=[_ROUTINE], clock=clock, is_scheduler=False)


class One:
    """A workspace whose clock stands at the newest claim, and what is asked of it."""

    def __init__(self, root: str, count: int) -> None:
        self.root = root
        self.state = os.path.join(root, ".routines")
        # A minute of the past: what is claimed then, a command finds in its history.
        self.clock = FakeClock(
            datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(days=1)
        )
        make_workspace(root, 1)
        asyncio.run(self._first())
        if count:
            self._fill(count)

    def _engine(self) -> Engine:
        return engine_of(self.root, self.clock)

    async def _first(self) -> None:
        """Arm the routine, and run two slots."""
        async with self._engine().opened() as engine:
            for _ in range(3):
                await engine.tick()
                self.clock.move(_MINUTE)

    def _fill(self, count: int) -> None:
        model = self.a_claim()
        base = os.path.join(self.state, "claims", NAME)
        at, made = self.clock.now() - timedelta(days=1), ""
        for _ in range(count):
            at -= _MINUTE
            folder = os.path.join(base, day_name(at))
            if folder != made:
                os.makedirs(folder, exist_ok=True)
                made = folder
            os.link(model, os.path.join(folder, f"{instant_name(at)}.jsonl"))

    def a_claim(self) -> str:
        for folder, _, names in os.walk(os.path.join(self.state, "claims", NAME)):
            if names:
                return os.path.join(folder, names[0])
        raise RuntimeError("nothing was claimed")

    async def _boot_and_fire(self) -> None:
        async with self._engine().opened() as engine:
            delivery = await engine.fire(NAME, self.clock.now())
        if delivery.word != "claimed":
            raise RuntimeError(f"the slot was {delivery.word}")

    async def _boot_and_pass(self) -> None:
        async with self._engine().opened() as engine:
            if len(await engine.tick()) != 1:
                raise RuntimeError("no slot was started")

    def boot_and_fire(self) -> float:
        self.clock.move(_MINUTE)
        return timed(lambda: asyncio.run(self._boot_and_fire()))

    def boot_and_pass(self) -> float:
        self.clock.move(_MINUTE)
        return timed(lambda: asyncio.run(self._boot_and_pass()))

    def history(self) -> None:
        go(routines("history", NAME, "-n", "20"), cwd=self.root)


def _compare(none: One, many: One, what: str, rounds: int) -> float:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            times[index].append(getattr((none, many)[index], what)())
    return ratio(median(times[1]), median(times[0]))


def run(size: Size, places: Places) -> Iterable[Row]:
    count, rounds = COUNT[size], ROUNDS[size]
    with room(places.memory) as folder:
        roots = [os.path.join(folder, name) for name in ("none", "few", "many")]
        none, few, many = (
            One(root, number) for root, number in zip(roots, (0, _FEW, count), strict=True)
        )
        for what, words in (
            ("boot_and_fire", "boot and fire"),
            ("boot_and_pass", "boot and start what is due"),
        ):
            found = _compare(none, many, what, rounds)
            yield Row(f"{words}, {count:,} claims", found, 1.2, note="with none")
        found = ratio(*reversed(in_turn(few.history, many.history, rounds=rounds)))
        yield Row(f"history NAME -n 20, {count:,} claims", found, 1.5, note=f"with {_FEW}")
