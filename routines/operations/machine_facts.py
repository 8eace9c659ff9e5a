"""What `doctor` says of the machine: a folder's file system and size, and where zones come from."""

import os
import re
import shutil
import zoneinfo
from dataclasses import dataclass

# Where other machines share a folder: locks and clocks are those of a server then.
_NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre 9p webdav fuse.sshfs fuse.glusterfs".split()  # noqa: SIM905 - a list of words reads better as one line
)
# Counting a folder of a year is not to take longer than a person waits for an answer.
_MOST_COUNTED = 20_000
_MIB = 1024 * 1024
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Disk:
    """Where a folder lies.

    Attributes:
        kind: `local disk`, `network (nfs4)`; empty where that can't be told.
        full: How much of it is in use, 0 to 1.
        size: Bytes below the folder.
        counted: Whether that is all of them; else counting was given up.
    """

    kind: str
    full: float
    size: int
    counted: bool

    @property
    def size_text(self) -> str:
        """Return `38 MB`, `less than 1 MB`, `more than 400 MB`."""
        size = self.size // 1_000_000
        if not self.counted:
            return f"more than {size} MB"
        return f"{size} MB" if size else "less than 1 MB"


def disk_of(path: str) -> Disk:
    """Return what is known of the disk that *path* lies on."""
    usage = shutil.disk_usage(path)
    size, counted = _size_below(path)
    return Disk(_kind(path), usage.used / max(usage.used + usage.free, 1), size, counted)


def _size_below(path: str) -> tuple[int, bool]:
    size = seen = 0
    for folder, _below, names in os.walk(path):
        for name in names:
            seen += 1
            if seen > _MOST_COUNTED:
                return size, False
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return size, True


def _kind(path: str) -> str:
    """Return what kind of file system *path* is on, as the kernel's list of mounts says."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        # There is no such list on macOS.
        return ""
    real, best, found = os.fsencode(os.path.realpath(path)), b"", b""
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if len(fields) < 5 or not after:  # noqa: PLR2004 - the fifth is the mount point
            continue
        mount = _OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), fields[4])
        inside = real == mount or real.startswith(mount.rstrip(b"/") + b"/")
        # Of two on the same point the later one hides the earlier.
        if inside and len(mount) >= len(best):
            best, found = mount, after.split()[0]
    name = found.decode("ascii", "replace")
    if not name:
        return ""
    return f"network ({name})" if name in _NETWORK else "local disk"


def zone_data(key: str) -> str:
    """Return which version of the time zone data the zone *key* is read from: `tzdata 2026a`."""
    for folder in zoneinfo.TZPATH:
        if os.path.exists(os.path.join(folder, *key.split("/"))):
            return f"the system's tzdata {_version_in(folder)}".rstrip()
    from importlib.metadata import version

    return f"tzdata {version('tzdata')}"


def _version_in(folder: str) -> str:
    for name in ("+VERSION", "tzdata.zi"):
        try:
            with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
                first = file.readline(100)
        except OSError:
            continue
        return first.removeprefix("# version").strip()
    return ""
