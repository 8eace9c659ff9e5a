"""What a single value may be: text, one of a few words, a number, a span.

A kind's `read` returns the value, or None after it has reported why there is none: no kind has
None for a value. Kinds that are made of others are in `walker`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from routines.config.mistakes import in_quotes, quoted
from routines.config.report import Report, near, shown
from routines.config.tree import Node, Scalar, Unusable
from routines.domain.durations import format_span, parse_span
from routines.errors import InvalidSpan, RoutinesError


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
