"""`history`: rows, newest first."""

from datetime import datetime

from routines.cli.escape import escape, wrap
from routines.cli.screens.table import Column, Row, layout
from routines.cli.screens.words import (
    late_cell,
    mark,
    note,
    outcome_cell,
    row_time,
    took_cell,
    word,
)
from routines.cli.times import Times, usd
from routines.domain.outcome import Outcome
from routines.domain.routine import Routine
from routines.operations.entries import Entry
from routines.operations.history import History

WIDE = 120


def history_screen(
    history: History, routine: Routine | None, times: Times, *, width: int
) -> list[str]:
    """Return the screen."""
    head = wrap(_head(history, routine, times), width, indent="  ")
    if not history.entries:
        return [*head, "", *wrap(_nothing(history), width)]
    wide, named = width >= WIDE, history.routine is not None
    rows = [_row(entry, times, wide=wide, named=named) for entry in history.entries]
    table = layout(_columns(wide=wide, named=named), rows, total=width)
    return [*head, "", *table, "", *wrap(_foot(history), width)]


def _head(history: History, routine: Routine | None, times: Times) -> str:
    if history.routine is None:
        return f"times in {times.head}"
    parts = [escape(history.routine)]
    if routine is not None and routine.schedule is not None:
        parts.append(escape(routine.schedule.text()))
    parts.append(times.head)
    following = _next(routine, times)
    if following is not None:
        parts.append(f"next {times.sentence(following)}")
    return "  ".join(parts)


def _next(routine: Routine | None, times: Times) -> datetime | None:
    if routine is None or routine.schedule is None or not routine.enabled:
        return None
    return routine.schedule.next_after(times.now)


def _nothing(history: History) -> str:
    if history.total and history.routine is not None:
        return f"None of the {history.total_words} recorded is like that."
    if history.routine is None:
        return "Nothing in that time."
    return f"Nothing yet. `routines explain {word(history.routine)}` says why."


def _columns(*, wide: bool, named: bool) -> list[Column]:
    # The first and second column are never cut.
    columns = [Column("SLOT", 13, most=26, cut=False)]
    if not named:
        columns.append(Column("ROUTINE", 14, most=24, cut=False))
    if wide:
        columns += [
            Column("LATE", 8, most=12),
            Column("OUTCOME", 11, most=14, cut=False),
            Column("TOOK", 5, most=10),
            Column("TURN", 4, most=6),
            Column("COST", 5, most=8),
        ]
    else:
        columns += [Column("OUTCOME", 11, most=14, cut=False), Column("TOOK", 9)]
    return [*columns, Column("NOTE", 8, rest=True)]


def _row(entry: Entry, times: Times, *, wide: bool, named: bool) -> Row:
    cells = [row_time(entry, times)]
    if not named:
        cells.append(escape(entry.routine or entry.session or "-"))
    if wide:
        cells += [
            late_cell(entry),
            outcome_cell(entry),
            took_cell(entry, times),
            "-" if entry.turn is None else str(entry.turn),
            usd(entry.usd),
        ]
    else:
        cells += [outcome_cell(entry), took_cell(entry, times)]
    return Row([*cells, note(entry, times, wide=wide)], mark(entry))


def history_line(entry: Entry, times: Times, *, width: int) -> str:
    """Return one row by itself, for `--follow`."""
    wide = width >= WIDE
    row = _row(entry, times, wide=wide, named=False)
    return layout(_columns(wide=wide, named=False), [row], total=width)[-1]


def _counted(history: History, word: str) -> str:
    least = word == Outcome.MISSED.value and history.uncounted_missed
    return f"{'at least ' if least else ''}{history.counts[word]} {word}"


def _foot(history: History) -> str:
    order = [outcome.value for outcome in Outcome]
    counts = [_counted(history, word) for word in order if history.counts.get(word)]
    shown = len(history.entries)
    total = history.asked_words
    text = f"{shown} of {total}: {', '.join(counts)}." if counts else f"{shown} of {total}."
    more = (history.matching or 0) - shown
    if more > 0:
        least = "At least " if history.uncounted else ""
        text += f" {least}{more} more {'is' if more == 1 else 'are'} not shown: -n {shown + more}."
    if history.cut:
        text += " Older ones were not looked at: narrow it with --since."
    text += f" {history.unsettled or 'None'} without an outcome"
    if history.open_elsewhere:
        text += f", and {history.open_elsewhere} that are not shown"
    return f"{text}."
