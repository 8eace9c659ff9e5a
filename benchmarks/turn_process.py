"""What the process of one turn costs: its start-up, and what it imports.

A command agent's turn is run by an engine as always, with an interpreter in the place of
`sys.executable` that writes down its imports (`python -X importtime`): what the real turn process
loaded is then in the turn's own log. Its start-up is timed as `import routines.engine.turn_process`
against `python -c pass`, by turns; its memory is that of the same two processes.
"""

import asyncio
import os
import sys
from collections.abc import Iterable

from benchmarks.measure import Places, Row, Size, in_turn, python, ratio, room
from benchmarks.measure import run as go
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.outcome import Outcome
from routines.domain.routine import Routine
from routines.engine.engine import Engine

ROUNDS = {Size.TINY: 1, Size.USUAL: 15, Size.FULL: 40}
_HEAVY = ("asyncio", "click", "yaml", "croniter", "dateutil", "ssl")
_TURN = ("-c", "import routines.engine.turn_process")


def _imported(folder: str) -> set[str]:
    """Return the modules that the turn process of a command agent has loaded at its end."""
    wrapper = os.path.join(folder, "python")
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -X importtime "$@"\n')
    os.chmod(wrapper, 0o700)
    real, sys.executable = sys.executable, wrapper
    try:
        place = asyncio.run(_one_turn(folder))
    finally:
        sys.executable = real
    found = set()
    with open(os.path.join(place, "turn.log"), encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("import time:"):
                found.add(line.rpartition("|")[2].strip())
    return found


async def _one_turn(folder: str) -> str:
    spec = AgentSpec(name="cat", kind=AgentKind.COMMAND, command=("cat",))
    routine = Routine(name="one", prompt="say this", schedule=None, agent="cat")
    state = os.path.join(folder, "state")
    engine = Engine(state, routines=[routine], agents={"cat": spec}, is_scheduler=False)
    async with engine.opened():
        record = await engine.run("one")
    if record.outcome is not Outcome.COMPLETED:
        raise RuntimeError(f"the turn ended {record.end}")
    return os.path.join(state, "output", record.occurrence.place)


def run(size: Size, places: Places) -> Iterable[Row]:
    with room(places.memory) as folder:
        modules = _imported(folder)
    heavy = [name for name in _HEAVY if name in modules]
    note = f"{len(modules)} modules; " + (f"has {', '.join(heavy)}" if heavy else "none of them")
    yield Row(f"imports of {', '.join(_HEAVY)}", len(heavy), 0, "", note)
    bare, turn = in_turn(
        lambda: go(python("-c", "pass")), lambda: go(python(*_TURN)), rounds=ROUNDS[size]
    )
    yield Row("start-up", ratio(turn, bare), note="python -c pass")
    memory = [_memory(words) for words in ("pass", "import routines.engine.turn_process")]
    note = f"python -c pass: {memory[0]:.0f} MB"
    yield Row("memory of a turn process", memory[1], None, "MB", note)


def _memory(code: str) -> float:
    """Return the largest memory of a Python that does *code*, in MB; 0 where that is not told."""
    if not os.path.exists("/proc/self/status"):
        return 0.0
    look = "import sys; sys.stderr.write(open('/proc/self/status').read())"
    said = go(python("-c", f"{code}\n{look}"))
    peak = next(line for line in said.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024
