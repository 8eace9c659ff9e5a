"""The one module that writes, links, renames, removes and syncs files.

Everything that is decided is decided by one name appearing (`create`, `link`) or by one line
being appended (`append_line`); what is merely kept is replaced whole (`replace`). Each of these
is on the disk when it returns, unless it says otherwise.

All calls that change something go through `calls`, so that a test can stop, fail or reorder any
one of them.
"""

import contextlib
import errno
import fcntl
import getpass
import os
import stat
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from routines.errors import NotDurable, StateForeign, StoreBusy, StoreError

_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")

# Syncs wait for the disk, not for a core: the journal groups what arrives together.
_SYNC_THREADS = 16
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# What people write and others may read: the umask says who.
SHARED_FOLDER, SHARED_FILE = 0o777, 0o666
# Drafts begin with a dot and are nothing to a reader; the ending tells a person what they are.
_DRAFT = ".draft"
_READING = ("read", "list")
# To lose a folder again and again, it would have to empty faster than it can be made.
_MARK_TRIES = 8
# What file systems without hard links answer (exFAT, some shares and FUSE mounts; EMLINK: full).
NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
# On macOS fsync stops at the drive's cache; this goes through to the medium.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Calls:
    """The system calls that change files. A test puts an object of its own in its place."""

    open = staticmethod(os.open)
    write = staticmethod(os.write)
    close = staticmethod(os.close)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    utime = staticmethod(os.utime)

    @staticmethod
    def fsync(fd: int) -> None:
        """Put a file or folder on the medium itself."""
        if _FULL_SYNC is None:
            os.fsync(fd)
            return
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            # Some shares know only the plain call.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)


calls = Calls()


def fault(error: OSError, doing: str, path: str) -> StoreError:
    """Return the error that says what could not be done to which file, and by whom."""
    reason = f"can't {doing} {path}: {os.strerror(error.errno or 0)} ({errno_name(error)})"
    if error.errno in (errno.EACCES, errno.EPERM):
        # What the system names is whole; a caller may name what it writes from the state folder.
        place = error.filename2 or error.filename
        place = place if isinstance(place, str) and os.path.isabs(place) else path
        return StateForeign(reason, hint=why_denied(place), path=path)
    hint = {
        errno.ENOSPC: "the disk is full: free some space; what was asked for has not happened",
        errno.EROFS: "the file system is read-only",
        errno.EDQUOT: "the quota is used up",
    }.get(error.errno or 0)
    kind = StoreError if doing in _READING else NotDurable
    return kind(reason, hint=hint, path=path)


def errno_name(error: OSError) -> str:
    """Return `ENOSPC` and the like."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def why_denied(path: str) -> str:
    """Return what stands in the way of *path*: another owner, a mode, or something else."""
    place = _denied(path)
    try:
        found = os.stat(place)
    except OSError:
        return f"{place} can't be looked at, and this process runs as {_user_name(os.geteuid())}"
    if found.st_uid != os.geteuid():
        owner, we = _user_name(found.st_uid), _user_name(os.geteuid())
        return f"{place} belongs to {owner}, and this process runs as {we}"
    mode = f"{stat.S_IMODE(found.st_mode):o}"
    if _is_open(place):
        return f"the mode of {place} ({mode}) allows it: look for an attribute or an ACL (lsattr)"
    wanted = "u+rwx" if stat.S_ISDIR(found.st_mode) else "u+rw"
    return f"{place} has mode {mode}: chmod {wanted} {place}"


def _denied(path: str) -> str:
    """Return *path* or what is above it, whichever it is that we may not use."""
    place = path
    while place not in ("", "/") and not os.path.exists(place):
        place = os.path.dirname(place)
    place = place or "."
    above = os.path.dirname(place)
    # A name is made and removed by the mode of its folder, whatever its own is.
    return above if above and _is_open(place) and not _is_open(above) else place


def _is_open(place: str) -> bool:
    needs = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(place) else 0)
    return os.access(place, needs, effective_ids=os.access in os.supports_effective_ids)


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def current_user() -> str:
    """Return the name of the user that this process runs as."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.geteuid()}"


