"""An entry with `acp:`: what reaches the agent, and what is wrong with its line."""

import pytest

from routines.domain.acp_agent import AcpSpec
from routines.domain.agent import AgentKind, AgentSpec, Signs


def entry(lines="", words="[gemini, --acp]"):
    return f"agents:\n  a:\n    acp: {words}\n" + "".join(
        f"    {line}\n" for line in lines.split("\n") if line
    )


def only(read):
    settings, problems = read
    assert len(problems) == 1, problems
    assert not settings.is_whole
    assert problems[0].line
    return problems[0]


def test_words_alone_are_an_entry(parse_workspace):
    settings, problems = parse_workspace(entry())
    assert problems == ()
    spec = settings.agents["a"]
    assert (spec.kind, spec.command, spec.acp) == (AgentKind.ACP, ("gemini", "--acp"), AcpSpec())
    assert spec.read == {"tokens": "usage.totalTokens"}


def test_every_key_reaches_the_entry_and_what_is_handed_over(parse_workspace):
    settings, problems = parse_workspace(
        entry(
            "approve: {kinds: [read, search], titles: [deploy it]}\n"
            "authenticate: api-key\n"
            "program: /opt/gemini\n"
            "args: [--skip-trust]\n"
            'model: [-m, "{model}"]\n'
            'interactive: [gemini, --resume, "{native_session}"]\n'
            "read: {tokens: _meta.quota.token_count, cost_total: cost.amount}\n"
            "busy: {error: [in use]}\nnot_started: {error: [no network]}\nlost: {error: [gone]}\n"
            "stop: [INT, KILL]\n"
            "env: {A: b}"
        )
    )
    assert problems == ()
    spec = settings.agents["a"]
    assert spec.acp == AcpSpec(
        kinds=("read", "search"), titles=("deploy it",), authenticate="api-key"
    )
    assert spec.command == ("/opt/gemini", "--acp")
    assert spec.args == ("--skip-trust",)
    assert spec.interactive == ("/opt/gemini", "--resume", "{native_session}")
    assert spec.read == {"tokens": "_meta.quota.token_count", "cost_total": "cost.amount"}
    assert (spec.not_started, spec.lost) == (Signs(error=("no network",)), Signs(error=("gone",)))
    assert spec.busy.error == ("in use",)
    assert (spec.stop, spec.env, spec.model) == (
        ("INT", "KILL"),
        (("A", "b"),),
        ("-m", "{model}"),
    )
    assert AgentSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        ("first: [x]", "first", "no meaning beside `acp`"),
        ("prompt_by: stdin", "prompt_by", "no meaning beside `acp`"),
        ("output: json", "output", "no meaning beside `acp`"),
        ("busy: {exit: [75]}", "busy", "`exit` has no meaning"),
        ("lost: {stderr: [x]}", "lost", "`stderr` has no meaning"),
        ("read: {reply: x}", "read", "the protocol itself says `reply`"),
        ("approve: {kinds: [everything]}", "approve.kinds", "expected read, edit"),
        ("approve: all", "approve", "expected keys and values"),
    ],
)
def test_what_could_not_work_is_refused_with_a_cure(parse_workspace, lines, key, message):
    found = only(parse_workspace(entry(lines)))
    assert found.key == f"agents.a.{key}"
    assert message in found.message


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{sesion}", "no placeholder is called {sesion}"),
        ("{prompt}", "there is no {prompt} here"),
        ("{native_session}", "there is no {native_session} here"),
    ],
)
def test_prompt_and_conversation_go_by_the_protocol_and_not_by_words(
    parse_workspace, word, message
):
    found = only(parse_workspace(entry(words=f"[x, '{word}']")))
    assert message in found.message


@pytest.mark.parametrize("line", ["approve: {kinds: [read]}", "authenticate: x"])
@pytest.mark.parametrize("way", ["command: [x]", "http: http://x/", "python: a:b"])
def test_a_key_of_the_protocol_beside_another_way_is_refused(parse_workspace, way, line):
    _, problems = parse_workspace(f"agents:\n  a:\n    {way}\n    {line}\n")
    assert problems
    assert all(problem.key.startswith("agents.a.") for problem in problems)


def test_cost_is_known_if_the_entry_says_where(parse_workspace):
    limited = "agent: a\nlimits: {usd_per_day: 1}\n"
    assert "reports no cost" in only(parse_workspace(limited + entry())).message
    assert parse_workspace(limited + entry("read: {cost_total: cost.amount}"))[1] == ()
