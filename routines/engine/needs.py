"""What a turn needs before it may start: no pause, its session, a place, and its group.

What has to wait for one of them waits without the others.
"""

from dataclasses import dataclass
from datetime import datetime

from routines.domain.clock import Clock
from routines.domain.record import Owner
from routines.engine.claim_lines import note_attempt
from routines.engine.definitions import Definitions
from routines.engine.recovering import Recoverer
from routines.engine.work import Work
from routines.errors import StoreError
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.places import PlaceStore, Room
from routines.store.sessions import Busy, Lease, SessionStore
from routines.store.state import State
from routines.store.switches import SwitchStore


@dataclass(slots=True)
class Ready:
    """A claimed occurrence with everything that its turn needs.

    Attributes:
        claim: Its claim, held.
        lease: Its session, held.
        room: Its place under `concurrency` and its group, as far as it needs them.
        work: What is to be done.
    """

    claim: Claim
    lease: Lease
    room: Room
    work: Work

    def let_go(self) -> None:
        """Let go of everything: the claim stays, unstarted, and is taken up again."""
        self.lease.let_go()
        self.room.let_go()
        self.claim.let_go()


class Needs:
    """What the turns of one state folder need, and who has it."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        recoverer: Recoverer,
        clock: Clock,
        owner: Owner,
    ) -> None:
        self._definitions = definitions
        self._recoverer = recoverer
        self._clock = clock
        self._owner = owner
        self._claims = ClaimStore(state)
        self._switches = SwitchStore(state)
        self._sessions = SessionStore(state)
        self._places = PlaceStore(state)

    def is_paused(self, routine: str | None, now: datetime) -> bool:
        """Return whether nothing of *routine* may start now."""
        return self._switches.held(routine, now=now) is not None

    def busy(self, session: str) -> Busy | None:
        """Return who has *session*; what only its stamp or its record holds is looked after first.

        Raises:
            StoreError: It could not be.
        """
        busy = self._sessions.is_busy(session)
        if busy is None or busy.locked:
            return busy
        if busy.claim is not None:
            self._recoverer.recover_path(busy.claim)
        elif busy.opened is not None:
            self._recoverer.recover_opened(session, busy.opened)
        else:
            return busy
        return self._sessions.is_busy(session)

    def lease(self, session: str, *, own_claim: str | None = None) -> Lease | Busy:
        """Take the lease of *session*; an opened program that outlived its holder is ended first.

        Args:
            session: Its name.
            own_claim: As in `SessionStore.take`.
        """
        lease = self._sessions.take(session, clock=self._clock, own_claim=own_claim)
        if isinstance(lease, Lease) or lease.opened is None:
            return lease
        self._recoverer.recover_opened(session, lease.opened)
        return self._sessions.take(session, clock=self._clock, own_claim=own_claim)

    def room_for(self, work: Work) -> Room | str:
        """Return a place, and the group of *work*, or why there is none."""
        return self._room(self._definitions.concurrency, work.exclusive)

    def group_for(self, work: Work) -> Room | str:
        """Return the group alone: a run by hand or from outside waits for no place."""
        return self._room(None, work.exclusive)

    def _room(self, places: int | None, group: str | None) -> Room | str:
        room = self._places.take(places=places, group=group)
        if group is None or not isinstance(room, Room):
            return room
        # The lock first: a durable run that another process begins meanwhile is seen by one of
        # the two, for its `started` is on the disk before it lets go.
        try:
            is_kept = self._is_kept(group)
        except BaseException:
            room.let_go()
            raise
        if not is_kept:
            return room
        room.let_go()
        return f"a turn of the group {group} runs"

    def _is_kept(self, group: str) -> bool:
        """Return whether a durable run has *group*: it keeps it also while nobody watches it."""
        for entry in self._claims.open_entries():
            record = self._claims.read_path(entry.claim_path)
            if record is not None and record.is_durable and record.group == group:
                return True
        return False

    def take_up(self, claim: Claim, work: Work, room: Room | str, *, now: datetime) -> Ready | None:
        """Take what an unstarted claim needs to start after all; None if it has to wait on.

        The claim is let go of when it waits, and then the room too.

        Args:
            claim: The claim, held.
            work: What is to be done.
            room: The room that was taken for it, or why there is none.
            now: The present.
        """
        if not isinstance(room, Room):
            claim.let_go()
            return None
        try:
            lease = self.lease(str(claim.record.session), own_claim=claim.record.path)
        except BaseException:
            room.let_go()
            raise
        if not isinstance(lease, Lease):
            room.let_go()
            claim.let_go()
            return None
        ready = Ready(claim, lease, room, work)
        try:
            note_attempt(claim, owner=self._owner, at=now)
        except StoreError:
            ready.let_go()
            raise
        return ready

    def take_over(self, claim: Claim, work: Work) -> Ready | None:
        """Take what a durable run keeps, to go on with it; None if its session is taken just now.

        It is at work already: place and group are taken where they are free, and not waited for.
        """
        lease = self.lease(str(claim.record.session), own_claim=claim.record.path)
        if not isinstance(lease, Lease):
            claim.let_go()
            return None
        try:
            return Ready(claim, lease, self._room_left(work), work)
        except BaseException:
            lease.let_go()
            raise

    def _room_left(self, work: Work) -> Room:
        places, group = self._definitions.concurrency, work.exclusive
        for wanted in ((places, group), (None, group), (places, None)):
            room = self._places.take(places=wanted[0], group=wanted[1])
            if isinstance(room, Room):
                return room
        return Room()
