"""Which version of a program answers: asked of the program itself, once for each file."""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from routines.agents.output import Capture
from routines.agents.programs import run_program
from routines.agents.starting import CannotStart, find_program
from routines.domain.clock import Clock
from routines.domain.versions import find_version
from routines.errors import StoreError
from routines.store.programs import ProgramStore, mark_of

log = logging.getLogger("routines")

# A program of node on a slow disk takes seconds; one that takes longer has no version, for a day.
_PATIENCE = timedelta(seconds=10)


def version_of(
    words: Sequence[str] | None,
    *,
    env: Mapping[str, str],
    cwd: str,
    clock: Clock,
    store: ProgramStore | None,
    keep: bool = True,
) -> str | None:
    """Return the version that the command *words* prints, None if it can't be told.

    Args:
        words: `AgentSpec.version`; None where the agent has no such words.
        env: The environment in which the program is looked for and asked.
        cwd: Where it runs; absolute.
        clock: The time.
        store: What was answered before; None for nothing.
        keep: Whether the answer is kept there.
    """
    if not words:
        return None
    try:
        program = find_program(words[0], env=env, cwd=cwd)
    except CannotStart:
        return None
    mark = mark_of(program)
    if mark is None or store is None:
        return _ask(words, env=env, cwd=cwd, clock=clock)
    known = store.read(mark, words[1:], now=clock.now())
    if known is not None:
        return known.version
    version = _ask(words, env=env, cwd=cwd, clock=clock)
    if keep:
        try:
            store.remember(mark, words[1:], version, now=clock.now())
        except StoreError as error:
            log.warning("version-not-kept", extra={"program": program, "error": error.message})
    return version


def _ask(words: Sequence[str], *, env: Mapping[str, str], cwd: str, clock: Clock) -> str | None:
    said = Capture()
    try:
        ended = run_program(
            words,
            stdin=None,
            cwd=cwd,
            env=env,
            out=said.feed,
            err=lambda _: None,
            clock=clock,
            timeout=_PATIENCE,
            grace=timedelta(seconds=1),
        )
    except CannotStart:
        return None
    finally:
        said.close()
    return find_version(said.text()) if ended.code == 0 and ended.why is None else None
