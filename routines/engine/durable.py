"""A durable turn: its run is started, looked at until it has ended, and left alone at a stop.

Nothing here knows what the run is doing. What its agent says is believed where it says it; what is
not heard, a start above all, is asked again under the same key (DESIGN 8, PROMISES L10).
"""

import logging
from dataclasses import dataclass
from datetime import timedelta

from routines.agents.base import (
    AgentUnavailable,
    DurableAgent,
    Reply,
    SessionBusy,
    Turn,
    TurnFailed,
    TurnResult,
    Waiting,
)
from routines.agents.durable import read_state
from routines.domain.durable import Ending, RunEnd, RunWord, end_of, next_ask, next_look
from routines.domain.durations import format_span
from routines.domain.outcome import Outcome, Reason, one_line
from routines.engine.asking import TICK_S, Asker, Fault, Leave, Left
from routines.engine.clock import EngineClock
from routines.engine.off_loop import in_thread
from routines.engine.resuming import is_adopted, is_lost, note_run
from routines.engine.turns import TurnSteps
from routines.engine.work import Work
from routines.errors import StoreError

log = logging.getLogger("routines")


@dataclass(slots=True)
class _Question:
    """Something that is asked again and again.

    Attributes:
        at: When it is asked next, in seconds awake.
        faults: How often in a row it was not answered.
    """

    at: float
    faults: int = 0


