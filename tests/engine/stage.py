"""One state folder in a real directory, a clock that stands still, and its history in words."""

import asyncio
import contextlib
import os
import time
from datetime import datetime, timedelta

from routines.domain import schedule as schedules
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind
from routines.domain.retry import Retry
from routines.domain.routine import Routine
from routines.domain.zones import zone
from routines.engine import host
from routines.engine.arming import counted
from routines.engine.definitions import FixedDefinitions
from routines.engine.engine import Engine
from routines.engine.off_loop import quiet
from routines.store import locks
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.sessions import SessionStore
from routines.store.state import open_for_writing
from routines.store.wake_firings import FiringStore
from routines.store.wake_managing import ManagedStore
from routines.store.wakeups import WakeupStore
from routines.testing import START, FakeClock, RecordingAgent

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def at(text):
    """`at("08:05")` on the day of START, `at("2026-07-02 09:00")` on another."""
    day, _, clock = text.rpartition(" ")
    return datetime.fromisoformat(f"{day or START.date()}T{clock}+00:00")


def every(minutes):
    return schedules.every(timedelta(minutes=minutes), tz="UTC")


def cron(text, tz="UTC"):
    return schedules.cron(text, tz)


def once(text):
    return schedules.at(format_instant(at(text)), "UTC")


def routine(name="digest", schedule=None, **changes):
    # One attempt: what is tried again is for the tests that are about it.
    known = {
        "prompt": f"write the {name}",
        "schedule": schedule or every(5),
        "retry": Retry(attempts=1),
    }
    return Routine(name=name, **known | changes)


class Refusing(FixedDefinitions):
    """A host whose own code fails for what is due, until it is mended."""

    mended = False

    def work(self, routine, *, agent=None):
        if not self.mended:
            raise LookupError("no such tenant")
        return super().work(routine, agent=agent)


class Counting:
    """A schedule that counts how often it is asked."""

    def __init__(self, inner):
        self.inner = inner
        self.asked = 0
        self.zone_key = inner.zone_key

    def next_after(self, instant):
        self.asked += 1
        return self.inner.next_after(instant)

    def newest_at_or_before(self, instant):
        self.asked += 1
        return self.inner.newest_at_or_before(instant)

    def names(self, instant):
        self.asked += 1
        return self.inner.names(instant)

    def spec(self):
        return self.inner.spec()

    def text(self):
        return self.inner.text()


class Mortal:
    """An agent whose turns can be made to die with their engine."""

    def __init__(self, agent):
        self.agent = agent
        self.turns = set()

    async def run(self, turn):
        self.turns.add(asyncio.current_task())
        return await self.agent.run(turn)


class Stage:
    """What a test plays on."""

    def __init__(self, path):
        self.root = str(path)
        self.path = os.path.join(self.root, ".routines")
        self.clock = FakeClock()
        self.agent = RecordingAgent()
        self.events = []

    # Acting -----------------------------------------------------------------------------------

    def engine(self, *routines, **options):
        known = {
            "agent": Mortal(self.agent),
            "clock": self.clock,
            "on_event": self.events.append,
        }
        if "routines" not in options:
            known["routines"] = routines
        return Engine(self.path, **known | options)

    @contextlib.asynccontextmanager
    async def running(self, *routines, **options):
        """An engine for the block; what its agent still holds when the block ends is let go."""
        engine = self.engine(*routines, **options)
        await engine.start()
        await quiet()
        try:
            yield engine
        finally:
            self.agent.release()
            await engine.stop(grace=timedelta(0))

    async def crash(self, engine):
        """End the engine as a kill does: nothing is written, and its locks are gone."""
        engine._stopping = True
        for task in [engine._loop_task, *engine._tasks]:
            task.cancel()
        await asyncio.gather(engine._loop_task, *engine._tasks, return_exceptions=True)
        for turn in engine._agent.turns:
            turn.cancel()
        await asyncio.gather(*engine._agent.turns, return_exceptions=True)
        await quiet()
        engine._pool.shutdown(wait=True)
        if engine._presence.fd is not None:
            locks.let_go(engine._presence.fd)

    def cancel(self, ref, *, by="ana@studio", person=True, reason=""):
        store = CancelStore(self.state)
        return store.ask(ref, by=by, person=person, at=self.clock.now(), reason=reason)

    # Looking ----------------------------------------------------------------------------------

    @property
    def state(self):
        return open_for_writing(self.path, boot=host.here().boot)

    @property
    def claims(self):
        return ClaimStore(self.state)

    @property
    def cursors(self):
        return CursorStore(self.state)

    @property
    def sessions(self):
        return SessionStore(self.state)

    @property
    def firings(self):
        return FiringStore(self.state)

    @property
    def managed(self):
        return ManagedStore(self.state)

    @property
    def zone(self):
        return zone("UTC")

    @property
    def wakeups(self):
        return WakeupStore(self.state)

    def records(self, name=None):
        """The records of all occurrences, or of one routine, oldest instant first."""
        claims = self.claims
        folders = claims.owners() if name is None else [name]
        return [claims.read_path(path) for path in claims.walk(folders)][::-1]

    def record(self, ref):
        return next(record for record in self.records() if record.ref == ref)

    def missed(self, name="digest"):
        return [counted(one) for one in self.cursors.missed(name)][::-1]

    def history(self, name="digest"):
        """`08:05 completed`, `08:10-08:20 missed no-scheduler x3`, `wake 08:12 skipped busy`."""
        lines = []
        for record in self.records(name):
            end = record.end
            word = record.written_state.value if end is None else end["outcome"]
            why = "" if end is None or not end["reason"] else f" {end['reason']}"
            kind = "" if record.occurrence.kind is Kind.SLOT else f"{record.occurrence.kind} "
            instant = record.occurrence.instant
            lines.append((instant, f"{kind}{instant:%H:%M} {word}{why}"))
        for one in self.missed(name):
            lines.append(
                (one.last, f"{one.first:%H:%M}-{one.last:%H:%M} missed {one.reason} x{one.count}")
            )
        return [line for _, line in sorted(lines)]

    @property
    def told(self):
        """The prompts that the agent was given."""
        return [turn.prompt for turn in self.agent.turns]

    @property
    def slots(self):
        """The slots that the agent was given, as `08:05`."""
        return [f"{turn.slot:%H:%M}" for turn in self.agent.turns if turn.slot is not None]


def content(path):
    """The bytes of a file, None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def put(path, data=b""):
    """Write a file, and what is missing above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


async def eventually(condition, seconds=30.0):
    """Wait until *condition* is true and return its value: for real processes alone."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "it never came to be"
        await asyncio.sleep(0.01)
    return value
