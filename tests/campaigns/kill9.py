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
from datetime import timedelta

from routines.domain.occurrence import Kind
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.state import open_for_reading
from tests.acceptance.helpers import (
    REPOSITORY,
    end_all,
    environment,
    outcome_lines,
    processes_of,
    records_of,
    send,
    turn_processes,
)

# It takes 0.1 to 0.9 s.
_AGENT = 'echo "begun $ROUTINES_TURN" >> {log}; sleep 0.$(($$ % 9 + 1)); echo "ended $ROUTINES_TURN" >> {log}; echo done'


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
            *("--", "/bin/sh", "-c", _AGENT.format(log=self.log)),
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
        """Kill everything that schedules, boot once more, and stop that one as a person would."""
        for process in self.schedulers:
            if process is not None:
                process.kill()
                process.wait()
        last = self.start()
        limit = time.monotonic() + 90
        settled = False
        while not settled and time.monotonic() < limit:
            time.sleep(0.2)
            # What the killed ones left is settled at boot; only turns of the new one are open.
            settled = last.poll() is None and self._is_running(last.pid)
        last.terminate()
        try:
            last.wait(timeout=90)
        except subprocess.TimeoutExpired:
            last.kill()
            last.wait()
            yield "the last scheduler did not stop within 90 s"

    def _is_running(self, pid):
        """Return whether the scheduler *pid* has looked once, and made a claim of its own."""
        state = open_for_reading(self.state)
        claims = ClaimStore(state)
        for entry in claims.open_entries():
            record = claims.read_path(entry.claim_path)
            if record is not None and record.owner is not None and record.owner.pid == pid:
                return True
            started = None if record is None else record.started
            if started and (started.get("owner") or {}).get("pid") == pid:
                return True
        return any(
            record.owner is not None and record.owner.pid == pid
            for name in self.names
            for record in records_of(self.state, name)[-3:]
        )

    # What has to add up

    def check(self):
        begun = collections.Counter()
        with open(self.log, encoding="utf-8") as log:
            for line in log:
                word, key = line.split()
                begun[key] += word == "begun"
        for key, count in begun.items():
            if count > 1:
                yield f"{key} was begun {count} times"
        refs = {}
        for name in self.names:
            for record in records_of(self.state, name):
                refs[record.claim.get("key")] = record
                yield from self._check_record(record, begun)
            yield from self._check_slots(name)
        for key in begun.keys() - refs.keys():
            yield f"{key} was begun and has no claim"
        for name in sorted(os.listdir(os.path.join(self.state, "open"))):
            if not name.startswith("."):
                yield f"open/{name} is left"
        for pid, words in processes_of(self.folder).items():
            yield f"process {pid} is left: {words[:100]}"

    def _check_record(self, record, begun):
        if record.end is None:
            yield f"{record.ref} has no outcome"
            return
        if outcome_lines(self.state, record) != 1:
            yield f"{record.ref} has {outcome_lines(self.state, record)} outcomes"
        was_begun = begun[record.claim.get("key")] > 0
        started = record.started is not None
        if was_begun and not started:
            yield f"{record.ref} was begun without `started`"
        if record.end["outcome"] == "completed" and not was_begun:
            yield f"{record.ref} is completed and was not begun"

    def _check_slots(self, name):
        """Every second from the cursor to the newest claim is claimed or covered."""
        state = open_for_reading(self.state)
        cursors = CursorStore(state)
        cursor = cursors.peek(name)
        if cursor is None:
            yield f"{name} has no cursor"
            return
        records = [r for r in records_of(self.state, name) if r.occurrence.kind is Kind.SLOT]
        slots = {record.occurrence.instant for record in records}
        ranges = list(cursors.missed(name))
        newest = max([*slots, *(one.last for one in ranges)], default=cursor.since)
        at = cursor.since.replace(microsecond=0) + timedelta(seconds=1)
        while at <= newest:
            covered = any(one.after < at <= one.last for one in ranges)
            if at not in slots and not covered:
                yield f"{name}@{at} is neither claimed nor recorded"
            at += timedelta(seconds=1)


def campaign(*, routines=20, schedulers=3, slots=500, kills=300, limit_s=600.0, seed=None):
    """Run one campaign in a folder of its own, and clean up after it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill9-") as folder:
        one = Campaign(folder, routines=routines, schedulers=schedulers, seed=seed)
        try:
            one.run(slots=slots, kills=kills, limit_s=limit_s)
            wrong = [*one.finish(), *one.check()]
            records = [r for name in one.names for r in records_of(one.state, name)]
            outcomes = collections.Counter(
                ":".join(
                    str(w) for w in ((r.end or {}).get("outcome"), (r.end or {}).get("reason")) if w
                )
                for r in records
            )
            missed = CursorStore(open_for_reading(one.state))
            given_up = sum(1 for name in one.names for _ in missed.missed(name))
            turns = sum(r.started is not None for r in records)
        finally:
            end_all(folder)
            for process in one.schedulers:
                if process is not None:
                    process.wait()
            if os.environ.get("KEEP"):
                subprocess.run(["cp", "-r", folder, os.environ["KEEP"]], check=False)
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
