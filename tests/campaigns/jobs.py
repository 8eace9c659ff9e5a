"""Producers and workers of one queue are killed with -9 at random; afterwards everything adds up.

    python -m tests.campaigns.jobs --seconds 600 --seed 1
    python -m tests.campaigns.jobs --drain 20000

Eight producers add jobs, one by one and many at once, and repeat what they were at when they come up
again. Two schedulers drain the queue, and two programs work jobs themselves, with tokens. In the end
every job that was accepted has ended once and is in the settled feed once, no turn key was begun
twice, no job was run more often than its recoveries allow, and nothing is open.

Meanwhile one scheduler is stopped (SIGSTOP) with a turn under way, for half of the time and at most
five minutes, and keeps its job; and the clock of the other is set forward by five minutes.

With --seconds N the killing lasts N seconds. Producers wait while 100 jobs are queued, so that what
is then left is worked off in a minute or two. On a slow machine the killing itself goes on until 100 jobs are accepted, for 6 N seconds at the most. No lease is waited for:
who works off the rest has a clock that is ten minutes ahead. A line each ten seconds says how far
it is; where nothing at all ends for 240 s what is left is given up, and is wrong.
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

from routines.engine import host
from routines.engine.clock import SystemClock
from routines.operations.jobs import Jobs
from routines.store.claims import ClaimStore
from routines.store.jobs import JobStore, job_of
from routines.store.state import open_for_writing
from tests.acceptance.helpers import (
    REPOSITORY,
    end_all,
    environment,
    records_of,
    send,
    turn_processes,
)
from tests.campaigns import clocks
from tests.campaigns.adding_up import AGENT, words_of

FORWARD = timedelta(minutes=5)
# Seconds between two lines about how far it is.
TELL_S = 10.0
# A machine on which nothing ends for so long is stuck, and not only slow.
STUCK_S = 240.0
# A lease of 120 s, and what was put off by a clock that is five minutes ahead.
LATER = timedelta(minutes=10)
PACE_S = 0.05
# Producers wait while so many are queued: unchecked, ten minutes leave hours of work behind them.
BACKLOG = 100


class Later(SystemClock):
    """The machine's clock, when every lease of a dead program has lapsed."""

    def now(self):
        return super().now() + LATER

    def awake(self):
        return super().awake() + LATER.total_seconds()


