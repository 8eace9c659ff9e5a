"""Rows under a head, in columns of a fixed width.

The layout is text first; colour comes last, around words that are already in their place, so that
a screen is the same with and without it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from routines.cli.escape import fit, pad, width

# A terminal narrower than its columns wraps: better than a column that says nothing.
_LEAST_REST = 8
# The mark and a space.
_MARK = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its head.
        least: Its width at least.
        most: It grows with what is in it up to here; None for `least`.
        gap: The spaces behind it.
        cut: Whether a longer cell is cut; else it pushes what is right of it.
        rest: Whether it takes what the others leave of the line; one column does.
    """

    title: str
    least: int
    most: int | None = None
    gap: int = 2
    cut: bool = True
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a mark (`!`, `*` or nothing) and a cell for each column."""

    cells: Sequence[str]
    mark: str = " "


def layout(columns: Sequence[Column], rows: Sequence[Row], *, total: int) -> list[str]:
    """Return the head and the rows, in lines of *total* columns."""
    sizes = [_size(column, index, rows) for index, column in enumerate(columns)]
    gaps = sum(column.gap for column in columns[:-1])
    taken = sum(size for size, column in zip(sizes, columns, strict=True) if not column.rest)
    left = max(total - _MARK - gaps - taken, _LEAST_REST)
    sizes = [left if c.rest else size for size, c in zip(sizes, columns, strict=True)]
    head = Row([column.title for column in columns])
    lines = [_render(row, columns, sizes, total) for row in (head, *rows)]
    return lines if any(column.title for column in columns) else lines[1:]


def _size(column: Column, index: int, rows: Sequence[Row]) -> int:
    if column.most is None:
        return column.least
    widest = max((width(row.cells[index]) for row in rows), default=0)
    return min(max(column.least, widest), column.most)


def _render(row: Row, columns: Sequence[Column], sizes: Sequence[int], total: int) -> str:
    text = f"{row.mark} "
    pushed = False
    last = len(columns) - 1
    for index, (column, size, cell) in enumerate(zip(columns, sizes, row.cells, strict=True)):
        # A row that is pushed keeps its cells apart and gives up being in line.
        room = max(total - width(text), _LEAST_REST) if pushed and index == last else size
        shown = fit(cell, room) if column.cut else cell
        pushed = pushed or width(shown) > size
        text += f"{shown}  " if pushed else pad(shown, size + column.gap)
    return text.rstrip()


# Words that stand out, by what they mean to a person.
_BAD = "failed|timed-out|interrupted|missed|lost|FAIL|broken|failing|NO SCHEDULER|no agent|parked"
_GOOD = "completed|ok"
_CALM = "skipped|paused|disabled|over|note"
_BUSY = "running|waiting|owed|buffered|retrying"
_CODES = ((_BAD, "31"), (_GOOD, "32"), (_BUSY, "36"), (_CALM, "33"))
_WORD = re.compile(
    "|".join(f"(?P<c{code}>(?<![\\w-])(?:{words})(?![\\w-]))" for words, code in _CODES)
)


def paint(lines: Iterable[str]) -> list[str]:
    """Return *lines* with the first telling word of each in its colour, for a terminal."""
    return [_WORD.sub(_coloured, text, count=1) for text in lines]


def _coloured(found: re.Match[str]) -> str:
    code = (found.lastgroup or "c0")[1:]
    return f"\x1b[{code}m{found[0]}\x1b[0m"
