"""The lines of one claim as steps that a person can follow."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from routines.domain.decoding import whole_or
from routines.domain.durations import humanize
from routines.domain.names import format_instant, parse_instant, shown_who
from routines.domain.occurrence import Kind
from routines.domain.outcome import Reason
from routines.domain.record import Event, Owner, Record
from routines.domain.schedule import Schedule
from routines.domain.zones import local_text, zone
from routines.errors import InvalidZone
from routines.operations.entries import Entry
from routines.store.cancels import Cancel

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to an occurrence.

    Attributes:
        at: When; None for what did not happen.
        word: due, claimed, started, failed, no retry, ...
        text: What there is to say of it.
    """

    at: datetime | None
    word: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return it as `explain --json` shows it."""
        at = None if self.at is None else format_instant(self.at)
        return {"at": at, "word": self.word, "text": self.text}


def steps_of(
    record: Record,
    entry: Entry,
    schedule: Schedule | None,
    *,
    digest: str | None,
    digest_there: str | None = None,
    cancel: Cancel | None = None,
) -> list[Step]:
    """Return what the lines of *record* say, in order.

    Args:
        record: The claim, read back.
        entry: Its row.
        schedule: The schedule that its routine has now, or was last seen with.
        digest: That of its definition as the file says it now; None if it can't be used.
        digest_there: That of its definition if the workspace stood where it did then.
        cancel: What `asked_to_end` found.
    """
    if entry.tz is not None and record.claim.get("tz") is None:
        record = replace(record, claim={**record.claim, "tz": entry.tz})
    steps = []
    if not record.occurrence.is_by_hand:
        since = _edited(entry, digest, digest_there)
        steps.append(Step(record.due_at, "due", _due_text(record, schedule, since)))
    steps.append(Step(record.claimed_at, "claimed", _claimed_text(record)))
    steps += [_event_step(event, record) for event in record.events[: -1 if record.end else None]]
    if cancel is not None:
        steps.append(Step(cancel.at, "cancel", _asked_text(cancel.by, cancel.reason)))
    if record.end is not None:
        text = _called_off_text(record) or _end_text(entry)
        steps.append(Step(record.ended_at, entry.outcome or "", text))
        if entry.delivered_to:
            steps.append(Step(None, "delivered", f"to {', '.join(entry.delivered_to)}"))
        steps += [Step(None, "not sent", f"to {why}") for why in entry.not_delivered]
        steps += _did_not_happen(record, entry)
    return steps


def _edited(entry: Entry, digest: str | None, digest_there: str | None) -> str:
    """Return what its definition says of its file since, in words; empty if it is the same."""
    if entry.definition is None or digest is None or entry.definition == digest:
        return ""
    # A workspace that was copied or moved has other paths, and nobody has edited anything.
    other = "its cwd was another then" if entry.definition == digest_there else ""
    return f"; {other or 'its file was edited since'}"


def _due_text(record: Record, schedule: Schedule | None, since: str) -> str:
    if record.occurrence.kind is Kind.WAKE:
        wakeup = record.claim.get("wakeup") or {}
        setter = shown_who(str(wakeup.get("created_by", "its session")))
        return f"wake-up {record.occurrence.id}, set by {setter}"
    if record.occurrence.is_job:
        job = record.claim.get("job")
        if not isinstance(job, dict):
            return "a purge"
        adder = shown_who(str(job.get("by")))
        return f"job of {job.get('queue')}, priority {job.get('priority')}, by {adder}"
    if schedule is None:
        return "delivered from outside"
    text = rule_text(schedule)
    if not schedule.names(record.occurrence.instant):
        return f"not in {text} as it is now{since}"
    return text + since


def rule_text(schedule: Schedule) -> str:
    """Return `cron '0 3 * * *'`, `every 30m`: a schedule within a sentence."""
    return f"cron '{schedule.text()}'" if "cron" in schedule.spec() else schedule.text()


def _claimed_text(record: Record) -> str:
    # Whoever claimed it: a turn process that took it over says so in its own line. `by` is who
    # asked for it: the two are one where a person runs a routine by hand.
    asked = shown_who(str(record.claim.get("by") or ""))
    owner = Owner.from_json(record.claim.get("owner"))
    if owner is None:
        text = f"by {asked or 'an unknown process'}"
    else:
        text = f"by {owner.user} (pid {owner.pid})"
        if record.occurrence.kind is Kind.MANUAL and asked not in ("", owner.user):
            text += f", asked by {asked}"
    if record.claimed_at is None or record.occurrence.is_by_hand:
        return text
    late = record.claimed_at - record.due_at
    if late < timedelta(0):
        return text
    return f"{text}, {_span(late)} after it was due"


def _span(span: timedelta) -> str:
    milliseconds = span // timedelta(milliseconds=1)
    return f"{milliseconds} ms" if span < _SECOND else humanize(span)


def _event_step(event: dict[str, Any], record: Record) -> Step:
    word = str(event["event"])
    try:
        at = parse_instant(str(event.get("at")))
    except ValueError:
        at = None
    text = _event_text(word, event, record)
    return Step(at, word, text)


def _event_text(word: str, event: dict[str, Any], record: Record) -> str:
    if word == Event.STARTED.value:
        return _started_text(event, record)
    if word == Event.RUN.value:
        return _run_text(event)
    if word == Event.ATTEMPT.value:
        return f"taken up again, attempt {event.get('n', '?')}"
    detail = str(event.get("detail") or "")
    if word == Event.BUFFERED.value:
        return detail or "waits until the turn before it has ended"
    if word == Event.RETRY.value:
        return _retry_text(event, detail, record)
    if word == Event.PARKED.value:
        why = f": {detail}" if detail else ""
        return f"waits for a person, `routines recover` or `routines cancel`{why}"
    if word == Event.CANCELLING.value:
        newer = event.get("newer")
        asker = shown_who(str(event.get("by") or "somebody"))
        return f"makes way for {newer}" if newer else f"asked by {asker}"
    return detail


def _run_text(event: dict[str, Any]) -> str:
    """Return which run a turn is, or who goes on with it."""
    run_id = event.get("run_id")
    if not event.get("resumed"):
        return f"run {run_id}"
    owner = event.get("owner")
    who = f"by pid {owner.get('pid', '?')}" if isinstance(owner, dict) else "by another process"
    what = f"run {run_id} taken up again" if run_id else "taken up before its start was answered"
    return f"{what}, {who}"


def _retry_text(event: dict[str, Any], detail: str, record: Record) -> str:
    if event.get("person"):
        who = shown_who(str(event.get("by") or "a person"))
        return f"recovered by {who}: tried at once, however late"
    why = f": {detail}" if detail else ""
    if "rerun" in event:
        return f"run again as #{whole_or(event['rerun'], 0) + 1}{why}"
    return f"tried again at {_local(event.get('until'), record)}{why}"


def _local(until: object, record: Record) -> str:
    """Return an instant within a sentence, in the zone that the claim was made in."""
    try:
        at = parse_instant(str(until))
        return local_text(at, zone(str(record.claim.get("tz") or "UTC")))
    except (ValueError, InvalidZone):
        return str(until)


def _started_text(event: dict[str, Any], record: Record) -> str:
    turn = event.get("turn")
    session = event.get("session") or record.session or "its session"
    text = f"turn {turn} of {session}" if turn else str(session)
    agent, version = str(event.get("agent") or ""), str(event.get("agent_version") or "")
    if version:
        # `claude 2.1.332` names the program itself; `2.1.332` needs the agent's name.
        agent = f"{agent} {version}".strip() if version[0].isdigit() else version
    text = f"{text}, {agent}" if agent else text
    why = event.get("epoch_reason")
    return f"{text}, in a new conversation: {why}" if why else text


def _asked_text(by: str, why: str) -> str:
    return f"asked by {shown_who(by)}" + (f": {why}" if why else "")


def _called_off_text(record: Record) -> str:
    """Return who asked for the end of what was cancelled, and why; empty where nobody did.

    Nothing else in the record says it of a turn that had not started, or that a program worked.
    """
    end = record.end or {}
    # What gave up by itself was asked by nobody, though it is signed.
    asked = record.reason in (Reason.PERSON, Reason.LANE) or end.get("intents")
    if not asked or not end.get("by") or record.newest(Event.CANCELLING) is not None:
        return ""
    text = _asked_text(str(end["by"]), str(end.get("detail") or ""))
    return f"{Reason.LANE.value}, {text}" if record.reason is Reason.LANE else text


def _end_text(entry: Entry) -> str:
    reason = "" if entry.detail.startswith(entry.reason or "") else entry.reason or ""
    text = ": ".join(part for part in (reason, entry.detail) if part) or entry.reason or ""
    if entry.warnings:
        text = "; ".join(part for part in (text, ", ".join(entry.warnings)) if part)
    return text or ("replied" if entry.reply else "")


def _did_not_happen(record: Record, entry: Entry) -> list[Step]:
    """Return what a person may have waited for."""
    if entry.outcome not in ("failed", "timed-out", "interrupted"):
        return []
    if record.retries and not record.by_person:
        return [Step(None, "no retry", "that was the last attempt")]
    if record.started is not None:
        return [Step(None, "no retry", "the turn had started")]
    return []
