"""Wake-ups and their times in a few words, as refusals and lists show them."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from routines.domain.durations import parse_span, shown_span
from routines.domain.outcome import one_line
from routines.domain.wakeup import Timing, Wakeup
from routines.domain.zones import day_text, offset_text, shown

# Enough to recognise a wake-up by; short enough for one line beside an id and a time.
_START_OF_PROMPT = 29


def now_text(now: datetime, place: ZoneInfo) -> str:
    """Return `Sun 29 Nov 16:18 +01:00 Europe/Berlin`."""
    local = now.astimezone(place)
    return f"{short_day(local)} {local:%H:%M} {offset_text(local)} {place.key}"


def short_day(local: datetime) -> str:
    """Return `Sun 29 Nov` for the day that *local* shows."""
    return day_text(local).rpartition(" ")[0]


def period_of(wakeup: Wakeup) -> str | None:
    """Return the span between its firings as its schedule has it, or None."""
    return (wakeup.schedule or {}).get("every")


def pending_line(wakeup: Wakeup, *, now: datetime, place: ZoneInfo) -> str:
    """Return `  w-9d2c41  16:21  "check the deploy again and..."`."""
    often = f"  {rule_text(wakeup)}" if wakeup.recurs else ""
    when = when_text(wakeup.next_at, now=now, place=place)
    if wakeup.paused_at is not None:
        when = "paused"
    return f'  {wakeup.id}  {when}{often}  "{one_line(wakeup.prompt, most=_START_OF_PROMPT)}"'


def rule_text(wakeup: Wakeup) -> str:
    """Return `every 30m` or `cron 0 9 * * 1-5`."""
    if wakeup.timing is Timing.EVERY:
        return f"every {shown_span(parse_span(period_of(wakeup) or '0s'))}"
    return f"{wakeup.timing.value} {wakeup.asked}"


def when_text(instant: datetime, *, now: datetime, place: ZoneInfo) -> str:
    """Return `16:20` for today, `Mon 09:00` within a week, `23 Nov 09:00`, `2025-11-23 09:00`."""
    local, today = shown(instant, place), shown(now, place)
    clock = f"{local:%H:%M}"
    if local.date() == today.date():
        return clock
    if abs(local.date() - today.date()) < timedelta(days=7):
        return f"{day_text(local)[:3]} {clock}"
    if local.year == today.year:
        return f"{short_day(local)[4:]} {clock}"
    return f"{local:%Y-%m-%d} {clock}"
