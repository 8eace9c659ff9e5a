"""`next`: the coming instants."""

from routines.cli.escape import escape, line, pad
from routines.cli.escape import width as columns_of
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times, until
from routines.domain.durations import humanize
from routines.domain.zones import zone
from routines.operations.upcoming import Coming, Upcoming

_LAST_GOOD = "stale edit: it goes on in its last good version: routines check"


def next_screen(upcoming: Upcoming, times: Times, *, width: int) -> list[str]:
    """Return the screen: of one routine with its schedule, else one row a slot of any."""
    if upcoming.routine is not None:
        return _of_one(upcoming, times)
    lines = [f"times in {times.head}"]
    rows = [
        Row(
            [
                _when(one, times),
                f"in {until(times.now, one.slot)}",
                _name_and_note(one, times),
            ]
        )
        for one in upcoming.coming
    ]
    columns = [
        Column("", 15, cut=False),
        Column("", 12, gap=1, cut=False),
        Column("", 8, rest=True, cut=False),
    ]
    lines += layout(columns, rows, total=width)
    if not rows:
        lines.append("Nothing is to come.")
    by_name = "no schedule"
    silent = [one for one in upcoming.silent if not one[1].startswith(by_name)]
    # Else what is held back would look as if there were no such routine.
    lines += [f"  {escape(name)}: {_LAST_GOOD}" for name in upcoming.stale]
    return [*lines, *(f"  {escape(name)}: {line(why)}" for name, why in silent)]


def _when(one: Coming, times: Times) -> str:
    own = Times(zone(one.tz), times.now)
    here = own.here(one.slot).utcoffset() == times.here(times.now).utcoffset()
    return own.row(one.slot, offset=not here)


def _name_and_note(one: Coming, times: Times) -> str:
    name = escape(one.routine)
    if one.tz != times.zone.key:
        name += f" ({one.tz})"
    extra = _extra(one)
    return f"{pad(name, 12)}   {extra}" if extra else name


def _extra(one: Coming) -> str:
    jitter = f"+{humanize(one.jitter)} jitter" if one.jitter else ""
    return line("; ".join(part for part in (jitter, one.note, one.decision) if part))


def _of_one(upcoming: Upcoming, times: Times) -> list[str]:
    # Where the offset changes among the rows, each says its own, and the head says none.
    turns = any(times.differs(one.slot) for one in upcoming.coming)
    head = [escape(upcoming.routine or "")]
    if upcoming.schedule is not None:
        head.append(escape(upcoming.schedule))
    head.append(times.zone.key if turns else times.head)
    lines = ["  ".join(head)]
    rows = [
        (times.row(one.slot, offset=turns), f"in {until(times.now, one.slot)}", _extra(one))
        for one in upcoming.coming
    ]
    first = max((columns_of(when) for when, _, _ in rows), default=0)
    second = max((columns_of(ahead) for _, ahead, _ in rows), default=0)
    lines += [
        f"  {pad(when, first + 3)}{pad(ahead, max(second, 10) + 2)}{extra}".rstrip()
        for when, ahead, extra in rows
    ]
    reasons = [f"  {_LAST_GOOD}" for _ in upcoming.stale]
    reasons += [f"  {line(why)}" for _, why in upcoming.silent]
    return [*lines, *(reasons if rows or reasons else ["  nothing is to come"])]
