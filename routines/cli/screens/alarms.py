"""`wakeups`: what is pending."""

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

from routines.cli.escape import block, escape, line
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times, until
from routines.operations.alarms import AlarmList

if TYPE_CHECKING:
    from routines.domain.wakeup import Wakeup


# From here on there is room for who set each.
_WIDE = 120


def alarms_screen(found: AlarmList, times: Times, *, width: int) -> list[str]:
    """Return the list, next first."""
    head = f"times in {times.head}"
    if not found.wakeups:
        whose = "" if found.session is None else f" in {escape(found.session)}"
        return [head, "", f"No wake-ups are pending{whose}."]
    # Where agents set them: what a person has set, that person knows.
    wide = width >= _WIDE and any(one.created_in_turn for one in found.wakeups)
    columns = [
        Column("ID", 8, most=20, cut=False),
        Column("WHEN", 13, most=28, cut=False),
        Column("IN", 9, most=16, gap=1),
        Column("SESSION", 16, most=28),
        *([Column("SET BY", 10, most=34)] if wide else []),
        Column("PROMPT", 8, rest=True),
    ]
    rows = [_row(one, times, wide=wide) for one in found.wakeups]
    more = found.total - len(found.wakeups)
    foot = [f"{more} more: --session names those of one session"] if more > 0 else []
    count = f"{found.total} pending."
    return [head, "", *layout(columns, rows, total=width), "", *foot, count]


def _row(one: "Wakeup", times: Times, *, wide: bool) -> Row:
    ahead = _ahead(one, times)
    prompt = line(one.prompt)
    rule = f"[{rule_text(one)}] " if one.recurs else ""
    mark = "!" if one.deferred_since is not None else " "
    cells = [
        one.id,
        times.row(one.look_at.replace(second=0)) if one.paused_at is None else "paused",
        ahead,
        escape(one.session),
        *([escape(setter(one))] if wide else []),
        rule + prompt,
    ]
    return Row(cells, mark)


def _ahead(one: "Wakeup", times: Times) -> str:
    if one.paused_at is not None:
        return "-"
    if one.look_at > times.now:
        return until(times.now, one.look_at)
    # Nobody has come for it: no scheduler is alive, or its routine is paused.
    late = times.now - one.look_at >= timedelta(minutes=1)
    return f"{until(one.look_at, times.now)} late" if late else "now"


def setter(one: "Wakeup") -> str:
    """Return who set it: `user@host`, or the occurrence whose turn did."""
    if one.created_in_turn is None:
        return one.created_by
    # The workspace's id before it says nothing here.
    return one.created_in_turn.partition("/")[2] or one.created_in_turn


def rule_text(one: "Wakeup") -> str:
    """Return how it was asked for: `every 30m`, `cron 0 9 * * *`."""
    return line(f"{one.timing.value} {one.asked}")


def _next(one: "Wakeup", times: Times) -> str:
    if one.paused_at is not None:
        return f"paused since {times.sentence(one.paused_at)}"
    return f"next {times.sentence(one.look_at)}"


def alarm_screen(one: "Wakeup", times: Times, *, width: int) -> list[str]:  # noqa: ARG001
    """Return one wake-up whole."""
    count = f"{one.firings} time{'' if one.firings == 1 else 's'}"
    fired = f"; fired {count} so far" if one.recurs else ""
    lines = [
        f"{one.id}   {_next(one, times)} {times.head}",
        f"{rule_text(one)}; in {escape(one.session)}{fired}",
        f"set {times.sentence(one.created_at)} by {line(setter(one))}",
    ]
    if one.created_in_turn is not None:
        lines.append(f"that turn: routines show {shlex.quote(line(setter(one)))}")
    if one.changed_at is not None:
        what = f"revision {one.revision}, made {times.sentence(one.changed_at)}"
        lines.append(f"{what} by {line(one.changed_by or '?')}")
    if one.deferred_since is not None:
        lines.append(f"its session is busy since {times.sentence(one.deferred_since)}")
    lines += ["---- prompt", *block(one.prompt).rstrip("\n").split("\n")]
    return [*lines, f"Cancel: routines wakeups cancel {one.id}"]
