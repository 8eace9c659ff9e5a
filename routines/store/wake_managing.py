"""Wake-ups that a program manages: made once under its own key, changed by revision (PROMISES W7).

What is made under a key is kept when it has ended, as `<id>.json.ended`: asked for again, by a
caller who never got the answer, it is told from what is new, and not made a second time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from routines.domain.record import Record
from routines.domain.wake_firing import after_firing
from routines.domain.wake_managing import Company
from routines.domain.wake_request import AlreadySet, WakeRequest, check_request
from routines.domain.wakeup import Bounds, Wakeup, is_id, keyed_id
from routines.domain.zones import day_of, zone
from routines.errors import StoreError, UnknownWakeup, WakeupConflict
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wake_entries import Entries, occurrence_of, session_folder


@dataclass(frozen=True, slots=True)
class Known:
    """What the files say of a wake-up.

    Attributes:
        wakeup: As it is pending or paused, or was when it ended.
        pending: Whether more is to come of it.
        firing: The record of its newest firing, or None.
        previous: The record of the firing before that, or None.
        refusal: The record of the newest firing that was refused, or None.
    """

    wakeup: Wakeup
    pending: bool
    firing: Record | None = None
    previous: Record | None = None
    refusal: Record | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a creation.

    Attributes:
        wakeup: It.
        new: Whether it was made now; else the same caller had made it before.
    """

    wakeup: Wakeup
    new: bool