# Reading ------------------------------------------------------------------------------------


def read(path: str) -> bytes | None:
    """Return the content of *path*, or None if there is no such file.

    Raises:
        StoreError: It is there and can't be read, which is not the same.
    """
    return read_start(path, -1)


def read_start(path: str, most: int) -> bytes | None:
    """Return the first *most* bytes of *path*, or None if there is no such file.

    Raises:
        StoreError: It is there and can't be read, which is not the same.
    """
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise fault(error, "read", path) from error


def read_fd(fd: int) -> bytes:
    """Return the whole content behind *fd*, wherever its offset stands."""
    parts, at = [], 0
    while part := os.pread(fd, 1 << 20, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def names(folder: str) -> list[str]:
    """Return the sorted names in *folder*, drafts left out; none if there is no such folder.

    Raises:
        StoreError: It is there and can't be listed, which is not the same.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise fault(error, "list", folder) from error


def exists(path: str) -> bool:
    """Return whether there is something called *path*.

    Raises:
        StoreError: That can't be told, which is not the same as no.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise fault(error, "read", path) from error
    return True


def changed_names(folder: str, since: float) -> list[str]:
    """Return the sorted names in *folder* of files that were written at or after *since*."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.stat().st_mtime >= since)
    except (FileNotFoundError, NotADirectoryError):
        return []


def leads_to(path: str, fd: int) -> bool:
    """Return whether the name *path* still leads to the file behind *fd*."""
    try:
        named, own = os.stat(path), os.fstat(fd)
    except FileNotFoundError:
        return False
    return named.st_ino == own.st_ino and named.st_dev == own.st_dev


# Folders ------------------------------------------------------------------------------------


# Folders whose names are on the disk for all that this process knows, the state folder first.
_rooted: set[str] = set()
# By parent: folders in it that are so once the parent has been synced.
_unrooted: dict[str, set[str]] = {}


def root(path: str) -> None:
    """Note a folder whose own name is on the disk; those below it are looked at with care."""
    _rooted.add(path)


def add_folder(path: str, mode: int = _FOLDER_MODE) -> list[str]:
    """Make *path* and what is missing above it; return the parents that are yet to be synced.

    Below the state folder one that is there already counts too, once a process: whoever made it
    may have died before its sync, and a claim in it would go with it.
    """
    missing = []
    place = path
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    doubtful: list[str] = []
    while place not in _rooted:
        above = os.path.dirname(place)
        if above == place:
            # Not below any state folder.
            doubtful = []
            break
        doubtful.append(place)
        place = above
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            calls.mkdir(new, mode)
    unsynced = [*doubtful[::-1], *missing[::-1]]
    for folder in unsynced:
        _unrooted.setdefault(os.path.dirname(folder), set()).add(folder)
    return [os.path.dirname(folder) for folder in unsynced]


def doubt(path: str, *, below: str) -> None:
    """Forget what this process knows of *path* and the folders above it, down from *below*.

    Where folders come and go, another process may have made one anew and died before its sync.
    """
    while path != below and path.startswith(below):
        _rooted.discard(path)
        path = os.path.dirname(path)


def make_folder(path: str, *, mode: int = _FOLDER_MODE) -> None:
    """Make *path* and what is missing above it, durably; private unless *mode* says otherwise."""
    for parent in add_folder(path, mode):
        sync_folder(parent)


def in_folder(path: str, write: Callable[[], _Result]) -> _Result:
    """Make the folder of *path* and do *write* in it; once more if it was taken away meanwhile."""
    make_folder(os.path.dirname(path))
    try:
        return write()
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        return write()


def mark(path: str, *, sync: bool = True, forget: Callable[[str], None] | None = None) -> None:
    """Make the empty file *path* and its folder, one that others remove whenever it is empty.

    Args:
        path: The name; one that is there already is as good.
        sync: Whether it is on the disk on return; else whoever asks syncs its folder.
        forget: Called with the folder before each try, for what is not to be believed of it.

    Raises:
        FileNotFoundError: The folder was removed under us time and again.
    """
    folder = os.path.dirname(path)
    for tries_left in reversed(range(_MARK_TRIES)):
        try:
            if forget is not None:
                forget(folder)
            make_folder(folder)
            with contextlib.suppress(FileExistsError):
                close(open_new(path))
            if sync:
                sync_folder(folder)
        except FileNotFoundError:
            # Another process has found the folder empty and removed it.
            if not tries_left:
                raise
        else:
            return


def sync_folder(path: str) -> None:
    """Put the names in *path* on the disk."""
    children = _unrooted.pop(path, set())
    _sync_names(path)
    _rooted.update(children)


def _sync_names(path: str) -> None:
    fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        calls.fsync(fd)
    finally:
        calls.close(fd)


def remove_folder(path: str) -> bool:
    """Remove *path* if it is empty; return whether it is gone."""
    try:
        calls.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def remove_tree(path: str) -> None:
    """Remove a folder with everything in it; links are removed, not followed."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            remove(entry.path)
    remove_folder(path)


def sweep_drafts(root: str, *, skip: Collection[str], before: datetime) -> int:
    """Remove drafts that never got their name, older than *before*; return how many.

    Args:
        root: They lie anywhere below it.
        skip: Folders in it that are left out.
        before: By the clock that sets modification times.
    """
    removed = 0
    for folder, below, found in os.walk(root):
        if folder == root:
            below[:] = [name for name in below if name not in skip]
        for name in found:
            path = os.path.join(folder, name)
            if name.startswith(".") and name.endswith(_DRAFT) and _is_older(path, before):
                removed += remove(path)
    return removed


def server_now(near: str) -> datetime | None:
    """Return the present by the clock that sets modification times; None if it can't be had.

    Args:
        near: A path in the folder where a probe is made, and removed again.
    """
    probe = draft_name(near)
    try:
        fd = open_new(probe)
    except OSError:
        return None
    try:
        return datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
    finally:
        close(fd)
        remove(probe)


def modified_at(path: str) -> datetime | None:
    """Return when *path* was last written, by that clock; None if it can't be told."""
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None


def _is_older(path: str, before: datetime) -> bool:
    try:
        return os.lstat(path).st_mtime < before.timestamp()
    except OSError:
        return False


# Whole files --------------------------------------------------------------------------------


def open_new(path: str, mode: int = _FILE_MODE) -> int:
    """Return a descriptor for a new file at *path*; FileExistsError if the name is taken.

    It is private unless *mode* says otherwise.
    It is open for reading and appending, and closed in programs that are started.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return calls.open(path, flags, mode)


def open_append(path: str, *, create: bool = False) -> int:
    """Return a descriptor for *path*, open for reading and appending.

    Raises:
        FileNotFoundError: There is no such file, and *create* is not set.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    return calls.open(path, flags, _FILE_MODE)


def close(fd: int) -> None:
    """Close *fd*."""
    calls.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write *data*, in one call where the system takes it whole."""
    view = memoryview(data)
    while view:
        view = view[calls.write(fd, view) :]


def draft_name(path: str) -> str:
    """Return a name beside *path* that is nothing to any reader."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:100]}.{os.getpid()}.{os.urandom(4).hex()}{_DRAFT}")


