"""Running an agent that is a Python function, `module:function`, inside a turn process."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from routines.agents.base import NotFound, Turn, TurnResult
from routines.agents.calling import run_call
from routines.agents.programs import with_remains
from routines.agents.trees import STOP_INTERVAL_S, Tree, end_tree, own_children
from routines.domain.agent import AgentSpec
from routines.domain.clock import Clock
from routines.domain.outcome import Outcome, Reason, one_line


def run_python(
    spec: AgentSpec,
    turn: Turn,
    *,
    cwd: str,
    clock: Clock,
    timeout: timedelta,
    env: Mapping[str, str] | None = None,
    stop_requested: Callable[[], str | None] = lambda: None,
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
) -> TurnResult:
    """Give *turn* to the function of *spec* and return how it ended.

    The function takes the turn and answers a `Reply`, a text or None; or it is an (async)
    generator of texts that may end in a `Reply`. It changes this process: its working directory,
    `sys.path` and, if given, its environment. A plain function that is still at work at the limit
    is left behind in its thread, so the process must end by `os._exit` once all is written.

    Args:
        spec: The agent; `spec.python` names the function.
        turn: What it is given.
        cwd: Where it runs; first on `sys.path`, as for `python -m`.
        clock: Counts *timeout*.
        timeout: How long it may take, awake.
        env: Its whole environment; None leaves this process's.
        stop_requested: Asked twice a second; a word of `programs.STOP_WORDS` ends the turn.
        grace: What a cancelled coroutine, and then each signal to processes that it started,
            gets to end.
    """
    spare = own_children()
    try:
        enter(cwd, env)
    except OSError as error:
        return TurnResult(
            outcome=Outcome.FAILED,
            reason=Reason.NOT_FOUND,
            detail=one_line(f"working directory not found: {cwd} ({error.strerror})"),
        )
    result, hangs = run_call(
        # Found on that thread: importing it may take as long as it likes to hang.
        lambda turn: _find(spec.python or "")(turn),  # noqa: PLW0108 - inlined it is found here
        turn,
        clock=clock,
        timeout=timeout,
        stop_requested=stop_requested,
        grace=grace,
        # On stderr, as the interpreter does: it is kept as the turn's output.
        on_raised=traceback.print_exception,
    )
    env = os.environ
    tree = Tree(
        state=env.get("ROUTINES_STATE", ""), turn_key=env.get("ROUTINES_TURN", ""), spare=spare
    )
    remain = end_tree(tree, stop=spec.stop, clock=clock, interval=grace.total_seconds())
    notes = [result.detail] if result.detail else []
    if hangs:
        notes.append("it did not stop when it was told to")
    return replace(result, detail=one_line(with_remains("; ".join(notes), remain)))


def enter(cwd: str, env: Mapping[str, str] | None) -> None:
    """Make this process one in which a function runs: its folder, search path and environment."""
    os.chdir(cwd)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if sys.path[:1] != [cwd]:
        sys.path.insert(0, cwd)


def find_python(name: str) -> Any:
    """Return what `module:name` leads to; None if the module has nothing of that name."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise NotFound(f"{name!r} is not module:function")
    # What was written into the folder a moment ago may be missing in the finder's cache.
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # One that the module itself imports is the module's failure, not its absence.
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise NotFound(f"no module named {missing}, looked for in {sys.path[0]}") from error
        raise
    for word in attribute.split("."):
        found = getattr(found, word, None)
    return found


def _find(name: str) -> Callable[[Turn], Any]:
    found = find_python(name)
    if not callable(found):
        module_name, _, attribute = name.partition(":")
        raise NotFound(f"module {module_name} has no function {attribute}")
    function: Callable[[Turn], Any] = found
    return function
