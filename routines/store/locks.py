"""Locks that live as long as a process does, and can be handed to another.

They are kernel locks on an open file description: the kernel frees them when the last descriptor
is closed, however the process ends, and a descriptor that is passed on keeps them. So nobody here
ever unlocks: closing is the only way out, and a lock that is held is proof of life.

On Linux they are OFD locks (fcntl(2), "Open file description locks"), which can also be asked
about without being taken; elsewhere flock(2), which can't. Short critical sections are not for
this module but for `files.section`.
"""

import contextlib
import fcntl
import os
import struct
import sys

from routines.store import files

# Elsewhere they have other names for the same, or another layout of what they are asked with.
_LINUX = sys.platform == "linux"
_OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if _LINUX else None
_OFD_GETLK: int | None = getattr(fcntl, "F_OFD_GETLK", None) if _LINUX else None
# struct flock: type, whence, start, length (0 = to the end, whatever it becomes), pid (0 for OFD).
_FLOCK = "hhqqi4x"

# Descriptors with a lock on them. A forked child must close its copies: it would keep the lock
# alive after its parent's death, and the dead would look alive.
_held: set[int] = set()


def _close_in_child() -> None:
    for fd in tuple(_held):
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock on *fd*'s file for this open file description, or say it is held."""
    try:
        if _OFD_SETLK is not None:
            ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(fd, _OFD_SETLK, ask)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        # POSIX lets a system say EAGAIN or EACCES for "held".
        return False
    _held.add(fd)
    return True


def is_locked(fd: int) -> bool | None:
    """Return whether another open file description holds the lock; None if that can't be asked."""
    if _OFD_GETLK is None:
        return None
    ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = fcntl.fcntl(fd, _OFD_GETLK, ask)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def path_is_locked(path: str) -> bool | None:
    """Return whether somebody holds the lock on *path*: asked, not taken. None: can't be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return None
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def adopt(fd: int) -> None:
    """Note a descriptor that was handed to this process with its lock; close it on exec."""
    os.set_inheritable(fd, False)
    _held.add(fd)


def let_go(fd: int) -> None:
    """Close *fd*; the lock is free once no other process holds a copy of it."""
    _held.discard(fd)
    files.close(fd)
