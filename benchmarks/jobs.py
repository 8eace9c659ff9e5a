"""The queue: what a job costs with 100,000 queued against 100, and beside other durable queues.

Scaling, where a flush costs nothing: add, claim and settle are done by turns on a large and on a
small queue, made by `add_many`; the names that a claim, `head` and a page of the settled feed list
are counted too.

Rates, on the disk, all in one run and by turns: the whole life of a job (added, claimed, settled,
each on the disk before the next) in one process, against

- a bare loop of the same durable file operations with nothing around them;
- huey with SQLite: enqueue, dequeue, put a result; with `fsync=True`, which is what makes it last,
  and as it is by default, which does not;
- persist-queue's SQLiteAckQueue: put, get, ack (SQLite's own default, which lasts).

What is not installed is left out.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from types import ModuleType
from typing import Any

from benchmarks.measure import Places, Row, Size, in_turn, ratio, room, timed
from routines.operations.jobs import Jobs

COUNTS = {Size.TINY: (5, 20), Size.USUAL: (100, 20_000), Size.FULL: (100, 100_000)}
ROUNDS = {Size.TINY: 2, Size.USUAL: 60, Size.FULL: 200}
LIVES = {Size.TINY: 2, Size.USUAL: 40, Size.FULL: 100}
_AT_ONCE = 10_000
_PROMPT = "See whether the deployment has gone through, and say so."


class One:
    """One queue with so many jobs in it, and the operations on it."""

    def __init__(self, folder: str, count: int) -> None:
        self.jobs = Jobs(os.path.join(folder, f"state-{count}"))
        for start in range(0, count, _AT_ONCE):
            many = range(start, min(start + _AT_ONCE, count))
            self.jobs.add_many({"prompt": _PROMPT, "id": f"queued-{one}"} for one in many)

    def round(self) -> Iterator[tuple[str, float]]:
        yield "add", timed(lambda: self.jobs.add(_PROMPT))
        claimed: list[Any] = []
        yield "claim", timed(lambda: claimed.append(self.jobs.claim()))
        job, token = claimed[0].job.id, claimed[0].token
        yield "settle", timed(lambda: self.jobs.settle(job, token, "completed", reply="done"))


def names_listed(work: Callable[[], object]) -> int:
    """Return how many names *work* reads."""
    seen, listdir = 0, os.listdir

    def counted(path: Any) -> list[str]:
        nonlocal seen
        found = listdir(path)
        seen += len(found)
        return found

    os.listdir = counted
    try:
        work()
    finally:
        os.listdir = listdir
    return seen


def run(size: Size, places: Places) -> Iterable[Row]:
    yield from _scaling(size, places)
    yield from _rates(size, places)


def _scaling(size: Size, places: Places) -> Iterable[Row]:
    few, many = COUNTS[size]
    with room(places.memory) as folder:
        ones = One(folder, few), One(folder, many)
        times: dict[str, tuple[list[float], list[float]]] = {}
        for number in range(ROUNDS[size]):
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                for what, seconds in ones[index].round():
                    times.setdefault(what, ([], []))[index].append(seconds)
        note = f"{many:,} queued against {few}"
        for what, (small, large) in times.items():
            yield Row(what, ratio(median(large), median(small)), 3.0, note=note)
        for what, bound, look in [
            ("claim", 2000, lambda one: one.jobs.claim()),
            ("head of 20", 2000, lambda one: one.jobs.head(None, limit=20)),
            ("a page of 20 of the feed", 600, lambda one: one.jobs.settled(0, 20)),
        ]:
            names = [names_listed(lambda one=one, look=look: look(one)) for one in ones]  # type: ignore[misc]
            yield Row(f"names listed by {what}", names[1], bound, "", f"{names[0]} with {few}")


# Rates ------------------------------------------------------------------------------------------


class Bare:
    """The durable file operations of one job's life, with nothing around them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        for name in ("ids", "queued", "queues", "open", "claims", "settled"):
            os.mkdir(os.path.join(folder, name))
        self.number = 0
        self.content = b"x" * 400

    def _at(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def _sync(self, name: str) -> None:
        fd = os.open(self._at(name), os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)

    def _write(self, path: str) -> int:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, self.content)
        os.fsync(fd)
        return fd

    def life(self) -> None:
        self.number += 1
        name = f"{self.number:012d}"
        # Added: named in two orders, then accepted.
        for order in ("queued", "queues"):
            os.close(os.open(self._at(order, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._sync(order)
        os.close(self._write(self._at("ids", f".{name}")))
        os.link(self._at("ids", f".{name}"), self._at("ids", name))
        os.unlink(self._at("ids", f".{name}"))
        self._sync("ids")
        # Claimed.
        fd = self._write(self._at("open", name))
        self._sync("open")
        os.link(self._at("open", name), self._at("claims", name))
        self._sync("claims")
        for order in ("queued", "queues"):
            os.unlink(self._at(order, name))
        # Settled, and shown in the feed.
        os.write(fd, self.content)
        os.fsync(fd)
        os.link(self._at("open", name), self._at("settled", name))
        self._sync("settled")
        os.unlink(self._at("open", name))
        os.close(fd)


def _module(name: str) -> ModuleType | None:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None


def _huey(folder: str, *, fsync: bool) -> Callable[[], None] | None:
    found = _module("huey.storage")
    if found is None:
        return None
    storage = found.SqliteStorage(
        "bench", filename=os.path.join(folder, f"huey-{fsync}.db"), fsync=fsync
    )

    def life() -> None:
        storage.enqueue(_PROMPT.encode())
        storage.dequeue()
        storage.put_data("result", b"done")

    return life


def _persist(folder: str) -> Callable[[], None] | None:
    found = _module("persistqueue")
    if found is None:
        return None
    queue = found.SQLiteAckQueue(os.path.join(folder, "persist"), auto_commit=True)

    def life() -> None:
        queue.put(_PROMPT)
        queue.ack(queue.get())

    return life


def _rates(size: Size, places: Places) -> Iterable[Row]:
    with room(places.disk) as folder:
        jobs = Jobs(os.path.join(folder, "state"))

        def ours() -> None:
            jobs.add(_PROMPT)
            claimed = jobs.claim()
            if claimed is None:
                raise RuntimeError("nothing was queued")
            jobs.settle(claimed.job.id, claimed.token, "completed", reply="done")

        bare = os.path.join(folder, "bare")
        os.mkdir(bare)
        others: dict[str, Callable[[], None] | None] = {
            "a bare loop of the same file operations": Bare(bare).life,
            "huey with SQLite, fsync=True": _huey(folder, fsync=True),
            "huey with SQLite as it is by default": _huey(folder, fsync=False),
            "persist-queue with SQLite": _persist(folder),
        }
        works = {name: life for name, life in others.items() if life is not None}
        mine, *theirs = in_turn(ours, *works.values(), rounds=LIVES[size])
        yield Row("whole lives of jobs a second", 1 / mine, None, "/s", "one process, on the disk")
        for name, seconds in zip(works, theirs, strict=True):
            note = f"against {name}: {1 / seconds:.0f}/s"
            yield Row("a whole life", ratio(mine, seconds), note=note)
