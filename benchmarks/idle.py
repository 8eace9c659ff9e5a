"""A scheduler with nothing to do: processor, memory, boot, and how soon it sees an edit.

`routines start` runs as a process of its own on a workspace of 200, then of 10,000 routines that
are due once a day at an hour that is not now. Its processor time over a window is read from
/proc/PID/stat, its largest memory from /proc/PID/status (without /proc these rows are left out).
An edit is a file moved into place; it is seen when the scheduler's own file names the new digest.

Boot is from the start of the process until its file names all routines as armed, first on an empty
state folder and then with what that wrote, where a flush costs nothing. It is compared with a Python
that loads the same files with PyYAML's C loader and does nothing else. On a disk the first boot also
flushes a new cursor for each routine, sixteen at a time; that is stated beside them.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from statistics import median

from benchmarks.measure import (
    Places,
    Row,
    Size,
    environment,
    python,
    ratio,
    room,
    timed,
)
from benchmarks.measure import (
    run as go,
)
from benchmarks.workspaces import make_workspace, write_routine

# Routines, seconds to watch, edits; then the bounds: % of a core, seconds until an edit is seen.
_Case = tuple[int, float, int, float, float]
CASES: dict[Size, tuple[_Case, ...]] = {
    Size.TINY: ((3, 0.5, 1, 0.5, 2.0),),
    Size.USUAL: ((200, 20, 4, 0.5, 2.0), (2_000, 20, 2, 3.0, 5.0)),
    Size.FULL: ((200, 60, 8, 0.5, 2.0), (10_000, 60, 4, 3.0, 5.0)),
}
_MOST_MB, _BOOT = 150.0, 15.0
_PATIENCE_S = 300.0
_READ = """\
import os, sys, yaml
folder = sys.argv[1]
for name in os.listdir(folder):
    with open(os.path.join(folder, name), "rb") as file:
        yaml.load(file.read(), Loader=yaml.CSafeLoader)
"""


class Scheduler:
    """A `routines start` on a workspace."""

    def __init__(self, root: str) -> None:
        self.live = os.path.join(root, ".routines", "schedulers", "live")
        self.process = subprocess.Popen(
            python("-m", "routines", "start", "--root", root),
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._last: tuple[float, dict[str, str]] = (0.0, {})

    def armed(self) -> dict[str, str]:
        """Return the digests of what it has armed, read again only when the file has changed."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            for name in os.listdir(self.live):
                path = os.path.join(self.live, name)
                if name.endswith(".json") and os.stat(path).st_mtime != self._last[0]:
                    at = os.stat(path).st_mtime
                    with open(path, encoding="utf-8") as file:
                        self._last = (at, json.load(file)["armed"])
        return self._last[1]

    def wait(self, count: int) -> None:
        """Return once *count* routines are armed."""
        until = time.perf_counter() + _PATIENCE_S
        while len(self.armed()) < count:
            if self.process.poll() is not None or time.perf_counter() > until:
                raise RuntimeError(f"the scheduler has not armed {count} routines")
            time.sleep(0.01)

    def cpu(self) -> float:
        """Return its processor seconds until now."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            peak = next(line for line in file if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / 1024

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def _started(root: str, count: int) -> Iterator[Scheduler]:
    scheduler = Scheduler(root)
    try:
        scheduler.wait(count)
        yield scheduler
    finally:
        scheduler.stop()


def _boot(root: str, count: int) -> float:
    def boot() -> None:
        nonlocal scheduler
        scheduler = Scheduler(root)
        scheduler.wait(count)

    scheduler: Scheduler | None = None
    try:
        return timed(boot)
    finally:
        if scheduler is not None:
            scheduler.stop()


def _seen_after(scheduler: Scheduler, root: str, number: int, hour: int) -> float:
    """Edit a routine; return the seconds until the scheduler has armed the edited one."""
    name = f"r{number:05}"
    before = scheduler.armed()[name]
    write_routine(root, number, minute=59 - number % 60, hour=hour)
    start = time.perf_counter()
    while scheduler.armed()[name] == before:
        if time.perf_counter() - start > _PATIENCE_S:
            raise RuntimeError("the edit was not seen")
        time.sleep(0.01)
    return time.perf_counter() - start


def _case(places: Places, case: _Case) -> Iterable[Row]:
    count = case[0]
    hour = (datetime.now(UTC).hour + 6) % 24
    what = f"{count:,} routines"
    with room(places.disk) as root:
        make_workspace(root, count, hour=hour)
        on_disk = _boot(root, count)
        shutil.rmtree(os.path.join(root, ".routines"))
        yield from _idle(root, case, hour)
    with room(places.memory) as root:
        make_workspace(root, count, hour=hour)
        first = _boot(root, count)
        boots = [_boot(root, count) for _ in range(3)]
        reads = [
            timed(lambda: go(python("-c", _READ, os.path.join(root, "routines")))) for _ in range(3)
        ]
        note = "reading the files with the C loader"
        yield Row(f"{what}: boot", ratio(median(boots), median(reads)), _BOOT, note=note)
        yield Row(f"{what}: first boot", ratio(first, median(reads)), _BOOT, note=note)
        yield Row(f"{what}: first boot on the disk", ratio(on_disk, median(reads)), note=note)


def _idle(root: str, case: _Case, hour: int) -> Iterable[Row]:
    count, seconds, edits, most_cpu, most_s = case
    what = f"{count:,} routines"
    with _started(root, count) as scheduler:
        if os.path.exists("/proc/self/stat"):
            time.sleep(min(seconds, 3.0))
            before, start = scheduler.cpu(), time.perf_counter()
            time.sleep(seconds)
            used = (scheduler.cpu() - before) / (time.perf_counter() - start) * 100
            yield Row(f"{what}: idle for {seconds:g} s", used, most_cpu, "%", "of a core")
            yield Row(f"{what}: memory", scheduler.peak_mb(), _MOST_MB, "MB")
        seen = []
        for number in range(edits):
            # At another moment of its second each time.
            time.sleep(2.0 + 0.37 * number if edits > 1 else 0.1)
            seen.append(_seen_after(scheduler, root, number, hour))
        yield Row(f"{what}: slowest of {edits} edits seen", max(seen), most_s, "s")


def run(size: Size, places: Places) -> Iterable[Row]:
    for case in CASES[size]:
        yield from _case(places, case)
