"""Each benchmark runs, at sizes that measure nothing: no figure is judged here."""

import importlib
import math
import os
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.measure import HERE, Places, Row, Size, percentile


@pytest.fixture
def places(tmp_path):
    for name in ("disk", "memory"):
        os.mkdir(tmp_path / name)
    return Places(str(tmp_path / "disk"), str(tmp_path / "memory"))


@pytest.mark.parametrize("name", benchmarks.NAMES)
def test_a_benchmark_measures_something_and_leaves_nothing_behind(name, places):
    module = importlib.import_module(f"benchmarks.{name}")
    rows = list(module.run(Size.TINY, places))
    assert rows
    assert all(math.isfinite(row.measured) for row in rows)
    assert os.listdir(places.disk) == []
    assert os.listdir(places.memory) == []


@pytest.mark.parametrize("name", benchmarks.NAMES)
def test_a_benchmark_says_how_it_measures(name):
    assert importlib.import_module(f"benchmarks.{name}").__doc__.strip()


def test_all_benchmarks_are_listed():
    shared = {"__init__", "__main__", "measure", "workspaces"}
    folder = os.path.join(HERE, "benchmarks")
    found = {name.removesuffix(".py") for name in os.listdir(folder) if name.endswith(".py")}
    assert found - shared == set(benchmarks.NAMES)


@pytest.mark.parametrize(
    ("measured", "bound", "verdict"),
    [(1.4, 1.5, "ok"), (1.5, 1.5, "ok"), (1.6, 1.5, "OVER"), (9.0, None, "-")],
)
def test_a_row_is_over_only_beyond_its_bound(measured, bound, verdict):
    assert Row("x", measured, bound).verdict == verdict


def test_a_percentile_is_a_value_that_was_measured():
    assert percentile(list(range(1, 1001)), 0.99) == 990
    assert percentile([7.0], 0.99) == 7.0


def test_an_unknown_benchmark_is_refused():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=HERE, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "no benchmark is called 'nothing'" in ended.stderr
