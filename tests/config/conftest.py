"""A workspace in a folder of its own, and the words of what is wrong with it."""

import os
from datetime import UTC, datetime

import pytest

from routines.config.routine_file import parse_routine
from routines.config.workspace import FoundBy, Root, load_workspace
from routines.config.workspace_file import WorkspaceSettings, parse_settings

AGENTS = b"agents:\n  claude:\n    command: [claude, -p]\n"


def _times(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns


class Folder:
    """A workspace on disk that a test fills."""

    def __init__(self, path):
        self.path = str(path)
        os.makedirs(os.path.join(self.path, "routines"))

    @property
    def root(self):
        state = os.path.join(self.path, ".routines")
        return Root(path=self.path, found_by=FoundBy.OPTION, state=state)

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, content):
        path = self.file(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        before = _times(path)
        # Two writes within one tick of the clock look alike; edits by hand are seconds apart.
        while True:
            with open(path, "wb") as file:
                file.write(data)
            if _times(path) != before:
                return path

    def routine(self, name, content="cron: '0 9 * * *'\nprompt: hello\n"):
        return self.write(f"routines/{name}.yaml", content)

    def load(self):
        return load_workspace(self.root)


@pytest.fixture
def folder(tmp_path):
    return Folder(os.path.realpath(tmp_path / "ws"))


@pytest.fixture
def parse():
    """Read one routine from text, as routines/x.yaml of a workspace at /ws."""

    def read(text, *, name="x", settings=None, root="/ws"):
        data = text if isinstance(text, bytes) else text.encode()
        return parse_routine(
            data,
            name,
            path=f"routines/{name}.yaml",
            root=root,
            settings=settings or WorkspaceSettings(),
        )

    return read


@pytest.fixture
def parse_workspace():
    def read(text):
        data = text if isinstance(text, bytes) else text.encode()
        return parse_settings(data, root="/ws")

    return read


@pytest.fixture
def real_now():
    return lambda: datetime.now(UTC)
