"""Turns with a process of their own, by real programs (PROMISES T1 to T4, L14, L17, 8)."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta

import pytest

from routines.agents.process_table import leftovers
from routines.domain.agent import AgentKind, AgentSpec, OutputFormat, Signs
from routines.engine.clock import SystemClock
from routines.errors import SessionBusyError
from routines.operations.running import exit_code_of
from tests.engine.stage import MINUTE, Stage, content, eventually, routine


class EachSecond:
    """A schedule that no test has to wait for."""

    zone_key = "UTC"

    def __init__(self, seconds=1):
        self.seconds = seconds

    def _at(self, count):
        return datetime.fromtimestamp(count * self.seconds, UTC)

    def next_after(self, instant):
        return self._at(int(instant.timestamp()) // self.seconds + 1)

    def newest_at_or_before(self, instant):
        return self._at(int(instant.timestamp()) // self.seconds)

    def names(self, instant):
        return instant.timestamp() % self.seconds == 0

    def spec(self):
        return {"each": self.seconds}

    def text(self):
        return f"each {self.seconds}s"


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    made.clock = SystemClock()
    return made


@pytest.fixture
def program(tmp_path):
    """Write a Python program and return the words that run it."""

    def write(body, name="agent.py"):
        path = tmp_path / name
        path.write_text("import os, sys, time\n" + textwrap.dedent(body))
        return (sys.executable, "-Ss", str(path))

    return write


def agent(words, **more):
    spec = AgentSpec(name="prog", kind=AgentKind.COMMAND, command=tuple(words), **more)
    return {"agents": {"prog": spec}, "agent": None}


def digest(**changes):
    known = {"schedule": EachSecond(86400 * 365), "agent": "prog", "timeout": 2 * MINUTE}
    return routine(**known | changes)


async def run(stage, words, prompt="write the digest", spec=None, **changes):
    changed = digest(prompt=prompt, **changes)
    async with stage.running(changed, **agent(words, **(spec or {}))) as engine:
        return await engine.run("digest")


def turn_pid(record):
    return record.started["owner"]["pid"]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# How a program ends --------------------------------------------------------------------------------


async def test_program_gets_the_prompt_and_its_reply_is_kept(stage, program):
    words = program("sys.stdout.write(sys.stdin.read().upper())")
    record = await run(stage, words, prompt="naïve \U0001f98a\n" * 3)

    assert (record.outcome, record.end["exit_code"]) == ("completed", 0)
    reply = content(stage.state.at("output", record.occurrence.place, "reply.md"))
    assert reply.decode().strip() == ("NAÏVE \U0001f98a\n" * 3).strip()


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("sys.exit(1)", "failed exit"),
        ("os.kill(os.getpid(), 9)", "failed signal"),
        ("sys.exit(75)", "failed not-started"),
    ],
)
async def test_end_of_a_program_is_the_end_of_its_turn(stage, program, body, end):
    record = await run(stage, program(body))

    assert f"{record.outcome} {record.reason}" == end


async def test_missing_program_is_not_found_at_once(stage):
    record = await run(stage, ["no-such-program-anywhere"])

    assert f"{record.outcome} {record.reason}" == "failed not-found"
    assert "no-such-program-anywhere" in record.end["detail"]


async def test_turn_knows_who_it_is_from_its_environment(stage, program, monkeypatch):
    monkeypatch.setenv("ROUTINES_SESSION", "of an outer turn")
    monkeypatch.setenv("CLAUDECODE", "1")
    words = program(
        "for key in sorted(os.environ):\n"
        "    if key.startswith(('ROUTINES_', 'CLAUDE', 'MINE')): print(key, os.environ[key])\n"
        "print(os.getcwd())"
    )
    record = await run(stage, words, env=(("MINE", "1"),))
    reply = content(stage.state.at("output", record.occurrence.place, "reply.md")).decode()
    said = dict(line.split(" ", 1) for line in reply.splitlines()[:-1])

    assert said == {
        "MINE": "1",
        "ROUTINES_LATE_S": "0",
        "ROUTINES_ROOT": stage.root,
        "ROUTINES_ROUTINE": "digest",
        "ROUTINES_SESSION": "routine:digest",
        "ROUTINES_STATE": stage.path,
        "ROUTINES_TRIGGER": "manual",
        "ROUTINES_TURN": stage.state.key(record.ref),
    }
    assert reply.splitlines()[-1] == stage.root


async def test_program_past_its_limit_is_ended_with_its_whole_tree(stage, program):
    words = program(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-Ss", "-c", "import time; time.sleep(600)"],
                                 start_new_session=True)
        open("child.pid", "w").write(str(child.pid))
        time.sleep(600)
        """
    )
    record = await run(stage, words, timeout=timedelta(seconds=1.5))

    assert f"{record.outcome} {record.reason}" == "timed-out timeout"
    assert leftovers(stage.path, stage.state.key(record.ref)) == []
    assert not alive(int(content(os.path.join(stage.root, "child.pid"))))


