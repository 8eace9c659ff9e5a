"""`show`: one occurrence whole."""

from routines.cli.escape import block, escape, fit, line
from routines.cli.screens.listing import short_path
from routines.cli.screens.words import outcome_cell, why, word
from routines.cli.times import Times, took, usd
from routines.operations.entries import Entry
from routines.operations.showing import Shown


def show_screen(shown: Shown, times: Times, *, width: int, home: str) -> list[str]:
    """Return the screen; prompt and reply stand in full, whatever the width."""
    entry = shown.entry
    lines = [f"{escape(entry.id)}   {times.sentence(entry.instant)} {times.head}"]
    lines += [fit(text, width) for text in (_outcome(entry, times), _agent(entry, home)) if text]
    lines += [f"! {line(warning)}" for warning in entry.warnings]
    lines += [fit(f"! not delivered to {line(why)}", width) for why in entry.not_delivered]
    if shown.prompt is not None:
        lines += [f"---- prompt ({_bytes(shown.prompt_bytes)})", *_text(shown.prompt)]
    if shown.reply is not None:
        lines += [f"---- reply ({_bytes(shown.reply_bytes)})", *_text(shown.reply)]
    if shown.folder is not None:
        lines += ["---- files", f"{short_path(shown.folder, home)}/"]
    return [*lines, *_foot(entry)]


def _text(text: str) -> list[str]:
    return block(text).rstrip("\n").split("\n")


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


def _outcome(entry: Entry, times: Times) -> str:
    text = outcome_cell(entry)
    if entry.duration is not None:
        text += (
            f" in {took(entry.duration)}"
            if entry.outcome == "completed"
            else (f" after {took(entry.duration)}")
        )
    reason = why(entry) if entry.outcome != "completed" else ""
    parts = [f"{text}: {reason}" if reason else text]
    if entry.turn is not None and entry.session:
        parts.append(f"turn {entry.turn} of {entry.session}, epoch {entry.epoch}")
    elif entry.session and entry.outcome is None:
        parts.append(entry.session)
    cost = [] if entry.usd is None else [usd(entry.usd)]
    if entry.tokens is not None:
        cost.append(f"{entry.tokens:,} tok.")
    if cost:
        parts.append(", ".join(cost))
    if entry.outcome is None and entry.started_at is not None:
        parts.append(f"started {times.sentence(entry.started_at)}")
    return line("; ".join(parts))


def _agent(entry: Entry, home: str) -> str:
    parts = [entry.agent or "", entry.agent_version or "", entry.model or ""]
    text = ", ".join(part for part in parts if part)
    where = f"in {short_path(entry.cwd, home)}" if entry.cwd else ""
    text = ", ".join(part for part in (line(text), where) if part)
    return "; ".join(part for part in (text, _delivered(entry)) if part)


def _delivered(entry: Entry) -> str:
    return f"delivered to {line(', '.join(entry.delivered_to))}" if entry.delivered_to else ""


def _foot(entry: Entry) -> list[str]:
    if entry.session is None or entry.native_session is None:
        return []
    name = entry.routine if entry.session == f"routine:{entry.routine}" else entry.session
    return [f"Carry on by hand: routines session open {word(name or entry.session)}"]
