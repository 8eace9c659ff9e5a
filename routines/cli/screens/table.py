"""Rows under a head, in columns of a fixed width.

The layout is text first; colour comes last, around words that are already in their place, so that
a screen is the same with and without it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from routines.cli.escape import fit, pad, width

# A terminal narrower than its columns wraps: better than a last column that says nothing.
_LEAST_LAST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its head.
        least: Its width at least.
        most: It grows with what is in it up to here; None for `least`.
        gap: The spaces behind it.
        cut: Whether a longer cell is cut; else it pushes what is right of it.
    """

    title: str
    least: int
    most: int | None = None
    gap: int = 2
    cut: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a mark (`!`, `*` or nothing) and a cell for each column."""

    cells: Sequence[str]
    mark: str = " "


def layout(columns: Sequence[Column], rows: Sequence[Row], *, total: int) -> list[str]:
    """Return the head and the rows, the last column as wide as what is left of *total*."""
    sized = [_size(column, index, rows) for index, column in enumerate(columns)]
    taken = sum(size + column.gap for size, column in zip(sized, columns[:-1], strict=False))
    sized[-1] = max(total - 2 - taken, _LEAST_LAST)
    head = Row([column.title for column in columns])
    lines = [_render(row, columns, sized, total) for row in (head, *rows)]
    return lines if any(column.title for column in columns) else lines[1:]


def _size(column: Column, index: int, rows: Sequence[Row]) -> int:
    if column.most is None:
        return column.least
    widest = max((width(row.cells[index]) for row in rows), default=0)
    return min(max(column.least, widest), column.most)


def _render(row: Row, columns: Sequence[Column], sizes: Sequence[int], total: int) -> str:
    parts = [f"{row.mark} "]
    pushed = False
    for column, size, cell in zip(columns[:-1], sizes[:-1], row.cells[:-1], strict=True):
        text = fit(cell, size) if column.cut else cell
        # A row that is pushed keeps its cells apart and gives up being in line.
        pushed = pushed or width(text) > size
        parts.append(f"{text}  " if pushed else pad(text, size + column.gap))
    so_far = "".join(parts)
    room = max(total - width(so_far), _LEAST_LAST) if pushed else sizes[-1]
    last = fit(row.cells[-1], room) if columns[-1].cut else row.cells[-1]
    return (so_far + last).rstrip()


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
