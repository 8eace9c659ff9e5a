"""Wake-ups on disk: `wakeups/<session>/<id>.json`, and hints under `wakeups/due/`.

The entry is the truth; the hint, an empty file named by instant, session and id, only says when
somebody has to look, so that waiting costs one listing of two small folders and not a walk over all
that is pending. The order of writing keeps either from vanishing in silence:

- a hint is on the disk before the entry that needs it: a crash between leaves a hint without an
  entry, which the first look at it removes;
- an entry that moves has its new hint before it says so, and its old hint goes last: a crash
  between leaves one hint too many, which the first look at it removes;
- a hint is removed only under the session's lock, once the entry is seen to be gone or to wait for
  another instant whose hint is there.

So an entry without a hint can only be made by somebody who deletes files; `repair`, at boot, finds
those by comparing names and opens nothing that is sound.

The claim is the taking (PROMISES W2): it is made before the entry is removed or moved on, and an
instant that has a claim is never fired again, whatever the entry still says.
"""

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain.names import (
    day_name,
    format_instant,
    instant_name,
    parse_instant_name,
    safe_name,
    same_name,
)
from routines.domain.occurrence import Kind, Occurrence, instant_of_file
from routines.domain.outcome import Outcome, Trigger
from routines.domain.record import Record, outcome_event
from routines.domain.wakeup import (
    AlreadySet,
    Bounds,
    Fire,
    Passed,
    Skip,
    Wait,
    WakeRequest,
    Wakeup,
    after_firing,
    check_request,
    due_instant,
    is_id,
    new_id,
    plan_firing,
)
from routines.domain.zones import day_of, zone
from routines.errors import StoreBusy, StoreError
from routines.store import files
from routines.store.claims import Claim, ClaimStore, Draft
from routines.store.sessions import session_key
from routines.store.state import State

_ENDING = ".json"
_CORRUPT = ".json.corrupt"
# A folder that empties is removed while another process is about to use it. To lose that race again
# and again, wake-ups would have to come and go in one hour's folder faster than it can be made.
_TRIES = 8
# Lock files stay for ever, since one that is removed can be locked by two. A fixed number of them
# serves any number of sessions: two that share one wait a few milliseconds for each other.
_LOCKS = 3  # hexadecimal digits: 4096
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HOUR = re.compile(r"[01][0-9]|2[0-3]", re.ASCII)
_HOUR_LONG = timedelta(hours=1)


@dataclass(frozen=True, slots=True, order=True)
class Hint:
    """That somebody has to look at a wake-up.

    Attributes:
        look_at: When.
        folder: The folder of its session below `wakeups/`.
        id: The wake-up.
    """

    look_at: datetime
    folder: str
    id: str

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{instant_name(self.look_at)}~{self.folder}~{self.id}"

    @property
    def hour(self) -> tuple[str, str]:
        """The day and the hour that it is kept under."""
        return day_name(self.look_at), f"{self.look_at.astimezone(UTC):%H}"


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


def session_folder(session: str) -> str:
    """Return the name of a session's folder below `wakeups/`."""
    folder = safe_name(session)
    if same_name(folder) != "due":
        return folder
    # `wakeups/due` is where the hints are.
    return f"%{ord(folder[0]):02X}{folder[1:]}"


def lock_path(state: State, session: str) -> str:
    """Return the absolute path of the lock under which a session's wake-ups are changed."""
    # Names that a file system may confuse share a folder, so they have to share a lock.
    return _lock_path(state, session_folder(session))


def _lock_path(state: State, folder: str) -> str:
    return state.at("locks", "wake", f"{session_key(same_name(folder))[:_LOCKS]}.lock")


def _parse_hint(name: str) -> Hint | None:
    parts = name.split("~")
    if len(parts) != 3:  # noqa: PLR2004  # instant, session, id
        return None
    look_at = parse_instant_name(parts[0])
    if look_at is None or not parts[1] or not is_id(parts[2]):
        return None
    return Hint(look_at, parts[1], parts[2])


