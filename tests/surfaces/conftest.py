from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.surfaces.world import Answer, World, world

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[World]:
    """A workspace without anything but the zone and an agent that needs no program."""
    with world(tmp_path) as made:
        made.settings()
        yield made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--redraw", action="store_true", help="write the golden screens anew")


@pytest.fixture
def looks_like(request: pytest.FixtureRequest) -> Callable[[Answer, str], None]:
    """Compare a screen with its golden file; `--redraw` writes the file instead."""

    def compare(answer: Answer, name: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--redraw"):
            path.write_text(answer.out)
        assert answer.out == path.read_text()

    return compare
