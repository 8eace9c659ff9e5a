"""`wakeups`: what is pending."""

from datetime import timedelta
from typing import TYPE_CHECKING

from routines.cli.escape import block, escape, line
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times, until
from routines.operations.alarms import AlarmList

if TYPE_CHECKING:
    from routines.domain.wakeup import Wakeup


def alarms_screen(found: AlarmList, times: Times, *, width: int) -> list[str]:
    """Return the list, next first."""
    head = f"times in {times.head}"
    if not found.wakeups:
        whose = "" if found.session is None else f" in {escape(found.session)}"
        return [head, "", f"No wake-ups are pending{whose}."]
    columns = [
        Column("ID", 8, most=20, cut=False),
        Column("WHEN", 13, most=26, cut=False),
        Column("IN", 9, most=16, gap=1),
        Column("SESSION", 16, most=28),
        Column("PROMPT", 8, rest=True),
    ]
    rows = [_row(one, times) for one in found.wakeups]
    more = found.total - len(found.wakeups)
    foot = [f"{more} more: --session names those of one session"] if more > 0 else []
    count = f"{found.total} pending."
    return [head, "", *layout(columns, rows, total=width), "", *foot, count]


def _row(one: "Wakeup", times: Times) -> Row:
    ahead = _ahead(one, times)
    prompt = line(one.prompt)
    rule = f"[{rule_text(one)}] " if one.recurs else ""
    mark = "!" if one.deferred_since is not None else " "
    cells = [
        one.id,
        times.row(one.look_at.replace(second=0)),
        ahead,
        escape(one.session),
        rule + prompt,
    ]
    return Row(cells, mark)


def _ahead(one: "Wakeup", times: Times) -> str:
    if one.look_at > times.now:
        return until(times.now, one.look_at)
    # Nobody has come for it: no scheduler is alive, or its routine is paused.
    late = times.now - one.look_at >= timedelta(minutes=1)
    return f"{until(one.look_at, times.now)} late" if late else "now"


def rule_text(one: "Wakeup") -> str:
    """Return how it was asked for: `every 30m`, `cron 0 9 * * *`."""
    return line(f"{one.timing.value} {one.asked}")


def alarm_screen(one: "Wakeup", times: Times, *, width: int) -> list[str]:  # noqa: ARG001
    """Return one wake-up whole."""
    count = f"{one.firings} time{'' if one.firings == 1 else 's'}"
    fired = f"; fired {count} so far" if one.recurs else ""
    lines = [
        f"{one.id}   next {times.sentence(one.look_at)} {times.head}",
        f"{rule_text(one)}; in {escape(one.session)}{fired}",
        f"set {times.sentence(one.created_at)} by {line(one.created_by)}",
    ]
    if one.deferred_since is not None:
        lines.append(f"its session is busy since {times.sentence(one.deferred_since)}")
    lines += ["---- prompt", *block(one.prompt).rstrip("\n").split("\n")]
    return [*lines, f"Cancel: routines wakeups cancel {one.id}"]