class WakeupStore:
    """The wake-ups of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    # Names ----------------------------------------------------------------------------------

    def _entry(self, folder: str, wakeup_id: str) -> str:
        return self._state.at("wakeups", folder, f"{wakeup_id}{_ENDING}")

    def _hint_path(self, hint: Hint) -> str:
        return self._state.at("wakeups", "due", *hint.hour, hint.name)

    def _locked(
        self, folder: str, patience: float = files.PATIENCE_S
    ) -> contextlib.AbstractContextManager[None]:
        return files.section(
            _lock_path(self._state, folder),
            patience=patience,
            what="what is pending in this conversation",
        )

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
            with self._locked(session_folder(session)):
                start, end = day_of(now, zone(zone_key))
                found = check_request(
                    request,
                    id=wakeup_id,
                    now=now,
                    pending=self._readable(session),
                    fired_today=self.fired(session, start, end),
                    bounds=bounds,
                    zone_key=zone_key,
                )
                if isinstance(found, AlreadySet):
                    # Who says "already" answers for it: the first may have died before its sync.
                    self._sync(self._state.at("wakeups", session_folder(session)))
                    return found
                if self._add(found):
                    return found
        raise StoreBusy("no free id for a wake-up was found", hint="nothing was changed; try again")

    def add(self, wakeup: Wakeup) -> bool:
        """Keep a wake-up that is already checked; False if its id is taken in its session.

        No guardrail holds here: `wake` is for what an agent or a person asks.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was scheduled.
            NotDurable: It could not be written. Nothing was scheduled.
        """
        with self._locked(session_folder(wakeup.session)):
            return self._add(wakeup)

    def _add(self, wakeup: Wakeup) -> bool:
        folder = session_folder(wakeup.session)
        path = self._entry(folder, wakeup.id)
        try:
            files.make_folder(os.path.dirname(path))
            if os.path.exists(path):
                return False
            # Session folders go when they empty: this one may have been made again by a process
            # that died before it could sync the name.
            files.sync_folder(self._state.at("wakeups"))
            self._make_hint(Hint(wakeup.look_at, folder, wakeup.id))
            return files.create(path, _encode(wakeup))
        except OSError as error:
            # `create` takes back what it could not sync: told "failed", nobody sees it fire later.
            self._drop_hint(Hint(wakeup.look_at, folder, wakeup.id))
            raise files.fault(error, "write", path) from error

    def _sync(self, folder: str) -> None:
        try:
            files.sync_folder(folder)
        except OSError as error:
            raise files.fault(error, "sync", folder) from error

    # Hints ----------------------------------------------------------------------------------

    def _make_hint(self, hint: Hint) -> None:
        """Put *hint* on the disk; OSError if that fails."""
        path = self._hint_path(hint)
        for tries_left in reversed(range(_TRIES)):
            try:
                files.make_folder(os.path.dirname(path))
                with contextlib.suppress(FileExistsError):
                    files.close(files.open_new(path))
                files.sync_folder(os.path.dirname(path))
            except FileNotFoundError:
                # Another process has found the folder empty and removed it under us.
                if not tries_left:
                    raise
            else:
                return

    def _drop_hint(self, hint: Hint) -> None:
        """Remove *hint* and the folders that it leaves empty. A hint too many does no harm."""
        path = self._hint_path(hint)
        with contextlib.suppress(OSError):
            files.remove(path)
            hour = os.path.dirname(path)
            if files.remove_folder(hour):
                files.remove_folder(os.path.dirname(hour))

    def _hour_folders(self) -> Iterator[tuple[datetime, str]]:
        """Yield the folders of hints with the start of their hour, earliest first."""
        root = self._state.at("wakeups", "due")
        for day in files.names(root):
            if not _DAY.fullmatch(day):
                continue
            for hour in files.names(os.path.join(root, day)):
                start = (
                    parse_instant_name(f"{day}T{hour}-00-00Z") if _HOUR.fullmatch(hour) else None
                )
                if start is not None:
                    yield start, os.path.join(root, day, hour)

    def due(self, now: datetime) -> list[Hint]:
        """Return what has to be looked at by *now*, longest waiting first.

        Folders vanish when they empty, so that what is listed is what is due, after any absence.
        """
        found: list[Hint] = []
        for start, folder in self._hour_folders():
            if start > now:
                break
            hints = (_parse_hint(name) for name in files.names(folder))
            found += [hint for hint in hints if hint is not None and hint.look_at <= now]
        return sorted(found)

    def next_due(self, after: datetime) -> datetime | None:
        """Return when there is something to look at next, strictly after *after*, or None."""
        for start, folder in self._hour_folders():
            if start + _HOUR_LONG <= after:
                continue
            hints = (_parse_hint(name) for name in files.names(folder))
            ahead = [h.look_at for h in hints if h is not None and h.look_at > after]
            if ahead:
                return min(ahead)
        return None

    def repair(self) -> Repaired:
        """Give each entry its hint, and remove hints that nothing belongs to; for boot.

        Compares names; only what lacks a hint is opened.
        """
        hinted: dict[tuple[str, str], list[Hint]] = {}
        for _, hour in self._hour_folders():
            for hint in filter(None, map(_parse_hint, files.names(hour))):
                hinted.setdefault((hint.folder, hint.id), []).append(hint)
        pending = set(self._all_names())
        done = 0
        for folder, wakeup_id in sorted(pending - hinted.keys()):
            with self._locked(folder):
                wakeup = self._hold(folder, wakeup_id)
                if wakeup is not None:
                    self._hint_anew(Hint(wakeup.look_at, folder, wakeup_id))
                    done += 1
        stale = [hint for key in hinted.keys() - pending for hint in hinted[key]]
        removed = sum(self._forget_hint(hint) for hint in stale)
        return Repaired(len(pending), done, removed, tuple(self.corrupt()))

    def _hint_anew(self, hint: Hint) -> None:
        try:
            self._make_hint(hint)
        except OSError as error:
            raise files.fault(error, "write", self._hint_path(hint)) from error

    def _forget_hint(self, hint: Hint) -> bool:
        """Remove *hint* unless its entry is waiting for it; an entry that is sound keeps one."""
        with self._locked(hint.folder):
            wakeup = self._hold(hint.folder, hint.id)
            if wakeup is not None:
                if wakeup.look_at == hint.look_at:
                    return False
                self._hint_anew(Hint(wakeup.look_at, hint.folder, hint.id))
            self._drop_hint(hint)
            return True

    # Reading --------------------------------------------------------------------------------

    def _all_names(self) -> Iterator[tuple[str, str]]:
        root = self._state.at("wakeups")
        for folder in files.names(root):
            if folder != "due":
                for wakeup_id in self._ids(folder):
                    yield folder, wakeup_id

    def _ids(self, folder: str) -> list[str]:
        # Only names that a writer could have made: a leftover `w-7k3m9q.json.123.tmp` is nothing.
        names = files.names(self._state.at("wakeups", folder))
        stems = (name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING))
        return [stem for stem in stems if is_id(stem)]

    def _peek(self, folder: str, wakeup_id: str) -> Wakeup | None:
        path = self._entry(folder, wakeup_id)
        try:
            data = files.read(path)
        except OSError as error:
            raise files.fault(error, "read", path) from error
        return None if data is None else _decode(data, folder, wakeup_id)

    def _hold(self, folder: str, wakeup_id: str) -> Wakeup | None:
        """Return an entry, under its lock; one that can't be read is set aside."""
        wakeup = self._peek(folder, wakeup_id)
        path = self._entry(folder, wakeup_id)
        if wakeup is None and os.path.exists(path):
            try:
                files.set_aside(path)
            except OSError as error:
                raise files.fault(error, "rename", path) from error
        return wakeup

    def _is_pending(self, wakeup: Wakeup, session: str) -> bool:
        """Return whether *wakeup* is *session*'s, and still to come."""
        # Names that differ only in case may share a folder. And the firing of a one-shot that a
        # crash has left behind is claimed: to call it pending would promise what never comes.
        return wakeup.session == session and (wakeup.recurs or not self._has_claim(wakeup))

    def _has_claim(self, wakeup: Wakeup) -> bool:
        return os.path.exists(self._state.at(_occurrence(wakeup, wakeup.next_at).claim_path))

    def _readable(self, session: str) -> list[Wakeup]:
        """Return what is pending in *session*, under its lock."""
        folder = session_folder(session)
        found = (self._hold(folder, wakeup_id) for wakeup_id in self._ids(folder))
        return [one for one in found if one is not None and self._is_pending(one, session)]

    def _pending(self, session: str, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of *session*, under its lock."""
        found = self._hold(session_folder(session), wakeup_id)
        return found if found is not None and self._is_pending(found, session) else None

    def pending(self, session: str) -> list[Wakeup]:
        """Return what is pending in *session*, next first; changes nothing."""
        folder = session_folder(session)
        found = (self._peek(folder, wakeup_id) for wakeup_id in self._ids(folder))
        mine = [one for one in found if one is not None and self._is_pending(one, session)]
        return sorted(mine, key=lambda one: (one.next_at, one.id))

    def pending_all(self, limit: int) -> list[Wakeup]:
        """Return what is pending anywhere, what is to be looked at first first, at most *limit*."""
        found: list[Wakeup] = []
        for _, hour in self._hour_folders():
            hints = (_parse_hint(name) for name in files.names(hour))
            for hint in filter(None, hints):
                wakeup = self._peek(hint.folder, hint.id)
                if wakeup is None or wakeup.look_at != hint.look_at:
                    continue
                if self._is_pending(wakeup, wakeup.session):
                    found.append(wakeup)
                if len(found) >= limit:
                    return found
        return found

    def count(self) -> tuple[int, int]:
        """Return how many are pending, and in how many sessions, by names alone."""
        folders = [folder for folder, _ in self._all_names()]
        return len(folders), len(set(folders))

    def read(self, session: str, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of *session*, or None; changes nothing."""
        if not is_id(wakeup_id):
            return None
        found = self._peek(session_folder(session), wakeup_id)
        return found if found is not None and self._is_pending(found, session) else None

    def find(self, wakeup_id: str) -> Wakeup | None:
        """Return a pending wake-up of any session, or None: for the operator."""
        if is_id(wakeup_id):
            for folder in files.names(self._state.at("wakeups")):
                if os.path.exists(self._entry(folder, wakeup_id)):
                    return self._peek(folder, wakeup_id)
        return None

    def corrupt(self) -> Iterator[str]:
        """Yield what was set aside since it can't be read, below the state folder."""
        for folder in files.names(self._state.at("wakeups")):
            if folder != "due":
                for name in files.names(self._state.at("wakeups", folder)):
                    if name.endswith(_CORRUPT):
                        yield f"wakeups/{folder}/{name}"

    def fired(self, session: str, start: datetime, end: datetime) -> int:
        """Return how many firings of *session* were due in [*start*, *end*), by their claims.

        A firing counts on the day that it was due, also if it was late or skipped.
        """
        root = self._state.at("claims", "wake", safe_name(session))
        day, count = start, 0
        while day_name(day) <= day_name(end):
            instants = map(instant_of_file, files.names(os.path.join(root, day_name(day))))
            count += sum(1 for one in instants if one is not None and start <= one < end)
            day += timedelta(days=1)
        return count

    # Firing ---------------------------------------------------------------------------------

    def plan(
        self, hint: Hint, *, claims: ClaimStore, now: datetime, bounds: Bounds, place: ZoneInfo
    ) -> tuple[Wakeup, Fire | Skip | Wait] | None:
        """Return the wake-up that *hint* is about, and what becomes of it at *now*.

        Nothing is taken yet. None if there is nothing to do: the hint is then put right, and a
        firing that was claimed before a crash is no longer pending.
        """
        wakeup = self._peek(hint.folder, hint.id)
        if wakeup is None or wakeup.look_at != hint.look_at:
            self._forget_hint(hint)
            return None
        claimed = self._claimed(wakeup, claims, now)
        if claimed is not None:
            with self._locked(hint.folder):
                if self._hold(hint.folder, hint.id) == wakeup:
                    self._move_past(wakeup, claimed)
            return None
        instant = due_instant(wakeup, now)
        fired = 0 if instant is None else self.fired(wakeup.session, *day_of(instant, place))
        return wakeup, plan_firing(wakeup, now=now, fired=fired, bounds=bounds, place=place)

    def _claimed(self, wakeup: Wakeup, claims: ClaimStore, now: datetime) -> datetime | None:
        """Return the newest instant of *wakeup* that is due, pending and claimed all the same."""
        instant = due_instant(wakeup, now)
        if instant is None:
            return None
        if wakeup.next_at == instant:
            return instant if claims.is_claimed(_occurrence(wakeup, instant)) else None
        # After an absence: a crash may have left a claim in the midst of what was passed over.
        return self._newest_claimed(wakeup, claims)

    def _newest_claimed(self, wakeup: Wakeup, claims: ClaimStore) -> datetime | None:
        folder = _occurrence(wakeup, wakeup.next_at).folder
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
            patience: Seconds to wait for the session's lock.

        Returns:
            The claim; None if it is not to be fired now: another process has taken it, it was
            cancelled, or is no longer what *instant* was planned for.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was taken.
            NotDurable: It could not be claimed: it is still pending, or settled `not-durable`.
        """
        with self._locked(session_folder(session), patience):
            wakeup = self._ready(session, wakeup_id, instant, claims=claims, at=at)
            if wakeup is None:
                return None
            if self.fired(session, *day_of(instant, place)) >= bounds.firings:
                return None
            draft = _draft(wakeup, instant, passed, extra, fired=True)
            claim = claims.take(draft, at=at)
            if claim is None:
                # Not ours. The next look sees whether it is claimed, and only then does the entry
                # go: a draft that stood in the way for a moment must not cost a wake-up.
                return None
            # The claim decides. If this fails, the next look finds the claim and tries again.
            with contextlib.suppress(StoreError):
                self._move_on(wakeup, after_firing(wakeup, instant, fired=True))
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
        extra: Mapping[str, Any] | None = None,
        patience: float = files.PATIENCE_S,
    ) -> Record | None:
        """Claim a firing and settle it `skipped` in one; a one-shot is then no longer pending.

        Returns:
            Its record; None as for `take`.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was taken.
            NotDurable: It could not be written: it is still pending, or settled `not-durable`.
        """
        with self._locked(session_folder(session), patience):
            wakeup = self._ready(session, wakeup_id, due.instant, claims=claims, at=at)
            if wakeup is None:
                return None
            end = outcome_event(at=at, outcome=Outcome.SKIPPED, reason=due.reason, detail=detail)
            draft = _draft(wakeup, due.instant, due.passed, extra, fired=False, end=end)
            claim = claims.take(draft, at=at)
            if claim is None:
                return None
            with contextlib.suppress(StoreError):
                self._move_on(wakeup, after_firing(wakeup, due.instant, fired=False))
            claim.let_go()
            return claim.record

    def _ready(
        self, session: str, wakeup_id: str, instant: datetime, *, claims: ClaimStore, at: datetime
    ) -> Wakeup | None:
        """Return a wake-up if it is still pending for *instant*; under its lock."""
        wakeup = self._hold(session_folder(session), wakeup_id)
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
        path = self._state.at(_occurrence(wakeup, claimed).claim_path)
        # It may have died before it could sync the claim's name: a power cut would then take the
        # claim, and the entry would be gone for good.
        self._sync(os.path.dirname(path))
        self._move_on(wakeup, after_firing(wakeup, claimed, fired=True))

    def _move_on(self, wakeup: Wakeup, following: Wakeup | None) -> None:
        """Put *following* in the place of a pending wake-up; None removes it. Under its lock.

        Raises:
            NotDurable: It could not be written, or not synced. It stays pending, for the one
                instant or the other, and both have their hints.
        """
        folder = session_folder(wakeup.session)
        old = Hint(wakeup.look_at, folder, wakeup.id)
        path = self._entry(folder, wakeup.id)
        if following is None:
            self._remove(wakeup, path)
        else:
            new = Hint(following.look_at, folder, wakeup.id)
            try:
                self._make_hint(new)
                files.replace(path, _encode(following))
            except OSError as error:
                raise files.fault(error, "write", path) from error
            if new == old:
                return
        self._drop_hint(old)

    def _remove(self, wakeup: Wakeup, path: str) -> None:
        try:
            files.remove(path)
            files.sync_folder(os.path.dirname(path))
        except OSError as error:
            # Told "failed", the caller must find it as it was. Its hint is still there. Not synced:
            # a disk that refused a sync will refuse the next, and there is nothing better to do.
            with contextlib.suppress(OSError):
                files.replace(path, _encode(wakeup), sync=False)
            raise files.fault(error, "remove", path) from error
        with contextlib.suppress(OSError):
            files.remove_folder(os.path.dirname(path))

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
        with self._locked(session_folder(session)):
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
        with self._locked(session_folder(session)):
            wakeup = self._ready(session, wakeup_id, instant, claims=claims, at=at)
            if wakeup is None:
                return None
            changed = wakeup.with_(next_at=until, deferred_since=None, try_at=None)
            return self._move_to(wakeup, changed)

    def _move_to(self, wakeup: Wakeup, changed: Wakeup) -> Wakeup:
        self._move_on(wakeup, changed)
        return changed

    # Cancelling -----------------------------------------------------------------------------

    def cancel(self, session: str, wakeup_id: str) -> Wakeup | None:
        """Remove a pending wake-up: it never fires. None if there is none of that id.

        Raises:
            StoreBusy: The session's wake-ups are being changed. It is still pending.
            NotDurable: It could not be removed. It is still pending.
        """
        if not is_id(wakeup_id):
            return None
        with self._locked(session_folder(session)):
            wakeup = self._pending(session, wakeup_id)
            if wakeup is not None:
                self._move_on(wakeup, None)
            return wakeup

    def unwake(self, session: str, wakeup_id: str, *, claims: ClaimStore) -> Unwake:
        """Remove what is pending of a wake-up, and say what its newest firing has come to (W6).

        A firing that is claimed and has not started is not settled here: the caller records a
        cancel under its reference, which its owner takes up.

        Raises:
            StoreBusy: The session's wake-ups are being changed. Nothing was changed.
            NotDurable: It could not be removed. It is still pending.
        """
        if not is_id(wakeup_id):
            return Unwake(Unwoken.UNKNOWN)
        with self._locked(session_folder(session)):
            pending = self._pending(session, wakeup_id)
            firing = self._open_firing(session, wakeup_id, claims)
            if pending is not None:
                self._move_on(pending, None)
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


def _occurrence(wakeup: Wakeup, instant: datetime) -> Occurrence:
    return Occurrence(Kind.WAKE, wakeup.session, instant, wakeup.id)


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
        "session": wakeup.session,
        "trigger": Trigger.WAKE_UP.value,
        "due_at": format_instant(asked_for),
        "by": wakeup.created_by,
        "missed": None if passed is None else passed.to_json(),
        **(extra or {}),
        "wakeup": taken.to_json(),
    }
    return Draft(_occurrence(wakeup, instant), claim, end)


def _taken_with(firing: Record) -> Wakeup | None:
    return Wakeup.from_json(firing.claim.get("wakeup"))


def _second(instant: datetime) -> datetime:
    # Names of hints are exact to the second; a name that lags behind its entry would be stale.
    return instant.replace(microsecond=0)


def _encode(wakeup: Wakeup) -> bytes:
    text = json.dumps(wakeup.to_json(), ensure_ascii=False, indent=1)
    # Half a surrogate pair has no UTF-8; its escape means the same to a reader of JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _decode(data: bytes, folder: str, wakeup_id: str) -> Wakeup | None:
    try:
        found = Wakeup.from_json(json.loads(data))
    except (ValueError, RecursionError):
        return None
    if found is None or found.id != wakeup_id:
        return None
    # A copy that was put into another session's folder is not that session's.
    return found if same_name(session_folder(found.session)) == same_name(folder) else None
