"""The engine: what is due is claimed, run and settled, in an agent's own process or a scheduler's.

    async with Engine("state", agent=MyAgent(), routines=[digest]) as engine:
        ...

It touches no signal, log configuration, working directory or environment. Nothing that matters
lives in its memory: kill it at any line, start it again, and what is due is computed from the
files.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from routines.domain.names import check_session, safe_name
from routines.domain.record import Record
from routines.domain.routine import Routine
from routines.engine.by_hand import Asked
from routines.engine.clock import EngineClock
from routines.engine.definitions import Definitions, FixedDefinitions
from routines.engine.delivered import PATIENCE_S, Delivery
from routines.engine.lifecycle import Lifecycle
from routines.engine.looking import LOOK_EVERY
from routines.engine.managing import Wakeups
from routines.engine.needs import Ready
from routines.engine.off_loop import in_thread
from routines.engine.passes import Pass, Ticked
from routines.engine.pausing import Pausing
from routines.engine.recipients import reply_to
from routines.engine.running import Running, turn_of_caller
from routines.engine.seeing_through import Seen
from routines.engine.tools import WakeTools
from routines.errors import (
    EngineMisuse,
    SessionBusyError,
    StoreBusy,
    StoreError,
    UnknownRoutine,
    UsageError,
)
from routines.store.sessions import Busy, Lease

# So soon what another process looks at this moment is looked at again.
_AGAIN_S = 0.2


class Engine(Lifecycle):
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
        UsageError: *state* is no path that a folder can have.
        StoreError: The state folder can't be used.
    """

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
        """Return until when a host may sleep: the next slot, wake-up, job or retry, or None.

        That is now for what fell due since the last look at everything, and a second after that
        look for what it found due and could not start: its session or its place is taken. Jobs of
        a queue that is paused are due at the end of the pause, or in 30 s: it may be ended sooner.
        """
        return self._looker.next_due(self._clock.now())

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

        What falls due after it was called is left to the next pass. What it claimed and could
        not start yet, since an earlier turn of the routine has not ended, is waited for and
        started; a record without an outcome among the results is one that has to wait on.

        Must be inside `opened` or after `start`.

        Args:
            names: Only these routines; all of them if None.
        """
        return (await self.tick_through(names)).records

    async def tick_through(self, names: Iterable[str] | None = None) -> Ticked:
        """Do what `tick` does; return also what waits, is locked, or was refused by the store."""
        self._check_usable()
        chosen = None if names is None else list(names)
        until, patience = self._clock.now(), self._clock.awake() + PATIENCE_S
        ticked = Ticked()
        while True:
            # What was busy at the last pass may be on the agenda for later.
            self._agenda.hurry()
            done = await self._pass(chosen, until=until)
            ticked.records.extend(done.settled)
            ticked.refused.update(done.troubles | done.faults)
            ticked.waiting.update(done.held_back)
            turns = [self._in_flight[ready.claim.record.ref].done for ready in done.ready]
            left = [self._see_claim_through(path, takes_place=True) for path in done.unstarted]
            ticked.records.extend(await asyncio.gather(*turns, *left))
            if turns or left:
                # Turns may take for hours: what is busy after them has not been waited for yet.
                patience = self._clock.awake() + PATIENCE_S
                continue
            if await self._authorizer.answered():
                continue
            if not done.busy or self._clock.awake() >= patience:
                # Left out, what is owed and locked would pass for nothing due.
                ticked.refused.update(done.busy)
                ticked.waiting.update({name: name for name in done.waiting})
                for record in filter(None, ticked.records):
                    # What waited for one of our own turns has had its own since.
                    wakeup = record.claim.get("wakeup")
                    ticked.waiting.pop(record.ref, None)
                    ticked.waiting.pop(wakeup["id"] if isinstance(wakeup, dict) else "", None)
                return ticked
            # Another process looks at one of them this moment.
            await self._clock.wait(_AGAIN_S, asyncio.Event())

    async def _see_claim_through(
        self, path: str, *, takes_place: bool, waits: bool = True
    ) -> Record | None:
        """Wait for a claim that could not start yet, start it when it can, and wait for its end.

        Returns its record, without an outcome where it has to wait on: it is paused or put off,
        the engine stops, or its predecessor has not ended in the time of both. Whoever looks next
        takes it up. None if its turn did not begin; the log says why.
        """
        record: Record | None = None
        patience = await self._off(self._looker.seeing_through.patience, path)
        until = self._clock.awake() + patience.total_seconds()
        while True:
            seen = await self._off(
                self._see_to,
                path,
                takes_place,
                abandoned=lambda left: self._abandon(_ready_of(left), left.settled),
            )
            for settled in seen.settled:
                self._settled(settled)
            if seen.ready is not None:
                return await self._begin(seen.ready).done
            record = seen.record or record
            if seen.settled:
                # Its end is what the next look finds.
                continue
            if seen.over or not waits or self._stopping or self._clock.awake() >= until:
                return record
            await self._clock.wait(LOOK_EVERY.total_seconds(), asyncio.Event())

    def _see_to(self, path: str, takes_place: bool) -> Seen:
        return self._looker.see_to(path, self._clock.now(), takes_place=takes_place)

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

        Cancelled while it is awaited (`asyncio.timeout`, say): a turn that has begun goes on to
        its end, and its record is in the history; one that has not is never begun, and what was
        claimed for it already is `failed: not-started`.

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

        Delivered twice it runs once. A slot that has to wait for an earlier turn of its routine
        (`buffer-one`, `supersede`) is claimed and seen through: until that turn has ended and its
        own has, for at most twice the routine's `timeout` and a few minutes.

        Cancelled while it is awaited: a turn that has begun goes on, and a slot that was claimed
        and has not begun is owed. Deliver it again.

        Args:
            name: The routine.
            slot: The instant, aware, a whole second.

        Returns:
            What became of it; with `claimed` the record is that of the turn, with `buffered`
            and `retrying` too, and without an outcome if it still waits: deliver it again. A
            delivery makes the next attempt of what is to be tried again, when that is due.

        Raises:
            UnknownRoutine: There is none of that name.
            SlotRefused: The schedule does not name it.
            SessionBusyError: Its session is in use; nothing was claimed.
        """
        delivery = await self._delivered(name, slot)
        if delivery.ready is not None:
            running = self._begin(delivery.ready)
            return replace(delivery, record=await running.done)
        if delivery.word in ("buffered", "retrying") and delivery.record is not None:
            # One that is tried again may have to wait long for its time: it is looked at once.
            waits = delivery.word == "buffered"
            path = delivery.record.path
            record = await self._see_claim_through(path, takes_place=False, waits=waits)
            return replace(delivery, record=record)
        return delivery

    async def _delivered(self, name: str, slot: datetime) -> Delivery:
        """Deliver a slot, again where another process looks at a claim of its routine just now."""
        until = self._clock.awake() + PATIENCE_S
        while True:
            done = Pass()
            try:
                delivery: Delivery = await self._off(
                    self._deliver,
                    name,
                    slot,
                    done,
                    abandoned=functools.partial(self._abandon_delivery, done),
                )
            except StoreBusy:
                self._settled_all(done)
                if self._clock.awake() >= until:
                    raise
            except Exception:
                self._settled_all(done)
                raise
            else:
                self._settled_all(done)
                return delivery
            await self._clock.wait(_AGAIN_S, asyncio.Event())

    def _abandon_delivery(self, done: Pass, delivery: Delivery) -> None:
        self._abandon(_ready_of(delivery), done.settled)

    def _settled_all(self, done: Pass) -> None:
        for record in done.settled:
            self._settled(record)

    def _deliver(self, name: str, slot: datetime, done: Pass) -> Delivery:
        routine = self._definitions.current(name)
        if routine is None:
            raise UnknownRoutine(name, list(self._definitions.routines))
        return self._looker.deliver(routine, slot, self._clock.now(), done)

    async def begin_run(
        self,
        name: str,
        *,
        append: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        by: str | None = None,
    ) -> Running:
        """Start a run by hand and return it while it runs; see `run`, also for a cancel."""
        asked = Asked(name=name, append=append, agent=agent, session=session, by=by)
        return self._begin(await self._off(self._by_hand.take, asked, abandoned=self._drop))

    def _drop(self, ready: Ready) -> None:
        """End a run by hand whose caller was cancelled before it began; called in any thread."""
        self._settled_aside(self._by_hand.drop(ready))

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
        """Return `wake`, `unwake` and `wakeups` bound to *session*, for its agent.

        Raises:
            InvalidName: No session can have that name.
        """
        self._check_usable()
        session = check_session(session)
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

        Cancelled while it waits, it lets go of what it took.

        Args:
            session: Its name. That of a routine stands for the routine's session, as in commands.
            wait: How long to wait for it.
            who: What to say to those who find it busy.

        Raises:
            InvalidName: No session can have that name.
            UsageError: *wait* is no timedelta.
            SessionBusyError: It was not free in time.
        """
        self._check_usable()
        session = check_session(session)
        if not isinstance(wait, timedelta):
            raise UsageError(
                f"wait is a timedelta, and not {type(wait).__name__}",
                hint="timedelta(seconds=30), say",
            )
        routine = await in_thread(self._definitions.current, session)
        if routine is not None:
            session = routine.lasting_session
        until = self._clock.awake() + wait.total_seconds()
        held_by = who or self._owner.user
        while True:
            lease = await in_thread(self._hold, session, held_by, abandoned=_let_go)
            if isinstance(lease, Lease):
                break
            if self._clock.awake() >= until:
                raise SessionBusyError(session, lease.holder)
            await self._clock.wait(0.2, asyncio.Event())
        try:
            yield lease
        finally:
            try:
                # Whole in its thread: a second cancel must not free what is still being written.
                await in_thread(_let_go, lease)
            finally:
                self._hurried()

    def _hold(self, session: str, held_by: str) -> Lease | Busy:
        lease = self._looker.needs.lease(session)
        if isinstance(lease, Lease):
            try:
                lease.stamp(None, held_by=held_by)
            except BaseException:
                lease.let_go()
                raise
        return lease


def _let_go(lease: Lease | Busy) -> None:
    """Give back what was held, if it was: nobody is named as its holder any more."""
    if isinstance(lease, Lease):
        try:
            lease.stamp(None)
        finally:
            lease.let_go()


def _ready_of(found: Delivery | Seen) -> list[Ready]:
    return [] if found.ready is None else [found.ready]
