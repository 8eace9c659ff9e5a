"""Firings: from a wake-up that is due to a claim, or to another instant (PROMISES W2 to W4).

The claim is the taking: it is made before the entry is removed or moved on, and an instant that has
a claim is never fired again, whatever the entry still says.
"""

import contextlib
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain.names import format_instant
from routines.domain.occurrence import instant_of_file
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import Record, outcome_event
from routines.domain.wake_firing import (
    Fire,
    Passed,
    Skip,
    Wait,
    after_firing,
    due_instant,
    plan_firing,
)
from routines.domain.wakeup import Bounds, Wakeup
from routines.domain.zones import day_of
from routines.errors import StoreError
from routines.store import files
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wake_entries import Entries, occurrence_of, session_folder
from routines.store.wake_hints import Hint


class FiringStore:
    """Takes what is due of the wake-ups of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._entries = Entries(state)

    def plan(
        self, hint: Hint, *, claims: ClaimStore, now: datetime, bounds: Bounds, place: ZoneInfo
    ) -> tuple[Wakeup, Fire | Skip | Wait] | None:
        """Return the wake-up that *hint* is about, and what becomes of it at *now*.

        Nothing is taken yet. None if there is nothing to do: the hint is then put right, and a
        firing that was claimed before a crash is no longer pending.
        """
        wakeup = self._entries.peek(hint.folder, hint.id)
        if wakeup is None or wakeup.look_at != hint.look_at:
            self._entries.forget_hint(hint)
            return None
        claimed = self._claimed(wakeup, claims, now)
        if claimed is not None:
            with self._entries.locked(hint.folder):
                if self._entries.hold(hint.folder, hint.id) == wakeup:
                    self._move_past(wakeup, claimed)
            return None
        instant = due_instant(wakeup, now)
        fired = (
            0 if instant is None else self._entries.fired(wakeup.session, *day_of(instant, place))
        )
        return wakeup, plan_firing(wakeup, now=now, fired=fired, bounds=bounds, place=place)

    def _claimed(self, wakeup: Wakeup, claims: ClaimStore, now: datetime) -> datetime | None:
        """Return the newest instant of *wakeup* that is due, pending and claimed all the same."""
        instant = due_instant(wakeup, now)
        if instant is None:
            return None
        if wakeup.next_at == instant:
            return instant if claims.is_claimed(occurrence_of(wakeup, instant)) else None
        # After an absence: a crash may have left a claim in the midst of what was passed over.
        return self._newest_claimed(wakeup, claims)

    def _newest_claimed(self, wakeup: Wakeup, claims: ClaimStore) -> datetime | None:
        folder = occurrence_of(wakeup, wakeup.next_at).folder
        for path in claims.walk([folder], since=wakeup.next_at):
            if path.endswith(f".{wakeup.id}.jsonl"):
                return instant_of_file(path.rpartition("/")[2])
        return None

    def take(
        self,
        session: str,
        wakeup_id: str,
        instant: datetime,
        *,
        claims: ClaimStore,
        at: datetime,
        bounds: Bounds,
        place: ZoneInfo,
        passed: Passed | None = None,
        extra: Mapping[str, Any] | None = None,
        revision: int | None = None,
        patience: float = files.PATIENCE_S,
    ) -> Claim | None:
        """Claim the firing of a wake-up for *instant*; a one-shot is then no longer pending.

        Args:
            session: Whose wake-up.
            wakeup_id: Which.
            instant: What the firing is for, as `plan` said.
            claims: Where firings are claimed.
            at: The present instant.
            bounds: The guardrails; the firings of the day are counted once more under the lock.
            place: The workspace's zone, whose days count.
            passed: The older firings that it stands for, as `plan` said.
            extra: What else the claim says: its owner, `by`, the key of the turn, the routine.
            revision: Which revision was planned for, or None: another one is not taken.
            patience: Seconds to wait for the session's lock.

        Returns:
            The claim; None if it is not to be fired now: another process has taken it, it was
            cancelled, or is no longer what *instant* was planned for.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was taken.
            NotDurable: It could not be claimed: it is still pending, or settled `not-durable`.
        """
        with self._entries.locked(session_folder(session), patience):
            wakeup = self._ready(session, wakeup_id, instant, claims=claims, at=at)
            if wakeup is None or (revision is not None and wakeup.revision != revision):
                return None
            if self._entries.fired(session, *day_of(instant, place)) >= bounds.firings:
                return None
            draft = _draft(wakeup, instant, passed, extra, fired=True)
            claim = claims.take(draft, at=at)
            if claim is None:
                # Not ours. The next look sees whether it is claimed, and only then does the entry
                # go: a draft that stood in the way for a moment must not cost a wake-up.
                return None
            # The claim decides. If this fails, the next look finds the claim and tries again.
            with contextlib.suppress(StoreError):
                self._entries.move_on(wakeup, after_firing(wakeup, instant, fired=True))
            return claim

    def settle_skipped(
        self,
        session: str,
        wakeup_id: str,
        due: Skip,
        *,
        claims: ClaimStore,
        at: datetime,
        detail: str = "",
        outcome: Outcome = Outcome.SKIPPED,
        extra: Mapping[str, Any] | None = None,
        revision: int | None = None,
        patience: float = files.PATIENCE_S,
    ) -> Record | None:
        """Claim a firing and settle it without a turn; a one-shot is then no longer pending.

        It is `skipped`, unless *outcome* says that it failed.

        Returns:
            Its record; None as for `take`.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was taken.
            NotDurable: It could not be written: it is still pending, or settled `not-durable`.
        """
        with self._entries.locked(session_folder(session), patience):
            wakeup = self._ready(session, wakeup_id, due.instant, claims=claims, at=at)
            if wakeup is None or (revision is not None and wakeup.revision != revision):
                return None
            end = outcome_event(at=at, outcome=outcome, reason=due.reason, detail=detail)
            draft = _draft(wakeup, due.instant, due.passed, extra, fired=False, end=end)
            claim = claims.take(draft, at=at)
            if claim is None:
                return None
            with contextlib.suppress(StoreError):
                refused = due.reason is Reason.REFUSED
                following = after_firing(wakeup, due.instant, fired=False, refused=refused)
                self._entries.move_on(wakeup, following)
            claim.let_go()
            return claim.record

    def _ready(
        self, session: str, wakeup_id: str, instant: datetime, *, claims: ClaimStore, at: datetime
    ) -> Wakeup | None:
        """Return a wake-up if it is still pending for *instant*; under its lock."""
        wakeup = self._entries.hold(session_folder(session), wakeup_id)
        if wakeup is None or wakeup.session != session:
            return None
        claimed = self._claimed(wakeup, claims, at)
        if claimed is not None:
            self._move_past(wakeup, claimed)
            return None
        # While the caller was busy a newer instant may have come: it looks again.
        return wakeup if due_instant(wakeup, at) == instant else None

    def _move_past(self, wakeup: Wakeup, claimed: datetime) -> None:
        """Move on from an instant that another process has claimed. Under its lock."""
        path = self._state.at(occurrence_of(wakeup, claimed).claim_path)
        # It may have died before it could sync the claim's name: a power cut would then take the
        # claim, and the entry would be gone for good.
        self._entries.sync(os.path.dirname(path))
        self._entries.move_on(wakeup, after_firing(wakeup, claimed, fired=True))

    def defer(
        self,
        session: str,
        wakeup_id: str,
        instant: datetime,
        *,
        until: datetime,
        claims: ClaimStore,
        at: datetime,
    ) -> Wakeup | None:
        """Leave a one-shot whose session is busy pending, to be tried again at *until*.

        Returns:
            It as it now is, with the time of its first try; None as for `take`.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was changed.
            NotDurable: It could not be written. It stays pending.
        """
        with self._entries.locked(session_folder(session)):
            wakeup = self._ready(session, wakeup_id, instant, claims=claims, at=at)
            if wakeup is None:
                return None
            since = wakeup.deferred_since or at
            return self._move_to(wakeup, wakeup.with_(deferred_since=since, try_at=_second(until)))

    def postpone(
        self,
        session: str,
        wakeup_id: str,
        instant: datetime,
        *,
        until: datetime,
        claims: ClaimStore,
        at: datetime,
    ) -> Wakeup | None:
        """Make a one-shot wait for a day with firings left: it is then for *until*.

        Returns:
            It as it now is; None as for `take`.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was changed.
            NotDurable: It could not be written. It stays pending.
        """
        with self._entries.locked(session_folder(session)):
            wakeup = self._ready(session, wakeup_id, instant, claims=claims, at=at)
            if wakeup is None:
                return None
            changed = wakeup.with_(next_at=until, deferred_since=None, try_at=None)
            return self._move_to(wakeup, changed)

    def _move_to(self, wakeup: Wakeup, changed: Wakeup) -> Wakeup:
        self._entries.move_on(wakeup, changed)
        return changed


def _draft(
    wakeup: Wakeup,
    instant: datetime,
    passed: Passed | None,
    extra: Mapping[str, Any] | None,
    *,
    fired: bool,
    end: dict[str, Any] | None = None,
) -> Draft:
    # The claim outlives the entry: it holds all that the turn, and a reader, will need.
    taken = wakeup.with_(next_at=instant, firings=wakeup.firings + fired)
    asked_for = instant if wakeup.recurs else wakeup.asked_for
    claim = {
        "session": wakeup.session_at(instant),
        "trigger": Trigger.WAKE_UP.value,
        "due_at": format_instant(asked_for),
        "by": wakeup.asked_by,
        "missed": None if passed is None else passed.to_json(),
        **(extra or {}),
        "wakeup": taken.to_json(),
    }
    return Draft(occurrence_of(wakeup, instant), claim, end)


def _second(instant: datetime) -> datetime:
    # Names of hints are exact to the second; a name that lags behind its entry would be stale.
    return instant.replace(microsecond=0)
