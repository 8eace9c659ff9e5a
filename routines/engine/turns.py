"""The steps of one turn, in the order that its promises need, whoever runs the agent.

    gate -> begin (checks, ledger, `started`) -> the agent -> finish (outcome, ledger)

All of it blocks; an engine calls it off its loop, a turn process just calls it.
"""

from collections.abc import Callable, Mapping

from routines.agents.base import Turn, TurnResult
from routines.domain.clock import Clock
from routines.domain.record import Owner, Record
from routines.engine import beginning, finishing, gates, settling
from routines.engine.held_turn import HeldTurn
from routines.engine.verdicts import Verdict
from routines.engine.work import Work
from routines.store.claim import Claim
from routines.store.sessions import Lease
from routines.store.state import State


class TurnSteps(HeldTurn):
    """One turn of a claimed occurrence, step by step."""

    def __init__(
        self,
        state: State,
        claim: Claim,
        lease: Lease,
        *,
        clock: Clock,
        owner: Owner,
        reread: Callable[[Work], "Work | Verdict"] | None = None,
    ) -> None:
        super().__init__(state, claim, lease, clock=clock, owner=owner)
        self._reread = reread

    def gate(self, work: Work, base_env: Mapping[str, str]) -> Verdict | None:
        """Ask `only_if`; None if the turn may go on. It may be asked again after a crash (T6)."""
        return gates.gate(self, work, base_env)

    def begin(
        self, work: Work, is_durable: Callable[[Work], bool] = lambda _: False
    ) -> tuple[Work, Turn] | None:
        """Look at everything once more, write ledger and `started`; None if it is settled instead.

        When this returns a turn, `started` is on the disk and the agent may be launched. When it
        returns None nothing may be launched, and the claim has an outcome (PROMISES L9).

        Args:
            work: What is to be done, as it was when the occurrence was claimed.
            is_durable: Whether the agent of what is done now outlives its turn's owner.

        Raises:
            StoreError: `started` could not be written: no agent.
        """
        return beginning.begin(self, work, reread=self._reread, is_durable=is_durable)

    def verify(
        self, work: Work, turn: Turn, result: TurnResult, base_env: Mapping[str, str]
    ) -> TurnResult:
        """Let `verify` judge a completed turn: it gets the reply on stdin, and exit 0 is a yes."""
        return gates.verify(self, work, turn, result, base_env)

    def settle(self, verdict: Verdict) -> Record:
        """Settle a turn that did not start."""
        return settling.settle_verdict(self, verdict)

    def finish(self, work: Work, turn: Turn, result: TurnResult) -> Record:
        """Write down how the turn ended, and bring the ledger up to it."""
        return finishing.finish(self, work, turn, result)
