"""`list`: every routine on a line, and below it what needs a person."""

from datetime import datetime, timedelta

from routines.cli.escape import escape, fit, line, pad
from routines.cli.escape import width as columns_of
from routines.cli.screens.table import Column, Row, layout
from routines.cli.screens.words import held_words, outcome_cell, retry_words, why, word
from routines.cli.times import Times, took, until
from routines.domain.durations import humanize
from routines.domain.outcome import Outcome
from routines.domain.zones import zone
from routines.errors import Problem
from routines.operations.entries import Entry
from routines.operations.life import Schedulers, age
from routines.operations.listing import Listing, Trouble
from routines.operations.listing import Row as Routine
from routines.operations.pending import Held
from routines.operations.queued import MOST_COUNTED

WIDE = 120


def list_screen(listing: Listing, times: Times, *, width: int, home: str) -> list[str]:
    """Return the screen.

    Args:
        listing: What `list` answered.
        times: How instants read.
        width: Columns of the terminal.
        home: The home folder, which the path of the workspace is shortened by.
    """
    wide = width >= WIDE
    lines = [*_head(listing, times, width=width, home=home), ""]
    if not listing.rows:
        nothing = "No routines yet. `routines new NAME --cron ... PROMPT` writes one."
        return [*lines, nothing, *_settings(listing)]
    rows = [_row(row, listing, times, wide=wide) for row in listing.rows]
    lines += layout(_columns(wide=wide), rows, total=width)
    return [*lines, "", *_foot(listing, times, width=width)]


# The head ---------------------------------------------------------------------------------------


def short_path(path: str, home: str) -> str:
    """Return *path* with the home folder as `~`."""
    home = home.rstrip("/")
    if home and (path == home or path.startswith(f"{home}/")):
        path = f"~{path[len(home) :]}"
    return escape(path)


def _head(listing: Listing, times: Times, *, width: int, home: str) -> list[str]:
    here = times.here(times.now)
    clock = f"{times.day(times.now)} {here:%H:%M} {times.head}"
    who = _who(listing.schedulers, times, wide=width >= WIDE)
    whole = f"{short_path(listing.root, home)}  {who}   {clock}"
    if columns_of(whole) <= width:
        return [whole]
    below = f"{who}   {clock}"
    rest = [below] if columns_of(below) <= width else [who, clock]
    return [short_path(listing.root, home), *rest]


def _who(found: Schedulers, times: Times, *, wide: bool) -> str:
    if not found.alive:
        since = "" if found.last_at is None else f" since {times.cell(_minute(found.last_at))}"
        return f"NO SCHEDULER{since}"
    first = found.live[0]
    text = f"scheduler alive {_coarse(age(times.now, first.started_at))}"
    if wide:
        host = str(first.owner.get("user", "")).rpartition("@")[2]
        inside = (f"pid {first.owner.get('pid', '?')}", host, first.version)
        text += f" ({', '.join(escape(part) for part in inside if part)})"
    more = len(found.live) - 1
    text += f" and {more} more" if more else ""
    return f"{text}, slots come from outside" if found.waits_for_outside else text


def _minute(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)


