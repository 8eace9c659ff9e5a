"""Wake-ups as a program manages them (PROMISES W7): made once under its key, changed by revision.

    wakeups = engine.wakeups()
    made = await wakeups.create("chat-7", prompt="Look again.", key="deploy-4711", in_="10m")
    await wakeups.pause(made.wakeup.id, revision=made.wakeup.revision)

Each call is asked of the host's hook twice: before anything is read, and with the concrete wake-up.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from routines.domain.durations import format_span
from routines.domain.names import check_session
from routines.domain.outcome import one_line
from routines.domain.record import Event, Record
from routines.domain.wake_managing import (
    LONGEST_KEY,
    Change,
    Company,
    fingerprint_of,
    paused,
    resumed,
    updated,
)
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import Bounds, Wakeup
from routines.domain.zones import as_utc
from routines.engine.authorizing import Authorizer
from routines.engine.clock import EngineClock
from routines.engine.off_loop import in_thread
from routines.engine.unparking import unpark
from routines.engine.wake_snapshots import WakeupSnapshot, snapshot
from routines.errors import NotAuthorized, RoutinesError, UnknownWakeup, UsageError, WakeupConflict
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wake_managing import Known, ManagedStore

# A page that a program may hold in one answer.
MOST_A_PAGE = 100


@dataclass(frozen=True, slots=True)
class Created:
    """What came of `create`.

    Attributes:
        wakeup: It, as it is now.
        new: Whether it was made now; False if the same had been asked before.
    """

    wakeup: WakeupSnapshot
    new: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, by id.

    Attributes:
        wakeups: At most as many as asked for.
        after: What to ask for the next part with, or None if this was the last.
    """

    wakeups: tuple[WakeupSnapshot, ...]
    after: str | None


