"""The state folder: what it is called inside, who may use it, and whether it is the one it was."""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any

from routines.errors import (
    StateCopied,
    StateForeign,
    StateMissing,
    StateNewer,
    StateUnusable,
    StoreError,
    UsageError,
)
from routines.store import files

# Raised only by a change that an older version would misread. 1: the first.
LAYOUT = 1
# What is larger was not written here; it is neither read whole nor shown.
_LARGEST_FORMAT = 4096
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_README = """\
This folder is written by `routines` (https://pypi.org/project/agent-routines/).

claims/      what fired, and line by line what became of it: the history is these files
open/        a second name for each claim that has no outcome yet
missed/      slots that were given up, counted, with the reason
output/      prompts, replies and logs of turns
sessions/    which conversation of which agent program a session is
wakeups/     what agents asked to be woken for
cursors/     where catching up may begin

You may read and copy everything. While nothing of `routines` runs you may delete what you like:
without claims/ and cursors/ past slots are forgotten, not run again; without sessions/ every
conversation begins anew; without wakeups/ the alarms are gone.

An older copy put back in place forgets what happened since: slots that fired after the copy was
made are owed once more. A copy used beside the original must say so: routines doctor --fork.
A folder that was moved: routines doctor --adopt.
"""


@dataclass(frozen=True, slots=True)
class Format:
    """What the file `format` says: the layout, whose folder it is, and which folder it was.

    Attributes:
        layout: The version of the layout.
        workspace: The id that turn keys begin with.
        inode: Of the state folder itself; another one means a copy.
        device: Of the state folder, comparable only within one boot.
        boot: The boot in which *device* was noted; None where the system has no such id.
    """

    layout: int
    workspace: str
    inode: int
    device: int
    boot: str | None

    def encode(self) -> bytes:
        """Return the content of the file."""
        data = {
            "layout": self.layout,
            "workspace": self.workspace,
            "inode": self.inode,
            "device": self.device,
            "boot": self.boot,
        }
        return json.dumps(data, indent=1).encode() + b"\n"

    def is_copy(self, *, inode: int, device: int, boot: str | None) -> bool:
        """Return whether a folder with these numbers is not the one that was noted."""
        # Device numbers change with a reboot on btrfs, APFS, NFS and volumes.
        same_boot = boot is not None and boot == self.boot
        return inode != self.inode or (same_boot and device != self.device)


def _new_id() -> str:
    # Here and not above: it costs each command two milliseconds, and is needed once.
    import uuid

    return str(uuid.uuid4())


def decode_format(data: bytes, path: str) -> Format:
    """Return what `Format.encode` wrote.

    Raises:
        StateNewer: A newer version wrote it.
        StoreError: It can't be read.
    """
    found = _object_in(data, path)
    layout = _number(found, "layout", path)
    # Before anything else is looked at: another layout may have other keys.
    if layout > LAYOUT:
        raise StateNewer(
            f"{path}: the state folder has layout {layout}, and this version knows {LAYOUT}",
            hint="a newer version of routines wrote it: upgrade with "
            "`pip install -U agent-routines`",
            path=path,
        )
    workspace = found.get("workspace")
    if not isinstance(workspace, str) or not _UUID.fullmatch(workspace):
        raise _damaged(path, "its `workspace` is no id")
    boot = found.get("boot")
    if boot is not None and not isinstance(boot, str):
        raise _damaged(path, "its `boot` is no id")
    inode, device = _number(found, "inode", path), _number(found, "device", path)
    return Format(layout, workspace, inode, device, boot)


