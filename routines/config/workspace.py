"""The workspace: which folder it is, and what all of its files say at one moment."""

import os
from collections.abc import Iterable
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field, replace
from enum import StrEnum

from routines.config import reader
from routines.config.files import read_bytes, why
from routines.config.routine_file import Definition, read_routine_file, routine_name
from routines.config.workspace_file import FILE_NAME, WorkspaceSettings, parse_settings
from routines.domain.names import check_routine_name, same_name
from routines.domain.routine import Routine
from routines.errors import InvalidName, Problem, WorkspaceNotFound

FOLDER = "routines"
STATE_FOLDER = ".routines"
_APPLICATION = "routines"


# --- which folder -----------------------------------------------------------------------------


class FoundBy(StrEnum):
    """How the root was found."""

    OPTION = "--root"
    ENVIRONMENT = "$ROUTINES_ROOT"
    NEAREST = "the nearest folder upwards"
    USER = "the user's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Where a workspace and its state are.

    Attributes:
        path: The folder that holds routines.yaml and routines/; absolute, links resolved.
        found_by: How it was found.
        state: The state folder; absolute.
    """

    path: str
    found_by: FoundBy
    state: str

    @property
    def settings_file(self) -> str:
        """Return the path of routines.yaml."""
        return os.path.join(self.path, FILE_NAME)

    @property
    def folder(self) -> str:
        """Return the folder with one file for each routine."""
        return os.path.join(self.path, FOLDER)

    def words(self) -> str:
        """Return the folder and how it was found, for a person."""
        return f"{self.path} ({self.found_by.value})"


def is_workspace(path: str) -> bool:
    """Return whether *path* is a folder with routines.yaml, a routine, or a state folder."""
    if os.path.isfile(os.path.join(path, FILE_NAME)):
        return True
    if os.path.isdir(os.path.join(path, STATE_FOLDER)):
        return True
    try:
        return any(routine_name(name) for name in os.listdir(os.path.join(path, FOLDER)))
    except OSError:
        return False


def find_root(*, explicit: str | None, environ: Dict[str, str], cwd: str) -> Root:
    """Return the workspace to use.

    It is the one given by `--root`, else by `$ROUTINES_ROOT`, else the nearest one from *cwd*
    upwards, else the user's own if it exists.

    Raises:
        WorkspaceNotFound: There is none, or the one that was named is none.
    """
    home, state = environ.get("ROUTINES_ROOT"), environ.get("ROUTINES_STATE")
    if explicit:
        named = os.path.join(cwd, explicit)
        # Within a turn both variables are set. Another root has a state folder of its own, and
        # the one in the environment would mix two workspaces.
        if state and home and _is_same(named, os.path.join(cwd, home)):
            return _of_the_turn(named, FoundBy.OPTION, os.path.join(cwd, state))
        return _named(named, FoundBy.OPTION)
    if home:
        named = os.path.join(cwd, home)
        if state:
            return _of_the_turn(named, FoundBy.ENVIRONMENT, os.path.join(cwd, state))
        return _named(named, FoundBy.ENVIRONMENT)
    return _nearest(cwd) or _users_own() or _none(cwd)


def _is_same(one: str, two: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(two)


def _of_the_turn(path: str, found_by: FoundBy, state: str) -> Root:
    """Return the workspace of the turn that asks; its files may be gone since it began."""
    return Root(path=os.path.realpath(path), found_by=found_by, state=os.path.normpath(state))


def _named(path: str, found_by: FoundBy) -> Root:
    if not is_workspace(path):
        what = "has no routines.yaml and no routines/" if os.path.isdir(path) else "is no folder"
        raise WorkspaceNotFound(
            f"{path} {what}; it was given by {found_by.value}",
            hint="`routines init` makes a workspace of a folder",
        )
    return _root(os.path.realpath(path), found_by, STATE_FOLDER)


def _nearest(cwd: str) -> Root | None:
    path = os.path.realpath(cwd)
    while True:
        if is_workspace(path):
            return _root(path, FoundBy.NEAREST, STATE_FOLDER)
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent


def user_folders() -> tuple[str, str]:
    """Return where the user's own workspace and its state are, whether they exist or not."""
    import platformdirs

    return (
        platformdirs.user_config_dir(_APPLICATION, appauthor=False),
        platformdirs.user_state_dir(_APPLICATION, appauthor=False),
    )


