"""Who this process is, in the form in which claims name their owner."""

import functools
import os
import platform

from routines.agents.identity import boot_id, host_id, is_alive, process_identity
from routines.domain.record import Owner
from routines.domain.recovery import Here
from routines.store import files


@functools.cache
def here() -> Here:
    """Return this host and boot."""
    return Here(host=host_id(), boot=boot_id() or None)


def user_at_host() -> str:
    """Return `ana@studio`: how acts of this process are signed."""
    return f"{files.current_user()}@{platform.node() or 'localhost'}"


def owner() -> Owner:
    """Return this process as the owner of claims; asked anew after a fork."""
    identity = process_identity() or {}
    return Owner(
        host=here().host,
        boot=here().boot,
        pid=os.getpid(),
        start=identity.get("start"),
        pidns=identity.get("pidns"),
        user=user_at_host(),
    )


def is_gone(one: Owner | None) -> bool:
    """Return whether an owner is known to have ended; False where that can't be told."""
    return one is not None and is_alive(one.to_json()) is False
