"""How one row of the history reads: its outcome, its note, its place in time."""

from datetime import datetime, timedelta

from routines.cli.escape import escape, line
from routines.cli.times import Times, took
from routines.domain.durations import humanize
from routines.domain.names import shown_who
from routines.domain.outcome import Outcome, Trigger
from routines.operations.entries import MOST_COUNTED, Entry
from routines.operations.pending import Held

# A turn that starts this late was caught up with or had to wait; less is no news.
_LATE = timedelta(seconds=60)


def outcome_cell(entry: Entry) -> str:
    """Return `completed`, `missed x3`, or the state of what has not ended."""
    if entry.outcome is None:
        return "can't tell" if entry.state == "unknown" else entry.state
    if entry.outcome == Outcome.MISSED.value and entry.missed:
        return f"missed x{count_text(entry.missed.get('count'))}"
    return entry.outcome


def count_text(count: object) -> str:
    """Return a count of missed slots: `3`, `1000+`, `?`."""
    if not isinstance(count, int):
        return "?"
    return str(count) if count <= MOST_COUNTED else f"{MOST_COUNTED}+"


def mark(entry: Entry) -> str:
    """Return `!` for what needs a person, `*` for what runs."""
    return "!" if entry.needs_a_person else "*" if entry.is_running else " "


def word(name: str) -> str:
    """Return a name as it is typed in a shell: `daily-digest`, `'weekly report'`."""
    import shlex

    return shlex.quote(escape(name))


def row_time(entry: Entry, times: Times) -> str:
    """Return the first cell of its row."""
    instant = entry.instant
    # A run by hand is asked for at any second; its slot would be whole.
    return times.row(instant.replace(second=0) if entry.slot is None else instant)


def late_cell(entry: Entry) -> str:
    """Return how late it started, `-` where it had no time of its own."""
    if entry.late_s is None or entry.slot is None:
        return "-"
    return humanize(timedelta(seconds=entry.late_s))


def took_cell(entry: Entry, times: Times) -> str:
    """Return how long its turn took, or has taken so far."""
    if entry.is_running and entry.started_at is not None:
        return took(max(times.now - entry.started_at, timedelta(0)))
    return took(entry.duration)


def note(entry: Entry, times: Times, *, wide: bool) -> str:
    """Return what else there is to say of it, on one line.

    Args:
        entry: The row.
        times: How instants read.
        wide: Whether lateness has a column of its own.
    """
    if entry.outcome is None:
        return line(_open_note(entry, times))
    parts = [_origin(entry), _lateness(entry, wide=wide), *entry.warnings]
    if entry.outcome == Outcome.COMPLETED.value:
        return line(_with_reply([part for part in parts if part], entry))
    return line("; ".join(part for part in (*parts, why(entry)) if part))


def _origin(entry: Entry) -> str:
    match entry.trigger:
        case Trigger.MANUAL.value:
            user = (entry.by or "").partition("@")[0]
            return f"by hand ({user})" if user else "by hand"
        case Trigger.WAKE_UP.value:
            return f"wake-up {(entry.wakeup or {}).get('id', '')}".rstrip()
        case Trigger.JOB.value:
            return f"job {entry.job['id']}" if entry.job else "purge"
        case Trigger.EXTERNAL.value:
            return "from outside"
        case _:
            return ""


def _lateness(entry: Entry, *, wide: bool) -> str:
    late = timedelta(seconds=entry.late_s or 0)
    if late < _LATE or entry.slot is None:
        return ""
    if wide:
        return "catch-up" if entry.trigger == Trigger.CATCH_UP.value else ""
    return f"{humanize(late)} late"


def _with_reply(parts: list[str], entry: Entry) -> str:
    said = line(entry.reply or "")
    if not parts:
        return said
    return "; ".join(parts) + (f': "{said}"' if said and not entry.warnings else "")


def why(entry: Entry) -> str:
    """Return reason and detail of an outcome, each said once."""
    reason, detail = entry.reason or "", entry.detail
    if entry.cancelled_by:
        # Of what had not started nothing else says whose word ended it.
        who = f"by {shown_who(entry.cancelled_by)}"
        return f"{who}: {detail}" if detail else who
    if not detail or not reason or detail.startswith(reason):
        return detail or reason
    # What failed or was missed says it in its detail; for the others the reason is the news.
    if entry.outcome in _DETAIL_SAYS_IT:
        return detail
    return f"{reason}, {detail}"


_DETAIL_SAYS_IT = frozenset([Outcome.FAILED.value, Outcome.TIMED_OUT.value, Outcome.MISSED.value])


def _open_note(entry: Entry, times: Times) -> str:
    # What it is comes first: a job and a wake-up have no name of their own in the row.
    return "; ".join(part for part in (_origin(entry), *_standing(entry, times)) if part)


def _standing(entry: Entry, times: Times) -> list[str]:
    owner = (entry.owner or {}).get("user", "an unknown process")
    pid = (entry.owner or {}).get("pid", "?")
    match entry.state:
        case "running":
            began = entry.started_at or entry.claimed_at or entry.instant
            who = f"pid {pid}" if entry.run_id is None else f"run {line(entry.run_id)}"
            return [f"since {times.cell(began)}, {who}", entry.detail]
        case "lost":
            gone = f"its owner is gone ({owner}, pid {pid}); a scheduler settles it"
            return [gone, entry.detail]
        case "unknown":
            return [entry.detail or f"can't tell from here: owner {owner}, pid {pid}"]
        case "retrying" if entry.retry_at is not None:
            return [retry_words(entry.retry_at, entry.detail, times)]
        case _:
            return [entry.detail]


def retry_words(at: datetime, why: str, times: Times) -> str:
    """Return `again 16:30: connection refused`; `again now` where that has come."""
    when = "now" if at <= times.now else times.cell(at.replace(second=0))
    return f"again {when}" + (f": {why}" if why else "")


def held_words(held: Held, times: Times) -> str:
    """Return `paused by ana@studio since ... until ...: moving house`, on one line."""
    until = "" if held.until is None else f" until {times.sentence(held.until)}"
    why = f" ({held.reason})" if held.reason else ""
    what = "everything is paused" if held.everything else "paused"
    text = line(f"{what} by {shown_who(held.by)} since {times.sentence(held.since)}{until}{why}")
    return text if held.besides is None else f"{text}; {held_words(held.besides, times)}"
