"""Killed anywhere, a durable turn comes to one run and one outcome (L9, L10, D3)."""

import asyncio
import contextlib
import json
import os
import signal
import textwrap
from datetime import timedelta

import pytest

from routines.domain.agent import AgentKind, AgentSpec
from routines.engine.clock import SystemClock
from routines.engine.off_loop import quiet
from routines.store import files, locks
from tests.engine.machine import Disk
from tests.engine.service import DurableRuns, Service
from tests.engine.stage import HOUR, MINUTE, SECOND, Stage, eventually, once, routine

REF = "digest@2026-06-01T08:05:00Z"


def close_what_is_open_of(folder):
    """Close the descriptors of a process that died, as the kernel does."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(folder):
                locks._held.discard(int(name))
                os.close(int(name))


async def lead_a_life(stage, service, disk, *, starts=()):
    """Begin a turn, see its run complete, and die on the way when the disk says so."""
    engine = stage.engine(
        routine(schedule=once("08:05"), timeout=5 * HOUR), agent=DurableRuns(service)
    )
    service.starts.extend(starts)
    try:
        await engine.start()
    except BaseException:
        return None
    for _ in range(3):
        await stage.clock.advance(40 * SECOND, step=20 * SECOND)
        if disk.is_dead:
            return engine
    service.end()
    await stage.clock.advance(MINUTE, step=15 * SECOND)
    return engine


@pytest.mark.parametrize(
    "starts",
    [(), ("unheard",), (RuntimeError("reset by peer"),)],
    ids=["heard", "unheard", "error"],
)
def test_killed_after_any_system_call_it_comes_to_one_run_and_one_outcome(tmp_path, starts):
    disk, calls = Disk(), files.calls
    files.calls = disk
    lived = 0
    try:
        for number in range(400):
            stage = Stage(tmp_path / str(number))
            os.mkdir(stage.root)
            stage.state  # noqa: B018 - the folder is made before anything can die
            service = Service(stage.clock)

            async def play(stage=stage, service=service, number=number):
                # A minute before its slot, so that all that follows is the turn's.
                first = stage.engine(
                    routine(schedule=once("08:05"), timeout=5 * HOUR), agent=DurableRuns(service)
                )
                await first.start()
                await stage.clock.advance(5 * MINUTE - SECOND)
                await first.stop(grace=timedelta(0))
                disk.kill_after(number)
                engine = await lead_a_life(stage, service, disk, starts=starts)
                died = disk.is_dead
                if engine is not None:
                    await stage.crash(engine)
                await quiet()
                close_what_is_open_of(stage.root)
                disk.heal()
                service.starts.clear()
                second = stage.engine(
                    routine(schedule=once("08:05"), timeout=5 * HOUR), agent=DurableRuns(service)
                )
                await second.start()
                await stage.clock.advance(2 * MINUTE)
                service.end()
                await stage.clock.advance(2 * MINUTE)
                await second.stop()
                return died

            died = asyncio.run(play())
            assert [key.partition("/")[2] for key in service.runs] == [REF], number
            record = stage.record(REF)
            ends = [line for line in record.events if line["event"] == "outcome"]
            assert [end["outcome"] for end in ends] == ["completed"], (number, record.events)
            # A draft that was never linked goes when it is a minute old.
            for entry in stage.claims.open_entries():
                open_path = stage.state.at("open", entry.name)
                assert not os.path.samefile(open_path, stage.state.at(entry.claim_path)), number
            if not died:
                lived = number
                break
    finally:
        disk.heal()
        files.calls = calls
    # It was killed at each of so many calls, and then lived.
    assert lived > 20


# Turn processes ------------------------------------------------------------------------------------

AGENT = """
    import json, os, pathlib, time
    from routines import Reply, RunState

    HERE = pathlib.Path(__file__).parent / "service"

    class Runs:
        def start(self, turn):
            # Everything that is asked is noted, so that a test sees what was asked twice.
            with (HERE / "asked").open("a") as asked:
                asked.write(turn.key + "\\n")
            path = HERE / turn.key.replace("/", "_")
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                pass
            while (HERE / "deaf").exists():
                time.sleep(0.02)
            return path.name

        def inspect(self, run_id):
            if not (HERE / run_id).exists():
                return RunState("missing")
            done = (HERE / "done").exists()
            return RunState("completed" if done else "active", Reply(text="done: " + run_id[-6:]))

        def cancel(self, run_id):
            (HERE / "done").touch()

    runs = Runs()

    def plain(turn):
        return "a function"
