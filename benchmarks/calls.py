"""What a claim, `started` and an outcome cost: flushes, file calls, and time against a bare loop.

Counted by strace in a process of its own: between marks (stat of names that no one has) each line
of the trace is one call. The bare loop makes the same calls with nothing around them, and is traced
too, so that the table shows whether they are the same. Without strace only what goes through
`files.calls` is counted, and the note says so.

Timed without strace, product and bare loop by turns; the ratio is that of the medians. Where a
flush costs 1 ms or more the bound is 1.5, else 3. A whole turn of an agent object through an
engine (claim, gate, ledger, `started`, agent, outcome, ledger) is counted as well.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.measure import (
    Places,
    Row,
    Size,
    environment,
    filesystem,
    flush_cost,
    python,
    ratio,
    room,
)
from routines.domain import schedule
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Trigger
from routines.domain.record import Event
from routines.domain.routine import Routine
from routines.engine import host
from routines.engine.claim_lines import claim_line
from routines.engine.engine import Engine
from routines.engine.work import work_of
from routines.store import files
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing

ROUNDS = {Size.TINY: 3, Size.USUAL: 60, Size.FULL: 200}
STEPS = ("claim", "started", "outcome")
START = datetime(2026, 6, 1, 0, 0, tzinfo=UTC)
# Left out: a name that no one has, read by strace alone.
_MARK = "/benchmark-mark/"
_FLUSHES = ("fsync", "fdatasync")
_CALL = re.compile(r"^(?:\d+\s+)?(\w+)\(")
_TRACED = (
    "fsync,fdatasync,openat,open,close,read,pread64,write,pwrite64,link,linkat,unlink,unlinkat,"
    "rename,renameat,renameat2,mkdir,mkdirat,rmdir,stat,lstat,fstat,newfstatat,statx,fcntl,flock,"
    "utimensat,getdents64,ftruncate,readlink,access,faccessat2"
)
_ROUTINE = Routine(
    name="daily",
    prompt="Summarise what was merged since yesterday, and say what needs a person.",
    schedule=schedule.cron("* * * * *", "UTC"),
)

Mark = Callable[[str], None]


def _stat_mark(word: str) -> None:
    with contextlib.suppress(OSError):
        os.stat(_MARK + word)


# The product -----------------------------------------------------------------------------------


class Product:
    """One slot after the other: claimed, started, settled."""

    def __init__(self, folder: str) -> None:
        self.state = open_for_writing(os.path.join(folder, "product"), boot=None)
        self.claims = ClaimStore(self.state)
        self.owner = host.owner()
        self.work = work_of(_ROUTINE, root=folder, agent=None, agent_name="host")
        self.at = START

    def slot(self) -> Iterator[str]:
        """Do the next step of one slot each time it is asked."""
        self.at += timedelta(minutes=1)
        occurrence = Occurrence(Kind.SLOT, _ROUTINE.name, self.at)
        line = claim_line(
            self.work,
            owner=self.owner,
            key=self.state.key(occurrence.ref),
            session="routine:daily",
            trigger=Trigger.SCHEDULE,
            zone="UTC",
            due_at=self.at,
        )
        yield "claim"
        claim = self.claims.take(Draft(occurrence, line), at=self.at)
        if not isinstance(claim, Claim):
            raise TypeError(f"{occurrence.ref} was not claimed")
        yield "started"
        claim.append(Event.STARTED, at=self.at, owner=self.owner.to_json(), **_started(self.work))
        yield "outcome"
        claim.settle(Outcome.COMPLETED, at=self.at, **_ended())
        yield "end"
        claim.let_go()


def _started(work: Any) -> dict[str, Any]:
    return {
        "definition": work.digest,
        "session": "routine:daily",
        "epoch": 1,
        "turn": 7,
        "native_session": None,
        "agent": "host",
        "model": None,
        "cwd": work.cwd,
        "late_s": 0.012,
        "prompt": work.prompt,
    }


def _ended() -> dict[str, Any]:
    return {
        "settled_by": "ana@studio",
        "duration_s": 71.2,
        "usage": {"usd": 0.031},
        "totals": {},
        "reply": "Three changes were merged; one of them needs a person.",
        "native_session": None,
    }


# The same calls with nothing around them ----------------------------------------------------------


class Bare:
    """What `Product` asks of the system, written down once as a list of calls."""

    def __init__(self, folder: str) -> None:
        self.open = os.path.join(folder, "bare", "open")
        self.day = os.path.join(folder, "bare", "claims", "daily", "2026-06-01")
        os.makedirs(self.open)
        os.makedirs(self.day)
        self.number = 0

    def slot(self) -> Iterator[str]:
        self.number += 1
        draft = os.path.join(self.open, f"daily~{self.number:08}")
        path = os.path.join(self.day, f"{self.number:08}.jsonl")
        line = b"x" * 700 + b"\n"
        yield "claim"
        os.stat(self.open)
        os.stat(self.day)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(draft, flags, 0o600)
        lock(fd)
        os.write(fd, line)
        os.fsync(fd)
        sync(self.open)
        os.link(draft, path)
        same(path, fd)
        read(fd)
        sync(self.day)
        yield "started"
        _append(path, fd, line)
        yield "outcome"
        read(fd)
        _append(path, fd, line)
        os.unlink(draft)
        yield "end"
        os.close(fd)


def lock(fd: int) -> None:
    ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, ask)
    else:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def same(path: str, fd: int) -> None:
    os.stat(path)
    os.fstat(fd)


def read(fd: int) -> None:
    at = 0
    while part := os.pread(fd, 1 << 20, at):
        at += len(part)


def _append(path: str, fd: int, line: bytes) -> None:
    same(path, fd)
    size = os.fstat(fd).st_size
    os.pread(fd, 1, size - 1)
    os.write(fd, line)
    os.fsync(fd)
    read(fd)


def _go(slot: Iterator[str], mark: Mark) -> None:
    for step in slot:
        mark(step)


# Counting ---------------------------------------------------------------------------------------


def _trace(folder: str, which: str) -> dict[str, Counter[str]]:
    """Return the calls between marks of one slot, once all folders are there."""
    out = os.path.join(folder, f"trace-{which}")
    subprocess.run(
        ["strace", "-f", "-qq", "-o", out, "-e", f"trace=?{_TRACED.replace(',', ',?')}",
         *python("-m", "benchmarks.calls", which, folder)],
        env=environment(), check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    found: dict[str, Counter[str]] = {}
    at: Counter[str] | None = None
    with open(out, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if _MARK in line:
                word = line.split(_MARK)[1].split('"')[0]
                at = None if word == "end" else found.setdefault(word, Counter())
            elif at is not None and (call := _CALL.match(line)):
                at[call[1]] += 1
    return found


class _Counting:
    """`files.calls` with a count: all that can be known without strace."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.step: Counter[str] | None = None
        self.steps: dict[str, Counter[str]] = {}

    def mark(self, word: str) -> None:
        self.step = None if word == "end" else self.steps.setdefault(word, Counter())

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        def counted(*args: Any, **more: Any) -> Any:
            if self.step is not None:
                self.step[name] += 1
            return call(*args, **more)

        return counted