def _write_draft(path: str, data: bytes, *, sync: bool, mode: int = _FILE_MODE) -> str:
    draft = draft_name(path)
    fd = open_new(draft, mode)
    try:
        try:
            write_all(fd, data)
            if sync:
                calls.fsync(fd)
        finally:
            calls.close(fd)
    except OSError:
        discard(draft)
        raise
    return draft


def create(path: str, data: bytes, *, mode: int = _FILE_MODE) -> bool:
    """Bring *path* into being with *data* in it, durably; False if the name is taken.

    It is private unless *mode* says otherwise. If it can't be made durable it is taken back: who
    is told that it failed never sees it.
    """
    draft = _write_draft(path, data, sync=True, mode=mode)
    created = publish(draft, path)
    try:
        # Also when it was there already: whoever made it may have died before its sync.
        sync_folder(os.path.dirname(path))
    except OSError:
        if created:
            discard(path)
        raise
    return created


def publish(draft: str, path: str) -> bool:
    """Give *draft* the name *path* unless that is taken; the draft's own name goes."""
    try:
        # An exclusive open would leave an empty file if we died before writing.
        link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _publish_by_rename(draft, path)
    finally:
        discard(draft)
    return True


def _publish_by_rename(draft: str, path: str) -> bool:
    """Publish where there are no hard links: a short lock makes look and rename one step."""
    folder, name = os.path.split(path)
    try:
        with section(os.path.join(folder, f".{name[:100]}.lock")):
            if os.path.lexists(path):
                return False
            calls.rename(draft, path)
    except StoreError as error:
        raise OSError(errno.EBUSY, error.message) from error
    return True


