"""A workspace that is copied while its turns run (D10)."""

import os
import shutil
import subprocess

import pytest

from tests.acceptance.helpers import (
    Workspace,
    agents_of,
    end_all,
    end_of,
    eventually,
    now,
    stamp,
    stays,
)
from tests.acceptance.test_stopping import PATIENT, begun, go


@pytest.fixture
def copied(workspace):
    """Return an original with a turn under way, its scheduler, and a copy of it."""
    workspace.agent(PATIENT).due()
    workspace.routine("other")
    scheduler = workspace.start()
    begun(workspace)
    place = workspace.root.with_name("copy")
    subprocess.run(["cp", "-r", workspace.root, place], check=True)
    copy = Workspace(place)
    # Where the agent of the copy writes and looks is its own.
    copy.agent(PATIENT)
    try:
        yield workspace, scheduler, copy
    finally:
        end_all(copy.root)


def test_a_copy_is_refused_until_somebody_says_what_it_is(copied):
    original, scheduler, copy = copied
    agents = agents_of(original.root)
    open_before = copy.open()
    commands = [
        ("start",),
        ("run", "other"),
        ("fire", "digest", "--slot", stamp(now())),
        ("tick",),
        ("cancel", "digest"),
        ("session", "reset", "digest"),
        ("prune",),
    ]
    for words in commands:
        done = copy.cli(*words)
        assert done.returncode == 1, (words, done.stdout, done.stderr)
        assert "doctor --fork" in done.stderr, (words, done.stderr)
    code, said = copy.json("tick")
    assert (code, said["error"]["code"]) == (1, "state-copied")
    assert copy.open() == open_before
    # What only reads answers all the same.
    code, found = copy.json("doctor", "--only", "state")
    assert (code, found["failed"]) == (1, 1)
    assert copy.cli("history").returncode in (0, 1)
    # The original has felt nothing of it.
    assert agents_of(original.root) == agents
    go(original)
    assert end_of(original.settled()) == ("completed", None)
    scheduler.terminate()
    assert original.ended(scheduler) == 0


def test_a_fork_shares_nothing_with_its_original(copied):
    original, scheduler, copy = copied
    agents = agents_of(original.root)
    assert copy.cli("doctor", "--fork").returncode == 0
    assert end_of(copy.record()) == ("interrupted", "copied")
    assert copy.open() == []
    (before,) = original.ledgers()
    (after,) = copy.ledgers()
    assert (after.epoch, after.claim, after.native_session) == (before.epoch + 1, None, None)
    assert after.uuid(copy.id) != before.uuid(original.id)
    assert copy.id != original.id
    # It works, under keys of its own, and the slot that the original has is not owed.
    (copy.root / "go").write_text("")
    done = copy.cli("tick")
    assert done.returncode == 0, done.stderr
    assert copy.log().count("begun") == 1  # copied with it
    assert copy.cli("run", "digest").returncode == 0
    assert copy.records()[-1].claim["key"].startswith(copy.id)
    # The original goes on as if nothing had been.
    assert agents_of(original.root) == agents
    stays(lambda: original.record().end is None, 0.5)
    go(original)
    assert end_of(original.settled()) == ("completed", None)
    scheduler.terminate()
    assert original.ended(scheduler) == 0
    copy.none_left()


def test_adopting_a_copy_by_mistake_ends_nothing_of_the_original(copied):
    original, scheduler, copy = copied
    agents = agents_of(original.root)
    assert copy.cli("doctor", "--adopt").returncode == 0
    assert copy.id == original.id
    assert copy.cli("tick").returncode in (0, 1)
    assert end_of(copy.records()[0]) == ("interrupted", "owner-died")
    assert agents_of(original.root) == agents
    go(original)
    assert end_of(original.settled()) == ("completed", None)
    scheduler.terminate()
    assert original.ended(scheduler) == 0


def test_neither_is_possible_while_a_scheduler_runs_on_that_very_folder(workspace):
    workspace.agent(PATIENT).due()
    scheduler = workspace.start()
    begun(workspace)
    before = workspace.id
    for option in ("--adopt", "--fork"):
        code, said = workspace.json("doctor", option)
        assert (code, said["error"]["code"]) == (1, "store-busy")
    assert workspace.id == before
    assert workspace.record().end is None
    go(workspace)
    scheduler.terminate()
    assert workspace.ended(scheduler) == 0


def test_a_fork_that_was_cut_short_is_refused_and_done_again(copied, monkeypatch):
    original, scheduler, copy = copied
    from routines.operations import state_folder
    from routines.operations.context import Context

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(state_folder, "adopt_folder", _interrupt)
        state_folder.adopt(Context(explicit_root=str(copy.root)), fork=True)
    code, said = copy.json("tick")
    assert (code, said["error"]["code"]) == (1, "state-copied")
    assert copy.cli("doctor", "--fork").returncode == 0
    assert end_of(copy.record()) == ("interrupted", "copied")
    go(original)
    scheduler.terminate()
    assert original.ended(scheduler) == 0


def _interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_folder_that_was_moved_goes_on_after_adopt(workspace):
    workspace.agent("echo done").due()
    assert workspace.cli("tick").returncode == 0
    # As `mv` does between two disks.
    other = os.path.join(workspace.root, "moved")
    shutil.copytree(workspace.state, other, symlinks=True)
    shutil.rmtree(workspace.state)
    os.rename(other, workspace.state)
    code, said = workspace.json("tick")
    assert (code, said["error"]["code"]) == (1, "state-copied")
    assert workspace.cli("doctor", "--adopt").returncode == 0
    assert workspace.cli("run", "digest").returncode == 0
    assert [end_of(record) for record in workspace.records()] == [("completed", None)] * 2
    eventually(lambda: workspace.open() == [], "the end")
