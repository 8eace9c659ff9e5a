"""The presets, and entries that are made of one."""

import json
import os
import re
from pathlib import Path

import pytest

from routines.agents.command_words import command_words
from routines.config.agent_keys import AGENT_KEYS
from routines.config.agents_table import Agents
from routines.config.presets import preset_path, preset_spec, preset_values
from routines.domain.agent import PRESETS, AgentKind, AgentSpec, Signs
from routines.domain.versions import find_version
from tests.agents.stubs import make_turn

EACH = pytest.mark.parametrize("name", PRESETS)


def entry(text, name="mine"):
    return f"agents:\n  {name}:\n    {text}\n"


def only_agent(parse_workspace, text):
    settings, problems = parse_workspace(entry(text))
    assert problems == ()
    return settings.agents["mine"]


def test_the_files_in_the_package_are_the_presets_that_are_named():
    files = os.listdir(os.path.dirname(preset_path("pi")))
    assert sorted(files) == sorted(f"{name}.yaml" for name in PRESETS)


@EACH
def test_a_preset_is_the_same_as_an_entry_of_its_words(parse_workspace, name):
    with open(preset_path(name)) as file:
        lines = "".join(f"    {line}" for line in file if line.strip())
    settings, problems = parse_workspace(f"agents:\n  {name}:\n{lines}")

    assert problems == ()
    written = settings.agents[name].to_json()
    assert written | {"preset": name} == preset_spec(name).to_json()


@EACH
def test_a_preset_is_an_agent_without_an_entry_and_survives_being_handed_over(
    parse_workspace, name
):
    settings, problems = parse_workspace(f"agent: {name}\n")
    spec = settings.spec_of(name)

    assert problems == ()
    assert (spec.name, spec.kind, spec.preset) == (name, AgentKind.COMMAND, name)
    assert AgentSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@EACH
def test_every_preset_says_what_a_person_needs_from_it(name):
    spec = preset_spec(name)
    assert spec.version == (spec.program, "--version")
    assert spec.interactive
    assert spec.model == ("--model", "{model}")
    assert spec.stop[-1] == "KILL"


@EACH
def test_the_words_of_a_preset_hold_the_session_and_the_options_before_the_prompt(name, tmp_path):
    spec = preset_spec(name)
    file = tmp_path / "session.native"
    file.touch()
    turn = make_turn(session_file=str(file))
    first = command_words(spec, turn, args=["--mine"], model="m-1")
    later = command_words(
        spec,
        make_turn(first=False, native_session="n-1", session_file=str(file)),
        args=["--mine"],
    )

    at = first.index("--model")
    assert first[at : at + 3] == ["--model", "m-1", "--mine"]
    assert {"n-1", str(file)} & set(later)
    assert not [word for word in [*first, *later] if "{" in word]


def test_keys_beside_a_preset_override_it(parse_workspace):
    spec = only_agent(
        parse_workspace,
        "{preset: claude-code, args: [--permission-mode, plan], stop: [KILL], totals_from: 9.0,"
        " env: {MINE: '1'}, read: {reply: other}, lost: {exit: [3]}, busy: {stderr: [x]}}",
    )
    preset = preset_spec("claude-code")

    assert (spec.name, spec.preset, spec.command) == ("mine", "claude-code", preset.command)
    assert spec.args == ("--permission-mode", "plan")
    # A value that is one word or list is replaced as a whole.
    assert (spec.stop, spec.totals_from) == (("KILL",), "9.0")
    # Of a table single values are.
    assert dict(spec.env) == {**dict(preset.env), "MINE": "1"}
    assert spec.read == {**preset.read, "reply": "other"}
    assert spec.lost == Signs(exit=(3,), stderr=preset.lost.stderr)
    assert spec.busy == Signs(exit=(75,), stderr=("x",))


def test_an_entry_changes_nothing_of_the_preset_itself(parse_workspace):
    before = json.dumps(preset_values("codex"))
    only_agent(parse_workspace, "{preset: codex, env: {MINE: '1'}, busy: {exit: [1]}}")
    assert json.dumps(preset_values("codex")) == before


