"""How long the deliveries of one turn may take in all: its session is held meanwhile."""

from datetime import datetime, timedelta

# A notification takes a second and a mail a few; however many there are, this is enough.
LONGEST = timedelta(seconds=60)
# With less, targets that are well would not get the reply. A slot that is nearer is met.
SHORTEST = timedelta(seconds=10)
# What hangs is ended, the outcome is written and the session let go of, before the slot comes.
_BEFORE = timedelta(seconds=5)
# So begins what a record says of a target that took all its time.
HUNG = "not delivered within "


def time_to_deliver(*, now: datetime, next_slot: datetime | None) -> timedelta:
    """Return how long all deliveries of a turn may take together.

    Args:
        now: When they begin.
        next_slot: The routine's next slot after that, or None: one that met the turn while a
            delivery hangs would be skipped, or end it.
    """
    if next_slot is None:
        return LONGEST
    return min(max(next_slot - now - _BEFORE, SHORTEST), LONGEST)
