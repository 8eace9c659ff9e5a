"""Benchmarks of `routines`: counts and ratios in one run, never times by themselves.

    python -m benchmarks [NAME...] [--full]

Each module measures one thing; its docstring says how. docs/performance.md has the last full run.
"""

NAMES = (
    "calls",
    "burst",
    "punctual",
    "wakeups",
    "jobs",
    "retained",
    "records",
    "commands",
    "turn_process",
    "idle",
)
