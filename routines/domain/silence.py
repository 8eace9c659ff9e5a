"""Whether a routine has not completed for too long: one rule for alerts and for every screen."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from routines.domain.alerting import silent_from
from routines.domain.schedule import Schedule, has_ended

# A pass after a start or a sleep may still be claiming what was owed, and settling what has ended.
SETTLING_IN = timedelta(minutes=2)


def silent_since(
    *,
    now: datetime,
    base: datetime,
    schedule: Schedule | None,
    silent_for: timedelta | None,
    timeout: timedelta,
    watched_since: datetime | None = None,
    begun: Iterable[datetime] = (),
) -> datetime | None:
    """Return since when nothing has completed, if that is for longer than it should be.

    A turn under way is no excuse for ever: with `overlap: supersede` there always is one. By
    default, and after an absence, the first one that began has its `timeout` to complete; where
    `silent_for` is written and somebody was there all the time, only that counts.

    Args:
        now: The present.
        base: When it last completed, or from when on it is to complete at all.
        schedule: What it fires by.
        silent_for: What its file says, or None for the default.
        timeout: How long a turn of it may take.
        watched_since: Since when somebody schedules without a break; None if that is not known.
        begun: When each turn began that has not completed since *base*, open ones included.
    """
    if schedule is not None and has_ended(schedule, now):
        return None
    if watched_since is not None and now - watched_since < SETTLING_IN:
        return None
    at = silent_from(base, schedule=schedule, silent_for=silent_for, timeout=timeout)
    if at is None or now < at:
        return None
    if silent_for is None or watched_since is None or base < watched_since:
        # What began before an absence could not complete in it.
        here = [one for one in begun if watched_since is None or one >= watched_since]
        if here and now < min(here) + timeout + SETTLING_IN:
            return None
    return base
