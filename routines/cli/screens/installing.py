"""`install` and `uninstall`: what was written where, and what is left to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from routines.cli.escape import line

if TYPE_CHECKING:
    from routines.operations.context import Context
    from routines.operations.installing import Installed


def installed_lines(context: "Context", found: "Installed") -> list[str]:
    """Return what came of an `install`."""
    where = "your crontab" if found.path is None else line(context.short(found.path))
    root = line(context.short(context.root.path))
    done = "wrote" if found.changed else "unchanged:"
    running = {True: " and started it", False: "; NOT started", None: ""}[found.running]
    lines = [f"{done} {where}{running}: the scheduler of {root}"]
    return [*lines, *(f"  {line(note)}" for note in found.notes)]


def uninstalled_lines(context: "Context", found: "Sequence[Installed]") -> list[str]:
    """Return what came of an `uninstall`."""
    if not found:
        return [f"Nothing of {line(context.short(context.root.path))} is installed."]
    lines = []
    for one in found:
        where = "the line of your crontab" if one.path is None else line(context.short(one.path))
        lines.append(f"removed {where}")
        lines += [f"  {line(note)}" for note in one.notes]
    return lines
