"""Who has the wake tools, and who the command only: doctor, check and start say so."""

import json

import pytest

from routines.operations import wake_tools_found
from routines.operations.context import Context
from routines.operations.running import start_lines

HOW = "pip install 'agent-routines[mcp]'"


@pytest.fixture
def extra(monkeypatch):
    """Says whether the extra is installed."""

    def say(there):
        monkeypatch.setattr(wake_tools_found, "is_installed", lambda: there)

    say(True)
    return say


@pytest.fixture
def agents(ws, extra):
    """Two agents that take a server, one that does not, one that is a function, and one unused."""
    ws.settings("""\
tz: Europe/Berlin
agent: claude-code
agents:
  mine: {command: [mine], mcp: {words: ["--mcp={mcp_command_line}"]}}
  plain: {command: [plain]}
  function: {python: "my.agent:answer"}
""")
    for name, more in {
        "a": "",
        "b": "agent: mine\n",
        "c": "agent: plain\n",
        "d": "agent: function\n",
        "e": "agent: codex\nwake_tools: false\n",
        "f": "agent: opencode\nenabled: false\n",
    }.items():
        ws.routine(name, f'cron: "0 9 * * *"\n{more}')
    return ws


def doctor(ws, width=120):
    return ws.ask("doctor", "--only", "wake-tools", width=width).out.splitlines()


def lines_of_start(ws):
    context = Context(explicit_root=str(ws.root), environ=ws.environ, clock=ws.clock)
    return start_lines(context, [])


def test_doctor_says_who_is_handed_them_and_who_has_the_command(agents):
    assert doctor(agents)[0] == (
        "ok    wake tools  handed over to claude-code, mine; the command only: plain"
    )


def test_with_no_agent_that_takes_any_nothing_is_missing(ws, extra):
    extra(False)
    ws.routine("a", 'cron: "0 9 * * *"\n')

    assert doctor(ws)[0] == "ok    wake tools  no agent needs them"
    assert "mcp" not in ws.ask("check").out
    assert not any("mcp" in line for line in lines_of_start(ws))


def test_without_the_extra_doctor_notes_it_and_says_how_to_get_it(agents, extra):
    extra(False)
    text = "the mcp extra is missing: claude-code, mine have the command only"

    assert doctor(agents)[0] == f"note  wake tools  {text}; {HOW}"
    narrow = doctor(agents, width=80)
    assert max(len(line) for line in narrow) <= 80
    assert " ".join(line.strip() for line in narrow[:3]) == f"note  wake tools  {text} {HOW}"
    assert agents.ask("doctor", "--only", "wake-tools").code == 0


def test_without_the_extra_check_and_start_say_so_too(agents, extra):
    extra(False)
    text = f"the mcp extra is missing: claude-code, mine have the command only; {HOW}"

    assert f"note: {text}" in agents.ask("check", width=120).out
    assert f"note      {text}" in lines_of_start(agents)
    assert "the mcp extra" not in agents.ask("check", "routines/a.yaml").out


def test_check_says_it_to_programs(agents, extra):
    def found():
        return json.loads(agents.ask("check", "--json").out)["wake_tools"]

    assert found() == {
        "handed_over": ["claude-code", "mine"],
        "command_only": ["plain"],
        "extra_missing": False,
    }
    extra(False)
    assert found() == {
        "handed_over": [],
        "command_only": ["claude-code", "mine", "plain"],
        "extra_missing": True,
    }
