"""A durable agent behind HTTP: what each of its three addresses is asked, and what answers mean."""

import asyncio
import socket

import pytest

from routines.agents.base import (
    AgentUnavailable,
    OutcomeUnknown,
    SessionBusy,
    TurnFailed,
    Usage,
    Waiting,
)
from routines.agents.http_durable import HttpDurableAgent, MissingExtra, Unheard, http_durable
from routines.domain.agent import AgentKind, AgentSpec, OutputFormat
from routines.domain.http_agent import HttpDurable, HttpSigns, HttpSpec
from tests.agents.servers import Server, saying
from tests.agents.stubs import make_turn


@pytest.fixture
def serve():
    made = []

    def start(answer):
        made.append(Server(answer))
        return made[-1]

    yield start
    for server in made:
        server.close()


def agent_of(base, *, env=None, model=None, read=None, durable=None, **keys):
    spec = AgentSpec(
        name="far",
        kind=AgentKind.HTTP,
        http=HttpSpec(
            url=f"{base}/runs",
            durable=HttpDurable(
                inspect=f"{base}/runs/{{run}}",
                cancel=f"{base}/runs/{{run}}/cancel",
                **(durable or {}),
            ),
            **keys,
        ),
        output=OutputFormat.JSON,
        read=read or {"reply": "reply"},
    )
    # What is handed to a turn process is read back there.
    return http_durable(AgentSpec.from_json(spec.to_json()), env=env or {}, model=model)


@pytest.fixture
def far(serve):
    """An agent whose server answers so, and that server."""

    def make(answer, **keys):
        server = serve(answer)
        return agent_of(f"http://127.0.0.1:{server.port}", **keys), server

    return make


def start(agent, **changes):
    return asyncio.run(agent.start(make_turn(**changes)))


def inspect(agent, run_id="r-1"):
    return asyncio.run(agent.inspect(run_id))


def cancel(agent, run_id="r-1"):
    return asyncio.run(agent.cancel(run_id))


# Starting -----------------------------------------------------------------------------------------


def test_run_is_started_by_one_post_under_the_key_of_its_turn(far):
    agent, server = far(saying({"id": "r-1"}, "202 Accepted"), model="m")

    assert start(agent) == "r-1"
    assert start(agent) == "r-1"
    first, again = server.requests
    assert (first.method, first.path) == ("POST", "/runs")
    assert first.headers["idempotency-key"] == "0f3c/digest@2026-07-01T09:00:00Z"
    assert first.json["prompt"] == "say hello"
    assert (first.raw, first.headers["idempotency-key"]) == (
        again.raw,
        again.headers["idempotency-key"],
    )


@pytest.mark.parametrize(
    ("answer", "run_id"),
    [({"run": {"name": "a/b?c"}}, "a/b?c"), ({"run": {"name": 7}}, "7")],
)
def test_id_of_a_run_stands_where_the_entry_says(far, answer, run_id):
    assert start(far(saying(answer), durable={"run": "run.name"})[0]) == run_id


@pytest.mark.parametrize(
    ("status", "body", "raised"),
    [
        # It says that nothing was begun.
        ("409 Conflict", {"code": "session_busy"}, SessionBusy),
        ("503 Service Unavailable", {}, AgentUnavailable),
        ("202 Accepted", {"state": "needs-approval"}, Waiting),
        # It says that none ever will be.
        ("400 Bad Request", {"error": "no such agent"}, TurnFailed),
        ("401 Unauthorized", {}, TurnFailed),
        ("404 Not Found", {}, TurnFailed),
        ("422 Unprocessable", {}, TurnFailed),
        # It says nothing: one may have begun, and the same start is put again.
        ("500 Oops", {}, Unheard),
        ("502 Bad Gateway", {}, Unheard),
        ("408 Timeout", {}, Unheard),
        ("409 Conflict", {"code": "in_progress"}, Unheard),
        ("429 Too Many", {}, Unheard),
        ("200 OK", {}, Unheard),
        ("200 OK", {"id": ""}, Unheard),
        ("200 OK", {"id": "a\nb"}, Unheard),
        ("200 OK", {"id": True}, Unheard),
        ("200 OK", {"id": ".."}, Unheard),
        ("200 OK", {"id": ["r"]}, Unheard),
        ("200 OK", b"<html>", Unheard),
    ],
)
def test_answer_to_a_start_says_what_it_says(far, status, body, raised):
    agent, _ = far(
        saying(body, status),
        not_started=HttpSigns(status=(503,)),
        durable={"waiting": HttpSigns(when=(("state", "needs-approval"),))},
    )

    with pytest.raises(raised) as error:
        start(agent)
    assert type(error.value) is raised


def test_lost_answer_to_a_start_says_nothing(far):
    agent, server = far(lambda request, connection: None)

    with pytest.raises(OutcomeUnknown):
        start(agent)
    assert len(server.requests) == 1


@pytest.mark.parametrize("coding", ["br", "gzip"])
def test_answer_to_a_start_that_cannot_be_read_says_nothing(far, coding):
    agent, _ = far(saying(b"nonsense", Content_Encoding=coding))

    with pytest.raises(Unheard):
        start(agent)


