"""`init`, `new` and `schema`: files that a person goes on editing."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from routines.config.schema import routine_schema, schema_texts, workspace_schema
from routines.config.workspace_file import ECHO_NAME
from routines.config.write import ROUTINE_SCHEMA, routine_text, workspace_text
from routines.domain.agent import PRESETS
from routines.domain.names import check_routine_name, format_instant, same_name
from routines.errors import InvalidFiles, InvalidName, UsageError
from routines.operations.agents_found import ask_version, find_program
from routines.operations.context import Context
from routines.operations.listing import search_path
from routines.operations.zone_note import machine_zone
from routines.store import files

_FIRST_NAME = "daily-digest"
_FIRST_PROMPT = (
    "Summarise what changed in this folder since yesterday, and what waits for me."
    " Only read; change nothing.\n"
)


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent that `init` can write down.

    Attributes:
        name: As routines will name it: a preset, or echo.
        program: The path of its program; None for echo, which needs none.
        version: The program's version, if it was asked and said one.
    """

    name: str
    program: str | None
    version: str | None = None


def agent_choices(context: Context) -> list[AgentChoice]:
    """Return the presets whose programs are on PATH; echo, which is always there, last.

    None is started: `choices_with_versions` asks them.
    """
    from routines.config.presets import preset_spec

    path = search_path(context)
    choices = []
    for name in PRESETS:
        program = find_program(preset_spec(name).command[0], path=path, cwd=context.cwd)
        if program is not None:
            choices.append(AgentChoice(name, program))
    return [*choices, AgentChoice(ECHO_NAME, None)]


def choices_with_versions(context: Context, choices: Sequence[AgentChoice]) -> list[AgentChoice]:
    """Return *choices* with the versions of their programs: each is started to say it."""
    from routines.config.presets import preset_spec

    return [
        one
        if one.program is None
        else replace(
            one,
            version=ask_version(context, preset_spec(one.name), one.program, cwd=context.cwd),
        )
        for one in choices
    ]


def usual_zone(context: Context) -> str:
    """Return the machine's own zone, UTC if it is not known by name."""
    own = machine_zone(context)
    return "UTC" if own is None else own.key


@dataclass(frozen=True, slots=True)
class Made:
    """What was written.

    Attributes:
        root: The workspace.
        written: New files, from the root.
        kept: Files that were there and stay as they were.
        routine: The routine to begin with.
        next: Its next instants.
        tz: The zone that they are read in.
    """

    root: str
    written: tuple[str, ...]
    kept: tuple[str, ...]
    routine: str
    next: tuple[datetime, ...] = ()
    tz: str = "UTC"

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {
            "root": self.root,
            "written": list(self.written),
            "kept": list(self.kept),
            "routine": self.routine,
            "tz": self.tz,
            "next": [format_instant(at) for at in self.next],
        }


def init(context: Context, *, tz: str, agent: str) -> Made:
    """Make a workspace of the folder: what is there already stays as it is.

    Args:
        context: Its `--root`, or the current folder.
        tz: The zone to write down.
        agent: The name of one of `agent_choices`.

    Raises:
        UsageError: The folder is none.
        NotDurable, StateForeign: It can't be written.
    """
    root = os.path.realpath(os.path.join(context.cwd, context.explicit_root or ""))
    if not os.path.isdir(root):
        raise UsageError(f"{root} is no folder", hint="make it first, or leave --root out")
    settings = workspace_text(tz=tz, agent=agent)
    first = routine_text(
        prompt=_FIRST_PROMPT,
        cron="0 9 * * 1-5",
        description="What changed since yesterday; reads only.",
        schema=ROUTINE_SCHEMA,
    )
    wanted = {"routines.yaml": settings}
    # A workspace that has routines of its own wants no example among them.
    if not _has_routines(root):
        wanted[f"routines/{_FIRST_NAME}.yaml"] = first
    written, kept = _write(root, wanted)
    # From here on it is a workspace, whatever the nearest one upwards was.
    made = Context(
        explicit_root=root, environ=context.environ, cwd=context.cwd, clock=context.clock
    )
    state = made.writable_state
    for name, text in schema_texts().items():
        if not os.path.exists(state.at(name)):
            try:
                files.create(state.at(name), text.encode())
            except OSError as error:
                raise files.fault(error, "write", state.at(name)) from error
    name = _FIRST_NAME if _FIRST_NAME in made.workspace.names else next(iter(made.workspace.names))
    return _made(made, written, kept, name)


