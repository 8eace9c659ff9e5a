"""Workspaces for benchmarks: many small routine files."""

import os

_FILE = """\
cron: "{minute} {hour} * * *"
prompt: |
  Look at what changed in part {index} since yesterday.
  Say what needs a person, in five lines.
tags: [benchmark, part-{part}]
"""


def make_workspace(root: str, count: int, *, hour: int = 3) -> None:
    """Write routines.yaml and *count* routine files, due once a day in the hour *hour*."""
    folder = os.path.join(root, "routines")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(root, "routines.yaml"), "w", encoding="utf-8") as file:
        file.write("agent: echo\ntz: UTC\n")
    for index in range(count):
        write_routine(root, index, minute=index % 60, hour=hour)


def write_routine(root: str, index: int, *, minute: int, hour: int) -> str:
    """Write one routine file, as an editor does: beside it, then in its place."""
    path = os.path.join(root, "routines", f"r{index:05}.yaml")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(_FILE.format(minute=minute, hour=hour, index=index, part=index % 7))
    os.replace(f"{path}.new", path)
    return path
