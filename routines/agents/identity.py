"""Who a process is beyond its number, and whether it still lives: host, boot, namespace, start."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from routines.agents.process_table import find_process, pid_namespace
from routines.agents.processes import ask_system

_LINUX = sys.platform == "linux"
# The inode of the first pid namespace is fixed in the kernel (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")
_IO_CLASS = "IOPlatformExpertDevice"


@functools.cache
def boot_id() -> str:
    """Return what names this boot of this machine; "" where nothing does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().decode("ascii").strip()
    except OSError:
        return ask_system("sysctl", "-n", "kern.bootsessionuuid").strip()


@functools.cache
def host_id() -> str | None:
    """Return what names this machine over reboots, None in a container or where nothing does.

    A container has none: its machine id came with the image and is the same on every host.
    """
    if not _LINUX:
        found = re.search(
            r'"IOPlatformUUID" = "([^"]+)"', ask_system("ioreg", "-rd1", "-c", _IO_CLASS)
        )
        return found[1] if found else None
    if in_container(os.environ):
        return None
    for path in _MACHINE_ID_FILES:
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
            text = file.read(100).decode("ascii").strip()
            if re.fullmatch(r"[0-9a-f]{32}", text):
                return text
    return None


def in_container(env: Mapping[str, str]) -> bool:
    """Return whether anything says that this is a container; a wrong yes only costs time."""
    return (
        pid_namespace() != _FIRST_PID_NAMESPACE
        or any(os.path.exists(path) for path in _CONTAINER_MARKS)
        or any(name in env for name in _CONTAINER_VARIABLES)
    )


def process_identity(pid: int | None = None) -> dict[str, Any] | None:
    """Return pid, start, boot and pidns of *pid* (or of ourselves); None if it has ended."""
    pid = os.getpid() if pid is None else pid
    row = find_process(pid)
    if row is None or row.zombie:
        return None
    # The number is one of our namespace, also where the process has one of its own within it.
    return {"pid": pid, "start": row.start, "boot": boot_id(), "pidns": pid_namespace() or ""}


def is_alive(identity: Mapping[str, Any]) -> bool | None:
    """Return whether the process that `process_identity` named still lives.

    None means that it can't be told from here: it was named on another host or boot, or in
    another namespace. Another boot of this very host is proof of death, but only a record that
    also has our `host` proves that.
    """
    boot = identity.get("boot")
    if not boot or boot != boot_id():
        host = identity.get("host")
        same_host = bool(boot) and host is not None and host == host_id()
        return False if same_host else None
    if identity.get("pidns") != (pid_namespace() or ""):
        return None
    pid = identity.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return None
    row = find_process(pid)
    return row is not None and not row.zombie and row.start == identity.get("start")
