"""Runs by hand: claimed under a trigger of their own, so that they never use up a slot (L15)."""

import secrets
from dataclasses import dataclass, replace

from routines.domain.clock import Clock
from routines.domain.names import instant_name
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason, Trigger
from routines.domain.record import Owner, Record
from routines.engine.claim_lines import claim_line
from routines.engine.definitions import Definitions
from routines.engine.needs import Needs, Ready
from routines.engine.work import Work
from routines.errors import SessionBusyError, StoreError, UnknownRoutine
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.places import Room
from routines.store.sessions import Lease, SessionStore
from routines.store.state import State

# Six hex digits tell apart what people start in one second.
_ID_BYTES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asked for.

    Attributes:
        name: The routine.
        append: Text put after its prompt, or None.
        agent: Another agent than its own, or None.
        session: Another session than its own, or None.
        by: Who asks; None for the user of this process.
        detached: Whether a scheduler is to run it.
    """

    name: str
    append: str | None = None
    agent: str | None = None
    session: str | None = None
    by: str | None = None
    detached: bool = False


class ByHand:
    """Claims runs by hand on one state folder."""

    def __init__(
        self,
        state: State,
        *,
        definitions: Definitions,
        needs: Needs,
        clock: Clock,
        owner: Owner,
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._needs = needs
        self._clock = clock
        self._owner = owner
        self._claims = ClaimStore(state)
        self._sessions = SessionStore(state)

    def leave(self, asked: Asked) -> str:
        """Claim a run and leave it to a scheduler; return its id.

        Raises:
            UnknownRoutine: There is none of that name.
            StoreError: It could not be claimed.
        """
        occurrence, session, work = self._plan(asked)
        claim = self._claim(asked, occurrence, session, work)
        claim.let_go()
        return claim.record.ref

    def take(self, asked: Asked) -> Ready:
        """Claim a run with all that its turn needs.

        Raises:
            UnknownRoutine: There is none of that name.
            SessionBusyError: Its session or its group is in use.
            StoreError: It could not be claimed.
        """
        occurrence, session, work = self._plan(asked)
        busy = self._needs.busy(session)
        if busy is not None:
            raise SessionBusyError(session, busy.holder)
        room = self._needs.group_for(work)
        if not isinstance(room, Room):
            raise SessionBusyError(session, "another turn of it runs", group=work.exclusive)
        try:
            claim = self._claim(asked, occurrence, session, work)
            try:
                return Ready(claim, self._lease(claim, session), room, work)
            except BaseException:
                claim.let_go()
                raise
        except BaseException:
            room.let_go()
            raise

    def drop(self, ready: Ready) -> Record:
        """Settle a run that was taken and not begun, since whoever asked for it went away.

        Raises:
            StoreError: It could not be written; whoever looks next settles it likewise.
        """
        try:
            return ready.claim.settle(
                Outcome.FAILED,
                Reason.NOT_STARTED,
                "whoever asked for it was cancelled before it started",
                at=self._clock.now(),
                settled_by=self._owner.user,
            )
        finally:
            ready.let_go()

    def _plan(self, asked: Asked) -> tuple[Occurrence, str, Work]:
        routine = self._definitions.current(asked.name)
        if routine is None:
            raise UnknownRoutine(asked.name, list(self._definitions.routines))
        now = self._clock.now().replace(microsecond=0)
        occurrence = Occurrence(Kind.MANUAL, asked.name, now, secrets.token_hex(_ID_BYTES))
        session = asked.session or routine.session_for(f"{instant_name(now)}-{occurrence.id}")
        # The gate decides whether a slot is worth a turn; who runs by hand has decided.
        work = replace(self._definitions.work(routine, agent=asked.agent), only_if=None)
        return occurrence, session, with_more(work, asked.append)

    def _claim(self, asked: Asked, occurrence: Occurrence, session: str, work: Work) -> Claim:
        line = claim_line(
            work,
            owner=self._owner,
            key=self._state.key(occurrence.ref),
            session=session,
            trigger=Trigger.MANUAL,
            zone=self._definitions.routines[asked.name].zone,
            due_at=occurrence.instant,
            by=asked.by,
            append=asked.append,
            detached=asked.detached,
        )
        claim = self._claims.take(Draft(occurrence, line), at=self._clock.now())
        if claim is None:
            raise StoreError(f"{occurrence.ref} is taken", hint="run it again")
        return claim

    def _lease(self, claim: Claim, session: str) -> Lease:
        lease = self._sessions.take(session, clock=self._clock, own_claim=claim.record.path)
        if isinstance(lease, Lease):
            return lease
        claim.settle(
            Outcome.SKIPPED,
            Reason.BUSY,
            f"session {session} is busy: {lease.holder or 'a turn'}",
            at=self._clock.now(),
        )
        raise SessionBusyError(session, lease.holder)


def with_more(work: Work, append: object) -> Work:
    """Return *work* with text put after its prompt."""
    if not isinstance(append, str) or not append:
        return work
    return replace(work, prompt=f"{work.prompt.rstrip(chr(10))}\n\n{append}")
