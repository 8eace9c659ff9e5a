"""`explain`: one slot, what happened step by step, and what comes."""

from datetime import datetime

from routines.cli.escape import escape, line, pad, wrap
from routines.cli.escape import width as columns_of
from routines.cli.screens.words import held_words, outcome_cell, why, word
from routines.cli.times import Times, took, until
from routines.domain.outcome import Outcome, Reason
from routines.operations.entries import Entry
from routines.operations.explanation import Explanation, Verdict
from routines.operations.reasons import SENTENCES
from routines.operations.steps import Step

_TEXT_AT = 22
_LEAST_TEXT = 20


def explain_screen(found: Explanation, times: Times, *, width: int) -> list[str]:
    """Return the screen."""
    lines = [f"{escape(found.id)}   {times.sentence(found.at)} {times.head}"]
    lines += wrap(_verdict(found, times), width, indent="  ")
    if found.steps:
        lines.append("")
        for step in found.steps:
            lines += _step(step, found, times, width=width)
    foot = [
        row for text in _foot(found, times, width=width) for row in wrap(text, width, indent="  ")
    ]
    return [*lines, "", *foot]


def _verdict(found: Explanation, times: Times) -> str:
    if found.verdict is Verdict.RECORDED and found.entry is not None:
        waits = found.entry.outcome is None and not found.entry.is_running
        held = f"; {held_words(found.paused, times)}" if found.paused and waits else ""
        return line(_recorded(found.entry, times) + held)
    text = line(found.why).format(*(times.sentence(at) for at in found.instants))
    word = found.verdict.value
    if found.verdict is Verdict.PAUSED:
        return f"{text}."
    if found.verdict is Verdict.MISSED and found.entry is not None:
        word = outcome_cell(found.entry)
    return f"{word}: {text}" + ("" if text.endswith(".") else ".")


def _recorded(entry: Entry, times: Times) -> str:
    if entry.state == "retrying" and entry.retry_at is not None:
        when = "now" if entry.retry_at <= times.now else f"at {times.sentence(entry.retry_at)}"
        return f"retrying: again {when}" + (f": {entry.detail}" if entry.detail else "")
    if entry.state == "parked":
        said = f": {entry.detail}" if entry.detail else ""
        name = word(entry.routine or entry.id)
        return f"parked{said}. routines recover {name} lets it run after all"
    if entry.outcome is None:
        began = entry.started_at or entry.claimed_at
        since = "" if began is None else f" since {times.sentence(began)}"
        return f"{outcome_cell(entry)}{since}" + (f": {entry.detail}" if entry.detail else "")
    if entry.outcome == "completed":
        said = f": {line(entry.reply)}" if entry.reply else ""
        warned = f" ({', '.join(entry.warnings)})" if entry.warnings else ""
        return f"completed in {took(entry.duration)}{warned}{said}"
    after = "" if entry.duration is None else f" after {took(entry.duration)}"
    reason = why(entry) if entry.detail or entry.cancelled_by else _sentence(entry)
    return f"{entry.outcome}{after}" + (f": {reason}" if reason else "")


def _sentence(entry: Entry) -> str:
    """Return the reason of an outcome that has no words of its own."""
    if entry.outcome == Outcome.SUPERSEDED.value:
        return "a newer slot took its place"
    return SENTENCES[Reason(entry.reason)] if entry.reason else ""


def _step(step: Step, found: Explanation, times: Times, *, width: int) -> list[str]:
    at = "" if step.at is None else _clock(step.at, found.at, times)
    head = f"  {pad(at, 8)}  {pad(step.word, 8)}  "
    room = max(width - _TEXT_AT, _LEAST_TEXT)
    first, *more = wrap(line(step.text), room)
    return [(head + first).rstrip(), *(" " * _TEXT_AT + text for text in more)]


def _clock(at: datetime, slot: datetime, times: Times) -> str:
    here = times.here(at)
    clock = f"{here:%H:%M:%S}"
    same_day = here.date() == times.here(slot).date()
    return clock if same_day else f"{times.day(at)} {clock}"


def _foot(found: Explanation, times: Times, *, width: int) -> list[str]:
    if found.job is not None:
        return _job_foot(found)
    lines = []
    name = word(found.routine)
    if found.entry is not None and found.entry.files:
        lines.append(f"Prompt, reply, output: routines show {word(_ref(found))}")
    if found.next is not None:
        at = times.sentence(found.next)
        if _is_held(found, found.next):
            lines.append(f"Next: {at}, but it is paused: {_resume(found, found.next)}")
            if not found.stale:
                lines.append(f"Now, by hand: routines run {name}")
        else:
            ahead = f"in {until(times.now, found.next)}"
            if not found.alive:
                ahead = "once a scheduler is alive: routines start"
            following = f"Next: {at}, {ahead}."
            by_hand = [] if found.stale else [f"Now, by hand: routines run {name}"]
            whole = " ".join([following, *by_hand])
            # A command that is cut in two by the end of the line can't be copied.
            lines += [whole] if columns_of(whole) <= width else [following, *by_hand]
    elif found.known:
        lines.append(f"Nothing is to come. Now, by hand: routines run {name}")
    else:
        lines.append("It has no file that can be used now: routines check")
    if found.stale and found.next is not None:
        lines.append("Its file is broken: it goes on in its last good version: routines check")
    return lines


def _job_foot(found: Explanation) -> list[str]:
    lines = []
    if found.entry is not None and found.entry.files:
        lines.append(f"Prompt, reply, output: routines show {word(found.id)}")
    if found.job:
        lines.append(f"The job whole: routines jobs show {word(found.job)}")
    return lines


def _is_held(found: Explanation, at: datetime) -> bool:
    """Return whether the routine is paused at *at*, as things stand."""
    return found.paused is not None and bool(found.paused.holds(at))


def _resume(found: Explanation, at: datetime) -> str:
    """Return what ends the pauses that hold the routine at *at*: both, where there are two."""
    held = () if found.paused is None else found.paused.holds(at)
    whom = ["--all" if one.everything else word(found.routine) for one in held]
    return ", ".join(f"routines resume {one}" for one in whom)


def _ref(found: Explanation) -> str:
    return found.routine if found.newest else found.id
