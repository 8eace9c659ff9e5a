"""The clock of a living scheduler is set: a day on, an hour back, to 2098 and back, over both DSTs.

    python -m tests.campaigns.clocks

The scheduler is the real one under libfaketime: its wall clock follows a file that is rewritten
while it runs, its monotonic clock is the machine's. Each step starts in a workspace of its own.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from glob import glob
from pathlib import Path

from tests.acceptance.helpers import Workspace, end_all, end_of, environment, eventually, stays

LIBRARY = next(iter(sorted(glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), None)

# In its mode of a real monotonic clock, libfaketime breaks the call that time.sleep makes.
_SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"


class Clock:
    """The wall clock of the processes that are started with `environment`."""

    def __init__(self, folder):
        self._file = os.path.join(folder, "clock")
        self._site = os.path.join(folder, "site")
        os.mkdir(self._site)
        Path(self._site, "sitecustomize.py").write_text(_SLEEP)

    def set(self, instant):
        """Set it, in one step."""
        seconds = instant.timestamp() - time.time()
        Path(self._file + ".new").write_text(f"{seconds:+.6f}\n")
        os.replace(self._file + ".new", self._file)

    def environment(self):
        plain = environment()
        return plain | {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": self._file,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": f"{self._site}:{plain['PYTHONPATH']}",
        }


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Scene:
    """One workspace, one scheduler in it, and the clock that both live by."""

    def __init__(self, folder, begin, *, seen=None, tz="UTC", **crons):
        self.clock = Clock(folder)
        self.workspace = Workspace(Path(folder) / "ws").agent('echo "$ROUTINES_TURN" >> $LOG')
        self.wrong = []
        for name, cron in crons.items():
            self.workspace.routine(name, cron=cron, tz=tz)
            if seen is not None:
                self.workspace.seen(name, at(seen))
        self.set(begin)
        self.scheduler = self.workspace.start(env=self.clock.environment())

    def set(self, text):
        self.clock.set(at(text))

    def slots(self, name):
        """Return the claimed slots, oldest first."""
        return [record.occurrence.instant for record in self.workspace.records(name)]

    def fires(self, name, text, within=60):
        """Wait until that slot has run to its end; note it if it has not."""

        def ended():
            return [
                r
                for r in self.workspace.records(name)
                if r.occurrence.instant == at(text) and r.end
            ]

        try:
            (record,) = eventually(ended, f"{name}@{text}", within)
        except AssertionError as error:
            self.wrong.append(f"{error}; there is {[str(slot) for slot in self.slots(name)]}")
            return
        if end_of(record) != ("completed", None):
            self.wrong.append(f"{record.ref} ended {end_of(record)}")

    def nothing_more(self, name, seconds=3.0):
        """Note it if anything is claimed in the next *seconds*."""
        before = self.slots(name)
        try:
            stays(lambda: self.slots(name) == before, seconds, name)
        except AssertionError as error:
            self.wrong.append(f"{error}: {[str(slot) for slot in self.slots(name)]}")

    def claimed_only(self, name, *texts):
        found, wanted = self.slots(name), [at(text) for text in texts]
        if found != sorted(wanted):
            self.wrong.append(f"{name}: claimed {[str(s) for s in found]}, wanted {texts}")

    def recorded(self, name, count, last, reason):
        found = [(one.count, one.last, one.reason.value) for one in self.workspace.missed(name)]
        if (count, at(last), reason) not in found:
            self.wrong.append(f"{name}: recorded {found}, wanted {(count, last, reason)}")

    def end(self):
        """Stop it; every key ran once, and nothing is left."""
        self.scheduler.terminate()
        if self.scheduler.wait(timeout=60) != 0:
            self.wrong.append(f"the scheduler ended with {self.scheduler.returncode}")
        said = self.workspace.said(self.scheduler)
        self.wrong += [line[:300] for line in said.splitlines() if "Traceback" in line]
        keys = self.workspace.log()
        self.wrong += [f"{key} ran twice" for key in set(keys) if keys.count(key) > 1]
        self.wrong += [f"open/{name} is left" for name in self.workspace.open()]


def a_day_on(folder):
    """One slot is caught up with, the others are one counted record (L3)."""
    scene = Scene(folder, "2026-06-01 10:59:57", seen="2026-06-01 10:30", hourly="0 * * * *")
    scene.fires("hourly", "2026-06-01 11:00")
    scene.set("2026-06-02 11:00:05")
    scene.fires("hourly", "2026-06-02 11:00")
    scene.recorded("hourly", 23, "2026-06-02 10:00", "asleep")
    scene.set("2026-06-02 11:59:57")
    scene.fires("hourly", "2026-06-02 12:00")
    scene.claimed_only("hourly", "2026-06-01 11:00", "2026-06-02 11:00", "2026-06-02 12:00")
    return scene


def an_hour_back(folder):
    """No slot is repeated, and those not yet claimed fire on time (L6)."""
    scene = Scene(folder, "2026-06-01 10:46", seen="2026-06-01 09:50", often="*/15 * * * *")
    scene.fires("often", "2026-06-01 10:45")
    scene.set("2026-06-01 10:59:57")
    scene.fires("often", "2026-06-01 11:00")
    scene.set("2026-06-01 09:59:57")
    scene.fires("often", "2026-06-01 10:00")
    scene.set("2026-06-01 10:59:57")
    scene.nothing_more("often", 6)
    scene.set("2026-06-01 11:14:57")
    scene.fires("often", "2026-06-01 11:15")
    return scene


def an_hour_back_after_it_was_first_seen(folder):
    """What lies in the future does not hold the present up, the cursor included (L1)."""
    scene = Scene(folder, "2026-06-01 10:59:57", seen="2026-06-01 10:59", often="*/15 * * * *")
    scene.fires("often", "2026-06-01 11:00")
    scene.set("2026-06-01 09:59:57")
    scene.fires("often", "2026-06-01 10:00")
    scene.claimed_only("often", "2026-06-01 10:00", "2026-06-01 11:00")
    return scene


def half_a_second_back(folder):
    """A small correction right after a slot repeats nothing (BR-64 d)."""
    scene = Scene(folder, "2026-06-01 10:59:58", seen="2026-06-01 10:30", hourly="0 * * * *")
    eventually(lambda: scene.slots("hourly"), "the slot")
    scene.clock.set(at("2026-06-01 10:59:59.6"))
    scene.fires("hourly", "2026-06-01 11:00")
    scene.nothing_more("hourly")
    scene.claimed_only("hourly", "2026-06-01 11:00")
    return scene


def to_2098_and_back(folder):
    """Claims dated in the future don't block the present, and are reported (L1, BR-64 b)."""
    scene = Scene(folder, "2026-06-01 10:59:57", seen="2026-06-01 10:30", hourly="0 * * * *")
    scene.fires("hourly", "2026-06-01 11:00")
    scene.set("2098-01-01 00:00:05")
    scene.fires("hourly", "2098-01-01 00:00")
    scene.recorded("hourly", 1001, "2097-12-31 23:00", "asleep")
    scene.set("2026-06-01 11:59:57")
    scene.fires("hourly", "2026-06-01 12:00")
    scene.set("2026-06-01 12:59:57")
    scene.fires("hourly", "2026-06-01 13:00")
    scene.claimed_only(
        *("hourly", "2026-06-01 11:00", "2026-06-01 12:00", "2026-06-01 13:00", "2098-01-01 00:00")
    )
    return scene


