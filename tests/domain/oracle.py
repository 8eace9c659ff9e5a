"""What cron means, said a second time and as plainly as can be.

Real time is walked minute by minute and the clock on the wall is looked at; a wall time is never
turned into an instant. Fields are asked value by value. Nothing of the program is imported.
"""

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
NAMES = {
    3: [
        "",
        *(
            name.lower()
            for name in [
                "Jan",
                "Feb",
                "Mar",
                "Apr",
                "May",
                "Jun",
                "Jul",
                "Aug",
                "Sep",
                "Oct",
                "Nov",
                "Dec",
            ]
        ),
    ],
    4: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def _value(text: str, position: int) -> int:
    return NAMES[position].index(text) if text.isalpha() else int(text)


def _item_names(item: str, position: int, value: int) -> bool:
    lowest, highest = RANGES[position]
    size = highest - lowest + 1
    span, _, step = item.partition("/")
    every = int(step or 1)
    if span == "*":
        return (value - lowest) % every == 0
    if "-" not in span:
        start = _value(span, position)
        if not step or (position == 4 and start == 7):
            return value == start % 7 if position == 4 else value == start
        return value >= start and (value - start) % every == 0
    start, end = (_value(side, position) for side in span.split("-"))
    if position == 4:
        if (start, end) == (0, 7):
            return value % every == 0
        start, end = start % 7, end % 7
    distance = (value - start) % size
    return distance <= (end - start) % size and distance % every == 0


def field_names(text: str, position: int, value: int) -> bool:
    return any(_item_names(item, position, value) for item in text.split(","))


def _weekday_names(text: str, day: date) -> bool:
    weekday = (day.weekday() + 1) % 7
    same = [
        other
        for week in calendar.monthcalendar(day.year, day.month)
        if (other := week[day.weekday()])
    ]
    for item in text.split(","):
        if "#" in item:
            name, _, nth = item.partition("#")
            if _value(name, 4) % 7 == weekday and same.index(day.day) + 1 == int(nth):
                return True
        elif item[-1] == "L":
            if _value(item[:-1], 4) % 7 == weekday and same[-1] == day.day:
                return True
        elif _item_names(item, 4, weekday):
            return True
    return False


def _date_names(text: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    return any(
        day.day == last if item == "L" else _item_names(item, 2, day.day)
        for item in text.split(",")
    )


def names_day(expression: str, day: date) -> bool:
    _, _, dates, months, weekdays = expression.split()
    if not field_names(months, 3, day.month):
        return False
    by_date, by_weekday = _date_names(dates, day), _weekday_names(weekdays, day)
    if dates[0] == "*" or weekdays[0] == "*":
        return by_date and by_weekday
    return by_date or by_weekday


@dataclass
class Window:
    """A few days of one zone: each real minute, and what the clock shows."""

    place: ZoneInfo
    first: datetime
    last: datetime

    def __post_init__(self) -> None:
        count = (self.last - self.first) // MINUTE + 1
        self.instants = [self.first + n * MINUTE for n in range(count)]
        self.walls = [t.astimezone(self.place).replace(tzinfo=None) for t in self.instants]

    def slots(self, expression: str) -> list[datetime]:
        minutes, hours, *_ = expression.split()
        at_minute = [field_names(minutes, 0, value) for value in range(60)]
        at_hour = [field_names(hours, 1, value) for value in range(24)]
        on_day: dict[date, bool] = {}

        def named(wall: datetime) -> bool:
            if not (at_minute[wall.minute] and at_hour[wall.hour]):
                return False
            day = wall.date()
            if day not in on_day:
                on_day[day] = names_day(expression, day)
            return on_day[day]

        if minutes[0] == "*" or hours[0] == "*":
            return [t for t, wall in zip(self.instants, self.walls, strict=True) if named(wall)]
        return self._fixed(named)

    def _fixed(self, named) -> list[datetime]:
        found, shown = [], set()
        before = self.walls[0] - MINUTE
        for instant, wall in zip(self.instants, self.walls, strict=True):
            skipped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE)]
            made_up = len(skipped) <= 180 and any(named(gone) for gone in skipped)
            if made_up or (wall not in shown and named(wall)):
                found.append(instant)
            shown.add(wall)
            before = wall
        return found


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
