"""Who lives: schedulers, and the owners of claims that have no outcome yet.

Asked, never taken: no lock is touched that another could meet (PROMISES L19).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from routines.domain.outcome import State
from routines.domain.record import Event, Owner, Record
from routines.store.claims import ClaimStore
from routines.store.schedulers import BEAT_EVERY, Scheduler, SchedulerStore
from routines.store.state import State as StateFolder

# Where locks and processes can't be asked about, four beats without a sign are a death.
SILENT = 4 * BEAT_EVERY
# States of a claim that nobody owns: they wait on the disk for whoever finds them due.
_OWNERLESS = frozenset([Event.BUFFERED.value, Event.RETRY.value, Event.PARKED.value])
_TAKEN_UP_LATER = frozenset([Event.CLAIM.value, Event.ATTEMPT.value, Event.NOT_STARTED.value])


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Who schedules on a state folder.

    Attributes:
        live: Those known to be alive that give signs of it, the longest first.
        mute: Those that hold their lock and give no sign: stopped, or waiting for their disk.
        last: The newest one that is gone; None if there never was one.
        last_at: When it ended or last gave a sign of life.
        last_why: How it ended, in words; empty if that is not known.
    """

    live: tuple[Scheduler, ...] = ()
    mute: tuple[Scheduler, ...] = ()
    last: Scheduler | None = None
    last_at: datetime | None = None
    last_why: str = ""

    @property
    def alive(self) -> bool:
        """Whether anything fires here at the moment."""
        return bool(self.live)

    @property
    def watched_since(self) -> datetime | None:
        """Since when slots are started without a break; None if nobody is alive."""
        if not self.live:
            return None
        awake = [max([one.started_at, *(end for _, end in one.sleeps)]) for one in self.live]
        return min(awake)

    @property
    def waits_for_outside(self) -> bool:
        """Whether those alive start no slot themselves: a clock outside delivers them."""
        return bool(self.live) and all(one.external_clock for one in self.live)


def is_alive(identity: Mapping[str, Any]) -> bool | None:
    """Return whether a process still lives; None if that can't be told from here."""
    # Here and not above: a held lock mostly answers first, and this import costs a third of `list`.
    from routines.agents.identity import is_alive as lives

    return lives(identity)


def schedulers(state: StateFolder | None, *, now: datetime) -> Schedulers:
    """Return who is alive and who was there last."""
    if state is None:
        return Schedulers()
    store = SchedulerStore(state)
    live: list[Scheduler] = []
    mute: list[Scheduler] = []
    dead: list[Scheduler] = []
    for found, locked in store.live():
        if not _lives(found, locked, now):
            dead.append(found)
        else:
            (mute if is_mute(found, now) else live).append(found)
    live.sort(key=lambda scheduler: scheduler.started_at)
    past = next(store.past(), None)
    gone = max((*dead, *mute), key=lambda scheduler: scheduler.beat_at, default=None)
    if gone is not None and (past is None or gone.beat_at > _end_of(past)):
        how = "gives no sign" if gone in mute else "was killed"
        if gone in dead and _is_elsewhere(state):
            # It has its lock in the folder that this one was copied from.
            how = "can't be told of: this folder was copied or moved"
        why = f"pid {gone.owner.get('pid', '?')} {how}"
        return Schedulers(tuple(live), tuple(mute), gone, gone.beat_at, why)
    if past is not None:
        return Schedulers(tuple(live), tuple(mute), past, _end_of(past), past.why)
    return Schedulers(tuple(live), tuple(mute))


def _is_elsewhere(state: StateFolder) -> bool:
    """Return whether a state folder is not the one that its `format` was written in."""
    try:
        return os.stat(state.path).st_ino != state.format.inode
    except OSError:
        return False


def is_mute(scheduler: Scheduler, now: datetime) -> bool:
    """Return whether its beats have ended: its lock is held, and nothing of it fires."""
    return age(now, scheduler.beat_at) > SILENT


