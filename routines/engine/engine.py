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
import platform
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from routines.agents.base import Agent, Turn
from routines.domain.agent import AgentSpec
from routines.domain.names import safe_name
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, Record
from routines.domain.routine import CatchUpPolicy, Routine
from routines.domain.wakeup import DEFAULT_BOUNDS, Bounds
from routines.engine import host
from routines.engine.agenda import Agenda
from routines.engine.alerting import Alerter, Telling
from routines.engine.arming import Arming
from routines.engine.by_hand import Asked, ByHand, with_more
from routines.engine.claiming import Claimer, Delivery, Pass, Ready
from routines.engine.clock import EngineClock, SystemClock
from routines.engine.definitions import Definitions, FixedDefinitions, edited
from routines.engine.measuring import PassFacts, measures
from routines.engine.off_loop import in_thread, under_way
from routines.engine.pausing import Pausing
from routines.engine.recipients import reply_to
from routines.engine.recovering import Recoverer
from routines.engine.running import Runner, Running, turn_of_caller, wait_for
from routines.engine.tools import WakeTools
from routines.engine.turns import Verdict, cancelled
from routines.engine.unstarted import Unstarted
from routines.engine.waking import Waker
from routines.engine.work import Work
from routines.errors import (
    EngineMisuse,
    RoutinesError,
    SessionBusyError,
    StoreError,
    UnknownRoutine,
)
from routines.store.claims import Claim, ClaimStore
from routines.store.control import (
    BEAT_EVERY,
    Cancel,
    CancelStore,
    Scheduler,
    SchedulerStore,
    SwitchStore,
)
from routines.store.retention import Keep, RetentionStore
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State, open_for_writing
from routines.store.wakeups import WakeupStore
from routines.version import VERSION

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
        name: A stable word: `fired`, `settled`, `missed`, `waiting`, `fault`, `alert`,
            `recovery`, `retrying`, `parked`.
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
            function. None if all agents are commands.
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

    Raises:
        StoreError: The state folder can't be used.
    """

    def __init__(
        self,
        state: str | os.PathLike[str],
        *,
        agent: Agent | Callable[[Turn], Any] | None = None,
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
        mine = turn_of_caller.get()
        if mine in turns:
            # Called from inside a turn: to wait for it would be to wait for ourselves.
            turns.remove(mine)
            self._in_background(self._end([mine], grace))
        await self._end(turns, grace)

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
        self._agenda = Agenda()
        self._arming = Arming(self._state, by=self._owner.user)
        self._pausing = Pausing(self._state, by=self._owner.user)
        self._recoverer = Recoverer(
            self._state, clock=self._clock, owner=self._owner, on_settled=self._settled_aside
        )
        self._claimer = Claimer(
            self._state,
            definitions=self._definitions,
            arming=self._arming,
            recoverer=self._recoverer,
            clock=self._clock,
            owner=self._owner,
            alive_since=lambda: self._alive_since,
            saw=self._agenda.saw,
        )
        self._by_hand = ByHand(
            self._state,
            definitions=self._definitions,
            claimer=self._claimer,
            clock=self._clock,
            owner=self._owner,
        )
        self._waker = Waker(
            self._state,
            definitions=self._definitions,
            claimer=self._claimer,
            clock=self._clock,
            owner=self._owner,
            bounds=self._limits.wakeups,
            asleep=self._slept_through,
        )
        self._runner = Runner(
            self._state,
            clock=self._clock,
            owner=self._owner,
            recoverer=self._recoverer,
            agent=self._agent,
            reread=self._reread,
        )
        now = self._clock.now()
        self._alive_since: datetime | None = None
        self._sleeps: tuple[tuple[datetime, datetime], ...] = ()
        self._last_now, self._last_awake = now, self._clock.awake()
        self._recovered_at = self._beat_at = float("-inf")
        # Not in the first hour: a clock that is wrong at boot must not decide what is old.
        self._pruned_at = self._last_awake
        self._unstarted, self._arm_again = Unstarted(), True
        self._refused: frozenset[str] = frozenset()
        self._not_armed: frozenset[str] = frozenset()
        self._digests: dict[str, tuple[Routine, str]] = {}
        self._waiting: dict[str, str] = {}
        self._alerter = Alerter(
            self._state,
            definitions=self._definitions,
            clock=self._clock,
            is_resident=self._is_scheduler,
        )
        self._tellings: list[Telling] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._superseding: list[tuple[Cancel, float]] = []
        self._held: set[str | None] = set()
        self._scheduler: Scheduler | None = None
        self._scheduler_fd: int | None = None
        # A crash between a wake-up and its hint: without the hint it would never be looked at.
        repaired = WakeupStore(self._state).repair()
        if repaired.hinted or repaired.corrupt:
            log.warning(
                "wakeups-repaired",
                extra={"hinted": repaired.hinted, "corrupt": ", ".join(repaired.corrupt)},
            )
        if self._is_scheduler:
            self._enter(now)

    def _enter(self, now: datetime) -> None:
        self._scheduler = Scheduler(
            id=str(uuid.uuid4()),
            owner=self._owner.to_json(),
            version=VERSION,
            started_at=now,
            beat_at=now,
            path=os.environ.get("PATH", ""),
            programs={"python": platform.python_version()},
        )
        schedulers = SchedulerStore(self._state)
        for past, held in schedulers.live():
            if held is False:
                # It died without a word: its last beat is all that is known of its end.
                schedulers.leave(replace(past, ended_at=past.beat_at, why="died"), None)
        self._scheduler_fd = schedulers.enter(self._scheduler)

    async def _close(self, why: str) -> None:
        await self._end_alerts(done=why == "done")
        if self._scheduler is not None:
            left = replace(self._scheduler, ended_at=self._clock.now(), why=why)
            fd, self._scheduler, self._scheduler_fd = self._scheduler_fd, None, None
            try:
                await self._off(SchedulerStore(self._state).leave, left, fd)
            except StoreError as error:
                log.warning("scheduler-not-recorded", extra={"error": error.message})
        # What is being ended has no owner but us.
        await in_thread(self._recoverer.wait)
        self._pool.shutdown(wait=True)

    async def _end_alerts(self, *, done: bool) -> None:
        """Tell what was just settled, if that is the last chance; else end what is being sent."""
        if done and self._alerter.is_asked:
            self._tellings += await self._off(
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
        done: Pass = await self._off(self._look, now, names, patience)
        for ready in done.ready:
            self._begin(ready)
        self._tell(done)
        self._tell_alerts()
        self._tell_pass(self._clock.awake() - began)
        return done

    def _look(self, now: datetime, names: Iterable[str] | None, patience: float) -> Pass:
        """Do the store's part of a pass."""
        self._note_time(now)
        if self._definitions.look(now) or self._arm_again:
            self._arm(now)
        done = Pass()
        try:
            self._recover(now, done)
            if self._alive_since is None:
                self._alive_since = now
            self._see_switches(now)
            if not self._stopping:
                self._claim(now, names, patience, done)
                self._fire_wakeups(now, done)
            self._give_way_back()
            self._beat(now)
            self._prune(now)
            if not self._stopping:
                self._tellings += self._alerter.look(now, watched_since=self._watched_since())
        except BaseException:
            # Claimed and unstarted: held on to, they would wait for as long as we live.
            for ready in done.ready:
                ready.let_go()
            self._unstarted.look_soon()
            raise
        return done

    def _note_time(self, now: datetime) -> None:
        """See whether the machine slept, or the clock was set (L3, L6)."""
        awake = self._clock.awake()
        passed = now - self._last_now
        slept = passed - timedelta(seconds=awake - self._last_awake)
        if passed > _SLEEP and self._alive_since is not None:
            self._sleeps = (*self._sleeps[-99:], (self._last_now, now))
            log.warning("absent", extra={"since": str(self._last_now), "until": str(now)})
        if abs(slept) > _STEP:
            # Every next slot was worked out by a clock that no longer holds.
            self._agenda.rebuild(self._definitions.routines, now)
            # And a cursor may lie in the future now.
            self._arm_again = True
            self._pruned_at = awake
        self._last_now, self._last_awake = now, awake

    def _watched_since(self) -> datetime | None:
        if not self._is_scheduler:
            return None
        return max([end for _, end in self._sleeps[-1:]], default=self._alive_since)

    def _slept_through(self, instant: datetime) -> bool:
        return any(start <= instant <= end for start, end in self._sleeps)

    def _arm(self, now: datetime) -> None:
        failed = self._arming.arm(self._definitions, now)
        if self._arm_again:
            self._agenda.rebuild(self._definitions.routines, now)
        else:
            self._agenda.refresh(self._definitions.routines, now)
        # The cursors of those that failed are tried again at the next pass.
        self._arm_again = bool(failed)
        self._not_armed = frozenset(failed)
        if self._scheduler is not None:
            armed = {
                name: self._digest(routine)
                for name, routine in self._definitions.routines.items()
                if routine.enabled and not self._external_clock
            }
            self._scheduler = replace(self._scheduler, armed=armed)
            self._beat_at = float("-inf")

    def _digest(self, routine: Routine) -> str:
        known = self._digests.get(routine.name)
        if known is None or known[0] is not routine:
            known = self._digests[routine.name] = (routine, routine.digest())
        return known[1]

    def _see_switches(self, now: datetime) -> None:
        """End pauses whose time has come, and look at everything again when one has ended."""
        try:
            for switch in self._pausing.expire(now):
                log.info("resumed", extra={"routine": switch.routine or "all", "by": "until"})
            held = {switch.routine for switch in SwitchStore(self._state).all()}
        except StoreError as error:
            log.warning("switches-not-read", extra={"error": error.message})
            return
        if self._held - held:
            self._agenda.rebuild(self._definitions.routines, now)
        self._held = held

    def _recover(self, now: datetime, done: Pass) -> None:
        awake = self._clock.awake()
        due = awake - self._recovered_at >= _RECOVER_EVERY.total_seconds()
        if not self._unstarted.take(awake) and not due and not self._claims.any_handed_over():
            return
        self._recovered_at = awake
        recovered = self._recoverer.recover()
        done.settled += recovered.settled
        self._look_again_at(now if recovered.rerun else recovered.look_at)
        for claim in sorted(recovered.owed_again, key=lambda claim: claim.record.due_at):
            try:
                self._take_up(claim, now, done)
            except (RoutinesError, OSError) as error:
                claim.let_go()
                self._unstarted.hold_back(claim.record.ref, awake)
                log.error(  # noqa: TRY400 - the cause is in the message
                    "take-up-failed", extra={"ref": claim.record.ref, "error": str(error)}
                )

    def _take_up(self, claim: Claim, now: datetime, done: Pass) -> None:
        """Decide anew about a claim that was never started."""
        record = claim.record
        if self._stopping or not self._unstarted.may_start(record.ref, self._clock.awake()):
            claim.let_go()
            return
        paused = self._claimer.is_paused(record.routine, now)
        if paused and record.occurrence.kind is not Kind.MANUAL:
            claim.let_go()
            self._unstarted.look_soon()
            return
        if record.last == Event.BUFFERED.value and self._claimer.predecessor(claim) is not None:
            claim.let_go()
            self._unstarted.look_soon()
            return
        decided = self._cancelled(record) or self._work_again(record, now)
        if isinstance(decided, Verdict):
            done.settled.append(
                claim.settle(
                    decided.outcome,
                    decided.reason,
                    decided.detail,
                    at=now,
                    by=decided.by,
                    settled_by=self._owner.user,
                )
            )
            claim.let_go()
            CancelStore(self._state).clear(record.ref)
            return
        ready = self._claimer.take_up(
            claim, decided, needs_place=record.occurrence.kind is not Kind.MANUAL, now=now
        )
        if ready is None:
            self._unstarted.look_soon()
        else:
            done.ready.append(ready)

    def _cancelled(self, record: Record) -> Verdict | None:
        """Take up a cancel of a claim that waits: it needs no session to be settled (L17)."""
        cancels = CancelStore(self._state)
        cancel = cancels.pending(record.ref)
        if cancel is None or not cancels.accept(cancel):
            return None
        return cancelled(cancel, "before it started")

    def _work_again(self, record: Record, now: datetime) -> Work | Verdict:
        """Return what an unstarted claim is to do by today's definition, or how it ends instead."""
        occurrence = record.occurrence
        if occurrence.kind is Kind.WAKE:
            return self._waker.work_of(record, now)
        routine = self._definitions.current(occurrence.owner)
        if routine is None:
            return Verdict(Outcome.SKIPPED, Reason.EDITED, "its routine is gone")
        agent = record.claim.get("agent") if occurrence.kind is Kind.MANUAL else None
        work = self._definitions.work(routine, agent=agent)
        if occurrence.kind is Kind.MANUAL:
            return with_more(replace(work, only_if=None), record.claim.get("append"))
        changed = edited(
            replace(work, digest=record.claim.get("definition")),
            routine,
            occurrence,
            self._definitions.work,
        )
        if isinstance(changed, Verdict):
            return changed
        late = now - record.due_at
        none = routine.catch_up is CatchUpPolicy.NONE
        if (
            none
            and late > timedelta(seconds=60)
            and not self._agenda.saw(routine.name, record.due_at)
        ):
            return Verdict(Outcome.MISSED, Reason.NO_SCHEDULER, "catch_up is none")
        return work

    def _claim(
        self, now: datetime, names: Iterable[str] | None, patience: float, done: Pass
    ) -> None:
        due = self._agenda.due(now, self._definitions.routines) if names is None else list(names)
        if not due or self._external_clock:
            return
        found = self._claimer.claim_due(due, now=now, patience=patience)
        done.ready += found.ready
        for name in found.done:
            routine = self._definitions.routines.get(name)
            if routine is None:
                self._agenda.forget(name)
            else:
                self._agenda.arm(routine, now)
        for name in (*found.waiting, *found.busy, *found.faults):
            routine = self._definitions.routines.get(name)
            if routine is not None:
                self._agenda.follow(routine, now)
        for name in (*found.waiting, *found.busy):
            self._agenda.wait(name, now)
        for name in found.faults:
            self._agenda.fault(name, now)
        for name in found.unarmed:
            # Another process saw it otherwise than we do: the next look brings its cursor up.
            self._arming.forget(name)
            self._arm_again = True
        if found.unstarted:
            self._unstarted.look_soon()
        done.settled += found.settled
        done.missed += found.missed
        self._superseding += [(cancel, self._clock.awake()) for cancel in found.superseding]
        dealt_with = {*found.done, *found.waiting, *found.busy, *found.unarmed}
        self._refused = (self._refused - dealt_with) | found.faults.keys()
        done.waiting |= found.waiting
        done.faults |= found.faults
        done.busy += found.busy

    def _give_way_back(self) -> None:
        """Take back what a running turn was asked and has not taken up in time (L13).

        It then goes on as it was, and the newer slot goes when it has ended. What was taken up
        can't be taken back: its end is awaited, however long that takes.
        """
        now = self._clock.awake()
        waiting = []
        for cancel, since in self._superseding:
            if now - since < _MAKE_WAY.total_seconds():
                waiting.append((cancel, since))
            elif CancelStore(self._state).withdraw(cancel):
                log.warning("not-superseded", extra={"ref": cancel.ref, "newer": cancel.newer})
        self._superseding = waiting

    def _fire_wakeups(self, now: datetime, done: Pass) -> None:
        woken = self._waker.fire_due(now)
        done.ready += woken.ready
        done.settled += woken.settled
        if woken.unstarted:
            self._unstarted.look_soon()

    def _prune(self, now: datetime) -> None:
        awake = self._clock.awake()
        if self._keep is None or awake - self._pruned_at < _PRUNE_EVERY.total_seconds():
            return
        self._pruned_at = awake
        try:
            RetentionStore(self._state, clock=self._clock).prune(self._keep, now=now)
        except StoreError as error:
            log.warning("not-pruned", extra={"error": error.message})

    def _beat(self, now: datetime) -> None:
        awake = self._clock.awake()
        if self._scheduler is None or awake - self._beat_at < BEAT_EVERY.total_seconds():
            return
        self._beat_at = awake
        self._scheduler = replace(self._scheduler, beat_at=now, sleeps=self._sleeps)
        try:
            SchedulerStore(self._state).beat(self._scheduler)
        except StoreError as error:
            log.warning("beat-not-written", extra={"error": error.message})

    # Turns --------------------------------------------------------------------------------------

    def _begin(self, ready: Ready) -> Running:
        record = ready.claim.record
        running = Running(record.ref, record.routine)
        self._in_flight[record.ref] = running
        self._emit("fired", record.ref, {"trigger": record.trigger.value}, routine=record.routine)
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
                self._unstarted.hold_back(running.ref, self._clock.awake())
            else:
                self._unstarted.forget(running.ref)
                self._settled(record)
            self._agenda.hurry()
            self._wake.set()

    def _look_again_at(self, at: datetime | None) -> None:
        """Look at open claims again at *at*: a retry is due then."""
        if at is not None:
            left = max((at - self._clock.now()).total_seconds(), 0.0)
            self._unstarted.look_at(self._clock.awake() + left)

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
            self._look_again_at(record.retry_at)
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
        tellings, self._tellings = self._tellings, []
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
            self._on_pass(PassFacts(seconds, tuple(sorted(self._refused | self._not_armed))))
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
        """Return until when a host may sleep: the next slot or wake-up, None if there is none."""
        slot = self._agenda.next_slot()
        wakeup = WakeupStore(self._state).next_due(self._clock.now())
        return min((at for at in (slot, wakeup) if at is not None), default=None)

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
            if not turns:
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
        return self._claimer.deliver(routine, slot, now=self._clock.now())

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
        now = self._clock.now()
        await self._off(lambda: self._pausing.pause(name, now=now, until=until, reason=reason))

    async def resume(self, name: str | None = None) -> bool:
        """Resume what `pause` paused; False if it was not. What passed is one counted record."""
        now = self._clock.now()
        resumed = await self._off(lambda: self._pausing.resume(name, now=now))
        self._wake.set()
        return resumed is not None

    def tools(self, session: str) -> WakeTools:
        """Return `wake`, `unwake` and `wakeups` bound to *session*, for its agent."""
        self._check_usable()
        return WakeTools(
            self._state,
            session=session,
            by=self._owner.user,
            turn=self._turn_of(session),
            clock=self._clock,
            zone=self._definitions.zone,
            bounds=self._limits.wakeups,
            no_scheduler=lambda: None,
            reply_to=lambda name: reply_to(
                name, self._definitions.routines, self._definitions.deliver
            ),
        )

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
