"""Wake-ups on disk: set, found, cancelled; `wake_firings` takes what is due.

An entry (`wake_entries`) is the truth, a hint (`wake_hints`) says when to look at it. An entry
without a hint can only be made by somebody who deletes files; `repair`, at boot, finds those by
comparing names and opens nothing that is sound.
"""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from routines.domain.names import safe_name
from routines.domain.record import Record
from routines.domain.wake_request import AlreadySet, WakeRequest, check_request
from routines.domain.wakeup import Bounds, Wakeup, is_id, new_id
from routines.domain.zones import day_of, zone
from routines.errors import StoreBusy
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wake_entries import CORRUPT, Entries, session_folder
from routines.store.wake_hints import Hint, Hints

# Drawing an id that is taken happens once in a lifetime, if at all.
_TRIES = 8


class Unwoken(StrEnum):
    """What `unwake` found and did."""

    GONE = "gone"  # it was pending, and never fires
    NOT_STARTED = "not-started"  # its firing is claimed and waits: the caller records a cancel
    STARTED = "started"  # its firing runs and goes on; no other one comes
    ENDED = "ended"  # it has fired, and nothing is left to cancel
    UNKNOWN = "unknown"  # this session has none of that id


@dataclass(frozen=True, slots=True)
class Unwake:
    """The answer to `unwake`.

    Attributes:
        how: What was found and done.
        wakeup: What was pending, or what its newest firing was taken with; None if unknown.
        firing: The record of the firing that *how* speaks of, or None.
        stopped: Whether something was pending that never fires now.
    """

    how: Unwoken
    wakeup: Wakeup | None = None
    firing: Record | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a look over all names found.

    Attributes:
        pending: How many wake-ups there are.
        hinted: Those that had no hint, and have one now.
        removed: Hints that nothing belonged to.
        corrupt: Files that can't be read and were set aside, below the state folder.
    """

    pending: int = 0
    hinted: int = 0
    removed: int = 0
    corrupt: tuple[str, ...] = ()


class WakeupStore:
    """The wake-ups of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._hints = Hints(state)
        self._entries = Entries(state)

    # Setting --------------------------------------------------------------------------------

    def wake(
        self, request: WakeRequest, *, now: datetime, bounds: Bounds, zone_key: str
    ) -> Wakeup | AlreadySet:
        """Set what is asked for, if the guardrails allow it; it is on the disk on return.

        Raises:
            WakeupRefused: A guardrail says no. Nothing was scheduled.
            StoreBusy: The session's wake-ups are being changed. Nothing was scheduled.
            NotDurable: It could not be written. Nothing was scheduled.
        """
        for _ in range(_TRIES):
            wakeup_id = new_id(secrets.choice)
            session = f"wake:{wakeup_id}" if request.session is None else request.session
            # Counted under the lock: two calls at once can't both be the twentieth.
            with self._entries.locked(session_folder(session)):
                start, end = day_of(now, zone(zone_key))
                found = check_request(
                    request,
                    id=wakeup_id,
                    now=now,
                    pending=self._entries.readable(session),
                    fired_today=self.fired(session, start, end),
                    bounds=bounds,
                    zone_key=zone_key,
                )
                if isinstance(found, AlreadySet):
                    # Who says "already" answers for it: the first may have died before its sync.
                    self._entries.sync(self._state.at("wakeups", session_folder(session)))
                    return found
                if self._entries.add(found):
                    return found
        raise StoreBusy("no free id for a wake-up was found", hint="nothing was changed; try again")

    def add(self, wakeup: Wakeup) -> bool:
        """Keep a wake-up that is already checked; False if its id is taken in its session.

        No guardrail holds here: `wake` is for what an agent or a person asks.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was scheduled.
            NotDurable: It could not be written. Nothing was scheduled.
        """
        with self._entries.locked(session_folder(wakeup.session)):
            return self._entries.add(wakeup)

    # Looking --------------------------------------------------------------------------------

    def due(self, now: datetime) -> list[Hint]:
        """Return what has to be looked at by *now*, longest waiting first."""
        return self._hints.due(now)

    def next_due(self, after: datetime) -> datetime | None:
        """Return when there is something to look at next, strictly after *after*, or None."""
        return self._hints.next_due(after)

    def fired(self, session: str, start: datetime, end: datetime) -> int:
        """Return how many firings of *session* were due in [*start*, *end*), by their claims."""
        return self._entries.fired(session, start, end)

    def repair(self) -> Repaired:
        """Give each entry its hint, and remove hints that nothing belongs to; for boot.

        Compares names; only what lacks a hint is opened.
        """
        hinted: dict[tuple[str, str], list[Hint]] = {}
        for hint in self._hints.all():
            hinted.setdefault((hint.folder, hint.id), []).append(hint)
        pending = set(self._entries.all_names())
        done = 0
        for folder, wakeup_id in sorted(pending - hinted.keys()):
            with self._entries.locked(folder):
                wakeup = self._entries.hold(folder, wakeup_id)
                if wakeup is not None:
                    self._hints.make_anew(Hint(wakeup.look_at, folder, wakeup_id))
                    done += 1
        stale = [hint for key in hinted.keys() - pending for hint in hinted[key]]
        removed = sum(self._entries.forget_hint(hint) for hint in stale)
        return Repaired(len(pending), done, removed, tuple(self.corrupt()))

    # Reading --------------------------------------------------------------------------------

    def pending(self, session: str) -> list[Wakeup]:
        """Return what is pending in *session*, next first; changes nothing."""
        folder = session_folder(session)
        found = (self._entries.peek(folder, wakeup_id) for wakeup_id in self._entries.ids(folder))
        mine = [one for one in found if one is not None and self._entries.is_pending(one, session)]
        return sorted(mine, key=lambda one: (one.next_at, one.id))

    def pending_all(self, limit: int) -> list[Wakeup]:
        """Return what is pending anywhere, what is to be looked at first first, at most *limit*."""
        found: list[Wakeup] = []
        for hint in self._hints.all():
            wakeup = self._entries.peek(hint.folder, hint.id)
            if wakeup is None or wakeup.look_at != hint.look_at:
                continue
            if self._entries.is_pending(wakeup, wakeup.session):
                found.append(wakeup)
            if len(found) >= limit:
                break
        return found

    def count(self) -> tuple[int, int]:
        """Return how many are pending, and in how many sessions, by names alone."""
        folders = [folder for folder, _ in self._entries.all_names()]
        return len(folders), len(set(folders))

    def read(self, session: str, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of *session*, or None; changes nothing."""
        if not is_id(wakeup_id):
            return None
        found = self._entries.peek(session_folder(session), wakeup_id)
        return found if found is not None and self._entries.is_pending(found, session) else None

    def find(self, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of any session, or None: for the operator."""
        if is_id(wakeup_id):
            for folder in files.names(self._state.at("wakeups")):
                if os.path.exists(self._entries.path(folder, wakeup_id)):
                    return self._entries.peek(folder, wakeup_id)
        return None

    def corrupt(self) -> Iterator[str]:
        """Yield what was set aside since it can't be read, below the state folder."""
        for folder in files.names(self._state.at("wakeups")):
            if folder != "due":
                for name in files.names(self._state.at("wakeups", folder)):
                    if name.endswith(CORRUPT):
                        yield f"wakeups/{folder}/{name}"

    # Cancelling -----------------------------------------------------------------------------

    def unwake(
        self,
        session: str,
        wakeup_id: str,
        *,
        claims: ClaimStore,
        by: str,
        at: datetime,
    ) -> Unwake:
        """Remove what is pending of a wake-up, and say what its newest firing has come to (W6).

        A firing that is claimed and has not started is not settled here: the caller records a
        cancel under its reference, which its owner takes up.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was changed.
            NotDurable: It could not be removed. It is still pending.
        """
        if not is_id(wakeup_id):
            return Unwake(Unwoken.UNKNOWN)
        with self._entries.locked(session_folder(session)):
            pending = self._entries.held(session, wakeup_id)
            firing = self._open_firing(session, wakeup_id, claims)
            if pending is not None:
                self._entries.cancel(pending, by=by, at=at)
        if firing is not None:
            how = Unwoken.NOT_STARTED if firing.started is None else Unwoken.STARTED
            return Unwake(how, pending or _taken_with(firing), firing, pending is not None)
        if pending is not None:
            return Unwake(Unwoken.GONE, pending, stopped=True)
        ended = self._newest_firing(session, wakeup_id, claims)
        if ended is None:
            return Unwake(Unwoken.UNKNOWN)
        return Unwake(Unwoken.ENDED, _taken_with(ended), ended)

    def _open_firing(self, session: str, wakeup_id: str, claims: ClaimStore) -> Record | None:
        ending = f"~{wakeup_id}"
        prefix = f"wake~{safe_name(session)}~"
        for entry in reversed(claims.open_entries()):
            if entry.name.startswith(prefix) and entry.name.endswith(ending):
                record = claims.read_path(entry.claim_path)
                if record is not None and record.end is None:
                    return record
        return None

    def _newest_firing(self, session: str, wakeup_id: str, claims: ClaimStore) -> Record | None:
        for path in claims.walk([f"wake/{safe_name(session)}"]):
            if path.endswith(f".{wakeup_id}.jsonl"):
                return claims.read_path(path)
        return None


def _taken_with(firing: Record) -> Wakeup | None:
    return Wakeup.from_json(firing.claim.get("wakeup"))
