"""Several processes on one state folder: limits are exact, groups exclude each other (L8, L18).

FR-02 and FR-06 of the reported wishes: caps per routine and overall with a visible outcome, and a
bound on what runs at once, whoever starts it.
"""

import collections
import signal
import time

import pytest

from tests.acceptance.helpers import end_of, eventually, now, send, stays

# Says so if another one is inside, as only a turn of the same group can be.
ALONE = (
    'mkdir "$HERE/inside" 2>/dev/null || echo "TOGETHER $ROUTINES_TURN" >> $LOG\n'
    'echo "begun $ROUTINES_ROUTINE" >> $LOG; sleep 0.3; rmdir "$HERE/inside"; echo done'
)


def ends_of(workspace, *names):
    return collections.Counter(end_of(one) for name in names for one in workspace.records(name))


# Limits -------------------------------------------------------------------------------------------


def test_no_more_turns_start_than_the_day_allows_however_many_processes_ask(workspace):
    """FR-02: N and never N + 1, each of the others with a visible `skipped: limit`."""
    workspace.agent("echo begun >> $LOG; sleep 0.1; echo done")
    workspace.routine("digest", session="fresh", limits={"turns_per_day": 5})

    started = [workspace.begin("run", "digest") for _ in range(14)]
    codes = collections.Counter(workspace.ended(process) for process in started)

    assert workspace.log() == ["begun"] * 5
    assert codes == {0: 5, 1: 9}
    assert ends_of(workspace, "digest") == {("completed", None): 5, ("skipped", "limit"): 9}
    refused = [workspace.said(process) for process in started if process.returncode == 1]
    assert all("5 of 5 turns" in said for said in refused), refused


def test_limit_of_all_together_holds_over_routines_schedulers_and_runs_by_hand(workspace):
    workspace.agent("echo begun >> $LOG; sleep 0.1; echo done")
    settings = workspace.root / "routines.yaml"
    settings.write_text(settings.read_text() + "limits: {turns_per_day: 6}\n")
    names = [f"r{number}" for number in range(6)]
    for name in names:
        workspace.due(name, ago=1.0, session="fresh")

    schedulers = [workspace.begin("start") for _ in range(2)]
    ticks = [workspace.begin("tick") for _ in range(2)]
    runs = [workspace.begin("run", name) for name in names]
    for process in (*ticks, *runs):
        workspace.ended(process)
    eventually(
        lambda: (
            all(one.end for name in names for one in workspace.records(name))
            and sum(len(workspace.records(name)) for name in names) == 12
        ),
        "the end of all slots and runs",
    )

    assert workspace.log() == ["begun"] * 6
    assert ends_of(workspace, *names) == {("completed", None): 6, ("skipped", "limit"): 6}
    for process in schedulers:
        send(process.pid, signal.SIGTERM)
        workspace.ended(process)
    workspace.none_left()


# Groups -------------------------------------------------------------------------------------------


def test_turns_of_one_group_never_run_at_once_whoever_starts_them(workspace):
    workspace.agent(ALONE)
    names = ["a", "b", "c"]
    for name in names:
        workspace.due(name, ago=1.0, exclusive="shop")

    schedulers = [workspace.begin("start") for _ in range(2)]
    codes = collections.Counter()
    until = time.monotonic() + 15.0
    while time.monotonic() < until:
        runs = [workspace.begin("run", name) for name in names]
        codes.update(workspace.ended(process) for process in (*runs, workspace.begin("tick")))
    slots = [workspace.settled(name) for name in names]

    assert not [line for line in workspace.log() if line.startswith("TOGETHER")]
    # What is not begun is refused at once, and claims nothing.
    assert set(codes) <= {0, 75}
    assert codes[75] > 0, "they never met"
    for record in (*slots, *(one for name in names for one in workspace.records(name))):
        assert end_of(record) == ("completed", None)
    for process in schedulers:
        send(process.pid, signal.SIGTERM)
        workspace.ended(process)
    workspace.none_left()


def test_group_of_a_turn_whose_scheduler_was_killed_is_still_taken(workspace):
    workspace.agent('echo "begun $ROUTINES_ROUTINE" >> $LOG; sleep 4; echo done')
    workspace.due("a", ago=1.0, exclusive="shop")
    workspace.routine("b", exclusive="shop")
    scheduler = workspace.start()
    eventually(lambda: workspace.log() == ["begun a"], "the first turn")
    scheduler.kill()
    workspace.ended(scheduler)

    began = now()
    done = workspace.cli("run", "b")

    assert done.returncode == 75, done.stderr
    assert "shop" in done.stderr
    assert (now() - began).total_seconds() < 10
    assert end_of(workspace.settled("a")) == ("completed", None)
    assert workspace.cli("run", "b").returncode == 0


# A scheduler that is stopped, not ended -------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 4])
def test_a_scheduler_that_is_stopped_in_mid_pass_keeps_its_routine_and_no_other(workspace, step):
    agent = f"echo $ROUTINES_TURN >> {workspace.root}/log; sleep 0.1; echo done"
    words = ("--each", "2", "--", "/bin/sh", "-c", agent)
    stopped = workspace.begin_each("--routines", "1", "--stop-at", str(step), *words)

    def is_stopped():
        with open(f"/proc/{stopped.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    eventually(is_stopped, "the stop")
    held = len(workspace.records("r00"))
    other = workspace.begin_each("--routines", "2", *words)
    eventually(lambda: len(workspace.records("r01")) > 2, "turns of the other routine")
    stays(lambda: len(workspace.records("r00")) == held, 3, "the routine that is held")
    assert workspace.cli("doctor", "--only", "scheduler").returncode == 0, "a minute has not passed"

    send(stopped.pid, signal.SIGCONT)
    eventually(lambda: len(workspace.records("r00")) > held + 2, "turns of the routine")
    for process in (stopped, other):
        send(process.pid, signal.SIGTERM)
        workspace.ended(process)
    workspace.none_left()
    assert set(collections.Counter(workspace.log()).values()) == {1}
    assert all(one.end is not None for one in workspace.records("r00"))
