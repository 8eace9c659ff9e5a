"""`pause` and `resume`: a line for each routine."""

from collections.abc import Sequence

from routines.cli.escape import escape, pad
from routines.cli.escape import width as columns_of
from routines.cli.screens.words import count_text, held_words, word
from routines.cli.times import Times
from routines.operations.switching import PauseResult


def paused_screen(results: Sequence[PauseResult], times: Times) -> list[str]:
    """Return the screen of `pause`."""
    lines = _named(results, [_paused(one, times) for one in results])
    lines += [
        f"  {escape(ended.ref)}  {escape(ended.message)}"
        for one in results
        for ended in one.cancelled
    ]
    return lines


def resumed_screen(results: Sequence[PauseResult], times: Times) -> list[str]:
    """Return the screen of `resume`."""
    return _named(results, [_resumed(one, times) for one in results])


def _named(results: Sequence[PauseResult], texts: list[str]) -> list[str]:
    names = [escape(one.routine) if one.routine is not None else "everything" for one in results]
    longest = max(map(columns_of, names), default=0)
    return [f"{pad(name, longest)}  {text}" for name, text in zip(names, texts, strict=True)]


def _paused(one: PauseResult, times: Times) -> str:
    if one.paused is None or one.paused.until is None:
        name = "--all" if one.routine is None else word(one.routine)
        end = f"until it is resumed: routines resume {name}"
    else:
        end = f"until {times.sentence(one.paused.until)}"
    if one.changed or one.paused is None:
        return f"paused {end}"
    return f"paused since {times.sentence(one.paused.since)}, now {end}"


def _resumed(one: PauseResult, times: Times) -> str:
    if not one.changed:
        text = "was not paused"
    elif one.passed is None:
        text = "resumed"
    else:
        text = f"resumed; missed x{count_text(one.passed)}: paused"
    if one.paused is None:
        return text
    return f"{text}, but {held_words(one.paused, times)}: routines resume --all"