class Wakeups:
    """The wake-ups of one state folder, for the program that runs the engine.

    All methods may be called at once and from several processes. What is given as a time may be
    text as `wake` takes it, a `timedelta` (`in_`, `every`) or an aware `datetime` (`at`, `anchor`).
    """

    def __init__(
        self,
        state: State,
        *,
        caller: str,
        by: str,
        turn: str | None,
        clock: EngineClock,
        zone: str,
        bounds: Bounds,
        authorizer: Authorizer,
        on_change: Callable[[], None],
    ) -> None:
        self._state = state
        self._caller = caller
        self._by = by
        self._turn = turn
        self._clock = clock
        self._zone = zone
        self._bounds = bounds
        self._authorizer = authorizer
        self._on_change = on_change
        self._store = ManagedStore(state)

    async def create(
        self,
        session: str,
        *,
        prompt: str,
        key: str | None = None,
        fingerprint: str | None = None,
        in_: str | timedelta | None = None,
        at: str | datetime | None = None,
        every: str | timedelta | None = None,
        cron: str | None = None,
        tz: str | None = None,
        anchor: datetime | None = None,
        fresh: bool = False,
    ) -> Created:
        """Make a wake-up of *session*; exactly one of *in_*, *at*, *every*, *cron*.

        Asked again under the same key it is answered with what is there, whatever has become of it,
        also after it has fired or was cancelled, and before its time is judged.

        Args:
            session: Whose.
            prompt: What is told.
            key: The caller's own id, at most 200 printable characters; without one nothing can be
                repeated.
            fingerprint: What the content is known by; by default a digest of all arguments. Give
                one if an argument changes from call to call, as an instant worked out from now.
            in_: A span from now.
            at: An instant.
            every: A span between firings.
            cron: A cron expression.
            tz: An IANA name; by default the workspace's.
            anchor: Where *every* is counted from; by default now.
            fresh: Whether each firing gets a new conversation.

        Raises:
            UsageError: An argument can't be used; it says which. Nothing was scheduled.
            WakeupConflict: The key stands for other content; its `present` says which.
            WakeupRefused: A guardrail says no. Nothing was scheduled.
            NotAuthorized, AuthorizationUnavailable: The host's hook. Nothing was scheduled.
            StoreError: Nothing was scheduled.
        """
        await self._authorizer.check("create", self._caller, None)
        request = WakeRequest(
            prompt=prompt,
            in_=_words(in_),
            at=_words(at),
            every=_words(every),
            cron=cron,
            tz=tz,
            session=check_session(session),
            by=self._by,
            turn=self._turn,
            can_wait=False,
            anchor=_checked_instant(anchor),
            key=secrets.token_hex(16) if key is None else _checked_key(key),
            fresh=fresh,
        )
        request = _with_fingerprint(request, fingerprint)
        now = self._clock.now()
        asked: dict[str, Any] = {"now": now, "bounds": self._bounds, "zone_key": self._zone}
        try:
            made = await self._do(lambda: self._store.drafted(request, **asked))
        except WakeupConflict as error:
            # Who may not see what is there learns nothing of it from a key that is taken.
            if error.present is not None:
                await self._authorizer.check("create", self._caller, error.present.to_json())
            raise
        await self._authorizer.check("create", self._caller, made.wakeup.to_json())
        made = await self._do(lambda: self._store.create(request, **asked))
        self._on_change()
        return Created(await self._shown(made.wakeup.session, made.wakeup.id), made.new)

    async def get(self, wakeup_id: str, *, session: str | None = None) -> WakeupSnapshot:
        """Return a wake-up as it is now.

        Args:
            wakeup_id: Which.
            session: Whose, if that is known; it is then found at once.

        Raises:
            UsageError: *wakeup_id* is no text.
            UnknownWakeup: There is none, or nothing is kept of it.
            NotAuthorized, AuthorizationUnavailable: The host's hook.
        """
        known = await self._found("get", wakeup_id, session)
        return snapshot(known, now=self._clock.now())

    async def list(
        self,
        *,
        session: str | None = None,
        after: str | None = None,
        limit: int = MOST_A_PAGE,
        ended: bool = False,
    ) -> Page:
        """Return wake-ups by id, at most *limit* (100); those that the hook refuses are left out.

        Args:
            session: Whose; None for all.
            after: What the page before said.
            limit: How many at most.
            ended: Whether those that have ended too, as long as they are kept.

        Raises:
            NotAuthorized, AuthorizationUnavailable: The host's hook.
        """
        await self._authorizer.check("list", self._caller, None)
        if not 1 <= limit <= MOST_A_PAGE:
            raise UsageError(f"a page has 1 to {MOST_A_PAGE} wake-ups, and not {limit}")
        ids = await self._do(lambda: self._store.ids(session, ended=ended))
        shown: list[WakeupSnapshot] = []
        left = [pair for pair in ids if after is None or pair[0] > after]
        for at, (wakeup_id, folder) in enumerate(left):
            known = await self._do(self._store.at, folder, wakeup_id)
            if known is None or (session is not None and known.wakeup.session != session):
                continue
            try:
                await self._authorizer.check("list", self._caller, known.wakeup.to_json())
            except NotAuthorized:
                continue
            shown.append(snapshot(known, now=self._clock.now()))
            if len(shown) == limit:
                return Page(tuple(shown), wakeup_id if at + 1 < len(left) else None)
        return Page(tuple(shown), None)

    async def update(
        self,
        wakeup_id: str,
        *,
        revision: int,
        session: str | None = None,
        prompt: str | None = None,
        in_: str | timedelta | None = None,
        at: str | datetime | None = None,
        every: str | timedelta | None = None,
        cron: str | None = None,
        tz: str | None = None,
        anchor: datetime | None = None,
        fresh: bool | None = None,
    ) -> WakeupSnapshot:
        """Change what is given and leave the rest; a firing that is taken keeps its revision.

        The anchor of *every* stays unless one is given, and a time that is named again as it was
        puts nothing off.

        Raises:
            UsageError: An argument can't be used; it says which.
            UnknownWakeup: There is none.
            WakeupConflict: It is of another revision, or has ended; its `present` says which.
            WakeupRefused: A guardrail says no.
            NotAuthorized, AuthorizationUnavailable: The host's hook.
            StoreError: The store. In all these cases nothing was changed.
        """
        change = Change(
            prompt=prompt,
            in_=_words(in_),
            at=_words(at),
            every=_words(every),
            cron=cron,
            tz=tz,
            anchor=_checked_instant(anchor),
            fresh=fresh,
        )
        now = self._clock.now()
        return await self._changed(
            "update",
            wakeup_id,
            session,
            revision,
            lambda one, company: updated(one, change, company, now=now, by=self._by),
            now,
        )

    async def pause(
        self, wakeup_id: str, *, revision: int, session: str | None = None
    ) -> WakeupSnapshot:
        """Let it fire no more until it is resumed; a firing that is taken goes on.

        Raises:
            As `update`.
        """
        now = self._clock.now()
        return await self._changed(
            "pause",
            wakeup_id,
            session,
            revision,
            lambda one, _company: paused(one, now=now, by=self._by),
            now,
        )

    async def resume(
        self, wakeup_id: str, *, revision: int, session: str | None = None
    ) -> WakeupSnapshot:
        """End a pause.

        A one-shot that fell due meanwhile fires now; what a recurring one passed over is counted in
        its next firing.

        Raises:
            As `update`.
        """
        now = self._clock.now()
        return await self._changed(
            "resume",
            wakeup_id,
            session,
            revision,
            lambda one, company: resumed(one, company, now=now, by=self._by),
            now,
        )

    async def recover(
        self, wakeup_id: str, *, revision: int, session: str | None = None
    ) -> WakeupSnapshot:
        """Let a parked firing run after all.

        Raises:
            UnknownWakeup: There is none.
            WakeupConflict: It is of another revision, or nothing of it is parked.
            NotAuthorized, AuthorizationUnavailable: The host's hook.
        """
        _checked_revision(revision)
        known = await self._found("recover", wakeup_id, session)
        if known.wakeup.revision != revision:
            raise self._mismatch(known, revision)
        firing = known.firing
        done = None
        if firing is not None and firing.last == Event.PARKED.value:
            done = await self._do(self._unpark, firing)
        if not done:
            raise self._with_present(
                WakeupConflict(wakeup_id, known.wakeup.revision, "has no firing that is parked"),
                known,
            )
        self._on_change()
        return await self._shown(known.wakeup.session, wakeup_id)

    def _unpark(self, firing: Record) -> bool:
        claims = ClaimStore(self._state)
        return unpark(
            claims, firing.path, at=self._clock.now(), by=self._by, person=self._turn is None
        )

    async def cancel(
        self, wakeup_id: str, *, revision: int, session: str | None = None
    ) -> WakeupSnapshot:
        """End it: what is pending never fires, a firing that has not started is cancelled too.

        A firing that runs goes on. Repeating is harmless.

        Raises:
            As `update`.
        """
        _checked_revision(revision)
        known = await self._found("cancel", wakeup_id, session)
        now, whose = self._clock.now(), known.wakeup.session
        known = await self._do(
            lambda: self._store.cancel(whose, wakeup_id, revision, by=self._by, at=now),
            conflicts_of=known,
        )
        firing = known.firing
        if firing is not None and firing.end is None and firing.started is None:
            await self._do(lambda: self._cancel_firing(firing, now))
        self._on_change()
        return await self._shown(whose, wakeup_id, known)

    def _cancel_firing(self, firing: Record, now: datetime) -> None:
        CancelStore(self._state).ask(
            firing.ref, by=self._by, person=self._turn is None, at=now, reason="cancelled"
        )

    # Steps --------------------------------------------------------------------------------------

    async def _changed(
        self,
        action: str,
        wakeup_id: str,
        session: str | None,
        revision: int,
        make: Callable[[Wakeup, Company], Wakeup],
        now: datetime,
    ) -> WakeupSnapshot:
        _checked_id(wakeup_id)
        _checked_revision(revision)
        await self._authorizer.check(action, self._caller, None)
        known = await self._do(self._read, wakeup_id, session)
        whose = known.wakeup.session
        asked: dict[str, Any] = {
            "now": now,
            "bounds": self._bounds,
            "zone_key": self._zone,
        }
        try:
            following = await self._do(
                lambda: self._store.changed(whose, wakeup_id, revision, make, **asked)
            )
        except RoutinesError as error:
            # Who may not even see it learns nothing of it from what is wrong with the request.
            await self._authorizer.check(action, self._caller, known.wakeup.to_json())
            if isinstance(error, WakeupConflict):
                raise self._with_present(error, known) from None
            raise
        await self._authorizer.check(action, self._caller, following.to_json())
        await self._do(
            # The revision is what was decided about: another one is a conflict.
            lambda: self._store.change(whose, wakeup_id, revision, make, **asked),
            conflicts_of=known,
        )
        self._on_change()
        return await self._shown(whose, wakeup_id)

    async def _found(self, action: str, wakeup_id: str, session: str | None) -> Known:
        _checked_id(wakeup_id)
        await self._authorizer.check(action, self._caller, None)
        known: Known = await self._do(self._read, wakeup_id, session)
        await self._authorizer.check(action, self._caller, known.wakeup.to_json())
        return known

    def _read(self, wakeup_id: str, session: str | None) -> Known:
        whose = self._store.find_session(wakeup_id) if session is None else session
        known = None if whose is None else self._store.known(whose, wakeup_id)
        if known is None:
            raise UnknownWakeup(wakeup_id)
        return known

    async def _shown(
        self, session: str, wakeup_id: str, otherwise: Known | None = None
    ) -> WakeupSnapshot:
        known = await self._do(self._store.known, session, wakeup_id)
        known = known or otherwise
        if known is None:
            raise UnknownWakeup(wakeup_id)
        return snapshot(known, now=self._clock.now())

    async def _do(
        self, work: Callable[..., Any], *args: Any, conflicts_of: Known | None = None
    ) -> Any:
        """Do store work in a thread of its own: it may have to wait for a lock, and nobody else."""
        try:
            return await in_thread(work, *args)
        except WakeupConflict as error:
            known = await in_thread(self._known_now, error.wakeup_id, conflicts_of)
            raise self._with_present(error, known) from None

    def _known_now(self, wakeup_id: str, known: Known | None) -> Known | None:
        session = self._store.find_session(wakeup_id) if known is None else known.wakeup.session
        return (None if session is None else self._store.known(session, wakeup_id)) or known

    def _mismatch(self, known: Known, revision: int) -> WakeupConflict:
        found = known.wakeup.revision
        why = f"is of revision {found}, and {revision} was expected"
        return self._with_present(WakeupConflict(known.wakeup.id, found, why), known)

    def _with_present(self, error: WakeupConflict, known: Known | None) -> WakeupConflict:
        if known is not None:
            error.present = snapshot(known, now=self._clock.now())
            error.revision = known.wakeup.revision
        return error


