"""Whether replies and alerts can be handed over from here, as far as that can be told unsent."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from routines.config.workspace_file import WorkspaceSettings
from routines.domain.routine import Routine
from routines.domain.targets import Target, TargetKind


@dataclass(frozen=True, slots=True)
class TargetFound:
    """A target that nothing can be handed to.

    Attributes:
        label: What a person calls it.
        problem: Why.
        used_by: The routines that name it, or `routines.yaml`.
    """

    label: str
    problem: str
    used_by: tuple[str, ...]


def targets_missing(
    settings: WorkspaceSettings, routines: Iterable[Routine], *, root: str, path: str
) -> tuple[TargetFound, ...]:
    """Return the targets that something is missing for: a program, or the extra `alerts`."""
    users: dict[Target, list[str]] = {}
    for target in (*settings.deliver, *settings.alert):
        users.setdefault(target, ["routines.yaml"])
    for routine in routines:
        for target in dict.fromkeys((*routine.deliver, *routine.alert)):
            known = users.setdefault(target, [])
            if known != ["routines.yaml"]:
                known.append(routine.name)
    return tuple(
        TargetFound(target.label, problem, tuple(names))
        for target, names in users.items()
        if (problem := _problem(target, root=root, path=path))
    )


def _problem(target: Target, *, root: str, path: str) -> str:
    if target.kind is TargetKind.URL:
        missing = find_spec("apprise") is None
        return "needs apprise: pip install 'agent-routines[alerts]'" if missing else ""
    if target.kind is TargetKind.DESKTOP:
        # Here and not above: few commands look at targets.
        from routines.engine.delivering import desktop_program

        program = desktop_program()
    elif target.kind is TargetKind.COMMAND:
        program = target.words[0]
    else:
        return ""
    place = os.path.join(root, program) if "/" in program else program
    return "" if shutil.which(place, path=path) else f"{program} is not on PATH ({path})"
