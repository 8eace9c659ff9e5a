"""Instants and spans as a person reads them, in one zone.

The head of a screen names its zone and offset once. A time there with another offset (the clock
has changed since, or changes before) carries its own.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from routines.domain.durations import humanize
from routines.domain.zones import offset_text

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# A day of the month alone (`Fri 27`) is unambiguous for less than the shortest month.
_SAME_MONTH = timedelta(days=27)
_WEEK = timedelta(days=6)
_CENT = 0.005


@dataclass(frozen=True, slots=True)
class Times:
    """How instants read on one screen.

    Attributes:
        zone: The zone of the head.
        now: The present.
    """

    zone: ZoneInfo
    now: datetime

    @property
    def head(self) -> str:
        """`Europe/Berlin (+01:00)`."""
        return f"{self.zone.key} ({self.offset(self.now)})"

    def here(self, instant: datetime) -> datetime:
        """Return *instant* as the clock of this screen shows it."""
        return instant.astimezone(self.zone)

    def offset(self, instant: datetime) -> str:
        """Return `+01:00`."""
        return offset_text(self.here(instant))

    def differs(self, instant: datetime) -> bool:
        """Return whether *instant* has another offset than the head says."""
        return self.here(instant).utcoffset() != self.here(self.now).utcoffset()

    def _with_offset(self, text: str, instant: datetime) -> str:
        return f"{text} {self.offset(instant)}" if self.differs(instant) else text

    def clock(self, instant: datetime) -> str:
        """Return `16:20`, with seconds if there are any."""
        here = self.here(instant)
        return f"{here:%H:%M:%S}" if here.second else f"{here:%H:%M}"

    def cell(self, instant: datetime) -> str:
        """Return `16:20`, `Mon 09:00`, `23 Nov 09:00` or `2025-11-23 09:00`: for narrow cells."""
        here, today = self.here(instant), self.here(self.now)
        if here.date() == today.date():
            text = f"{here:%H:%M}"
        elif abs(here.date() - today.date()) <= _WEEK:
            text = f"{_DAYS[here.weekday()]} {here:%H:%M}"
        elif here.year == today.year:
            text = f"{here.day} {_MONTHS[here.month - 1]} {here:%H:%M}"
        else:
            text = f"{here:%Y-%m-%d %H:%M}"
        return self._with_offset(text, instant)

    def row(self, instant: datetime, *, offset: bool = False) -> str:
        """Return `today 16:12`, `Fri 27 09:00`, ...: the first cell of `history` and `next`.

        Args:
            instant: When.
            offset: Whether the offset is said in any case.
        """
        here, today = self.here(instant), self.here(self.now)
        clock = self.clock(instant)
        if here.date() == today.date():
            text = f"today {clock}"
        elif abs(here.date() - today.date()) <= _SAME_MONTH:
            text = f"{_DAYS[here.weekday()]} {here.day:02} {clock}"
        else:
            text = f"{self.day(instant)} {clock}"
        return f"{text} {self.offset(instant)}" if offset else self._with_offset(text, instant)

    def day(self, instant: datetime) -> str:
        """Return `Fri 27 Nov`, with the year if it is another one."""
        here = self.here(instant)
        text = f"{_DAYS[here.weekday()]} {here.day} {_MONTHS[here.month - 1]}"
        return text if here.year == self.here(self.now).year else f"{text} {here.year}"

    def calendar(self, day: date) -> str:
        """Return a calendar day: `today`, `Fri 27`, `Fri 27 Nov 2025`."""
        today = self.here(self.now).date()
        if day == today:
            return "today"
        text = f"{_DAYS[day.weekday()]} {day.day:02}"
        if abs(day - today) <= _SAME_MONTH:
            return text
        return f"{text} {_MONTHS[day.month - 1]}" + (
            "" if day.year == today.year else f" {day.year}"
        )

    def sentence(self, instant: datetime) -> str:
        """Return `Fri 27 Nov 03:00`."""
        return self._with_offset(f"{self.day(instant)} {self.clock(instant)}", instant)

    def brief(self, instant: datetime) -> str:
        """Return `Fri 03:00` within a week, else as in a sentence."""
        here, today = self.here(instant), self.here(self.now)
        if abs(here.date() - today.date()) > _WEEK:
            return self.sentence(instant)
        text = f"{_DAYS[here.weekday()]} {self.clock(instant)}"
        return self._with_offset(text, instant)


def until(now: datetime, instant: datetime) -> str:
    """Return `12 m`, `16 h 42 m`, `117 d`: how far ahead, coarser the further."""
    span = instant - now
    if span < timedelta(minutes=1):
        return humanize(span)
    if span < timedelta(hours=48):
        return humanize(timedelta(minutes=span // timedelta(minutes=1)))
    if span < timedelta(days=10):
        return humanize(timedelta(hours=span // timedelta(hours=1)))
    return f"{span.days} d"


def since(now: datetime, instant: datetime) -> str:
    """Return how long ago, as `until` does for what is ahead."""
    return until(instant, now)


def took(span: timedelta | None) -> str:
    """Return `41 s`, `2 m 5 s`; `-` if it is not known."""
    return "-" if span is None else humanize(span)


def usd(amount: float | None) -> str:
    """Return `$0.08`, `-` if the agent reports no cost, `<$0.01` for less than a cent."""
    if amount is None:
        return "-"
    return "<$0.01" if 0 < amount < _CENT else f"${amount:,.2f}"
