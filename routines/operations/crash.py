"""A bug, kept so that it can be reported."""

import os
import platform
import tempfile
import traceback
from collections.abc import Mapping

from routines.store import files


def save_traceback(
    error: BaseException, *, command: str, version: str, environ: Mapping[str, str]
) -> str | None:
    """Write what is needed to find the bug into a file of its own; return its path.

    It holds versions, the name of the command and the traceback: no prompt, no environment.

    Returns:
        The path, or None if it could not be written anywhere.
    """
    text = "\n".join(
        [
            f"routines {version}, command {command or '?'}",
            f"Python {platform.python_version()}, {platform.platform()}",
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    for folder in (_log_folder(environ), tempfile.gettempdir()):
        path = os.path.join(folder, f"bug-{os.getpid()}-{id(error):x}.txt")
        try:
            if not os.path.isdir(folder):
                files.make_folder(folder)
            files.create(path, text.encode("utf-8", "backslashreplace"))
        except OSError:
            continue
        return path
    return None


def _log_folder(environ: Mapping[str, str]) -> str:
    if environ.get("XDG_STATE_HOME"):
        return os.path.join(environ["XDG_STATE_HOME"], "routines", "log")
    import platformdirs

    return platformdirs.user_log_dir("routines", appauthor=False)
