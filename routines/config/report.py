"""How is it said what is wrong in a file: where it stands, what was found there, what is near."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from routines.config.tree import Document, Mapping, Node, Scalar
from routines.config.tree import Sequence as List
from routines.errors import Problem, nearest

_LONGEST_SHOWN = 40
_NO_VALUE = "nothing"


@dataclass(slots=True)
class Report:
    """Collects the problems of one file."""

    document: Document
    problems: list[Problem] = field(default_factory=list)

    def add(self, node: Node, key: str | None, message: str, cure: str | None = None) -> None:
        """Record that the value at *node* is wrong, in words of our own."""
        path = self.document.path
        self.problems.append(Problem(path, node.line, node.column, key, message, cure))

    def refuse(self, node: Node, key: str, reason: str, cure: str | None = None) -> None:
        """Record `key: what was found   reason`."""
        self.add(node, key, f"{key}: {found(node)}   {reason}", cure)


def found(node: Node) -> str:
    """Return what stands at *node*, in one short line."""
    if isinstance(node, Scalar):
        if node.nothing:
            return node.text or _NO_VALUE
        return shown(node.text) or '""'
    if isinstance(node, List):
        return "a list"
    return "keys and values" if isinstance(node, Mapping) else "?"


def shown(text: str) -> str:
    """Return *text* in one short line that is safe to print."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return line if len(line) <= _LONGEST_SHOWN else line[: _LONGEST_SHOWN - 3] + "..."


def near(word: str, known: Sequence[str]) -> str | None:
    """Return the hint `did you mean 'x'?` if *word* is a slip of a known one."""
    by_folded = {name.casefold(): name for name in known}
    close = nearest(word.casefold(), by_folded)
    return f"did you mean {by_folded[close]!r}?" if close else None
