"""Starting a program by its words, or saying why nothing was started.

There is no shell anywhere. The prompt is data: it is handed over byte by byte, never looked at.
"""

import errno
import os
import sys
from collections.abc import Mapping, Sequence

from routines.agents.base import TurnResult
from routines.agents.processes import Child, SetupFailed, start_program
from routines.domain.outcome import Outcome, Reason, one_line

# The kernel's MAX_ARG_STRLEN on Linux, 32 pages of 4 KiB, the closing NUL included.
_LONGEST_ARGUMENT = 32 * 4096 - 1 if sys.platform == "linux" else None

# Nothing is wrong with command or entry; the machine has no room at this moment.
_MAY_HEAL = frozenset(
    [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR]
)


class CannotStart(Exception):
    """Nothing was started.

    Attributes:
        result: What the turn is for that.
    """

    def __init__(self, outcome: Outcome | None, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.result = TurnResult(outcome=outcome, reason=reason, detail=one_line(detail))


def _not_found(detail: str) -> CannotStart:
    return CannotStart(Outcome.FAILED, Reason.NOT_FOUND, detail)


def start(words: Sequence[str], *, env: Mapping[str, str], cwd: str, with_stdin: bool) -> Child:
    """Start a program by its *words*, no shell.

    Args:
        words: Its command; the first is looked for on the PATH of *env*.
        env: Its whole environment.
        cwd: Where it runs.
        with_stdin: Whether what it reads comes by a pipe.

    Raises:
        CannotStart: Nothing was started.
    """
    encoded = _encode(words)
    program = find_program(words[0] if words else "", env=env, cwd=cwd)
    # Programs that believe PWD (opencode does) would work in the scheduler's folder.
    env = {key: value for key, value in env.items() if key != "OLDPWD"} | {"PWD": cwd}
    try:
        return start_program(encoded, program=program, env=env, cwd=cwd, with_stdin=with_stdin)
    except OSError as error:
        raise _start_failed(error, program) from error
    except ValueError as error:
        raise _unfit(f"the environment can't be given: {error}") from error
    except SetupFailed as error:
        raise CannotStart(None, Reason.NOT_STARTED, f"{program}: {error}") from error


def _start_failed(error: OSError, program: str) -> CannotStart:
    said = os.strerror(error.errno or 0)
    if error.errno == errno.E2BIG:
        return _unfit(
            "command and environment are too long together; hand the prompt over by stdin"
        )
    if error.errno in _MAY_HEAL:
        return CannotStart(None, Reason.NOT_STARTED, f"{program} can't be started now: {said}")
    if error.errno == errno.ENOENT:
        return _not_found(f"command not found: the interpreter that {program} names in its #! line")
    if error.errno == errno.ENOEXEC:
        return _not_found(f"command not executable: {program} has no #! line: {said}")
    return _not_found(f"command not executable: {program}: {said}")


def find_program(word: str, *, env: Mapping[str, str], cwd: str) -> str:
    """Return the absolute path of the program that *word* names in that environment and folder.

    Raises:
        CannotStart: There is none, or none that can be run; the message shows where was looked.
    """
    if not os.path.isdir(cwd):
        raise _not_found(f"working directory not found: {cwd}")
    if not os.access(cwd, os.X_OK):
        raise _not_found(f"working directory can't be entered: {cwd}")
    path = env.get("PATH", os.defpath)
    if "/" in word:
        places = [os.path.join(cwd, word)]
    else:
        places = [os.path.join(cwd, folder, word) for folder in path.split(os.pathsep)]
    found = [place for place in places if word and os.path.isfile(place)]
    for place in found:
        if os.access(place, os.X_OK):
            return place
    if found:
        raise _not_found(f"command not executable: {found[0]}")
    raise _not_found(f"command not found: {word}" + ("" if "/" in word else f", PATH={path}"))


def _encode(words: Sequence[str]) -> list[bytes]:
    """Return *words* in UTF-8, whatever the locale, or say which can't be a word of a command."""
    encoded = []
    for word in words:
        data = utf8(word, "a word of the command")
        if b"\0" in data:
            raise _unfit("the prompt or another word of the command holds a NUL byte")
        if _LONGEST_ARGUMENT is not None and len(data) > _LONGEST_ARGUMENT:
            raise _unfit(
                f"prompt too long for one argument: {len(data):,} bytes,"
                f" and {_LONGEST_ARGUMENT:,} fit; use prompt_by: stdin"
            )
        encoded.append(data)
    return encoded


def utf8(text: str, what: str) -> bytes:
    """Return *text* in UTF-8, whatever the locale.

    Raises:
        CannotStart: It holds half a character.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _unfit(
            f"{what} holds half a character at {error.start}, which has no bytes"
        ) from None


def _unfit(detail: str) -> CannotStart:
    # Not `not-started`: the same words will be just as unfit in a minute, and at every attempt.
    return CannotStart(Outcome.FAILED, Reason.AGENT, detail)