async def test_turn_process_imports_neither_asyncio_nor_the_command_line(stage, program):
    words = program(
        "maps = open(f'/proc/{os.getppid()}/maps').read() if os.path.exists('/proc') else ''\n"
        "print('_asyncio' in maps)"
    )
    record = await run(stage, words)

    assert record.end["reply"] == "False"


def test_turn_process_loads_nothing_that_jobs_alone_need():
    code = "import sys, routines.engine.turn_process; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    loaded = found.stdout.split()
    assert "routines.store.job_settling" in loaded
    assert [name for name in loaded if name.startswith("routines.domain.job")] == []


# Ended from outside --------------------------------------------------------------------------------


SITTING = "open('pid', 'w').write(str(os.getpid())); time.sleep(600)"


async def sitting(stage, engine):
    """Start a run by hand whose program sits, and return its record and its program's pid."""
    running = await engine.begin_run("digest")
    path = os.path.join(stage.root, "pid")
    pid = int(await eventually(lambda: content(path)))
    os.unlink(path)
    return running, stage.record(running.ref), pid


async def test_cancel_ends_the_program_and_its_turn_is_cancelled(stage, program):
    async with stage.running(digest(), **agent(program(SITTING))) as engine:
        running, record, pid = await sitting(stage, engine)
        stage.cancel(record.ref)
        ended = await running.done

    assert f"{ended.outcome} {ended.reason}" == "cancelled person"
    assert not alive(pid)


async def test_stop_ends_the_program_after_the_grace_and_its_turn_is_interrupted(stage, program):
    async with stage.running(digest(), **agent(program(SITTING))) as engine:
        running, record, pid = await sitting(stage, engine)
        await engine.stop(grace=timedelta(seconds=0.2))
        ended = stage.record(record.ref)

    assert f"{ended.outcome} {ended.reason}" == "interrupted stopped"
    assert running.done.done()
    assert not alive(pid)


async def test_killed_turn_process_is_settled_and_its_program_ended_before_the_session_is_free(
    stage, program
):
    async with stage.running(digest(), **agent(program(SITTING))) as engine:
        running, record, pid = await sitting(stage, engine)
        os.kill(turn_pid(record), signal.SIGKILL)
        ended = await running.done
        assert f"{ended.outcome} {ended.reason}" == "interrupted owner-died"
        assert not alive(pid)
        assert stage.sessions.is_busy("routine:digest") is None
        # And the next turn of the session runs.
        running, record, pid = await sitting(stage, engine)
        stage.cancel(record.ref)
        await running.done


async def test_after_a_killed_turn_process_the_next_slot_runs(stage, program):
    words = program(
        """
        if os.path.exists("once"):
            print("fine")
        else:
            open("once", "w").close()
            os.kill(os.getppid(), 9)
            time.sleep(600)
        """
    )
    async with stage.running(digest(schedule=EachSecond()), **agent(words)):
        await eventually(lambda: [r for r in stage.records("digest") if r.outcome == "completed"])

    first, *others = [r for r in stage.records("digest") if r.started]
    assert f"{first.outcome} {first.reason}" == "interrupted owner-died"
    assert {f"{r.outcome}" for r in others} <= {"completed", "interrupted"}


def start(*words):
    return subprocess.Popen(words)


