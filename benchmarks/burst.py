"""200 claims at once: how many rounds of flushes, and the time against a bare loop.

`ClaimStore.take_many` claims one slot each of 200 routines, once where the folders of the day are
there already and once as the first of a new day, when each routine needs a new folder. The bare
loop makes the same files and folders with as many threads for its flushes.

A round is what one pool of threads flushes together; a flush in the calling thread is a round of
its own. Where a flush costs nothing the time is stated without a bound: threads that wait for no disk
wait for each other. Rounds are seen by an object in the place of `files.calls` that notes the thread.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.calls import lock, read, same, sync
from benchmarks.measure import Places, Row, Size, filesystem, in_turn, ratio, room
from routines.domain import schedule
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Trigger
from routines.domain.routine import Routine
from routines.engine import host
from routines.engine.claim_lines import claim_line
from routines.engine.work import work_of
from routines.store import files
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing

COUNT = {Size.TINY: 5, Size.USUAL: 200, Size.FULL: 200}
ROUNDS = {Size.TINY: 2, Size.USUAL: 7, Size.FULL: 15}
START = datetime(2026, 6, 1, 0, 0, tzinfo=UTC)
# As many as the product flushes with.
_THREADS = 16
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)


class Product:
    def __init__(self, folder: str, count: int) -> None:
        self.state = open_for_writing(os.path.join(folder, "product"), boot=None)
        self.claims = ClaimStore(self.state)
        self.owner = host.owner()
        cron = schedule.cron("* * * * *", "UTC")
        routines = [
            Routine(name=f"r{i:03}", prompt="Say what changed.", schedule=cron)
            for i in range(count)
        ]
        self.works = [work_of(one, root=folder, agent=None, agent_name="host") for one in routines]
        self.at = START

    def take(self, step: timedelta) -> list[Claim]:
        self.at += step
        taken = self.claims.take_many([self._draft(work) for work in self.works], at=self.at)
        mine = [one for one in taken if isinstance(one, Claim)]
        if len(mine) != len(taken):
            raise RuntimeError("some were not claimed")
        return mine

    def _draft(self, work: Any) -> Draft:
        occurrence = Occurrence(Kind.SLOT, work.routine, self.at)
        line = claim_line(
            work,
            owner=self.owner,
            key=self.state.key(occurrence.ref),
            session=f"routine:{work.routine}",
            trigger=Trigger.SCHEDULE,
            zone="UTC",
            due_at=self.at,
        )
        return Draft(occurrence, line)

    def take_and_let_go(self, step: timedelta) -> None:
        for claim in self.take(step):
            claim.let_go()


class Bare:
    def __init__(self, folder: str, count: int) -> None:
        self.root = os.path.join(folder, "bare")
        self.open = os.path.join(self.root, "open")
        os.makedirs(self.open)
        self.owners = [os.path.join(self.root, "claims", f"r{i:03}") for i in range(count)]
        for owner in self.owners:
            os.makedirs(owner)
        self.at = START

    def take(self, step: timedelta) -> None:
        self.at += step
        name = f"{self.at:%Y-%m-%dT%H-%M-%SZ}"
        folders = [os.path.join(owner, f"{self.at:%Y-%m-%d}") for owner in self.owners]
        new = [folder for folder in folders if not os.path.isdir(folder)]
        for folder in new:
            os.mkdir(folder)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        drafts = []
        for owner in self.owners:
            draft = os.path.join(self.open, f"{os.path.basename(owner)}~{name}")
            fd = os.open(draft, flags, 0o600)
            lock(fd)
            os.write(fd, b"x" * 700 + b"\n")
            drafts.append((draft, fd))
        work = [(os.fsync, fd) for _, fd in drafts]
        _together([*work, *((sync, os.path.dirname(folder)) for folder in new)])
        sync(self.open)
        for (draft, fd), folder in zip(drafts, folders, strict=True):
            path = os.path.join(folder, f"{name}.jsonl")
            os.link(draft, path)
            same(path, fd)
            read(fd)
        _together([(sync, folder) for folder in folders])
        for _, fd in drafts:
            os.close(fd)


def _together(work: list[tuple[Callable[[Any], object], Any]]) -> None:
    with ThreadPoolExecutor(min(_THREADS, len(work))) as pool:
        list(pool.map(lambda one: one[0](one[1]), work))


class _Noting:
    """`files.calls`, with the thread of each flush noted."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.flushes: list[str] = []

    def fsync(self, fd: int) -> None:
        name = threading.current_thread().name
        alone = threading.current_thread() is threading.main_thread()
        pool = f"main-{len(self.flushes)}" if alone else name.rpartition("_")[0]
        self.flushes.append(pool)
        self.inner.fsync(fd)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _rounds(product: Product, step: timedelta) -> tuple[int, int]:
    """Return how many rounds and how many flushes one burst takes."""
    noting = _Noting(files.calls)
    files.calls = noting  # type: ignore[assignment]
    try:
        product.take_and_let_go(step)
    finally:
        files.calls = noting.inner
    return len(set(noting.flushes)), len(noting.flushes)


def run(size: Size, places: Places) -> Iterable[Row]:
    count = COUNT[size]
    with room(places.disk) as folder:
        product = Product(folder, count)
        product.take_and_let_go(_MINUTE)
        for what, step in (("folders there", _MINUTE), ("a new day", _DAY)):
            rounds, flushes = _rounds(product, step)
            note = f"{flushes} flushes"
            yield Row(f"{count} claims, {what}: rounds of flushes", rounds, 3, "", note)
    for place in dict.fromkeys((places.disk, places.memory)):
        for what, step in (("folders there", _MINUTE), ("a new day", _DAY)):
            with room(place) as folder:
                product, bare = Product(folder, count), Bare(folder, count)
                product.take_and_let_go(_MINUTE)
                bare.take(_MINUTE)
                mine, theirs = in_turn(
                    lambda p=product, s=step: p.take_and_let_go(s),
                    lambda b=bare, s=step: b.take(s),
                    rounds=ROUNDS[size],
                )
                name = f"{count} claims, {what}: time on {filesystem(place)}"
                bound = 2.0 if place == places.disk else None
                yield Row(name, ratio(mine, theirs), bound, note="bare loop, 16 threads")
