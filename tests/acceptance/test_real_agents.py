"""The released programs, as far as they are installed, driven by their presets (FR-07).

Looked for on PATH, and in the folders of $REAL_AGENTS_BIN before that. What is not there is
skipped by name; nothing is installed, no account is used, and nothing leaves this machine but
what a program does by itself at its start.
"""

import os
import sys

import pytest

from tests.real_agents.__main__ import drive
from tests.real_agents.programs import PROGRAMS, search_path, version_of
from tests.real_agents.shows import SHOWS

QUICK = ("two turns", "used", "killed first turn", "killed at once", "prompt whole", "two at once")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of a turn in /proc")
]


def path():
    return search_path([f for f in os.environ.get("REAL_AGENTS_BIN", "").split(os.pathsep) if f])


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.preset)
def program(request):
    if version_of(request.param, path()) is None:
        pytest.skip(f"{request.param.preset} is absent: no {request.param.word} on PATH")
    return request.param


def failed(program, folder, only):
    shown = drive(program, path(), str(folder), print, only)
    assert [show["show"] for show in shown] == list(only)
    return {show["show"]: show["says"] for show in shown if show["result"] == "no"}


def test_conversation_lasts_and_survives_a_killed_turn(program, tmp_path):
    assert failed(program, tmp_path, QUICK) == {}


@pytest.mark.slow
def test_agent_is_woken_and_ended_at_its_limit(program, tmp_path):
    rest = tuple(name for name, _ in SHOWS if name not in QUICK)

    assert failed(program, tmp_path, rest) == {}
