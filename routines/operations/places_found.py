"""Whether the folders and files that routines name are on this machine: `cwd` and `env_file`.

They may be right on another one, so that a missing one is a remark and breaks no file; each turn
that needs it fails here all the same.
"""

import os

from routines.config.workspace import Workspace
from routines.config.workspace_file import FILE_NAME
from routines.domain.routine import Routine
from routines.errors import InvalidFiles, Problem

_MISSING_FOLDER = "make it, or correct the path: no program can be run there"
_MISSING_FILE = "write it, or correct the path: each turn fails without it"


def places_missing(workspace: Workspace) -> list[Problem]:
    """Return a remark for each `cwd` and `env_file` that no turn can use here, where it is set."""
    found: dict[tuple[str, str], list[Problem]] = {}
    for routine in workspace.routines.values():
        path = path_of(workspace, routine)
        line = routine.line_of.get("cwd")
        if line is not None and routine.cwd and (why := _no_folder(routine.cwd)):
            message = f"cwd: {routine.cwd} {why}"
            found[path, "cwd"] = [Problem(path, line, None, "cwd", message, _MISSING_FOLDER)]
        env_line = routine.line_of.get("env_file")
        if env_line is not None and routine.env_file is not None:
            found[path, routine.env_file] = _env_file(workspace, path, env_line, routine.env_file)
    settings = workspace.settings
    if settings.env_file is not None:
        line = settings.line_of.get("env_file")
        found[FILE_NAME, settings.env_file] = _env_file(
            workspace, FILE_NAME, line, settings.env_file
        )
    # Two routines may name one file: what is wrong with its lines is said once.
    return list(dict.fromkeys(problem for problems in found.values() for problem in problems))


def path_of(workspace: Workspace, routine: Routine) -> str:
    """Return the path of a routine's file from the root, as problems name it."""
    root = workspace.root.path
    # Absolute or from the root: either way it is named from the root.
    return os.path.relpath(os.path.join(root, routine.path or routine.name), root)


def _no_folder(path: str) -> str:
    if not os.path.exists(path):
        return "is not there"
    if not os.path.isdir(path):
        return "is no folder"
    return "" if os.access(path, os.X_OK) else "can't be entered"


def _env_file(workspace: Workspace, path: str, line: int | None, env_file: str) -> list[Problem]:
    """Return what is wrong with an env_file: where it is named, or at its own lines."""
    # Here and not above: few commands look into it.
    from routines.agents.environment import read_env_file

    try:
        if not os.path.exists(env_file):
            message = f"env_file: {env_file} is not there"
            return [Problem(path, line, None, "env_file", message, _MISSING_FILE)]
        read_env_file(env_file)
    except InvalidFiles as error:
        own = os.path.relpath(env_file, workspace.root.path)
        return [
            Problem(path, line, None, "env_file", f"env_file: {env_file}: {one.message}", one.cure)
            if one.line is None
            else Problem(own, one.line, None, None, one.message, one.cure)
            for one in error.problems
        ]
    return []
