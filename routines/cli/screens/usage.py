"""`history --usage`: what turns cost, a day and a routine on each row."""

from routines.cli.escape import escape, wrap
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times, usd
from routines.operations.usage import Sum, Used


def usage_screen(used: Used, times: Times, *, width: int) -> list[str]:
    """Return the screen."""
    head = f"usage since {times.sentence(used.since.replace(second=0, microsecond=0))} {times.head}"
    if not used.turns:
        return [head, "", "No turn has started in that time."]
    rows = [
        Row([times.calendar(day), *_cells(name, one)]) for (day, name), one in used.by_day.items()
    ]
    if len({day for day, _ in used.by_day}) > 1:
        rows += [Row(["all days", *_cells(name, one)]) for name, one in used.by_routine.items()]
    return [head, "", *layout(_columns(), rows, total=width), "", *wrap(_foot(used), width)]


def _columns() -> list[Column]:
    return [
        Column("DAY", 8, most=14, cut=False),
        Column("ROUTINE", 14, most=30, cut=False),
        Column("TURNS", 5, most=8),
        Column("TOKENS", 9, most=15),
        Column("COST", 7, most=12),
        Column("A TURN", 8, rest=True),
    ]


def _cells(name: str, one: Sum) -> list[str]:
    saying = one.turns - one.silent
    average = None if one.usd is None or not saying else one.usd / saying
    return [escape(name), str(one.turns), _tokens(one.tokens), usd(one.usd), usd(average)]


def _tokens(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _foot(used: Used) -> str:
    total = used.total
    parts = [f"{total.turns} turn{'' if total.turns == 1 else 's'}"]
    if total.tokens is not None:
        parts.append(f"{total.tokens:,} tokens")
    if total.usd is not None:
        parts.append(usd(total.usd))
    text = ", ".join(parts)
    if total.silent:
        text += f"; of {total.silent} nothing is known: their agents report no usage"
    if used.cut:
        text += "; older ones were not looked at: narrow it with --since"
    return f"{text}."
