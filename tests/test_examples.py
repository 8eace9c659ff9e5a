"""Each example does what it says, without a network, in any zone, under any user."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.standin.server import StandIn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"


@pytest.fixture
def environment(tmp_path):
    """The environment of a person who has `routines` on the PATH, far away from our zone."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "routines"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m routines "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROUTINES_", "PYTEST_"))}
    return kept | {
        "HOME": str(tmp_path),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(EXAMPLES.parent),
        "ROUTINES": str(command),
        "TMPDIR": str(tmp_path),
        "TZ": "Pacific/Apia",
    }


@pytest.fixture
def run(environment, tmp_path):
    def run(*words, cwd=tmp_path, code=0):
        ended = subprocess.run(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    return run


def test_quickstart_fires_two_slots_once_each_in_one_conversation(run, tmp_path):
    before = sorted(os.listdir(tmp_path))

    said = run(str(EXAMPLES / "quickstart" / "run"))

    slots = re.findall(rf"^hello@({STAMP}) completed$", said, re.MULTILINE)
    assert len(set(slots)) == 2
    assert f"hello@{slots[0]} was delivered before: completed" in said
    assert '"turn 2 of routine:hello: Say hello' in said
    assert "2 of 2: 2 completed. None without an outcome." in said
    assert sorted(os.listdir(tmp_path)) == before


def test_shell_agent_remembers_its_conversation_and_is_held_by_its_gate(run, tmp_path):
    folder = tmp_path / "shell_agent"
    shutil.copytree(
        EXAMPLES / "shell_agent",
        folder,
        ignore=shutil.ignore_patterns(".routines", "conversations"),
    )

    assert "all right" in run("routines", "check", cwd=folder)
    for times in (0, 1):
        said = run("routines", "run", "morning", cwd=folder)
        assert (
            said.strip()
            == f"I have been asked {times} times before. Now: What is planned for today?"
        )
    talk = folder / "conversations" / "routine_morning.txt"
    assert talk.read_text().count("you: What is planned for today?") == 2
    # A slot of a week ago is later than its start_within, whenever this runs.
    said = run("routines", "fire", "morning", "--slot", "2026-06-01T07:00:00Z", cwd=folder)
    assert "start_within" in said or "missed" in said


def test_shell_agent_says_in_its_readme_what_it_answers():
    text = (EXAMPLES / "shell_agent" / "README.md").read_text()

    for times in (0, 1):
        assert f"# I have been asked {times} times before. Now: What is planned for today?" in text


@pytest.fixture
def http_agent(environment, tmp_path):
    """The example's folder with its server at work, on a port of the test's own."""
    folder = tmp_path / "http_agent"
    shutil.copytree(
        EXAMPLES / "http_agent", folder, ignore=shutil.ignore_patterns(".routines", "__pycache__")
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / "routines.yaml"
    settings.write_text(settings.read_text().replace("8765", str(port)))
    server = subprocess.Popen(
        [sys.executable, "server.py", "--port", str(port)], cwd=folder, env=environment
    )
    try:
        limit = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert server.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.05)
        yield folder, f"http://127.0.0.1:{port}/turn"
    finally:
        server.kill()
        server.wait()


def test_http_agent_remembers_its_conversation_and_takes_one_turn_of_it_once(run, http_agent):
    folder, url = http_agent

    assert "all right" in run("routines", "check", cwd=folder)
    for times in (0, 1):
        said = run("routines", "run", "morning", cwd=folder).strip()
        assert said == f"I have been asked {times} times before. Now: What is planned for today?"
        assert said in (folder / "README.md").read_text()
    post = {"json": {"session": "s", "prompt": "x"}, "headers": {"Idempotency-Key": "k"}}
    first, again = (httpx.post(url, trust_env=False, **post).json() for _ in range(2))
    assert first == again


@pytest.fixture
def durable_agent(environment, tmp_path):
    """The example's folder, what starts processes in it, and what ends those that are left."""
    folder = tmp_path / "durable_agent"
    shutil.copytree(
        EXAMPLES / "durable_agent",
        folder,
        ignore=shutil.ignore_patterns(".routines", "runs", "__pycache__"),
    )
    processes = []

    def begin(*words):
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(
                words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        processes.append(process)
        return process

    yield folder, begin
    for process in processes:
        process.kill()
        process.wait()


def until(condition, seconds=90.0):
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, "it never came to be"
        time.sleep(0.1)
    return value


def lines_of(folder):
    """The lines of the one claim that there is."""
    (path,) = folder.glob(".routines/claims/*/*/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def owner_of(folder, count):
    """The pid of who watches the run, once that was written down *count* times."""
    found = [line for line in lines_of(folder) if line["event"] == "run"]
    return found[-1]["owner"]["pid"] if len(found) == count else None


def is_gone(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_durable_run_outlives_stop_and_kill_and_is_settled_with_its_own_answer(run, durable_agent):
    folder, begin = durable_agent
    assert "all right" in run("routines", "check", cwd=folder)
    supervisor = begin(sys.executable, "supervisor.py", "--seconds", "36000")

    def start():
        return begin("routines", "start", "--grace", "60s")

    scheduler = start()
    until(lambda: "scheduler alive" in run("routines", "list", cwd=folder))
    run("routines", "run", "nightly", "--detach", cwd=folder)
    watcher = until(
        lambda: list(folder.glob(".routines/claims/*/*/*.jsonl")) and owner_of(folder, 1)
    )

    # A stop: at once, whatever the grace, and the run goes on.
    scheduler.send_signal(signal.SIGTERM)
    assert scheduler.wait(timeout=50) == 0
    until(lambda: is_gone(watcher))
    history = json.loads(run("routines", "history", "--json", cwd=folder))
    assert [(one["state"], one["outcome"]) for one in history] == [("running", None)]

    # Killed with -9: who watches the run goes on with it. Killed as well: the next start does.
    scheduler = start()
    watcher = until(lambda: owner_of(folder, 2))
    for pid in (scheduler.pid, watcher):
        os.kill(pid, signal.SIGKILL)
    scheduler.wait()
    until(lambda: is_gone(watcher))
    start()
    until(lambda: owner_of(folder, 3))

    supervisor.kill()
    supervisor.wait()
    begin(sys.executable, "supervisor.py", "--seconds", "0")
    until(lambda: lines_of(folder)[-1]["event"] == "outcome")
    end = lines_of(folder)[-1]
    assert (end["outcome"], end["reply"]) == ("completed", "REBUILD THE INDEX.")
    (path,) = (folder / "runs").iterdir()
    assert {line["run_id"] for line in lines_of(folder) if line["event"] == "run"} == {path.name}
    assert (folder / "log").read_text().count("begun for routine:nightly") == 1


def test_durable_run_is_ended_by_its_supervisor_when_it_is_cancelled(run, durable_agent):
    folder, begin = durable_agent
    begin(sys.executable, "supervisor.py", "--seconds", "36000")
    asking = begin("routines", "run", "nightly")
    until(lambda: list(folder.glob(".routines/claims/*/*/*.jsonl")) and owner_of(folder, 1))
    run("routines", "cancel", "nightly", cwd=folder)

    assert asking.wait(timeout=90) == 1
    end = lines_of(folder)[-1]
    assert (end["outcome"], end["reason"]) == ("cancelled", "person")
    assert "the run is cancelled: on request" in end["detail"]


def test_http_agent_has_runs_that_outlive_whoever_asked_for_them(run, http_agent):
    folder, _ = http_agent

    said = run("routines", "run", "report", cwd=folder).strip()
    assert said == "Done: Write the long report."
    assert said in (folder / "README.md").read_text()


def test_embedded_agent_runs_a_turn_and_a_chat_in_one_conversation(run):
    said = run(sys.executable, str(EXAMPLES / "embedded" / "agent.py"), "--once")

    assert said.splitlines() == [
        "manual completed 1 of routine:digest: What was merged?",
        "chat 2 of routine:digest: And what waits for me?",
        "['manual completed']",
    ]


def test_embedded_agent_runs_until_it_is_interrupted(environment, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLES / "embedded" / "agent.py")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = next(line for line in process.stdout if line.startswith("chat"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert line == "chat 2 of routine:digest: And what waits for me?\n"
    assert process.returncode == 130


def test_self_waking_agent_is_called_again_until_it_is_done(run):
    said = run(sys.executable, str(EXAMPLES / "self_waking" / "agent.py")).splitlines()

    assert [line for line in said if line.startswith("woken")] == [
        "woken: Look at the deploy, for the 1. time.",
        "woken: Look at the deploy, for the 2. time.",
    ]
    assert len([line for line in said if line.startswith("Set. w-")]) == 2
    assert said[-3:] == [
        "manual completed Not through yet; I look again soon.",
        "wake-up completed Not through yet; I look again soon.",
        "wake-up completed The deploy is through.",
    ]


@pytest.fixture
def model(tmp_path, environment):
    """A stand-in for the servers of both vendors, that the programs are pointed at."""
    with StandIn(str(tmp_path / "requests.jsonl")) as server:
        environment |= {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            # Its traces would go to a server of its own.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        yield server


@pytest.mark.parametrize(
    ("agent", "package", "arguments"),
    [
        ("anthropic", "anthropic", {"prompt": "Look at it again.", "in": "10m"}),
        ("openai", "agents", {"prompt": "Look at it again.", "in_": "10m"}),
        ("pydantic", "pydantic_ai", {"prompt": "Look at it again.", "in_": "10m"}),
    ],
)
def test_tool_calling_agents_set_an_alarm_in_their_own_conversation(
    run, model, environment, tmp_path, agent, package, arguments
):
    pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path / "tool_calling"
    shutil.copytree(EXAMPLES / "tool_calling", folder, ignore=shutil.ignore_patterns(".routines"))
    python = tmp_path / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    said = run("routines", "run", agent, "--append", call("wake", arguments), cwd=folder)
    refused = run("routines", "run", agent, "--append", call("wake", {"prompt": "x"}), cwd=folder)
    pending = json.loads(run("routines", "wakeups", "--json", cwd=folder))

    assert "The tool said: Set, but no scheduler is alive" in said
    assert "The tool said: Refused: no time is given" in refused
    assert [(one["session"], one["prompt"]) for one in pending] == [
        (f"routine:{agent}", "Look at it again.")
    ]
    # The second turn carried the first.
    assert len([text for text in model.requests()[-1]["texts"] if "deploy of 4711" in text]) == 2


def call(tool, arguments):
    return f"standin: call {tool} {json.dumps(arguments)}"


def test_every_example_is_named_on_its_page():
    named = re.findall(r"^\| \[(\w+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)

    assert sorted(named) == sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