def test_server_that_is_not_there_started_nothing():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        agent = agent_of(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(AgentUnavailable):
            start(agent)


def test_header_that_cannot_be_made_fails_the_turn_and_nothing_is_sent(far):
    agent, server = far(saying({"id": "r"}), headers=(("A", "{env:TOKEN}"),))

    with pytest.raises(TurnFailed, match="TOKEN is not set"):
        start(agent)
    assert server.requests == []


# Inspecting ---------------------------------------------------------------------------------------


def test_run_is_asked_about_by_a_get_that_does_nothing(far):
    agent, server = far(
        saying({"state": "active"}), headers=(("Authorization", "{env:T}"),), env={"T": "x"}
    )

    assert inspect(agent).word == "active"
    [request] = server.requests
    assert (request.method, request.path, request.raw) == ("GET", "/runs/r-1", b"")
    assert "idempotency-key" not in request.headers
    assert request.headers["authorization"] == "x"


@pytest.mark.parametrize("run_id", ["a/b", "../admin", "a?b=c#d", "ü", "%2e", "{run}"])
def test_id_from_elsewhere_leads_to_no_other_address(far, run_id):
    agent, server = far(saying({"state": "active"}))

    inspect(agent, run_id)
    cancel(agent, run_id)
    asked, ended = (request.path.split("/") for request in server.requests)
    assert (asked[:2], len(asked), ended[:2], ended[3:]) == (
        ["", "runs"],
        3,
        ["", "runs"],
        ["cancel"],
    )
    assert asked[2] not in {"..", "."}


@pytest.mark.parametrize(
    ("body", "word", "detail"),
    [
        ({"state": "completed"}, "completed", ""),
        ({"state": "failed", "message": "no credit"}, "failed", "no credit"),
        ({"state": "cancelled"}, "cancelled", ""),
        ({"state": "missing"}, "missing", ""),
        ({"state": "succeeded"}, "completed", ""),
        ({"state": "boom", "why": "the disk"}, "failed", "the disk"),
        # What is not known counts as active, whoever reads it.
        ({"state": "thinking"}, "thinking", ""),
        ({"state": 7}, "", ""),
        ({}, "", ""),
    ],
)
def test_state_of_a_run_is_the_servers_word_by_what_it_means(far, body, word, detail):
    words = {"succeeded": "completed", "boom": "failed"}
    keys = {"words": words} | ({"detail": "why"} if "why" in body else {})
    agent, _ = far(saying(body), durable=keys)

    state = inspect(agent)
    assert (str(state.word), state.detail) == (word, detail)


def test_secret_in_what_a_tool_that_was_denied_is_called_is_masked_before_the_cut(far):
    body = {"state": "completed", "denied": [f"{'x' * 30} correct-horse-battery"]}
    agent, _ = far(saying(body), read={"denied": "denied"}, env={"KEY": "correct-horse-battery"})

    assert inspect(agent).reply.warnings == (f"denied: {'x' * 30} ***",)


def test_reply_of_a_run_is_read_by_the_paths_of_the_entry(far):
    body = {"state": "completed", "out": {"text": "done"}, "thread": "t-1", "usd": 0.5}
    read = {"reply": "out.text", "native_session": "thread", "cost": "usd"}
    state = inspect(far(saying(body), read=read)[0])

    assert (state.reply.text, state.reply.native_session) == ("done", "t-1")
    assert state.reply.usage == Usage(usd=0.5)


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
def test_run_that_is_not_there_is_missing(far, status):
    assert inspect(far(saying({"error": "no such run"}, status))[0]).word == "missing"


@pytest.mark.parametrize(
    "answer",
    [
        saying({}, "500 Oops"),
        saying({}, "401 Unauthorized"),
        saying(b"<html>"),
        saying(b"x" * (9 << 20)),
        lambda request, connection: None,
    ],
)
def test_anything_else_says_nothing_of_a_run(far, answer):
    with pytest.raises((Unheard, OutcomeUnknown)):
        inspect(far(answer)[0])


# Cancelling ---------------------------------------------------------------------------------------


def test_run_is_cancelled_under_a_key_of_its_own_however_often_it_is_asked(far):
    agent, server = far(saying({}, "202 Accepted"))

    cancel(agent)
    cancel(agent)
    assert {(r.method, r.path, r.headers["idempotency-key"]) for r in server.requests} == {
        ("POST", "/runs/r-1/cancel", "cancel:r-1")
    }


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
def test_run_that_is_not_there_needs_no_cancel(far, status):
    cancel(far(saying({}, status))[0])


@pytest.mark.parametrize("status", ["409 Conflict", "403 Forbidden", "500 Oops"])
def test_refused_cancel_is_none(far, status):
    with pytest.raises(Unheard):
        cancel(far(saying({}, status))[0])


def test_library_that_is_missing_fails_a_start_and_says_nothing_of_a_run(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "routines.agents.http_connection", None)
    agent = agent_of("http://127.0.0.1:1")

    assert isinstance(agent, MissingExtra)
    with pytest.raises(TurnFailed, match=r"agent-routines\[http\]"):
        start(agent)
    with pytest.raises(Unheard):
        inspect(agent)
    with pytest.raises(Unheard):
        cancel(agent)


def test_agent_is_what_an_engine_takes_for_a_durable_one():
    from routines.agents.durable import is_durable

    assert is_durable(HttpDurableAgent)
    assert is_durable(MissingExtra)
