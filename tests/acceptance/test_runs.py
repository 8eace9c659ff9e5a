"""Runs by hand beside each other and inside a turn, and what turns leave behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from routines.agents.identity import host_id
from tests.acceptance.helpers import (
    end_all,
    end_of,
    environment,
    events_of,
    eventually,
    outcome_lines,
    stamp,
    stays,
)
from tests.acceptance.test_stopping import PATIENT, begun, go


def test_the_second_of_two_runs_at_once_names_the_first_within_a_second(workspace):
    workspace.agent(PATIENT).routine("digest")
    first = workspace.begin("run", "digest")
    begun(workspace)
    idle = min(_timed(workspace, "history")[0] for _ in range(3))
    refusals = [_timed(workspace, "run", "digest") for _ in range(3)]
    for _, second in refusals:
        assert second.returncode == 75
        assert "session routine:digest is busy: manual:" in second.stderr
    # A second for the answer itself; what a command costs at all here is not its fault.
    assert min(seconds for seconds, _ in refusals) - idle < 1.0
    code, said = workspace.json("run", "digest")
    assert (code, said["error"]["code"]) == (75, "session-busy")
    go(workspace)
    assert workspace.ended(first) == 0
    assert workspace.printed(first) == "done\n"
    # Refused runs were never claimed.
    assert end_of(workspace.record()) == ("completed", None)


def _timed(workspace, *words):
    began = time.monotonic()
    done = workspace.cli(*words)
    return time.monotonic() - began, done


def test_of_many_runs_let_loose_at_once_each_ran_alone_or_was_refused(workspace):
    workspace.agent(
        'mkdir $HERE/in || echo overlap >> $LOG; echo "$ROUTINES_TURN" >> $LOG; '
        "sleep 0.3; rmdir $HERE/in"
    ).routine("digest")
    runs = [workspace.begin("run", "digest") for _ in range(6)]
    codes = [workspace.ended(run) for run in runs]
    assert set(codes) <= {0, 75}
    assert 0 in codes
    ran = [r for r in workspace.records() if end_of(r) == ("completed", None)]
    assert len(ran) == codes.count(0) == len(workspace.log())
    assert "overlap" not in workspace.log()
    assert workspace.open() == []


def test_a_run_of_itself_from_inside_a_turn_is_refused_at_once(workspace):
    # BR-23: a turn that waits for its own session would wait for ever.
    command = f"{sys.executable} -m routines run digest"
    workspace.agent(
        f"export PYTHONPATH={environment()['PYTHONPATH']}; date +%s.%N >> $LOG; "
        f"{command} > $HERE/inner 2>&1; echo $? >> $LOG; date +%s.%N >> $LOG; echo done"
    ).routine("digest")
    done = workspace.cli("run", "digest")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    before, code, after = workspace.log()
    assert code == "75", (workspace.root / "inner").read_text()
    assert "is busy" in (workspace.root / "inner").read_text()
    assert float(after) - float(before) < 10
    assert end_of(workspace.record()) == ("completed", None)


def test_a_background_child_that_keeps_the_pipe_open_does_not_hold_the_turn_up(workspace):
    # BR-67
    workspace.agent("sleep 300 &\necho line; exit 0").routine("digest")
    seconds, done = _timed(workspace, "run", "digest")
    assert (done.returncode, done.stdout) == (0, "line\n")
    assert seconds < 30
    workspace.none_left()


def test_a_limit_ends_the_background_child_too_and_keeps_what_was_said(workspace):
    workspace.agent("sleep 300 &\necho line; sleep 300").routine("digest", timeout="2s")
    seconds, done = _timed(workspace, "run", "digest")
    assert done.returncode == 1
    assert seconds < 40
    assert end_of(workspace.record()) == ("timed-out", "timeout")
    output = os.path.join(workspace.state, "output", workspace.record().occurrence.place)
    with open(os.path.join(output, "stdout.log"), encoding="utf-8") as log:
        assert log.read() == "line\n"
    workspace.none_left()


def test_a_turn_that_wrote_and_then_ran_into_its_limit_is_not_repeated(workspace):
    # BR-80: prompts are not idempotent.
    workspace.agent("echo sent >> $LOG; sleep 300").due(timeout="2s")
    scheduler = workspace.start()
    assert end_of(workspace.settled()) == ("timed-out", "timeout")
    stays(lambda: workspace.log() == ["sent"], 3)
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    assert workspace.cli("tick").returncode == 0
    assert workspace.log() == ["sent"]
    assert events_of(workspace.record()) == ["started", "outcome"]


def test_a_turn_that_failed_before_it_did_anything_is_not_repeated_either(workspace):
    workspace.agent("echo tried >> $LOG; exit 1").due()
    scheduler = workspace.start()
    assert end_of(workspace.settled()) == ("failed", "exit")
    stays(lambda: workspace.log() == ["tried"], 3)
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    assert outcome_lines(workspace.state, workspace.record()) == 1


def test_an_agent_that_is_not_on_a_services_path_is_said_and_fails_by_name(workspace):
    # BR-79: works in the terminal, not under launchd or systemd.
    bare = {
        "HOME": os.environ["HOME"],
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": environment()["PYTHONPATH"],
    }
    hidden = workspace.root / "local" / "bin"
    hidden.mkdir(parents=True)
    (hidden / "my-agent").write_text("#!/bin/sh\necho done\n")
    (hidden / "my-agent").chmod(0o755)
    (workspace.root / "routines.yaml").write_text(
        "agent: mine\nagents: {mine: {command: [my-agent]}}\n"
    )
    workspace.due()
    scheduler = workspace.start(env=bare, cwd="/")
    assert "my-agent" in workspace.said(scheduler)
    assert "not on PATH" in workspace.said(scheduler)
    record = workspace.settled()
    assert end_of(record) == ("failed", "not-found")
    assert "my-agent" in record.end["detail"]
    assert "/usr/bin:/bin" in record.end["detail"]
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    # In a terminal it is found, from the same folder `/` and without a HOME.
    with_it = {"PATH": f"{hidden}:/usr/bin:/bin", "PYTHONPATH": bare["PYTHONPATH"]}
    done = workspace.cli("run", "digest", env=with_it, cwd="/")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_run_handed_over_survives_the_scheduler_that_was_to_take_it(workspace):
    workspace.agent(PATIENT).routine("digest")
    assert workspace.cli("run", "digest", "--detach").returncode == 1
    assert workspace.records() == []
    scheduler = workspace.start()
    done = workspace.cli("run", "digest", "--detach")
    assert done.returncode == 0, done.stderr
    # What another process adds is seen within 2 s; the rest is what a process costs to start.
    eventually(workspace.log, "the turn", 15)
    scheduler.kill()
    scheduler.wait()
    go(workspace)
    assert end_of(workspace.settled()) == ("completed", None)
    assert workspace.log() == ["begun", "ended"]


# Stale locks and pids (BR-62) -------------------------------------------------------------------


@pytest.fixture
def bystander():
    """A living process that has nothing to do with anything."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process.pid
    alive = process.poll() is None
    process.kill()
    process.wait()
    assert alive, "an unrelated process was ended"