def first_booted_in_2098(folder):
    """A machine whose clock was wrong when everything began works once it is right (BR-64 b)."""
    scene = Scene(folder, "2098-01-01 00:00:05", hourly="0 * * * *")
    scene.set("2098-01-01 00:59:57")
    scene.fires("hourly", "2098-01-01 01:00")
    scene.set("2026-06-01 11:59:50")
    scene.fires("hourly", "2026-06-01 12:00")
    scene.claimed_only("hourly", "2026-06-01 12:00", "2098-01-01 01:00")
    return scene


def the_hour_that_is_skipped(folder):
    """A fixed time in it fires once, at the first minute after the gap."""
    scene = Scene(
        *(folder, "2026-03-29 00:59:57"),
        seen="2026-03-29 00:45",
        tz="Europe/Berlin",
        fixed="30 2 * * *",
        follows="*/30 * * * *",
    )
    scene.fires("fixed", "2026-03-29 01:00")
    scene.fires("follows", "2026-03-29 01:00")
    scene.set("2026-03-29 01:29:57")
    scene.fires("follows", "2026-03-29 01:30")
    scene.nothing_more("fixed")
    scene.claimed_only("fixed", "2026-03-29 01:00")
    return scene


def the_hour_that_is_repeated(folder):
    """A fixed time in it fires at its first coming; what follows the clock fires in both."""
    scene = Scene(
        *(folder, "2026-10-25 00:29:57"),
        seen="2026-10-25 00:15",
        tz="Europe/Berlin",
        fixed="30 2 * * *",
        follows="*/30 * * * *",
    )
    scene.fires("fixed", "2026-10-25 00:30")
    scene.fires("follows", "2026-10-25 00:30")
    scene.set("2026-10-25 00:59:57")
    scene.fires("follows", "2026-10-25 01:00")
    scene.set("2026-10-25 01:29:57")
    scene.fires("follows", "2026-10-25 01:30")
    scene.nothing_more("fixed")
    scene.claimed_only("fixed", "2026-10-25 00:30")
    return scene


STEPS = {
    one.__name__: one
    for one in (
        a_day_on,
        an_hour_back,
        an_hour_back_after_it_was_first_seen,
        half_a_second_back,
        to_2098_and_back,
        first_booted_in_2098,
        the_hour_that_is_skipped,
        the_hour_that_is_repeated,
    )
}


@dataclass
class Result:
    """What a campaign came to."""

    seconds: float = 0.0
    fine: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def lines(self):
        yield f"{len(self.fine)} steps of the clock as they should be, {self.seconds:.0f} s"
        yield from (f"  {name.replace('_', ' ')}" for name in self.fine)
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong


def _take(name):
    """Take one step in a folder of its own, clean up after it, and return what is wrong."""
    with tempfile.TemporaryDirectory(prefix="clocks-") as folder:
        try:
            scene = STEPS[name](folder)
            scene.end()
        finally:
            end_all(folder)
    return scene.wrong


def campaign(names=tuple(STEPS)):
    """Take all steps at once: each is mostly waiting."""
    result, began = Result(), time.monotonic()
    with ThreadPoolExecutor(len(STEPS)) as pool:
        for name, wrong in zip(names, pool.map(_take, names), strict=True):
            result.wrong += [f"{name}: {one}" for one in wrong]
            result.fine += [] if wrong else [name]
    result.seconds = time.monotonic() - began
    return result


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(STEPS))
    asked = parser.parse_args(argv)
    if LIBRARY is None:
        print("libfaketime is not installed: apt-get install faketime")
        return 1
    result = campaign(asked.names or [*STEPS])
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
