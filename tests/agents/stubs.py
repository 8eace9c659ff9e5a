"""What the tests of this folder share: a real clock, a turn, and waiting on a condition."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from routines.agents.base import Turn
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.outcome import Trigger

SLOT = datetime(2026, 7, 1, 9, 0, tzinfo=UTC)


class RealClock:
    def now(self):
        return datetime.now(UTC)

    def awake(self):
        return time.monotonic()

    def sleep(self, seconds):
        time.sleep(seconds)


class LimitWhen(RealClock):
    """Real time; but once the file *ready* is there, it is an hour later.

    A limit then passes when the agent is where the test wants it, however slow the machine is.
    """

    def __init__(self, ready):
        self.ready, self.passed = str(ready), False

    def awake(self):
        self.passed = self.passed or os.path.exists(self.ready)
        return super().awake() + (3600 if self.passed else 0)


HALF_AN_HOUR = timedelta(minutes=30)


def make_turn(**changes):
    turn = Turn(
        key="0f3c/digest@2026-07-01T09:00:00Z",
        session="routine:digest",
        native_session=None,
        session_uuid="5a1f0c1e-7c1d-5a57-9d0e-0d8f5d1c2b3a",
        first=True,
        prompt="say hello",
        routine="digest",
        slot=SLOT,
        trigger=Trigger.SCHEDULE,
        late=timedelta(seconds=3),
        missed=0,
        deadline=SLOT + timedelta(hours=1),
    )
    return replace(turn, **changes)


def spec_of(*words, **keys):
    return AgentSpec(name="stub", kind=AgentKind.COMMAND, command=tuple(words), **keys)


def eventually(condition, seconds=20.0):
    """Wait until *condition* is true and return its value; fail after *seconds*."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "it never came to be"
        time.sleep(0.01)
    return value
