"""`check`: what is wrong, file by file, and the likely cure."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from routines.cli.escape import escape, line, pad, wrap
from routines.errors import Problem
from routines.operations.checking import Checked
from routines.operations.wake_tools_found import HOW_TO_GET_IT

_TEXT_AT = 8


def check_screen(found: Checked, *, width: int) -> list[str]:
    """Return the screen; problems stand last, nearest to the prompt."""
    lines = _by_file(found.remarks, width=width, word="note: ")
    if found.zone_note:
        lines += wrap(f"note: {line(found.zone_note)}", width, indent="  ")
    lack = None if found.wake_tools is None else found.wake_tools.lack
    if lack is not None:
        lines += wrap(f"note: {line(lack)}; {HOW_TO_GET_IT}", width, indent="  ")
    lines += _by_file(found.problems, width=width)
    for agent in found.unresolved:
        name = escape(agent.name) or "no agent"
        lines += wrap(f"{name}: {line(agent.problem or '')}", width, indent="  ")
        lines += wrap(f"  used by {escape(', '.join(agent.used_by))}", width, indent="    ")
    for target in found.targets:
        lines += wrap(f"{line(target.label)}: {line(target.problem)}", width, indent="  ")
        lines += wrap(f"  used by {escape(', '.join(target.used_by))}", width, indent="    ")
    return [*lines, *([""] if lines else []), _foot(found)]


def _by_file(problems: Iterable[Problem], *, width: int, word: str = "") -> list[str]:
    lines: list[str] = []
    for path, of_file in groupby(problems, key=attrgetter("path")):
        lines.append(escape(path))
        for problem in of_file:
            lines += _problem(problem, width=width, word=word)
    return lines


def _problem(problem: Problem, *, width: int, word: str) -> list[str]:
    place = ":".join(str(part) for part in (problem.line, problem.column) if part)
    # Our own words, with spaces that mean something: escaped, not folded.
    texts = [word + escape(problem.message)]
    if problem.cure:
        texts.append(escape(problem.cure))
    # On one line if both fit: it reads as one sentence.
    joined = "; ".join(texts)
    room = width - _TEXT_AT
    rows = [joined] if len(joined) <= room else [r for text in texts for r in wrap(text, room)]
    head = f"  {pad(place, 4)}  "
    return [(head if i == 0 else " " * len(head)) + row for i, row in enumerate(rows)]


def _foot(found: Checked) -> str:
    good = found.total - found.broken
    if found.broken:
        verb = "is" if found.broken == 1 else "are"
        text = (
            f"{found.broken} of {found.total} files {verb} broken; the other {good} can be armed."
        )
    elif found.problems:
        text = "routines.yaml can't be used, so nothing is armed."
    else:
        text = f"{_count(found.total, 'routine')}, {_state(found)}."
    names = [escape(agent.named) for agent in found.agents if not agent.problem]
    return text + (f" Agents: {', '.join(names)}." if names else "")


def _state(found: Checked) -> str:
    """Return what holds of files that are right: whether what they name is there too."""
    lack = [(len(found.unresolved), "agent"), (len(found.targets), "target")]
    words = [_count(count, what) for count, what in lack if count]
    if not words:
        return "all right"
    return f"no mistake in the files, but {' and '.join(words)} can't be used"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
