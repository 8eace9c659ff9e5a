"""Real programs in real processes, a clock that is the machine's, and a look at who still lives."""

import os
import stat
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from routines.agents import processes
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


@pytest.fixture
def clock():
    return RealClock()


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


@pytest.fixture
def turn(tmp_path):
    """A turn of which no other test, nor another run of this one, has a process."""
    return make_turn(key=f"{tmp_path.name}/digest@2026-07-01T09:00:00Z")


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / ".routines")


@pytest.fixture
def env(turn, state, tmp_path):
    return processes.environment(os.environ, turn, root=str(tmp_path), state=state)


@pytest.fixture
def stub(tmp_path):
    """Write a program into the test's folder and return its path: Python unless it has a #! line."""

    def write(body, name="agent"):
        path = tmp_path / name
        head = "" if body.startswith("#!") else f"#!{sys.executable} -Sssu\nimport os, sys, time, signal\n"
        path.write_text(head + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return str(path)

    return write


def spec_of(*words, **keys):
    return AgentSpec(name="stub", kind=AgentKind.COMMAND, command=tuple(words), **keys)


def eventually(condition, seconds=20.0):
    """Wait until *condition* is true and return its value; fail after *seconds*."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "it never came to be"
        time.sleep(0.01)
    return value


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """T3: whatever a test started is gone when it ends."""
    yield
    if {"turn", "state"} <= set(request.fixturenames):
        turn, state = request.getfixturevalue("turn"), request.getfixturevalue("state")
        assert processes.leftovers(state, turn.key) == []
