"""Whether the store refuses what a slot that is due needs: its scheduler tells, or the disk."""

import errno
import os

from routines.operations.life import Schedulers
from routines.store.state import State


def refusal(state: State | None, alive: Schedulers, routine: str) -> str:
    """Return what the store refuses of *routine*, in words; empty if it refuses nothing.

    A scheduler says so with its heartbeat. A full disk keeps that from being written too, so it
    is asked itself; nothing is written for it.
    """
    claiming = [one for one in alive.live if not one.external_clock]
    told = [one.faults[routine] for one in claiming if routine in one.faults]
    if told and len(told) == len(claiming):
        return f"the store refuses: {told[0]}"
    if claiming and state is not None and _is_full(state.path):
        return f"the store refuses: {os.strerror(errno.ENOSPC)}"
    return ""


def _is_full(path: str) -> bool:
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    # The last blocks are root's on many file systems.
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    inodes = found.f_ffree if os.geteuid() == 0 else found.f_favail
    return (found.f_blocks > 0 and blocks <= 0) or (found.f_files > 0 and inodes <= 0)
