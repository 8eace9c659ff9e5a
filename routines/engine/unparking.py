"""Letting what is parked run after all, however late it is (PROMISES L12)."""

from datetime import datetime

from routines.domain.names import format_instant
from routines.domain.record import Event
from routines.store.claims import ClaimStore


def unpark(claims: ClaimStore, path: str, *, at: datetime, by: str, person: bool) -> bool:
    """Put a parked claim back to be tried; False if it is not parked any more.

    Raises:
        NotDurable: It could not be written; it is still parked.
    """
    for entry in claims.open_entries():
        claim = claims.hold(entry) if entry.claim_path == path else None
        if claim is None:
            continue
        try:
            # Looked at again under its lock: another may have been quicker.
            if claim.record.last != Event.PARKED.value:
                return False
            claim.append(
                Event.RETRY,
                at=at,
                until=format_instant(at),
                by=by,
                # Whoever asks has decided that it is not too late.
                person=True,
                detail="recovered" if person else "recovered by a turn",
            )
            return True
        finally:
            claim.let_go()
    return False