def leave_claim(workspace, pid, **owner):
    """Leave a started claim whose owner is said to be *pid*, as a crash of another time would."""
    workspace.agent("echo begun >> $LOG; sleep 600").due(ago=60)
    scheduler = workspace.start()
    begun(workspace)
    end_all(workspace.root)
    scheduler.wait()
    path = os.path.join(workspace.state, workspace.record().path)
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    for line in lines:
        line["owner"] = line["owner"] | {"pid": pid} | owner
    with open(path, "r+", encoding="utf-8") as file:
        file.truncate()
        file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    # A claim of the crash, with a scheduler's heartbeat and the leftovers of locks beside it.
    os.makedirs(os.path.join(workspace.state, "locks"), exist_ok=True)
    Path(workspace.state, "locks", "digest.routine.lock").write_text(str(pid))
    return path


def test_a_pid_that_was_used_again_holds_nothing_and_is_left_alone(workspace, bystander):
    leave_claim(workspace, bystander, start="1")
    scheduler = workspace.start()
    assert end_of(workspace.settled()) == ("interrupted", "owner-died")
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0


def test_an_owner_of_another_boot_of_this_host_is_dead(workspace, bystander):
    if host_id() is None:
        pytest.skip("this machine has no id of its own, as in a container")
    leave_claim(workspace, bystander, boot="11111111-2222-3333-4444-555555555555")
    scheduler = workspace.start()
    assert end_of(workspace.settled()) == ("interrupted", "owner-died")
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0


def test_a_claim_of_another_host_is_not_settled_by_a_guess(workspace, bystander):
    path = leave_claim(
        workspace,
        bystander,
        host="0" * 32,
        boot="11111111-2222-3333-4444-555555555555",
    )
    slot = workspace.record().due_at
    scheduler = workspace.start()
    stays(lambda: workspace.record().end is None, 3, "the claim of another host")
    # Its session is busy, whatever the free lock says.
    done = workspace.cli("run", "digest")
    assert done.returncode == 75, done.stderr
    # Ten minutes without a beat, and it is presumed dead: settled, and never run again.
    os.utime(path, (time.time() - 700, time.time() - 700))
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    again = workspace.start()
    assert end_of(workspace.settled()) == ("interrupted", "presumed")
    again.terminate()
    assert workspace.ended(again) == 0
    assert workspace.log() == ["begun"]
    assert workspace.cli("fire", "digest", "--slot", stamp(slot)).returncode == 0
    assert workspace.log() == ["begun"]
    eventually(lambda: workspace.open() == [], "the end of the claim")
