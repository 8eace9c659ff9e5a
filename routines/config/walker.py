"""Checks a tree against a table of keys, and finds everything that is wrong at once.

A table is a sequence of `Key`; its kind says what the value must be: a single one, or lists and
mappings of them. The JSON Schema and the reference in docs/reference/yaml.md are made from, or
compared with, the same tables.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from routines.config.mistakes import quoted
from routines.config.report import Report, near, shown
from routines.config.single import Kind, Text
from routines.config.tree import Mapping, Node, Scalar, Unusable
from routines.config.tree import Sequence as List
from routines.errors import RoutinesError

_PLAIN_WORD = r"[A-Za-z0-9_./~][A-Za-z0-9_./=~+-]*|-{1,2}[A-Za-z][A-Za-z0-9_./=-]*"


def flow_word(text: str) -> str:
    """Return *text* as it is written between brackets, in quotes unless it is plainly a word."""
    return text if re.fullmatch(_PLAIN_WORD, text) else quoted(text)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind.

    Attributes:
        kind: Of each value.
        what: The plural, for problems.
        least: How many there must be.
        alone: Whether one value may stand without the list.
        cure: Says how a value that is no list is written as one.
    """

    kind: Kind
    what: str = "texts"
    least: int = 0
    alone: bool = False
    cure: Callable[[str, str], str] | None = None

    @property
    def expected(self) -> str:
        """Return `a list of words`, or also the single value where that is allowed."""
        listed = f"a list of {self.what}"
        return f"{self.kind.expected}, or {listed}" if self.alone else listed

    def read(self, node: Node, key: str, report: Report) -> tuple[Any, ...] | None:
        """Return the values; None if any of them is wrong."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, List):
            if self.alone and isinstance(node, Scalar) and not node.nothing:
                value = self.kind.read(node, key, report)
                return None if value is None else (value,)
            report.refuse(node, key, f"expected {self.expected}", self._as_list(node, key))
            return None
        if len(node.items) < self.least:
            report.add(node, key, f"{key}: []   expected {self.expected}, at least {self.least}")
            return None
        values = [self.kind.read(item, key, report) for item in node.items]
        return None if any(value is None for value in values) else tuple(values)

    def _as_list(self, node: Node, key: str) -> str | None:
        if not isinstance(node, Scalar) or node.nothing or "\n" in node.text:
            return None
        return self.cure(key, node.text) if self.cure else f"{key}: [{flow_word(node.text)}]"

    def schema(self) -> dict[str, Any]:
        """Return the array, and the single value where that is allowed."""
        array: dict[str, Any] = {"type": "array", "items": self.kind.schema()}
        if self.least:
            array["minItems"] = self.least
        return {"anyOf": [self.kind.schema(), array]} if self.alone else array


_ANY_TEXT = Text(empty=True)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Texts by name: environment variables, paths into an output.

    Attributes:
        name: Checks a name, by raising a RoutinesError.
        names: The only names, if they are few.
        value: The kind of each value.
    """

    expected: str = "names with values, like {NAME: value}"
    name: Callable[[str], Any] | None = None
    names: tuple[str, ...] | None = None
    value: Kind = _ANY_TEXT

    def read(self, node: Node, key: str, report: Report) -> dict[str, str] | None:
        """Return the texts by name; None if any is wrong."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, Mapping):
            report.refuse(node, key, f"expected {self.expected}")
            return None
        pairs = {
            name: self.value.read(value, f"{key}.{shown(name)}", report)
            for name, (place, value) in node.entries.items()
            if self._is_name(place, key, report)
        }
        whole = len(pairs) == len(node.entries) and None not in pairs.values()
        return pairs if whole else None

    def _is_name(self, place: Scalar, key: str, report: Report) -> bool:
        if self.names is not None and place.text not in self.names:
            unknown_key(place, f"{key}.{shown(place.text)}", self.names, report)
            return False
        try:
            if self.name is not None:
                self.name(place.text)
        except RoutinesError as error:
            report.add(place, f"{key}.{shown(place.text)}", error.message, error.hint)
            return False
        return True

    def schema(self) -> dict[str, Any]:
        """Return the object; a number is as good as a text, since it stays what was written."""
        schema: dict[str, Any] = {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
        if self.names is not None:
            schema["propertyNames"] = {"enum": list(self.names)}
        return schema


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping with keys of its own; its value is a dict of those that were given."""

    keys: "tuple[Key, ...]"
    expected: str = "keys and values"

    def read(self, node: Node, key: str, report: Report) -> dict[str, Any] | None:
        """Return the values by key; None if any is wrong."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, Mapping):
            names = ", ".join(k.name for k in self.keys)
            report.refuse(node, key, f"expected {self.expected} ({names})")
            return None
        before = len(report.problems)
        values = read_table(node, self.keys, report, prefix=f"{key}.")
        return values.by_key if len(report.problems) == before else None

    def schema(self) -> dict[str, Any]:
        """Return the object."""
        return object_schema(self.keys)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A value of the first kind that fits its form: a word, or else keys and values."""

    word: Kind
    table: Kind

    @property
    def expected(self) -> str:
        """Return both, in words."""
        return f"{self.word.expected}, or {self.table.expected}"

    def read(self, node: Node, key: str, report: Report) -> Any:
        """Return what the kind for this form makes of it."""
        if isinstance(node, Mapping):
            return self.table.read(node, key, report)
        if isinstance(node, List):
            report.refuse(node, key, f"expected {self.expected}")
            return None
        return self.word.read(node, key, report)

    def schema(self) -> dict[str, Any]:
        """Return both."""
        return {"anyOf": [self.word.schema(), self.table.schema()]}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Attributes:
        name: As it is written.
        kind: What its value may be.
        meaning: One sentence, for the JSON Schema.
        default: What holds without it, as text.
        required: Whether it must be there.
    """

    name: str
    kind: Kind
    meaning: str
    default: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """What a mapping says.

    Attributes:
        by_key: The values that are right, by key.
        nodes: Where each value stands, right or wrong.
        lines: The line of each key.
    """

    by_key: dict[str, Any]
    nodes: dict[str, Node]
    lines: dict[str, int]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of *key*, or *default* where it is absent or wrong."""
        return self.by_key.get(key, default)


