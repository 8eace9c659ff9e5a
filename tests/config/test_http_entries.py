"""An entry with `http:`: what reaches the agent, and what is wrong with its line."""

from datetime import timedelta

import pytest

from routines.domain.agent import AgentKind, AgentSpec, OutputFormat
from routines.domain.http_agent import DEFAULT_BODY, Events, HttpDurable, HttpSigns, HttpSpec

URL = "http://127.0.0.1:8787/invoke"


def entry(lines, url=URL):
    return f"agents:\n  a:\n    http: {url}\n" + "".join(
        f"    {line}\n" for line in lines.split("\n") if line
    )


def only(read):
    settings, problems = read
    assert len(problems) == 1, problems
    assert not settings.is_whole
    assert problems[0].line
    return problems[0]


def test_an_address_alone_is_an_entry(parse_workspace):
    settings, problems = parse_workspace(entry(""))
    assert problems == ()
    spec = settings.agents["a"]
    assert (spec.kind, spec.output, spec.read) == (
        AgentKind.HTTP,
        OutputFormat.JSON,
        {"reply": "reply"},
    )
    assert spec.http == HttpSpec(url=URL, body=DEFAULT_BODY)


def test_a_key_in_an_address_is_not_shown(parse_workspace):
    settings, _ = parse_workspace(entry("", f"{URL}?key=secret"))
    assert settings.agents["a"].http.shown == URL


def test_every_key_reaches_the_entry_and_what_is_handed_over(parse_workspace):
    settings, problems = parse_workspace(
        entry(
            'body: {session: "{session}", text: "{prompt}", n: 1, x: -0.5, ok: true, no: "true",'
            ' none: null, deep: [{a: "{model}"}, 010, "{ }"]}\n'
            "headers: {Authorization: 'Bearer {env:TOKEN}', X-Team: '{env:A}/{env:B}'}\n"
            "output: events\n"
            "events: {name: type, text: {text: delta}, end: completed, failed: {failed: details}}\n"
            "busy: {status: [409, 503], when: {code: session_busy, ran: false}}\n"
            "not_started: {status: [503]}\nlost: {when: {error: no such thread}}\n"
            "read: {native_session: id, tokens: usage}\n"
            "waits: {connect: 5s, silence: 2m}\n"
            "env: {A: b}"
        )
    )
    assert problems == ()
    spec = settings.agents["a"]
    assert spec.http == HttpSpec(
        url=URL,
        body={
            "session": "{session}",
            "text": "{prompt}",
            "n": 1,
            "x": -0.5,
            "ok": True,
            "no": "true",
            "none": None,
            "deep": [{"a": "{model}"}, "010", "{ }"],
        },
        headers=(("Authorization", "Bearer {env:TOKEN}"), ("X-Team", "{env:A}/{env:B}")),
        events=Events(
            name="type", text={"text": "delta"}, end=("completed",), failed={"failed": "details"}
        ),
        busy=HttpSigns(status=(409, 503), when=(("code", "session_busy"), ("ran", "false"))),
        not_started=HttpSigns(status=(503,)),
        lost=HttpSigns(when=(("error", "no such thread"),)),
        connect=timedelta(seconds=5),
        silence=timedelta(minutes=2),
    )
    assert spec.env == (("A", "b"),)
    assert AgentSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://x/", "expected an address"),
        ("http:///x", "expected an address"),
        ("http://x:99999/", "expected an address"),
        ("'http://a b/'", "expected an address"),
        ("http://user:pw@x/", "ends up in logs"),
        ("'http://x/#part'", "never sent"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(parse_workspace, url, says):
    found = only(parse_workspace(entry("", url)))
    assert found.key == "agents.a.http"
    assert says in found.message


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        # What has no meaning here.
        ("first: [x]", "first", "no meaning beside `http`"),
        ("prompt_by: stdin", "prompt_by", "no meaning beside `http`"),
        ("stop: [TERM]", "stop", "no meaning beside `http`"),
        ("model: [--model, x]", "model", "no meaning beside `http`"),
        ("busy: {exit: [75]}", "busy", "has no `exit`"),
        ("busy: {stderr: [x]}", "busy", "has no `stderr`"),
        ("busy: {status: [200]}", "busy.status", "from 400 to 599"),
        # What does not go together.
        ("events: {end: done}", "events", "needs a stream"),
        ("output: text\nread: {reply: x}", "read", "structured output"),
        ("body: {text: hello}", "body", "nothing in `body` carries the prompt"),
        ('body: {p: "{prompt}", s: "{native_session}"}', "body", "nothing says what"),
        ("output: events", "output", "where the reply is"),
        ("output: jsonl\nevents: {end: done}", "output", "where the reply is"),
        # Placeholders.
        ('body: {text: "{promt}"}', "body.text", "no placeholder is called {promt}"),
        ('body: {text: "say {prompt}"}', "body.text", "stands within a text"),
        # Headers.
        ("headers: {'X Y': z}", "headers.X Y", "no name of a header"),
        ("headers: {Idempotency-Key: z}", "headers.Idempotency-Key", "not yours to set"),
        ("headers: {X: '{TOKEN}'}", "headers.X", "only {env:NAME} is filled in"),
        ("headers: {X: ä}", "headers.X", "one line of ASCII"),
    ],
)
def test_what_could_not_work_is_refused_with_a_cure(parse_workspace, lines, key, message):
    _, problems = parse_workspace(entry(lines))
    assert [p for p in problems if p.key == f"agents.a.{key}" and message in p.message], problems
    # Of a value that is out of its bounds the message says it all.
    assert all(p.cure or "from 400" in p.message or "ASCII" in p.message for p in problems)


