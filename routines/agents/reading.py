"""What a program's output says, by the places that `read:` and `read_stderr:` name.

All of it comes from a model or from a program that repeats one: each value is checked for its
type and bounded, and what does not fit is as if it had not been said.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from routines.agents.base import Usage
from routines.domain.agent import OutputFormat
from routines.domain.outcome import Warn, one_line
from routines.domain.output_path import MISSING, OutputPath, parse_path

Number = TypeVar("Number", int, float)

# One JSON document, or one line of JSON lines. A reply beside its statistics takes kilobytes;
# parsing takes many times the memory of the text, and this is still a bearable amount.
LARGEST_JSON = 8 * 1024 * 1024
# No program's id is longer; it is stored, shown, and given back as a word of a command.
_LONGEST_NATIVE_SESSION = 256
# As much of one that can't be used as a person needs to find where it comes from.
_SHOWN_NATIVE_SESSION = 80
# More tools than a person would read about in a warning.
_MOST_DENIED = 20
_LONGEST_TOOL = 40
# Above any bill or count that can be true. A larger number would spoil every sum it enters.
_MOST_USD, _MOST_TOKENS = 1e6, 10**12
# What is summed where the path leads to an object. Programs differ in the name; `input_tokens`
# of claude leaves out what was read from its cache, codex' `cached_input_tokens` is a part of it.
_TOKEN_KEYS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "prompt_tokens",
    "completion_tokens",
    "input",
    "output",
)


@dataclass(slots=True)
class Said:
    """What a program's output said.

    Attributes:
        values: What was found at each place of `read:` where anything was; with `*` several.
        problem: Why the output is not what the entry promises, or None.
        truncated: Whether a part of it was too long to be read.
    """

    values: dict[str, list[Any]] = field(default_factory=dict)
    problem: str | None = None
    truncated: bool = False

    def take(self, event: Any, paths: Mapping[str, OutputPath]) -> None:
        """Take in what *event* holds at *paths*; the last event that carries a path wins."""
        for key, path in paths.items():
            found = path.of(event)
            # Null carries nothing.
            if found:
                self.values[key] = self._added(key, path, found)

    def _added(self, key: str, path: OutputPath, found: list[Any]) -> list[Any]:
        if not path.sums:
            return found
        # One number at a time, so that an endless stream of events fills no memory.
        number = _usd if key.startswith("cost") else _tokens
        total = _sum_of(number, [*self.values.get(key, ()), *found])
        return [] if total is None else [total]

    def reply(self) -> str | None:
        """Return the reply, None if the output has none."""
        return _joined(self.values.get("reply", ()))

    def error(self) -> str | None:
        """Return what the output says went wrong, None if it says nothing."""
        return _joined(self.values.get("error", ()))

    def native_session(self) -> str | None:
        """Return the id of the conversation, None if there is none that could be given back."""
        return check_native_session(self._last("native_session"))

    def unusable_session(self) -> str | None:
        """Return how the id that was named and can't be used is shown, None if there is none."""
        return show_unusable_session(self._last("native_session"))

    def changed_session(self, asked: str | None, *, continues: bool = False) -> str | None:
        """Return what to say of a turn that went into another conversation, None if it did not.

        To adopt that one would lose the one that was asked for.

        Args:
            asked: The id that was asked for, None if none was.
            continues: Whether another id that can be given back is the same one, continued.
        """
        found, unusable = self.native_session(), self.unusable_session()
        if asked is None:
            return None
        if found not in (None, asked) and not continues:
            return f"asked for session {asked}, and it answered in {found}"
        if unusable is not None:
            return (
                f"asked for session {asked}, and it answered in {unusable},"
                " an id that can't be used"
            )
        return None

    def failed(self) -> str | None:
        """Return the failure that the program declared: its words, "" if it has none, or None."""
        value = next((one for one in self.values.get("failed", ()) if one), None)
        if value is None:
            return None
        return value if isinstance(value, str) else ""

    def denied(self, mask: Callable[[str], str]) -> str | None:
        """Return the warning about tools that were denied, `denied: Bash, Edit x2`, or None.

        *mask* takes secrets out of what the program calls them, before that is cut.
        """
        found = self.values.get("denied", [])
        value = found[0] if len(found) == 1 else found
        if not value:
            return None
        names = _tool_names(value, mask)
        return f"{Warn.DENIED}: {names}" if names else Warn.DENIED.value

    def usage(self) -> Usage | None:
        """Return cost and tokens as far as they are numbers that can be true."""
        usage = Usage(
            usd=_sum_of(_usd, self.values.get("cost", ())),
            usd_total=_sum_of(_usd, self.values.get("cost_total", ())),
            tokens=_sum_of(_tokens, self.values.get("tokens", ())),
            tokens_total=_sum_of(_tokens, self.values.get("tokens_total", ())),
        )
        return usage if usage.to_json() else None

    def add_stderr(self, text: str, read: Mapping[str, str]) -> None:
        """Take what `read_stderr:` names from the end of what was printed on stderr."""
        for key, prefix in read.items():
            line = next((one for one in reversed(text.splitlines()) if prefix in one), None)
            if line is None or key in self.values:
                continue
            rest = line.partition(prefix)[2].strip()
            value = _number_in(rest) if key in _NUMBERS else rest
            if value is not None:
                self.values[key] = [value]

    def _last(self, key: str) -> Any:
        found = self.values.get(key)
        return found[-1] if found else None