def note(log, *words):
    """Append one line, in one write: the process may be killed at any moment."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (" ".join(words) + "\n").encode())
    finally:
        os.close(fd)


def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [line.split() for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


# The processes ----------------------------------------------------------------------------------


def asked_for(producer, number):
    """What a producer adds as its job of that number: always the same."""
    dice = random.Random(f"{producer}/{number}")
    return {
        "prompt": f"job {number} of {producer}",
        "id": f"p{producer}-{number}",
        "queue": f"q{dice.randrange(3)}",
        "priority": dice.randrange(3),
        "session": f"named:s{dice.randrange(4)}" if dice.random() < 0.2 else None,
        "agent": "stub",
        "recoveries": dice.randrange(4),
        "after": "1s" if dice.random() < 0.1 else None,
    }


def produce(state, log, producer, pace):
    """Add jobs until killed; what was at work at a kill is said again, word for word."""
    jobs = Jobs(state)
    mine = f"p{producer}-"
    done = [int(words[1][len(mine) :]) for words in lines(log) if words[1].startswith(mine)]
    number = max(done, default=-1) + 1
    while True:
        many = 1 + number % 7 if number % 3 == 0 else 1
        while many > 1 and len(jobs.head(None, limit=BACKLOG)) >= BACKLOG:
            time.sleep(0.5)
        asked = [asked_for(producer, one) for one in range(number, number + many)]
        for added in jobs.add_many(asked) if many > 1 else [jobs.add(**asked[0])]:
            note(log, "accepted", added.id)
        number += many
        time.sleep(pace)


def work(state, log, *, until_empty=False, pace=0.05):
    """Work jobs until killed, or until there are none."""
    jobs = Jobs(state)
    dice = random.Random()
    while True:
        claimed = jobs.claim()
        if claimed is None:
            if until_empty and not jobs.pending():
                return
            time.sleep(0.02 if until_empty else 0.2)
            continue
        note(log, "begun", claimed.key)
        if pace:
            time.sleep(dice.random() * pace)
            jobs.renew(claimed.job.id, claimed.token)
        said = jobs.settle(claimed.job.id, claimed.token, "completed", reply="done")
        note(log, "ended" if said.word == "settled" else said.word, claimed.key)


# The campaign -----------------------------------------------------------------------------------


@dataclass
class Result:
    """What a campaign came to."""

    seed: int
    seconds: float
    kills: dict[str, int]
    accepted: int
    turns: int
    recovered: int
    outcomes: dict[str, int]
    wrong: list[str] = field(default_factory=list)

    def lines(self):
        yield f"seed {self.seed}, {self.seconds:.0f} s"
        yield "killed " + ", ".join(f"{count} {what}" for what, count in self.kills.items())
        yield f"{self.accepted} jobs accepted, {self.turns} turns, {self.recovered} recoveries"
        yield "outcomes " + ", ".join(f"{n} {o}" for o, n in sorted(self.outcomes.items()))
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong[:40]


class Campaign:
    """Some processes on one queue, and what kills them."""

    def __init__(self, folder, *, producers, seed, pace, say):
        self.folder = folder
        self.state = os.path.join(folder, "state")
        self.log = os.path.join(folder, "log")
        self.accepted = os.path.join(folder, "accepted")
        self.random = random.Random(seed)
        self.kills = collections.Counter()
        self.pace = pace
        self.say = say
        self.began = time.monotonic()
        self.told_at = self.began
        self.clock = clocks.Clock(folder) if clocks.LIBRARY else None
        self.stopped = set()
        self.processes = {f"producer {number}": None for number in range(producers)}
        self.processes |= dict.fromkeys(("scheduler 0", "scheduler 1", "worker 0", "worker 1"))

    def start(self, name):
        role, _, number = name.partition(" ")
        env = environment()
        if role == "scheduler":
            words = ["tests.campaigns.scheduler", self.state, "--routines", "0"]
            words += ["--concurrency", "6", "--", "/bin/sh", "-c", AGENT.format(log=self.log)]
            if number == "1" and self.clock is not None:
                env = self.clock.environment()
        else:
            log = self.accepted if role == "producer" else self.log
            words = ["tests.campaigns.jobs", "--role", role, self.state, log, number]
            words += ["--pace", str(self.pace)]
        with open(os.path.join(self.folder, "processes.log"), "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=REPOSITORY,
                env=env,
                stdout=output,
                stderr=output,
            )

    def keep_up(self):
        for name, process in self.processes.items():
            if process is None or process.poll() is not None:
                self.processes[name] = self.start(name)

    def kill_one(self):
        """Kill a turn process, or any process that is not stopped."""
        if self.random.random() < 0.3:
            turns = [pid for pid in turn_processes(self.state) if pid not in self.stopped]
            if turns and send(self.random.choice(turns), signal.SIGKILL):
                self.kills["turn processes"] += 1
            return
        name = self.random.choice(sorted(self.processes))
        process = self.processes[name]
        if process is not None and process.poll() is None and process.pid not in self.stopped:
            process.kill()
            self.kills[f"{name.partition(' ')[0]}s"] += 1

    def stop_some(self):
        """Stop the first scheduler and the turns that run at the moment."""
        process = self.processes["scheduler 0"]
        turns = turn_processes(self.state)
        if process is None or process.poll() is not None or not turns:
            return
        for pid in (process.pid, *turns):
            if send(pid, signal.SIGSTOP):
                self.stopped.add(pid)

    def go_on(self):
        for pid in self.stopped:
            send(pid, signal.SIGCONT)
        self.stopped.clear()

    def progress(self):
        """Return what grows when anything gets done."""
        paths = [path for path in (self.log, self.accepted) if os.path.exists(path)]
        return sum(os.path.getsize(path) for path in paths)

    def tell(self, phase, *, at_once=False):
        """Say how far it is, every ten seconds; *at_once* where a phase begins."""
        now = time.monotonic()
        if not at_once and now < self.told_at + TELL_S:
            return
        self.told_at = now
        begun = len(words_of(self.log)[0])
        accepted = len(lines(self.accepted))
        kills = sum(count for what, count in self.kills.items() if what != "stopped")
        self.say(
            f"{now - self.began:4.0f} s  {phase}: {accepted} accepted, {begun} begun, {kills} kills"
        )

    def run(self, *, seconds, every, least):
        """Kill for so long, and until so many jobs were accepted, in six times that at the most.

        Nobody is killed before something was done since the last time: on a busy machine a process
        takes seconds to come up, and one that is always killed before does no harm.
        """
        began = time.monotonic()
        killed_at = -1
        if self.clock is not None:
            self.clock.set(SystemClock().now())
        stop_at, forward_at = began + seconds * 0.2, began + seconds * 0.5
        go_on_at = stop_at + min(seconds * 0.5, 300.0)
        have_stopped = have_set = False
        while (now := time.monotonic()) < began + seconds * 6:
            if now >= began + seconds and len(lines(self.accepted)) >= least:
                break
            self.keep_up()
            self.tell("killing")
            time.sleep(self.random.uniform(0.2, 1.8) * every)
            if self.progress() != killed_at:
                killed_at = self.progress()
                self.kill_one()
            if now >= stop_at and not have_stopped:
                self.stop_some()
                have_stopped = bool(self.stopped)
                if have_stopped:
                    self.kills["stopped"] = len(self.stopped)
            if self.stopped and now >= go_on_at:
                self.go_on()
            if now >= forward_at and not have_set and self.clock is not None:
                self.clock.set(SystemClock().now() + FORWARD)
                have_set = True
        self.go_on()

    def finish(self):
        """Kill all, and let one scheduler and one program of a later time work off what is left."""
        for process in self.processes.values():
            if process is not None:
                process.kill()
                process.wait()
        end_all(self.folder)
        jobs = Jobs(self.state, clock=Later())
        last = self.start("scheduler 0")
        self.tell("working off what is left", at_once=True)
        progress, until = self.progress(), time.monotonic() + STUCK_S
        while jobs.pending() and time.monotonic() < until:
            self.tell("working off what is left")
            if self.progress() != progress:
                progress, until = self.progress(), time.monotonic() + STUCK_S
            claimed = jobs.claim()
            if claimed is None:
                time.sleep(0.2)
                continue
            note(self.log, "begun", claimed.key)
            jobs.settle(claimed.job.id, claimed.token, "completed")
        self.tell("stopping the last scheduler", at_once=True)
        last.terminate()
        try:
            last.wait(timeout=90)
        except subprocess.TimeoutExpired:
            last.kill()
            last.wait()
            yield "the last scheduler did not stop within 90 s"


def wrongs(state, log, accepted):
    """Yield in words whatever does not add up."""
    begun, _ = words_of(log) if os.path.exists(log) else ({}, {})
    for key, count in begun.items():
        if count > 1:
            yield f"{key} was begun {count} times"
    jobs = Jobs(state)
    records = [record for record in records_of(state, "job") if job_of(record) is not None]
    by_id = collections.Counter(record.occurrence.id for record in records)
    for job_id, count in by_id.items():
        if count > 1:
            yield f"{job_id} was claimed {count} times"
    runs_of = collections.Counter()
    for key, count in begun.items():
        runs_of[_ref_of(key)] += count
    said = {words[1] for words in lines(accepted)}
    for job_id in sorted(said - by_id.keys()):
        yield f"{job_id} was accepted, and is lost"
    for record in records:
        job = job_of(record)
        outcomes = [line for line in record.events if line["event"] == "outcome"]
        if len(outcomes) != 1:
            yield f"{record.ref} has {len(outcomes)} outcomes"
        if record.reruns > job.recoveries:
            yield f"{record.ref} was recovered {record.reruns} times of {job.recoveries}"
        runs = runs_of[record.ref]
        if runs > job.recoveries + 1:
            yield f"{record.ref} was begun {runs} times, {job.recoveries} recoveries"
    yield from _feed_wrongs(jobs, records)
    store = JobStore(open_for_writing(state, boot=host.here().boot), clock=SystemClock())
    if store.has_queued():
        yield "something is queued"
    left = [entry.name for entry in ClaimStore(store._state).open_entries()]
    if left:
        yield f"{len(left)} are open: {left[:3]}"


def _ref_of(key):
    """Return the job of a turn key, whichever run of it that is."""
    return key.partition("/")[2].partition("#")[0]


def _feed_wrongs(jobs, records):
    shown, after = [], 0
    while page := jobs.settled(after):
        shown += page
        after = page[-1].number
    if [one.number for one in shown] != list(range(1, len(shown) + 1)):
        yield "the settled feed has a gap"
    counts = collections.Counter(one.id for one in shown)
    for job_id, count in counts.items():
        if count > 1:
            yield f"{job_id} is in the settled feed {count} times"
    for record in records:
        if record.end is not None and record.occurrence.id not in counts:
            yield f"{record.ref} has ended, and is not in the settled feed"


def silent(_line):
    """Say nothing of how far it is: tests look at the result."""


def campaign(
    *, seconds=600.0, producers=8, every=1.0, seed=None, pace=PACE_S, least=100, say=silent
):
    """Run one campaign in a folder of its own, and clean up after it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    say(
        f"seed {seed}: {producers} producers, 2 schedulers and 2 programs, one killed each {every} s"
    )
    say(f"for {seconds:.0f} s and until {least} jobs are accepted, at most {seconds * 6:.0f} s")
    say("then what is left is worked off, and added up")
    if clocks.LIBRARY is None:
        say("no clock is set forward: libfaketime is not installed")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jobs-") as folder:
        one = Campaign(folder, producers=producers, seed=seed, pace=pace, say=say)
        try:
            one.run(seconds=seconds, every=every, least=least)
            wrong = [*one.finish()]
            one.tell("adding up", at_once=True)
            wrong += wrongs(one.state, one.log, one.accepted)
            records = [r for r in records_of(one.state, "job") if job_of(r) is not None]
            outcomes = collections.Counter(str(record.outcome) for record in records)
            turns = sum(words_of(one.log)[0].values()) if os.path.exists(one.log) else 0
            recovered = sum(record.reruns for record in records)
        finally:
            one.go_on()
            end_all(folder)
            for process in one.processes.values():
                if process is not None:
                    process.kill()
                    process.wait()
    spent = time.monotonic() - began
    return Result(
        seed, spent, dict(one.kills), len(records), turns, recovered, dict(outcomes), wrong
    )


