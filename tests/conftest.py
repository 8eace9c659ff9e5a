"""What every test stands on: a home that is not the real one, a clock that moves when told."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from routines.domain.record import fold
from routines.store import files
from routines.store.claim import Claim
from routines.store.state import State, open_for_writing
from tests.builders import BOOT, FakeClock


@pytest.fixture(scope="session", autouse=True)
def _away_from_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the real home, its configuration and its state out of reach of every test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith(("ROUTINES_", "XDG_")):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        for name in ("CONFIG", "STATE", "DATA", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        patch.setenv("XDG_RUNTIME_DIR", str(home / "runtime"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _claims_say_what_their_files_say() -> Iterator[None]:
    """Hold what every claim knows of itself after it wrote against its file read anew.

    A line just written is not parsed again, so that a value that JSON gives back otherwise (a
    tuple, an instant) would be seen by its writer alone.
    """
    append = Claim._append

    def checked(claim: Claim, event: dict[str, Any]) -> None:
        append(claim, event)
        written = files.whole_lines(files.read_fd(claim.fd))
        read = fold(written, occurrence=claim.occurrence, path=claim.record.path)
        assert claim.record == read, f"{claim.record} is not what its file says: {read}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "_append", checked)
        yield


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[str]:
    """A folder in memory where there is such a thing, for tests that make hundreds of states."""
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path)
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


@pytest.fixture
def state_path(tmp_path: Path) -> str:
    return str(tmp_path / ".routines")


@pytest.fixture
def state(state_path: str) -> State:
    return open_for_writing(state_path, boot=BOOT)
