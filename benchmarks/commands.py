"""How long `routines --version` and `routines list` take, against `python -c "import click"`.

Each is a process of its own, started by turns; the ratio is that of the medians. `list` shows a
workspace of 20 routines, each of which has run a few times.
"""

import asyncio
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from benchmarks.measure import Places, Row, Size, in_turn, python, ratio, room, routines
from benchmarks.measure import run as go
from benchmarks.workspaces import make_workspace
from routines.domain import schedule
from routines.domain.routine import Routine
from routines.engine.engine import Engine
from routines.testing import FakeClock

ROUTINES = {Size.TINY: 3, Size.USUAL: 20, Size.FULL: 20}
ROUNDS = {Size.TINY: 1, Size.USUAL: 15, Size.FULL: 40}
_RUNS = 3


async def _history(root: str, count: int) -> None:
    """Let each routine have run a few times in the last hours."""

    async def agent(_turn: object) -> str:
        return "done"

    clock = FakeClock(datetime.now(UTC) - timedelta(hours=_RUNS + 1))
    routines_ = [
        Routine(
            name=f"r{index:05}",
            prompt="Say what changed.",
            schedule=schedule.cron(f"{index % 60} * * * *", "UTC"),
        )
        for index in range(count)
    ]
    state = os.path.join(root, ".routines")
    async with Engine(state, agent=agent, routines=routines_, clock=clock).opened() as engine:
        for _ in range(_RUNS):
            clock.move(timedelta(hours=1))
            await engine.tick()


def run(size: Size, places: Places) -> Iterable[Row]:
    with room(places.memory) as root:
        make_workspace(root, ROUTINES[size])
        asyncio.run(_history(root, ROUTINES[size]))
        click, bare, version, listing = in_turn(
            lambda: go(python("-c", "import click")),
            lambda: go(python("-c", "pass")),
            lambda: go(routines("--version")),
            lambda: go(routines("list"), cwd=root),
            rounds=ROUNDS[size],
        )
    note = "python -c 'import click'"
    yield Row("routines --version", ratio(version, click), 2.0, note=note)
    yield Row(f"routines list of {ROUTINES[size]}", ratio(listing, click), 4.0, note=note)
    yield Row("for scale: importing click", ratio(click, bare), note="python -c pass")