def _end_of(scheduler: Scheduler) -> datetime:
    return scheduler.ended_at or scheduler.beat_at


def _lives(scheduler: Scheduler, locked: bool | None, now: datetime) -> bool:
    if locked:
        return True
    alive = is_alive(scheduler.owner)
    if alive is None or locked is None:
        # Another host, or no way to ask: only the heartbeat speaks.
        return alive is not False and now - scheduler.beat_at < SILENT
    return False


def owner_lives(claims: ClaimStore, record: Record) -> bool | None:
    """Return whether an open claim has a live owner; None if that can't be told from here."""
    if claims.is_held(record):
        return True
    return None if record.owner is None else is_alive(record.owner.to_json())


def state_word(claims: ClaimStore, record: Record) -> str:
    """Return where a record stands: a word of O4, `settled`, or `unknown`.

    `unknown` stands for "can't tell from here": its owner is on another host or in a container, or
    `waits_for_lease`.
    """
    if record.end is not None:
        return "settled"
    if record.last in _OWNERLESS:
        return record.written_state.value
    if record.claim.get("detached") and record.last == Event.CLAIM.value:
        return record.written_state.value
    lives = owner_lives(claims, record)
    if lives is False and _is_worked(record):
        return "unknown"
    if lives:
        return record.written_state.value
    if lives is None:
        # A claim that was let go of before it started is nobody's, whatever made it.
        return "claimed" if record.owner is None and record.last in _TAKEN_UP_LATER else "unknown"
    if record.last in _TAKEN_UP_LATER:
        # Nothing of it has started and nothing of it is lost: whoever looks takes it up (L10).
        return State.CLAIMED.value
    # A durable run goes on without its owner: what was last heard of it is that it runs.
    return record.written_state.value if record.is_durable else "lost"


def _is_worked(record: Record) -> bool:
    return record.is_under_way and "worker" in (record.started or {})


def waits_for_lease(claims: ClaimStore, record: Record) -> bool:
    """Return whether a job is held by the lease of a program alone, and its claimer is gone.

    Whoever has its token may be another process than the one that claimed it: only the end of
    the lease tells, and whoever looks at the queue then takes the job back.
    """
    return _is_worked(record) and record.end is None and owner_lives(claims, record) is False


def lease_words(record: Record) -> str:
    """Return what is known of a job that `waits_for_lease`."""
    # Here and not above: `list` would pay for it where there is no job.
    from routines.domain.job import LEASE

    pid = "?" if record.owner is None else record.owner.pid
    seconds = round(LEASE.total_seconds())
    return f"pid {pid}, which claimed it, is gone; taken back once its lease of {seconds} s lapses"


def is_left_unstarted(claims: ClaimStore, record: Record) -> bool:
    """Return whether an open claim was not started and its owner is gone: it is owed again."""
    waits = record.end is None and record.last in _TAKEN_UP_LATER
    if not waits or record.claim.get("detached"):
        return False
    return owner_lives(claims, record) is False


def unstarted_words(record: Record) -> str:
    """Return what is known of a claim that `is_left_unstarted`."""
    pid = "?" if record.owner is None else record.owner.pid
    return f"not started, and its owner (pid {pid}) is gone: a scheduler takes it up"


def is_unwatched(claims: ClaimStore, record: Record) -> bool:
    """Return whether an open claim's durable run goes on, and nobody asks how it stands."""
    return record.is_durable and owner_lives(claims, record) is False


def describe(owner: Owner | None, *, here: str) -> str:
    """Return an owner for a person: `ana (pid 4121)`, with the host if it is another one."""
    if owner is None:
        return "an unknown process"
    user, _, host = owner.user.partition("@")
    return f"{user if host == here else owner.user} (pid {owner.pid})"


def age(now: datetime, instant: datetime) -> timedelta:
    """Return how long ago *instant* was, never less than nothing: clocks are set back."""
    return max(now - instant, timedelta(0))
