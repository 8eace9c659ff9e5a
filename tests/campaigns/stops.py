"""A scheduler is stopped (SIGSTOP) at each step of a claim, and goes on much later.

    python -m tests.campaigns.stops --seconds 600 --each 30

Beside each stopped one another scheduler works on the same state folder, and in one folder it is
the turn process that is stopped. Nothing that a stopped process holds is taken from it, and when
it goes on nothing runs a second time.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from tests.acceptance.helpers import (
    REPOSITORY,
    end_all,
    environment,
    eventually,
    records_of,
    send,
    turn_processes,
)
from tests.campaigns.adding_up import AGENT, outcomes_of, words_of, wrongs

STEPS = (0, 1, 3, 5, 7, 9, 11, 14, 18, 22)
# A turn that is stopped as a whole must not have ended before that.
_LONG = 'echo "begun $ROUTINES_TURN" >> {log}; sleep 8; echo "ended $ROUTINES_TURN" >> {log}'


def is_stopped(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


@dataclass
class Stop:
    """One state folder in which one process is stopped."""

    folder: str
    step: int | None
    each: int
    processes: list[subprocess.Popen] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)

    @property
    def state(self):
        return os.path.join(self.folder, "state")

    @property
    def log(self):
        return os.path.join(self.folder, "log")

    @property
    def what(self):
        return "a turn process" if self.step is None else f"step {self.step}"

    def _start(self, *words):
        agent = (_LONG if self.step is None else AGENT).format(log=self.log)
        with open(os.path.join(self.folder, f"err.{len(self.processes)}"), "wb") as err:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.campaigns.scheduler", self.state),
                    *("--routines", "2", "--each", str(self.each), "--overlap", "skip", *words),
                    *("--", "/bin/sh", "-c", agent),
                ],
                cwd=REPOSITORY,
                env=environment(),
                stdout=err,
                stderr=err,
            )
        self.processes.append(process)
        return process

    def begin(self):
        """Start the one that will stop."""
        self._start(*(() if self.step is None else ("--stop-at", str(self.step))))

    def stop(self):
        """Wait until it has stopped, or stop the turn process that it has started."""
        (first,) = self.processes
        if self.step is not None:
            eventually(lambda: is_stopped(first.pid), f"the stop at {self.what}", 120)
            self.stopped = [first.pid]
            return
        self.stopped = eventually(
            lambda: words_of(self.log)[0] and turn_processes(self.state), "a turn", 120
        )
        for pid in self.stopped:
            send(pid, signal.SIGSTOP)

    def beside(self):
        """Start another scheduler, and note what there is of the stopped one."""
        self._start()
        self.held = {
            record.ref
            for name in ("r00", "r01")
            for record in records_of(self.state, name)
            if record.end is None
        }
        if self.step is None:
            self.held = {
                record.ref
                for name in ("r00", "r01")
                for record in records_of(self.state, name)
                if record.end is None
                and (record.started or {}).get("owner", {}).get("pid") in self.stopped
            }

    def look(self):
        """Nothing that the stopped process holds has been taken from it."""
        if not all(is_stopped(pid) for pid in self.stopped):
            self.wrong.append(f"{self.what}: it does not stand still any more")
        for name in ("r00", "r01"):
            for record in records_of(self.state, name):
                if record.ref in self.held and record.end is not None:
                    self.wrong.append(f"{self.what}: {record.ref} was settled while it was held")

    def go_on(self):
        for pid in self.stopped:
            send(pid, signal.SIGCONT)

    def finish(self):
        """Let all of it come to rest, and add up."""
        ended = [process for process in self.processes if process.poll() is not None]
        self.wrong += [f"{self.what}: a scheduler ended with {one.returncode}" for one in ended]
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=90)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{self.what}: a scheduler does not stop")
        found = wrongs(self.folder, self.state, self.log, ("r00", "r01"), self.each)
        self.wrong += [f"{self.what}: {one}" for one in found]

    def end(self):
        end_all(self.folder)
        for process in self.processes:
            process.wait()


@dataclass
class Result:
    """What a campaign came to."""

    seconds: float
    stopped_for: float
    steps: int
    turns: int
    outcomes: dict[str, int]
    wrong: list[str]

    def lines(self):
        yield f"{self.steps} processes stopped for {self.stopped_for:.0f} s, {self.seconds:.0f} s in all"
        yield f"{self.turns} turns; " + ", ".join(
            f"{n} {o}" for o, n in sorted(self.outcomes.items())
        )
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong[:40]


def campaign(*, seconds=600.0, each=30, steps=(*STEPS, None), after=None):
    """Stop one process in each of some folders, all at once, and clean up after it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stops-") as place:
        stops = []
        for number, step in enumerate(steps):
            folder = os.path.join(place, f"f{number:02d}")
            os.mkdir(folder)
            stops.append(Stop(folder, step, each))
        try:
            for one in stops:
                one.begin()
            for one in stops:
                one.stop()
            for one in stops:
                one.beside()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for one in stops:
                    one.look()
                time.sleep(min(1.0, seconds / 4))
            for one in stops:
                one.go_on()
            time.sleep(after if after is not None else each + 5)
            for one in stops:
                one.finish()
            records = [r for one in stops for n in ("r00", "r01") for r in records_of(one.state, n)]
            turns = sum(words_of(one.log)[0].total() for one in stops)
            wrong = list(dict.fromkeys(line for one in stops for line in one.wrong))
        finally:
            for one in stops:
                one.end()
    return Result(time.monotonic() - began, seconds, len(stops), turns, outcomes_of(records), wrong)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--each", type=int, default=30, help="seconds between two slots")
    asked = parser.parse_args(argv)
    result = campaign(seconds=asked.seconds, each=asked.each)
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