def test_another_program_stands_in_all_commands_of_a_preset(parse_workspace, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    spec = only_agent(parse_workspace, "{preset: claude-code, program: ~/bin/claude}")
    for words in (spec.command, spec.first, spec.interactive, spec.version):
        assert words[0] == "/home/ana/bin/claude"
    assert spec.first[1:] == preset_spec("claude-code").first[1:]


def test_another_command_keeps_the_rest_of_a_preset(parse_workspace):
    spec = only_agent(
        parse_workspace,
        "{preset: claude-code, command: [docker, run, c, '--resume', '{native_session}']}",
    )
    assert spec.command[0] == "docker"
    assert spec.read == preset_spec("claude-code").read


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("{preset: claude}", "mine.preset", "did you mean 'claude-code'"),
        ("{preset: codex, python: 'm:f'}", "mine.python", "keep one of them"),
        ("{preset: codex, output: text}", "mine.read", "add `output: json`"),
        ("{preset: codex, prompt_by: argument}", "mine.command", 'add "{prompt}"'),
        ("{preset: codex, read: {reply: 'a b'}}", "mine.read.reply", "where item.type"),
        ("{command: [x, '{options}', '{options}']}", "mine.command", "once"),
        ("{command: [x, '--all={options}']}", "mine.command", "a word of its own"),
        ("{command: [x], model: ['{options}']}", "mine.model", "no {options} here"),
        ("{command: [x], interactive: [x, '{turn}']}", "mine.interactive", "no {turn} here"),
        ("{command: [x], output: json, read: {reply: sum of x}}", "mine.read", "added up"),
        ("{command: [x], output: json, read: {cost: sum of x}, args: x}", "mine.args", "args: [x]"),
    ],
)
def test_what_does_not_fit_together_is_said_at_its_place(parse_workspace, text, key, says):
    _, problems = parse_workspace(entry(text))
    found = problems[0]
    assert found.key == f"agents.{key}"
    assert says in f"{found.message} {found.cure}"
    assert found.line == 3


def test_an_entry_that_is_called_like_a_preset_and_says_nothing_else_is_told_how(parse_workspace):
    _, (found,) = parse_workspace(entry("args: [-x]", name="codex"))
    assert found.cure == "give it `preset: codex`"


def test_a_preset_may_name_its_keys_in_the_schema_too():
    known = Agents().schema()["additionalProperties"]["properties"]
    assert set(known) == {key.name for key in AGENT_KEYS}
    assert known["preset"]["enum"] == list(PRESETS)


# The page -------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs/agents.md").read_text()
SHOWN = {
    "{native_session}": "ID",
    "{session_uuid}": "UUID",
    "{session_file}": "FILE",
    "{options}": "OPTIONS",
}


def lines_that_we_run(spec):
    named = {"first": spec.first, "later": spec.command, "by hand": spec.interactive}
    if spec.first is None:
        named = {"all": spec.command, "by hand": spec.interactive}
    return [
        f"    {name:<10} {' '.join(SHOWN.get(word, word) for word in words)}"
        for name, words in named.items()
    ]


@EACH
def test_the_page_shows_the_exact_lines_that_a_preset_runs(name):
    section = PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    shown = [line for line in section.splitlines() if line.startswith("    ")]

    assert shown == lines_that_we_run(preset_spec(name))


@EACH
def test_the_file_and_the_page_name_the_version_that_was_run(name):
    with open(preset_path(name)) as file:
        version = find_version(file.readline())
    section = PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]

    assert version is not None
    assert find_version(section) == version


@pytest.mark.parametrize("name", ["openclaw", "goose", "aider"])
def test_the_examples_that_nobody_ran_are_read_and_say_so(parse_workspace, name):
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if f"\n  {name}:\n" in block]
    settings, problems = parse_workspace(block)

    assert problems == ()
    assert settings.agents[name].program == name
    assert "# not run by us" in block
