"""Checks a tree against a table of keys, and finds everything that is wrong at once.

A table is a sequence of `Key`; its kind says what the value must be. The JSON Schema and the
reference in docs/reference/yaml.md are made from, or compared with, the same tables.

A kind's `read` returns the value, or None after it has reported why there is none: no kind has
None for a value.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Protocol

from routines.config.reader import Document, Mapping, Node, Scalar, Unusable, in_quotes, quoted
from routines.config.reader import Sequence as List
from routines.domain.durations import format_span, parse_span
from routines.errors import InvalidSpan, Problem, RoutinesError

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
    close = get_close_matches(word.casefold(), list(by_folded), n=1)
    return f"did you mean {by_folded[close[0]]!r}?" if close else None


class Kind(Protocol):
    """What a value may be."""

    @property
    def expected(self) -> str:
        """Return what problems say was expected."""

    def read(self, node: Node, key: str, report: Report) -> Any:
        """Return the value at *node*, or None after reporting what is wrong with it."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of such a value."""


# A value is used by a program as `True`; raising a RoutinesError says what is wrong with it.
Convert = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Text:
    """Text, as it was written: no word means anything but itself.

    Attributes:
        expected: What problems say was expected.
        convert: Makes the value of the text, or raises a RoutinesError.
        prose: A sentence: a `#` after a space was probably meant as text.
        empty: Whether "" is a value.
        tilde: Whether an unquoted `~` is a value (a folder) and not nothing.
        pattern: For the JSON Schema only.
    """

    expected: str = "text"
    convert: Convert | None = None
    prose: bool = False
    empty: bool = False
    tilde: bool = False
    pattern: str | None = None

    def read(self, node: Node, key: str, report: Report) -> Any:
        """Return the text, or what `convert` makes of it."""
        if isinstance(node, Unusable):
            return None
        text = self._text(node)
        if not isinstance(node, Scalar) or text is None:
            cure = None if isinstance(node, Scalar) else in_quotes(report.document.source, node)
            report.refuse(node, key, f"expected {self.expected}", cure)
            return None
        if "\0" in text:
            report.refuse(node, key, "a NUL character can't be handed to a program")
            return None
        if self.prose and not _keeps_its_end(node, key, report):
            return None
        if self.convert is None:
            return text
        try:
            return self.convert(text)
        except RoutinesError as error:
            report.refuse(node, key, error.message, error.hint)
            return None

    def _text(self, node: Node) -> str | None:
        if not isinstance(node, Scalar):
            return None
        if node.nothing and not (self.tilde and node.text == "~"):
            return None
        return node.text if node.text or self.empty else None

    def schema(self) -> dict[str, Any]:
        """Return the type, and the pattern if there is one."""
        schema: dict[str, Any] = {"type": "string"}
        if not self.empty:
            schema["minLength"] = 1
        if self.pattern is not None:
            schema["pattern"] = self.pattern
        return schema


def _keeps_its_end(node: Scalar, key: str, report: Report) -> bool:
    """Report a sentence whose end YAML takes for a comment: `prompt: look at #12`."""
    comment = report.document.comment_after(node)
    # A comment is written with a space after its sign, a number or a channel without.
    if comment is None or comment[1:2] in {"", " ", "\t", "#"}:
        return True
    message = f"YAML takes {shown(comment)!r} for a comment: put the whole value in quotes"
    report.refuse(node, key, message, f"{key}: {quoted(f'{node.text} {comment}')}")
    return False


