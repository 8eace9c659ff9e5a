"""What people asked of tools like this one, where it takes a person's own commands and processes.

FR-03 (a pause by itself), FR-04 (a cheap check), FR-05 (chaining, which has no key on purpose),
FR-09 (run now), FR-10 (edit and see).
"""

import json
import signal
import sys

import pytest

from tests.acceptance.helpers import end_of, environment, eventually, now, send, stamp

# `routines` as a target of deliver or alert calls it, from whatever PATH.
ROUTINES = f"{sys.executable} -m routines"


def stop(workspace, scheduler):
    send(scheduler.pid, signal.SIGTERM)
    assert workspace.ended(scheduler) == 0
    workspace.none_left()


def row(workspace, name="digest"):
    """What `list` says of one routine."""
    _, found = workspace.json("list")
    return next(one for one in found["routines"] if one["name"] == name)


# FR-03: failure alerts on by default, with recovery notice and automatic pause.


def test_routine_that_fails_is_paused_where_its_alert_says_so(workspace):
    workspace.agent('[ -e "$HERE/well" ] || { echo no >&2; exit 1; }; echo done')
    pause = (
        f'[ "$ROUTINES_DELIVERY" = alert ] || exit 0; '
        f'{ROUTINES} pause "$ROUTINES_ROUTINE" --reason failing'
    )
    workspace.due(ago=1.0, alert=[{"command": ["sh", "-c", pause]}, {"file": "alerts.md"}])
    scheduler = workspace.start()

    eventually(lambda: row(workspace)["paused"], "the pause")

    assert row(workspace)["paused"]["reason"] == "failing"
    assert end_of(workspace.record()) == ("failed", "exit")
    # A person mends it, runs it, and lets it go on: the recovery pauses nothing.
    (workspace.root / "well").touch()
    assert workspace.cli("run", "digest").returncode == 0
    assert workspace.cli("resume", "digest").returncode == 0
    # A resident scheduler looks once a minute, a tick at once.
    workspace.cli("tick")
    told = workspace.root / "alerts.md"
    eventually(lambda: told.exists() and told.read_text().count("## ") == 2, "the recovery")
    assert row(workspace)["paused"] is None
    stop(workspace, scheduler)


# FR-04: a cheap check before the agent is woken.


@pytest.mark.parametrize("found", [True, False])
def test_cheap_check_decides_whether_the_agent_is_woken_and_leaves_it_what_it_found(
    workspace, found
):
    workspace.agent('echo "woken: $(cat)" >> $LOG; cat new.txt')
    check = "echo '3 new mails' > new.txt" if found else "echo 'no new mail'; exit 1"
    workspace.due(prompt="Read new.txt.", only_if=["sh", "-c", check])

    assert workspace.cli("tick").returncode == 0

    record = workspace.record()
    if found:
        assert workspace.log() == ["woken: Read new.txt."], "the prompt is what its file says"
        assert (end_of(record), record.end["reply"]) == (("completed", None), "3 new mails")
    else:
        assert workspace.log() == []
        assert (end_of(record), record.end["detail"]) == (("skipped", "gate"), "no new mail")


# FR-05: chaining: left out on purpose; a target of `deliver` does it.

CHAINS = {
    "run": f'{ROUTINES} run second --detach --append "$(cat)"',
    "fire": f'{ROUTINES} fire second --slot "$(date -u +%Y-%m-%dT%H:%M:%SZ)"',
    "wake": f"{ROUTINES} wake --in 1m --session routine:second -",
}


@pytest.mark.parametrize("way", CHAINS)
def test_one_routine_follows_another_with_its_output(workspace, way):
    workspace.agent('echo "$ROUTINES_ROUTINE got $(cat | tr "\\n" " ")" >> $LOG; echo "3 merged"')
    to_file = {"file": str(workspace.root / "first.txt")}
    workspace.due("first", deliver=[to_file, {"command": ["sh", "-c", CHAINS[way]]}])
    workspace.routine("second", prompt="Report.")
    scheduler = workspace.start()

    first = workspace.settled("first")

    assert end_of(first) == ("completed", None)
    assert first.end["warnings"] == [], first.end
    if way == "wake":
        _, pending = workspace.json("wakeups")
        assert [(one["session"], one["prompt"]) for one in pending] == [
            ("routine:second", "3 merged")
        ]
    else:
        second = workspace.settled("second")
        assert end_of(second) == ("completed", None)
        got = "second got Report.  3 merged " if way == "run" else "second got Report. "
        assert [line.rstrip() for line in workspace.log()][1:] == [got.rstrip()]
        assert "3 merged" in (workspace.root / "first.txt").read_text()
    stop(workspace, scheduler)