def read_table(
    mapping: Mapping,
    keys: Sequence[Key],
    report: Report,
    *,
    prefix: str = "",
    foreign: dict[str, str] | None = None,
) -> Values:
    """Return what *mapping* says by the table *keys*; problems go to *report*.

    Args:
        mapping: The keys and values of a file, or of a part of it.
        keys: The table.
        report: Where problems go.
        prefix: What the keys are named under in problems, with its dot.
        foreign: Keys of other tools, and what to write here.
    """
    known = {key.name: key for key in keys}
    values = Values({}, {}, {})
    for name, (place, node) in mapping.entries.items():
        key = known.get(name)
        if key is None:
            unknown_key(place, prefix + name, tuple(known), report, foreign)
            continue
        values.nodes[name] = node
        values.lines[name] = place.line
        value = key.kind.read(_placed(node, place), prefix + name, report)
        if value is not None:
            values.by_key[name] = value
    for key in keys:
        if key.required and key.name not in values.nodes:
            report.add(mapping, prefix + key.name, f"`{prefix}{key.name}` is missing")
    return values


def _placed(node: Node, place: Scalar) -> Node:
    """Return *node*; an empty one at its key, since its own place is somewhere below."""
    if isinstance(node, Scalar) and not node.text and node.plain:
        return Scalar("", place.line, place.column, plain=True, end=node.end)
    return node


def unknown_key(
    place: Scalar,
    name: str,
    known: Sequence[str],
    report: Report,
    foreign: dict[str, str] | None = None,
) -> None:
    """Report a key that no table has, with the near one."""
    last = place.text
    cure = (foreign or {}).get(last.casefold()) or near(last, known)
    if cure is None and len(known) <= 12:  # noqa: PLR2004 -- what fits a line of a terminal
        cure = f"known are {', '.join(known)}"
    where = name[: len(name) - len(last)] if name.endswith(last) else ""
    message = f"unknown key {shown(last)!r}" + (f" in {where[:-1]}" if where else "")
    report.add(place, name, message, cure)


def object_schema(keys: Sequence[Key]) -> dict[str, Any]:
    """Return the JSON Schema of a mapping with the keys of a table, and no others."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: key_schema(key) for key in keys},
        "additionalProperties": False,
    }
    required = [key.name for key in keys if key.required]
    if required:
        schema["required"] = required
    return schema


def key_schema(key: Key) -> dict[str, Any]:
    """Return the JSON Schema of one key, with what it means."""
    meaning = key.meaning + (f" Default: {key.default}." if key.default else "")
    return {"description": meaning, **key.kind.schema()}
