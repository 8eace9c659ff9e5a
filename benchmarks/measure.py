"""What all benchmarks share: sizes, places, rows, and how two things are compared."""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Size(StrEnum):
    """How much is measured: tiny only shows that a benchmark runs."""

    TINY = "tiny"
    USUAL = "usual"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: What was measured.
        measured: The figure.
        bound: What it must not exceed; None where it is only stated.
        unit: What stands behind the figure: `x` for a ratio.
        note: What it was compared with.
    """

    what: str
    measured: float
    bound: float | None = None
    unit: str = "x"
    note: str = ""

    @property
    def is_over(self) -> bool:
        return self.bound is not None and self.measured > self.bound

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return "-"
        return "OVER" if self.is_over else "ok"


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are made.

    Attributes:
        disk: On a disk, whose flushes cost what they cost.
        memory: Where a flush costs nothing (tmpfs), if the machine has such a place.
    """

    disk: str
    memory: str

    @classmethod
    def usual(cls, disk: str | None = None, memory: str | None = None) -> "Places":
        disk = disk or tempfile.gettempdir()
        shm = "/dev/shm"
        return cls(disk, memory or (shm if os.access(shm, os.W_OK) else disk))


@contextlib.contextmanager
def room(parent: str) -> Iterator[str]:
    """A folder for the block, removed after it."""
    path = tempfile.mkdtemp(prefix="routines-benchmark-", dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that *work* takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(*works: Callable[[], object], rounds: int) -> list[float]:
    """Return the median time of each, measured by turns so that a busy machine is busy for all."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds):
        order = range(len(works)) if number % 2 == 0 else reversed(range(len(works)))
        for index in order:
            times[index].append(timed(works[index]))
    return [statistics.median(one) for one in times]


def ratio(one: float, other: float) -> float:
    return one / other if other > 0 else float("inf")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that *share* of *values* do not exceed."""
    ordered = sorted(values)
    return ordered[max(min(round(share * len(ordered)) - 1, len(ordered) - 1), 0)]


def flush_cost(folder: str, times: int = 15) -> float:
    """Return the median seconds of one flush of a file that has been appended to."""
    with room(folder) as place:
        fd = os.open(os.path.join(place, "flush"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        costs = []
        try:
            for _ in range(times):
                os.write(fd, b"x" * 200)
                costs.append(timed(lambda: os.fsync(fd)))
        finally:
            os.close(fd)
    return statistics.median(costs)


def filesystem(path: str) -> str:
    """Return the type of the file system that *path* is on, where the system tells."""
    best, kind = "", "unknown"
    path = os.path.realpath(path)
    with contextlib.suppress(OSError), open("/proc/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, point, found, *_ = line.split(" ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, found
    return kind


def python(*words: str) -> list[str]:
    """Return the command that runs this Python with *words*."""
    return [sys.executable, *words]


def environment() -> dict[str, str]:
    """Return an environment in which a new process finds this checkout, and may keep byte code.

    Where a shell forbids that, each process would compile this checkout anew, and compare that
    with libraries that pip has compiled: nobody who installed this waits for it.
    """
    mine = {key: value for key, value in os.environ.items() if not key.startswith("ROUTINES_")}
    mine.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = [HERE, *filter(None, [mine.get("PYTHONPATH")])]
    return {**mine, "PYTHONPATH": os.pathsep.join(paths)}


def run(words: Sequence[str], *, cwd: str | None = None) -> str:
    """Run a program that must succeed; return what it said on stderr."""
    ended = subprocess.run(
        words, cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise RuntimeError(
            f"{' '.join(words)} ended with {ended.returncode}: {ended.stderr[-2000:]}"
        )
    return ended.stderr


COMMAND = """\
import sys
from routines.cli.main import main
code = main(sys.argv[1:])
"""
_PEAK = """
with open("/proc/self/status") as status:
    peak = [line.split()[1] for line in status if line.startswith("VmHWM:")]
print("peak", *peak, file=sys.stderr)
sys.exit(code)
"""


def peak_mb(code: str, *words: str, cwd: str) -> tuple[float, float]:
    """Return the seconds and the largest memory in MB of a Python that does *code*.

    The kernel's figure of the process itself: what `wait4` says counts the one it was forked from.
    """
    start = time.perf_counter()
    said = run(python("-c", code + _PEAK, *words), cwd=cwd)
    seconds = time.perf_counter() - start
    kilobytes = next(line for line in said.splitlines() if line.startswith("peak ")).split()
    return seconds, int(kilobytes[1]) / 1024


def routines(*words: str) -> list[str]:
    """Return the installed command, or the module where it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "routines")
    return [beside, *words] if os.access(beside, os.X_OK) else python("-m", "routines", *words)