def test_second_routine_that_cannot_be_started_is_a_warning_of_the_first(workspace):
    workspace.agent("echo done")
    workspace.due("first", deliver=[{"command": ["sh", "-c", f"{ROUTINES} run nobody --detach"]}])

    workspace.cli("tick")

    record = workspace.record("first")
    assert end_of(record) == ("completed", None)
    assert record.end["warnings"] == ["not-delivered"]


# FR-09: run now, really: regardless of schedule, marked as manual; plus make up what was missed.


def test_run_now_makes_up_what_was_missed_and_leaves_the_schedule_alone(workspace):
    workspace.agent('echo "$ROUTINES_TRIGGER" >> $LOG; echo done')
    slot = workspace.due(ago=7200, catch_up="none")
    workspace.seen("digest", now().replace(microsecond=0) - (now() - slot) * 2)
    workspace.cli("tick")
    assert [(one.reason, one.last) for one in workspace.missed()] == [("no-scheduler", slot)]
    _, before = workspace.json("next", "digest")

    done = workspace.cli("run", "digest")

    assert (done.returncode, done.stdout) == (0, "done\n")
    (record,) = workspace.records()
    assert (record.trigger, record.occurrence.kind) == ("manual", "manual")
    assert workspace.log() == ["manual"]
    _, after = workspace.json("next", "digest")
    assert after == before
    # The slot itself stays missed: what is made up for is not undone.
    fired = workspace.cli("fire", "digest", "--slot", stamp(slot))
    assert fired.returncode == 0
    assert workspace.log() == ["manual"]
    _, why = workspace.json("explain", "digest", stamp(slot))
    assert why["verdict"] == "missed"


# FR-10: edit and see: hot reload of files, validation before it matters, next runs with zone.


def test_edit_is_seen_without_a_restart_and_checked_before_it_matters(workspace):
    workspace.agent("echo done")
    workspace.routine(cron="0 9 * * *", tz="Europe/Berlin")
    scheduler = workspace.start()
    eventually(lambda: row(workspace)["state"] == "armed", "the routine")

    workspace.routine(cron="30 17 * * 1-5", tz="America/New_York", prompt="another")
    edited = now()
    eventually(lambda: "event=routine-edited" in workspace.said(scheduler), "the edit")
    assert (now() - edited).total_seconds() < 10
    line = next(one for one in workspace.said(scheduler).splitlines() if "routine-edited" in one)
    assert 'routine=digest keys="schedule, prompt"' in line
    shown = workspace.cli("next", "digest", "-n", "1", env=environment(COLUMNS="120")).stdout
    assert shown.startswith("digest  30 17 * * 1-5  America/New_York (-0")
    assert "17:30" in shown

    (workspace.root / "routines" / "digest.yaml").write_text("cron: '61 9 * * *'\nprompt: x\n")
    checked = workspace.cli("check")
    assert checked.returncode == 1
    assert "61" in checked.stdout
    eventually(lambda: row(workspace)["state"] == "stale edit", "the broken file")
    eventually(lambda: "event=file-broken" in workspace.said(scheduler), "its line in the log")
    eventually(lambda: row(workspace)["schedule"] == "30 17 * * 1-5", "what goes on")
    assert json.loads(workspace.cli("next", "digest", "-n", "1", "--json").stdout)[0]["stale"]

    workspace.routine(cron="30 17 * * *", tz="America/New_York")
    eventually(lambda: row(workspace)["state"] == "armed", "the mended file")
    assert row(workspace)["schedule"] == "30 17 * * *"
    assert json.loads(workspace.cli("check", "--json").stdout)["ok"]
    stop(workspace, scheduler)
