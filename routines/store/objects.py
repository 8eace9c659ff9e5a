"""Files of one JSON object each: replaced whole, and nothing where they can't be read."""

import json
import os
from typing import Any

from routines.domain.decoding import UNREADABLE
from routines.store import files


def write(path: str, data: dict[str, Any], *, sync: bool = True) -> None:
    """Make *data* the content of *path*, and its folder if it is missing.

    Args:
        path: Which file.
        data: What it is to hold.
        sync: False for what may be lost in a power cut.

    Raises:
        NotDurable: It could not be written, or not synced; it may be there all the same.
    """
    text = json.dumps(data, ensure_ascii=False, indent=1)
    content = text.encode("utf-8", "backslashreplace") + b"\n"
    try:
        if sync:
            files.in_folder(path, lambda: files.replace(path, content))
        else:
            files.add_folder(os.path.dirname(path))
            files.replace(path, content, sync=False)
    except OSError as error:
        raise files.fault(error, "write", path) from error


def read(path: str) -> dict[str, Any] | None:
    """Return the object that *path* holds; None if it is missing, torn or something else."""
    data = files.read(path)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
