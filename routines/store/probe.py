"""Whether a file system can do what claims and leases need, tried before anything relies on it.

Run as a program of its own, `python -m routines.store.probe FOLDER`: NFS emulates some locks for
each process, so that two descriptors of one process would not conflict there (PROMISES D9).
"""

import contextlib
import errno
import os
import secrets
import sys

from routines.errors import StoreError
from routines.store import files, locks

# What the exit code says.
FINE, NO_LOCKS, NO_EXCLUSION, FAILED = 0, 3, 4, 5
# Where a claim, its turn and its end are written.
_USED = ("claims", "open", "missed", "cursors", "sessions", "locks", "output")


def probe(folder: str) -> int:
    """Return what *folder*'s file system can do: `FINE`, `NO_LOCKS`, `NO_EXCLUSION`."""
    path = os.path.join(folder, f".probe-{secrets.token_hex(8)}")
    fd = files.open_new(path)
    try:
        with contextlib.suppress(FileExistsError):
            files.close(files.open_new(path))
            return NO_EXCLUSION
        try:
            if not locks.try_lock(fd):
                return NO_LOCKS
        except OSError:
            return NO_LOCKS
        return FINE if _child_is_refused(path) else NO_LOCKS
    finally:
        locks.let_go(fd)
        files.remove(path)


def _child_is_refused(path: str) -> bool:
    """Return whether another process finds the file locked."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(OSError):
            code = 1 if locks.try_lock(files.open_append(path)) else 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def try_writing(state: str) -> StoreError | None:
    """Return why a claim can't be made in the state folder *state*, None if nothing is in its way.

    A draft and a second name for it are made and removed in each folder that claims use, as far
    as it is there: one that is not is made in the first.
    """
    folders = [state, *(os.path.join(state, name) for name in _USED)]
    for folder in filter(os.path.isdir, folders):
        try:
            _make_and_remove(folder)
        except OSError as error:
            return files.fault(error, "write in", folder)
    claims = os.path.join(state, "claims")
    for name in files.names(claims):
        # Too many to be tried one by one; their mode is all that differs.
        folder = os.path.join(claims, name)
        if not os.access(folder, os.W_OK | os.X_OK):
            return files.fault(PermissionError(errno.EACCES, ""), "write in", folder)
    return None


def _make_and_remove(folder: str) -> None:
    draft, second = (files.draft_name(os.path.join(folder, "probe")) for _ in range(2))
    try:
        fd = files.open_new(draft)
        try:
            files.write_all(fd, b"x")
        finally:
            files.close(fd)
        try:
            files.link(draft, second)
        except OSError as error:
            if error.errno not in files.NO_LINKS:
                raise
    finally:
        files.discard(second)
        files.discard(draft)


def main(argv: list[str]) -> int:
    """Try the folder that is named and exit with what was found."""
    try:
        return probe(argv[0])
    except OSError as error:
        sys.stderr.write(f"{files.errno_name(error)}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
