"""The machine of `tests.engine.machine` for as long as one likes, each round from a seed of its own.

    python -m tests.campaigns.machine --minutes 60

A sequence that fails is cut down to what it needs, step by step, and printed.
"""

import argparse
import random
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from routines.domain.routine import Routine
from tests.engine.machine import Machine, play

_EXAMPLES = 10
_STEPS = 50


def where(error):
    """Return what tells one failure from another: the line that saw it, and no values."""
    while isinstance(error, BaseExceptionGroup):
        # It was not the same when it was played again: threads are not.
        error = error.exceptions[0]
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "machine.py" in one[0]]
    return (type(error).__name__, *(frame.name for frame in frames[-1:]), frames[-1].line)


def cut_down(steps, wanted, *, until):
    """Return fewer steps that fail in the same way, as far as time allows."""
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < until:
        at = len(steps) - size
        while at >= 1 and time.monotonic() < until:
            fewer = steps[:at] + steps[at + size :]
            error = play(fewer)
            if error is not None and where(error) == wanted:
                steps = fewer
                at = min(at, len(steps))
            at -= size
        size //= 2
    return steps


def told(steps):
    """Yield *steps* in words: of a routine only what is not as usual."""
    usual = Routine(name="", prompt="")
    for name, given in steps:
        for routine in given.get("routines", ()):
            more = {key: getattr(routine, key) for key in routine.__slots__ if key != "schedule"}
            odd = [f"{k}={v}" for k, v in more.items() if v != getattr(usual, k) and k != "prompt"]
            yield f"{routine.schedule.text()} {' '.join(odd)}"
        words = (f"{key}={value}" for key, value in given.items() if key != "routines")
        yield f"{name}({', '.join(words)})"


def one_round(number, *, examples=_EXAMPLES, steps=_STEPS):
    """Play one seed; return the steps that failed and their error, or None."""
    last = []

    class Seen(Machine):
        def __init__(self):
            super().__init__()
            last[:] = [self]

    Seen._hypothesis_internal_use_seed = number
    try:
        run_state_machine_as_test(
            Seen,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                phases=[Phase.generate],
                verbosity=Verbosity.quiet,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:
        return last[0].steps, error
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="this one alone")
    parser.add_argument("--cut", type=float, default=60, help="seconds for cutting one down")
    args = parser.parse_args()
    until = time.monotonic() + 60 * args.minutes
    found, rounds = {}, 0
    while time.monotonic() < until:
        number = random.randrange(2**32) if args.seed is None else args.seed
        failed = one_round(number)
        rounds += 1
        if failed is not None:
            steps, error = failed
            wanted = where(error)
            print(f"seed {number} failed: {wanted}", flush=True)
            if wanted not in found:
                steps = cut_down(steps, wanted, until=time.monotonic() + args.cut)
                found[wanted] = play(steps) or error
                print("\n".join(f"    {line}" for line in told(steps)))
                print("".join(traceback.format_exception(found[wanted])[-3:]), flush=True)
        if args.seed is not None:
            break
    print(f"{rounds} seeds, {rounds * _EXAMPLES} sequences, {len(found)} kinds of failures")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
