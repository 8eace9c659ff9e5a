"""Rows under a head, in columns of a fixed width.

The layout is text first; colour comes last, around words that are already in their place, so that
a screen is the same with and without it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from routines.cli.escape import fit, pad, width

# As little as says something of a text that is cut.
_LEAST_REST = 8
_DOTS = 3
# The mark and a space.
_MARK = 2
# Between cells that are not in line.
_GAP = 2


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
    """Return the head and the rows, in lines of *total* columns.

    A line is longer only where what is never cut, names above all, leaves no room: a terminal
    then wraps it.
    """
    sizes = _sizes(columns, rows, total)
    head = Row([column.title for column in columns])
    lines = [_render(row, columns, sizes, total) for row in (head, *rows)]
    return lines if any(column.title for column in columns) else lines[1:]


def _sizes(columns: Sequence[Column], rows: Sequence[Row], total: int) -> list[int]:
    """Return how wide each column is; what has grown gives way where the line is too short."""
    sizes = [_size(column, index, rows) for index, column in enumerate(columns)]
    left = total - _MARK - sum(column.gap for column in columns[:-1]) - sum(sizes)
    by_growth = sorted(range(len(columns)), key=lambda at: columns[at].least - sizes[at])
    # First what may be cut: the rows of the others fall out of line.
    for at in sorted(by_growth, key=lambda at: not columns[at].cut):
        if left < 0:
            given = min(sizes[at] - columns[at].least, -left)
            sizes[at] -= given
            left += given
    return [size + max(left, 0) if c.rest else size for size, c in zip(sizes, columns, strict=True)]


def _size(column: Column, index: int, rows: Sequence[Row]) -> int:
    if column.most is None:
        return _LEAST_REST if column.rest else column.least
    widest = max((width(row.cells[index]) for row in rows), default=0)
    return min(max(column.least, widest), column.most)


def _render(row: Row, columns: Sequence[Column], sizes: Sequence[int], total: int) -> str:
    text = f"{row.mark} "
    for index, (column, size, cell) in enumerate(zip(columns, sizes, row.cells, strict=True)):
        shown = fit(cell, size) if column.cut else cell
        if width(shown) > size:
            rest = slice(index, None)
            from_here = text + _squeezed(
                columns[rest], row.cells[rest], sizes[rest], total - width(text)
            )
            if width(from_here) <= total:
                return from_here
            # Nothing is in line then, from its beginning.
            return text[:_MARK] + _squeezed(columns, row.cells, sizes, total - _MARK)
        text += pad(shown, size + column.gap)
    return text.rstrip()


def _squeezed(
    columns: Sequence[Column], cells: Sequence[str], usual: Sequence[int], room: int
) -> str:
    """Return cells side by side in *room* columns, what may be cut as short as it takes."""
    sizes = [
        min(width(cell), size) if column.cut and not column.rest else width(cell)
        for column, cell, size in zip(columns, cells, usual, strict=True)
    ]
    # The long text gives way first, and what is left of a cell is some of it, or nothing.
    for least, rest in ((_LEAST_REST, True), (_DOTS, False), (_DOTS, True), (0, True), (0, False)):
        for at in sorted(range(len(cells)), key=lambda at: (-sizes[at], -at)):
            over = _taken(sizes) - room
            if over > 0 and columns[at].cut and columns[at].rest is rest and sizes[at] > least:
                sizes[at] = max(sizes[at] - over, least) if least else 0
    if _taken(sizes) > room:
        # Too long whatever is left out: then it wraps, and says what it can.
        sizes = [
            min(width(cell), size) if column.cut else width(cell)
            for column, cell, size in zip(columns, cells, usual, strict=True)
        ]
    shown = [fit(cell, size) for cell, size in zip(cells, sizes, strict=True)]
    return (" " * _GAP).join(cell for cell in shown if cell)


def _taken(sizes: Sequence[int]) -> int:
    shown = [size for size in sizes if size]
    return sum(shown) + _GAP * (len(shown) - 1)


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
