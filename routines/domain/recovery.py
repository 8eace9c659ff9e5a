"""What becomes of a claim whose owner let go of it without an outcome (PROMISES L10, L11)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from routines.domain.record import Event, Owner, Record

# A claim that was taken up so often and never started is the fault of something that stays.
MOST_ATTEMPTS = 3
_OWNERLESS = (Event.BUFFERED.value, Event.RETRY.value, Event.PARKED.value)
# An owner on another host touches its claim every 15 s: forty missed beats are no network hiccup.
PRESUMED_AFTER = timedelta(minutes=10)


class Recovery(StrEnum):
    """What to do with an open claim whose lock was free."""

    LEAVE = "leave"
    OWED_AGAIN = "owed-again"
    NEVER_STARTED = "never-started"
    PARK = "park"
    END_AND_CANCEL = "end-and-cancel"
    END_AND_INTERRUPT = "end-and-interrupt"
    PRESUME = "presume"
    SET_ASIDE = "set-aside"
    DROP_MANUAL = "drop-manual"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where the question is asked.

    Attributes:
        host: The machine's id; None inside a container.
        boot: The id of this boot.
    """

    host: str | None
    boot: str | None


def is_elsewhere(owner: Owner | None, here: Here) -> bool:
    """Return whether *owner* runs on another host than *here*.

    One boot id is one kernel: containers on it share it, and locks work between them.
    """
    if owner is None or (owner.boot is not None and owner.boot == here.boot):
        return False
    return owner.host != here.host or owner.host is None


def decide(record: Record, *, here: Here, silent_for: timedelta, now: datetime) -> Recovery:
    """Decide from the last line of a claim whose lock is free.

    Args:
        record: The claim, read under its lock.
        here: This host and boot.
        silent_for: For how long nobody has touched the claim, by the file server's clock.
        now: The present.
    """
    if not record.readable:
        return Recovery.SET_ASIDE if silent_for >= PRESUMED_AFTER else Recovery.LEAVE
    if record.last in _OWNERLESS:
        # Nobody's, whatever host or boot made it.
        at = record.retry_at
        waits = record.last == Event.PARKED.value or (at is not None and at > now)
        return Recovery.LEAVE if waits else Recovery.OWED_AGAIN
    if record.is_durable and record.run_id is not None and silent_for >= PRESUMED_AFTER:
        # Wherever its owner was: a run is asked about by its id, and nothing is begun by that.
        return Recovery.FOLLOW
    if is_elsewhere(record.owner, here):
        # A free lock proves nothing about a process that another kernel knows.
        return Recovery.PRESUME if silent_for >= PRESUMED_AFTER else Recovery.LEAVE
    if record.is_durable:
        return Recovery.FOLLOW
    match record.last:
        case Event.CLAIM.value | Event.ATTEMPT.value | Event.NOT_STARTED.value:
            if record.occurrence.is_by_hand and not record.claim.get("detached"):
                # The person who typed it has gone: to run it later would be a surprise.
                return Recovery.DROP_MANUAL
            if record.idle_attempts >= MOST_ATTEMPTS:
                return Recovery.NEVER_STARTED if record.recurs else Recovery.PARK
            return Recovery.OWED_AGAIN
        case Event.CANCELLING.value:
            return Recovery.END_AND_CANCEL
        case Event.STARTED.value | Event.RUN.value:
            return Recovery.END_AND_INTERRUPT
        case _:
            return Recovery.LEAVE


def owner_is_this_boot(owner: Owner | None, here: Here) -> bool:
    """Return whether leftovers of *owner* may be looked for: only where its numbers mean them."""
    return owner is not None and owner.boot is not None and owner.boot == here.boot
