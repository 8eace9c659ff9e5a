"""From pending to claimed: wake-ups that are due (PROMISES W2 to W5)."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from routines.domain.clock import Clock
from routines.domain.decoding import whole_or
from routines.domain.names import format_instant, routine_of
from routines.domain.outcome import SHOWN, Outcome, Reason, one_line
from routines.domain.record import Owner, Record
from routines.domain.wake_firing import Fire, Skip, Wait, plan_busy
from routines.domain.wake_texts import wrap
from routines.domain.wakeup import Bounds, Wakeup
from routines.domain.zones import zone
from routines.engine.authorizing import Authorizer
from routines.engine.definitions import Definitions
from routines.engine.needs import Needs, Ready
from routines.engine.passes import trouble
from routines.engine.recipients import reply_to
from routines.engine.session_work import work_in_session
from routines.engine.work import Work
from routines.errors import RoutinesError, StoreBusy, StoreError, UnknownAgent
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.places import Room
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State
from routines.store.wake_firings import FiringStore
from routines.store.wake_hints import Hint
from routines.store.wakeups import WakeupStore

log = logging.getLogger("routines")


@dataclass(slots=True)
class Woken:
    """What a look at the wake-ups came to.

    Attributes:
        ready: Turns to be started.
        settled: Records that ended without a turn.
        held_back: Those that are due and wait, with their routine: for their session (put off), a
            place, or an answer.
        unstarted: Paths of claims that were made and have to wait for their session after all.
        waiting: Whether one is left due, for it has no place, or no answer yet.
        troubles: Those that could not be fired, with why.
    """

    ready: list[Ready] = field(default_factory=list)
    settled: list[Record] = field(default_factory=list)
    held_back: dict[str, str | None] = field(default_factory=dict)
    unstarted: list[str] = field(default_factory=list)
    waiting: bool = False
    troubles: dict[str, RoutinesError] = field(default_factory=dict)


class Waker:
    """Fires the wake-ups of one state folder."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        needs: Needs,
        clock: Clock,
        owner: Owner,
        bounds: Bounds,
        asleep: Callable[[datetime], bool],
        authorizer: Authorizer,
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._needs = needs
        self._clock = clock
        self._owner = owner
        self._bounds = bounds
        self._asleep = asleep
        self._authorizer = authorizer
        self._wakeups = WakeupStore(state)
        self._firings = FiringStore(state)
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)

    def fire_due(self, now: datetime, *, until: datetime | None = None) -> Woken:
        """Claim what is due and can start; settle or put off what can't.

        One wake-up that can't be fired keeps no other from it.

        Args:
            now: The present.
            until: What falls due later is left; None for the present.
        """
        woken = Woken()
        for hint in self._wakeups.due(now if until is None else min(until, now)):
            try:
                self._one(hint, now, woken)
            except StoreBusy:
                # Its session's agent is setting or cancelling one this moment: next second.
                woken.waiting = True
            except (RoutinesError, OSError) as error:
                woken.troubles[hint.id] = trouble(error)
                log.error(  # noqa: TRY400 - the cause is in the message
                    "wake-failed", extra={"wakeup": hint.id, "error": str(error)}
                )
        return woken

    def _one(self, hint: Hint, now: datetime, woken: Woken) -> None:
        place = zone(self._definitions.zone)
        planned = self._firings.plan(
            hint, claims=self._claims, now=now, bounds=self._bounds, place=place
        )
        if planned is None:
            return
        wakeup, due = planned
        if self._needs.is_paused(routine_of(wakeup.session), now):
            # Its routine is paused, or everything: it stays pending as it is.
            return
        if isinstance(due, Fire):
            busy = self._needs.busy(wakeup.session_at(due.instant))
            if busy is not None:
                self._busy(wakeup, plan_busy(wakeup, due, now=now), due, now, woken)
                return
            said = self._authorizer.firing(wakeup, due.instant)
            if said is None:
                # It is being asked, or gave no answer and is asked again: it stays pending.
                woken.held_back[wakeup.id] = routine_of(wakeup.session)
                woken.waiting = True
                return
            decision, at = said
            if not decision.allowed:
                refused = Skip(due.instant, Reason.REFUSED, due.passed)
                self._skip(wakeup, refused, now, woken, detail=decision.reason or "not authorized")
                self._authorizer.done_with(wakeup, due.instant)
                return
            self._fire(wakeup, due, now, woken, authorized_at=at)
        elif isinstance(due, Skip):
            self._skip(wakeup, due, now, woken)
        elif due.limit:
            self._firings.postpone(
                wakeup.session,
                wakeup.id,
                wakeup.next_at,
                until=due.until,
                claims=self._claims,
                at=now,
            )

    def _busy(
        self, wakeup: Wakeup, answer: Skip | Wait, due: Fire, now: datetime, woken: Woken
    ) -> None:
        if isinstance(answer, Skip):
            self._skip(wakeup, answer, now, woken)
            return
        self._firings.defer(
            wakeup.session, wakeup.id, due.instant, until=answer.until, claims=self._claims, at=now
        )
        woken.held_back[wakeup.id] = routine_of(wakeup.session)
        log.info("deferred", extra={"wakeup": wakeup.id, "session": wakeup.session})

    def _skip(
        self,
        wakeup: Wakeup,
        due: Skip,
        now: datetime,
        woken: Woken,
        *,
        detail: str | None = None,
        outcome: Outcome = Outcome.SKIPPED,
    ) -> None:
        if detail is None:
            detail = "its session is busy" if due.reason is Reason.BUSY else "the day's limit"
        record = self._firings.settle_skipped(
            wakeup.session,
            wakeup.id,
            due,
            claims=self._claims,
            at=now,
            detail=detail,
            outcome=outcome,
            extra={"by": wakeup.asked_by, "owner": self._owner.to_json()},
            revision=wakeup.revision,
        )
        if record is not None:
            woken.settled.append(record)
            if due.reason is Reason.BUSY and not wakeup.recurs:
                log.error("wake-given-up", extra={"ref": record.ref, "session": wakeup.session})

    def _fire(
        self, wakeup: Wakeup, due: Fire, now: datetime, woken: Woken, *, authorized_at: datetime
    ) -> None:
        try:
            work = self._work(wakeup.session, wakeup.prompt)
        except UnknownAgent as error:
            # Left pending it would be tried each second for ever, and nobody would be told.
            absent = Skip(due.instant, Reason.NOT_FOUND, due.passed)
            self._skip(wakeup, absent, now, woken, detail=error.message, outcome=Outcome.FAILED)
            self._authorizer.done_with(wakeup, due.instant)
            return
        room = self._needs.room_for(work)
        if not isinstance(room, Room):
            woken.held_back[wakeup.id] = routine_of(wakeup.session)
            woken.waiting = True
            return
        try:
            claim = self._firings.take(
                wakeup.session,
                wakeup.id,
                due.instant,
                claims=self._claims,
                at=now,
                bounds=self._bounds,
                place=zone(self._definitions.zone),
                passed=due.passed,
                extra={
                    "routine": work.routine,
                    "tz": wakeup.tz,
                    "agent": work.agent_name,
                    "prompt": one_line(wakeup.prompt, most=SHOWN),
                    "authorized_at": format_instant(authorized_at)
                    if self._authorizer.is_asked()
                    else None,
                    "owner": self._owner.to_json(),
                },
                revision=wakeup.revision,
                patience=0.0,
            )
        except BaseException:
            room.let_go()
            raise
        if claim is None:
            room.let_go()
            return
        self._authorizer.done_with(wakeup, due.instant)
        try:
            work = self.work_of(claim.record, now)
            lease = self._sessions.take(
                wakeup.session_at(due.instant), clock=self._clock, own_claim=claim.record.path
            )
        except BaseException:
            # Claimed and unstarted: held on to, it would wait for as long as we live.
            room.let_go()
            claim.let_go()
            woken.unstarted.append(claim.record.path)
            raise
        if isinstance(lease, Lease):
            woken.ready.append(Ready(claim, lease, room, work))
            return
        room.let_go()
        claim.let_go()
        woken.unstarted.append(claim.record.path)

    def is_sound(self, record: Record) -> bool:
        """Return whether a claim holds its wake-up, by its digest; one that does not is kept aside.

        Somebody has written in it, or the disk has: a text that nobody set is not delivered (W8).
        """
        if Wakeup.from_json(record.claim.get("wakeup")) is not None:
            return True
        log.error("wake-corrupt", extra={"ref": record.ref, "path": record.path})
        with contextlib.suppress(OSError):
            files.copy_aside(self._state.at(record.path))
        return False

    def work_of(self, record: Record, now: datetime) -> Work:
        """Return what the woken turn of a claimed firing is to do, its prompt wrapped (W5).

        Raises:
            StoreError: The claim does not hold its wake-up any more.
        """
        wakeup = Wakeup.from_json(record.claim.get("wakeup"))
        if wakeup is None:
            raise StoreError(f"{record.path} does not say which wake-up it is for")
        missed = record.claim.get("missed")
        prompt = wrap(
            wakeup,
            now=now,
            reply_to=reply_to(
                wakeup.session, self._definitions.routines, self._definitions.deliver
            ),
            late_because="the machine was asleep" if self._asleep(wakeup.next_at) else "",
            passed=whole_or(missed.get("count"), 0) if isinstance(missed, dict) else 0,
        )
        return self._work(wakeup.session, prompt)

    def _work(self, session: str, prompt: str) -> Work:
        return work_in_session(
            session, prompt, definitions=self._definitions, sessions=self._sessions
        )