class Reader:
    """Reads one turn's stdout as it comes.

    Attributes:
        first_native_session: The first id that could be given back, as soon as it was read.
    """

    def __init__(self, output: OutputFormat, read: Mapping[str, str]) -> None:
        self.first_native_session: str | None = None
        self._output = output
        self._paths = {key: parse_path(path) for key, path in read.items()}
        self._pending = bytearray()
        self._skipping = False
        self._said = Said()
        self._events = 0
        self._bad_lines = 0

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        if self._output is OutputFormat.JSON:
            self._add(data)
        elif self._output is OutputFormat.JSONL:
            *ended, rest = data.split(b"\n")
            for part in ended:
                self._add(part)
                self._end_line()
            self._add(rest)

    def end(self) -> Said:
        """Return what the whole output said."""
        if self._output is OutputFormat.JSON:
            self._end_document()
        elif self._output is OutputFormat.JSONL:
            self._end_line()
            self._judge_lines()
        return self._said

    def _add(self, data: bytes) -> None:
        if len(self._pending) + len(data) > LARGEST_JSON:
            self._skipping = True
            self._pending.clear()
        if not self._skipping:
            self._pending += data

    def _end_line(self) -> None:
        line = bytes(self._pending).strip()
        self._pending.clear()
        if self._skipping:
            self._skipping = False
            self._said.truncated = True
            self._bad_lines += 1
        elif line:
            event = parse_json(line)
            # Programs mix plain notices among their events; those say nothing here.
            if isinstance(event, dict):
                self._events += 1
                self._take(event)
            else:
                self._bad_lines += 1

    def _judge_lines(self) -> None:
        if not self._events:
            self._said.problem = "not one line of stdout is a JSON object"
        elif self._bad_lines and "reply" in self._paths and "reply" not in self._said.values:
            self._said.problem = f"{self._bad_lines} lines of stdout can't be read, and no reply"

    def _end_document(self) -> None:
        if self._skipping:
            self._said.truncated = True
            self._said.problem = f"stdout is more than {LARGEST_JSON >> 20} MiB of JSON"
            return
        document = parse_json(bytes(self._pending))
        if document is MISSING:
            empty = not self._pending.strip()
            self._said.problem = "stdout is empty" if empty else "stdout is not JSON"
        else:
            self._take(document)

    def _take(self, event: Any) -> None:
        self._said.take(event, self._paths)
        if self.first_native_session is None:
            self.first_native_session = self._said.native_session()


def parse_json(data: bytes) -> Any:
    """Return the value that *data* is the JSON of, or `MISSING`, which nothing equals."""
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError, MemoryError):
        # Not JSON; nested a hundred thousand times; a number of five thousand digits.
        return MISSING


def check_native_session(value: Any) -> str | None:
    """Return *value* as the id of a conversation, None if it can't be one.

    It becomes a word of the next turn's command: with a dash in front it would be an option.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 1 << 64 else None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NATIVE_SESSION:
        return None
    fits = value.isprintable() and value == value.strip() and not value.startswith("-")
    return value if fits else None


def show_unusable_session(value: Any) -> str | None:
    """Return *value*, the id of a conversation, in one short line if it can't be given back.

    None if it can be, and if it is empty: then nothing was named.
    """
    if value in (None, "", False, [], {}) or check_native_session(value) is not None:
        return None
    if isinstance(value, str):
        # Cut before it is escaped: it may be megabytes.
        value = value[: _SHOWN_NATIVE_SESSION * 2].replace("\n", "\\n").replace("\r", "\\r")
        return one_line(value, most=_SHOWN_NATIVE_SESSION) or "blanks"
    return one_line(_as_text(value), most=_SHOWN_NATIVE_SESSION)


def _tool_names(value: Any, mask: Callable[[str], str]) -> str:
    if not isinstance(value, list):
        return one_line(mask(value), most=_LONGEST_TOOL) if isinstance(value, str) else ""
    counts: dict[str, int] = {}
    for entry in value:
        name = _tool_name(entry, mask)
        counts[name] = counts.get(name, 0) + 1
    words = [name if count == 1 else f"{name} x{count}" for name, count in counts.items()]
    more = len(words) - _MOST_DENIED
    return ", ".join(words[:_MOST_DENIED]) + (f" and {more} more" if more > 0 else "")


def _tool_name(entry: Any, mask: Callable[[str], str]) -> str:
    if isinstance(entry, dict):
        known = (entry.get(key) for key in ("tool_name", "tool", "name"))
        entry = next((name for name in known if isinstance(name, str)), None)
    name = one_line(mask(entry), most=_LONGEST_TOOL) if isinstance(entry, str) else ""
    return name or "a tool"


def _joined(values: Sequence[Any]) -> str | None:
    texts = [_as_text(one) for one in values if not isinstance(one, bool)]
    return "\n".join(texts) if texts else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_NUMBERS = ("tokens", "cost")


def _number_in(text: str) -> float | int | None:
    """Return the sum of the numbers in a line for people, `1,204 input, 33 output`."""
    plain = text.partition("{")[0].replace(",", "")
    found = re.findall(r"\d{1,15}(?:\.\d{1,9})?", plain)
    if not found:
        return None
    return sum(float(one) if "." in one else int(one) for one in found)


def _sum_of(number: Callable[[Any], Number | None], values: Sequence[Any]) -> Number | None:
    known = [one for one in map(number, values) if one is not None]
    return sum(known) if known else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _usd(value: Any) -> float | None:
    # The comparison also turns down NaN, and comes before float(): an int may be too large for it.
    if not _is_number(value) or not 0 <= value <= _MOST_USD:
        return None
    return float(value)


def _tokens(value: Any) -> int | None:
    if isinstance(value, dict):
        counts = [_tokens(value.get(key)) for key in _TOKEN_KEYS if _is_number(value.get(key))]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None
    if not _is_number(value) or not 0 <= value <= _MOST_TOKENS:
        return None
    return int(value)