@pytest.mark.parametrize(
    "lines",
    [
        "output: events\nevents: {text: 1, nmae: x}",
        "output: events\nevnts: {text: {a: b}}",
        'body: {p: "{prompt}", s: "{native_session}"}\nread: {native_sesion: id}',
        "durable: nothing",
    ],
)
def test_what_follows_from_a_key_that_is_wrong_is_not_said_as_well(parse_workspace, lines):
    _, problems = parse_workspace(entry(lines))
    assert problems
    assert not [p for p in problems if "nothing says" in p.message or "missing" in p.message]


@pytest.mark.parametrize(
    "line",
    [
        'body: {p: "{prompt}"}',
        "headers: {A: b}",
        "events: {}",
        "waits: {}",
        "output: events",
        "busy: {status: [409]}",
        "busy: {when: {a: b}}",
    ],
)
def test_a_key_of_servers_beside_a_command_is_refused(parse_workspace, line):
    found = only(parse_workspace(f"agents:\n  a:\n    command: [x]\n    {line}\n"))
    assert found.key.startswith("agents.a.")
    assert found.cure


def test_cost_of_a_server_is_known_if_its_place_is(parse_workspace):
    limited = "agent: a\nlimits: {usd_per_day: 1}\n"
    assert parse_workspace(limited + entry("read: {reply: r, cost: usd}"))[1] == ()
    assert "reports no cost" in only(parse_workspace(limited + entry(""))).message


# Durable ------------------------------------------------------------------------------------------

RUNS = "inspect: 'http://x/runs/{run}', cancel: 'http://x/runs/{run}/cancel'"


def test_a_durable_entry_reaches_the_agent_and_what_is_handed_over(parse_workspace):
    settings, problems = parse_workspace(
        entry(
            f"durable: {{{RUNS}, run: run.id, state: run.state, detail: run.error,"
            " words: {completed: [succeeded, done], failed: error},"
            " waiting: {when: {state: needs-approval}}}"
        )
    )
    assert problems == ()
    spec = settings.agents["a"]
    assert spec.http.durable == HttpDurable(
        inspect="http://x/runs/{run}",
        cancel="http://x/runs/{run}/cancel",
        run="run.id",
        state="run.state",
        detail="run.error",
        words={"succeeded": "completed", "done": "completed", "error": "failed"},
        waiting=HttpSigns(when=(("state", "needs-approval"),)),
    )
    assert AgentSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        ("durable: {inspect: 'http://x/runs/{run}'}", "durable", "`cancel` is missing"),
        ("durable: {}", "durable", "`inspect` is missing"),
        (
            "durable: {inspect: http://x/runs, cancel: 'http://x/{run}'}",
            "durable.inspect",
            "expected {run} in it",
        ),
        (
            "durable: {inspect: 'http://{run}/runs', cancel: 'http://x/{run}'}",
            "durable.inspect",
            "expected {run} in the path",
        ),
        (
            "durable: {inspect: 'ftp://x/{run}', cancel: 'http://x/{run}'}",
            "durable.inspect",
            "expected an address",
        ),
        (f"durable: {{{RUNS}, words: {{done: x}}}}", "durable.words.done", "unknown key 'done'"),
        (
            f"durable: {{{RUNS}}}\noutput: events\nevents: {{text: {{a: b}}}}",
            "output",
            "the answers about a run are JSON",
        ),
        (f"durable: {{{RUNS}}}\nlost: {{status: [404]}}", "lost", "no meaning beside `durable`"),
    ],
)
def test_what_could_not_work_for_a_run_is_refused(parse_workspace, lines, key, message):
    _, problems = parse_workspace(entry(lines))
    assert [p for p in problems if p.key == f"agents.a.{key}" and message in p.message], problems
