"""Turns of agents behind HTTP, in turn processes, from a routines.yaml to the record."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from routines.config.workspace_file import parse_settings
from routines.domain import schedule as schedules
from routines.domain.names import format_instant
from routines.domain.retry import Retry
from routines.engine.clock import SystemClock
from tests.agents.servers import Server, events, head, saying
from tests.engine.stage import MINUTE, Stage, content, eventually, routine

PAGE = Path(__file__).parents[2] / "docs/agents/http.md"
SECRET = "correct-horse-battery"


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    made.clock = SystemClock()
    return made


@pytest.fixture
def serve():
    made = []

    def start(answer):
        made.append(Server(answer))
        return made[-1]

    yield start
    for server in made:
        server.close()


def agents(yaml, server):
    """The entries of *yaml*, asked for where *server* listens."""
    text = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{server.port}", yaml)
    settings, problems = parse_settings(text.encode(), root="/ws")
    assert problems == ()
    return {"agents": settings.agents, "agent": None}


MINE = "agents:\n  mine:\n    http: http://127.0.0.1:1/turn\n"


def digest(**changes):
    never = schedules.at("2099-01-01T00:00:00Z", "UTC")
    return routine(**{"agent": "mine", "schedule": never, "timeout": MINUTE} | changes)


def in_a_moment():
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    return schedules.at(format_instant(at), "UTC")


async def run(stage, server, yaml=MINE, **changes):
    async with stage.running(digest(**changes), **agents(yaml, server)) as engine:
        return await engine.run("digest")


def said(record):
    return f"{record.outcome} {record.reason or ''}".strip()


# fastagent --------------------------------------------------------------------------------------


class Fastagent:
    """A server that keeps the contract of `POST /invoke`: one turn a session, events out."""

    def __init__(self, token=None):
        self.talks = {}
        self.busy = set()
        self.token = token
        self.hold = None

    def __call__(self, request, connection):
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return saying({"error": "unauthorized"}, "401 Unauthorized")(request, connection)
        asked = request.json
        assert request.path == "/invoke"
        assert set(asked) == {"session", "text"}
        if asked["session"] in self.busy:
            busy = {"type": "failed", "details": "session is busy", "retryable": True}
            return events(busy | {"code": "session_busy"})(request, connection)
        talk = self.talks.setdefault(asked["session"], [])
        talk.append(asked["text"])
        return events(
            {"type": "thinking", "delta": "let me see"},
            b": ping\n\n",
            {"type": "text", "delta": f"I have heard {len(talk)}: "},
            {"type": "tool_started", "id": "1", "name": "read", "args": {}},
            {"type": "tool_ended", "id": "1", "isError": False, "content": "x"},
            {"type": "text", "delta": " / ".join(talk)},
            {"type": "something-new"},
            {"type": "completed"},
        )(request, connection)


def on_the_page(mark):
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return next(block for block in blocks if mark in block)


@pytest.fixture
def workspace(tmp_path):
    """A folder with the lines of the page, and the command line in it."""

    def make(yaml, server, **routines):
        text = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{server.port}", yaml)
        (tmp_path / "routines.yaml").write_text(text)
        (tmp_path / "routines").mkdir()
        for name, prompt in routines.items():
            (tmp_path / "routines" / f"{name}.yaml").write_text(f"prompt: {prompt}\n")

    def command(*words, code=0):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROUTINES_", "PYTEST_"))}
        ended = subprocess.run(
            [sys.executable, "-m", "routines", *words],
            cwd=tmp_path,
            env=kept | {"FASTAGENT_TOKEN": SECRET, "PYTHONPATH": os.getcwd()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout

    return make, command


def test_fastagents_contract_works_by_configuration_alone(workspace, serve):
    make, command = workspace
    agent = Fastagent(token=SECRET)
    server = serve(agent)
    make(on_the_page("/invoke"), server, daily="good morning")

    assert "all right" in command("check")
    assert command("run", "daily").strip() == "I have heard 1: good morning"
    # The conversation lasts.
    assert command("run", "daily").strip() == "I have heard 2: good morning / good morning"
    assert list(agent.talks) == ["routine:daily"]
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2

    agent.busy.add("routine:daily")
    command("run", "daily", code=75)
    [newest, *_] = json.loads(command("history", "daily", "--json"))
    assert (newest["outcome"], newest["reason"]) == ("failed", "not-started")
    assert "session is busy" in newest["detail"]
    assert len(agent.talks["routine:daily"]) == 2


def test_a_server_that_says_that_it_did_not_run_is_busy_by_configuration_alone(workspace, serve):
    make, command = workspace
    server = serve(saying({"ran": False, "reason": "busy"}))
    make(on_the_page("/run\n"), server, daily="good morning")

    command("run", "daily", code=75)
    [newest, *_] = json.loads(command("history", "daily", "--json"))
    assert (newest["outcome"], newest["reason"]) == ("failed", "not-started")
    server.answer = saying({"ran": True, "text": "done"})
    assert command("run", "daily").strip() == "done"
    asked = server.requests[0].json
    assert (asked["name"], asked["prompt"]) == ("daily", "good morning")


# Never twice ------------------------------------------------------------------------------------


async def test_server_that_is_not_there_yet_is_asked_again_under_the_same_key(stage, serve):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        spec = agents(MINE.replace(":1/", f":{port}/"), Port(port))
        soon = in_a_moment()
        patient = Retry(attempts=50, first=timedelta(seconds=1), most=timedelta(seconds=1))
        async with stage.running(digest(schedule=soon, retry=patient), **spec):
            await eventually(
                lambda: [r for r in stage.records("digest") if r.last == "retry"], seconds=60
            )
            reserved.close()
            server = Server(saying({"reply": "here I am"}))
            server._listener.close()
            server._listener = socket.create_server(("127.0.0.1", port))
            threading.Thread(target=server._accept, daemon=True).start()
            [record] = await eventually(
                lambda: [r for r in stage.records("digest") if r.end], seconds=60
            )

    assert said(record) == "completed"
    assert len(server.requests) == 1
    key = server.requests[0].headers["idempotency-key"]
    assert key == stage.state.key(record.ref)
    server.close()


class Port:
    def __init__(self, port):
        self.port = port


async def test_lost_answer_is_never_sent_again_however_patient_the_routine(stage, serve):
    server = serve(lambda request, connection: None)
    soon = in_a_moment()
    patient = Retry(attempts=50, first=timedelta(seconds=1), most=timedelta(seconds=1))
    async with stage.running(digest(schedule=soon, retry=patient), **agents(MINE, server)):
        [record] = await eventually(
            lambda: [r for r in stage.records("digest") if r.end], seconds=60
        )

    assert said(record) == "interrupted outcome-unknown"
    assert len(server.requests) == 1


async def test_killed_turn_process_is_interrupted_and_its_turn_is_not_sent_again(stage, serve):
    came = threading.Event()

    def answer(request, connection):
        connection.sendall(head())
        came.set()
        server.until_closed(connection)

    server = serve(answer)
    async with stage.running(digest(), **agents(MINE, server)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually(came.is_set)
        [record] = [r for r in stage.records("digest") if r.started]
        os.kill(record.started["owner"]["pid"], signal.SIGKILL)
        ended = await task

    assert said(ended) == "interrupted owner-died"
    assert server.closed.wait(20)
    assert len(server.requests) == 1


async def test_cancelled_turn_closes_its_connection(stage, serve):
    came = threading.Event()

    def answer(request, connection):
        came.set()
        server.until_closed(connection)

    server = serve(answer)
    async with stage.running(digest(), **agents(MINE, server)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually(came.is_set)
        [record] = [r for r in stage.records("digest") if r.started]
        stage.cancel(record.ref)
        ended = await task

    assert said(ended) == "cancelled person"
    assert server.closed.wait(20)


# What is kept -----------------------------------------------------------------------------------


async def test_secret_of_a_header_is_kept_nowhere(stage, serve):
    def answer(request, connection):
        leak = request.headers["x-whoever"]
        return saying({"error": f"{leak} may not"}, "403 Forbidden")(request, connection)

    yaml = MINE + "    headers: {X-Whoever: '{env:WHO}'}\n"
    record = await run(stage, serve(answer), yaml, env=(("WHO", SECRET),))

    assert record.end["detail"] == "HTTP 403 Forbidden: *** may not"
    found = [path for path in Path(stage.path).rglob("*") if path.is_file()]
    assert [p for p in found if p.name != "work.json" and SECRET in p.read_text("latin-1")] == []


async def test_answer_is_kept_as_it_came_and_the_reply_beside_it(stage, serve):
    record = await run(stage, serve(saying({"reply": "hi", "more": [1]})))

    place = record.occurrence.place
    assert content(stage.state.at("output", place, "stdout.log")) == b'{"reply": "hi", "more": [1]}'
    assert content(stage.state.at("output", place, "reply.md")).strip() == b"hi"


async def test_conversation_that_the_server_lost_begins_anew_in_the_same_turn(stage, serve):
    yaml = MINE + (
        '    body: {thread: "{native_session}", text: "{prompt}"}\n'
        "    read: {reply: reply, native_session: thread}\n"
        "    lost: {status: [404]}\n"
    )
    known = {"t-1"}

    def answer(request, connection):
        thread = request.json.get("thread")
        if thread is None:
            thread = "t-2" if len(server.requests) > 1 else "t-1"
            known.add(thread)
        if thread not in known:
            return saying({"error": "no such thread"}, "404 Not Found")(request, connection)
        return saying({"reply": "x", "thread": thread})(request, connection)

    server = serve(answer)
    await run(stage, server, yaml)
    known.clear()
    record = await run(stage, server, yaml)

    assert said(record) == "completed"
    assert [request.json.get("thread") for request in server.requests] == [None, "t-1", None]
    ledger = stage.sessions.read("routine:digest")
    assert (ledger.epoch, ledger.native_session) == (2, "t-2")


async def test_conversation_of_the_server_goes_on_by_its_own_id(stage, serve):
    yaml = MINE + (
        '    body: {thread: "{native_session}", text: "{prompt}"}\n'
        "    read: {reply: reply, native_session: thread}\n"
    )

    def answer(request, connection):
        thread = request.json.get("thread", "t-1")
        return saying({"reply": "x", "thread": thread})(request, connection)

    server = serve(answer)
    await run(stage, server, yaml)
    record = await run(stage, server, yaml)

    assert [request.json.get("thread") for request in server.requests] == [None, "t-1"]
    assert record.end["native_session"] == "t-1"
    assert stage.sessions.read("routine:digest").epoch == 1