class Follower:
    """One durable turn, from its start or from wherever its last owner left it.

    Args:
        steps: The turn; it is under way.
        work: What is to be done.
        turn: What the agent is given.
        agent: Whose run it is.
        clock: When to look again.
        leave: What a stop says.
        resumed: Whether another process began the turn.
    """

    def __init__(
        self,
        steps: TurnSteps,
        work: Work,
        turn: Turn,
        agent: DurableAgent,
        *,
        clock: EngineClock,
        leave: Leave,
        resumed: bool,
    ) -> None:
        self._steps = steps
        self._work = work
        self._turn = turn
        self._clock = clock
        self._leave = leave
        self._ask = Asker(
            agent,
            ref=steps.ref,
            clock=clock,
            leave=leave,
            pulse=self._pulse,
            is_known=lambda run_id: is_adopted(steps.state, steps.claim.record.path, run_id),
        )
        # Whether a start whose answer nobody heard may have begun a run.
        self._doubtful = resumed
        self._pulsed_at = float("-inf")
        self._missing_since: float | None = None

    async def follow(self) -> TurnResult | None:
        """See the turn to its end; None if it is left to go on, or was settled by another."""
        run_id = self._steps.claim.record.run_id
        try:
            if run_id is not None:
                return await self._watch(run_id, first=timedelta(0))
            started = await self._start()
            if not isinstance(started, str):
                return started
            return await self._watch(started, first=next_look(0))
        except Left:
            log.info("left-alone", extra={"ref": self._steps.ref})
            return None

    # Starting -----------------------------------------------------------------------------------

    async def _start(self) -> str | TurnResult | None:
        """Return the id of the run, how the turn ends without one, or None if it is not ours."""
        asked, question = 0, _Question(self._clock.awake())
        while True:
            await self._until(question)
            ended = self._ends_unstarted()
            if ended is not None:
                return ended
            try:
                run_id = await self._ask.start(self._turn)
                if await in_thread(note_run, self._steps, run_id):
                    return run_id
            except Left:
                raise
            except Waiting as error:
                # It knows the key, and says that nothing has begun.
                self._doubtful = False
                pause = next_ask(asked)
                if pause is None:
                    return _failed(f"nobody approved of it, asked {asked + 1} times", error)
                log.info("run-waits", extra={"ref": self._steps.ref, "again_s": pause.seconds})
                asked, question.at = asked + 1, self._clock.awake() + pause.total_seconds()
            except TurnFailed as error:
                return _failed("", error)
            except (SessionBusy, AgentUnavailable) as error:
                if not self._doubtful:
                    return _never_started(error)
                # An earlier call may have begun it: that this one did nothing proves nothing.
                self._fault("start", question, error)
            except Exception as error:  # noqa: BLE001 - an agent may fail in any way, a disk too
                self._doubtful = True
                self._fault("start", question, error)
            else:
                # The claim was lost while the start was under way.
                await self._ask.call_off(run_id)
                return None

    def _ends_unstarted(self) -> TurnResult | None:
        """Return how a turn ends that is to end, where surely no run of it has begun."""
        ending = None if self._doubtful else self._ending()
        if ending is None:
            return None
        if ending is Ending.CANCEL:
            return TurnResult(outcome=Outcome.CANCELLED, detail="before its run was started")
        detail = f"ended at its limit of {self._limit}; no run was started"
        return TurnResult(outcome=Outcome.TIMED_OUT, reason=Reason.TIMEOUT, detail=detail)

    # Watching -----------------------------------------------------------------------------------

    async def _watch(self, run_id: str, *, first: timedelta) -> TurnResult | None:
        """Look at a run until it has ended; None if its claim was settled by another."""
        look = _Question(self._clock.awake() + first.total_seconds())
        stop: _Question | None = None
        told = False
        looks = 0
        while True:
            ending = self._ending()
            if ending is not None and stop is None:
                stop = _Question(self._clock.awake())
            await self._until(*([look] if stop is None or told else [look, stop]))
            if stop is not None and not told and self._clock.awake() >= stop.at:
                told = await self._tell_to_end(run_id, stop)
                # How it ended is for the run to say.
                look.at = self._clock.awake()
            if self._clock.awake() < look.at:
                continue
            if await in_thread(self._is_over):
                return None
            end, reply = await self._look(run_id, look, ending)
            if told and look.faults == 0:
                look.at = self._clock.awake() + next_look(0, told=looks).total_seconds()
                looks += 1
            if end is not None:
                return TurnResult(
                    outcome=end.outcome, reason=end.reason, detail=end.detail, reply=reply
                )

    async def _tell_to_end(self, run_id: str, question: _Question) -> bool:
        """Ask the agent to end the run; False if that was refused or not heard."""
        try:
            await self._ask.cancel(run_id)
        except Left:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises, the run goes on
            self._fault("cancel", question, error)
            return False
        log.info("run-told-to-end", extra={"ref": self._steps.ref, "run": run_id})
        return True

    async def _look(
        self, run_id: str, question: _Question, ending: Ending | None
    ) -> tuple[RunEnd | None, Reply]:
        """Look at the run once; return how the turn ends, if it has ended."""
        try:
            word, detail, reply = read_state(await self._ask.inspect(run_id))
        except Left:
            raise
        except Exception as error:  # noqa: BLE001 - a failed look proves nothing
            self._missing_since = None
            self._fault("inspect", question, error)
            return None, Reply()
        now = self._clock.awake()
        question.faults, question.at = 0, now + next_look(0).total_seconds()
        if word is not RunWord.MISSING:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        missing_for = timedelta(0)
        if self._missing_since is not None:
            missing_for = timedelta(seconds=now - self._missing_since)
        end = end_of(word, detail, ending=ending, missing_for=missing_for, limit=self._limit)
        if end is not None and end.outcome is Outcome.COMPLETED and reply.failed is not None:
            end = RunEnd(Outcome.FAILED, Reason.AGENT, one_line(reply.failed))
        return end, reply

    # What both need -----------------------------------------------------------------------------

    @property
    def _limit(self) -> str:
        return format_span(self._work.timeout)

    def _ending(self) -> Ending | None:
        """Return why the run is to end before it does by itself."""
        if self._steps.cancelled_by is not None:
            return Ending.CANCEL
        return Ending.TIMEOUT if self._steps.left(self._work) <= timedelta(0) else None

    def _is_over(self) -> bool:
        """Return whether another has settled the claim, or has its name."""
        claim = self._steps.claim
        return claim.reread().end is not None or is_lost(claim)

    async def _until(self, *questions: _Question) -> None:
        """Wait until one of *questions* is due, or why the turn is to end has changed.

        Raises:
            Left: We were told to leave.
        """
        before = self._ending()
        while True:
            if self._leave.soon or self._leave.now:
                raise Left
            await self._pulse()
            left = min(one.at for one in questions) - self._clock.awake()
            if left <= 0 or self._ending() is not before:
                return
            await self._ask.wait(left)

    def _fault(self, call: str, question: _Question, error: Exception) -> None:
        question.faults += 1
        question.at = self._clock.awake() + next_look(question.faults).total_seconds()
        name = "" if isinstance(error, Fault | StoreError) else type(error).__name__
        words = ": ".join(part for part in (name, str(error)) if part)
        log.warning(
            "run-not-answered",
            extra={
                "ref": self._steps.ref,
                "call": call,
                "n": question.faults,
                "error": one_line(words),
            },
        )

    async def _pulse(self) -> None:
        """Show that we live, and see whether anyone cancelled the turn, once a second."""
        now = self._clock.awake()
        if now - self._pulsed_at >= TICK_S:
            self._pulsed_at = now
            await in_thread(self._take_up_cancel)

    def _take_up_cancel(self) -> None:
        self._steps.claim.touch()
        if self._steps.cancelled_by is not None:
            return
        try:
            self._steps.take_up_cancel()
        except StoreError as error:
            log.warning("cancel-not-read", extra={"ref": self._steps.ref, "error": error.message})


def _failed(why: str, error: Exception) -> TurnResult:
    detail = one_line(": ".join(part for part in (why, str(error)) if part))
    return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=detail)


def _never_started(error: Exception) -> TurnResult:
    reason = Reason.BUSY if isinstance(error, SessionBusy) else Reason.NOT_STARTED
    return TurnResult(outcome=None, reason=reason, detail=one_line(str(error)))