def create_many(items: Sequence[tuple[str, bytes]], *, first: Iterable[str] = ()) -> set[str]:
    """Create many files as `create` does, with one round of syncs for them and one for folders.

    Args:
        items: Paths and what is in them.
        first: Folders whose names are to be on the disk before any of the files is there.

    Returns:
        The paths that were created here; the names of the others were taken.
    """
    drafts: dict[str, str] = {}
    created: set[str] = set()
    try:
        for path, data in items:
            drafts[path] = _write_draft(path, data, sync=False)
        work: dict[str, tuple[Callable[[Any], None], Any]] = {
            path: (_sync_path, draft) for path, draft in drafts.items()
        }
        work |= {folder: (sync_folder, folder) for folder in first}
        failures = in_parallel(work)
        for error in failures.values():
            raise error
        for path, draft in drafts.items():
            if publish(draft, path):
                created.add(path)
        sync_folders(os.path.dirname(path) for path, _ in items)
    except OSError:
        for path in created:
            discard(path)
        raise
    finally:
        for draft in drafts.values():
            discard(draft)
    return created


def _sync_path(path: str) -> None:
    fd = calls.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        calls.fsync(fd)
    finally:
        calls.close(fd)


def in_parallel(work: Mapping[_Key, tuple[Callable[[Any], None], Any]]) -> dict[_Key, OSError]:
    """Do each piece of work, several at a time if there are several; return what failed."""
    failures: dict[_Key, OSError] = {}

    def do(key: _Key) -> None:
        function, argument = work[key]
        try:
            function(argument)
        except OSError as error:
            failures[key] = error

    if len(work) == 1:
        do(next(iter(work)))
    elif work:
        # Here and not above: most commands never sync many files at once.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_SYNC_THREADS, len(work))) as pool:
            list(pool.map(do, work))
    return failures


def sync_together(fds: Mapping[_Key, int], folders: Iterable[str]) -> dict[_Key, OSError]:
    """Sync open files, and folders that all of them need, in one round; return what failed."""
    wanted = list(dict.fromkeys(folders))
    children = [_unrooted.pop(path, set()) for path in wanted]
    work: dict[tuple[bool, Any], tuple[Callable[[Any], None], Any]] = {
        (False, key): (calls.fsync, fd) for key, fd in fds.items()
    }
    work |= {(True, path): (_sync_names, path) for path in wanted}
    failures = in_parallel(work)
    for (is_folder, _), error in failures.items():
        if is_folder:
            return dict.fromkeys(fds, error)
    # Only once all are: one below a folder that could not be synced is not on the disk either.
    _rooted.update(*children)
    return {key: error for (_, key), error in failures.items()}


def link(source: str, path: str) -> None:
    """Give the file *source* a second name, or raise FileExistsError."""
    try:
        calls.link(source, path)
    except FileExistsError:
        # A lost reply of a file server makes the winner see its own link: inodes decide.
        if not (os.path.exists(source) and os.path.samefile(source, path)):
            raise


def replace(path: str, data: bytes, *, sync: bool = True) -> None:
    """Put *data* in the place of *path*: a reader sees the old content or the new, whole."""
    draft = _write_draft(path, data, sync=sync)
    try:
        calls.rename(draft, path)
    except OSError:
        discard(draft)
        raise
    if sync:
        sync_folder(os.path.dirname(path))