def _users_own() -> Root | None:
    path, state = user_folders()
    return _root(os.path.realpath(path), FoundBy.USER, state) if is_workspace(path) else None


def _none(cwd: str) -> Root:
    raise WorkspaceNotFound(
        f"no routines here: {cwd} and the folders above it have no {FILE_NAME} and no {FOLDER}/",
        hint="`routines init` makes a workspace of this folder; --root names another one",
    )


def _root(path: str, found_by: FoundBy, usual_state: str) -> Root:
    settings, _ = _read_settings(path)
    state = settings.state or os.path.join(path, usual_state)
    return Root(path=path, found_by=found_by, state=state)


# --- what its files say -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """What the files of a workspace say.

    Attributes:
        root: Where it is.
        settings: What routines.yaml says, or its last good version.
        routines: What can be armed, by name: also a last good version of what is broken now.
        broken: Why a routine can't be used, by name.
        stale: Why an edit does not count and the last good version goes on, by name.
        settings_problems: Why routines.yaml can't be used.
        problems: Everything that is wrong with any file.
        remarks: What is allowed and probably not meant.
    """

    root: Root
    settings: WorkspaceSettings
    routines: Dict[str, Routine]
    broken: Dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    stale: Dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    settings_problems: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all routines, good and broken, sorted."""
        return tuple(sorted({*self.routines, *self.broken}))


def load_workspace(root: Root) -> Workspace:
    """Return what the files say now. Nothing is armed while routines.yaml is broken."""
    settings, settings_problems = _read_settings(root.path)
    files, folder_problems = list_files(root)
    definitions = [
        read_routine_file(os.path.join(root.folder, name), stem, root=root.path, settings=settings)
        for name, stem in files
    ]
    return assemble(
        root,
        settings,
        definitions,
        settings_problems=settings_problems,
        folder_problems=folder_problems,
    )


def _read_settings(path: str) -> tuple[WorkspaceSettings, tuple[Problem, ...]]:
    try:
        data = read_bytes(os.path.join(path, FILE_NAME), reader.LARGEST_FILE)
    except FileNotFoundError:
        return WorkspaceSettings(), ()
    except OSError as error:
        problem = Problem(FILE_NAME, None, None, None, f"can't be read: {why(error)}")
        return WorkspaceSettings(is_whole=False), (problem,)
    return parse_settings(data, root=path)


def load_settings(root: Root) -> tuple[WorkspaceSettings, tuple[Problem, ...]]:
    """Return what routines.yaml says, and what is wrong with it."""
    return _read_settings(root.path)


def list_files(root: Root) -> tuple[list[tuple[str, str]], tuple[Problem, ...]]:
    """Return the files that hold a routine with their stems, sorted; and why there are none."""
    try:
        names = os.listdir(root.folder)
    except FileNotFoundError:
        return [], ()
    except OSError as error:
        return [], (folder_problem(error),)
    files = [(name, stem) for name in names if (stem := routine_name(name)) is not None]
    return sorted(files), ()


def folder_problem(error: OSError) -> Problem:
    """Return the problem of a folder of routines that can't be listed."""
    return Problem(FOLDER, None, None, None, f"can't be read: {why(error)}")


