"""The environment of a turn: what the scheduler has, less what misleads, plus what is asked for.

The last words are ours: `ROUTINES_SESSION` and its kin are how `wake`, run inside a turn from any
folder, finds the right store and session, and how a process is known to belong to a turn.
"""

import os
import re
from collections.abc import Iterable, Mapping

from routines.agents.base import Turn
from routines.domain.names import format_instant
from routines.errors import InvalidFiles, Problem

OWN_PREFIX = "ROUTINES_"

# Set by an agent program around the scheduler (an agent that typed `routines run`, a terminal
# inside an IDE), and read by the same or another program in our turn. By name and not by prefix:
# beside them stand settings and keys that a person chose (CLAUDE_CODE_USE_BEDROCK,
# CLAUDE_CODE_OAUTH_TOKEN, CODEX_HOME, GEMINI_API_KEY), and without those nothing works at night.
SURROUNDING: Mapping[str, str] = {
    "CLAUDECODE": "a nested claude refuses to start, or acts as a child",
    "CLAUDE_CODE_ENTRYPOINT": "says that it was started from an SDK or an IDE",
    "CLAUDE_CODE_SSE_PORT": "would join the IDE window of the outer one",
    "CLAUDE_CODE_SESSION_ID": "tools would write into the outer conversation",
    "CLAUDE_SESSION_ID": "the same, under its older name",
    "CLAUDE_CODE_CHILD_SESSION": "marks it as a sub-agent of the outer one",
    "CLAUDE_CODE_PARENT_SESSION_ID": "the same, by id",
    "CLAUDE_CODE_MESSAGING_SOCKET": "messages would reach the outer conversation",
    "CLAUDE_CODE_EXECPATH": "the outer one's binary, not the one on PATH",
    "CLAUDE_CODE_TMPDIR": "the outer one cleans it up while the turn runs",
    "CLAUDE_AGENT_SDK_VERSION": "says that a program drives the outer one",
    "CLAUDE_ENV_FILE": "a hook's file: exports would land in the outer session",
    "CLAUDE_PROJECT_DIR": "a hook's project, not the turn's",
    "CLAUDE_PLUGIN_ROOT": "a hook's plug-in, not the turn's",
    "ENABLE_IDE_INTEGRATION": "set with the IDE's port, useless without it",
    "CODEX_THREAD_ID": "tools would take the outer thread for their own",
    "CODEX_SANDBOX": "tests and tools would believe they are inside the outer sandbox",
    "CODEX_SANDBOX_NETWORK_DISABLED": "tools would not even try the network",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE": "requests would be counted as the outer program's",
    "CODEX_CI": "marks the outer program's own commands",
    "CODEX_MANAGED_BY_NPM": "how the outer one was installed",
    "CODEX_MANAGED_BY_BUN": "how the outer one was installed",
    "GEMINI_CLI": "marks the outer program's own commands",
    "GEMINI_CLI_IDE_SERVER_PORT": "would join the IDE window of the outer one",
    "GEMINI_CLI_IDE_WORKSPACE_PATH": "the IDE's folder, not the turn's",
    "GEMINI_CLI_IDE_AUTH_TOKEN": "belongs to the IDE's port",
    "GEMINI_CLI_NO_RELAUNCH": "the outer one's own restart",
    "QWEN_CODE": "marks the outer program's own commands",
    "QWEN_CODE_IDE_SERVER_PORT": "would join the IDE window of the outer one",
    "QWEN_CODE_IDE_WORKSPACE_PATH": "the IDE's folder, not the turn's",
    "OPENCODE": "marks the outer program's own commands",
    "OPENCODE_PID": "the outer process",
    "OPENCODE_RUN_ID": "the outer run",
    "OPENCODE_CALLER": "the extension that started the outer one",
    "OPENCODE_CLIENT": "how the outer one is shown",
    "OPENCODE_SESSION_ID": "tools would write into the outer conversation",
    "PI_CODING_AGENT": "marks the outer program's own commands",
    "CURSOR_AGENT": "marks the outer program's own commands",
    "CURSOR_TRACE_ID": "the outer conversation",
    "COPILOT_CLI": "marks the outer program's own commands",
    "AUGMENT_AGENT": "marks the outer program's own commands",
    "GOOSE_TERMINAL": "marks the outer program's own commands",
    "AI_AGENT": "names the outer program, whichever it is",
    "AGENT": "the same, under an older name",
}

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPORT = re.compile(r"\Aexport[ \t]+")
# A file of settings has a few lines; a larger one is the wrong file (a log, a database).
_LARGEST_ENV_FILE = 1024 * 1024


def turn_environment(turn: Turn, *, root: str, state: str) -> dict[str, str]:
    """Return the `ROUTINES_*` variables that tell a turn, and everything it starts, who it is."""
    known = {
        "ROUTINES_ROOT": root,
        "ROUTINES_STATE": state,
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


def without_surroundings(base: Mapping[str, str]) -> dict[str, str]:
    """Return *base* less our own variables and those of an agent program around us."""
    return {
        key: value
        for key, value in base.items()
        if not key.startswith(OWN_PREFIX) and key not in SURROUNDING
    }


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
