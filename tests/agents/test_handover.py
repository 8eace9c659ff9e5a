"""Handing the wake tools over: what a program is given, however it takes a server."""

import json
import os
import sys
import tomllib
from dataclasses import replace

import pytest

from routines.agents import handover
from routines.agents.handover import hand_over
from routines.config.presets import preset_spec
from routines.domain.agent import PRESETS, McpHandover
from tests.agents.stubs import spec_of

TURN = {
    "ROUTINES_ROOT": "/home/ana/agents",
    "ROUTINES_STATE": "/home/ana/agents/.routines",
    "ROUTINES_SESSION": "routine:daily",
    "ROUTINES_ROUTINE": "daily",
    "ROUTINES_TURN": "w/daily@2026-11-29T08:00:00Z",
}
ENV = {**TURN, "PATH": "/bin", "ROUTINES_LATE_S": "0", "ANTHROPIC_API_KEY": "sk-secret"}
TAKING = [name for name in PRESETS if preset_spec(name).mcp is not None]


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(handover, "is_installed", lambda: True)


def taking(*words, **env):
    return replace(spec_of("agent"), mcp=McpHandover(words, tuple(env.items())))


def server(env, text="{mcp_command_line}"):
    spec, _ = hand_over(taking(text), env)
    return json.loads(spec.args[0])


def test_the_server_is_run_by_the_interpreter_that_runs_us():
    assert server(ENV) == [sys.executable, "-P", "-m", "routines", "mcp"]
    assert os.path.isabs(sys.executable)
    assert server(ENV, "{mcp_command}") == sys.executable
    assert server(ENV, "{mcp_args}") == ["-P", "-m", "routines", "mcp"]


def test_the_server_is_told_whose_turn_it_is_and_no_secret():
    told = server(ENV, "{mcp_env}")

    assert told.pop("PYTHONPATH") == os.getcwd()
    assert told == TURN


def test_an_installed_package_needs_no_path_and_is_given_none_of_the_routines(monkeypatch):
    monkeypatch.setattr(handover, "_HOME", "/venv/lib/python3.12/site-packages")

    assert server({**ENV, "PYTHONPATH": "/the/routines/own"}, "{mcp_env}")["PYTHONPATH"] == ""


def test_what_is_not_known_is_left_out():
    told = server({"ROUTINES_SESSION": "wake:w-7k3m9q"}, "{mcp_env}")

    assert set(told) == {"ROUTINES_SESSION", "PYTHONPATH"}


NASTY = 'a "quoted" \\ {mcp_args} {session} $HOME 漢字 🙂 \u2028 \x7f\n\t'


def test_names_of_any_letters_arrive_as_they_are():
    env = {**ENV, "ROUTINES_SESSION": f"named:{NASTY}"}
    spec, _ = hand_over(taking("{mcp_env}", "e={mcp_env_toml}"), env)

    assert json.loads(spec.args[0])["ROUTINES_SESSION"] == f"named:{NASTY}"
    if "\x7f" in NASTY:
        # TOML wants this one escaped, and no name of a session can hold it.
        env["ROUTINES_SESSION"] = env["ROUTINES_SESSION"].replace("\x7f", "")
        spec, _ = hand_over(taking("e={mcp_env_toml}"), env)
    assert tomllib.loads(spec.args[-1])["e"]["ROUTINES_SESSION"] == env["ROUTINES_SESSION"]


def test_its_words_stand_before_those_of_the_entry_which_have_the_last_one():
    spec, _ = hand_over(replace(taking("--ours"), args=("--theirs",)), ENV)

    assert spec.args == ("--ours", "--theirs")


def test_a_variable_is_added():
    _, env = hand_over(taking(CONFIG="{mcp_command}"), ENV)

    assert env == {**ENV, "CONFIG": json.dumps(sys.executable)}