class ManagedStore:
    """The wake-ups of one state folder, as a program manages them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._entries = Entries(state)
        self._claims = ClaimStore(state)

    # Reading --------------------------------------------------------------------------------

    def known(self, session: str, wakeup_id: str) -> Known | None:
        """Return what is known of a wake-up of *session*, or None. Changes nothing."""
        if not is_id(wakeup_id):
            return None
        folder = session_folder(session)
        found = self._entries.peek(folder, wakeup_id)
        wakeup = found or self._entries.ended(folder, wakeup_id)
        if wakeup is None or wakeup.session != session:
            return None
        return self._known(wakeup, pending=found is not None)

    def _known(self, wakeup: Wakeup, *, pending: bool) -> Known:
        # By name, and not by looking through the past: the entry says which were the newest.
        newest = self._record(wakeup, wakeup.next_at)
        previous = self._record(wakeup, wakeup.last_at)
        if newest is None:
            newest, previous = previous, self._record(wakeup, wakeup.previous_at)
        refusal = self._record(wakeup, wakeup.refused_at)
        if newest is not None and newest.occurrence.instant == wakeup.next_at:
            # The firing of a one-shot that is claimed: nothing more is to come of it.
            pending = pending and wakeup.recurs
            if newest.reason == "refused":
                refusal = newest
        return Known(wakeup, pending, newest, previous, refusal)

    def _record(self, wakeup: Wakeup, instant: datetime | None) -> Record | None:
        if instant is None:
            return None
        return self._claims.read_path(occurrence_of(wakeup, instant).claim_path)

    def find_session(self, wakeup_id: str) -> str | None:
        """Return the session that a wake-up is of, pending or ended; None if there is none."""
        if not is_id(wakeup_id):
            return None
        for folder in self._entries.folders():
            found = self._entries.peek(folder, wakeup_id) or self._entries.ended(folder, wakeup_id)
            if found is not None:
                return found.session
        return None

    def ids(self, session: str | None, *, ended: bool) -> list[tuple[str, str]]:
        """Return id and folder of what there is, by id: of one session or of all.

        Args:
            session: Whose, or None.
            ended: Whether those that have ended too, as far as they are kept.
        """
        found = set(self._entries.all_names())
        if ended:
            found |= set(self._entries.all_ended())
        folder = None if session is None else session_folder(session)
        return sorted((one, where) for where, one in found if folder in (None, where))

    def at(self, folder: str, wakeup_id: str) -> Known | None:
        """Return what is known of one that `ids` named; None if it has gone meanwhile."""
        found = self._entries.peek(folder, wakeup_id)
        wakeup = found or self._entries.ended(folder, wakeup_id)
        return None if wakeup is None else self._known(wakeup, pending=found is not None)

    # Making ---------------------------------------------------------------------------------

    def drafted(
        self, request: WakeRequest, *, now: datetime, bounds: Bounds, zone_key: str
    ) -> Made:
        """Return what `create` would make, and change nothing.

        Raises:
            WakeupConflict, WakeupRefused: As `create`.
        """
        session, wakeup_id = _named(request)
        before = self._before(session, wakeup_id, request)
        if before is not None:
            return Made(before, new=False)
        pending = self._pending(session)
        return Made(self._checked(request, wakeup_id, now, pending, bounds, zone_key), new=True)

    def create(self, request: WakeRequest, *, now: datetime, bounds: Bounds, zone_key: str) -> Made:
        """Make what is asked for, once for one key: it is on the disk on return.

        The same key again is answered from what is there, before its time is judged: that may have
        passed while the first answer was on its way.

        Raises:
            WakeupConflict: The key stands for other content.
            WakeupRefused: A guardrail says no. Nothing was scheduled.
            StoreBusy: The session's wake-ups are being changed. Nothing was scheduled.
            NotDurable: It could not be written. Nothing was scheduled.
        """
        session, wakeup_id = _named(request)
        with self._entries.locked(session_folder(session)):
            before = self._before(session, wakeup_id, request)
            if before is not None:
                # Who says "already" answers for it: the first may have died before its sync.
                self._entries.sync(self._state.at("wakeups", session_folder(session)))
                return Made(before, new=False)
            pending = self._entries.readable(session)
            wanted = self._checked(request, wakeup_id, now, pending, bounds, zone_key)
            if not self._entries.add(wanted):
                raise StoreError(
                    f"{self._entries.path(session_folder(session), wakeup_id)} is in the way",
                    hint="nothing was scheduled; `routines doctor` says what is wrong with it",
                )
            return Made(wanted, new=True)

    def _pending(self, session: str) -> list[Wakeup]:
        """Return what is pending in *session*, without its lock: it may change meanwhile."""
        mine = (self._entries.peek(session_folder(session), one) for one in self._ids(session))
        return [one for one in mine if one and self._entries.is_pending(one, session)]

    def _ids(self, session: str) -> list[str]:
        return self._entries.ids(session_folder(session))

    def _before(self, session: str, wakeup_id: str, request: WakeRequest) -> Wakeup | None:
        known = self.known(session, wakeup_id)
        if known is None:
            if self._entries.is_ended(session_folder(session), wakeup_id):
                # It was made and has ended: its key is not free, whatever has become of its file.
                raise StoreError(
                    f"what was made under the key {request.key!r} can't be read",
                    hint="nothing was scheduled; its file ends in .json.ended",
                )
            return None
        if known.wakeup.fingerprint != request.fingerprint:
            raise WakeupConflict(
                wakeup_id,
                known.wakeup.revision,
                f"was made under the key {request.key!r} with other content",
            )
        return known.wakeup

    def _checked(
        self,
        request: WakeRequest,
        wakeup_id: str,
        now: datetime,
        pending: list[Wakeup],
        bounds: Bounds,
        zone_key: str,
    ) -> Wakeup:
        session = str(request.session)
        found = check_request(
            request,
            id=wakeup_id,
            now=now,
            pending=pending,
            fired_today=self._entries.fired(session, *day_of(now, zone(zone_key))),
            bounds=bounds,
            zone_key=zone_key,
        )
        # Under a key of its own nothing is taken for another.
        return found.wakeup if isinstance(found, AlreadySet) else found

    # Changing -------------------------------------------------------------------------------

    def changed(
        self,
        session: str,
        wakeup_id: str,
        revision: int,
        make: Callable[[Wakeup, Company], Wakeup],
        *,
        now: datetime,
        bounds: Bounds,
        zone_key: str,
    ) -> Wakeup:
        """Return what `change` would make of it, and change nothing; it raises what that does."""
        folder = session_folder(session)
        found = self._entries.peek(folder, wakeup_id) if is_id(wakeup_id) else None
        wakeup = self._expected(session, wakeup_id, revision, found)
        pending = self._pending(session)
        return make(wakeup, self._company(wakeup, pending, now, bounds, zone_key))

    def change(
        self,
        session: str,
        wakeup_id: str,
        revision: int,
        make: Callable[[Wakeup, Company], Wakeup],
        *,
        now: datetime,
        bounds: Bounds,
        zone_key: str,
    ) -> Wakeup:
        """Put what *make* makes of a pending wake-up in its place; it is on the disk on return.

        Args:
            session: Whose.
            wakeup_id: Which.
            revision: What it is expected to be.
            make: Returns its next revision, by what else there is; or raises.
            now: The present.
            bounds: The guardrails.
            zone_key: The workspace's zone.

        Raises:
            UnknownWakeup: There is none of that id.
            WakeupConflict: It is of another revision, or has ended. Nothing was changed.
            WakeupRefused: A guardrail says no. Nothing was changed.
            StoreBusy: The session's wake-ups are being changed. Nothing was changed.
            NotDurable: It could not be written. It stays as it was, or is as it was asked to be.
        """
        folder = session_folder(session)
        with self._entries.locked(folder):
            found = self._entries.hold(folder, wakeup_id) if is_id(wakeup_id) else None
            wakeup = self._expected(session, wakeup_id, revision, found)
            pending = self._entries.readable(session)
            following = make(wakeup, self._company(wakeup, pending, now, bounds, zone_key))
            if following != found and found is not None:
                self._entries.move_on(found, following)
            return following

    def _expected(
        self, session: str, wakeup_id: str, revision: int, found: Wakeup | None
    ) -> Wakeup:
        if found is not None and found.session != session:
            found = None
        if found is None:
            ended = self.known(session, wakeup_id)
            if ended is None:
                raise UnknownWakeup(wakeup_id, self._ids(session))
            raise WakeupConflict(wakeup_id, ended.wakeup.revision, "has ended")
        if found.revision != revision:
            why = f"is of revision {found.revision}, and {revision} was expected"
            raise WakeupConflict(wakeup_id, found.revision, why)
        if not self._entries.has_claim(found):
            return found
        # Its firing is taken, and a crash has left it as it was: it has moved on all the same.
        following = after_firing(found, found.next_at, fired=True)
        if following is None:
            raise WakeupConflict(wakeup_id, found.revision, "has ended: its firing is claimed")
        return following

    def _company(
        self, wakeup: Wakeup, pending: list[Wakeup], now: datetime, bounds: Bounds, zone_key: str
    ) -> Company:
        fired = self._entries.fired(wakeup.session, *day_of(now, zone(zone_key)))
        others = [one for one in pending if one.id != wakeup.id]
        return Company(others=others, fired_today=fired, bounds=bounds, zone_key=zone_key)

    def cancel(
        self, session: str, wakeup_id: str, revision: int, *, by: str, at: datetime
    ) -> Known:
        """End a wake-up: it never fires again. Return what was known of it, with its newest firing.

        A firing that is claimed is not settled here: the caller records a cancel of it.

        Raises:
            UnknownWakeup, WakeupConflict, StoreBusy: Nothing was changed.
            NotDurable: It could not be written. It is still pending.
        """
        folder = session_folder(session)
        with self._entries.locked(folder):
            found = self._entries.hold(folder, wakeup_id) if is_id(wakeup_id) else None
            if found is None or found.session != session:
                known = self.known(session, wakeup_id)
                if known is None:
                    raise UnknownWakeup(wakeup_id, self._ids(session))
                if known.wakeup.revision != revision:
                    raise WakeupConflict(
                        wakeup_id, known.wakeup.revision, "has ended with another revision"
                    )
                return known
            if found.revision != revision:
                why = f"is of revision {found.revision}, and {revision} was expected"
                raise WakeupConflict(wakeup_id, found.revision, why)
            known = self._known(found, pending=True)
            self._entries.cancel(found, by=by, at=at)
            return known

    # Upkeep ---------------------------------------------------------------------------------

    def prune(self, before: datetime) -> int:
        """Forget those that ended before *before*; return how many.

        Raises:
            NotDurable: One could not be removed; what was removed before is gone.
        """
        count = 0
        for folder, wakeup_id in list(self._entries.all_ended()):
            with self._entries.locked(folder):
                ended = self._entries.ended(folder, wakeup_id)
                if ended is None:
                    continue
                known = self._known(ended, pending=False)
                is_open = known.firing is not None and known.firing.end is None
                last = max(ended.next_at, ended.changed_at or ended.created_at)
                if ended.cancelled_at is not None:
                    # What was to come of it is no reason to keep it.
                    last = ended.cancelled_at
                if last >= before or is_open:
                    continue
                try:
                    self._entries.forget_ended(folder, wakeup_id)
                except OSError as error:
                    raise files.fault(error, "remove", folder) from error
                count += 1
        return count


def _named(request: WakeRequest) -> tuple[str, str]:
    """Return session and id of a creation; they follow from session and key."""
    if request.session is None or request.key is None:
        raise ValueError("what a program makes has a session and a key")
    return request.session, keyed_id(request.session, request.key)
