"""The engine: what is due is claimed, run and settled, in an agent's own process or a scheduler's.

    async with Engine("state", agent=MyAgent(), routines=[digest]) as engine:
        ...

It touches no signal, log configuration, working directory or environment. Nothing that matters
lives in its memory: kill it at any line, start it again, and what is due is computed from the
files.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from routines.agents.base import Agent, DurableAgent, Turn
from routines.agents.durable import is_durable
from routines.domain.agent import AgentSpec
from routines.domain.names import safe_name
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.domain.wakeup import DEFAULT_BOUNDS, Bounds
from routines.engine import host
from routines.engine.alerting import Alerter, Telling
from routines.engine.authorizing import Authorize, Authorizer
from routines.engine.by_hand import Asked, ByHand
from routines.engine.clock import EngineClock, SystemClock
from routines.engine.definitions import Definitions, FixedDefinitions, edited
from routines.engine.delivered import Delivery
from routines.engine.looking import Looker
from routines.engine.managing import Wakeups
from routines.engine.measuring import PassFacts, measures
from routines.engine.needs import Ready
from routines.engine.off_loop import in_thread, under_way
from routines.engine.passes import Pass
from routines.engine.pausing import Pausing
from routines.engine.presence import Presence
from routines.engine.recipients import reply_to
from routines.engine.recovering import Recoverer
from routines.engine.running import Runner, Running, turn_of_caller, wait_for
from routines.engine.tools import WakeTools
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.errors import (
    EngineMisuse,
    SessionBusyError,
    StoreError,
    UnknownRoutine,
)
from routines.store.claims import ClaimStore
from routines.store.jobs import JobStore
from routines.store.retention import Keep
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State, open_for_writing
from routines.store.wakeups import WakeupStore

log = logging.getLogger("routines")

# What other processes add, change or cancel is seen within 2 s.
_LOOK_EVERY = timedelta(seconds=1)
# A peer that crashed is noticed within a minute, not only when somebody restarts.
_RECOVER_EVERY = timedelta(seconds=60)
_PRUNE_EVERY = timedelta(hours=1)
# A wall clock that moved so much against the time awake was set, or the machine slept.
_STEP = timedelta(seconds=2)
# An absence is worth telling of from here on.
_SLEEP = timedelta(minutes=2)
# By what an operator has to do about it: nothing, keep an eye on it, or look now.
_LEVELS = {
    "missed": logging.WARNING,
    "alert": logging.ERROR,
    "retrying": logging.WARNING,
    "parked": logging.ERROR,
    "fault": logging.ERROR,
}
DEFAULT_GRACE = timedelta(seconds=30)
DEFAULT_CONCURRENCY = 4
# A turn that is superseded has so long to take that up: a stop's grace, and half a minute more.
_MAKE_WAY = DEFAULT_GRACE + timedelta(seconds=30)
# `stop` waits so long for turns that were ended: their programs get their own signals first.
_ENDING = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something that happened, for a host that wants to know.

    Attributes:
        name: A stable word: `fired`, `taken-up` (tried again under its claim), `settled`,
            `missed`, `waiting`, `fault`, `alert`, `recovery`, `retrying`, `parked`, `detached`,
            `reattached`.
        ref: The occurrence or routine.
        data: Facts about it, plain JSON types.
    """

    name: str
    ref: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The workspace's limits, and the bounds of wake-ups.

    Attributes:
        concurrency: How many turns run at once.
        wakeups: The guardrails of PROMISES W1.
    """

    concurrency: int = DEFAULT_CONCURRENCY
    wakeups: Bounds = DEFAULT_BOUNDS


class Engine:
    """Runs routines on one state folder.

    Args:
        state: The state folder; it is made if it is missing.
        agent: What answers turns in this process: an object with an async `run(turn)`, or a
            function; or a `DurableAgent`, whose runs outlive it. None if all agents are commands.
        routines: The routines, or where they come from.
        clock: The clock; tests give `routines.testing.FakeClock`.
        limits: Bounds of concurrency and wake-ups.
        on_event: Called on the loop for each event; an exception in it is logged and harms nobody.
        on_pass: Called likewise after each look at everything, once a second or more often.
        agents: Agents that routines may name, besides `echo`.
        root: The folder that turns run in unless their routine says otherwise; by default the one
            that holds the state folder.
        keep: How much of the past is kept; None keeps everything.
        external_clock: Whether slots are delivered from outside (`fire`, `tick`): it then arms
            nothing and catches nothing up, and fires wake-ups alone.
        is_scheduler: Whether it shows itself as a scheduler to other processes.
        authorize: Asked who may do what by `wakeups()`, and before each firing, whoever set it: a
            function or a coroutine function of action, caller and schedule that returns True,
            False or a `Decision`. None allows everything.

    Raises:
        StoreError: The state folder can't be used.
    """

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
        self._path = os.path.abspath(os.fspath(state))
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
        left = await wait_for([running.done for running in turns], grace, self._clock)
        for running in turns:
            if running.done in left:
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
            Presence(self._state, clock=self._clock, owner=self._owner)
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
        self._waiting: dict[str, str] = {}
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

    async def _off(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do store work off the loop; one at a time, so that passes never overlap."""
        count = under_way()
        work = asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        count.begin()
        work.add_done_callback(lambda _: count.end())
        return await work

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
        upcoming = self._agenda.next_look()
        span = min(_LOOK_EVERY, self._definitions.pause)
        if upcoming is not None:
            span = min(span, upcoming - now)
        return max(span.total_seconds(), 0.0)

    async def _pass(self, names: Iterable[str] | None = None, *, patience: float = 0.0) -> Pass:
        """Look at everything once, and start what can start."""
        now, began = self._clock.now(), self._clock.awake()
        done: Pass = await self._off(self._looker.look, now, names, patience)
        for ready in done.ready:
            self._begin(ready)
        self._tell(done)
        self._tell_alerts()
        self._tell_pass(self._clock.awake() - began)
        return done

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
        self._emit(word, record.ref, facts, routine=record.routine)
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
            if not running.done.done():
                running.done.set_result(record)
            if record is None:
                self._looker.taking_up.unstarted.hold_back(running.ref, self._clock.awake())
            elif record.is_durable:
                self._left_alone(record)
            else:
                self._looker.taking_up.unstarted.forget(running.ref)
                self._settled(record)
            self._agenda.hurry()
            self._wake.set()

    def _left_alone(self, record: Record) -> None:
        """Tell of a run that goes on unwatched: it is taken up again, by whoever schedules then."""
        self._looker.taking_up.unstarted.hold_back(record.ref, self._clock.awake())
        self._emit("detached", record.ref, {"run": record.run_id}, routine=record.routine)

    def _routine(self, name: str) -> Routine | None:
        return self._definitions.routines.get(name)

    def _reread(self, ready: Ready, work: Work) -> Work | Verdict:
        current = None if work.routine is None else self._definitions.current(work.routine)
        return edited(work, current, ready.claim.occurrence, self._definitions.work)

    def _tell(self, done: Pass) -> None:
        for record in done.settled:
            self._settled(record)
        for missed in done.missed:
            self._emit("missed", missed.routine, {"to": str(missed.last), "reason": missed.reason})
        for name, why in done.waiting.items():
            if self._waiting.get(name) != why:
                self._emit("waiting", name, {"why": why})
        self._waiting = done.waiting
        for name, why in done.faults.items():
            self._emit("fault", name, {"error": why})

    def _settled_aside(self, record: Record) -> None:
        """Tell of a record that was settled in another thread."""

        def tell() -> None:
            self._settled(record)
            self._agenda.hurry()
            self._wake.set()

        # A loop that was closed meanwhile has nobody to tell; the record is on the disk.
        with contextlib.suppress(RuntimeError):
            self._running_loop.call_soon_threadsafe(tell)

    def _settled(self, record: Record) -> None:
        self._alerter.settled(record)
        if record.end is None:
            # Put off: to be tried again, or until a person decides.
            line = record.events[-1] if record.events else {}
            self._looker.taking_up.look_at(record.retry_at)
            self._emit(
                record.written_state.value,
                record.ref,
                {"detail": line.get("detail")},
                routine=record.routine,
            )
            return
        end = record.end
        self._emit(
            "settled",
            record.ref,
            {
                "outcome": end.get("outcome"),
                "reason": end.get("reason"),
                "detail": end.get("detail"),
            },
            routine=record.routine,
            trigger=record.trigger.value,
            **measures(record),
        )

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
                self._emit(told.word, telling.routine, facts)
            if telling.targets:
                task = asyncio.ensure_future(self._send(telling))
                for tasks in (self._sending, self._tasks):
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)

    async def _send(self, telling: Telling) -> None:
        await in_thread(self._alerter.send, telling)

    def _tell_pass(self, seconds: float) -> None:
        if self._on_pass is None:
            return
        try:
            self._on_pass(PassFacts(seconds, self._looker.refused))
        except Exception:
            log.exception("on_pass-failed")

    def _emit(self, name: str, ref: str, data: dict[str, Any], **more: Any) -> None:
        """Log *data*, and tell the host of it and of *more*, which a log line has in its ref."""
        level = _LEVELS.get(name, logging.INFO)
        if data.get("outcome") in ("failed", "timed-out"):
            level = logging.ERROR
        elif data.get("outcome") in ("interrupted", "missed"):
            level = logging.WARNING
        log.log(level, name, extra={"ref": ref, **data})
        if self._on_event is None:
            return
        try:
            self._on_event(EngineEvent(name, ref, data | more))
        except Exception:
            log.exception("on_event-failed")

    # What a host asks ---------------------------------------------------------------------------

    @property
    def state_path(self) -> str:
        """The state folder."""
        return self._path

    @property
    def definitions(self) -> Definitions:
        """Where the routines come from."""
        return self._definitions

    @property
    def clock(self) -> EngineClock:
        """The clock."""
        return self._clock

    @property
    def in_flight(self) -> tuple[str, ...]:
        """The occurrences whose turns run in or under this engine."""
        return tuple(self._in_flight)

    def next_due(self) -> datetime | None:
        """Return until when a host may sleep: the next slot, wake-up or job; None without one.

        A job that is queued and due wants a look at once.
        """
        now = self._clock.now()
        slot = self._agenda.next_slot()
        wakeup = WakeupStore(self._state).next_due(now)
        queue = JobStore(self._state, clock=self._clock)
        job = now if next(queue.queued(), None) is not None else queue.next_later()
        return min((at for at in (slot, wakeup, job) if at is not None), default=None)

    def replace(self, routines: Iterable[Routine]) -> None:
        """Take *routines* in the place of those there are, at the next look.

        Raises:
            EngineMisuse: The routines come from files.
        """
        if not isinstance(self._definitions, FixedDefinitions):
            raise EngineMisuse("this engine has its routines from files", hint="edit the files")
        self._definitions.replace(routines)
        self._wake.set()

    async def tick(self, names: Iterable[str] | None = None) -> list[Record | None]:
        """Do one pass, wait for its turns, and return their records and what else was settled.

        Must be inside `opened` or after `start`.

        Args:
            names: Only these routines; all of them if None.
        """
        self._check_usable()
        chosen = None if names is None else list(names)
        records: list[Record | None] = []
        while True:
            done = await self._pass(chosen, patience=5.0)
            records += done.settled
            turns = [self._in_flight[ready.claim.record.ref] for ready in done.ready]
            records += [await running.done for running in turns]
            if not turns and not await self._authorizer.answered():
                return records

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
                await asyncio.wait([running.done for running in self._in_flight.values()])
        finally:
            await self._close("done")

    async def run(
        self,
        name: str,
        *,
        append: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        by: str | None = None,
    ) -> Record:
        """Run a routine now, once, by hand, and return its record.

        It disregards schedule and `enabled`, uses up no slot, and obeys the session's lease.

        Args:
            name: The routine.
            append: Text put after its prompt.
            agent: Another agent than its own.
            session: Another session than its own.
            by: Who asks; by default `user@host`.

        Raises:
            UnknownRoutine: There is none of that name.
            SessionBusyError: Its session is in use. Nothing was run or recorded.
        """
        running = await self.begin_run(name, append=append, agent=agent, session=session, by=by)
        record = await running.done
        if record is None:
            raise StoreError(
                f"{running.ref} was not started", hint="the log says why; run it again"
            )
        return record

    async def fire(self, name: str, slot: datetime) -> Delivery:
        """Deliver a slot for an outside clock: claim it, run it, and wait for its end.

        Delivered twice it runs once.

        Args:
            name: The routine.
            slot: The instant, aware, a whole second.

        Returns:
            What became of it; with `claimed` the record is that of the turn.

        Raises:
            UnknownRoutine: There is none of that name.
            SlotRefused: The schedule does not name it.
            SessionBusyError: Its session is in use; nothing was claimed.
        """
        delivery: Delivery = await self._off(self._deliver, name, slot)
        if delivery.ready is None:
            return delivery
        running = self._begin(delivery.ready)
        return replace(delivery, record=await running.done)

    def _deliver(self, name: str, slot: datetime) -> Delivery:
        routine = self._definitions.current(name)
        if routine is None:
            raise UnknownRoutine(name, list(self._definitions.routines))
        return self._looker.claimer.deliver(routine, slot, now=self._clock.now())

    async def begin_run(
        self,
        name: str,
        *,
        append: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        by: str | None = None,
    ) -> Running:
        """Start a run by hand and return it while it runs; see `run`."""
        asked = Asked(name=name, append=append, agent=agent, session=session, by=by)
        return self._begin(await self._off(self._by_hand.take, asked))

    async def detach_run(
        self,
        name: str,
        *,
        append: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        by: str | None = None,
    ) -> str:
        """Claim a run by hand and leave it to a scheduler; return its id."""
        asked = Asked(name=name, append=append, agent=agent, session=session, by=by, detached=True)
        return str(await self._off(self._by_hand.leave, asked))

    async def pause(
        self, name: str | None = None, *, until: datetime | None = None, reason: str = ""
    ) -> None:
        """Start nothing of a routine, or of anything if None, until it is resumed.

        Args:
            name: The routine.
            until: When it is resumed by itself, aware; None for never.
            reason: In words, for those who wonder.

        Raises:
            UnknownRoutine: There is none of that name.
        """
        if name is not None and self._definitions.current(name) is None:
            raise UnknownRoutine(name, list(self._definitions.routines))
        now, pausing = self._clock.now(), self._pausing_by()
        await self._off(lambda: pausing.pause(name, now=now, until=until, reason=reason))

    async def resume(self, name: str | None = None) -> bool:
        """Resume what `pause` paused; False if it was not. What passed is one counted record."""
        now, pausing = self._clock.now(), self._pausing_by()
        resumed = await self._off(lambda: pausing.resume(name, now=now))
        self._wake.set()
        return resumed is not None

    def _pausing_by(self) -> Pausing:
        return Pausing(self._state, by=self._who()[0], routine_of=self._routine)

    def tools(self, session: str) -> WakeTools:
        """Return `wake`, `unwake` and `wakeups` bound to *session*, for its agent."""
        self._check_usable()
        turn = self._turn_of(session)
        return WakeTools(
            self._state,
            session=session,
            by=turn or self._owner.user,
            turn=turn,
            in_turn=turn is not None,
            clock=self._clock,
            zone=self._definitions.zone,
            bounds=self._limits.wakeups,
            no_scheduler=lambda: None,
            reply_to=lambda name: reply_to(
                name, self._definitions.routines, self._definitions.deliver
            ),
        )

    def wakeups(self, caller: str | None = None) -> Wakeups:
        """Return the management of all wake-ups, for this program.

        Args:
            caller: On whose behalf, for the hook and the record; by default the turn that this is
                called in, else `user@host`.
        """
        self._check_usable()
        by, turn = self._who()
        return Wakeups(
            self._state,
            caller=caller or by,
            by=caller or by,
            turn=turn,
            clock=self._clock,
            zone=self._definitions.zone,
            bounds=self._limits.wakeups,
            authorizer=self._authorizer,
            on_change=self._hurried,
        )

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

    def _who(self) -> tuple[str, str | None]:
        """Return who calls, and the key of the turn if it is one of ours."""
        running = turn_of_caller.get()
        if running is None:
            return self._owner.user, None
        key = self._state.key(running.ref)
        return key, key

    def _turn_of(self, session: str) -> str | None:
        ledger = self._sessions.peek(session)
        if ledger is None or ledger.claim is None:
            return None
        record = self._claims.read_path(ledger.claim)
        return None if record is None else self._state.key(record.ref)

    def history(self, name: str | None = None, *, limit: int = 20) -> list[Record]:
        """Return the newest records of a routine, or of everything, newest first."""
        folders = self._claims.owners() if name is None else [safe_name(name)]
        found: list[Record] = []
        for path in self._claims.walk(folders):
            if len(found) >= limit:
                break
            record = self._claims.read_path(path)
            if record is not None:
                found.append(record)
        return found

    @contextlib.asynccontextmanager
    async def hold(
        self, session: str, *, wait: timedelta = timedelta(0), who: str = ""
    ) -> AsyncIterator[Lease]:
        """Hold the lease of *session* for the block: no turn of routines runs in it meanwhile.

        Args:
            session: Its name.
            wait: How long to wait for it.
            who: What to say to those who find it busy.

        Raises:
            SessionBusyError: It was not free in time.
        """
        self._check_usable()
        until = self._clock.awake() + wait.total_seconds()
        while True:
            lease = await in_thread(lambda: self._sessions.take(session, clock=self._clock))
            if isinstance(lease, Lease):
                break
            if self._clock.awake() >= until:
                raise SessionBusyError(session, lease.holder)
            await self._clock.wait(0.2, asyncio.Event())
        try:
            await in_thread(lambda: lease.stamp(None, held_by=who or self._owner.user))
            yield lease
        finally:
            try:
                await in_thread(lambda: lease.stamp(None))
            finally:
                lease.let_go()
                self._agenda.hurry()
                self._wake.set()
