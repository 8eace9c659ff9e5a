"""Real programs in real processes, and a look at who still lives when a test has ended."""

import os
import stat
import sys

import pytest

from routines.agents.environment import environment
from routines.agents.process_table import leftovers
from routines.agents.trees import Tree, end_tree
from tests.agents.stubs import RealClock, make_turn


@pytest.fixture
def clock():
    return RealClock()


@pytest.fixture
def turn(tmp_path):
    """A turn of which no other test, nor another run of this one, has a process."""
    return make_turn(key=f"{tmp_path.name}/digest@2026-07-01T09:00:00Z")


@pytest.fixture
def state(tmp_path, turn):
    """A state folder; and nothing of the turn is left when its test has ended (T3)."""
    path = str(tmp_path / ".routines")
    yield path
    left = leftovers(path, turn.key)
    # A test that failed must not leave its programs to the machine.
    tree = Tree(state=path, turn_key=turn.key)
    end_tree(tree, stop=("KILL",), clock=RealClock())
    assert left == []


@pytest.fixture
def env(turn, state, tmp_path):
    return environment(os.environ, turn, root=str(tmp_path), state=state)


@pytest.fixture
def stub(tmp_path):
    """Write a program into the test's folder and return its path: Python unless it has a #! line."""

    def write(body, name="agent"):
        path = tmp_path / name
        head = (
            ""
            if body.startswith("#!")
            else f"#!{sys.executable} -Sssu\nimport os, sys, time, signal\n"
        )
        path.write_text(head + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return str(path)

    return write
