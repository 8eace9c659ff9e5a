"""What a file says, as a tree of text with places: what `reader` makes and all others read."""

from dataclasses import dataclass

from routines.errors import Problem

_NOTHING = frozenset(["", "~", "null", "Null", "NULL"])


class Scalar:
    """A single value: the text, and whether it stood without quotes.

    Attributes:
        text: As written, quotes and escapes resolved.
        plain: It had no quotes and was no block of text.
        line, column: Where it begins, counted from 1.
        end: Where it ends, as an offset into the text of the file.
    """

    __slots__ = ("column", "end", "line", "plain", "text")

    def __init__(self, text: str, line: int, column: int, *, plain: bool, end: int) -> None:
        self.text = text
        self.line = line
        self.column = column
        self.plain = plain
        self.end = end

    @property
    def nothing(self) -> bool:
        """Whether no value was written: an empty place, `null` or `~` without quotes."""
        return self.plain and self.text in _NOTHING


class Sequence:
    """A list of values."""

    __slots__ = ("column", "items", "line")

    def __init__(self, line: int, column: int) -> None:
        self.items: list[Node] = []
        self.line = line
        self.column = column


class Mapping:
    """Values by key; each key keeps its own place."""

    __slots__ = ("column", "entries", "line")

    def __init__(self, line: int, column: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.line = line
        self.column = column


class Unusable:
    """Stands where something was refused, so that the rest of the file is still checked."""

    __slots__ = ("column", "line")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column


Node = Scalar | Sequence | Mapping | Unusable


@dataclass(frozen=True, slots=True)
class Document:
    """What one file holds.

    Attributes:
        path: The file, as problems name it.
        source: Its text.
        root: Its keys; None if nothing could be made of it.
        problems: What was refused on the way.
    """

    path: str
    source: str
    root: Mapping | None
    problems: tuple[Problem, ...]

    def comment_after(self, node: Scalar) -> str | None:
        """Return the comment that ends the line of an unquoted *node*, or None."""
        line = self.source[node.end :].split("\n", 1)[0] if node.plain else ""
        rest = line.strip()
        return rest if rest.startswith("#") else None
