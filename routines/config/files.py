"""Reading files that other people write: whole, bounded, and never waiting on one."""

import errno
import os
import stat

Signature = tuple[int, int, int, int]


def read_bytes(path: str, largest: int) -> bytes:
    """Return what the regular file *path* holds, at most one byte more than *largest*.

    Raises:
        OSError: It can't be read, or is no regular file.
    """
    # A pipe under the name of a routine would otherwise hold up every command for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(largest + 1)


def why(error: OSError) -> str:
    """Return `permission denied (EACCES)`: what the system said, with its name."""
    name = errno.errorcode.get(error.errno or 0)
    text = (error.strerror or str(error)).lower()
    return f"{text} ({name})" if name else text


def signature(path: str) -> Signature | None:
    """Return what changes when the content of *path* does, or None if there is no such file."""
    try:
        return signature_of(os.stat(path))
    except (OSError, ValueError):
        return None


def signature_of(status: os.stat_result) -> Signature:
    """Return modification time, size, inode and change time.

    An edit that keeps the size and sets the old modification time back still has another change
    time; a file moved into place has another inode.
    """
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def absolute(text: str, root: str) -> str | None:
    """Return the path that *text* means in a workspace, or None if its `~user` is unknown."""
    path = os.path.expanduser(text)
    if path.startswith("~"):
        return None
    return os.path.normpath(os.path.join(root, path))


def relative(path: str, root: str) -> str:
    """Return *path* as problems name it: from the root where it lies inside."""
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, root) if inside else path
