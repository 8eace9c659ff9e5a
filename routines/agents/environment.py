"""The environment of a turn: what the scheduler has, less what misleads, plus what is asked for.

The last words are ours: `ROUTINES_SESSION` and its kin are how `wake`, run inside a turn from any
folder, finds the right store and session, and how a process is known to belong to a turn.
"""

import os
import re
from collections.abc import Iterable, Mapping

from routines.agents.base import Turn
from routines.agents.surroundings import without_surroundings
from routines.domain.names import format_instant
from routines.errors import InvalidFiles, Problem

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPORT = re.compile(r"\Aexport[ \t]+")
# A file of settings has a few lines; a larger one is the wrong file (a log, a database).
_LARGEST_ENV_FILE = 1024 * 1024


def turn_environment(turn: Turn, *, root: str, state: str) -> dict[str, str]:
    """Return the `ROUTINES_*` variables that tell a turn, and everything it starts, who it is."""
    known = {
        "ROUTINES_ROOT": root,
        # A link may lead elsewhere by the time that somebody looks for what a turn left.
        "ROUTINES_STATE": os.path.realpath(state),
        "ROUTINES_SESSION": turn.session,
        "ROUTINES_ROUTINE": turn.routine,
        "ROUTINES_SLOT": None if turn.slot is None else format_instant(turn.slot),
        "ROUTINES_TURN": turn.key,
        "ROUTINES_TRIGGER": turn.trigger.value,
        "ROUTINES_LATE_S": str(int(turn.late.total_seconds())),
    }
    # What does not apply is absent: an empty ROUTINES_SLOT would be read as a slot.
    return {key: value for key, value in known.items() if value is not None}


def environment(
    base: Mapping[str, str],
    turn: Turn,
    *,
    root: str,
    state: str,
    env_file: str | None = None,
    env: Mapping[str, str] | None = None,
    spec_env: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """Return the environment in which *turn* runs.

    Args:
        base: The scheduler's own.
        turn: Whose it is.
        root: The workspace folder.
        state: The state folder.
        env_file: Absolute path of a file of KEY=VALUE lines, or None.
        env: The routine's `env`.
        spec_env: The agent entry's `env`.

    Raises:
        InvalidFiles: *env_file* can't be read or has lines that can't be used.
    """
    made = without_surroundings(base)
    if env_file is not None:
        made.update(read_env_file(env_file))
    made.update(env or {})
    made.update(spec_env)
    made.update(turn_environment(turn, root=root, state=state))
    return made


def read_env_file(path: str) -> dict[str, str]:
    """Return what the KEY=VALUE lines of *path* set.

    Empty lines and lines that begin with `#` are nothing, `export ` before a key is allowed,
    quotes around a whole value are taken off. Nothing is expanded.

    Raises:
        InvalidFiles: All problems at once. No message shows a value: these files hold keys.
    """
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for number, line in enumerate(_env_lines(path), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        parsed = _env_line(text)
        if isinstance(parsed, str):
            problems.append(Problem(path, number, None, None, parsed, "write KEY=VALUE"))
        else:
            found[parsed[0]] = parsed[1]
    if problems:
        raise InvalidFiles(problems)
    return found


def _env_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_ENV_FILE + 1)
        if len(data) > _LARGEST_ENV_FILE:
            raise _unusable(path, "is larger than 1 MiB and can't be an env_file")
        text = data.decode("utf-8-sig")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise _unusable(path, f"this env_file can't be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "this env_file is not UTF-8 text") from error
    # Only these end a line: a form feed or U+2028 inside a value is part of the value.
    return text.replace("\r\n", "\n").split("\n")


def _unusable(path: str, message: str) -> InvalidFiles:
    return InvalidFiles([Problem(path, None, None, None, message)])


def _env_line(text: str) -> tuple[str, str] | str:
    """Return key and value, or what is wrong without showing the value."""
    key, equals, value = _EXPORT.sub("", text, count=1).partition("=")
    key = key.rstrip()
    if not equals:
        return "a line without '='"
    if not _KEY.fullmatch(key):
        return "what stands before '=' is no name of a variable"
    value = value.strip()
    if "\0" in value:
        return f"the value of {key} holds a NUL byte"
    if value[:1] in {'"', "'"}:
        if len(value) == 1 or value[-1] != value[0]:
            return f"the quote that begins the value of {key} is not closed"
        value = value[1:-1]
    return key, value