def _coarse(span: timedelta) -> str:
    """Return a span without seconds once it has lasted a minute."""
    minute = timedelta(minutes=1)
    return humanize(span if span < minute else span // minute * minute)


# The rows ---------------------------------------------------------------------------------------


def _columns(*, wide: bool) -> list[Column]:
    first = [
        Column("ROUTINE", 14, most=24, cut=False),
        Column("STATE", 11, most=14, cut=False),
    ]
    if not wide:
        return [*first, Column("NEXT", 9, most=19), Column("LAST", 8, rest=True)]
    return [
        *first,
        Column("SCHEDULE", 17),
        Column("NEXT", 9, most=19),
        Column("IN", 9, most=11, gap=1),
        Column("LAST", 8, gap=1, rest=True),
        Column("7 DAYS", 8, most=12, gap=1),
        Column("TURNS", 5),
    ]


def _row(row: Routine, listing: Listing, times: Times, *, wide: bool) -> Row:
    following = row.next is not None and not row.due
    ahead = until(times.now, row.next) if following and row.next is not None else "-"
    cells = [escape(row.name), _state(row, times)]
    if wide:
        cells.append(escape(row.schedule or "-"))
    cells.append(_next(row, listing, times))
    if wide:
        cells.append(ahead)
    cells.append(_last(row, listing, times))
    if wide:
        cells += [_week(row), _turns(row)]
    return Row(cells, _mark(row, listing))


def _mark(row: Routine, listing: Listing) -> str:
    if row.problem is not None or (row.state == "owed" and not listing.schedulers.alive):
        return "!"
    return "*" if row.state == "running" else " "


def _state(row: Routine, times: Times) -> str:
    if row.state == "running" and row.since is not None:
        return f"running {_one_unit(age(times.now, row.since))}"
    if row.state == "unknown":
        return "can't tell"
    return row.state if row.count is None else f"{row.state} {row.count}"


def _one_unit(span: timedelta) -> str:
    return " ".join(humanize(span).split()[:2])


def _next(row: Routine, listing: Listing, times: Times) -> str:
    if row.due:
        return "now" if listing.schedulers.alive else "at start"
    if row.next is None:
        return "-"
    own = Times(zone(row.tz), times.now)
    text = own.cell(row.next)
    # A time that is read in another zone says so, unless both show the same.
    same = own.here(row.next).utcoffset() == times.here(times.now).utcoffset()
    return text if same or own.differs(row.next) else f"{text} {own.offset(row.next)}"


def _last(row: Routine, listing: Listing, times: Times) -> str:
    if row.retry_at is not None:
        return line(retry_words(row.retry_at, row.note, times))
    if row.note and (listing.schedulers.alive or row.state == "over"):
        return line(row.note)
    last = "-" if row.last is None else last_cell(row.last, times)
    if row.buffered is None:
        return last
    behind = f"{times.cell(row.buffered)} is buffered"
    return behind if row.last is None else f"{behind}; {last}"


def last_cell(entry: Entry, times: Times) -> str:
    """Return `completed 16:00, 41 s`, `failed 03:00: Not logged in`."""
    head = f"{outcome_cell(entry)} {times.cell(entry.instant.replace(second=0))}"
    if entry.outcome == Outcome.COMPLETED.value:
        warned = f"; {', '.join(entry.warnings)}" if entry.warnings else ""
        return line(f"{head}, {took(entry.duration)}{warned}")
    text = why(entry)
    return line(f"{head}: {text}" if text else head)


def _turns(row: Routine) -> str:
    if row.fresh:
        return "fresh"
    return "-" if row.turns is None else str(row.turns)


def _week(row: Routine) -> str:
    if row.ok is None:
        return "-"
    bad = f" {row.bad}!" if row.bad else ""
    return f"{row.ok}{'+' if row.partial else ''} ok{bad}"


# The foot ---------------------------------------------------------------------------------------


def _foot(listing: Listing, times: Times, *, width: int) -> list[str]:
    wide = width >= WIDE
    troubled = [(row.name, row.problem) for row in listing.rows if row.problem is not None]
    count = len(listing.rows)
    counted = f"{count} routine{'' if count == 1 else 's'}"
    lines = []
    if troubled:
        verb = "needs" if len(troubled) == 1 else "need"
        lines.append(f"{counted}, {len(troubled)} {verb} you:")
        longest = max(columns_of(escape(name)) for name, _ in troubled)
        for name, trouble in troubled:
            text = _trouble(name, trouble, times, wide=wide)
            lines.append(fit(f"  {pad(escape(name), longest)}  {text}", width))
    elif listing.schedulers.alive:
        lines.append(f"{counted}.")
    for ref, trouble in listing.others:
        lines.append(fit(f"! {_parked(ref, trouble, wide=wide)}", width))
    lines += _alarms(listing, times)
    lines += _jobs(listing)
    lines += _settings(listing)
    if listing.paused is not None:
        lines.append(_all_paused(listing.paused, times, width))
    for one in listing.schedulers.mute:
        pid = escape(str(one.owner.get("pid", "?")))
        lines.append(f"A scheduler (pid {pid}) lives and gives no sign: routines doctor")
    if not listing.schedulers.alive:
        every = "at every login: routines install"
        lines.append(f"Nothing fires until one runs: routines start ({every})")
    return lines


def _trouble(name: str, trouble: Trouble, times: Times, *, wide: bool) -> str:
    match trouble.kind:
        case "broken":
            return line(_broken(trouble, wide=wide))
        case "failing":
            since = ""
            if trouble.since is not None:
                at = times.sentence(trouble.since) if wide else times.brief(trouble.since)
                since = f" since {at}"
            text = trouble.text.replace(" in a row", " failed in a row") if wide else trouble.text
            return f"{text}{since}: routines explain {word(name)}"
        case "parked":
            return _parked(name, trouble, wide=wide)
        case "warned":
            return f"{line(trouble.text)}: routines show {word(name)}"
        case _:
            return line(trouble.text)


def _parked(name: str, trouble: Trouble, *, wide: bool) -> str:
    if trouble.kind != "parked":
        return line(trouble.text)
    detail = f" ({trouble.detail})" if wide and trouble.detail else ""
    return f"{line(trouble.text + detail)}: routines recover {word(name)}"


def _all_paused(held: Held, times: Times, width: int) -> str:
    end = ": routines resume --all"
    words = held_words(held, times)
    return fit(words[:1].upper() + words[1:], width - len(end)) + end


def _broken(trouble: Trouble, *, wide: bool) -> str:
    if trouble.file is None:
        return trouble.text
    if not wide:
        return f"{_place(trouble.file)}: {trouble.text}"
    cure = f"; {trouble.file.cure}" if trouble.file.cure else ""
    then = "Runs in its last good version." if trouble.armed else "Not armed."
    end = "" if cure.endswith("?") else "."
    return f"{trouble.file.place()}: {trouble.text}{cure}{end} {then}"


def _place(problem: Problem) -> str:
    return problem.path if problem.line is None else f"{problem.path}:{problem.line}"


def _jobs(listing: Listing) -> list[str]:
    many = listing.queued
    if not many:
        return []
    count = f"more than {MOST_COUNTED}" if many > MOST_COUNTED else str(many)
    return [f"{count} job{'' if many == 1 else 's'} queued: routines jobs"]


def _alarms(listing: Listing, times: Times) -> list[str]:
    alarms = listing.alarms
    if not alarms.count:
        return []
    sessions = f"{alarms.sessions} session{'' if alarms.sessions == 1 else 's'}"
    plural = "" if alarms.count == 1 else "s"
    following = ""
    if alarms.next_at is not None:
        overdue = times.now - alarms.next_at >= timedelta(minutes=1)
        following = f", {'overdue since' if overdue else 'next'} {times.cell(alarms.next_at)}"
    return [f"{alarms.count} wake-up{plural} pending in {sessions}{following}: routines wakeups"]


def _settings(listing: Listing) -> list[str]:
    goes_on = any(row.problem is not None and row.problem.armed for row in listing.rows)
    then = "What was armed goes on in its last good version." if goes_on else "Nothing is armed."
    return [
        f"{line(f'{_place(problem)}: {problem.message}').rstrip('.')}. {then}"
        for problem in listing.settings_problems
    ]