def _words(value: str | timedelta | datetime | None) -> str | None:
    if isinstance(value, timedelta):
        return format_span(value)
    return as_utc(value).isoformat() if isinstance(value, datetime) else value


def _checked_instant(anchor: datetime | None) -> datetime | None:
    if anchor is None:
        return None
    if not isinstance(anchor, datetime):
        raise UsageError(
            f"anchor is an aware datetime, and not {_shown_value(anchor)}",
            hint="give a datetime with a time zone",
        )
    if anchor.tzinfo is None:
        raise UsageError(f"anchor {anchor} has no time zone", hint="give an aware datetime")
    return as_utc(anchor)


def _checked_key(key: str) -> str:
    # It stands in messages and logs: a line break or an escape in it would forge what they say.
    if (
        not isinstance(key, str)
        or not key.strip()
        or len(key) > LONGEST_KEY
        or not key.isprintable()
    ):
        raise UsageError(
            f"a key is text of 1 to {LONGEST_KEY} printable characters, and not {_shown_value(key)}"
        )
    return key


def _checked_id(wakeup_id: str) -> str:
    if not isinstance(wakeup_id, str):
        raise UsageError(f"wakeup_id is the text of an id, and not {_shown_value(wakeup_id)}")
    return wakeup_id


def _checked_revision(revision: int) -> int:
    # 1.0 and True are equal to 1: what was computed wrongly would pass for what was read.
    if not isinstance(revision, int) or isinstance(revision, bool):
        raise UsageError(
            f"revision is a whole number, and not {_shown_value(revision)}",
            hint="give the `revision` of the snapshot that was decided on",
        )
    return revision


def _shown_value(value: object) -> str:
    return one_line(repr(value), most=60)


def _with_fingerprint(request: WakeRequest, given: str | None) -> WakeRequest:
    return replace(request, fingerprint=fingerprint_of(request) if given is None else given)
