"""Files that replies and alerts are delivered to: they lie where their author says.

A folder gets a file each, whole or not at all; a file is added to, so that nothing that came
before is lost. Both are on the disk when they return.
"""

import os

from routines.errors import StoreError
from routines.store import files


def is_folder(path: str) -> bool:
    """Return whether *path* is to get a file each: it is a folder, or was written as one."""
    return path.endswith("/") or os.path.isdir(path)


def put(folder: str, name: str, text: str) -> None:
    """Keep *text* as a file of its own; the same name again replaces it.

    Raises:
        NotDurable: It could not be written.
    """
    path = os.path.join(folder, name)
    data = _encoded(text)
    try:
        files.in_folder(path, lambda: files.replace(path, data))
    except OSError as error:
        raise files.fault(error, "write", path) from error


def add(path: str, text: str) -> None:
    """Add *text* at the end of a file, in one write: what others add stands before or after it.

    Raises:
        StoreError: It is no plain file.
        NotDurable: It could not be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreError(f"{path} is neither a file nor a folder", path=path)
    try:
        fd = files.in_folder(path, lambda: files.open_append(path, create=True))
        try:
            files.append_line(fd, _encoded(text).removesuffix(b"\n"))
        finally:
            files.close(fd)
    except OSError as error:
        raise files.fault(error, "append to", path) from error


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