def assemble(
    root: Root,
    settings: WorkspaceSettings,
    definitions: Iterable[Definition],
    *,
    last_good: Dict[str, Routine] | None = None,
    settings_problems: tuple[Problem, ...] = (),
    folder_problems: tuple[Problem, ...] = (),
) -> Workspace:
    """Return the workspace of these definitions.

    Args:
        root: Where it is.
        settings: What holds for all.
        definitions: What each file says, in any order.
        last_good: Routines that go on where a file is broken now.
        settings_problems: What is wrong with routines.yaml.
        folder_problems: What is wrong with the folder.
    """
    ordered = sorted(definitions, key=lambda definition: definition.path)
    clashes = _clashes(ordered)
    kept = last_good or {}
    routines: dict[str, Routine] = {}
    why_not: dict[str, list[Problem]] = {}
    for definition in ordered:
        wrong = [*definition.problems, *clashes.get(definition.path, ())]
        if not settings.is_whole:
            wrong = wrong or list(settings_problems)
        if wrong or definition.routine is None:
            why_not.setdefault(definition.name, []).extend(wrong)
        else:
            routines[definition.name] = definition.routine
    stale = {name: tuple(found) for name, found in why_not.items() if name in kept}
    broken = {name: tuple(found) for name, found in why_not.items() if name not in kept}
    routines.update((name, kept[name]) for name in stale)
    own = [problem for definition in ordered for problem in definition.problems]
    between = [problem for found in clashes.values() for problem in found]
    return Workspace(
        root=root,
        settings=settings,
        routines=dict(sorted(routines.items())),
        broken=broken,
        stale=stale,
        settings_problems=settings_problems,
        problems=(*settings_problems, *folder_problems, *own, *between),
        remarks=tuple(remark for definition in ordered for remark in definition.remarks),
    )


def _clashes(definitions: list[Definition]) -> dict[str, tuple[Problem, ...]]:
    """Return the problems of files whose names can't be told apart everywhere, by path."""
    by_name: dict[str, list[str]] = {}
    for definition in definitions:
        by_name.setdefault(same_name(definition.name), []).append(definition.path)
    clashing = [paths for paths in by_name.values() if len(paths) > 1]
    return {path: (_clash(path, paths),) for paths in clashing for path in paths}


def _clash(path: str, paths: list[str]) -> Problem:
    others = " and ".join(other for other in paths if other != path)
    message = f"has the same name as {others}"
    return Problem(path, None, None, None, message, "rename or remove one of them; none is armed")


# --- one definition ---------------------------------------------------------------------------


def read_definition(root: Root, settings: WorkspaceSettings, name: str) -> Definition | None:
    """Return what the file of *name* says now, or None if there is no such file.

    This is what a claim and a turn go by. It is broken in a clash and under broken settings, as
    in the workspace: defaults in the place of settings would make another routine of it.
    """
    try:
        wanted = check_routine_name(name)
    except InvalidName:
        return None
    found = [
        ending for ending in ENDINGS if os.path.lexists(os.path.join(root.folder, wanted + ending))
    ]
    files = [wanted + ending for ending in found] or _spelt_otherwise(root, wanted)
    definitions = [
        read_routine_file(
            os.path.join(root.folder, file), wanted, root=root.path, settings=settings
        )
        for file in files
    ]
    if len(definitions) < 2:  # noqa: PLR2004 -- two of a name are a clash
        return _whole(definitions[0], settings) if definitions else None
    clash = tuple(found for problems in _clashes(definitions).values() for found in problems)
    first = definitions[0]
    return Definition(
        name=wanted, path=first.path, routine=None, problems=clash, sources=first.sources
    )


def _whole(definition: Definition, settings: WorkspaceSettings) -> Definition:
    if settings.is_whole or definition.routine is None:
        return definition
    problem = Problem(FILE_NAME, None, None, None, "can't be used, and every routine needs it")
    return replace(definition, routine=None, problems=(problem,))


ENDINGS = (".yaml", ".yml")


def _spelt_otherwise(root: Root, name: str) -> list[str]:
    """Return the files whose stem is *name* in another Unicode form or with another ending."""
    files, _ = list_files(root)
    return [file for file, stem in files if _normal(stem) == name]


def _normal(stem: str) -> str | None:
    try:
        return check_routine_name(stem)
    except InvalidName:
        return None
