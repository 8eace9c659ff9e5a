"""routines.yaml: what holds for all routines, and the agents they may name."""

import os

import pytest

from routines.config.workspace_file import Retention, WorkspaceSettings
from routines.domain.agent import AgentKind, OutputFormat, PromptBy

CLAUDE = """\
agents:
  claude:
    command: [claude, -p, --output-format, json, --resume, "{native_session}"]
    first:   [claude, -p, --output-format, json, --session-id, "{session_uuid}"]
    interactive: [claude, --resume, "{native_session}"]
    prompt_by: stdin
    output: json
    read: {reply: result, native_session: session_id, failed: is_error, cost_total: total_cost_usd}
    busy: {exit: [75, 3], stderr: ["is in use"]}
    stop: [INT, TERM, KILL]
    env: {CLAUDE_CODE_DISABLE_CRON: "1"}
    model: [--model, "{model}"]
"""


def only(read):
    settings, problems = read
    assert len(problems) == 1, problems
    assert not settings.is_whole
    return problems[0]


def agent(lines):
    return "agents:\n  a:\n" + "".join(f"    {line}\n" for line in lines.split("\n"))


def test_without_any_key_the_defaults_hold(parse_workspace):
    settings, problems = parse_workspace("# nothing yet\n")
    assert (settings, problems) == (WorkspaceSettings(), ())
    assert (settings.tz, settings.tz_is_set, settings.concurrency) == ("UTC", False, 4)
    assert settings.retention == Retention(claims=1000, days=30, output_days=30, output_mib=1024)


def test_an_empty_file_may_be_half_written_and_is_refused(parse_workspace):
    assert only(parse_workspace("")).message == "the file is empty"


def test_every_key_reaches_the_settings(parse_workspace):
    settings, problems = parse_workspace(
        "tz: Europe/Berlin\nagent: claude\nconcurrency: 2\nretention: {days: 7, output_mib: 0}\n"
        "env_file: ~/keys\nstate: var/state\n" + CLAUDE
    )
    assert problems == ()
    assert (settings.tz, settings.tz_is_set, settings.agent) == ("Europe/Berlin", True, "claude")
    assert settings.concurrency == 2
    assert settings.retention == Retention(days=7, output_mib=0)
    assert settings.env_file == os.path.expanduser("~/keys")
    assert settings.state == "/ws/var/state"
    claude = settings.agents["claude"]
    assert claude.kind is AgentKind.COMMAND
    assert claude.command[:2] == ("claude", "-p")
    assert claude.first[-1] == "{session_uuid}"
    assert claude.interactive == ("claude", "--resume", "{native_session}")
    assert (claude.prompt_by, claude.output) == (PromptBy.STDIN, OutputFormat.JSON)
    assert claude.read["reply"] == "result"
    assert (claude.busy.exit, claude.busy.stderr) == ((75, 3), ("is in use",))
    assert claude.stop == ("INT", "TERM", "KILL")
    assert claude.env == (("CLAUDE_CODE_DISABLE_CRON", "1"),)
    assert claude.model == ("--model", "{model}")


def test_an_agent_that_says_nothing_more_has_the_defaults(parse_workspace):
    settings, _ = parse_workspace(agent("command: [x]"))
    spec = settings.agents["a"]
    assert (spec.first, spec.interactive, spec.prompt_by, spec.output) == (
        None,
        None,
        PromptBy.STDIN,
        OutputFormat.TEXT,
    )
    assert (spec.busy.exit, spec.stop) == ((75,), ("TERM", "KILL"))


def test_busy_texts_keep_the_usual_busy_exit(parse_workspace):
    settings, _ = parse_workspace(agent("command: [x]\nbusy: {stderr: [locked]}"))
    assert settings.agents["a"].busy.exit == (75,)


def test_a_python_agent_is_read(parse_workspace):
    settings, problems = parse_workspace(agent("python: my_agents.daily:answer\nenv: {A: b}"))
    assert problems == ()
    assert settings.agents["a"].kind is AgentKind.PYTHON
    assert settings.agents["a"].python == "my_agents.daily:answer"


@pytest.mark.parametrize("key", ["first: [x]", "output: json", "prompt_by: stdin", "busy: {}"])
def test_a_key_of_commands_beside_a_function_is_refused(parse_workspace, key):
    found = only(parse_workspace(agent(f"python: a:b\n{key}")))
    assert "has no meaning beside `python`" in found.message


@pytest.mark.parametrize(
    ("way", "line"),
    [
        ("python: a:b", "busy: {status: [409]}"),
        ("python: a:b", "output: events"),
        ("python: a:b", "approve: {kinds: [read]}"),
        ("http: http://x/", "approve: {kinds: [read]}"),
        ("http: http://x/", "authenticate: x"),
        ("acp: [x]", "busy: {status: [409]}"),
        ("acp: [x]", "output: events"),
        ("acp: [x]", "headers: {A: b}"),
        ("command: [x]", "busy: {status: [409]}"),
        ("command: [x]", "approve: {kinds: [read]}"),
    ],
)
def test_a_key_of_another_way_is_one_problem_with_one_cure(parse_workspace, way, line):
    found = only(parse_workspace(agent(f"{way}\n{line}")))
    key = f"agents.a.{line.partition(':')[0]}"
    assert found.key == key
    assert found.message.startswith(f"{key}: ")
    assert found.cure


