"""Stops of every kind, from outside: signals to real schedulers with real turns (L14, BR-22, 68)."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.acceptance.helpers import (
    agents_of,
    end_of,
    environment,
    events_of,
    eventually,
    now,
    outcome_lines,
    processes_of,
    send,
    stamp,
    stays,
    turn_processes,
)

# Ends when the file `go` appears; ignores the polite signals.
STUBBORN = 'trap "" TERM INT HUP; echo begun >> $LOG; while [ ! -e $HERE/go ]; do sleep 0.1; done; echo ended >> $LOG'
PATIENT = (
    "echo begun >> $LOG; while [ ! -e $HERE/go ]; do sleep 0.1; done; echo ended >> $LOG; echo done"
)


def begun(workspace, count=1):
    eventually(lambda: len(workspace.log()) >= count, "the agent")


def go(workspace):
    (workspace.root / "go").write_text("")


def started_turn(workspace, script, *words):
    """Return a scheduler with a turn under way."""
    workspace.agent(script).due()
    scheduler = workspace.start(*words)
    begun(workspace)
    return scheduler


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)]
)
def test_a_turn_that_ends_within_the_grace_is_completed(workspace, number, code):
    scheduler = started_turn(workspace, PATIENT)
    scheduler.send_signal(number)
    eventually(lambda: "stopping" in workspace.said(scheduler), "the stop")
    assert scheduler.poll() is None
    go(workspace)
    assert workspace.ended(scheduler) == code
    assert end_of(workspace.record()) == ("completed", None)
    assert workspace.open() == []
    workspace.none_left()


def test_a_turn_that_ignores_its_end_is_interrupted_once(workspace):
    scheduler = started_turn(
        workspace, STUBBORN.replace("sleep 0.1", "sleep 0.05"), "--grace", "1s"
    )
    scheduler.terminate()
    # The grace, then the agent's own ten seconds between TERM and KILL.
    assert workspace.ended(scheduler) == 0
    workspace.none_left()
    record = workspace.record()
    assert end_of(record) == ("interrupted", "stopped")
    again = workspace.start()
    stays(lambda: again.poll() is None and workspace.record().end == record.end, 2)
    again.terminate()
    assert workspace.ended(again) == 0
    assert outcome_lines(workspace.state, workspace.record()) == 1
    assert workspace.log() == ["begun"]


def test_a_second_signal_ends_turns_at_once(workspace):
    scheduler = started_turn(workspace, STUBBORN, "--grace", "10m")
    scheduler.terminate()
    eventually(lambda: "stopping" in workspace.said(scheduler), "the stop")
    stays(lambda: scheduler.poll() is None, 0.5, "the grace")
    scheduler.terminate()
    time_of_signal = time.monotonic()
    # The first word to the turn is TERM, and its own patience is 10 s.
    eventually(lambda: end_of(workspace.record())[0], "the outcome")
    assert workspace.ended(scheduler) == 0
    assert time.monotonic() - time_of_signal < 20
    assert end_of(workspace.record()) == ("interrupted", "stopped")
    assert workspace.log() == ["begun"]


def test_a_third_signal_does_not_wait_for_the_agents_patience(workspace):
    scheduler = started_turn(workspace, STUBBORN, "--grace", "10m")
    for _ in range(3):
        scheduler.terminate()
        stays(lambda: True, 0.3)
    began = time.monotonic()
    assert workspace.ended(scheduler) == 0
    assert time.monotonic() - began < 8
    assert end_of(workspace.record()) == ("interrupted", "stopped")


def test_nothing_is_claimed_after_the_signal_and_the_slot_is_owed_on_restart(workspace):
    # BR-68: one turn alive, one slot due a second after the signal.
    workspace.agent(PATIENT).due()
    slot = workspace.due("late", ago=-8)
    scheduler = workspace.start()
    begun(workspace)
    scheduler.terminate()
    eventually(lambda: "stopping" in workspace.said(scheduler), "the stop")
    assert now() < slot, "the machine is too slow for this test"
    eventually(lambda: (now() - slot).total_seconds() > 1.5, "the slot")
    assert scheduler.poll() is None
    assert workspace.records("late") == []
    go(workspace)
    assert workspace.ended(scheduler) == 0
    assert workspace.records("late") == []
    again = workspace.start()
    assert end_of(workspace.settled("late")) == ("completed", None)
    again.terminate()
    assert workspace.ended(again) == 0
    assert end_of(workspace.record()) == ("completed", None)
    assert workspace.log().count("begun") == 2


def test_leave_turns_leaves_them_to_their_own_processes(workspace):
    scheduler = started_turn(workspace, PATIENT, "--leave-turns")
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    assert workspace.record().end is None
    assert len(turn_processes(workspace.root)) == 1
    go(workspace)
    assert end_of(workspace.settled()) == ("completed", None)
    workspace.none_left()
    assert workspace.open() == []


def test_a_killed_scheduler_is_no_stop_and_its_turn_settles_by_itself(workspace):
    scheduler = started_turn(workspace, PATIENT)
    scheduler.kill()
    scheduler.wait()
    stays(lambda: turn_processes(workspace.root) and agents_of(workspace.root), 1, "the turn")
    again = workspace.start()
    stays(lambda: workspace.record().end is None, 2, "the live turn")
    go(workspace)
    record = workspace.settled()
    assert end_of(record) == ("completed", None)
    assert events_of(record) == ["started", "outcome"]
    again.terminate()
    assert workspace.ended(again) == 0
    assert workspace.log() == ["begun", "ended"]


def test_interrupting_a_run_cancels_its_turn(workspace):
    workspace.agent(PATIENT).routine("digest")
    run = workspace.begin("run", "digest")
    begun(workspace)
    run.send_signal(signal.SIGINT)
    assert workspace.ended(run) == 130
    workspace.none_left()
    assert end_of(workspace.record()) == ("cancelled", "person")
    assert workspace.log() == ["begun"]


@pytest.mark.parametrize(
    ("number", "word"),
    [(signal.SIGINT, "^C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_the_record_of_a_run_that_was_interrupted_says_by_what(workspace, number, word):
    workspace.agent(PATIENT).routine("digest")
    run = workspace.begin("run", "digest")
    begun(workspace)
    run.send_signal(number)
    assert workspace.ended(run) == 130
    assert workspace.record().end["detail"].startswith(f"{word}; ")
    workspace.none_left()


def test_interrupting_a_run_before_its_turn_has_begun_leaves_nothing_open(workspace):
    workspace.agent(PATIENT).routine("digest")
    run = workspace.begin("run", "digest")
    eventually(workspace.records, "the claim")
    run.send_signal(signal.SIGINT)
    assert workspace.ended(run) == 130
    workspace.none_left()
    assert end_of(workspace.record()) == ("cancelled", "person")
    assert workspace.open() == []


@pytest.mark.parametrize("words", [("tick",), ("fire", "digest", "--slot", "{slot}")])
def test_a_terminal_that_goes_away_loses_no_turn(workspace, words):
    # SIGHUP, and a parent that dies: the turn has a session of its own.
    slot = workspace.agent(PATIENT).due()
    process = workspace.begin(*(word.format(slot=stamp(slot)) for word in words))
    begun(workspace)
    process.kill()
    process.wait()
    go(workspace)
    assert end_of(workspace.settled()) == ("completed", None)
    workspace.none_left()


def test_an_agent_that_restarts_its_own_scheduler_fires_once(workspace):
    # BR-22, with a supervisor that starts the scheduler again as soon as it ends.
    workspace.agent(
        'echo "begun $ROUTINES_SLOT" >> $LOG; kill -TERM $(cat $HERE/pid); '
        'trap "" TERM; while :; do sleep 0.2; done',
        stop=["KILL"],
    ).due()
    loop = (
        "import subprocess, sys, pathlib\n"
        "root, *words = sys.argv[1:]\n"
        "while not pathlib.Path(root, 'enough').exists():\n"
        "    child = subprocess.Popen(words, stderr=open(root + '/err.loop', 'ab'))\n"
        "    pathlib.Path(root, 'pid').write_text(str(child.pid))\n"
        "    child.wait()\n"
        "    open(root + '/restarts', 'a').write('x')\n"
    )
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-c",
            loop,
            str(workspace.root),
            *workspace.words("start", "--grace", "1s"),
        ],
        env=environment(),
        cwd=workspace.root,
    )
    try:
        record = workspace.settled()
        assert end_of(record) == ("interrupted", "stopped")
        pid = workspace.root / "pid"
        eventually((workspace.root / "restarts").exists, "the restart")
        stays(lambda: workspace.log() == [f"begun {stamp(record.due_at)}"], 4, "one fire")
        assert (workspace.root / "restarts").read_text() == "x"
        (workspace.root / "enough").write_text("")
        send(int(pid.read_text()), signal.SIGTERM)
        supervisor.wait(timeout=60)
    finally:
        (workspace.root / "enough").write_text("")
        supervisor.kill()
        supervisor.wait()
    assert outcome_lines(workspace.state, workspace.record()) == 1
    workspace.none_left()


def test_an_agent_outlives_no_turn_process_and_keeps_its_session_busy_meanwhile(workspace):
    # The turn process is killed; its agent has left the group and ignores TERM.
    child = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); "
        "open(os.environ['HERE'] + '/child', 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.1)"
    )
    workspace.agent(
        f'export HERE; if [ ! -e $HERE/child ]; then {sys.executable} -c "{child}" & fi\n'
        'while [ ! -e $HERE/child ]; do sleep 0.05; done; echo "begun $ROUTINES_SLOT" >> $LOG; '
        "if [ ! -e $HERE/once ]; then touch $HERE/once; sleep 600; fi"
    )
    workspace.due(session="named:shared", ago=5)
    workspace.due("other", session="named:shared")
    scheduler = workspace.start()
    begun(workspace)
    (owner,) = turn_processes(workspace.root)
    leftover = int((workspace.root / "child").read_text())
    os.kill(owner, signal.SIGKILL)
    record = workspace.settled()
    assert end_of(record) == ("interrupted", "owner-died")
    # When it is settled, nothing of it is left; only then the session's next turn begins.
    assert leftover not in processes_of(workspace.root)
    after = workspace.settled("other")
    assert end_of(after) == ("completed", None)
    assert after.started_at >= record.ended_at
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0


def test_slots_of_each_second_end_with_the_signal_and_go_on_after_the_restart(workspace):
    # The long turn makes each following slot `skipped: overlap`: a claim a second.
    workspace.agent(PATIENT)
    words = ["--each", "1", "--overlap", "skip", "--", "/bin/sh", f"{workspace.root}/agent.sh"]
    scheduler = workspace.begin_each(*words)
    eventually(lambda: len(workspace.records("r00")) >= 3, "three slots")
    before = now()
    scheduler.terminate()
    eventually(lambda: "stopping" in workspace.said(scheduler), "the stop")
    after = now()
    stays(lambda: scheduler.poll() is None, 2.5, "the grace")
    claimed = [record.claimed_at for record in workspace.records("r00")]
    assert max(claimed) < after
    go(workspace)
    assert workspace.ended(scheduler) == 0
    assert [record.claimed_at for record in workspace.records("r00")] == claimed
    again = workspace.begin_each(*words)
    eventually(lambda: workspace.records("r00")[-1].started, "the next turn")
    again.terminate()
    assert workspace.ended(again) == 0
    (gap,) = workspace.missed("r00")
    assert gap.after <= before <= gap.last
    assert gap.reason.value == "no-scheduler"
