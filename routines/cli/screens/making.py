"""`init` and `new`: what was written, and what to do next."""

from routines.cli.escape import escape
from routines.cli.screens.words import word
from routines.cli.times import Times, until
from routines.operations.making import Made


def made_screen(made: Made, times: Times, *, first: bool) -> list[str]:
    """Return the screen.

    Args:
        made: What was written.
        times: How instants read.
        first: Whether it is a workspace that was made, not a routine.
    """
    lines = [f"Wrote {escape(path)}" for path in made.written]
    lines += [f"Kept  {escape(path)}, which was there" for path in made.kept]
    if made.next:
        lines += ["", f"{escape(made.routine)} is next due, in {times.head}:"]
        lines += [f"  {times.row(at)}   in {until(times.now, at)}" for at in made.next]
    else:
        lines += ["", f"{escape(made.routine)} has no schedule: it is run by name."]
    name = word(made.routine)
    if first:
        return [*lines, "", *_steps(name)]
    path = escape(f"routines/{made.routine}.yaml")
    return [*lines, "", f"Edit {path} to change it; routines check says if it is right."]


def _steps(name: str) -> list[str]:
    return [
        f"routines run {name}   # now, once, by hand",
        "routines start" + " " * len(name) + "  # from now on, at its times",
        f"routines history {name}",
    ]