def _count_in_process(folder: str) -> dict[str, Counter[str]]:
    product = Product(folder)
    _go(product.slot(), lambda _: None)
    counting = _Counting(files.calls)
    files.calls = counting  # type: ignore[assignment]
    try:
        _go(product.slot(), counting.mark)
        asyncio.run(_turns(folder, counting.mark))
    finally:
        files.calls = counting.inner
    return counting.steps


async def _turns(folder: str, mark: Mark) -> None:
    """Run two whole turns of an agent object, the second between marks."""

    async def agent(_turn: object) -> str:
        return "done"

    engine = Engine(
        os.path.join(folder, "engine"), agent=agent, routines=[_ROUTINE], is_scheduler=False
    )
    async with engine.opened():
        await engine.tick()
        await engine.run(_ROUTINE.name)
        mark("turn")
        await engine.run(_ROUTINE.name)
        mark("end")


def _child(which: str, folder: str) -> None:
    """Be the traced process."""
    if which == "engine":
        asyncio.run(_turns(folder, _stat_mark))
        return
    one = Product(folder) if which == "product" else Bare(folder)
    _go(one.slot(), lambda _: None)
    _go(one.slot(), _stat_mark)


def _counts(places: Places) -> Iterable[Row]:
    with room(places.disk) as folder:
        traced = shutil.which("strace") is not None
        if traced:
            product = _trace(folder, "product") | _trace(folder, "engine")
            bare = _trace(folder, "bare")
        else:
            product, bare = _count_in_process(folder), {}
    bounds = {"claim": 3, "started": 1, "outcome": 1, "turn": 9}
    how = "strace" if traced else "files.calls alone: strace is not here"
    for step in (*STEPS, "turn"):
        calls = product[step]
        flushes = sum(calls[name] for name in _FLUSHES)
        name = "a whole turn" if step == "turn" else step
        yield Row(f"{name}, flushes", flushes, bounds[step], "", how)
        same = sum(bare[step].values()) if step in bare else None
        note = "" if same is None else f"the bare loop makes {same}"
        yield Row(f"{name}, file calls", sum(calls.values()), None, "", note)


# Timing -----------------------------------------------------------------------------------------


def _time(folder: str, rounds: int) -> dict[str, float]:
    times: dict[tuple[int, str], list[float]] = {}
    both = (Product(folder), Bare(folder))
    for one in both:
        _go(one.slot(), lambda _: None)
    for number in range(rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            step, start = "", 0.0
            for word in both[index].slot():
                now = time.perf_counter()
                if step:
                    times.setdefault((index, step), []).append(now - start)
                step, start = word, time.perf_counter()
    return {
        step: ratio(statistics.median(times[0, step]), statistics.median(times[1, step]))
        for step in STEPS
    }


def run(size: Size, places: Places) -> Iterable[Row]:
    yield from _counts(places)
    for place in dict.fromkeys((places.disk, places.memory)):
        with room(place) as folder:
            bound = 1.5 if flush_cost(folder) >= 1e-3 else 3.0
            for step, found in _time(folder, ROUNDS[size]).items():
                yield Row(f"{step}, time on {filesystem(place)}", found, bound, note="bare loop")


if __name__ == "__main__":
    _child(*sys.argv[1:])
