"""Agents behind HTTP and by ACP: what check, start and doctor say of them."""

import importlib.util
import json

import pytest

SETTINGS = """\
tz: UTC
agents:
  web: {http: "http://127.0.0.1:8080/turn?key=correct-horse"}
  editor: {acp: [my-agent, --acp]}
"""


@pytest.fixture
def agents(ws):
    ws.settings(SETTINGS)
    ws.routine("a", "every: 1d\nagent: web\n")
    ws.routine("b", "every: 1d\nagent: editor\n")
    ws.program("my-agent", "exit 0")
    return ws


def test_both_are_found_and_a_key_in_an_address_is_shown_nowhere(agents):
    answer = agents.ask("check")
    assert (answer.code, "Agents: editor, web." in answer.out) == (0, True), answer.out
    shown = agents.ask("check", "--json").out
    found = {one["name"]: one["program"] for one in json.loads(shown)["agents"]}
    assert found == {
        "web": "http://127.0.0.1:8080/turn",
        "editor": f"{agents.home}/bin/my-agent",
    }
    doctor = agents.ask("doctor", "--only", "agents").out
    assert "correct-horse" not in answer.out + shown + doctor


def test_program_that_speaks_acp_and_is_not_there_is_said(agents):
    agents.settings(SETTINGS.replace("my-agent", "no-such-agent"))

    answer = agents.ask("check")
    assert answer.code == 1
    assert "no-such-agent: not on PATH" in answer.out + answer.err


def test_library_that_is_missing_is_said_with_how_to_get_it(agents, monkeypatch):
    known = importlib.util.find_spec

    def find(name, *more):
        return None if name == "httpx" else known(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)

    answer = agents.ask("check")
    assert answer.code == 1
    assert "pip install 'agent-routines[http]'" in " ".join((answer.out + answer.err).split())
    assert "all right" not in answer.out
    assert "agent-routines[http]" in " ".join(agents.ask("doctor", "--only", "agents").out.split())


def test_agent_by_acp_takes_the_wake_tools_by_the_protocol(agents):
    said = agents.ask("doctor", "--only", "wake-tools").out
    assert "editor" in said.partition("handed over to")[2] or "editor has the command only" in said
