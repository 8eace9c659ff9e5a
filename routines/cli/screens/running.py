"""`run`: what is said beside the reply."""

from routines.cli.screens.words import outcome_cell, why, word
from routines.cli.times import took
from routines.operations.entries import Entry


def ended_note(entry: Entry) -> list[str]:
    """Return what is said on stderr of a turn that was run by hand; nothing if it is clean."""
    if entry.outcome == "completed":
        return [f"warning: {warning}" for warning in entry.warnings]
    after = "" if entry.duration is None else f" after {took(entry.duration)}"
    reason = why(entry)
    text = f"{outcome_cell(entry)}{after}" + (f": {reason}" if reason else "")
    return [text, f"routines show {word(entry.id)} shows it whole"]