def overwrite(path: str, data: bytes) -> None:
    """Write *data* over the beginning of *path*, which is made if it is missing; not synced.

    For what only saves work: a crash may leave anything in it, so a reader must not trust it.
    """
    fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        write_all(fd, data)
    finally:
        calls.close(fd)


def remove(path: str) -> bool:
    """Remove the name *path*; return whether it was there."""
    try:
        calls.unlink(path)
    except FileNotFoundError:
        return False
    return True


def discard(path: str) -> None:
    """Remove a name that means nothing any more, as far as that is possible."""
    with contextlib.suppress(OSError):
        remove(path)


def move(source: str, path: str) -> bool:
    """Rename *source* to *path*; False if there is no *source* any more."""
    try:
        calls.rename(source, path)
    except FileNotFoundError:
        return False
    return True


def touch(fd: int) -> None:
    """Set the modification time of *fd* by the clock of the file server."""
    calls.utime(fd)


# Lines --------------------------------------------------------------------------------------


def append_line(fd: int, line: bytes, *, anew: bool = False) -> None:
    """Append *line* and its end to *fd* in one write and put it on the disk.

    A torn tail, from a crash in mid-write, is ended first so that it can't swallow this line.

    Args:
        fd: Where.
        line: What.
        anew: Whether a sync of this file has failed: its tail is then not on the disk as it is in
            memory, and counts as torn however it looks.
    """
    size = os.fstat(fd).st_size
    torn = anew or (size > 0 and os.pread(fd, 1, size - 1) != b"\n")
    data = (b"\n" if torn else b"") + line + b"\n"
    written = calls.write(fd, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    calls.fsync(fd)


def whole_lines(data: bytes) -> list[bytes]:
    """Return the lines of *data* that are whole: ended, and not the zeros of a lost write."""
    *ended, _torn = data.split(b"\n")
    return [line for line in ended if line and b"\0" not in line]


def set_aside(path: str) -> str:
    """Keep a file that can't be read under its name with `.corrupt`; return that name.

    Raises:
        StoreError: It could not be renamed, and stays where it is.
    """
    aside, number = f"{path}.corrupt", 2
    while os.path.lexists(aside):
        # What was kept before is never overwritten.
        aside, number = f"{path}.{number}.corrupt", number + 1
    try:
        # Not there: another process has just set it aside.
        move(path, aside)
    except OSError as error:
        raise fault(error, "rename", path) from error
    return aside


def copy_aside(path: str) -> None:
    """Keep a copy of *path* under its name with `.corrupt`, unless there is one already."""
    data = read(path)
    if data is not None and not os.path.exists(f"{path}.corrupt"):
        create(f"{path}.corrupt", data)


# Short locks --------------------------------------------------------------------------------

# Long enough for any section that only touches a few files, also on a slow disk.
PATIENCE_S = 5.0


@contextlib.contextmanager
def section(path: str, *, patience: float = PATIENCE_S, what: str = "") -> Iterator[None]:
    """Hold the short lock at *path* for the time of the block.

    Args:
        path: The lock file; its folder is made.
        patience: Seconds to wait for it; 0 tries once.
        what: What is locked, in words, for the message.

    Raises:
        StoreBusy: It was not free in time. Nothing was done.
    """
    # Here and not above: read-only commands never lock, and this import costs as much as theirs.
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=patience, poll_interval=0.01, mode=_FILE_MODE)
    try:
        add_folder(os.path.dirname(path))
        lock.acquire()
    except Timeout:
        raise StoreBusy(
            f"{what or path} is being changed by another process",
            hint="nothing was changed; try again",
            path=path,
        ) from None
    except OSError as error:
        raise fault(error, "lock", path) from error
    try:
        yield
    finally:
        lock.release()


def size_of(path: str) -> int:
    """Return the bytes that a file takes, 0 if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def sync_folders(paths: Iterable[str]) -> None:
    """Sync each folder once."""
    for path in dict.fromkeys(paths):
        sync_folder(path)
