"""What an engine does by itself: it starts, looks at what is due, sees turns through, and stops."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from routines.agents.base import Agent, DurableAgent, Turn
from routines.agents.durable import is_durable
from routines.domain.agent import AgentSpec
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.domain.wakeup import DEFAULT_BOUNDS, Bounds
from routines.engine import host
from routines.engine.alerting import Alerter, Telling
from routines.engine.authorizing import Authorize, Authorizer
from routines.engine.by_hand import ByHand
from routines.engine.clock import EngineClock, SystemClock
from routines.engine.definitions import Definitions, FixedDefinitions, edited
from routines.engine.events import EngineEvent, Events
from routines.engine.looking import LOOK_EVERY, Looker
from routines.engine.measuring import PassFacts
from routines.engine.needs import Ready
from routines.engine.off_loop import in_pool, in_thread
from routines.engine.passes import Pass
from routines.engine.presence import Presence
from routines.engine.recovering import Recoverer
from routines.engine.running import Runner, Running, turn_of_caller, wait_for
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.errors import EngineMisuse
from routines.store.claims import ClaimStore
from routines.store.retention import Keep
from routines.store.sessions import SessionStore
from routines.store.state import State, open_for_writing, place_of

log = logging.getLogger("routines")

DEFAULT_GRACE = timedelta(seconds=30)
DEFAULT_CONCURRENCY = 4
# `stop` waits so long for turns that were ended: their programs get their own signals first.
_ENDING = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Limits:
    """The workspace's limits, and the bounds of wake-ups.

    Attributes:
        concurrency: How many turns run at once.
        wakeups: The guardrails of PROMISES W1.
    """

    concurrency: int = DEFAULT_CONCURRENCY
    wakeups: Bounds = DEFAULT_BOUNDS


class Lifecycle:
    """An engine without its verbs; its arguments are those of `Engine`."""

    def __init__(
        self,
        state: str | os.PathLike[str],
        *,
        agent: Agent | DurableAgent | Callable[[Turn], Any] | None = None,
        routines: Iterable[Routine] | Definitions = (),
        clock: EngineClock | None = None,
        limits: Limits | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
        on_pass: Callable[[PassFacts], None] | None = None,
        agents: Mapping[str, AgentSpec] | None = None,
        root: str | None = None,
        keep: Keep | None = None,
        is_scheduler: bool = True,
        external_clock: bool = False,
        authorize: Authorize | None = None,
    ) -> None:
        self._path = place_of(state)
        self._agent = agent
        self._limits = limits or Limits()
        self._clock: EngineClock = clock or SystemClock()
        self._on_event = on_event
        self._on_pass = on_pass
        self._definitions: Definitions
        if isinstance(routines, Iterable):
            self._definitions = FixedDefinitions(
                routines,
                root=root or os.path.dirname(self._path),
                concurrency=self._limits.concurrency,
                agents=agents,
                has_host_agent=agent is not None,
            )
        else:
            self._definitions = routines
        self._is_scheduler = is_scheduler
        self._external_clock = external_clock
        self._keep = keep
        self._authorizer = Authorizer(authorize, clock=self._clock, on_answer=self._hurried)
        self._pid = os.getpid()
        self._in_flight: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._started = False
        self._loop_task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._starting: asyncio.Lock = asyncio.Lock()

    # Life ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Recover what a crash left, then fire what is due, until `stop`."""
        async with self._starting:
            self._check_usable()
            if self._started:
                return
            self._stopping = False
            await self._open()
            if self._stopping:
                # `stop` was called while we were opening.
                await self._close("stopped")
                return
            self._started = True
            self._loop_task = asyncio.ensure_future(self._loop())

    async def stop(self, *, grace: timedelta = DEFAULT_GRACE, leave_turns: bool = False) -> None:
        """Claim nothing more, give turns *grace* to end, end them, and stop.

        May be called at any moment, also before `start` has finished and from inside a turn. A
        stopped engine can be started again.

        Args:
            grace: How long turns may take to end by themselves.
            leave_turns: Whether turns with a process of their own are left to it.
        """
        self._stopping = True
        self._wake.set()
        async with self._starting:
            if not self._started:
                return
            self._started = False
            loop_task, self._loop_task = self._loop_task, None
            if loop_task is not None:
                await asyncio.wait([loop_task])
            await self._end_turns(grace, leave_turns=leave_turns)
            await self._close("stopped")

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Use the engine for `tick`, `fire` and `run` without its loop.

        The block ends when the turns that it started have.
        """
        self._check_usable()
        self._stopping = False
        await self._open()
        try:
            yield self
            if self._in_flight:
                await asyncio.wait([running.ended for running in self._in_flight.values()])
        finally:
            await self._close("done")

    def hurry(self) -> None:
        """End the grace of a `stop` under way: the turns end at once."""
        for running in list(self._in_flight.values()):
            running.stop()

    async def _end_turns(self, grace: timedelta, *, leave_turns: bool) -> None:
        turns = [
            running
            for running in self._in_flight.values()
            if not (leave_turns and running.is_process)
        ]
        for running in turns:
            # What outlives us is not waited for: it goes on, and the next start takes it up.
            if not running.is_process or await in_thread(self._is_durable, running):
                running.detach()
        mine = turn_of_caller.get()
        if mine in turns:
            # Called from inside a turn: to wait for it would be to wait for ourselves.
            turns.remove(mine)
            self._in_background(self._end([mine], grace))
        await self._end(turns, grace)

    def _is_durable(self, running: Running) -> bool:
        record = self._claims.read_path(running.path)
        return record is not None and record.is_durable

    async def _end(self, turns: Collection[Running], grace: timedelta) -> None:
        """Wait until *turns* have ended; after *grace*, end them."""
        left = await wait_for([running.ended for running in turns], grace, self._clock)
        for running in turns:
            if running.ended in left:
                running.stop()
        await wait_for(left, _ENDING, self._clock)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """See *work* through, also after whoever asked for it has gone on."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self) -> None:
        # Of the loop that runs us now: it may be another than last time.
        self._running_loop = asyncio.get_running_loop()
        self._authorizer.attach(self._running_loop)
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="routines-store")
        try:
            await self._off(self._open_store)
        except BaseException:
            self._pool.shutdown(wait=False)
            raise

    def _open_store(self) -> None:
        here = host.here()
        self._state: State = open_for_writing(self._path, boot=here.boot)
        self._owner = host.owner()
        self._events = Events(on_event=self._on_event, on_pass=self._on_pass)
        self._claims = ClaimStore(self._state)
        self._sessions = SessionStore(self._state)
        self._recoverer = Recoverer(
            self._state, clock=self._clock, owner=self._owner, on_settled=self._settled_aside
        )
        self._alerter = Alerter(
            self._state,
            definitions=self._definitions,
            clock=self._clock,
            is_resident=self._is_scheduler,
        )
        self._presence = (
            Presence(
                self._state,
                clock=self._clock,
                owner=self._owner,
                external_clock=self._external_clock,
            )
            if self._is_scheduler
            else None
        )
        self._looker = Looker(
            self._state,
            definitions=self._definitions,
            recoverer=self._recoverer,
            alerter=self._alerter,
            clock=self._clock,
            owner=self._owner,
            bounds=self._limits.wakeups,
            keep=self._keep,
            presence=self._presence,
            external_clock=self._external_clock,
            authorizer=self._authorizer,
            follows_host=is_durable(self._agent),
            is_stopping=lambda: self._stopping,
        )
        self._agenda = self._looker.agenda
        self._by_hand = ByHand(
            self._state,
            definitions=self._definitions,
            needs=self._looker.needs,
            clock=self._clock,
            owner=self._owner,
        )
        self._runner = Runner(
            self._state,
            clock=self._clock,
            owner=self._owner,
            recoverer=self._recoverer,
            agent=self._agent,
            reread=self._reread,
        )
        self._sending: set[asyncio.Task[None]] = set()

    async def _close(self, why: str) -> None:
        await self._authorizer.detach()
        await self._end_alerts(done=why == "done")
        if self._presence is not None:
            presence, self._presence = self._presence, None
            await self._off(presence.leave, why)
        # What is being ended has no owner but us.
        await in_thread(self._recoverer.wait)
        self._pool.shutdown(wait=True)

    async def _end_alerts(self, *, done: bool) -> None:
        """Tell what was just settled, if that is the last chance; else end what is being sent."""
        if done and self._alerter.is_asked:
            self._looker.tellings += await self._off(
                lambda: self._alerter.look(self._clock.now(), only_asked=True)
            )
            self._tell_alerts()
        if not done:
            self._alerter.stop()
        if self._sending:
            await asyncio.wait(self._sending)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise EngineMisuse(
                "this engine was made before a fork, in another process",
                hint="make an engine of its own in each process",
            )

    async def _off(
        self,
        function: Callable[..., Any],
        *args: Any,
        abandoned: Callable[[Any], None] | None = None,
    ) -> Any:
        """Do store work off the loop; one at a time, so that passes never overlap.

        Args:
            function: What to call.
            args: Its arguments.
            abandoned: What is done with its result if whoever awaits it is cancelled meanwhile:
                to be given wherever the result owns something.
        """
        return await in_pool(self._pool, function, *args, abandoned=abandoned)

    def _abandon(self, readies: Iterable[Ready], settled: Iterable[Record] = ()) -> None:
        """Let go of turns whose starter was cancelled, in any thread: they are owed again."""
        for ready in readies:
            ready.let_go()
            self._looker.taking_up.unstarted.look_soon()
        for record in settled:
            self._settled_aside(record)
        self._look_now()

    # The loop -----------------------------------------------------------------------------------

    async def _loop(self) -> None:
        while not self._stopping:
            try:
                await self._pass()
            except Exception:
                # A fault of ours in one pass must not end the others; the next comes as planned.
                log.exception("pass-failed")
            if self._stopping:
                return
            await self._clock.wait(self._pause(), self._wake)
            self._wake.clear()

    def _pause(self) -> float:
        now = self._clock.now()
        span = min(LOOK_EVERY, self._definitions.pause)
        for upcoming in (self._agenda.next_look(), self._looker.next_job):
            if upcoming is not None:
                span = min(span, upcoming - now)
        return max(span.total_seconds(), 0.0)

    async def _pass(
        self,
        names: Iterable[str] | None = None,
        *,
        until: datetime | None = None,
    ) -> Pass:
        """Look at everything once, and start what can start."""
        now, began = self._clock.now(), self._clock.awake()
        done: Pass = await self._off(
            self._looker.look,
            now,
            names,
            until,
            abandoned=lambda done: self._abandon(done.ready, done.settled),
        )
        for ready in done.ready:
            self._begin(ready)
        for record in done.settled:
            self._settled(record)
        self._events.tell(done)
        self._tell_alerts()
        self._events.tell_pass(PassFacts(self._clock.awake() - began, self._looker.refused))
        return done

    def _look_now(self) -> None:
        """Look again now, asked from any thread."""
        if self._started:
            # A loop that was closed meanwhile has nobody to look.
            with contextlib.suppress(RuntimeError):
                self._running_loop.call_soon_threadsafe(self._hurried)

    def _hurried(self) -> None:
        """Look again now."""
        self._agenda.hurry()
        self._wake.set()

    # Turns --------------------------------------------------------------------------------------

    def _begin(self, ready: Ready) -> Running:
        record = ready.claim.record
        running = Running(record.ref, record.routine, record.path)
        self._in_flight[record.ref] = running
        facts: dict[str, Any] = {"trigger": record.trigger.value}
        word = "reattached" if record.is_durable else "fired"
        if record.is_taken_up_again:
            # Who counts what was fired counts each claim once.
            word, facts["attempt"] = "taken-up", record.attempts
        self._events.emit(word, record.ref, facts, routine=record.routine)
        self._in_background(self._see_through(ready, running))
        return running

    async def _see_through(self, ready: Ready, running: Running) -> None:
        record: Record | None = None
        turn_of_caller.set(running)
        try:
            record = await self._runner.run(ready, running)
        except Exception:
            log.exception("turn-failed", extra={"ref": running.ref})
            ready.let_go()
        finally:
            self._in_flight.pop(running.ref, None)
            if not running.ended.done():
                running.ended.set_result(record)
            if record is None:
                self._looker.taking_up.unstarted.hold_back(running.ref, self._clock.awake())
            elif record.is_durable:
                self._left_alone(record)
            else:
                self._looker.taking_up.unstarted.forget(running.ref)
                self._settled(record)
            self._hurried()

    def _left_alone(self, record: Record) -> None:
        """Tell of a run that goes on unwatched: it is taken up again, by whoever schedules then."""
        self._looker.taking_up.unstarted.hold_back(record.ref, self._clock.awake())
        self._events.emit("detached", record.ref, {"run": record.run_id}, routine=record.routine)

    def _routine(self, name: str) -> Routine | None:
        return self._definitions.routines.get(name)

    def _reread(self, ready: Ready, work: Work) -> Work | Verdict:
        current = None if work.routine is None else self._definitions.current(work.routine)
        return edited(work, current, ready.claim.occurrence, self._definitions.work)

    # What became of it --------------------------------------------------------------------------

    def _settled_aside(self, record: Record) -> None:
        """Tell of a record that was settled in another thread."""

        def tell() -> None:
            self._settled(record)
            self._hurried()

        # A loop that was closed meanwhile has nobody to tell; the record is on the disk.
        with contextlib.suppress(RuntimeError):
            self._running_loop.call_soon_threadsafe(tell)

    def _settled(self, record: Record) -> None:
        self._alerter.settled(record)
        if record.end is None:
            # Put off: to be tried again, or until a person decides.
            self._looker.taking_up.look_at(record.retry_at)
        self._events.settled(record)

    def _tell_alerts(self) -> None:
        tellings, self._looker.tellings = self._looker.tellings, []
        for telling in tellings:
            told = telling.told
            if telling.is_new:
                facts = {
                    "kind": told.kind,
                    "title": told.title,
                    "text": "; ".join(told.body.splitlines()),
                }
                self._events.emit(told.word, telling.routine, facts)
            if telling.targets:
                task = asyncio.ensure_future(self._send(telling))
                for tasks in (self._sending, self._tasks):
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)

    async def _send(self, telling: Telling) -> None:
        await in_thread(self._alerter.send, telling)
