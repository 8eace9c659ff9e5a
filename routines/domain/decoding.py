"""What files of ours may hold once they were edited, torn or made by something else.

JSON has more than we write: `1e400` is read as infinity, `{}` stands where a text should, and ten
thousand brackets are too deep to read at all. Whoever decodes a file catches `UNREADABLE`.
"""

from datetime import datetime
from typing import Any

from routines.domain.names import OutOfReach, parse_instant

# What decoding nonsense raises. OverflowError: int() of infinity, an instant beyond all years;
# RecursionError: brackets without end.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
# More than anything counts to, and less than breaks a system call or takes for ever to print.
MOST = 2**63 - 1
# An offset leads over the edge of what a datetime can say beyond these; `zones` has the same ends.
_FIRST_YEAR, _LAST_YEAR = 4, 9997


def whole(value: Any, least: int = 0, most: int = MOST) -> int:
    """Return *value*, a whole number from *least* to *most*.

    Raises:
        ValueError: It is something else; True is no number either.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("no whole number in range")
    return value


def whole_or(value: Any, default: int) -> int:
    """Return *value* if it is a count, and else *default*."""
    try:
        return whole(value)
    except ValueError:
        return default


def is_amount(value: Any) -> bool:
    """Return whether *value* is a number that can be reckoned with: finite, and no truth value."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= MOST


def instant(value: Any) -> datetime:
    """Return the instant that `format_instant` wrote, one that every zone has a wall time for.

    Raises:
        ValueError, TypeError: It is something else.
    """
    found = parse_instant(value)
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise OutOfReach("too far away")
    return found


def instant_or_none(value: Any) -> datetime | None:
    """Return *value*, an instant as for `instant`, or None."""
    return None if value is None else instant(value)


def text(value: Any) -> str:
    """Return *value*, a text that can be written again.

    Raises:
        ValueError: It is something else, or holds half a surrogate pair.
    """
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - of a file, and not of a call
    value.encode()
    return value


def text_or_none(value: Any) -> str | None:
    """Return *value*, a text as for `text`, or None."""
    return None if value is None else text(value)
