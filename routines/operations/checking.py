"""`check`: everything that is wrong with the files, and what may not be meant."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routines.domain.schedule_remarks import remarks as schedule_remarks
from routines.errors import Problem, UsageError
from routines.operations.agents_found import AgentFound, agents_found, with_versions
from routines.operations.context import Context
from routines.operations.listing import search_path
from routines.operations.places_found import path_of, places_missing
from routines.operations.targets_found import TargetFound, targets_missing
from routines.operations.wake_tools_found import WakeToolsFound, wake_tools_found
from routines.operations.zone_note import zone_note

_SCHEDULE_KEYS = ("cron", "every", "at", "rrule")


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check` found.

    Attributes:
        problems: What is wrong, by file and place.
        remarks: What is allowed and probably not meant.
        total: How many routines were looked at.
        broken: How many of them can't be armed.
        agents: The agents that they use.
        zone_note: What it means that no zone is set, or None.
        targets: Where replies and alerts are to go and can't.
        wake_tools: Which agents are handed the wake tools; None where single files are checked.
    """

    problems: tuple[Problem, ...]
    remarks: tuple[Problem, ...]
    total: int
    broken: int
    agents: tuple[AgentFound, ...] = ()
    zone_note: str | None = None
    targets: tuple[TargetFound, ...] = ()
    wake_tools: WakeToolsFound | None = None

    @property
    def unresolved(self) -> tuple[AgentFound, ...]:
        """Agents that no turn can be started with."""
        return tuple(agent for agent in self.agents if agent.problem)

    @property
    def ok(self) -> bool:
        """Whether everything can be armed."""
        return not self.problems and not self.unresolved and not self.targets

    def to_json(self) -> dict[str, Any]:
        """Return it as `check --json` shows it."""
        return {
            "ok": self.ok,
            "routines": self.total,
            "broken": self.broken,
            "problems": [problem_json(problem) for problem in self.problems],
            "remarks": [problem_json(remark) for remark in self.remarks],
            "agents": [
                {
                    "name": agent.name or None,
                    "program": agent.program,
                    "version": agent.version,
                    "problem": agent.problem,
                    "used_by": list(agent.used_by),
                }
                for agent in self.agents
            ],
            "targets": [
                {"name": one.label, "problem": one.problem, "used_by": list(one.used_by)}
                for one in self.targets
            ],
            "wake_tools": None if self.wake_tools is None else self.wake_tools.to_json(),
            "zone_note": self.zone_note,
        }


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as `--json` shows it."""
    return {
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.message,
        "cure": problem.cure,
    }


def check(context: Context, files: Sequence[str] = ()) -> Checked:
    """Return what is wrong with the workspace, or with some of its files only.

    Raises:
        UsageError: A file that was named is none of this workspace.
    """
    workspace = context.workspace
    wanted = _paths(context, files)
    problems = [p for p in workspace.problems if wanted is None or p.path in wanted]
    remarks = [*workspace.remarks, *_about_schedules(context), *places_missing(workspace)]
    agents = with_versions(
        context,
        agents_found(workspace.settings, workspace.routines, path=search_path(context)),
        keep=False,
    )
    targets = targets_missing(
        workspace.settings,
        workspace.routines.values(),
        root=workspace.root.path,
        path=search_path(context),
    )
    asked = set(workspace.names)
    if wanted is not None:
        names = {os.path.splitext(os.path.basename(path))[0] for path in wanted}
        agents = [agent for agent in agents if names & set(agent.used_by)]
        asked &= names
        names.add("routines.yaml")
        targets = tuple(one for one in targets if names & set(one.used_by))
    return Checked(
        problems=tuple(sorted(problems, key=_place)),
        remarks=tuple(
            sorted((r for r in remarks if wanted is None or r.path in wanted), key=_place)
        ),
        total=len(asked),
        broken=len(asked & (set(workspace.broken) | set(workspace.stale))),
        agents=tuple(agents),
        targets=targets,
        zone_note=zone_note(context) if wanted is None else None,
        wake_tools=(
            wake_tools_found(workspace.settings, workspace.routines) if wanted is None else None
        ),
    )


def _place(problem: Problem) -> tuple[str, int, int]:
    return problem.path, problem.line or 0, problem.column or 0


def _paths(context: Context, files: Sequence[str]) -> set[str] | None:
    if not files:
        return None
    root = context.workspace.root.path
    wanted = set()
    for file in files:
        path = os.path.realpath(os.path.join(context.cwd, file))
        if not os.path.exists(path):
            raise UsageError(f"there is no file {file}", hint="`routines check` checks all of them")
        if not path.startswith(root + os.sep):
            raise UsageError(
                f"{file} lies outside of {root}", hint="--root names another workspace"
            )
        wanted.add(os.path.relpath(path, root))
    return wanted


def _about_schedules(context: Context) -> list[Problem]:
    """Return what the authors of schedules may not have meant, with the next dates."""
    now = context.clock.now()
    found = []
    for routine in context.workspace.routines.values():
        if routine.schedule is None or not routine.enabled:
            continue
        key = next((key for key in _SCHEDULE_KEYS if key in routine.line_of), None)
        path = path_of(context.workspace, routine)
        line = None if key is None else routine.line_of[key]
        found += [
            Problem(path, line, None, key, remark)
            for remark in schedule_remarks(routine.schedule, now)
        ]
    return found
