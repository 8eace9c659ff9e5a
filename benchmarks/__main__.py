"""Run benchmarks and print what they measured; exit 1 if anything is over its bound."""

import argparse
import importlib
import os
import platform
import sys
import time

from benchmarks import NAMES
from benchmarks.measure import Places, Row, Size, filesystem, flush_cost


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)}")
    parser.add_argument("--full", action="store_true", help="the sizes that the bounds are for")
    parser.add_argument("--tiny", action="store_true", help="only to see that they run")
    parser.add_argument("--disk", metavar="DIR", help="a folder on a disk")
    parser.add_argument("--memory", metavar="DIR", help="a folder whose flushes cost nothing")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    places = Places.usual(asked.disk, asked.memory)
    size = Size.FULL if asked.full else Size.TINY if asked.tiny else Size.USUAL
    print(_machine(places), f"sizes: {size}", sep="\n", flush=True)
    print(f"\n{'WHAT':<66} {'MEASURED':>10} {'BOUND':>8}", flush=True)
    over = 0
    for name in asked.names or NAMES:
        start = time.perf_counter()
        for row in importlib.import_module(f"benchmarks.{name}").run(size, places):
            print(_line(name, row), flush=True)
            over += row.is_over
        print(f"  ({name}: {time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    print(f"\n{over} over their bounds." if over else "\nAll within their bounds.")
    return 1 if over else 0


def _machine(places: Places) -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{platform.system()}, {cores} cores (load {load}), "
        f"Python {platform.python_version()}\n"
        f"disk: {filesystem(places.disk)}, a flush costs {flush_cost(places.disk) * 1e3:.2f} ms; "
        f"memory: {filesystem(places.memory)}, {flush_cost(places.memory) * 1e3:.3f} ms"
    )


def _line(name: str, row: Row) -> str:
    what = f"{name}: {row.what}"
    measured = _figure(row.measured, row.unit)
    bound = "" if row.bound is None else _figure(row.bound, row.unit)
    note = f"  {row.note}" if row.note else ""
    return f"{what:<66} {measured:>10} {bound:>8}  {row.verdict:<4}{note}".rstrip()


def _figure(value: float, unit: str) -> str:
    text = f"{value:.0f}" if value == int(value) and unit == "" else f"{value:.2f}"
    return f"{text}{'' if unit in ('', 'x', '%') else ' '}{unit}"


if __name__ == "__main__":
    sys.exit(main())
