"""Which programs the agents of a workspace are, as far as that can be told without starting one."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass

from routines.config.workspace_file import WorkspaceSettings
from routines.domain.agent import AgentKind
from routines.domain.routine import Routine


@dataclass(frozen=True, slots=True)
class AgentFound:
    """One agent and the program behind it.

    Attributes:
        name: As routines name it; empty where a routine names none.
        program: The absolute path of the program, or what answers instead (`echo`, a function).
        problem: Why no turn can be started with it, or None.
        used_by: The routines that use it.
    """

    name: str
    program: str | None
    problem: str | None
    used_by: tuple[str, ...] = ()


def agents_found(
    settings: WorkspaceSettings, routines: Mapping[str, Routine], *, path: str
) -> list[AgentFound]:
    """Return the agents that routines use, sorted by name, each looked for on *path*."""
    users: dict[tuple[str, str | None, str], list[str]] = {}
    for routine in routines.values():
        if routine.enabled:
            own_path = dict(routine.env).get("PATH", path)
            users.setdefault((routine.agent or "", routine.cwd, own_path), []).append(routine.name)
    found = []
    for (name, cwd, search), names in sorted(users.items(), key=lambda item: item[1]):
        program, problem = _resolve(settings, name, cwd=cwd, path=search)
        found.append(AgentFound(name, program, problem, tuple(sorted(names))))
    return sorted(_merged(found), key=lambda one: one.name)


def _merged(found: list[AgentFound]) -> list[AgentFound]:
    """Join what is the same for routines that only differ in where they run."""
    joined: dict[tuple[str, str | None, str | None], AgentFound] = {}
    for one in found:
        key = (one.name, one.program, one.problem)
        users = joined[key].used_by if key in joined else ()
        joined[key] = AgentFound(one.name, one.program, one.problem, (*users, *one.used_by))
    return list(joined.values())


def _resolve(
    settings: WorkspaceSettings, name: str, *, cwd: str | None, path: str
) -> tuple[str | None, str | None]:
    if not name:
        return None, "no agent is named: write `agent:` in the routine or in routines.yaml"
    spec = settings.spec_of(name)
    if spec is None:
        return None, f"no agent is called {name!r}"
    if spec.http is not None:
        return spec.http.url, missing_extra("httpx", extra="http")
    if spec.kind is not AgentKind.COMMAND:
        return spec.python or name, None
    program = find_program(spec.command[0], path=path, cwd=cwd or os.curdir)
    if program is None:
        where = "not there" if "/" in spec.command[0] else f"not on PATH ({path})"
        return None, f"{spec.command[0]}: {where}"
    return program, None


def missing_extra(module: str, *, extra: str) -> str | None:
    """Return what to install for *module*, or None if it is there."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"{module} is not installed: pip install 'agent-routines[{extra}]'"


def find_program(word: str, *, path: str, cwd: str) -> str | None:
    """Return the absolute path that *word* leads to, or None; as a turn looks for it."""
    places = (
        [os.path.join(cwd, word)]
        if "/" in word
        else [os.path.join(cwd, folder, word) for folder in path.split(os.pathsep)]
    )
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return os.path.normpath(place)
    return None
