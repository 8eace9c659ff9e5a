"""Which programs the agents of a workspace are, and of which version."""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from routines.config.workspace_file import WorkspaceSettings
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.routine import Routine
from routines.operations.context import Context

if TYPE_CHECKING:
    from routines.store.programs import ProgramStore

# The kernel reads no more of a #! line.
_FIRST_LINE = 256


@dataclass(frozen=True, slots=True)
class AgentFound:
    """One agent and the program behind it.

    Attributes:
        name: As routines name it; empty where a routine names none.
        program: The absolute path of the program, or what answers instead (`echo`, a function).
        problem: Why no turn can be started with it, or None.
        used_by: The routines that use it; `jobs` last where jobs do.
        version: Of the program, if it was asked and said one.
    """

    name: str
    program: str | None
    problem: str | None
    used_by: tuple[str, ...] = ()
    version: str | None = None

    @property
    def named(self) -> str:
        """The agent's name, with the version if that is known."""
        return f"{self.name} {self.version}" if self.version else self.name


def agents_found(
    settings: WorkspaceSettings,
    routines: Mapping[str, Routine],
    *,
    path: str,
    of_jobs: Sequence[str] = (),
) -> list[AgentFound]:
    """Return the agents that routines and jobs use, sorted by name, each looked for on *path*."""
    users: dict[tuple[str, str | None, str], list[str]] = {}
    for routine in routines.values():
        if routine.enabled:
            own_path = dict(routine.env).get("PATH", path)
            users.setdefault((routine.agent or "", routine.cwd, own_path), []).append(routine.name)
    found = []
    for (name, cwd, search), names in sorted(users.items(), key=lambda item: item[1]):
        program, problem = _resolve(settings, name, cwd=cwd, path=search)
        found.append(AgentFound(name, program, problem, tuple(sorted(names))))
    for name in of_jobs:
        program, problem = _resolve(settings, name, cwd=None, path=path)
        found.append(AgentFound(name, program, problem, ("jobs",)))
    return sorted(_merged(found), key=lambda one: one.name)


def with_versions(context: Context, found: Sequence[AgentFound], *, keep: bool) -> list[AgentFound]:
    """Return *found* with the versions of their programs: each is asked, if it has to be.

    Args:
        context: Where and when.
        found: What `agents_found` found.
        keep: Whether the answers are kept in the state folder.
    """
    from routines.store.programs import ProgramStore

    state = context.state_or_none
    store = None if state is None else ProgramStore(state)
    known: dict[tuple[str | None, tuple[str, ...]], str | None] = {}
    asked = []
    for one in found:
        spec = context.workspace.settings.spec_of(one.name)
        if spec is None or one.program is None or not spec.version:
            asked.append(one)
            continue
        words = (one.program, *spec.version[1:])
        if (one.program, words) not in known:
            known[one.program, words] = ask_version(
                context, spec, one.program, cwd=context.root.path, store=store, keep=keep
            )
        asked.append(replace(one, version=known[one.program, words]))
    return asked


def ask_version(
    context: Context,
    spec: AgentSpec,
    program: str,
    *,
    cwd: str,
    store: "ProgramStore | None" = None,
    keep: bool = False,
) -> str | None:
    """Return the version that a program says, None if it can't be told; it may be started.

    Args:
        context: Whose environment, and the clock.
        spec: How it is asked.
        program: Its absolute path.
        cwd: Where it runs.
        store: What was answered before; None for nothing.
        keep: Whether the answer is kept there.
    """
    from routines.agents.surroundings import without_surroundings
    from routines.agents.versions import version_of

    if not spec.version:
        return None
    env = without_surroundings(context.environ) | dict(spec.env)
    words = (program, *spec.version[1:])
    return version_of(words, env=env, cwd=cwd, clock=context.clock, store=store, keep=keep)


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
        return spec.http.shown, missing_extra("httpx", extra="http")
    if spec.kind not in {AgentKind.COMMAND, AgentKind.ACP}:
        return spec.python or name, None
    word, cwd = spec.command[0], cwd or os.curdir
    program = find_program(word, path=path, cwd=cwd)
    if program is None:
        return None, f"{word}: {_why_not_found(word, path=path, cwd=cwd)}"
    problem = _unstartable(program, path=path, cwd=cwd)
    return (program, None) if problem is None else (None, f"{word}: {problem}")


def _why_not_found(word: str, *, path: str, cwd: str) -> str:
    """Return what a person has to know of a word that leads to no program."""
    for place in _places(word, path=path, cwd=cwd):
        shown = os.path.normpath(place)
        if os.path.isfile(place):
            return f"{shown} is not executable; chmod +x makes it so"
        if os.path.isdir(place) and "/" in word:
            return f"{shown} is a folder"
    return "not there" if "/" in word else f"not on PATH ({path})"


def _unstartable(program: str, *, path: str, cwd: str) -> str | None:
    """Return why the kernel would refuse a program that is there, as far as its head says."""
    try:
        with open(program, "rb") as file:
            head = file.read(_FIRST_LINE)
    except OSError:
        # May be run and not be read: there is nothing to say.
        return None
    if not head.startswith(b"#!"):
        # What is no script is made for a machine, and holds a NUL within its first bytes.
        return None if b"\0" in head else f"{program} has no #! line"
    words = head[2:].partition(b"\n")[0].decode("utf-8", "replace").split()
    if not words or not os.access(os.path.join(cwd, words[0]), os.X_OK):
        return f"the interpreter that {program} names in its #! line is not there"
    by_env = os.path.basename(words[0]) == "env" and len(words) > 1
    # Options and assignments are left to env.
    if not by_env or words[1].startswith("-") or "=" in words[1]:
        return None
    if find_program(words[1], path=path, cwd=cwd) is not None:
        return None
    return f"{words[1]}, which {program} names in its #! line, is not on PATH ({path})"


def missing_extra(module: str, *, extra: str) -> str | None:
    """Return what to install for *module*, or None if it is there."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"{module} is not installed: pip install 'agent-routines[{extra}]'"


def find_program(word: str, *, path: str, cwd: str) -> str | None:
    """Return the absolute path that *word* leads to, or None; as a turn looks for it."""
    for place in _places(word, path=path, cwd=cwd):
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return os.path.normpath(place)
    return None


def _places(word: str, *, path: str, cwd: str) -> list[str]:
    if "/" in word:
        return [os.path.join(cwd, word)]
    return [os.path.join(cwd, folder, word) for folder in path.split(os.pathsep)]
