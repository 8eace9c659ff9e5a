"""A workspace that is clean afterwards, or the test has failed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.helpers import Workspace, end_all, eventually, processes_of


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Make a workspace; no process of it may be left when the test has ended."""
    made = Workspace(tmp_path / "ws")
    try:
        yield made
        for process in made.started:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=90)
        eventually(lambda: not processes_of(made.root), f"the end of {processes_of(made.root)}", 20)
    finally:
        end_all(made.root)
        for process in made.started:
            process.wait(timeout=10)
