"""The words of a turn's command, and the conversation that they name.

A placeholder inside a prompt stays the characters it is.
"""

import os
import re
from collections.abc import Mapping, Sequence

from routines.agents.base import Turn
from routines.agents.starting import CannotStart
from routines.domain.agent import OPTIONS, PLACEHOLDERS, AgentSpec
from routines.domain.outcome import Outcome, Reason

_PLACEHOLDER = re.compile("{(" + "|".join(sorted(PLACEHOLDERS, key=len, reverse=True)) + ")}")


def command_words(
    spec: AgentSpec, turn: Turn, *, args: Sequence[str] = (), model: str | None = None
) -> list[str]:
    """Return the words of *turn*'s command, placeholders filled in.

    Words of *args* are the routine's own and taken as they are.

    Raises:
        CannotStart: The words need an id of the conversation, and none is known.
    """
    chosen = chosen_words(spec, turn)
    native = native_session_of(spec, turn)
    if native is None and any("{native_session}" in word for word in chosen):
        raise CannotStart(
            Outcome.FAILED,
            Reason.SESSION_LOST,
            f"the id by which {spec.name} knows {turn.session} is not known",
        )
    named = any("{session_file}" in word for word in chosen)
    if named and not turn.first and not os.path.exists(turn.session_file):
        # Most programs would begin another conversation in its place, without a word.
        raise CannotStart(None, Reason.SESSION_LOST, f"its file is gone: {turn.session_file}")
    values = {
        "session": turn.session,
        "session_uuid": turn.session_uuid,
        "session_file": turn.session_file,
        "native_session": native or "",
        "prompt": turn.prompt,
        "turn": turn.key,
        "model": model or "",
    }
    options = options_of(spec, values, args=args, model=model)
    if OPTIONS not in chosen:
        return [*fill_words(chosen, **values), *options]
    at = chosen.index(OPTIONS)
    before, after = chosen[:at], chosen[at + 1 :]
    return [*fill_words(before, **values), *options, *fill_words(after, **values)]


def chosen_words(spec: AgentSpec, turn: Turn) -> tuple[str, ...]:
    """Return the words of *turn*'s command as the entry has them."""
    return spec.first if turn.first and spec.first is not None else spec.command


def options_of(
    spec: AgentSpec, values: Mapping[str, str], *, args: Sequence[str], model: str | None
) -> list[str]:
    """Return the words that stand at `{options}`, or at the end: the last ones overrule."""
    words = fill_words(spec.model, **values) if model else []
    return [*words, *spec.args, *args]


def fill_words(words: Sequence[str], **values: str) -> list[str]:
    """Return *words* with the placeholders of *values* filled in, one pass over each.

    What was filled in is never looked at again, so a prompt may hold "{session}".
    """
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in words]


def native_session_of(spec: AgentSpec, turn: Turn) -> str | None:
    """Return the id by which the program knows this conversation, None if only it can say.

    Where the first turn hands over an id of ours that is it, also if that turn was killed before
    it could answer.
    """
    if turn.native_session is not None:
        return turn.native_session
    minted = any("{session_uuid}" in word for word in spec.first or ())
    return turn.session_uuid if minted else None


def asked_session(spec: AgentSpec, turn: Turn) -> str | None:
    """Return the id that the words of *turn*'s command ask for, None if they leave it open."""
    text = "\0".join(chosen_words(spec, turn))
    if "{native_session}" in text:
        return native_session_of(spec, turn)
    if "{session_uuid}" in text:
        return turn.session_uuid
    # The words name the conversation in another way, so it has to be the one of before.
    names_it = "{session_file}" in text or "{session}" in text
    return turn.native_session if names_it else None
