"""What is paused (PROMISES L20, D6)."""

import os
from pathlib import Path

import pytest

from routines.store.state import State
from routines.store.switches import SwitchStore


@pytest.mark.parametrize("content", ["", "{", "[]", '{"by": "x"}', "\0\0"])
def test_a_switch_that_can_not_be_read_pauses_nothing(state: State, content: str) -> None:
    switches = SwitchStore(state)
    assert switches.read("daily") is None
    os.makedirs(state.at("switches"))
    Path(state.at("switches", "daily.json")).write_text(content)
    assert switches.read("daily") is None
