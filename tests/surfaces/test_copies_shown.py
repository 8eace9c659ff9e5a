"""What is shown in a copy of a workspace before it is said what it is (PROMISES D10, L19)."""

import os
import shutil

import pytest

from routines.agents.identity import process_identity
from routines.operations.context import Context
from tests.builders import owner
from tests.surfaces.world import Answer, World, berlin


@pytest.fixture
def copied(ws: World) -> World:
    """A workspace whose scheduler lives, and a copy of it."""
    ws.cron("daily", "0 16 * * *", "env_file: .env\n")
    (ws.root / ".env").write_text("A=1\n")
    found = Context(explicit_root=None, environ=ws.environ, cwd=str(ws.root), clock=ws.clock)
    digest = found.workspace.routines["daily"].digest()
    ws.done("daily", berlin("16:00"), claim={"definition": digest})
    # Of this very host and boot: only the lock tells that it lives.
    ws.scheduler(owner=owner(**(process_identity() or {})).to_json())
    shutil.copytree(ws.root, ws.home / "copy")
    return ws


def there(ws: World, *words: str) -> Answer:
    return ws.ask(*words, cwd=ws.home / "copy", width=200)


def test_a_copy_of_a_workspace_says_of_no_file_that_it_was_edited(copied):
    assert "edited" not in copied.ask("explain", "daily").out
    assert "; its cwd was another then" in there(copied, "explain", "daily").out

    path = copied.home / "copy" / "routines" / "daily.yaml"
    path.write_text(path.read_text().replace("Look.", "Look again."))

    assert "; its file was edited since" in there(copied, "explain", "daily").out


def test_a_copy_can_not_tell_whether_the_scheduler_of_the_original_lives(copied):
    assert "alive" in copied.ask("doctor", "--only", "scheduler").out

    said = there(copied, "doctor", "--only", "scheduler").out

    assert f"pid {os.getpid()} can't be told of: this folder was copied or moved" in said
    assert "was killed" not in said
    assert "NO SCHEDULER" in there(copied, "list").out
