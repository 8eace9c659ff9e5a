"""Spans of time as text: one grammar for YAML, the command line and the tools."""

import math
import re
from datetime import timedelta

from routines.errors import InvalidSpan

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(?:[0-9]{1,9}[smhdw])+", re.ASCII)
_PART = re.compile(r"([0-9]+)([smhdw])", re.ASCII)
_BARE = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
# Longer than any absence; far below what a datetime can hold.
_LONGEST = timedelta(days=36600)


def parse_span(text: str) -> timedelta:
    """Return the span that *text* names: `90s`, `30m`, `2h`, `1d`, `1w`, `1h30m`.

    Raises:
        InvalidSpan: It is something else; a bare number is asked for its unit.
    """
    span = text.strip()
    if _BARE.fullmatch(span):
        raise InvalidSpan(f"{span}: {span} what?", hint=f'write "{span}s" or "{span}m"')
    if not _SPAN.fullmatch(span):
        raise InvalidSpan(
            f"{text[:60]!r} is no span of time", hint="write it like 90s, 30m, 2h, 1d, 1w or 1h30m"
        )
    parts = _PART.findall(span)
    units = [unit for _, unit in parts]
    if len(set(units)) != len(units):
        raise InvalidSpan(f"{text[:60]!r} names a unit twice", hint="write it like 1h30m")
    seconds = sum(int(count) * _SECONDS[unit] for count, unit in parts)
    if seconds > _LONGEST.total_seconds():
        raise InvalidSpan(f"{text[:60]!r} is longer than a hundred years")
    return timedelta(seconds=seconds)


def is_negative(text: str) -> bool:
    """Return whether *text* is a span with a minus before it, which no span is."""
    sign, _, span = text.strip().partition("-")
    return not sign and _SPAN.fullmatch(span) is not None


def format_span(span: timedelta) -> str:
    """Return *span* exactly, as `parse_span` reads it: `1h30m`; `0s` for none."""
    left = int(span.total_seconds())
    parts = []
    for unit in "wdhms":
        count, left = divmod(left, _SECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def shown_span(span: timedelta) -> str:
    """Return *span* as `format_span` does, and days where it is no whole number of weeks.

    `366d`, and not `52w2d`, which nobody has written; what is stored keeps its one spelling.
    """
    days, rest = divmod(span, timedelta(days=1))
    if not days % 7:
        return format_span(span)
    return f"{days}d{format_span(rest) if rest else ''}"


def format_limit(span: timedelta) -> str:
    """Return what is left of a limit as `format_span` does, a second begun counted as whole.

    What is left when a turn starts is a little less than the limit: cut off, 1 s would read `0s`.
    """
    return format_span(timedelta(seconds=math.ceil(span.total_seconds())))


def humanize(span: timedelta) -> str:
    """Return *span* for a person, with two units at most: `4 h 12 m`, `41 s`, `3 d 2 h`.

    Less than a second reads `0 s`; a negative span is shown by its length.
    """
    left = int(abs(span.total_seconds()))
    units = [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)]
    for index, (unit, size) in enumerate(units):
        if left >= size:
            count, rest = divmod(left, size)
            if index + 1 < len(units):
                smaller, smaller_size = units[index + 1]
                below = rest // smaller_size
                if below:
                    return f"{count} {unit} {below} {smaller}"
            return f"{count} {unit}"
    return "0 s"
