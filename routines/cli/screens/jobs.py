"""`jobs`: what runs of the queue, and what is next."""

from datetime import datetime

from routines.cli.escape import block, escape, line
from routines.cli.screens.table import Column, Row, layout
from routines.cli.screens.words import word
from routines.cli.times import Times, until
from routines.domain.names import shown_who
from routines.operations.job_status import JobStatus
from routines.operations.jobs import CancelAnswer
from routines.operations.queue import AddedJob, QueueList
from routines.operations.queued import MOST_COUNTED


def jobs_screen(found: QueueList, times: Times, *, width: int) -> list[str]:
    """Return the list, what runs first."""
    head = f"times in {times.head}"
    if not found.jobs:
        return [head, "", _nothing(found, times)]
    columns = [
        Column("ID", 12, most=30, cut=False),
        Column("STATE", 8, most=14, cut=False),
        Column("PRIORITY", 8, most=11),
        Column("QUEUE", 8, most=20),
        Column("ADDED", 9, most=16),
        Column("PROMPT", 8, rest=True),
    ]
    rows = [_row(one, times) for one in found.jobs]
    return [head, "", *layout(columns, rows, total=width), "", *_foot(found, times)]


def _row(one: JobStatus, times: Times) -> Row:
    needs = one.state in ("parked", "lost")
    mark = "*" if one.state == "running" else "!" if needs else " "
    stands = "can't tell" if one.state == "unknown" else one.state
    state = "cancelling" if one.cancel_asked else stands
    cells = [
        escape(one.id),
        state,
        str(one.job.priority),
        escape(one.job.queue),
        times.row(_minute(one.job.added_at)),
        line(one.job.prompt),
    ]
    return Row(cells, mark)


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _nothing(found: QueueList, times: Times) -> str:
    where = "" if found.queue is None else f" in {escape(found.queue)}"
    later = "" if found.next_later is None else f" {_later(found.next_later, times)}"
    return f"No jobs run or are due{where}.{later}"


def _later(at: datetime, times: Times) -> str:
    return f"The next waits until {times.sentence(_minute(at))}."


def _foot(found: QueueList, times: Times) -> list[str]:
    many = found.waiting
    count = f"more than {MOST_COUNTED}" if many > MOST_COUNTED else str(many)
    text = f"{count} waiting."
    if found.next_later is not None:
        text += f" {_later(found.next_later, times)}"
    lines = [text]
    if not found.alive and many:
        lines.append("No scheduler is alive: they wait for one, or for a program: routines start")
    return lines


def added_lines(added: AddedJob, times: Times) -> list[str]:
    """Return what `jobs add` says."""
    name = escape(added.added.id)
    if not added.added.is_new:
        return [f"{name} was added before with the same content: {_stands(added.status)}."]
    job = added.status.job
    when = ""
    if added.status.state == "deferred" and job.not_before is not None:
        ahead = until(times.now, job.not_before)
        when = f", not before {times.sentence(_minute(job.not_before))}, in {ahead}"
    lines = [f"{name} added to {escape(job.queue)}, priority {job.priority}{when}."]
    if not added.alive:
        lines.append("No scheduler is alive: it waits for one, or for a program: routines start")
    return lines


def _stands(one: JobStatus) -> str:
    return one.outcome or ("can't tell" if one.state == "unknown" else one.state)


def job_screen(one: JobStatus, times: Times) -> list[str]:
    """Return one job whole."""
    job = one.job
    earliest = job.not_before
    waits = "" if earliest is None else f", not before {times.sentence(_minute(earliest))}"
    reason = f": {one.reason}" if one.reason else ""
    detail = f" ({line(one.detail)})" if one.detail else ""
    lines = [
        f"{escape(one.id)}   {times.head}",
        f"{_stands(one)}{reason}{detail}",
        f"queue {escape(job.queue)}, priority {job.priority}"
        + ("" if job.lane is None else f", lane {escape(job.lane)}")
        + f"; in {escape(job.session)}"
        + ("" if job.agent is None else f", by {escape(job.agent)}"),
        f"added {times.sentence(_minute(job.added_at))} by {line(shown_who(job.by))}{waits}",
    ]
    if job.recoveries:
        lines.append(f"{one.recovered} of {job.recoveries} recoveries used")
    if one.started_at is not None:
        ended = "" if one.ended_at is None else f", ended {times.sentence(_minute(one.ended_at))}"
        lines.append(f"started {times.sentence(_minute(one.started_at))}{ended}")
    lines += ["---- prompt", *block(job.prompt).rstrip("\n").split("\n")]
    if one.reply:
        lines += ["---- reply", *block(one.reply).rstrip("\n").split("\n")]
    if one.claimed_at is not None:
        return [*lines, f"More: routines explain {word(f'job:{one.id}')}"]
    return [*lines, f"Cancel: routines jobs cancel {word(one.id)}"]


def cancelled_line(job_id: str, answer: CancelAnswer) -> str:
    """Return what `jobs cancel` says."""
    name = escape(job_id)
    match answer.word.value:
        case "recorded" if answer.outcome is not None:
            return f"{name} was cancelled before it started."
        case "recorded":
            return f"{name} is asked to end; its end is recorded when it has ended."
        case "replayed":
            return f"{name}: this cancel was recorded before ({answer.outcome or 'under way'})."
        case _:
            how = f": {answer.outcome}" if answer.outcome else ""
            return f"{name} was left as it is: {answer.detail}{how}."
