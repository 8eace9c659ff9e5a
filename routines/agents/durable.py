"""Durable agents: how one is recognised and found, and what of its answers is believed.

What it says comes from elsewhere: a state that can't be one counts as no answer.
"""

import threading
from collections.abc import Callable, Mapping
from typing import cast

from routines.agents.base import DurableAgent, Reply, RunState
from routines.agents.calling import checked_reply
from routines.agents.python_agent import enter, find_python
from routines.domain.clock import Clock
from routines.domain.durable import RunWord, word_of
from routines.domain.outcome import one_line

_METHODS = ("start", "inspect", "cancel")
# How often a module that is being imported is looked after.
_LOOK_EVERY_S = 0.5


class NoAnswer(Exception):
    """What an agent said can't be what it was asked for: it says nothing."""


def is_durable(agent: object) -> bool:
    """Return whether *agent*, an object or a class, has the three methods."""
    return all(callable(getattr(agent, name, None)) for name in _METHODS)


def agent_of(found: object) -> DurableAgent:
    """Return the agent that *found* is, or for a class one of it, made without arguments."""
    return cast(DurableAgent, found() if isinstance(found, type) else found)


def find_durable(
    name: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    clock: Clock,
    seconds: float,
    is_stopping: Callable[[], bool],
) -> object | None:
    """Return what `module:name` leads to if that is durable, else None.

    It changes this process as `run_python` does, and imports the module: what that does when it is
    imported may be done again after a crash. What can't be imported is None too: the turn then
    fails as it would anyway, saying why.

    Args:
        name: `module:Class` or `module:object`.
        cwd: Where it runs.
        env: Its whole environment.
        clock: Counts *seconds*.
        seconds: How long the import may take.
        is_stopping: Asked twice a second; an import is not waited for at a stop.
    """
    found: list[object] = []
    done = threading.Event()

    def look() -> None:
        try:
            enter(cwd, env)
            found.append(find_python(name))
        except BaseException:  # noqa: BLE001 - said where the turn fails for it, with its words
            found.clear()
        finally:
            done.set()

    # A daemon, as for a function: a module that hangs must not keep the process from ending.
    threading.Thread(target=look, name="import", daemon=True).start()
    limit = clock.awake() + seconds
    while not done.is_set() and clock.awake() < limit and not is_stopping():
        done.wait(_LOOK_EVERY_S)
    return found[0] if done.is_set() and found and is_durable(found[0]) else None


def read_state(said: object) -> tuple[RunWord, str, Reply]:
    """Return what an inspection says: the word, what there is to say of it, and the reply.

    Raises:
        NoAnswer: It is no `RunState`.
    """
    if not isinstance(said, RunState):
        raise NoAnswer(f"it answered {type(said).__name__}, and a RunState is expected")
    word = word_of(said.word)
    detail = str(said.detail)
    reply = said.reply if isinstance(said.reply, Reply) else Reply(text=str(said.reply))
    return word, one_line(detail), checked_reply(reply)