"""


@pytest.fixture
def service(tmp_path):
    folder = tmp_path / "service"
    folder.mkdir()
    (tmp_path / "durable_agent_here.py").write_text(textwrap.dedent(AGENT))
    return folder


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    made.clock = SystemClock()
    return made


def engine_of(stage, what="Runs"):
    spec = AgentSpec(name="runs", kind=AgentKind.PYTHON, python=f"durable_agent_here:{what}")
    digest = routine(schedule=None, agent="runs", timeout=HOUR)
    return stage.engine(digest, agents={"runs": spec}, agent=None, root=stage.root)


def lines(stage):
    with contextlib.suppress(IndexError), open(stage.state.at(stage.records()[0].path)) as file:
        return [json.loads(line) for line in file.read().splitlines()]
    return []


def last(stage, event, count=1):
    found = [line for line in lines(stage) if line["event"] == event]
    return found[-1] if len(found) >= count else None


@pytest.mark.parametrize("what", ["Runs", "runs"])
async def test_class_and_object_of_a_module_are_durable_in_their_turns_process(
    stage, service, what
):
    (service / "done").touch()
    async with engine_of(stage, what) as engine:
        record = await engine.run("digest")

    assert record.outcome == "completed"
    assert record.end["reply"].startswith("done: ")
    assert record.started["owner"]["pid"] != os.getpid()
    assert [line["event"] for line in lines(stage)] == ["claim", "started", "run", "outcome"]


async def test_function_of_a_module_is_not(stage, service):
    async with engine_of(stage, "plain") as engine:
        record = await engine.run("digest")

    assert (record.outcome, record.end["reply"]) == ("completed", "a function")
    assert "durable" not in record.started


async def test_turn_process_killed_between_started_and_run_has_its_start_repeated(stage, service):
    (service / "deaf").touch()
    engine = engine_of(stage)
    await engine.start()
    asking = asyncio.create_task(engine.run("digest"))
    started = await eventually(lambda: (service / "asked").exists() and last(stage, "started"))
    os.kill(started["owner"]["pid"], signal.SIGKILL)
    # At once: an engine that lives on would see to the claim itself, within a second.
    await engine.stop()
    record = await asking
    assert (record.outcome, record.last) == (None, "started")

    (service / "deaf").unlink()
    (service / "done").touch()
    async with engine_of(stage):
        await eventually(lambda: last(stage, "outcome"), seconds=60)
    asked = (service / "asked").read_text().split()
    # Once more if the first engine looked at it before it stopped: always under the same key.
    assert len(asked) >= 2
    assert len(set(asked)) == 1
    runs = {path.name for path in service.iterdir()} - {"asked", "done"}
    assert runs == {last(stage, "run")["run_id"]}
    assert last(stage, "outcome")["outcome"] == "completed"


async def test_stop_ends_the_process_that_watches_and_not_the_run(stage, service):
    engine = engine_of(stage)
    await engine.start()
    asking = asyncio.create_task(engine.run("digest"))
    await eventually(lambda: last(stage, "run"))
    await engine.stop(grace=HOUR)
    assert (await asking).outcome is None
    assert [line["event"] for line in lines(stage)] == ["claim", "started", "run"]

    async with engine_of(stage) as engine:
        await eventually(lambda: last(stage, "run", 2))
        (service / "done").touch()
        await eventually(lambda: last(stage, "outcome"), seconds=60)
    assert last(stage, "outcome")["outcome"] == "completed"
    assert len((service / "asked").read_text().split()) == 1


async def test_run_is_left_alone_where_its_module_is_gone_until_it_is_back(
    stage, service, tmp_path
):
    engine = engine_of(stage)
    await engine.start()
    asking = asyncio.create_task(engine.run("digest"))
    await eventually(lambda: last(stage, "run"))
    await engine.stop()
    await asking
    module = tmp_path / "durable_agent_here.py"
    module.rename(tmp_path / "away.py")
    engine = engine_of(stage)
    await engine.start()
    await eventually(lambda: last(stage, "run", 2))
    await eventually(lambda: not engine.in_flight)
    await engine.stop()
    assert last(stage, "outcome") is None

    (tmp_path / "away.py").rename(module)
    (service / "done").touch()
    async with engine_of(stage):
        await eventually(lambda: last(stage, "outcome"), seconds=60)
    assert last(stage, "outcome")["outcome"] == "completed"
