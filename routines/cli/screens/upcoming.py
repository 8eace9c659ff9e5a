"""`next`: the coming instants."""

from routines.cli.escape import escape, fit, line, wrap
from routines.cli.escape import width as columns_of
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times, since, until
from routines.domain.durations import humanize
from routines.domain.zones import zone
from routines.operations.upcoming import Coming, Upcoming

# `  Mon 30 Nov 2027 09:00 -05:00  in 16 h 42 m `, at the most.
_BEFORE_NAME = 47
_LAST_GOOD = "stale edit: it goes on in its last good version: routines check"


def next_screen(upcoming: Upcoming, times: Times, *, width: int) -> list[str]:
    """Return the screen: of one routine with its schedule, else one row a slot of any."""
    if upcoming.routine is not None:
        return _of_one(upcoming, times, width=width)
    lines = [f"times in {times.head}"]
    rows = [
        Row(
            [
                _when(one, times),
                _how_far(one, times),
                _name(one, times, width),
                _extra(one),
            ]
        )
        for one in upcoming.coming
    ]
    columns = [
        Column("", 15, cut=False),
        Column("", 12, gap=1, cut=False),
        Column("", 12, gap=3, cut=False),
        Column("", 8, rest=True),
    ]
    lines += layout(columns, rows, total=width)
    if not rows:
        lines.append("Nothing is to come.")
    by_name = "no schedule"
    silent = [one for one in upcoming.silent if not one[1].startswith(by_name)]
    # Else what is held back would look as if there were no such routine.
    reasons = [f"  {escape(name)}: {_LAST_GOOD}" for name in upcoming.stale]
    reasons += [f"  {escape(name)}: {line(why)}" for name, why in silent]
    return [*lines, *_wrapped(reasons, width)]


def _wrapped(texts: list[str], width: int) -> list[str]:
    return [f"  {row}" for text in texts for row in wrap(text.strip(), width - 2, indent="  ")]


def _how_far(one: Coming, times: Times) -> str:
    """Return `in 12 m`; `12 m ago` of what `--from` reaches back to."""
    if one.slot < times.now:
        return f"{since(times.now, one.slot)} ago"
    return f"in {until(times.now, one.slot)}"


def _when(one: Coming, times: Times) -> str:
    own = Times(zone(one.tz), times.now)
    here = own.here(one.slot).utcoffset() == times.here(times.now).utcoffset()
    return own.row(one.slot, offset=not here)


def _name(one: Coming, times: Times, width: int) -> str:
    name = escape(one.routine)
    if one.tz == times.zone.key:
        return name
    # The offset stands in the first column: of both it is the zone that can be done without.
    room = width - _BEFORE_NAME - columns_of(name)
    return name + fit(f" ({one.tz})", max(room, 0))


def _extra(one: Coming) -> str:
    jitter = f"+{humanize(one.jitter)} jitter" if one.jitter else ""
    return line("; ".join(part for part in (jitter, one.note, one.decision) if part))


def _of_one(upcoming: Upcoming, times: Times, *, width: int) -> list[str]:
    # Where the offset changes among the rows, each says its own, and the head says none.
    turns = any(times.differs(one.slot) for one in upcoming.coming)
    head = [escape(upcoming.routine or "")]
    if upcoming.schedule is not None:
        head.append(escape(upcoming.schedule))
    head.append(times.zone.key if turns else times.head)
    lines = wrap("  ".join(head), width, indent="  ")
    rows = [
        Row([times.row(one.slot, offset=turns), _how_far(one, times), _extra(one)])
        for one in upcoming.coming
    ]
    first = max((columns_of(row.cells[0]) for row in rows), default=0)
    second = max((columns_of(row.cells[1]) for row in rows), default=0)
    columns = [
        Column("", first, gap=3, cut=False),
        Column("", max(second, 10), cut=False),
        Column("", 8, rest=True),
    ]
    lines += layout(columns, rows, total=width)
    reasons = [f"  {_LAST_GOOD}" for _ in upcoming.stale]
    reasons += [f"  {line(why)}" for _, why in upcoming.silent]
    reasons = _wrapped(reasons, width)
    return [*lines, *(reasons if rows or reasons else ["  nothing is to come"])]