def _object_in(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > _LARGEST_FORMAT:
        raise _damaged(path, f"it has more than {_LARGEST_FORMAT} bytes, and should have some 150")
    if not data.strip(b"\0 \t\r\n"):
        # What a power cut makes of a file on some file systems.
        raise _damaged(path, "it holds nothing but NUL bytes" if b"\0" in data else "it is empty")
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise _damaged(path, f"byte {error.start + 1} (0x{byte:02X}) is no text") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _damaged(path, f"it is no JSON ({place}: {error.msg})") from None
    except (RecursionError, ValueError):
        # Too deep, or a number of thousands of digits: JSON, and none of ours.
        raise _damaged(path, "it is no JSON that routines wrote") from None
    if not isinstance(found, dict):
        raise _damaged(path, "it is JSON, but no object with layout, workspace, inode and device")
    return found


def _number(found: dict[str, Any], key: str, path: str) -> int:
    value = found.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _damaged(path, f"its `{key}` is " + ("missing" if value is None else "no whole number"))


def _damaged(path: str, what: str) -> StoreError:
    return StoreError(
        f"{path} can't be read: {what}",
        hint="put it back from a copy, or move the whole state folder away to start anew",
        path=path,
    )


def _read_format(path: str) -> bytes | None:
    # A byte more than is ever right: what is larger is known to be, and not read whole.
    return files.read_start(os.path.join(path, "format"), _LARGEST_FORMAT + 1)


@dataclass(frozen=True, slots=True)
class State:
    """An open state folder.

    Attributes:
        path: Absolute.
        format: What its `format` file says.
    """

    path: str
    format: Format

    @property
    def workspace(self) -> str:
        """The id that turn keys begin with."""
        return self.format.workspace

    def at(self, *parts: str) -> str:
        """Return the absolute path of something in the folder."""
        # Parts are never absolute, so that nothing has to be looked for in them.
        return "/".join((self.path, *parts))

    def is_turn(self, who: str) -> bool:
        """Return whether *who* did something is a turn of this state folder, and not a person."""
        return self.workspace is not None and who.startswith(f"{self.workspace}/")

    def key(self, ref: str) -> str:
        """Return the turn key of an occurrence: the same on every attempt and host."""
        return f"{self.workspace}/{ref}"


def open_for_reading(path: str) -> State:
    """Return the state folder at *path*, changing nothing.

    Raises:
        StateMissing: There is none.
    """
    path = os.path.abspath(path)
    data = _read_format(path)
    if data is None:
        raise StateMissing(
            f"there is no state folder at {path}",
            hint="`routines start` or `routines run NAME` makes it",
            path=path,
        )
    return State(path, decode_format(data, os.path.join(path, "format")))


def was_called(path: str, named: str) -> bool:
    """Return whether a process that was told the folder *named* means the one at *path*.

    It does if that is another name of it, through a link; or if it was moved away from there, so
    that nothing, or another workspace, is found under that name. Compared as spelled, a turn would
    start beside what a killed one left. The original of a copy stands where it was, with the same
    id: what names it is never taken for the copy's.
    """
    if os.path.realpath(named) == os.path.realpath(path):
        return True
    try:
        own = open_for_reading(path).workspace
    except (StoreError, OSError):
        return False
    try:
        return open_for_reading(named).workspace != own
    except StateMissing:
        return True
    except (StoreError, OSError):
        # It may be the original, on a disk that can't be read now.
        return False


def place_of(state: object) -> str:
    """Return the state folder that a program names, absolute.

    Raises:
        UsageError: It is no path that a folder can have.
    """
    hint = "the path of a folder; it is made if it is missing"
    try:
        path = os.fspath(state)  # type: ignore[call-overload]  # what it takes is what is asked
    except TypeError:
        kind = type(state).__name__
        raise UsageError(f"state: it must be a path, not {kind}", hint=hint) from None
    if not isinstance(path, str):
        raise UsageError("state: it must be text, not bytes", hint=hint)
    # Empty would be the current folder, whatever else is in it.
    if not path:
        raise UsageError("state: it is empty", hint=hint)
    try:
        unusable = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise UsageError("state: it holds a character that no path can hold", hint=hint)
    return os.path.abspath(path)


def open_for_writing(path: str, *, boot: str | None) -> State:
    """Return the state folder at *path*, made if it is missing.

    Args:
        path: The folder.
        boot: The id of this boot, or None where the system has none.

    Raises:
        StateForeign: It belongs to another user, or may not be written.
        StateCopied: It is a copy of another one, or was moved.
        StateNewer: A newer version wrote it.
        StateUnusable: It is no folder.
    """
    path = os.path.abspath(path)
    check_place(path)
    try:
        state = _open_or_make(path, boot)
    except OSError as error:
        raise files.fault(error, "write", path) from error
    found = os.stat(path)
    if state.format.is_copy(inode=found.st_ino, device=found.st_dev, boot=boot):
        raise StateCopied(
            f"{path} is a copy of another state folder, or was moved",
            hint="moved: `routines doctor --adopt`; a copy beside the original: "
            "`routines doctor --fork`",
            path=path,
        )
    files.root(path)
    return state


def check_place(path: str) -> None:
    """Refuse a place that is no folder of ours; one that is not there is fine.

    Raises:
        StateForeign: It belongs to another user, or may not be read.
        StateUnusable: It is no folder.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise files.fault(error, "read", path) from error
    if not os.path.isdir(path):
        raise StateUnusable(f"{path} is no folder", hint="move that file away", path=path)
    if found.st_uid != os.geteuid():
        raise StateForeign(
            f"{path} belongs to another user: nothing was written",
            hint=files.why_denied(path),
            path=path,
        )


def _open_or_make(path: str, boot: str | None) -> State:
    format_path = os.path.join(path, "format")
    data = _read_format(path)
    if data is None:
        files.make_folder(path)
        with contextlib.suppress(PermissionError):
            # Also when it is there: whoever made it may have died before this.
            files.sync_folder(os.path.dirname(path))
        found = os.stat(path)
        fresh = Format(LAYOUT, _new_id(), found.st_ino, found.st_dev, boot)
        files.create(os.path.join(path, "README"), _README.encode())
        files.create(os.path.join(path, ".gitignore"), b"*\n")
        # Exclusive: of two that start at once, both use the id of the one that was first.
        files.create(format_path, fresh.encode())
        data = _read_format(path) or b""
    state = State(path, decode_format(data, format_path))
    found = os.stat(path)
    if state.format.boot != boot and state.format.inode == found.st_ino:
        renewed = Format(LAYOUT, state.workspace, found.st_ino, found.st_dev, boot)
        files.replace(format_path, renewed.encode())
        state = State(path, renewed)
    return state


def adopt(path: str, *, boot: str | None, fork: bool) -> State:
    """Make the folder at *path* the one that its `format` names.

    Args:
        path: The state folder.
        boot: The id of this boot.
        fork: Whether it is a copy beside the original: it then gets an id of its own, so that its
            turn keys and native sessions are its own.
    """
    state = open_for_reading(path)
    check_place(state.path)
    found = os.stat(state.path)
    workspace = _new_id() if fork else state.workspace
    renewed = Format(LAYOUT, workspace, found.st_ino, found.st_dev, boot)
    try:
        files.replace(state.at("format"), renewed.encode())
    except OSError as error:
        raise files.fault(error, "write", state.at("format")) from error
    return State(state.path, renewed)
