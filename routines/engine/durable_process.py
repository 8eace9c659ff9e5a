"""A durable turn in a turn process: the agent is found before it begins, then its run is followed.

A stop detaches here as it does in an engine: the process ends, the run goes on, and the claim
stays open for whoever schedules next. A process that is killed leaves the same behind.
"""

import asyncio
import logging
from collections.abc import Mapping

from routines.agents.base import Turn, TurnResult
from routines.agents.durable import agent_of, find_durable
from routines.domain.agent import AgentKind
from routines.domain.outcome import Outcome, Reason, one_line
from routines.engine.clock import SystemClock
from routines.engine.durable import Follower
from routines.engine.resuming import resume
from routines.engine.stop_signals import StopSignals
from routines.engine.turns import TurnSteps
from routines.engine.work import Work
from routines.errors import RoutinesError

log = logging.getLogger("routines")


class _Leave:
    """What signals say to whoever watches a run; a signal wakes nobody, so the tick sees it."""

    def __init__(self, signals: StopSignals) -> None:
        self.wake = asyncio.Event()
        self._signals = signals

    @property
    def soon(self) -> bool:
        """Whether a stop was asked for."""
        return self._signals.stops > 0

    @property
    def now(self) -> bool:
        """Whether it was asked for twice."""
        return self._signals.stops > 1


class Finder:
    """Finds out whether the agent of a turn is durable, before the turn begins.

    Attributes:
        found: The agent, or the class of it, if it is.
    """

    def __init__(
        self, steps: TurnSteps, clock: SystemClock, signals: StopSignals, base: Mapping[str, str]
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._signals = signals
        self._base = base
        self.found: object | None = None

    def is_durable(self, work: Work) -> bool:
        """Return whether the agent of *work* is durable; what can't be found is not."""
        self.found = None
        try:
            env = self._steps.preview(work, self._base)
        except RoutinesError:
            # The turn fails for it, with these words.
            return False
        self.found = _find(self._steps, work, env, self._clock, self._signals)
        return self.found is not None


def _find(
    steps: TurnSteps,
    work: Work,
    env: Mapping[str, str],
    clock: SystemClock,
    signals: StopSignals,
) -> object | None:
    """Return the durable agent that *work* names, or the class of it; None if it is not durable."""
    spec = work.agent
    if spec is not None and spec.http is not None and spec.http.durable is not None:
        # Here and not above: no turn of a Python function needs it.
        from routines.agents.http_durable import http_durable

        return http_durable(spec, env=env, model=work.model)
    if spec is None or spec.kind is not AgentKind.PYTHON:
        return None
    return find_durable(
        spec.python or "",
        cwd=work.cwd,
        env=env,
        clock=clock,
        seconds=steps.left(work).total_seconds(),
        is_stopping=lambda: signals.stops > 0,
    )


def run(
    steps: TurnSteps,
    work: Work,
    turn: Turn,
    found: object,
    clock: SystemClock,
    signals: StopSignals,
    base: Mapping[str, str],
) -> None:
    """Follow a durable turn that has just begun."""
    try:
        agent = agent_of(found)
    except Exception as error:  # noqa: BLE001 - whatever it raises, no run was started
        words = one_line(f"{type(error).__name__}: {error}")
        result = TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=words)
        steps.finish(work, turn, result)
        return
    # Now, when the turn is known: what a reply may not show is what this turn was given.
    steps.environment(work, turn, base)
    _follow(
        steps,
        work,
        turn,
        Follower(steps, work, turn, agent, clock=clock, leave=_Leave(signals), resumed=False),
        signals,
        base,
    )


def go_on(
    steps: TurnSteps,
    work: Work,
    clock: SystemClock,
    signals: StopSignals,
    base: Mapping[str, str],
) -> None:
    """Follow a durable turn that another process began; where that can't be, leave it as it is."""
    turn = resume(steps, work)
    if turn is None:
        return
    try:
        env = steps.environment(work, turn, base)
        found = _find(steps, work, env, clock, signals)
        agent = None if found is None else agent_of(found)
    except Exception as error:  # noqa: BLE001 - its file or its folder may be gone: the run is not
        log.error(  # noqa: TRY400 - the cause is in the message
            "run-not-followed", extra={"ref": steps.ref, "error": one_line(str(error))}
        )
        return
    if agent is None:
        log.error("run-not-followed", extra={"ref": steps.ref, "error": "its agent is not durable"})
        return
    _follow(
        steps,
        work,
        turn,
        Follower(steps, work, turn, agent, clock=clock, leave=_Leave(signals), resumed=True),
        signals,
        base,
    )


def _follow(
    steps: TurnSteps,
    work: Work,
    turn: Turn,
    follower: Follower,
    signals: StopSignals,
    base: Mapping[str, str],
) -> None:
    # Not asyncio.run: that waits for what a method ignores its cancel in, and this process ends.
    loop = asyncio.new_event_loop()
    result = loop.run_until_complete(follower.follow())
    if result is None:
        return
    result = steps.verify(work, turn, result, base)
    steps.stop_requested = signals.word
    steps.finish(work, turn, result)