def _has_routines(root: str) -> bool:
    return any(
        name.endswith((".yaml", ".yml")) for name in files.names(os.path.join(root, "routines"))
    )


def _write(root: str, texts: dict[str, str]) -> tuple[list[str], list[str]]:
    written: list[str] = []
    kept: list[str] = []
    for relative, text in texts.items():
        path = os.path.join(root, relative)
        try:
            # People's own files: shared with whom their umask says, and git keeps them.
            files.make_folder(os.path.dirname(path), mode=files.SHARED_FOLDER)
            data = text.encode("utf-8", "surrogateescape")
            made = files.create(path, data, mode=files.SHARED_FILE)
        except OSError as error:
            raise files.fault(error, "write", path) from error
        (written if made else kept).append(relative)
    return written, kept


def _made(context: Context, written: Sequence[str], kept: Sequence[str], name: str) -> Made:
    routine = context.workspace.routines.get(name)
    coming: list[datetime] = []
    at = context.clock.now()
    while routine is not None and routine.schedule is not None and len(coming) < 3:  # noqa: PLR2004
        following = routine.schedule.next_after(at)
        if following is None:
            break
        coming.append(following)
        at = following
    return Made(
        root=context.workspace.root.path,
        written=tuple(written),
        kept=tuple(kept),
        routine=name,
        next=tuple(coming),
        tz=context.zone_of(name).key,
    )


def new(
    context: Context,
    name: str,
    *,
    prompt: str,
    cron: Sequence[str] = (),
    every: str | None = None,
    at: str | None = None,
    tz: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    description: str | None = None,
) -> Made:
    """Write `routines/NAME.yaml`, if it would be right and is not there yet.

    Raises:
        InvalidName: No routine may have that name, or one has it already.
        InvalidFiles: It would be wrong; nothing was written.
        UsageError: More than one schedule was given.
    """
    name = check_routine_name(name)
    if sum(map(bool, (cron, every, at))) > 1:
        raise UsageError("more than one of --cron, --every and --at", hint="write one of them")
    taken = [one for one in context.workspace.names if same_name(one) == same_name(name)]
    if taken:
        raise InvalidName(
            f"there is a routine {taken[0]!r} already", hint=f"edit routines/{taken[0]}.yaml"
        )
    text = routine_text(
        prompt=prompt,
        cron=None if not cron else cron[0] if len(cron) == 1 else list(cron),
        every=every,
        at=at,
        tz=tz,
        agent=agent,
        session=session,
        description=description,
        schema=_schema_line(context),
    )
    _check_text(context, name, text)
    written, kept = _write(context.root.path, {f"routines/{name}.yaml": text})
    fresh = Context(
        explicit_root=context.root.path,
        environ=context.environ,
        cwd=context.cwd,
        clock=context.clock,
    )
    return _made(fresh, written, kept, name)


def _schema_line(context: Context) -> str | None:
    """Return the place of the schema that `init` wrote, if it is there."""
    path = os.path.normpath(os.path.join(context.root.folder, ROUTINE_SCHEMA))
    return ROUTINE_SCHEMA if os.path.exists(path) else None


def _check_text(context: Context, name: str, text: str) -> None:
    from routines.config.routine_file import parse_routine

    definition = parse_routine(
        text.encode("utf-8", "surrogateescape"),
        name,
        path=f"routines/{name}.yaml",
        root=context.root.path,
        settings=context.workspace.settings,
    )
    if definition.problems:
        raise InvalidFiles(definition.problems)


def schema(what: str) -> dict[str, Any]:
    """Return the JSON Schema of a `routine` or of the `workspace`."""
    return routine_schema() if what == "routine" else workspace_schema()
