"""What is kept and what goes: records, output, and sessions that nothing will use again (D8).

Never removed: an open claim, the newest slot of a routine that was claimed, its newest counted
record. Without those a slot that ran would be owed again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from routines.domain.clock import Clock
from routines.domain.names import day_name, parse_instant_name
from routines.domain.occurrence import instant_of_file
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.natives import NativeStore
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State
from routines.store.wake_entries import session_folder
from routines.store.wake_managing import ManagedStore

# A writer may be about to link into a folder of today or yesterday, in any zone.
_FOLDERS_IN_USE = timedelta(days=2)
_MIB = 1024 * 1024
# A draft takes its name in less than a second; an hour allows for clocks that differ.
_DRAFT_IS_LEFT = timedelta(hours=1)
# Claims are drafted in `open/`, and output is removed with its folder: the two that grow.
_WITHOUT_DRAFTS = ("claims", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How much is kept.

    Attributes:
        claims: At least so many records of each routine.
        days: And at least those of so many days.
        output_days: Output of turns is kept so long.
        output_mib: And no more of it than this in all; the oldest goes first.
    """

    claims: int = 1000
    days: int = 30
    output_days: int = 30
    output_mib: int = 1024


@dataclass(slots=True)
class Pruned:
    """What was removed.

    Attributes:
        claims: Records of occurrences.
        missed: Counted records.
        outputs: Output folders.
        bytes: The size of these in all.
        drafts: Files that a crash left before they had their name.
        ids: Ids of jobs that are not remembered any more.
    """

    claims: int = 0
    missed: int = 0
    outputs: int = 0
    bytes: int = 0
    drafts: int = 0
    ids: int = 0


