"""How much a day may take: turns and money, of one routine or of all together (PROMISES L18)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain.record import Record
from routines.domain.zones import day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLimit:
    """The most that one calendar day may take.

    Attributes:
        turns: How many turns may start; None for any number.
        usd: What they may cost, as far as their agents say; None for no limit.
        routine: Whose turns count; None for all of the workspace.
        zone: Whose calendar day it is.
    """

    turns: int | None = None
    usd: float | None = None
    routine: str | None = None
    zone: str = "UTC"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {"turns": self.turns, "usd": self.usd, "routine": self.routine, "zone": self.zone}

    @property
    def words(self) -> str:
        """What it is the limit of, for a person."""
        return "of this routine" if self.routine is not None else "of the workspace"


def over_limit(
    limit: DayLimit, records: Iterable[Record], *, now: datetime, place: ZoneInfo
) -> str | None:
    """Return why one more turn would be over *limit*, in words, or None if it is not.

    Turns under way count as started; what they will cost is not known yet, so that they may pass
    the limit of money by their own cost.

    Args:
        limit: The limit.
        records: Those that may have started on this day; others are passed over.
        now: The present.
        place: The zone of the limit.
    """
    start, end = day_of(now, place)
    turns, usd = 0, 0.0
    for record in _under(limit, records):
        begun = sum(start <= at < end for at in record.starts)
        turns += begun
        if not begun:
            continue
        usage = record.usage
        usd += usage.get("usd", 0.0)
    if limit.turns is not None and turns >= limit.turns:
        return f"{turns} of {limit.turns} turns {limit.words} have started today"
    if limit.usd is not None and usd >= limit.usd:
        return f"${usd:.2f} of ${limit.usd:.2f} {limit.words} are spent today"
    return None


def turns_left(
    limit: DayLimit, records: Iterable[Record], *, now: datetime, place: ZoneInfo
) -> int | None:
    """Return how many more may be claimed for this day under *limit*; None for any number.

    What is claimed and about to start counts as started: claimed beside it, one that is less
    urgent could start first, and the other one would wait for another day.

    Args:
        limit: The limit; of its turns alone.
        records: As those of `over_limit`.
        now: The present.
        place: The zone of the limit.
    """
    if limit.turns is None:
        return None
    start, end = day_of(now, place)
    used = 0
    for record in _under(limit, records):
        used += sum(start <= at < end for at in record.starts)
        used += record.is_about_to_start
    return max(limit.turns - used, 0)


def _under(limit: DayLimit, records: Iterable[Record]) -> Iterable[Record]:
    return (one for one in records if limit.routine in (None, one.routine))
