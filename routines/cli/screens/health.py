"""`doctor`: a line a subject."""

from routines.cli.escape import line, pad, wrap
from routines.cli.times import Times
from routines.operations.health import Finding, Health

_TEXT_AT = 18
WIDE = 120


def doctor_screen(found: Health, times: Times, *, width: int, foot: bool = True) -> list[str]:
    """Return the screen."""
    lines = [text for one in found.findings for text in _finding(one, times, width=width)]
    # Of a folder that was taken over only that was looked at.
    return [*lines, "", _foot(found)] if foot else lines


def _finding(one: Finding, times: Times, *, width: int) -> list[str]:
    own = times if one.zone is None else Times(one.zone, times.now)
    text = line(one.words(own.sentence))
    head = f"{pad(one.level.value, 4)}  {pad(one.subject, 10)}  "
    if width >= WIDE:
        hint = f"; {line(one.hint)}" if one.hint else ""
        return [head + text + hint]
    rows = [*wrap(text, width - _TEXT_AT)]
    if one.hint:
        rows += wrap(line(one.hint), width - _TEXT_AT)
    return [(head if i == 0 else " " * _TEXT_AT) + row for i, row in enumerate(rows)]


def _foot(found: Health) -> str:
    notes = f"{found.notes} note{'' if found.notes == 1 else 's'}"
    if not found.failed:
        return "All is well." if not found.notes else f"All is well; {notes}."
    return f"{found.failed} failed, {notes}."
