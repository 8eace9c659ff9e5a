"""One look at everything: the part of a pass that reads and writes the store, off the loop.

All that is kept here is when to look at what, and how long this process has been there; all of it
can be lost.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import takewhile

from routines.domain.clock import Clock
from routines.domain.names import format_instant
from routines.domain.outcome import Reason
from routines.domain.record import Owner
from routines.domain.routine import Routine
from routines.domain.wakeup import Bounds
from routines.engine import host
from routines.engine.agenda import Agenda
from routines.engine.alerting import Alerter, Telling
from routines.engine.arming import Arming
from routines.engine.authorizing import Authorizer
from routines.engine.definitions import Definitions
from routines.engine.delivered import Deliverer, Delivery
from routines.engine.draining import Drainer
from routines.engine.edits import edits_between
from routines.engine.needs import Needs
from routines.engine.overlapping import Overlaps
from routines.engine.passes import Pass
from routines.engine.pausing import Pausing
from routines.engine.presence import Presence
from routines.engine.recovering import Recoverer
from routines.engine.seeing_through import SeeingThrough, Seen
from routines.engine.taking_up import TakingUp
from routines.engine.waking import Waker
from routines.errors import StoreBusy, StoreError
from routines.store.cancels import Cancel, CancelStore
from routines.store.cursors import CursorStore, Missed
from routines.store.job_work import JobWork
from routines.store.jobs import JobStore
from routines.store.retention import Keep, RetentionStore
from routines.store.state import State
from routines.store.switches import Resumed, Switch, SwitchStore
from routines.store.wakeups import WakeupStore

log = logging.getLogger("routines")

# What other processes add, change or cancel is seen within 2 s.
LOOK_EVERY = timedelta(seconds=1)
# A queue that is paused may be for months: an end of it that nobody foresaw is seen within this.
_LOOK_PAUSED = timedelta(seconds=30)
# What a person can share a night with; more often would only cost.
_PRUNE_EVERY = timedelta(hours=1)
# A wall clock that moved so much against the time awake was set, or the machine slept.
_STEP = timedelta(seconds=2)
# An absence is worth telling of from here on.
_SLEEP = timedelta(minutes=2)
# A turn that is superseded has so long to take that up: a stop's usual grace, and half a minute.
_MAKE_WAY = timedelta(seconds=60)


class Looker:
    """Looks at everything that may be due on one state folder."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        recoverer: Recoverer,
        alerter: Alerter,
        clock: Clock,
        owner: Owner,
        bounds: Bounds,
        keep: Keep | None,
        presence: Presence | None,
        external_clock: bool,
        authorizer: Authorizer,
        follows_host: bool,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._alerter = alerter
        self._clock = clock
        self._keep = keep
        self._presence = presence
        self._external_clock = external_clock
        self._is_stopping = is_stopping
        self.agenda = Agenda()
        # Made besides what a look at the slots gives up: told of at the end of the look.
        self._passed_over: list[Missed] = []
        self._arming = Arming(
            state,
            by=owner.user,
            why=self._why_not_run,
            on_missed=self._passed_over.append,
        )
        self._pausing = Pausing(state, by=owner.user, routine_of=self._routine)
        self.needs = Needs(
            state, definitions=definitions, recoverer=recoverer, clock=clock, owner=owner
        )
        overlaps = Overlaps(state, owner=owner)
        self.claimer = Deliverer(
            state,
            definitions=definitions,
            arming=self._arming,
            needs=self.needs,
            overlaps=overlaps,
            recoverer=recoverer,
            clock=clock,
            owner=owner,
            alive_since=lambda: self._alive_since,
            saw=self.agenda.saw,
        )
        self._waker = Waker(
            state,
            definitions=definitions,
            needs=self.needs,
            clock=clock,
            owner=owner,
            bounds=bounds,
            asleep=self._slept_through,
            authorizer=authorizer,
        )
        self.taking_up = TakingUp(
            state,
            definitions=definitions,
            needs=self.needs,
            overlaps=overlaps,
            waker=self._waker,
            recoverer=recoverer,
            clock=clock,
            owner=owner,
            saw=self.agenda.saw,
            follows_host=follows_host,
            is_stopping=is_stopping,
        )
        self.seeing_through = SeeingThrough(
            state,
            definitions=definitions,
            needs=self.needs,
            overlaps=overlaps,
            recoverer=recoverer,
            taking_up=self.taking_up,
            clock=clock,
        )
        jobs = JobStore(state, clock=clock)
        self._drainer = Drainer(
            state,
            definitions=definitions,
            needs=self.needs,
            jobs=jobs,
            work=JobWork(state, jobs, clock=clock, owner=owner, here=host.here()),
            clock=clock,
            owner=owner,
            unstarted=self.taking_up.unstarted,
            is_stopping=is_stopping,
        )
        self._alive_since: datetime | None = None
        self._sleeps: tuple[tuple[datetime, datetime], ...] = ()
        self._last_now, self._last_awake = clock.now(), clock.awake()
        # Not in the first hour: a clock that is wrong at boot must not decide what is old.
        self._pruned_at = self._last_awake
        self._arm_again = True
        self._known: dict[str, Routine] | None = None
        self._faulty: dict[str, str] = {}
        self._held_up: set[str] = set()
        self._not_armed: frozenset[str] = frozenset()
        self._refused: dict[str, str] = {}
        self._superseding: list[tuple[Cancel, float]] = []
        self._held: dict[str | None, Switch] | None = None
        self._looked_at: datetime | None = None
        # As the last look left it: the agenda itself may be in use by the next one.
        self._next_on_agenda: datetime | None = None
        self._wakeup_waits = False
        # When a job falls due before the next look would be, as far as the last look knew.
        self.next_job: datetime | None = None
        self.tellings: list[Telling] = []
        self._repair_wakeups()

    @property
    def refused(self) -> tuple[str, ...]:
        """The routines that the store refused at the last look at them, sorted."""
        return tuple(sorted(self._refused.keys() | self._not_armed))

    def _repair_wakeups(self) -> None:
        # A crash between a wake-up and its hint: without the hint it would never be looked at.
        repaired = WakeupStore(self._state).repair()
        if repaired.hinted or repaired.corrupt:
            log.warning(
                "wakeups-repaired",
                extra={"hinted": repaired.hinted, "corrupt": ", ".join(repaired.corrupt)},
            )

    def look(
        self,
        now: datetime,
        names: Iterable[str] | None,
        until: datetime | None = None,
    ) -> Pass:
        """Look once: claim what is due and can start, and settle what is not to run.

        Args:
            now: The present.
            names: Only these routines' slots; None for those that may be due.
            until: What fell due later is left; None for the present.
        """
        self._note_time(now)
        edited = self._definitions.look(now)
        if edited or self._known is None:
            self._tell_edits()
        done = Pass()
        if edited or self._arm_again:
            self._arm(now, done)
        try:
            self.taking_up.recover(now, done, until=until)
            if self._alive_since is None:
                self._alive_since = now
            self._see_switches(now)
            if not self._is_stopping():
                self._claim(now, names, done, until)
                self._fire_wakeups(now, done, until)
                self._drain_jobs(now, done, until)
            self._give_way_back()
            if self._presence is not None:
                self._presence.faulty(self._refused)
                self._presence.beat(now, self._sleeps)
            self._prune(now)
            if not self._is_stopping():
                self.tellings += self._alerter.look(now, watched_since=self._watched_since())
        except BaseException:
            # Claimed and unstarted: held on to, they would wait for as long as we live.
            for ready in done.ready:
                ready.let_go()
            self.taking_up.unstarted.look_soon()
            raise
        done.missed += self._passed_over
        self._passed_over.clear()
        self._looked_at, self._next_on_agenda = now, self.agenda.next_look()
        return done

    def next_due(self, now: datetime) -> datetime | None:
        """Return when to look next, None if nothing is known of; see `Engine.next_due`."""
        seen = self._looked_at
        if seen is None or seen > now:
            # Never looked, or the clock was set back since.
            return now
        known = (
            self._next_on_agenda,
            seen if self._wakeup_waits else None,
            # Strictly after: a pause that holds one back may last for months.
            WakeupStore(self._state).next_due(seen),
            self._next_job_due(seen, now),
            self._next_retry(seen, now),
        )
        earliest = min((at for at in known if at is not None), default=None)
        if earliest is None:
            return None
        # What that look left waits for a session, a place or another process: said to be due now,
        # it would have the host look again without a pause.
        return max(now, earliest if earliest > seen else seen + LOOK_EVERY)

    def _next_job_due(self, seen: datetime, now: datetime) -> datetime | None:
        jobs = JobStore(self._state, clock=self._clock)
        if next(jobs.orders.queued(), None) is None and jobs.is_spread():
            return jobs.orders.next_later()
        pause = SwitchStore(self._state).held(None, now=now)
        if pause is None:
            return seen
        # Another process may end it before its time, and nobody tells us.
        again = seen + _LOOK_PAUSED
        return again if pause.until is None else min(again, pause.until)

    def _next_retry(self, seen: datetime, now: datetime) -> datetime | None:
        at = self.taking_up.unstarted.next_look
        if at is None or at <= self._last_awake:
            return None if at is None else seen
        return now + timedelta(seconds=at - self._clock.awake())

    def _note_time(self, now: datetime) -> None:
        """See whether the machine slept, or the clock was set (L3, L6)."""
        awake = self._clock.awake()
        passed = now - self._last_now
        slept = passed - timedelta(seconds=awake - self._last_awake)
        if passed > _SLEEP and self._alive_since is not None:
            self._sleeps = (*self._sleeps[-99:], (self._last_now, now))
            log.warning("absent", extra={"since": str(self._last_now), "until": str(now)})
        if slept < -_STEP and self._presence is not None:
            self._presence.set_back(now, -slept)
        if abs(slept) > _STEP:
            # Every next slot was worked out by a clock that no longer holds.
            self.agenda.rebuild(self._fired_here, now)
            # And a cursor may lie in the future now.
            self._arm_again = True
            self._pruned_at = awake
        self._last_now, self._last_awake = now, awake

    def _watched_since(self) -> datetime | None:
        if self._presence is None:
            return None
        return max([end for _, end in self._sleeps[-1:]], default=self._alive_since)

    @property
    def _fired_here(self) -> Mapping[str, Routine]:
        """The routines whose slots are looked for here; others would stay due for ever."""
        return {} if self._external_clock else self._definitions.routines

    def _routine(self, name: str) -> Routine | None:
        return self._definitions.routines.get(name)

    def _why_not_run(self, name: str, slot: datetime) -> Reason:
        """Return why *slot* of an armed routine has no record by now."""
        if self.agenda.saw(name, slot):
            # What does not wait was not claimed since its file said something else by then.
            return Reason.BUSY if name in self._held_up else Reason.NOT_ARMED
        return Reason.ASLEEP if self._slept_through(slot) else Reason.NO_SCHEDULER

    def _slept_through(self, instant: datetime) -> bool:
        return any(start <= instant <= end for start, end in self._sleeps)

    def _tell_edits(self) -> None:
        """Log what the files say otherwise than before; at the start everything is as it is."""
        before, self._known = self._known, dict(self._definitions.routines)
        if before is None:
            self._faulty = dict(self._definitions.faults)
            return
        for edit in edits_between(before, self._known):
            log.info(
                edit.word,
                extra={"routine": edit.routine, "keys": edit.keys or None, "digest": edit.digest},
            )
        faults = dict(self._definitions.faults)
        for name, why in faults.items():
            if self._faulty.get(name) != why:
                # All of them are behind routines.yaml, and go on as it was.
                stays = name in self._known if name else bool(self._known)
                log.warning(
                    "file-broken",
                    extra={"routine": name or None, "error": why, "still_armed": stays},
                )
        for name in self._faulty.keys() - faults.keys():
            # Of one that is gone nothing was mended: who watches the log would be reassured.
            word = "file-mended" if not name or name in self._known else "file-removed"
            log.info(word, extra={"routine": name or None})
        self._faulty = faults

    def _arm(self, now: datetime, done: Pass) -> None:
        failed = self._arming.arm(self._definitions, now)
        if self._arm_again:
            self.agenda.rebuild(self._fired_here, now)
        else:
            self.agenda.refresh(self._fired_here, now)
        # The cursors of those that failed are tried again at the next pass.
        self._arm_again = bool(failed)
        self._not_armed = frozenset(failed)
        # Another process that moves a cursor this moment does what we would have done.
        done.troubles |= {k: v for k, v in failed.items() if not isinstance(v, StoreBusy)}
        if self._presence is not None:
            armed = (r for r in self._fired_here.values() if r.enabled)
            faults = self._definitions.faults
            self._presence.arm(armed, faulty=faults)

    def _see_switches(self, now: datetime) -> None:
        """End pauses whose time has come, and look at everything again when one has ended."""
        switches = SwitchStore(self._state)
        try:
            ended = self._pausing.expire(now)
            held = {switch.routine: switch for switch in switches.all()}
        except StoreError as error:
            log.warning("switches-not-read", extra={"error": error.message})
            return
        # At the start what is paused is no news: `list` shows it.
        before = held if self._held is None else self._held
        before = before | {switch.routine: switch for switch in ended}
        for name in held.keys() ^ (self._held or {}).keys():
            # A turn that has paused something is told of now, and not within the minute.
            self._alerter.look_at(name)
        for switch in held.values():
            if before.get(switch.routine) != switch:
                self._tell_paused(switch)
        for switch in before.values():
            if switch.routine not in held:
                resumed = switches.resumed(switch.routine)
                self._tell_resumed(switch, resumed)
                self._passed_over += self._passed_over_by(switch, resumed, now)
        if before.keys() - held.keys():
            self.agenda.rebuild(self._fired_here, now)
        self._held = held

    def _tell_paused(self, switch: Switch) -> None:
        until = None if switch.until is None else format_instant(switch.until)
        facts = {"by": switch.by, "since": format_instant(switch.since), "until": until}
        name = switch.routine or "all"
        log.info("paused", extra={"routine": name, **facts, "reason": switch.reason or None})

    def _tell_resumed(self, switch: Switch, resumed: Resumed | None) -> None:
        by = None if resumed is None else resumed.by
        if switch.until is not None and (resumed is None or switch.until <= resumed.at):
            by = "until"
        since = format_instant(switch.since)
        log.info("resumed", extra={"routine": switch.routine or "all", "by": by, "since": since})

    def _passed_over_by(
        self, switch: Switch, resumed: Resumed | None, now: datetime
    ) -> list[Missed]:
        """Return what a pause passed over, as whoever ended it has recorded it."""
        if resumed is None:
            return []
        names = self._definitions.routines if switch.routine is None else (switch.routine,)
        found = CursorStore(self._state)
        of_each = (found.missed(name, until=now) for name in names)
        return [m for of_one in of_each for m in takewhile(lambda m: m.at == resumed.at, of_one)]

    def _claim(
        self,
        now: datetime,
        names: Iterable[str] | None,
        done: Pass,
        until: datetime | None,
    ) -> None:
        due = self.agenda.due(now, self._fired_here) if names is None else list(names)
        if not due or self._external_clock:
            return
        found = self.claimer.claim_due(due, now=now, until=until)
        done.ready += found.ready
        for name in found.done:
            routine = self._definitions.routines.get(name)
            if routine is None:
                self.agenda.forget(name)
            else:
                self.agenda.arm(routine, now)
        for name in (*found.waiting, *found.busy, *found.faults):
            routine = self._definitions.routines.get(name)
            if routine is not None:
                self.agenda.follow(routine, now)
        for name in (*found.waiting, *found.busy):
            self.agenda.wait(name, now)
        for name in found.faults:
            self.agenda.fault(name, now)
        for name in found.unarmed:
            # Another process saw it otherwise than we do: the next look brings its cursor up.
            self._arming.forget(name)
            self._arm_again = True
        if found.unstarted:
            self.taking_up.unstarted.look_soon()
        done.unstarted += found.unstarted
        done.settled += found.settled
        done.missed += found.missed
        self._supersede(found)
        self._held_up = (self._held_up - {*found.done, *found.unarmed}) | found.waiting.keys()
        dealt_with = {*found.done, *found.waiting, *found.busy, *found.unarmed}
        self._refused = {n: why for n, why in self._refused.items() if n not in dealt_with}
        self._refused |= {name: error.message for name, error in found.faults.items()}
        done.waiting |= found.waiting
        done.faults |= found.faults
        done.busy |= found.busy

    def deliver(self, routine: Routine, slot: datetime, now: datetime, done: Pass) -> Delivery:
        """Claim *slot* for an outside clock, or say what it is instead; see `Deliverer.deliver`."""
        try:
            return self.claimer.deliver(routine, slot, now=now, done=done)
        finally:
            self._supersede(done)

    def see_to(self, path: str, now: datetime, *, takes_place: bool) -> Seen:
        """Look at one claim that is seen through; see `SeeingThrough.look`."""
        self._give_way_back()
        return self.seeing_through.look(path, now, takes_place=takes_place)

    def _supersede(self, done: Pass) -> None:
        self._superseding += [(cancel, self._clock.awake()) for cancel in done.superseding]

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
                continue
            try:
                if CancelStore(self._state).withdraw(cancel):
                    log.warning("not-superseded", extra={"ref": cancel.ref, "newer": cancel.newer})
            except StoreError as error:
                # Tried again at the next look: the rest of this one does not wait for it.
                waiting.append((cancel, since))
                log.warning("not-withdrawn", extra={"ref": cancel.ref, "error": error.message})
        self._superseding = waiting

    def _fire_wakeups(self, now: datetime, done: Pass, until: datetime | None) -> None:
        woken = self._waker.fire_due(now, until=until)
        done.ready += woken.ready
        done.settled += woken.settled
        done.troubles |= woken.troubles
        done.held_back |= woken.held_back
        self._wakeup_waits = woken.waiting
        if woken.unstarted:
            self.taking_up.unstarted.look_soon()
        done.unstarted += woken.unstarted

    def _drain_jobs(self, now: datetime, done: Pass, until: datetime | None) -> None:
        owed, self.taking_up.owed_jobs = self.taking_up.owed_jobs, []
        self.next_job = None
        try:
            self._drainer.drain(owed, now, done, until=until)
            orders = JobStore(self._state, clock=self._clock).orders
            at = orders.next_later(until=now + LOOK_EVERY)
            # What is due and was left, as a name that can't be removed, is for the next look.
            self.next_job = at if at is not None and at > now else None
        except StoreError as error:
            # A queue that can't be read keeps no routine from its slot.
            log.error("jobs-not-read", extra={"error": error.message})  # noqa: TRY400
            done.troubles["jobs"] = error
            if owed:
                self.taking_up.unstarted.look_soon()

    def _prune(self, now: datetime) -> None:
        awake = self._clock.awake()
        if self._keep is None or awake - self._pruned_at < _PRUNE_EVERY.total_seconds():
            return
        self._pruned_at = awake
        try:
            RetentionStore(self._state, clock=self._clock).prune(
                self._keep, now=now, everything=False
            )
        except StoreError as error:
            log.warning("not-pruned", extra={"error": error.message})
