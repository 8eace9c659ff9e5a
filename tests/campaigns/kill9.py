"""Schedulers and turn processes are killed with -9 at random; afterwards everything adds up.

    python -m tests.campaigns.kill9 --slots 500 --kills 300 --seed 1

Routines are due each second, and their agent appends its turn key to a file when it begins and
when it ends. In the end no key was begun twice, every slot is final (claimed with one outcome, or
covered by a counted record), nothing is open, and no process is left.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from routines.store.cursors import CursorStore
from routines.store.state import open_for_reading
from tests.acceptance.helpers import (
    REPOSITORY,
    end_all,
    environment,
    records_of,
    send,
    turn_processes,
)
from tests.campaigns.adding_up import AGENT, open_refs, outcomes_of, wrongs


@dataclass
class Result:
    """What a campaign came to."""

    seed: int
    seconds: float
    kills: dict[str, int]
    slots: int
    turns: int
    outcomes: dict[str, int]
    given_up: int
    wrong: list[str] = field(default_factory=list)

    def lines(self):
        yield f"seed {self.seed}, {self.seconds:.0f} s"
        yield "killed " + ", ".join(f"{count} {what}" for what, count in self.kills.items())
        yield f"{self.slots} slots claimed, {self.given_up} recorded as missed, {self.turns} turns"
        yield "outcomes " + ", ".join(f"{n} {o}" for o, n in sorted(self.outcomes.items()))
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong[:40]


class Campaign:
    """Some schedulers on one state folder, and what kills them."""

    def __init__(self, folder, *, routines, schedulers, seed):
        self.folder = folder
        self.state = os.path.join(folder, "state")
        self.log = os.path.join(folder, "log")
        self.names = [f"r{number:02d}" for number in range(routines)]
        self.random = random.Random(seed)
        self.schedulers = [None] * schedulers
        self.kills = collections.Counter()

    def start(self):
        words = [
            *(sys.executable, "-m", "tests.campaigns.scheduler", self.state),
            *("--routines", str(len(self.names)), "--concurrency", "8"),
            *("--", "/bin/sh", "-c", AGENT.format(log=self.log)),
        ]
        with open(os.path.join(self.folder, "schedulers.log"), "ab") as log:
            return subprocess.Popen(
                words, cwd=REPOSITORY, env=environment(), stdout=log, stderr=log
            )

    def keep_up(self):
        """Start again every scheduler that has been killed."""
        for number, process in enumerate(self.schedulers):
            if process is None or process.poll() is not None:
                self.schedulers[number] = self.start()

    def kill_one(self):
        """Kill a turn process, or now and then a scheduler: they have to come up to do harm."""
        if self.random.random() < 0.3:
            alive = [one for one in self.schedulers if one is not None and one.poll() is None]
            if alive:
                self.random.choice(alive).kill()
                self.kills["schedulers"] += 1
            return
        turns = turn_processes(self.state)
        if turns and send(self.random.choice(turns), signal.SIGKILL):
            self.kills["turn processes"] += 1

    def claimed(self):
        count = 0
        for name in self.names:
            folder = os.path.join(self.state, "claims", name)
            for day in os.listdir(folder) if os.path.isdir(folder) else ():
                count += len(os.listdir(os.path.join(folder, day)))
        return count

    def run(self, *, slots, kills, limit_s):
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            self.keep_up()
            time.sleep(self.random.uniform(0.05, 0.5))
            left = kills - sum(self.kills.values())
            if left > 0:
                self.kill_one()
            elif self.claimed() >= slots:
                break

    def finish(self):
        """Kill everything that schedules, boot again until all that was open is settled, and stop."""
        for process in self.schedulers:
            if process is not None:
                process.kill()
                process.wait()
        left = open_refs(self.state, self.names)
        last = self.start()
        until = time.monotonic() + 90
        while left and time.monotonic() < until:
            time.sleep(0.2)
            left &= open_refs(self.state, self.names)
        yield from (f"{ref} is open after the next boot" for ref in sorted(left))
        last.terminate()
        try:
            last.wait(timeout=90)
        except subprocess.TimeoutExpired:
            last.kill()
            last.wait()
            yield "the last scheduler did not stop within 90 s"


def campaign(*, routines=20, schedulers=3, slots=500, kills=300, limit_s=600.0, seed=None):
    """Run one campaign in a folder of its own, and clean up after it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill9-") as folder:
        one = Campaign(folder, routines=routines, schedulers=schedulers, seed=seed)
        try:
            one.run(slots=slots, kills=kills, limit_s=limit_s)
            wrong = [*one.finish(), *wrongs(folder, one.state, one.log, one.names)]
            records = [r for name in one.names for r in records_of(one.state, name)]
            outcomes = outcomes_of(records)
            missed = CursorStore(open_for_reading(one.state))
            given_up = sum(1 for name in one.names for _ in missed.missed(name))
            turns = sum(r.started is not None for r in records)
        finally:
            end_all(folder)
            for process in one.schedulers:
                if process is not None:
                    process.wait()
    seconds = time.monotonic() - began
    return Result(seed, seconds, dict(one.kills), len(records), turns, outcomes, given_up, wrong)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--routines", type=int, default=20)
    parser.add_argument("--schedulers", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds at most")
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(argv)
    result = campaign(
        routines=asked.routines,
        schedulers=asked.schedulers,
        slots=asked.slots,
        kills=asked.kills,
        limit_s=asked.limit,
        seed=asked.seed,
    )
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
