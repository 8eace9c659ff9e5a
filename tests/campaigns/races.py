"""Many processes are let loose on the same slot at the same moment, slot after slot.

    python -m tests.campaigns.races --slots 200 --processes 16 --seed 1

Each process has an engine of its own. At a barrier all of them claim what is due, through the path
that a scheduler's pass takes: some by a pass, some as `fire`, some as `tick`. Each slot has exactly
one winner, one turn, and one outcome. `--way store` leaves out the routine's lock, which keeps the
others apart before they meet at the name of the claim.
"""

import argparse
import asyncio
import collections
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome
from routines.domain.routine import CatchUpPolicy, OverlapPolicy, Routine
from routines.engine.clock import SystemClock
from routines.engine.engine import Engine
from routines.engine.lifecycle import Limits
from routines.errors import SessionBusyError, StoreBusy
from routines.store.claim_making import Draft
from routines.testing import START
from tests.acceptance.helpers import outcome_lines, records_of
from tests.campaigns.scheduler import Each

# Slots lie so far apart that none of them is caught up with by the next.
_GAP_S = 60
WAYS = ("pass", "fire", "tick")


@dataclass
class Result:
    """What a campaign came to."""

    seed: int
    seconds: float
    slots: int
    processes: int
    turns: int
    settled: int
    winners: dict[str, int]
    wrong: list[str] = field(default_factory=list)

    def lines(self):
        yield f"seed {self.seed}, {self.seconds:.0f} s, {self.processes} processes"
        yield f"{self.slots} slots, {self.turns} turns, {self.settled} settled claims"
        yield "won by " + ", ".join(f"{way} {n}" for way, n in sorted(self.winners.items()))
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong[:40]


class _Agent:
    """Appends the key of each turn to a file, in one write."""

    def __init__(self, log):
        self._fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.turns = 0

    async def run(self, turn):
        os.write(self._fd, f"{turn.key}\n".encode())
        self.turns += 1
        return "done"


class _Clock(SystemClock):
    """Waits as the machine's does, and shows what it is set to."""

    def __init__(self, at):
        self.at = at

    def now(self):
        return self.at


def routine():
    return Routine(
        name="race",
        prompt="say hello",
        schedule=Each(_GAP_S),
        session="fresh",
        overlap=OverlapPolicy.BUFFER_ONE,
        catch_up=CatchUpPolicy.ONE,
    )


def _take_part(state, log, barrier, slots, way, seed, results):
    """Be one process: at each barrier claim the slot that is due, in one of three ways."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_take_part_in(state, log, barrier, slots, way, seed, results))


async def _take_part_in(state, log, barrier, slots, way, seed, results):
    rng = random.Random(seed)
    clock = _Clock(slots[0] - timedelta(seconds=1))
    agent = _Agent(log)
    engine = Engine(
        state,
        agent=agent,
        routines=[routine()],
        clock=clock,
        limits=Limits(concurrency=1000),
        is_scheduler=False,
    )
    wins, faults = collections.Counter(), []
    async with engine.opened():
        # The first look writes the cursor: what is due after it is owed.
        await engine.tick()
        for slot in slots:
            await asyncio.to_thread(barrier.wait, 120)
            clock.at = slot
            turns = agent.turns
            mode = rng.choice(WAYS) if way == "mixed" else way
            try:
                await _claim(engine, slot, mode, agent)
            except (SessionBusyError, StoreBusy) as error:
                faults.append(f"{slot} {mode}: {error}")
            wins[mode] += agent.turns - turns
    results.put((dict(wins), faults))


async def _claim(engine, slot, mode, agent):
    if mode == "store":
        draft = Draft(Occurrence(Kind.SLOT, "race", slot), {"routine": "race"})
        claim = engine._claims.take(draft, at=slot)
        if claim is not None:
            await agent.run(SimpleNamespace(key=claim.record.ref))
            claim.settle(Outcome.COMPLETED, at=slot)
            claim.let_go()
    elif mode == "pass":
        done = await engine._pass()
        await asyncio.gather(*(engine._in_flight[one.claim.record.ref].done for one in done.ready))
    elif mode == "fire":
        await engine.fire("race", slot)
    else:
        await engine.tick()


def campaign(*, slots=200, processes=16, way="mixed", seed=None):
    """Run one campaign in a folder of its own, and clean up after it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="races-") as folder:
        state, log = os.path.join(folder, "state"), os.path.join(folder, "log")
        first = routine().schedule.next_after(START)
        planned = [first + timedelta(seconds=_GAP_S * number) for number in range(slots)]
        spawn = multiprocessing.get_context("spawn")
        barrier, results = spawn.Barrier(processes), spawn.Queue()
        workers = [
            spawn.Process(
                target=_take_part,
                args=(state, log, barrier, planned, way, seed * 1000 + number, results),
            )
            for number in range(processes)
        ]
        try:
            for worker in workers:
                worker.start()
            answers = [results.get(timeout=60 + slots * 5) for _ in workers]
            for worker in workers:
                worker.join(60)
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
        records = records_of(state, "race")
        with open(log, encoding="utf-8") as file:
            turns = collections.Counter(line.strip() for line in file)
        wrong = list(_check(state, planned, records, turns))
        wrong += [fault for _, faults in answers for fault in faults]
    winners = collections.Counter()
    for wins, _ in answers:
        winners.update(wins)
    settled = sum(record.end is not None for record in records)
    seconds = time.monotonic() - began
    return Result(
        seed, seconds, slots, processes, sum(turns.values()), settled, dict(winners), wrong
    )


def _check(state, planned, records, turns):
    for key, count in turns.items():
        if count != 1:
            yield f"{key} ran {count} times"
    slots = [record.occurrence.instant for record in records]
    if slots != planned:
        yield f"{len(slots)} slots claimed of {len(planned)}; missing {sorted({*planned} - {*slots})[:3]}"
    for record in records:
        if record.end is None or record.end["outcome"] != "completed":
            yield f"{record.ref} is {record.end and record.end['outcome']}"
        elif outcome_lines(state, record) != 1:
            yield f"{record.ref} has {outcome_lines(state, record)} outcomes"
    for name in os.listdir(os.path.join(state, "open")):
        if not name.startswith("."):
            yield f"open/{name} is left"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--way", choices=(*WAYS, "store", "mixed"), default="mixed")
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(argv)
    result = campaign(slots=asked.slots, processes=asked.processes, way=asked.way, seed=asked.seed)
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