@dataclass(frozen=True, slots=True)
class Word:
    """One of a few words.

    Attributes:
        words: All that are known.
        foreign: Words of other tools, and what ours is for the same thing.
    """

    words: tuple[str, ...]
    foreign: dict[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """Return `skip, buffer-one or supersede`."""
        *most, last = self.words
        return f"{', '.join(most)} or {last}" if most else last

    def read(self, node: Node, key: str, report: Report) -> str | None:
        """Return the word."""
        if isinstance(node, Unusable):
            return None
        if isinstance(node, Scalar) and not node.nothing:
            if node.text in self.words:
                return node.text
            folded = node.text.casefold()
            cure = self.foreign.get(folded) or near(folded, self.words)
        else:
            cure = None
        report.refuse(node, key, f"expected {self.expected}", cure)
        return None

    def schema(self) -> dict[str, Any]:
        """Return the enumeration."""
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    expected: str = "true or false"

    def read(self, node: Node, key: str, report: Report) -> bool | None:
        """Return the value; `yes`, `no`, `on` and `off` are asked to be written out."""
        if isinstance(node, Unusable):
            return None
        if isinstance(node, Scalar) and node.plain and node.text in {"true", "false"}:
            return node.text == "true"
        meant = _TRUTHS.get(node.text.casefold()) if isinstance(node, Scalar) else None
        report.refuse(
            node, key, f"expected {self.expected}", f"write `{key}: {meant}`" if meant else None
        )
        return None

    def schema(self) -> dict[str, Any]:
        """Return the type."""
        return {"type": "boolean"}


_TRUTHS = {
    **dict.fromkeys(["true", "yes", "y", "on", "1"], "true"),
    **dict.fromkeys(["false", "no", "n", "off", "0"], "false"),
}
_WHOLE = r"0|[1-9][0-9]{0,17}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds."""

    least: int = 0
    most: int | None = None

    @property
    def expected(self) -> str:
        """Return the bounds in words."""
        if self.most is None:
            return f"a whole number of at least {self.least}"
        return f"a whole number from {self.least} to {self.most}"

    def read(self, node: Node, key: str, report: Report) -> int | None:
        """Return the number; `010` is refused, since programs disagree on what it is."""
        if isinstance(node, Unusable):
            return None
        cure = None
        if isinstance(node, Scalar) and re.fullmatch(_WHOLE, node.text):
            number = int(node.text)
            within = self.least <= number and (self.most is None or number <= self.most)
            if node.plain and within:
                return number
            cure = None if node.plain else f"write `{key}: {node.text}`, without quotes"
        report.refuse(node, key, f"expected {self.expected}", cure)
        return None

    def schema(self) -> dict[str, Any]:
        """Return the type and the bounds."""
        schema: dict[str, Any] = {"type": "integer", "minimum": self.least}
        if self.most is not None:
            schema["maximum"] = self.most
        return schema


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of at least zero, with or without a fraction."""

    expected: str = "a number of at least 0"

    def read(self, node: Node, key: str, report: Report) -> float | None:
        """Return the number."""
        if isinstance(node, Unusable):
            return None
        if isinstance(node, Scalar) and node.plain and re.fullmatch(_AMOUNT, node.text):
            return float(node.text)
        report.refuse(node, key, f"expected {self.expected}")
        return None

    def schema(self) -> dict[str, Any]:
        """Return the type and the bound."""
        return {"type": "number", "minimum": 0}


_AMOUNT = r"[0-9]{1,12}(\.[0-9]{1,9})?"


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time with its unit.

    Attributes:
        least: The shortest that makes sense.
        zero: Whether a bare `0` is a value too.
    """

    least: timedelta = timedelta(0)
    zero: bool = False
    expected: str = "a span like 90s, 30m or 1h30m"

    def read(self, node: Node, key: str, report: Report) -> timedelta | None:
        """Return the span; a bare number is asked for its unit."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, Scalar) or node.nothing:
            report.refuse(node, key, f"expected {self.expected}")
            return None
        if self.zero and node.text == "0":
            return timedelta(0)
        try:
            span = parse_span(node.text)
        except InvalidSpan as error:
            report.refuse(node, key, f"expected {self.expected}", error.hint)
            return None
        if span < self.least:
            report.refuse(node, key, f"expected at least {format_span(self.least)}")
            return None
        return span

    def schema(self) -> dict[str, Any]:
        """Return the pattern of `domain.durations`."""
        schema: dict[str, Any] = {"type": "string", "pattern": "^([0-9]{1,9}[smhdw])+$"}
        return {"anyOf": [schema, {"const": 0}]} if self.zero else schema


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


_PLAIN_WORD = r"[A-Za-z0-9_./~][A-Za-z0-9_./=~+-]*|-{1,2}[A-Za-z][A-Za-z0-9_./=-]*"


def flow_word(text: str) -> str:
    """Return *text* as it is written between brackets, in quotes unless it is plainly a word."""
    return text if re.fullmatch(_PLAIN_WORD, text) else quoted(text)


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
    value: Kind = Text(empty=True)

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
        later: It is validated, and then refused: no part of it is built yet.
        built: The values that are built, where others are not yet; empty for all.
    """

    name: str
    kind: Kind
    meaning: str
    default: str = ""
    required: bool = False
    later: bool = False
    built: tuple[Any, ...] = ()


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
        if value is not None and _is_built(key, value, place, node, report, name=prefix + name):
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


def _is_built(
    key: Key, value: Any, place: Scalar, node: Node, report: Report, *, name: str
) -> bool:
    if key.later:
        message = f"`{name}` is not built yet in this version"
        report.add(place, name, message, "remove the key")
        return False
    if key.built and value not in key.built:
        words = " or ".join(_as_written(value) for value in key.built)
        cure = f"write {words}, or remove the key"
        report.refuse(node, name, "is not built yet in this version", cure)
        return False
    return True


def _as_written(value: Any) -> str:
    return format_span(value) if isinstance(value, timedelta) else str(value)


def _as_json(values: tuple[Any, ...]) -> list[Any]:
    """Return values as they stand in a file; no time at all is also a bare 0."""
    written = [_as_written(v) if isinstance(v, timedelta) else v for v in values]
    return [0, *written] if timedelta(0) in values else written


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
    if key.later:
        return {"description": f"Not built yet in this version. {meaning}", "not": {}}
    if key.built:
        return {"description": meaning, "enum": _as_json(key.built)}
    return {"description": meaning, **key.kind.schema()}