class RetentionStore:
    """Removes what need not be kept from one state folder."""

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)

    def prune(self, keep: Keep, *, now: datetime, everything: bool = True) -> Pruned:
        """Remove what *keep* does not cover.

        Args:
            keep: How much is kept.
            now: The present.
            everything: Whether all ids of jobs are looked at, and not a part of them.

        Raises:
            NotDurable: Something could not be removed; what was removed before is gone.
        """
        pruned = Pruned()
        try:
            for folder in self._claims.owners():
                self._prune_claims(folder, keep, now, pruned)
                self._prune_missed(folder, keep, now, pruned)
            self._prune_output(keep, now, pruned)
            self._prune_schedulers(keep, now)
            NativeStore(self._state).prune()
            pruned.drafts = files.sweep_drafts(
                self._state.path, skip=_WITHOUT_DRAFTS, before=now - _DRAFT_IS_LEFT
            )
            ManagedStore(self._state).prune(now - timedelta(days=keep.days))
            if files.names(self._state.at("jobs")):
                pruned.ids = self._prune_jobs(keep, now, everything=everything)
        except OSError as error:
            raise files.fault(error, "prune", self._state.path) from error
        return pruned

    def _prune_jobs(self, keep: Keep, now: datetime, *, everything: bool) -> int:
        # Here and not above: most state folders have none.
        from routines.store.job_retention import JobRetention

        jobs = JobRetention(self._state, clock=self._clock)
        return jobs.prune(days=keep.days, now=now, everything=everything).ids

    def _prune_claims(self, folder: str, keep: Keep, now: datetime, pruned: Pruned) -> None:
        root = self._state.at("claims", folder)
        kept, newest = 0, None
        for day in reversed(files.names(root)):
            names = [
                n for n in reversed(files.names(os.path.join(root, day))) if instant_of_file(n)
            ]
            # Runs by hand and a clock that was wrong leave newer ones that stand for no slot.
            newest = newest or next((n for n in names if _is_slot_by(now, n)), None)
            young = day >= day_name(now - timedelta(days=keep.days))
            if young or kept < max(keep.claims, 1):
                # Whole days: one more than asked for is no harm, one less would be.
                kept += len(names)
                continue
            for name in names:
                if name != newest:
                    self._prune_claim(f"claims/{folder}/{day}/{name}", pruned)
            self._drop_folder(os.path.join(root, day), day, now)

    def _prune_claim(self, path: str, pruned: Pruned) -> None:
        record = self._claims.read_path(path)
        if record is None or record.end is None:
            return
        session = record.session
        pruned.bytes += files.size_of(self._state.at(path))
        if files.remove(self._state.at(path)):
            pruned.claims += 1
        if session is not None and _is_fresh(session):
            self._forget(session)

    def _forget(self, session: str) -> None:
        """Remove a fresh session with its last claim (T7), unless something still uses it."""
        if files.names(self._state.at("wakeups", session_folder(session))):
            return
        lease = self._sessions.take(session, clock=self._clock)
        if isinstance(lease, Lease):
            lease.forget()
            lease.let_go()

    def _prune_missed(self, folder: str, keep: Keep, now: datetime, pruned: Pruned) -> None:
        root = self._state.at("missed", folder)
        kept, newest = 0, None
        for day in reversed(files.names(root)):
            found = {
                name: at
                for name in reversed(files.names(os.path.join(root, day)))
                if (at := parse_instant_name(name.removesuffix(".json"))) is not None
            }
            newest = newest or next((name for name, at in found.items() if at <= now), None)
            young = day >= day_name(now - timedelta(days=keep.days))
            if young or kept < max(keep.claims, 1):
                kept += len(found)
                continue
            for name in found:
                if name != newest:
                    pruned.missed += files.remove(os.path.join(root, day, name))
            self._drop_folder(os.path.join(root, day), day, now)

    def _outputs(self) -> Iterator[tuple[datetime, str]]:
        """Yield the output folders with their instants."""
        root = self._state.at("output")
        owners = [name for name in files.names(root) if name != "wake"]
        owners += [f"wake/{name}" for name in files.names(os.path.join(root, "wake"))]
        for owner in owners:
            for day in files.names(os.path.join(root, owner)):
                for name in files.names(os.path.join(root, owner, day)):
                    instant = parse_instant_name(name.split(".")[0])
                    if instant is not None:
                        yield instant, f"{owner}/{day}/{name}"

    def _prune_output(self, keep: Keep, now: datetime, pruned: Pruned) -> None:
        oldest_first = sorted(self._outputs())
        sizes = {place: self._size(place) for _, place in oldest_first}
        total = sum(sizes.values())
        for instant, place in oldest_first:
            old = now - instant > timedelta(days=keep.output_days)
            if not old and total <= keep.output_mib * _MIB:
                continue
            record = self._claims.read_path(f"claims/{place}.jsonl")
            if record is not None and record.end is None:
                continue
            folder = self._state.at("output", place)
            files.remove_tree(folder)
            total -= sizes[place]
            pruned.outputs += 1
            pruned.bytes += sizes[place]
            self._drop_folder(os.path.dirname(folder), place.split("/")[-2], now)

    def _size(self, place: str) -> int:
        folder = self._state.at("output", place)
        return sum(files.size_of(os.path.join(folder, name)) for name in files.names(folder))

    def _prune_schedulers(self, keep: Keep, now: datetime) -> None:
        root = self._state.at("schedulers", "past")
        for day in files.names(root):
            if day < day_name(now - timedelta(days=keep.days)):
                for name in files.names(os.path.join(root, day)):
                    files.remove(os.path.join(root, day, name))
                self._drop_folder(os.path.join(root, day), day, now)

    def _drop_folder(self, path: str, day: str, now: datetime) -> None:
        if day < day_name(now - _FOLDERS_IN_USE):
            files.remove_folder(path)


def _is_slot_by(now: datetime, name: str) -> bool:
    """Return whether a file name is that of a slot, or of a firing, that is not in the future."""
    instant = None if ".manual-" in name else instant_of_file(name)
    return instant is not None and instant <= now


def _is_fresh(session: str) -> bool:
    if session.startswith("job:"):
        return True
    return session.startswith(("routine:", "wake:")) and "@" in session