async def test_turn_process_settles_by_itself_when_its_scheduler_is_killed(
    stage, program, tmp_path
):
    words = program("open('begun', 'w').close(); time.sleep(1.5); print('done all the same')")
    script = tmp_path / "scheduler.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio, sys
            sys.path.insert(0, {os.getcwd()!r})
            from routines.domain.agent import AgentKind, AgentSpec
            from routines.engine.engine import Engine
            from tests.engine.test_turn_processes import digest
            spec = AgentSpec(name="prog", kind=AgentKind.COMMAND, command={words!r})
            async def main():
                async with Engine({stage.path!r}, routines=[digest()],
                                  agents={{"prog": spec}}) as engine:
                    await engine.run("digest")
            asyncio.run(main())
            """
        )
    )
    scheduler = start(sys.executable, str(script))
    try:
        await eventually(lambda: os.path.exists(os.path.join(stage.root, "begun")))
    finally:
        scheduler.kill()
        scheduler.wait()
    assert stage.records()[0].end is None
    await eventually(lambda: stage.records()[0].end)

    (record,) = stage.records()
    assert (record.outcome, record.end["reply"]) == ("completed", "done all the same")
    await eventually(lambda: stage.sessions.is_busy("routine:digest") is None)


async def test_scheduler_that_starts_beside_a_live_turn_leaves_it_alone(stage, program):
    words = program("open('begun', 'w').close(); sys.stdin.read(); time.sleep(1); print('whole')")
    one, two = stage.engine(digest(), **agent(words)), stage.engine(digest(), **agent(words))
    await one.start()
    running = await one.begin_run("digest")
    await eventually(lambda: os.path.exists(os.path.join(stage.root, "begun")))
    await one.stop(leave_turns=True)
    await two.start()
    await eventually(lambda: stage.records()[0].end)
    await two.stop()

    assert stage.records()[0].outcome == "completed"
    await running.done


async def test_turns_of_one_session_never_overlap(stage, program):
    words = program(
        """
        try:
            os.mkdir("running")
        except FileExistsError:
            open("overlapped", "w").close()
        time.sleep(0.3)
        os.rmdir("running")
        print("ok")
        """
    )
    slots = digest(schedule=EachSecond())
    async with stage.running(slots, **agent(words)) as engine:
        for _ in range(3):
            with contextlib.suppress(SessionBusyError):
                await engine.run("digest")
            await asyncio.sleep(0.1)
        await eventually(lambda: len([r for r in stage.records() if r.end]) >= 4)

    assert content(os.path.join(stage.root, "overlapped")) is None


# Conversations ---------------------------------------------------------------------------------------


def conversing(program, *, fails_first=False):
    """An agent that keeps conversations of its own, by an id that we choose."""
    body = "print('|'.join(sys.argv[1:]))\n"
    if fails_first:
        body = (
            "if 'first' in sys.argv and not os.path.exists('failed'):\n    open('failed', 'w').close(); sys.exit(3)\n"
            + body
        )
    words = program(body)
    return {
        "command": (*words, "resume", "{native_session}"),
        "first": (*words, "first", "{session_uuid}"),
    }


async def turns_of(stage, spec, count):
    spec = AgentSpec(name="prog", kind=AgentKind.COMMAND, **spec)
    async with stage.running(digest(), agents={"prog": spec}, agent=None) as engine:
        return [await engine.run("digest") for _ in range(count)]


async def test_first_turn_begins_the_conversation_and_the_later_ones_resume_it(stage, program):
    records = await turns_of(stage, conversing(program), 3)
    uuid = stage.sessions.peek("routine:digest").uuid(stage.state.workspace)

    assert [record.end["reply"] for record in records] == [
        f"first|{uuid}",
        f"resume|{uuid}",
        f"resume|{uuid}",
    ]
    assert [record.started["epoch"] for record in records] == [1, 1, 1]


async def test_first_turn_that_failed_is_followed_by_a_new_epoch_with_a_reason(stage, program):
    first, second = await turns_of(stage, conversing(program, fails_first=True), 2)

    assert (first.outcome, second.outcome) == ("failed", "completed")
    assert second.started["epoch"] == 2
    assert second.end["reply"].startswith("first|")
    assert stage.sessions.peek("routine:digest").epoch_reason == (
        "the first turn of epoch 1 did not finish"
    )


async def test_first_turn_that_provably_never_started_begins_no_new_epoch(stage, program):
    words = program(
        "if not os.path.exists('busy'):\n    open('busy', 'w').close(); sys.exit(75)\nprint('ok')"
    )
    spec = {"command": (*words, "{native_session}"), "first": (*words, "{session_uuid}")}
    first, second = await turns_of(stage, spec, 2)

    assert (first.reason, second.outcome) == ("not-started", "completed")
    assert second.started["epoch"] == 1


@pytest.mark.parametrize("says", ["in use", "no such conversation"])
async def test_a_conversation_of_another_session_is_a_failure_though_it_is_busy_or_gone(
    stage, program, says
):
    words = program(
        "import json\nfound, failed = json.loads(sys.stdin.read())\n"
        "print(json.dumps({'reply': 'hm', 'id': found, 'failed': failed}))"
    )
    spec = {
        "output": OutputFormat.JSON,
        "read": {"reply": "reply", "native_session": "id", "failed": "failed"},
        "busy": Signs(error=("in use",)),
        "lost": Signs(error=("no such",)),
        "continuations": True,
    }
    await run(stage, words, prompt='["conv-7", null]', spec=spec)
    for prompt in ('["conv-8", null]', json.dumps(["conv-7", says])):
        other = digest(name="other", prompt=prompt)
        async with stage.running(other, **agent(words, **spec)) as engine:
            record = await engine.run("other")

    assert f"{record.outcome} {record.reason}" == "failed session-changed"
    assert record.end["detail"].endswith("is the conversation of routine:digest")
    # Not 75, which would say that it may be tried again; and not put into a new conversation.
    assert exit_code_of(record) == 1
    assert [line["event"] for line in record.events] == ["started", "outcome"]


async def test_conversation_that_the_program_names_is_resumed_by_that_name(stage, program):
    words = program(
        "import json\nprint(json.dumps({'reply': '|'.join(sys.argv[1:]), 'id': 'conv-7'}))"
    )
    spec = {
        "command": (*words, "resume", "{native_session}"),
        "first": (*words, "begin"),
        "output": OutputFormat.JSON,
        "read": {"reply": "reply", "native_session": "id"},
    }
    first, second = await turns_of(stage, spec, 2)

    assert (first.end["reply"], second.end["reply"]) == ("begin", "resume|conv-7")
