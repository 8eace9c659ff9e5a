"""Every key of both files: a value of the wrong type, a wrong value, and a key beside it."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from routines.config.agent_keys import AGENT_KEYS
from routines.config.routine_file import parse_routine
from routines.config.routine_keys import ROUTINE_KEYS
from routines.config.workspace_file import (
    WORKSPACE_KEYS,
    WorkspaceSettings,
    parse_settings,
)
from routines.domain.agent import McpHandover
from routines.domain.targets import DESKTOP, to_command, to_file, to_ping, to_url

LIST = "[a, b]"
KEYS = "{a: b}"

# key: (value of a wrong type, what was expected), (wrong value, what is said)
ROUTINE = {
    "prompt": (LIST, "expected text", '" "', "the prompt is empty"),
    "prompt_file": (LIST, "expected a path", "nowhere.md", "can't be read: no such file"),
    "cron": (KEYS, "expected five fields", "'0 9 * *'", "cron: 0 9 * *"),
    "every": (LIST, "expected a span", "30", "expected a span"),
    "anchor": (LIST, "expected an instant", "soon", "anchor: soon"),
    "at": (LIST, "expected an instant", "12:30", "at: 12:30"),
    "rrule": (LIST, "expected an RFC 5545 rule", "FREQ=NEVER", "rrule: FREQ=NEVER"),
    "tz": (LIST, "expected an IANA time zone", "UTC+8", "tz: UTC+8"),
    "agent": (LIST, "expected the name of an agent", "claud", "no agent is called that"),
    "args": ("--fast", "expected a list of words", '["\\0"]', "NUL"),
    "model": (LIST, "expected the name of a model", '""', "expected the name of a model"),
    "cwd": (LIST, "expected a path", "~nobody-at-all/x", "no user of that name"),
    "env": ("A=b", "expected variables with values", "{1A: b}", "no name of a variable"),
    "env_file": (KEYS, "expected a path", "~nobody-at-all/x", "no user of that name"),
    "session": (LIST, "expected stable, fresh or named:NAME", "stabel", "expected stable, fresh"),
    "session_turns": (LIST, "expected a whole number", "0", "at least 1"),
    "overlap": (LIST, "expected skip, buffer-one or supersede", "forbid", "expected skip"),
    "catch_up": (LIST, "expected none, one or all", "latest", "expected none, one or all"),
    "max_catch_up": (LIST, "expected a whole number", "1001", "from 1 to 1000"),
    "start_within": (LIST, "expected a span", "30", "expected a span"),
    "timeout": (LIST, "expected a span", "0s", "expected at least 1s"),
    "jitter": (LIST, "expected a span", "5", "expected a span"),
    "retry": ("3", "expected keys and values", "{attempts: 0}", "retry.attempts: 0"),
    "rerun_interrupted": (LIST, "expected a whole number", "-1", "expected a whole number"),
    "only_if": ("test -f x", "expected a list of words", "[]", "at least 1"),
    "verify": ("make test", "expected a list of words", '[""]', "the first word is the program"),
    "exclusive": (LIST, "expected a name", '""', "expected a name"),
    "limits": ("5", "expected keys and values", "{turns_per_day: 0}", "limits.turns_per_day: 0"),
    "deliver": ("desktop", "expected a list of targets", "[desktp]", "expected desktop"),
    "quiet": (LIST, "expected text", '""', "expected text"),
    "alert": (KEYS, "expected a list of targets", "[{fil: x}]", "unknown key 'fil'"),
    "silent_for": (LIST, "expected a span", "0s", "expected at least 1s"),
    "wake_tools": (LIST, "expected true or false", "yes", "expected true or false"),
    "enabled": (LIST, "expected true or false", "no", "expected true or false"),
    "description": (LIST, "expected text", "look at #12", "for a comment"),
    "tags": ("daily", "expected a list of tags", "[a b]", "a tag is one word"),
}
WORKSPACE = {
    "tz": (LIST, "expected an IANA time zone", "Europe/Rigga", "tz: Europe/Rigga"),
    "agent": (LIST, "expected the name of an agent", "claud", "no agent is called that"),
    "agents": (LIST, "expected entries by name", "{a b: {command: [x]}}", "can't be called"),
    "concurrency": (LIST, "expected a whole number", "0", "from 1 to 1000"),
    "limits": (LIST, "expected keys and values", "{usd_per_day: x}", "limits.usd_per_day: x"),
    "retention": (LIST, "expected keys and values", "{claims: 0}", "retention.claims: 0"),
    "deliver": ("desktop", "expected a list of targets", "[desktp]", "expected desktop"),
    "alert": ("desktop", "expected a list of targets", "[{url: ''}]", "expected a URL"),
    "env_file": (LIST, "expected a path", "~nobody-at-all/x", "no user of that name"),
    "state": (LIST, "expected a path", "~nobody-at-all/x", "no user of that name"),
}
AGENT = {
    "preset": (LIST, "expected claude-code, codex", '""', "expected claude-code, codex"),
    "command": ("claude -p", "expected a list of words", "[]", "at least 1"),
    "python": (LIST, "expected module:function", "module.function", "expected module:function"),
    "http": (LIST, "expected an address", "localhost:8080", "expected an address of http"),
    "acp": ("claude", "expected a list of words", "[]", "at least 1"),
    "program": (LIST, "expected a name or path", '""', "expected a name or path"),
    "args": ("--fast", "expected a list of words", "[[a]]", "expected a word"),
    "first": ("claude", "expected a list of words", "['{sesion}']", "no placeholder is called"),
    "interactive": ("claude", "expected a list of words", "[a, '{prompt}']", "no {prompt} here"),
    "version": ("claude --version", "expected a list of words", "[]", "at least 1"),
    "prompt_by": (LIST, "expected stdin or argument", "file", "expected stdin or argument"),
    "output": (LIST, "expected text, json, jsonl or", "yaml", "expected text, json, jsonl or"),
    "read": (LIST, "expected paths", "{replay: x}", "unknown key 'replay'"),
    "read_stderr": (LIST, "expected texts by what follows", "{reply: x}", "unknown key 'reply'"),
    "totals_from": (LIST, "expected a version", "new", "expected a version"),
    "busy": (LIST, "expected keys and values", "{exit: [0]}", "from 1 to 255"),
    "not_started": (LIST, "expected keys and values", "{exit: [x]}", "from 1 to 255"),
    "lost": (LIST, "expected keys and values", "{out: [x]}", "unknown key 'out'"),
    "unfinished": (LIST, "expected resume or new-epoch", "redo", "expected resume or new-epoch"),
    "continuations": (LIST, "expected true or false", "yes", "expected true or false"),
    "stop": ("TERM", "expected a list of signals", "[SIGTERM]", "expected INT, TERM"),
    "env": (LIST, "expected variables", "{ROUTINES_SLOT: x}", "can't be set"),
    "model": ("--model", "expected a list of words", "['{modle}']", "no placeholder is called"),
    "mcp": (LIST, "expected keys and values", "{word: [x]}", "unknown key 'word'"),
    "body": (LIST, "expected keys and values", "{a: '{promt}'}", "no placeholder is called"),
    "headers": (LIST, "expected headers", "{Host: x}", "not yours to set"),
    "events": (LIST, "expected keys and values", "{name: a..b}", "expected a dotted path"),
    "waits": (LIST, "expected keys and values", "{connect: 10}", "waits.connect: 10"),
    "durable": (LIST, "expected keys and values", "{inspect: 'http://x/'}", "expected {run}"),
    "approve": (LIST, "expected keys and values", "{kinds: [all]}", "expected read, edit"),
    "authenticate": (LIST, "expected the id of a method", '""', "expected the id of a method"),
}


def routine_with(key, value):
    around = "" if key in {"prompt", "prompt_file"} else "prompt: x\n"
    every = "every: 1h\n" if key == "anchor" else ""
    return f"{around}{every}{key}: {value}\n"


def agent_with(key, value):
    around = "" if key in {"command", "python", "http", "acp", "preset"} else "    command: [x]\n"
    if key in {"body", "headers", "events", "waits", "durable"}:
        around = "    http: http://127.0.0.1:8080/\n"
    if key in {"approve", "authenticate"}:
        around = "    acp: [x]\n"
    return f"agents:\n  claude:\n{around}    {key}: {value}\n"


def rows(table):
    return [(key, *row) for key, row in table.items()]


def one(problems, key):
    assert len(problems) == 1, problems
    assert problems[0].key.startswith(key)
    assert problems[0].line
    assert problems[0].column
    return problems[0]


@pytest.mark.parametrize(
    ("table", "keys"),
    [(ROUTINE, ROUTINE_KEYS), (WORKSPACE, WORKSPACE_KEYS), (AGENT, AGENT_KEYS)],
    ids=["routine", "workspace", "agent"],
)
def test_the_tables_below_have_a_row_for_every_key(table, keys):
    assert list(table) == [key.name for key in keys]


@pytest.mark.parametrize(("key", "wrong", "expected", "_value", "_says"), rows(ROUTINE))
def test_a_routine_key_of_a_wrong_type_says_what_was_expected(
    parse, key, wrong, expected, _value, _says
):
    found = one(parse(routine_with(key, wrong)).problems, key)
    assert expected in found.message
    assert found.message.startswith(f"{key}: ")


@pytest.mark.parametrize(("key", "_type", "_expected", "wrong", "says"), rows(ROUTINE))
def test_a_wrong_value_of_a_routine_key_says_what_is_wrong(
    parse, key, _type, _expected, wrong, says
):
    found = one(parse(routine_with(key, wrong)).problems, key)
    assert says in found.message


@pytest.mark.parametrize("key", [key.name for key in ROUTINE_KEYS])
def test_an_unknown_routine_key_names_the_near_one(parse, key):
    slip = "att" if key == "at" else f"{key}z"
    problems = [p for p in parse(f"prompt: x\n{slip}: y\n").problems if p.key == slip]
    assert [(p.message, p.cure) for p in problems] == [
        (f"unknown key {slip!r}", f"did you mean {key!r}?")
    ]
    assert (problems[0].line, problems[0].column) == (2, 1)


@pytest.mark.parametrize("key", [key.name for key in ROUTINE_KEYS])
@pytest.mark.parametrize("nothing", ["", " ~", " null"])
def test_a_routine_key_without_a_value_is_a_problem_at_its_line(parse, key, nothing):
    if key == "cwd" and nothing == " ~":
        pytest.skip("the home folder")
    text = routine_with(key, "@").replace(" @", nothing)
    if nothing == " ~" and key in {"prompt_file", "env_file"}:
        return
    found = one(parse(text).problems, key)
    assert found.line == text[: text.index(key + ":")].count("\n") + 1


@pytest.mark.parametrize(("key", "wrong", "expected", "_value", "_says"), rows(WORKSPACE))
def test_a_workspace_key_of_a_wrong_type_says_what_was_expected(
    parse_workspace, key, wrong, expected, _value, _says
):
    settings, problems = parse_workspace(f"{key}: {wrong}\n")
    assert expected in one(problems, key).message
    assert not settings.is_whole


@pytest.mark.parametrize(("key", "_type", "_expected", "wrong", "says"), rows(WORKSPACE))
def test_a_wrong_value_of_a_workspace_key_says_what_is_wrong(
    parse_workspace, key, _type, _expected, wrong, says
):
    _, problems = parse_workspace(f"{key}: {wrong}\n")
    assert says in one(problems, key).message


@pytest.mark.parametrize("key", [key.name for key in WORKSPACE_KEYS])
def test_an_unknown_workspace_key_names_the_near_one(parse_workspace, key):
    _, problems = parse_workspace(f"{key}z: y\n")
    assert one(problems, key).cure == f"did you mean {key!r}?"


@pytest.mark.parametrize(("key", "wrong", "expected", "_value", "_says"), rows(AGENT))
def test_an_agent_key_of_a_wrong_type_says_what_was_expected(
    parse_workspace, key, wrong, expected, _value, _says
):
    _, problems = parse_workspace(agent_with(key, wrong))
    assert expected in one(problems, f"agents.claude.{key}").message


@pytest.mark.parametrize(("key", "_type", "_expected", "wrong", "says"), rows(AGENT))
def test_a_wrong_value_of_an_agent_key_says_what_is_wrong(
    parse_workspace, key, _type, _expected, wrong, says
):
    _, problems = parse_workspace(agent_with(key, wrong))
    assert says in one(problems, f"agents.claude.{key}").message


@pytest.mark.parametrize("key", [key.name for key in AGENT_KEYS])
def test_an_unknown_agent_key_names_the_near_one(parse_workspace, key):
    _, problems = parse_workspace(f"agents:\n  claude:\n    command: [x]\n    {key}z: y\n")
    found = one(problems, f"agents.claude.{key}z")
    assert found.cure == f"did you mean {key!r}?"
    assert "in agents.claude" in found.message


def test_wake_tools_are_handed_over_unless_the_file_says_no(parse):
    assert parse("prompt: x\n").routine.wake_tools
    assert parse("prompt: x\nwake_tools: true\n").routine.wake_tools
    assert not parse("prompt: x\nwake_tools: false\n").routine.wake_tools


def test_a_switch_of_the_wake_tools_is_an_edit_and_their_default_is_none(parse):
    plain, said, off = (
        parse(f"prompt: x\n{more}").routine.digest()
        for more in ("", "wake_tools: true\n", "wake_tools: false\n")
    )
    assert plain == said != off


@pytest.mark.parametrize(
    ("mcp", "says"),
    [
        ("{words: ['{mcp_comand}']}", "no placeholder is called {mcp_comand} here"),
        ("{words: ['{native_session}']}", "no placeholder is called {native_session} here"),
        ("{env: {A: '{mcp_jsn}'}}", "no placeholder is called {mcp_jsn} here"),
    ],
)
def test_placeholders_of_mcp_are_its_own(parse_workspace, mcp, says):
    _, problems = parse_workspace(f"agents:\n  a:\n    command: [x]\n    mcp: {mcp}\n")
    assert says in one(problems, "agents.a.mcp").message


def test_an_entry_may_say_how_its_program_takes_a_server(parse_workspace):
    words = "{words: ['--mcp={mcp_args}', '{\"a\": {mcp_env}}'], env: {A: '{mcp_command}'}}"
    settings, problems = parse_workspace(f"agents:\n  a:\n    command: [x]\n    mcp: {words}\n")
    assert problems == ()
    assert settings.agents["a"].mcp == McpHandover(
        ("--mcp={mcp_args}", '{"a": {mcp_env}}'), (("A", "{mcp_command}"),)
    )


# Targets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("desktop", DESKTOP),
        ("{file: out/}", to_file("/ws/out/", shown="out/")),
        ("{file: a/b.md}", to_file("/ws/a/b.md", shown="a/b.md")),
        ("{file: /var/log/x}", to_file("/var/log/x")),
        ("{command: [/bin/mail, me]}", to_command("/bin/mail", "me")),
        ("{url: 'slack://tokenA/tokenB'}", to_url("slack://tokenA/tokenB")),
        ("{ping: 'https://hc-ping.com/abc'}", to_ping("https://hc-ping.com/abc")),
    ],
)
def test_a_target_says_how_and_where(parse, parse_workspace, text, targets):
    assert parse(f"prompt: x\ndeliver: [{text}]\n").routine.deliver == (targets,)
    settings, problems = parse_workspace(f"deliver: [{text}]\n")
    assert (settings.deliver, problems) == ((targets,), ())


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("deliver", "[{}]", "expected one of file, command, url and ping"),
        ("deliver", "[{file: a, url: 'x://y'}]", "expected one of file, command, url and ping"),
        ("deliver", "[{url: nowhere}]", "expected a URL"),
        ("deliver", "[{url: 'x://y z'}]", "expected a URL"),
        ("deliver", "[{ping: 'ftp://x'}]", "expected a web address"),
        ("deliver", "[{ping: 'file:///etc/passwd'}]", "expected a web address"),
        ("deliver", "[{file: ~nobody-at-all/x}]", "no user of that name"),
        ("deliver", "[{command: mail}]", "expected a list of words"),
        ("alert", "[{ping: 'https://x'}]", "unknown key 'ping' in alert"),
        ("alert", "[{}]", "expected one of file, command and url"),
    ],
)
def test_a_target_that_can_not_be_used_is_a_problem(parse, parse_workspace, key, value, says):
    found = one(parse(f"prompt: x\n{key}: {value}\n").problems, key)
    assert says in found.message
    assert says in one(parse_workspace(f"{key}: {value}\n")[1], key).message


def test_a_routine_takes_the_targets_of_the_workspace_unless_it_names_its_own():
    settings, problems = parse_settings(b"deliver: [desktop]\nalert: [desktop]\n", root="/ws")
    assert problems == ()

    def read(text):
        return parse_routine(
            text.encode(), "x", path="x.yaml", root="/ws", settings=settings
        ).routine

    plain = read("prompt: x\n")
    assert (plain.deliver, plain.alert) == ((DESKTOP,), (DESKTOP,))
    own = read("prompt: x\ndeliver: []\nalert: [{file: log}]\n")
    assert (own.deliver, own.alert) == ((), (to_file("/ws/log", shown="log"),))


def test_what_is_shown_of_a_target_holds_no_secret():
    url = "https://user:secret1@hc-ping.com/secret2?key=secret3"
    shown = [to_url("slack://secret1/secret2").label, to_ping(url).label]
    assert shown == ["slack://", "ping hc-ping.com"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("overlap", "skip"),
        ("jitter", "0"),
        ("jitter", "0s"),
        ("rerun_interrupted", "0"),
        ("catch_up", "none"),
    ],
)
def test_the_part_of_such_a_key_that_is_built_is_taken(parse, key, value):
    assert parse(f"prompt: x\n{key}: {value}\n").problems == ()


def test_all_problems_of_a_file_are_told_at_once_in_order(parse):
    text = (
        "prompt: x\nschedule: y\ntimeout: 5\nenabled: on\ncron: '61 * * * *'\ncron: '* * * * *'\n"
    )
    problems = parse(text).problems
    assert [(p.line, p.key) for p in problems] == [
        (2, "schedule"),
        (3, "timeout"),
        (4, "enabled"),
        (5, "cron"),
        (6, "cron"),
    ]
    assert problems[0].cure == "write cron, every, at or rrule"
    assert problems[1].cure == 'write "5s" or "5m"'
    assert problems[2].cure == "write `enabled: true`"


# Any keys with any values: a routine or problems, never an exception.
VALUES = st.sampled_from(
    ["", "~", "null", "x", "5", "0", "-1", "1h", "true", "no", "[]", "{}", "[x]", "[[x]]", "{a: b}",
     "[{a: b}]", "{file: x}", "[desktop]", "12:30", "2026-01-01", "'0 9 * * *'", "'* *'", "''",
     '"\\0"', "['{prompt}']", "[x, '{native_session}']", "a:b", "json", "argument", "{exit: [75]}",
     "named:x", "UTC", "echo", "*x", "!t x", "[", "x: y"]
)  # fmt: skip


def some(keys):
    names = [*(key.name for key in keys), "unknown"]
    return st.lists(st.tuples(st.sampled_from(names), VALUES), max_size=6)


def lines(pairs, indent=""):
    return "".join(f"{indent}{key}: {value}\n" for key, value in pairs)


@hypothesis_settings(deadline=None)
@given(some(ROUTINE_KEYS))
def test_any_routine_file_is_a_routine_or_problems(pairs):
    definition = parse_routine(
        lines(pairs).encode(), "x", path="x.yaml", root="/ws", settings=WorkspaceSettings()
    )
    assert (definition.routine is None) == bool(definition.problems)


@hypothesis_settings(deadline=None)
@given(some(WORKSPACE_KEYS), some(AGENT_KEYS))
def test_any_routines_yaml_is_settings_or_problems(pairs, entry):
    text = lines(pairs) + "agents:\n  a:\n" + lines(entry, "    ")
    settings, problems = parse_settings(text.encode(), root="/ws")
    assert settings.is_whole == (not problems)
