"""How a scheduler shows itself to other processes: that it lives, since when, and what it armed."""

import logging
import os
import platform
import uuid
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from routines.domain.clock import Clock
from routines.domain.durations import format_span
from routines.domain.record import Owner
from routines.domain.routine import Routine, schedule_key
from routines.errors import StoreError
from routines.store.schedulers import BEAT_EVERY, Scheduler, SchedulerStore
from routines.store.state import State
from routines.version import VERSION

log = logging.getLogger("routines")


class Presence:
    """One scheduler among those that share a state folder."""

    def __init__(
        self, state: State, *, clock: Clock, owner: Owner, external_clock: bool = False
    ) -> None:
        self._clock = clock
        self._store = SchedulerStore(state)
        self._beat_at = float("-inf")
        self._digests: dict[str, tuple[Routine, str]] = {}
        now = clock.now()
        self._shown = Scheduler(
            id=str(uuid.uuid4()),
            owner=owner.to_json(),
            version=VERSION,
            started_at=now,
            beat_at=now,
            path=os.environ.get("PATH", ""),
            programs={"python": platform.python_version()},
            external_clock=external_clock,
        )
        for past, held in self._store.live():
            if held is False:
                # It died without a word: its last beat is all that is known of its end.
                self._store.leave(replace(past, ended_at=past.beat_at, why="died"), None)
        self.fd: int | None = self._store.enter(self._shown)

    def arm(self, routines: Iterable[Routine], *, faulty: Container[str] = ()) -> None:
        """Show which routines are armed, and from which definition, with the next beat.

        Args:
            routines: Those that are armed.
            faulty: Whose files are broken now; "" for routines.yaml, which is behind all of them.
        """
        routines = list(routines)
        armed = {routine.name: self._digest(routine) for routine in routines}
        # Nobody else has these any more: without them a reader could not say when they fire.
        kept = {one.name: _shown(one) for one in routines if one.name in faulty or "" in faulty}
        self._shown = replace(self._shown, armed=armed, kept=kept)
        self._beat_at = float("-inf")

    def _digest(self, routine: Routine) -> str:
        known = self._digests.get(routine.name)
        if known is None or known[0] is not routine:
            known = self._digests[routine.name] = (routine, routine.digest())
        return known[1]

    def set_back(self, now: datetime, by: timedelta) -> None:
        """Show, with the next beat, that the clock was set back."""
        self._shown = replace(self._shown, set_back=(*self._shown.set_back[-9:], (now, by)))

    def faulty(self, faults: Mapping[str, str]) -> None:
        """Show, with the next beat, what the store refuses of which routine."""
        if faults != self._shown.faults:
            self._shown = replace(self._shown, faults=dict(faults))
            self._beat_at = float("-inf")

    def beat(self, now: datetime, sleeps: tuple[tuple[datetime, datetime], ...]) -> None:
        """Give a sign of life, every 15 s."""
        awake = self._clock.awake()
        if awake - self._beat_at < BEAT_EVERY.total_seconds():
            return
        self._beat_at = awake
        self._shown = replace(self._shown, beat_at=now, sleeps=sleeps)
        try:
            self._store.beat(self._shown)
        except StoreError as error:
            log.warning("beat-not-written", extra={"error": error.message})

    def leave(self, why: str) -> None:
        """Say how it ended, and go."""
        fd, self.fd = self.fd, None
        try:
            self._store.leave(replace(self._shown, ended_at=self._clock.now(), why=why), fd)
        except StoreError as error:
            log.warning("scheduler-not-recorded", extra={"error": error.message})


def _shown(routine: Routine) -> dict[str, Any]:
    """Return what tells when a routine fires and how it is selected; no prompt and no secret."""
    return {
        "schedule": schedule_key(routine),
        "zone": routine.zone,
        "jitter": format_span(routine.jitter),
        "tags": list(routine.tags),
    }
