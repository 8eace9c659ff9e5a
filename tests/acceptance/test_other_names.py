"""What a killed turn left is found by whatever name the workspace is known (T2, T3)."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.acceptance.helpers import Workspace, end_of, environment, eventually, send
from tests.acceptance.helpers import turn_processes as turns_of

# The signal at the death of the turn process reaches the wrapper alone, not what it has started.
WRAPPER = """
[ -e $HERE/pid ] && echo done && exit
(
    sh -c 'echo $PPID' > $HERE/pid.new
    mv $HERE/pid.new $HERE/pid
    while [ ! -e $HERE/go ]; do sleep 0.1; done
)
echo never
"""


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def leave(workspace, root):
    """Kill a turn that was begun under the name *root*; return the pid of what goes on."""
    workspace.agent(WRAPPER).routine("digest")
    known = {"ROUTINES_ROOT": str(root), "ROUTINES_STATE": f"{root}/.routines"}
    words = workspace.words("run", "digest")
    del words[words.index("--root") : words.index("--root") + 2]
    person = workspace.launch(words, env=environment(**known))
    eventually((workspace.root / "pid").exists, "the agent")
    pid = int((workspace.root / "pid").read_text())
    person.kill()
    person.wait()
    # What was started under another name of the folder says that name.
    for turn in turns_of(workspace.root) or turns_of(root):
        send(turn, signal.SIGKILL)
    eventually(lambda: not turns_of(workspace.root) and not turns_of(root), "the end")
    assert not is_gone(pid)
    return pid


@pytest.fixture
def left():
    """Numbers of processes that are killed if a test fails."""
    pids = []
    yield pids
    for pid in pids:
        if not is_gone(pid):
            send(pid, signal.SIGKILL)


def next_turn(workspace):
    """Have the routine run until it isn't refused."""

    def is_run():
        done = workspace.cli("run", "digest")
        assert done.returncode in {0, 75}, done.stderr
        return done.returncode == 0

    eventually(is_run, "the next turn")
    # By when they were claimed: both may be of one second, and their names then say nothing.
    records = sorted(workspace.records(), key=lambda record: record.claimed_at)
    assert [end_of(record) for record in records] == [
        ("interrupted", "owner-died"),
        ("completed", None),
    ]


@pytest.mark.parametrize("linked", ["workspace", ".routines"])
def test_a_turn_that_was_begun_by_a_link_to_its_folder_is_ended_before_the_next(
    workspace, tmp_path, left, linked
):
    root = workspace.root
    if linked == "workspace":
        root = tmp_path / "link"
        root.symlink_to(workspace.root)
    else:
        (tmp_path / "store").mkdir()
        (workspace.root / ".routines").symlink_to(tmp_path / "store")
    left.append(leave(workspace, root))

    next_turn(workspace)

    assert is_gone(left[0])


@pytest.mark.parametrize("how", ["renamed", "to another disk"])
def test_a_turn_that_was_begun_before_its_folder_was_moved_is_ended_before_the_next(
    workspace, tmp_path, left, how
):
    left.append(leave(workspace, workspace.root))
    place = tmp_path / "moved"
    if how == "renamed":
        workspace.root.rename(place)
        moved = Workspace(place)
    else:
        shutil.copytree(workspace.root, place)
        shutil.rmtree(workspace.root)
        moved = Workspace(place)
        assert moved.cli("doctor", "--adopt").returncode == 0
    moved.agent(WRAPPER)

    next_turn(moved)

    assert is_gone(left[0])