@pytest.mark.parametrize(
    ("way", "line"),
    [
        ("http: http://x/", "stop: [TERM]"),
        ("acp: [x]", "first: [x]"),
        ("python: a:b", "first: [x]"),
    ],
)
def test_a_key_of_another_way_is_said_beside_another_problem(parse_workspace, way, line):
    _, problems = parse_workspace(agent(f"{way}\n{line}\nnonsense: 1"))
    keys = {problem.key for problem in problems}
    assert keys == {f"agents.a.{line.partition(':')[0]}", "agents.a.nonsense"}


def test_an_agent_is_driven_in_one_way(parse_workspace):
    assert (
        "has command and python"
        in only(parse_workspace(agent("command: [x]\npython: a:b"))).message
    )
    assert "has no command" in only(parse_workspace(agent("output: text"))).message


def test_a_misspelt_command_is_one_problem_and_not_two(parse_workspace):
    assert only(parse_workspace(agent("comand: [x]"))).cure == "did you mean 'command'?"


def test_echo_needs_no_entry_and_may_have_none(parse_workspace):
    assert parse_workspace("agent: echo\n")[1] == ()
    found = only(parse_workspace("agents:\n  echo: {command: [x]}\n"))
    assert "`echo` is there without an entry" in found.message


def test_a_broken_entry_is_not_also_an_unknown_agent(parse_workspace):
    found = only(parse_workspace("agent: a\n" + agent("command: x")))
    assert found.key == "agents.a.command"


# --- placeholders ---


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        ('command: [x, "{sesion}"]', "command", "no placeholder is called {sesion}"),
        ('command: [x, "--id={sesion}"]', "command", "no placeholder is called {sesion}"),
        ('command: [x, "{prompt}"]', "command", "the prompt goes to stdin"),
        ("command: [x]\nprompt_by: argument", "command", "in a word of its own, once"),
        (
            'command: [x, "say {prompt}"]\nprompt_by: argument',
            "command",
            "in a word of its own, once",
        ),
        (
            'command: [x, "{prompt}", "{prompt}"]\nprompt_by: argument',
            "command",
            "in a word of its own, once",
        ),
        (
            'command: [x, "{prompt}"]\nfirst: [x]\nprompt_by: argument',
            "first",
            "in a word of its own, once",
        ),
        ('command: [x]\ninteractive: [x, "{prompt}"]', "interactive", "no {prompt} here"),
        ('command: [x]\nmodel: [x, "{prompt}"]', "model", "no {prompt} here"),
        # The program's own id has to come from somewhere before it is used.
        ('command: [x, "{native_session}"]', "command", "not known in the first turn"),
        (
            'command: [x, "{native_session}"]\noutput: json\nread: {native_session: id}',
            "command",
            "not known in the first turn",
        ),
        (
            'command: [x, "{native_session}"]\nfirst: [x]',
            "command",
            "nothing says what {native_session} is",
        ),
        (
            'command: [x]\nfirst: [x, "{native_session}"]\noutput: json\nread: {native_session: i}',
            "first",
            "not known before the first turn",
        ),
        ('command: [x]\ninteractive: [x, "{native_session}"]', "interactive", "nothing says"),
        ("command: [x]\nread: {reply: result}", "read", "needs structured output"),
    ],
)
def test_a_placeholder_that_could_not_be_filled_in_is_refused(parse_workspace, lines, key, message):
    found = only(parse_workspace(agent(lines)))
    assert found.key == f"agents.a.{key}"
    assert message in found.message
    assert found.cure


@pytest.mark.parametrize(
    "lines",
    [
        'command: [x, "{session}", "{session_uuid}", "{turn}", "{model}"]',
        'command: [x, "--id={session}"]',
        'command: [x, "{prompt}"]\nprompt_by: argument',
        # Braces that hold no name are what they look like.
        """command: [x, '{"a": 1}', '{}', '${HOME}x', '{a b}']""".replace("${HOME}", "{ HOME }"),
        'command: [x, "{native_session}"]\nfirst: [x, "{session_uuid}"]',
        'command: [x, "{native_session}"]\nfirst: [x]\noutput: jsonl\nread: {native_session: a.b}',
        'command: [x, "{session_uuid}"]\ninteractive: [x, "{native_session}"]',
    ],
)
def test_a_placeholder_that_can_be_filled_in_is_taken(parse_workspace, lines):
    assert parse_workspace(agent(lines))[1] == ()


def test_an_unknown_placeholder_names_the_near_one(parse_workspace):
    found = only(parse_workspace(agent('command: [x, "{sesion}"]')))
    assert found.cure == "did you mean 'session'?"


# --- broken files ---


def test_settings_of_a_broken_file_say_so(parse_workspace):
    settings, problems = parse_workspace("tz: Europe/Berlin\nconcurency: 2\n")
    assert settings == WorkspaceSettings(is_whole=False)
    assert problems[0].cure == "did you mean 'concurrency'?"


@pytest.mark.parametrize(
    "text",
    [
        "state: var\ntz: Nowhere\n",
        "state: var\nagent: [\n",
        "tz: *\nstate: 'var'  # here\n",
        "state: var\nstate: other\n",
    ],
)
def test_the_state_folder_is_found_also_in_a_broken_file(parse_workspace, text):
    settings, problems = parse_workspace(text)
    assert problems
    assert settings.state == "/ws/var"


def test_a_routine_written_into_routines_yaml_is_told_where_it_belongs(parse_workspace):
    _, problems = parse_workspace("prompt: x\n")
    assert problems[0].cure == "a routine has a file of its own: routines/NAME.yaml"
