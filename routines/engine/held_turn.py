"""One turn that is ours: its claim and its session's lease, what its programs get, what it learned.

What is done with it, from its gate to its outcome, is in `engine.turns`.
"""

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from routines.agents import environment
from routines.agents.base import Turn, TurnResult
from routines.domain.clock import Clock
from routines.domain.decoding import whole_or
from routines.domain.http_agent import header_secrets
from routines.domain.masking import Masker, declared_secrets
from routines.domain.outcome import SHOWN, Reason, one_line
from routines.domain.record import Event, Owner
from routines.engine.work import Work
from routines.errors import StoreError
from routines.store import files
from routines.store.cancels import Cancel, CancelStore
from routines.store.claim import Claim
from routines.store.natives import NativeStore
from routines.store.sessions import Lease, Ledger, native_path
from routines.store.state import State

log = logging.getLogger("routines")


class HeldTurn:
    """One turn of a claimed occurrence, under its session's lease."""

    def __init__(
        self,
        state: State,
        claim: Claim,
        lease: Lease,
        *,
        clock: Clock,
        owner: Owner,
    ) -> None:
        self.state = state
        self.claim = claim
        self.lease = lease
        self.clock = clock
        self.owner = owner
        self.cancels = CancelStore(state)
        self.cancelled_by: Cancel | None = None
        # Of the agent's program, once it was asked.
        self.agent_version: str | None = None
        self.program = ""
        # The session whose conversation the program went on with, and which one that is.
        self.taken_by: str | None = None
        self.taken = ""
        # Asked while a reply is handed over: a stop must not wait for that.
        self.stop_requested: Callable[[], str | None] = lambda: None
        self._began = clock.awake()
        # Until the environment is known, what has a known form is masked.
        self.masker = Masker()

    @property
    def ref(self) -> str:
        """The occurrence."""
        return self.claim.record.ref

    @property
    def folder(self) -> str:
        """Where the turn's output is kept."""
        return self.state.at("output", self.claim.occurrence.place)

    def count_from(self, began: datetime) -> None:
        """Count the time limit from *began*, when another process began the turn."""
        passed = max(self.clock.now() - began, timedelta(0))
        self._began = self.clock.awake() - passed.total_seconds()

    def left(self, work: Work) -> timedelta:
        """Return what is left of the time limit, gates included."""
        return work.timeout - timedelta(seconds=self.clock.awake() - self._began)

    # What it is given ---------------------------------------------------------------------------

    def turn_of(self, work: Work, ledger: Ledger) -> Turn:
        """Return what the agent is given."""
        record = self.claim.record
        now = self.clock.now()
        missed = record.claim.get("missed")
        slotted = not record.occurrence.is_by_hand
        return Turn(
            key=self.state.key(record.turn_ref),
            session=ledger.session,
            native_session=ledger.native_session,
            session_uuid=ledger.uuid(self.state.workspace),
            first=ledger.epoch_turns == 0 and ledger.native_session is None,
            prompt=work.prompt,
            routine=work.routine,
            slot=record.occurrence.instant if slotted and not record.occurrence.is_job else None,
            trigger=record.trigger,
            late=max(now - record.due_at, timedelta(0)) if slotted else timedelta(0),
            missed=whole_or(missed.get("count"), 0) if isinstance(missed, dict) else 0,
            deadline=now + self.left(work),
            session_file=native_path(self.state, ledger.session, ledger.epoch),
        )

    def environment(self, work: Work, turn: Turn, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this turn's programs.

        Raises:
            InvalidFiles: `env_file` can't be used.
        """
        spec_env = () if work.agent is None else work.agent.env
        made = environment.environment(
            base,
            turn,
            root=work.root,
            state=self.state.path,
            env_file=work.env_file,
            env=dict(work.env),
            spec_env=spec_env,
        )
        http = None if work.agent is None else work.agent.http
        headers = () if http is None else header_secrets(http, made)
        self.masker = Masker((*headers, *declared_secrets(made)))
        return made

    def preview(self, work: Work, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment that the turn would have if it began now.

        Raises:
            InvalidFiles: `env_file` can't be used.
        """
        return self.environment(work, self.turn_of(work, self.lease.ledger), base)

    # Meanwhile ----------------------------------------------------------------------------------

    def learn_native_session(self, native_session: str) -> str | None:
        """Keep the id that the program says, at once: a killed turn can then be resumed.

        Returns:
            None, or the session that has that conversation: the turn is to end then, and if the
            program has no prompt yet, it is to be given none.
        """
        ledger = self.lease.ledger
        if ledger.native_session != native_session:
            try:
                ours = native_session == ledger.uuid(self.state.workspace)
                if not ours and self._is_taken(native_session):
                    return self.taken_by
                minted_by = "us" if ours else "program"
                self.lease.write(ledger.with_(native_session=native_session, minted_by=minted_by))
            except StoreError as error:
                # The outcome carries it too; only a kill before that would lose it.
                log.warning("ledger-not-written", extra={"ref": self.ref, "error": error.message})
        return None

    def _is_taken(self, native_session: str) -> bool:
        """Return whether another session has that conversation: then this turn must end."""
        self.taken_by = NativeStore(self.state).take(
            native_session,
            program=self.program,
            session=self.lease.session,
        )
        if self.taken_by is not None:
            self.taken = native_session
        return self.taken_by is not None

    def take_up_cancel(self) -> Cancel | None:
        """Accept a pending cancel and note it, so that it can't be withdrawn; None if none is."""
        cancel = self.cancels.pending(self.ref)
        if cancel is None or not self.cancels.accept(cancel):
            return None
        self.cancelled_by = cancel
        self.claim.append(
            Event.CANCELLING,
            at=self.clock.now(),
            by=cancel.by,
            person=cancel.person,
            newer=cancel.newer,
            intent=cancel.intent,
            lane=cancel.lane,
        )
        return cancel

    def lose(self, work: Work, result: TurnResult) -> None:
        """Begin a new epoch: the program no longer has the conversation, and did nothing.

        Whoever calls this begins the turn again; in the record that is another `started`.

        Raises:
            StoreError: It could not be written; the turn is not to go on.
        """
        self.note_not_started(result)
        ledger = self.lease.ledger
        why = f"{work.agent_name} no longer has the conversation: {result.detail}"
        reason = one_line(self.masker.mask(why), most=SHOWN)
        log.warning("session-lost", extra={"ref": self.ref, "session": ledger.session})
        # The stamp stays: it is the same claim's turn.
        self.lease.write(ledger.new_epoch(reason, agent=work.agent_name))

    def note_not_started(self, result: TurnResult) -> None:
        """Note that the agent was not started, though `started` says that it would be."""
        reason = result.reason or Reason.NOT_STARTED
        try:
            self.claim.append(
                Event.NOT_STARTED,
                at=self.clock.now(),
                reason=reason.value,
                detail=one_line(self.masker.mask(result.detail)),
            )
        except StoreError as error:
            # The outcome says it too.
            log.warning("not-started-not-written", extra={"ref": self.ref, "error": error.message})

    def keep(self, name: str, text: str) -> None:
        """Keep *text* in the output folder, for people."""
        folder = self.folder
        try:
            files.add_folder(folder)
            files.replace(
                os.path.join(folder, name), text.encode("utf-8", "backslashreplace"), sync=False
            )
        except OSError as error:
            # Output is for people; a turn does not fail for it. Its beginning is in the record.
            log.warning(
                "output-not-kept",
                extra={"ref": self.ref, "error": files.fault(error, "write", folder).message},
            )
