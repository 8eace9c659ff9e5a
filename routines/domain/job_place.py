"""The order that jobs go in, as names that sort so: highest priority first, then arrival."""

import re
from dataclasses import dataclass

from routines.domain.names import key_of

# Ten digits tell any two; what sorts by a time in seconds fits too, until the year 2286.
HIGHEST_PRIORITY = 9_999_999_999
# A name has twelve digits for it.
HIGHEST_NUMBER = 999_999_999_999
# A part of a key tells sessions and lanes apart well enough to pass over names; then it is asked.
_SHORT = 16


def short_key(name: str) -> str:
    """Return what the name of a job in an order says of its session, or its lane."""
    return key_of(name)[:_SHORT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job stands in the order: all that choosing the next one has to know.

    Attributes:
        priority: Higher goes first.
        number: The order of arrival.
        key: Of its id: names its file.
        session: The beginning of its session's key: one that is busy is passed over unread.
        lane: The beginning of its lane's key; `-` without one.
    """

    priority: int
    number: int
    key: str
    session: str
    lane: str

    @property
    def order(self) -> tuple[int, int]:
        """What sorts places: highest priority first, then arrival."""
        return (-self.priority, self.number)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its path below an index. Every folder on the way is small, however many jobs there are.

        The priority counts downwards in ten digits and one more, in three parts, so that names
        sort as jobs go also where each has a priority of its own; the number in parts of 256.
        """
        down = f"{HIGHEST_PRIORITY - self.priority:012d}"
        return (
            down[:4],
            down[4:8],
            down[8:],
            f"{self.number >> 16:08d}",
            f"{self.number >> 8:010d}",
            self.name,
        )

    @property
    def name(self) -> str:
        """Its file name."""
        return f"{self.number:012d}~{self.key}~{self.session}~{self.lane}"


# The folders between the index and the names.
DEPTH = 5
_PLACE_NAME = re.compile(r"([0-9]{12})~([0-9a-f]{32})~([0-9a-f]{16})~([0-9a-f]{16}|-)", re.ASCII)
_DIGITS = re.compile(r"[0-9]{4,12}", re.ASCII)


def is_index_folder(name: str) -> bool:
    """Return whether a folder of an index may be called *name*."""
    return _DIGITS.fullmatch(name) is not None


def parse_place(parts: tuple[str, ...]) -> Place | None:
    """Return the place that `Place.parts` wrote, or None if it did not write *parts*."""
    found = _PLACE_NAME.fullmatch(parts[-1])
    if found is None or len(parts) != DEPTH + 1:
        return None
    try:
        priority = HIGHEST_PRIORITY - int("".join(parts[:3]))
    except ValueError:
        return None
    number, key, session, lane = found.groups()
    return Place(priority=priority, number=int(number), key=key, session=session, lane=lane)
