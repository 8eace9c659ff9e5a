"""The small language of `read:`: where in a program's JSON something stands.

    result                                      a key
    messages.-1.text                            the last element's
    item.text where item.type = agent_message   only in an event that says so
    sum of part.cost where type = step_finish   over all events, not the last one's
    stats.models.*.tokens.total                 of every element or value
    stop = error                                whether it is that word

The form alone is decided here; what is found goes through the checks of `agents.reading`.
"""

import re
from dataclasses import dataclass
from typing import Any

from routines.errors import InvalidName

MISSING: Any = object()

_FORM = re.compile(
    r"(?P<sum>sum of )?(?P<path>[^\s=]+)(?: ?= ?(?P<equals>[^\s=]+))?"
    r"(?: where (?P<where>[^\s=]+) ?= ?(?P<value>[^\s=]+))?"
)
EVERY = "*"


@dataclass(frozen=True, slots=True)
class OutputPath:
    """One place in a program's output.

    Attributes:
        words: Keys and indexes that lead there; `*` is every element or value.
        where: What else leads somewhere in the same event, or None.
        value: What has to stand there, as text.
        sums: Whether what several events say is added up; else the last one counts.
        equals: If not None, it is asked whether that is what stands there, as text.
    """

    words: tuple[str, ...]
    where: tuple[str, ...] | None = None
    value: str = ""
    sums: bool = False
    equals: str | None = None

    def of(self, event: Any) -> list[Any]:
        """Return what *event* has there: nothing, one value, or with `*` any number."""
        if self.where is not None:
            found = _at(event, self.where)
            if not any(_text(one) == self.value for one in found):
                return []
        there = [one for one in _at(event, self.words) if one is not None]
        return there if self.equals is None else [_text(one) == self.equals for one in there]


def parse_path(text: str) -> OutputPath:
    """Return the place that *text* names, or raise `InvalidName`."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidName(
            "expected a path like result.text", hint="or: item.text where item.type = message"
        )
    words = tuple(form["path"].split("."))
    where = None if form["where"] is None else tuple(form["where"].split("."))
    if not all(words) or not all(where or ("x",)):
        raise InvalidName("expected a dotted path, like result.text")
    return OutputPath(words, where, form["value"] or "", form["sum"] is not None, form["equals"])


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def _at(value: Any, words: tuple[str, ...]) -> list[Any]:
    found = [value]
    for word in words:
        found = [inner for one in found for inner in _step(one, word)]
    return found


def _step(value: Any, word: str) -> list[Any]:
    if isinstance(value, dict):
        if word in value:
            return [value[word]]
        return list(value.values()) if word == EVERY else []
    if isinstance(value, list):
        if word == EVERY:
            return value
        if _is_index(word) and -len(value) <= int(word) < len(value):
            return [value[int(word)]]
    return []


def _is_index(word: str) -> bool:
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < len("1000000")
