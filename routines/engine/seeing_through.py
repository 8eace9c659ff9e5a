"""Claims that this process made and could not start yet: `fire` and `tick` see them through.

A slot that is buffered waits for its predecessor, and so does one that supersedes it. With an
outside clock there may be nobody else who looks after it (PROMISES L13, L14). Whoever does start
it, here or in another process, does so as ever: under the claim's lock, by `TakingUp`.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from routines.domain.clock import Clock
from routines.domain.record import Event, Record
from routines.domain.routine import DEFAULT_TIMEOUT
from routines.engine.definitions import Definitions
from routines.engine.needs import Needs, Ready
from routines.engine.overlapping import Overlaps
from routines.engine.passes import Pass
from routines.engine.recovering import Recoverer
from routines.engine.taking_up import TakingUp
from routines.errors import RoutinesError
from routines.store.claims import ClaimStore
from routines.store.state import State

log = logging.getLogger("routines")

# On top of a turn's timeout: the grace of its program, its deliveries, what is left of it.
_ENDING = timedelta(minutes=2)


@dataclass(slots=True)
class Seen:
    """How a claim that is seen through stands.

    Attributes:
        record: Its record; None if it could not be read.
        ready: Its turn, to be started now.
        over: Whether there is nothing more to wait for.
        settled: Records that were settled on the way.
    """

    record: Record | None = None
    ready: Ready | None = None
    over: bool = False
    settled: list[Record] = field(default_factory=list)


class SeeingThrough:
    """Looks after single open claims, for as long as somebody waits for them."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        needs: Needs,
        overlaps: Overlaps,
        recoverer: Recoverer,
        taking_up: TakingUp,
        clock: Clock,
    ) -> None:
        self._definitions = definitions
        self._needs = needs
        self._overlaps = overlaps
        self._recoverer = recoverer
        self._taking_up = taking_up
        self._clock = clock
        self._claims = ClaimStore(state)

    def patience(self, path: str) -> timedelta:
        """Return how long to wait for a claim: its predecessor's turn and its own end by then."""
        record = self._claims.read_path(path)
        name = None if record is None else record.routine
        routine = None if name is None else self._definitions.routines.get(name)
        timeout = DEFAULT_TIMEOUT if routine is None else routine.timeout
        return 2 * (timeout + _ENDING)

    def look(self, path: str, now: datetime, *, takes_place: bool) -> Seen:
        """Look at one claim: take it up if it can start, or say how it stands.

        Args:
            path: The claim, below the state folder.
            now: The present.
            takes_place: Whether its turn needs a place under `concurrency`.
        """
        unstarted, awake = self._taking_up.unstarted, self._clock.awake()
        if not unstarted.may_start(path, awake):
            return Seen()
        try:
            return self._look(path, now, takes_place=takes_place)
        except (RoutinesError, OSError) as error:
            # It is claimed, whatever ails the store: looked at again, later and later.
            unstarted.hold_back(path, awake)
            log.error("take-up-failed", extra={"ref": path, "error": str(error)})  # noqa: TRY400
            return Seen()

    def _look(self, path: str, now: datetime, *, takes_place: bool) -> Seen:
        record = self._claims.read_path(path)
        if record is None:
            return Seen(over=True)
        if record.end is not None:
            # Somebody else has written it: it is told only when it is on the disk (D5).
            self._claims.sync(record.occurrence)
            return Seen(record, over=True)
        if self._claims.is_held(record):
            return Seen(record)
        if record.is_under_way or not record.readable:
            # Somebody began it and has gone: what becomes of it is worked out as ever.
            self._recoverer.recover_path(path)
            return Seen(record)
        if _is_put_off(record, now) or self._needs.is_paused(record.routine, now):
            return Seen(record, over=True)
        if record.last == Event.BUFFERED.value:
            # Read without its lock: a newer slot that finds it locked could not take its place.
            before = self._overlaps.predecessor(record)
            if before is not None:
                if not self._claims.is_held(before):
                    self._recoverer.recover_path(before.path)
                return Seen(record)
        return self._take_up(record, now, takes_place=takes_place)

    def _take_up(self, record: Record, now: datetime, *, takes_place: bool) -> Seen:
        for entry in self._claims.open_entries():
            if entry.claim_path != record.path:
                continue
            claim = self._claims.hold(entry)
            if claim is None:
                continue
            done = Pass()
            try:
                self._taking_up.take_up(claim, now, done, takes_place=takes_place)
            except BaseException:
                claim.let_go()
                raise
            return Seen(record, ready=next(iter(done.ready), None), settled=done.settled)
        return Seen(record)


def _is_put_off(record: Record, now: datetime) -> bool:
    """Return whether it waits until a time that has not come, or for a person."""
    at = record.retry_at
    return record.last == Event.PARKED.value or (at is not None and at > now)
