"""State folders that are missing, full, read-only, someone else's, newer, or deleted under way."""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.helpers import (
    end_of,
    environment,
    eventually,
    outcome_lines,
    stamp,
    stays,
    turn_processes,
)
from tests.acceptance.test_stopping import PATIENT, begun, go
from tests.campaigns.adding_up import words_of

ROOT = os.geteuid() == 0
WRITING = [
    ("start",),
    ("run", "digest"),
    ("tick",),
    ("fire", "digest", "--slot", "{slot}"),
    ("cancel", "digest"),
    ("wake", "--in", "5m", "--session", "digest", "look again"),
]
READING = [("list",), ("history",), ("next",), ("explain", "digest")]


@contextmanager
def mounted(path, size="1m"):
    """Mount a small file system at *path*; skip where that is not allowed."""
    os.makedirs(path, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", path]
    if not ROOT or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def refused(workspace, code, *, slot, commands=WRITING):
    """Check that each command says *code*, with exit code 1 and one line for a person."""
    for command in commands:
        words = [word.format(slot=stamp(slot)) for word in command]
        done = workspace.cli(*words)
        assert done.returncode == 1, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr
        if words[0] != "start":
            _, said = workspace.json(*words)
            assert said["error"]["code"] == code, (words, said)


def snapshot(path):
    """Return every file below *path* with its content."""
    return {
        os.path.join(place, name): Path(place, name).read_bytes()
        for place, _, names in os.walk(path)
        for name in names
    }


def test_a_missing_state_folder_is_made_by_who_writes_and_not_by_who_reads(workspace):
    workspace.agent("echo done").routine("digest", every="1h")
    for words in READING:
        done = workspace.cli(*words)
        assert "Traceback" not in done.stderr
        assert not os.path.exists(workspace.state), words
    assert workspace.cli("tick").returncode == 0
    assert os.path.exists(os.path.join(workspace.state, "format"))


def test_a_newer_layout_is_refused_by_all_and_untouched(workspace):
    slot = workspace.agent("echo done").due()
    path = Path(workspace.state, "format")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout": 99}))
    before = snapshot(workspace.state)
    refused(workspace, "state-newer", slot=slot)
    assert snapshot(workspace.state) == before
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout": 1}))
    assert workspace.cli("tick").returncode == 0
    assert end_of(workspace.record()) == ("completed", None)


@pytest.mark.skipif(not ROOT, reason="only root can give a folder to another user")
def test_another_users_state_folder_is_refused_and_untouched(workspace):
    slot = workspace.agent("echo done").due()
    os.chown(workspace.state, 65534, 65534)
    before = snapshot(workspace.state)
    refused(workspace, "state-foreign", slot=slot)
    done = workspace.cli("tick")
    assert "belongs to" in done.stderr
    assert "runs as root" in done.stderr
    assert snapshot(workspace.state) == before
    os.chown(workspace.state, 0, 0)
    assert workspace.cli("tick").returncode == 0
    assert end_of(workspace.record()) == ("completed", None)


def test_a_read_only_state_folder_starts_nothing_and_loses_nothing(workspace):
    with mounted(workspace.state, "8m"):
        slot = workspace.agent("echo begun >> $LOG").due()
        remount = ["mount", "-o", "remount,{}", workspace.state]
        subprocess.run([word.format("ro") for word in remount], check=True)
        for words in WRITING[1:4]:
            done = workspace.cli(*(word.format(slot=stamp(slot)) for word in words))
            assert done.returncode == 1, (words, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr
        for words in READING:
            assert "Traceback" not in workspace.cli(*words).stderr
        for words in (("start",), ("doctor", "--only", "state"), ("init", "--yes")):
            done = workspace.cli(*words)
            assert done.returncode == 1, (words, done.stdout, done.stderr)
            assert "EROFS" in done.stdout + done.stderr, (words, done)
            assert "bug" not in done.stderr
        assert workspace.log() == []
        subprocess.run([word.format("rw") for word in remount], check=True)
        assert workspace.cli("tick").returncode == 0
        assert workspace.log() == ["begun"]
        assert end_of(workspace.record()) == ("completed", None)


# Root without its powers, so that modes hold for it.
POWERLESS = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


@pytest.mark.parametrize("folder", ["claims", "open", "claims/digest"])
def test_a_folder_without_the_right_to_write_is_named_by_doctor_and_start(workspace, folder):
    workspace.agent("echo done").routine()
    assert workspace.cli("run", "digest").returncode == 0
    place = os.path.join(workspace.state, folder)
    os.chmod(place, 0o500)
    before = snapshot(workspace.state)
    for words in (["doctor", "--only", "state"], ["start"]):
        done = subprocess.run(
            [*(POWERLESS if ROOT else ()), *workspace.words(*words)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 1, (words, said)
        assert f"can't write in {place}" in said
        assert "mode 500" in said
        assert "belongs to" not in said
    assert snapshot(workspace.state) == before
    os.chmod(place, 0o700)
    assert workspace.cli("doctor", "--only", "state").returncode == 0
    assert snapshot(workspace.state) == before


def fill(path):
    """Write until the file system at *path* is full to the last byte."""
    with open(os.path.join(path, "ballast"), "wb", buffering=0) as ballast:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError:
                continue
    for number in range(10_000):
        # And the inodes, by names that hold nothing.
        try:
            Path(path, f"ballast-{number}").touch(exist_ok=False)
        except OSError:
            return


def drain(path):
    for name in os.listdir(path):
        if name.startswith("ballast"):
            os.remove(os.path.join(path, name))


def each(workspace, script):
    """Start a scheduler whose one routine is due each second."""
    workspace.agent(script)
    return workspace.begin_each("--each", "1", "--", "/bin/sh", f"{workspace.root}/agent.sh")


MARKED = 'echo "begun $ROUTINES_TURN" >> $LOG; echo "ended $ROUTINES_TURN" >> $LOG; echo done'


def test_on_a_full_disk_nothing_runs_and_the_loop_lives(workspace):
    # BR-56: no claim, no turn; and normal service once space returns.
    with mounted(workspace.state, "1m"):
        scheduler = each(workspace, MARKED)
        eventually(lambda: len(workspace.records("r00")) >= 2, "two slots")
        fill(workspace.state)
        eventually(lambda: "ENOSPC" in workspace.said(scheduler), "the full disk")
        settled = sum(words_of(workspace.root / "log")[0].values())
        noise = len(workspace.said(scheduler).splitlines())
        stays(lambda: scheduler.poll() is None, 5, "the loop")
        begun_since = sum(words_of(workspace.root / "log")[0].values()) - settled
        # One may have been claimed before the last byte was gone.
        assert begun_since <= 1
        assert len(workspace.said(scheduler).splitlines()) - noise < 40, "the log is not calm"
        drain(workspace.state)
        before = len(workspace.records("r00"))
        eventually(lambda: len(workspace.records("r00")) > before + 1, "slots again", 90)
        scheduler.terminate()
        assert workspace.ended(scheduler) == 0
        counts, _ = words_of(workspace.root / "log")
        assert max(counts.values()) == 1
        for record in workspace.records("r00"):
            assert record.end is not None, record.ref
            assert outcome_lines(workspace.state, record) == 1
        assert workspace.open() == []


def test_a_tick_on_a_full_disk_says_so_and_what_else_it_did(workspace):
    with mounted(workspace.state, "1m"):
        workspace.agent("echo begun >> $LOG").routine("other")
        assert workspace.cli("tick").returncode == 0
        workspace.due()
        fill(workspace.state)
        done = workspace.cli("tick")
        assert done.returncode == 1
        assert done.stdout == ""
        assert "digest: can't" in done.stderr
        assert "ENOSPC" in done.stderr
        code, said = workspace.json("tick")
        assert (code, said["error"]["code"]) == (1, "not-durable")
        # Never seen before: its cursor can't be written, and it would never come to owe anything.
        os.remove(workspace.root / "routines" / "digest.yaml")
        workspace.routine("new", cron="* * * * *")
        done = workspace.cli("tick")
        assert done.returncode == 1
        assert "new: can't" in done.stderr
        assert "nothing was due" not in done.stdout
        drain(workspace.state)
        assert workspace.cli("tick").returncode == 0
        assert workspace.log() == []


def test_a_turn_that_finished_on_a_full_disk_is_settled_later_and_not_repeated(workspace):
    # D4
    with mounted(workspace.state, "1m"):
        workspace.agent(PATIENT).due()
        scheduler = workspace.start()
        begun(workspace)
        # The outcome mostly fits into what is left of the claim's last page (D3); not here.
        with open(os.path.join(workspace.state, workspace.record().path), "ab") as claim:
            claim.write(b" " * (-claim.tell() % os.sysconf("SC_PAGESIZE") - 1) + b"\n")
        fill(workspace.state)
        go(workspace)
        eventually(lambda: workspace.log() == ["begun", "ended"], "the end of the agent")
        owner = turn_processes(workspace.root)
        stays(lambda: turn_processes(workspace.root) == owner, 2, "its owner")
        assert workspace.record().end is None
        drain(workspace.state)
        assert end_of(workspace.settled(seconds=90)) == ("completed", None)
        scheduler.terminate()
        assert workspace.ended(scheduler) == 0
        assert workspace.log() == ["begun", "ended"]


@pytest.mark.parametrize("folder", ["claims", "open", "claims/digest", "sessions", "output"])
def test_a_folder_deleted_under_a_running_turn_loses_nothing_of_it(workspace, folder):
    workspace.agent(PATIENT).due()
    scheduler = workspace.start()
    begun(workspace)
    shutil.rmtree(os.path.join(workspace.state, folder))
    stays(lambda: scheduler.poll() is None and workspace.log() == ["begun"], 2.5)
    go(workspace)
    record = workspace.settled()
    assert end_of(record) == ("completed", None)
    assert workspace.log() == ["begun", "ended"]
    # And it works on.
    assert workspace.cli("run", "digest").returncode == 0
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    eventually(lambda: workspace.open() == [], "the end of all claims")


def test_folders_deleted_under_a_living_scheduler_stop_no_slot_and_repeat_none(workspace):
    scheduler = each(workspace, MARKED)
    for folder in ("claims/r00", "open", "claims", "missed", "cursors", "locks", "sessions"):
        eventually(lambda: len(workspace.records("r00")) >= 2, f"slots before {folder} goes")
        shutil.rmtree(os.path.join(workspace.state, folder), ignore_errors=True)
    eventually(lambda: len(workspace.records("r00")) >= 3, "slots again")
    assert scheduler.poll() is None
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    counts, _ = words_of(workspace.root / "log")
    assert {key: n for key, n in counts.items() if n > 1} == {}


def test_a_state_folder_deleted_as_a_whole_is_made_anew(workspace):
    scheduler = each(workspace, MARKED)
    eventually(lambda: len(workspace.records("r00")) >= 2, "two slots")
    shutil.rmtree(workspace.state, ignore_errors=True)
    eventually(lambda: os.path.isdir(os.path.join(workspace.state, "claims")), "claims again")
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0
    workspace.routine("digest")
    assert workspace.cli("run", "digest").returncode == 0
    counts, _ = words_of(workspace.root / "log")
    assert {key: n for key, n in counts.items() if n > 1} == {}
