"""Durable runs behind HTTP, in turn processes that are stopped and killed."""

import asyncio
import os
import signal
import threading

import pytest

from routines.config.workspace_file import parse_settings
from routines.domain import schedule as schedules
from routines.engine.clock import SystemClock
from tests.agents.servers import Server, saying
from tests.engine.stage import MINUTE, Stage, content, eventually, routine


class Service:
    """Runs that live in a server: the same key is the same run, whoever asks."""

    def __init__(self):
        self.runs = {}
        self.guard = threading.Lock()
        self.deaf = False
        self.server = Server(self)

    def __call__(self, request, connection):
        with self.guard:
            answer = self.answer(request)
        # It was done, and nobody hears of it.
        return None if answer is None else answer(request, connection)

    def answer(self, request):
        _, name, *rest = request.path.split("/")
        assert name == "runs"
        key = request.headers.get("idempotency-key")
        if not rest:
            run = self.runs.setdefault(
                key, {"id": f"run-{len(self.runs) + 1}", "status": "working", "asked": request.json}
            )
            return None if self.deaf else saying({"run": run["id"]})
        run = next((one for one in self.runs.values() if one["id"] == rest[0]), None)
        if run is None:
            return saying({}, "404 Not Found")
        if rest[1:] == ["stop"]:
            assert key == f"cancel:{run['id']}"
            run["status"] = "stopped"
            return saying({}, "202 Accepted")
        return saying({"status": run["status"], "answer": run.get("answer"), "why": "was stopped"})

    @property
    def run(self):
        [run] = self.runs.values()
        return run

    def end(self, answer="all is well"):
        with self.guard:
            self.run.update(status="succeeded", answer=answer)

    def asked(self, method, ending=""):
        return [r for r in self.server.requests if r.method == method and r.path.endswith(ending)]


@pytest.fixture
def service():
    made = Service()
    yield made
    made.server.close()


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    made.clock = SystemClock()
    return made


def agents(service):
    base = f"http://127.0.0.1:{service.server.port}/runs"
    settings, problems = parse_settings(
        f"""
agents:
  far:
    http: {base}
    body: {{prompt: "{{prompt}}"}}
    read: {{reply: answer}}
    durable:
      inspect: "{base}/{{run}}"
      cancel: "{base}/{{run}}/stop"
      run: run
      state: status
      words: {{completed: succeeded, cancelled: stopped}}
      detail: why
""".encode(),
        root="/ws",
    )
    assert problems == ()
    return {"agents": settings.agents, "agent": None}


def digest(**changes):
    never = schedules.at("2099-01-01T00:00:00Z", "UTC")
    return routine(**{"agent": "far", "schedule": never, "timeout": 10 * MINUTE} | changes)


def said(record):
    return f"{record.outcome} {record.reason or ''}".strip()


def begun(stage):
    return [r for r in stage.records("digest") if r.run_id is not None]


async def test_run_is_followed_to_its_end_and_its_reply_is_the_turns(stage, service):
    async with stage.running(digest(), **agents(service)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually(lambda: begun(stage))
        service.end()
        record = await task

    assert said(record) == "completed"
    assert content(stage.state.at("output", record.occurrence.place, "reply.md")).strip() == (
        b"all is well"
    )
    assert record.run_id == "run-1"
    assert service.run["asked"] == {"prompt": "write the digest"}


async def test_stopped_scheduler_leaves_the_run_alone_and_the_next_one_takes_it_up(stage, service):
    async with stage.running(digest(), **agents(service)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually(lambda: begun(stage))
    await asyncio.gather(task, return_exceptions=True)
    [record] = stage.records("digest")
    assert record.end is None

    service.end()
    async with stage.running(digest(), **agents(service)):
        [record] = await eventually(
            lambda: [r for r in stage.records("digest") if r.end], seconds=90
        )

    assert said(record) == "completed"
    assert len(service.asked("POST", "/runs")) == 1
    assert service.asked("POST", "/stop") == []


async def test_killed_turn_process_costs_no_run_and_starts_no_second_one(stage, service):
    async with stage.running(digest(), **agents(service)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        [record] = await eventually(lambda: begun(stage))
        os.kill(record.started["owner"]["pid"], signal.SIGKILL)
        await asyncio.wait([task], timeout=30)
        service.end()
        [record] = await eventually(
            lambda: [r for r in stage.records("digest") if r.end], seconds=120
        )
        task.cancel()

    assert said(record) == "completed"
    assert list(service.runs) == [stage.state.key(record.ref)]


async def test_start_that_was_done_and_not_heard_is_repeated_under_the_same_key(stage, service):
    service.deaf = True
    async with stage.running(digest(), **agents(service)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        await eventually(lambda: service.runs)
        service.deaf = False
        await eventually(lambda: begun(stage), seconds=90)
        service.end()
        record = await task

    assert said(record) == "completed"
    starts = service.asked("POST", "/runs")
    assert len(starts) > 1
    assert {request.headers["idempotency-key"] for request in starts} == {
        stage.state.key(record.ref)
    }
    assert len(service.runs) == 1


async def test_cancelled_run_is_told_to_end_and_settled_when_it_has(stage, service):
    async with stage.running(digest(), **agents(service)) as engine:
        task = asyncio.ensure_future(engine.run("digest"))
        [record] = await eventually(lambda: begun(stage))
        stage.cancel(record.ref)
        record = await task

    assert said(record) == "cancelled person"
    assert len(service.asked("POST", "/stop")) == 1
