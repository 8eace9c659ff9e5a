"""The claims of slots as this process makes them: to be run, or settled as they are made."""

from datetime import datetime
from typing import Any

from routines.domain.occurrence import Occurrence
from routines.domain.outcome import Trigger
from routines.domain.record import Owner
from routines.domain.routine import Routine
from routines.engine.claim_lines import slot_line, workless_line
from routines.engine.passes import Pass
from routines.engine.work import Work
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.state import State


class Slots:
    """Makes the claims of slots on one state folder."""

    def __init__(self, state: State, *, owner: Owner) -> None:
        self._state = state
        self._owner = owner
        self._claims = ClaimStore(state)

    def draft(
        self,
        routine: Routine,
        occurrence: Occurrence,
        work: Work,
        trigger: Trigger,
        *,
        event: dict[str, Any] | None = None,
    ) -> Draft:
        """Return the claim of a slot that is to be run; *event* is a line that it is born with."""
        line = slot_line(
            routine,
            occurrence,
            work,
            owner=self._owner,
            key=self._state.key(occurrence.ref),
            trigger=trigger,
        )
        return Draft(occurrence, line, event=event)

    def settle(
        self,
        routine: Routine,
        occurrence: Occurrence,
        trigger: Trigger,
        end: dict[str, Any],
        now: datetime,
        done: Pass,
    ) -> None:
        """Claim a slot and settle it in the same moment, with the outcome line *end*."""
        line = workless_line(routine, occurrence, owner=self._owner, trigger=trigger)
        claim = self._claims.take(Draft(occurrence, line, end=end), at=now)
        if claim is not None:
            done.settled.append(claim.record)
            claim.let_go()
        done.done.append(routine.name)