def drain(count, processes=4, say=silent):
    """Let some processes work off *count* jobs that do nothing; each is done once."""
    say(f"{count} jobs are added, and worked off by {processes} processes")
    with tempfile.TemporaryDirectory(prefix="jobs-drain-") as folder:
        state, log = os.path.join(folder, "state"), os.path.join(folder, "log")
        jobs = Jobs(state)
        added = os.path.join(folder, "accepted")
        for start in range(0, count, 5000):
            many = range(start, min(start + 5000, count))
            asked = [{"prompt": "nothing", "id": f"n{one}"} for one in many]
            for one in jobs.add_many(asked):
                note(added, "accepted", one.id)
        began = time.monotonic()
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.campaigns.jobs", "--role", "drain", state, log, "0"],
                cwd=REPOSITORY,
                env=environment(),
            )
            for _ in range(processes)
        ]
        codes = [worker.wait() for worker in workers]
        seconds = time.monotonic() - began
        wrong = [f"a worker ended with {code}" for code in codes if code]
        wrong += wrongs(state, log, added)
        begun, ended = words_of(log)
        if len(begun) != count or len(ended) != count:
            wrong.append(f"{len(begun)} begun, {len(ended)} ended of {count}")
    outcomes = {"completed": len(ended)}
    return Result(0, seconds, {}, count, len(begun), 0, outcomes, wrong)


def tell_now(line):
    """Print a line that is seen at once, into a pipe too."""
    print(line, flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills")
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--pace", type=float, default=PACE_S)
    parser.add_argument("--drain", type=int, help="only let four processes drain so many jobs")
    parser.add_argument("--role", choices=["producer", "worker", "drain"], help=argparse.SUPPRESS)
    parser.add_argument("place", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.role is not None:
        state, log, number = asked.place
        if asked.role == "producer":
            return produce(state, log, number, asked.pace)
        return work(
            state, log, until_empty=asked.role == "drain", pace=0.05 * (asked.role == "worker")
        )
    result = (
        drain(asked.drain, say=tell_now)
        if asked.drain
        else campaign(
            seconds=asked.seconds,
            producers=asked.producers,
            every=asked.every,
            seed=asked.seed,
            pace=asked.pace,
            say=tell_now,
        )
    )
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