def test_a_variable_that_holds_a_json_object_keeps_what_it_holds():
    theirs = (
        '{"model": "x", "mcp": {"files": {"command": ["files"]}, "routines": {"enabled": false}}}'
    )
    ours = '{"mcp": {"routines": {"command": {mcp_command_line}, "enabled": true}}}'

    _, env = hand_over(taking(CONFIG=ours), {**ENV, "CONFIG": theirs})

    found = json.loads(env["CONFIG"])
    assert found["model"] == "x"
    assert found["mcp"]["files"] == {"command": ["files"]}
    assert found["mcp"]["routines"]["enabled"] is True
    assert found["mcp"]["routines"]["command"][0] == sys.executable


@pytest.mark.parametrize("theirs", ["", "not JSON", "[1]", '{"a": // a comment\n 1}', "[" * 99999])
def test_a_variable_that_holds_anything_else_is_a_persons_and_stays(theirs):
    _, env = hand_over(taking(CONFIG='{"a": 1}'), {**ENV, "CONFIG": theirs})

    assert env["CONFIG"] == theirs


def test_without_the_extra_nothing_is_handed_over(monkeypatch):
    monkeypatch.setattr(handover, "is_installed", lambda: False)
    spec = taking("--ours", CONFIG="x")

    assert hand_over(spec, ENV) == (spec, ENV)


def test_a_program_that_takes_none_is_given_none():
    spec = spec_of("agent")

    assert hand_over(spec, ENV) == (spec, ENV)


def test_an_interpreter_that_does_not_know_its_own_name_hands_nothing_over(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    spec = taking("--ours")

    assert hand_over(spec, ENV) == (spec, ENV)


# The presets ----------------------------------------------------------------------------------


def test_the_presets_that_take_one():
    """Gemini CLI and llm take no server for one turn by a flag, a variable or a file."""
    assert TAKING == ["claude-code", "codex", "qwen", "opencode", "pi"]


@pytest.mark.parametrize("name", TAKING)
def test_nothing_is_left_to_fill_in(name):
    spec, env = hand_over(preset_spec(name), ENV)

    added = {key: text for key, text in env.items() if key not in ENV}
    whole = json.dumps([spec.args, added])
    assert "{mcp" not in whole
    assert "routine:daily" in whole
    assert "sk-secret" not in whole


def configuration(name):
    """The JSON or TOML of a preset, as its program reads it."""
    spec, env = hand_over(preset_spec(name), ENV)
    if name == "codex":
        lines = [word for word in spec.args if word.startswith("mcp_servers")]
        return tomllib.loads("\n".join(lines))["mcp_servers"]["routines"]
    if name == "opencode":
        return json.loads(env["OPENCODE_CONFIG_CONTENT"])["mcp"]["routines"]
    if name == "pi":
        return json.loads(env["PI_ROUTINES_SERVER"])
    text = next(word for word in spec.args if "mcpServers" in word)
    return json.loads(text.removeprefix("--mcp-config="))["mcpServers"]["routines"]


@pytest.mark.parametrize("name", TAKING)
def test_a_program_can_read_what_it_is_given(name):
    found = configuration(name)
    command = found["command"]
    words = command if isinstance(command, list) else [command, *found["args"]]

    assert words == [sys.executable, "-P", "-m", "routines", "mcp"]
    told = found["environment" if name == "opencode" else "env"]
    assert told["ROUTINES_SESSION"] == "routine:daily"


def test_leave_to_use_them_is_handed_over_too():
    spec, _ = hand_over(preset_spec("claude-code"), ENV)
    names = "mcp__routines__wake,mcp__routines__unwake,mcp__routines__wakeups"

    assert f"--allowedTools={names}" in spec.args
    assert configuration("codex")["default_tools_approval_mode"] == "approve"
    # Whatever the person's own configuration says of a server of that name.
    assert configuration("codex")["enabled"] is configuration("codex")["required"] is True
    assert configuration("qwen")["trust"] is True


def test_the_file_by_which_pi_takes_it_comes_with_the_preset():
    spec, _ = hand_over(preset_spec("pi"), ENV)

    path = spec.args[spec.args.index("--extension") + 1]

    with open(path, encoding="utf-8") as file:
        assert "PI_ROUTINES_SERVER" in file.read()
