"""A model of what a power cut leaves of what the stores did.

A disk keeps what was synced. Of the rest it keeps what it likes: any of the names that a folder
was given or lost since its last sync, in any combination; a file's new bytes whole, not at all, in
part, or as zeros. The recorder writes down each call that changes something; the model plays any
beginning of that on a disk, cuts the power, and lays out what is left as a folder to start from.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from routines.store import files
from tests.store.crash import (
    Steps,
    Told,
    Unsynced,
    as_a_new_process,
    check_restart,
    standing_in,
)
from tests.store.operations import Operation

# What happened, in order: ("write", node, data), ("name", {path: node}), ("told", words), ...
Journal = list[tuple[Any, ...]]
_FOLDER = -1
_GONE = None


class Died(BaseException):
    """The process ends here: no handler of errors sees it."""


class Recorder(Steps):
    """Does the calls, and writes down those that change something below *root*.

    Args:
        root: The folder that the disk of the model begins at.
        dies_at: The call before which the process dies, counted from 1.
        sync_fails_at: The call that fails with EIO if it is a sync.
    """

    def __init__(self, root: str, *, dies_at: int = 0, sync_fails_at: int = 0) -> None:
        super().__init__(before=self._before_call, after=self._after_call)
        self._root = root
        self.dies_at = dies_at
        self.sync_fails_at = sync_fails_at
        self.journal: Journal = []
        self.base = _snapshot(root)
        self._names: dict[str, int] = {p: n for p, n in self.base[0].items() if n != _FOLDER}
        self._behind: dict[int, int | str] = {}
        self._newest = max([0, *self._names.values()])

    def tell(self, *words: Any) -> None:
        self.journal.append(("told", [*words]))

    def told(self, until: int | None = None) -> Told:
        return [entry[1] for entry in self.journal[:until] if entry[0] == "told"]

    def _node(self, fd: int) -> int | str:
        if fd not in self._behind:
            # It was open before: known by its name then.
            here = os.fstat(fd)
            for path, node in self._names.items():
                if os.path.samestat(os.stat(os.path.join(self._root, path)), here):
                    self._behind[fd] = node
        return self._behind[fd]

    def _at(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _before_call(self, number: int, name: str, args: tuple[Any, ...]) -> None:
        if self.dies_at and number >= self.dies_at:
            raise Died
        if name == "fsync" and number == self.sync_fails_at:
            self.journal.append(("lost", self._node(args[0])))
            raise OSError(5, os.strerror(5))

    def _after_call(self, number: int, name: str, args: tuple[Any, ...], result: Any) -> None:
        match name, args:
            case "open", (path, flags, *_) if result is not None:
                self._opened(self._at(path), flags, result)
            case "write", (fd, data) if result is not None:
                self.journal.append(("write", self._node(fd), bytes(data[:result])))
            case "fsync", (fd,):
                self.journal.append(("sync", self._node(fd)))
            case "close", (fd,):
                self._behind.pop(fd, None)
            case "link", (source, path) if os.path.exists(path):
                if self._at(path) not in self._names:
                    self._name({self._at(path): self._names[self._at(source)]})
            case "rename", (source, path) if self._at(source) in self._names:
                self._name({self._at(path): self._names[self._at(source)], self._at(source): _GONE})
            case "unlink", (path,) if self._at(path) in self._names:
                self._name({self._at(path): _GONE})
            case "mkdir", (path, *_) if os.path.isdir(path):
                self.journal.append(("mkdir", self._at(path)))
            case "rmdir", (path,) if not os.path.isdir(path):
                self.journal.append(("rmdir", self._at(path)))

    def _opened(self, path: str, flags: int, fd: int) -> None:
        if flags & os.O_DIRECTORY:
            self._behind[fd] = path
            return
        if path not in self._names:
            self._newest += 1
            self._name({path: self._newest})
        self._behind[fd] = self._names[path]

    def _name(self, changes: dict[str, int | None]) -> None:
        for path, node in changes.items():
            if node is _GONE:
                self._names.pop(path, None)
            else:
                self._names[path] = node
        self.journal.append(("name", changes))


def _snapshot(root: str) -> tuple[dict[str, int], dict[int, bytes]]:
    """What is below *root*: its names, and what is behind them."""
    names: dict[str, int] = {}
    contents: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    for folder, folders, found in os.walk(root):
        place = os.path.relpath(folder, root)
        names.update({os.path.normpath(os.path.join(place, name)): _FOLDER for name in folders})
        for name in found:
            path = os.path.join(folder, name)
            node = numbers.setdefault(os.stat(path).st_ino, len(numbers) + 1)
            names[os.path.normpath(os.path.join(place, name))] = node
            contents[node] = files.read(path) or b""
    return names, contents


class Luck:
    """What a disk keeps of what it was not told to keep: all, nothing, or any of it."""

    def __init__(self, names: str, contents: str, seed: int = 0) -> None:
        self._names = names
        self._contents = contents
        self._random = random.Random(seed)

    def keeps_name(self) -> bool:
        return self._names == "all" or (self._names == "any" and self._random.random() < 0.5)

    def content(self, synced: bytes, written: bytes) -> bytes:
        new = written[len(synced) :]
        how = self._contents
        if how == "any":
            how = self._random.choice(["all", "none", "zeros", "torn"])
        return (
            synced
            + {
                "all": new,
                "none": b"",
                "zeros": b"\0" * len(new),
                "torn": new[: self._random.randrange(len(new) + 1)],
            }[how]
        )


# A disk that keeps all of it is the crash of a process, which has its own test.
LUCK = (("none", "none"), ("all", "none"), ("all", "zeros"), ("none", "all"), ("all", "torn"))


class Disk:
    """A disk that has been given the beginning of a journal."""

    def __init__(self, base: tuple[dict[str, int], dict[int, bytes]], journal: Journal) -> None:
        names, contents = base
        self._kept: dict[str, dict[str, int]] = {".": {}}
        self._unsynced: dict[str, list[dict[str, int | None]]] = {}
        for path, node in names.items():
            self._kept.setdefault(os.path.dirname(path) or ".", {})[path] = node
        self._synced = dict(contents)
        self._written = dict(contents)
        self._holes: dict[int, list[tuple[int, int]]] = {}
        for what, *rest in journal:
            getattr(self, f"_{what}")(*rest)

    def _told(self, words: list[Any]) -> None:
        pass

    def _write(self, node: int, data: bytes) -> None:
        self._written[node] = self._written.get(node, b"") + data

    def _sync(self, behind: int | str) -> None:
        if isinstance(behind, str):
            for changes in self._unsynced.pop(behind, []):
                _change(self._kept.setdefault(behind, {}), changes)
            return
        content = bytearray(self._written.get(behind, b""))
        for start, end in self._holes.get(behind, []):
            content[start:end] = bytes(end - start)
        self._synced[behind] = bytes(content)

    def _lost(self, behind: int | str) -> None:
        """A sync failed: what was to be written counts as written from now on, and is not."""
        if isinstance(behind, str):
            self._unsynced.pop(behind, None)
        else:
            start, end = len(self._synced.get(behind, b"")), len(self._written.get(behind, b""))
            self._holes.setdefault(behind, []).append((start, end))

    def _name(self, changes: dict[str, int | None]) -> None:
        folder = os.path.dirname(next(iter(changes))) or "."
        self._unsynced.setdefault(folder, []).append(changes)

    def _mkdir(self, path: str) -> None:
        self._kept.pop(path, None)
        self._unsynced.pop(path, None)
        self._name({path: _FOLDER})

    def _rmdir(self, path: str) -> None:
        self._name({path: _GONE})

    def cut(self, luck: Luck, target: str) -> None:
        """Lay out below *target* what is left."""
        os.makedirs(target)
        made: dict[int, str] = {}
        for path, node in self._left(".", luck):
            place = os.path.join(target, path)
            if node == _FOLDER:
                os.mkdir(place, 0o700)
            elif node in made:
                os.link(made[node], place)
            else:
                synced = self._synced.get(node, b"")
                with open(place, "wb") as file:
                    file.write(luck.content(synced, self._written.get(node, synced)))
                made[node] = place

    def _left(self, folder: str, luck: Luck) -> Iterator[tuple[str, int]]:
        names = dict(self._kept.get(folder, {}))
        for changes in self._unsynced.get(folder, []):
            if luck.keeps_name():
                _change(names, changes)
        for path, node in names.items():
            yield path, node
            if node == _FOLDER:
                yield from self._left(path, luck)


def _change(names: dict[str, int], changes: dict[str, int | None]) -> None:
    for path, node in changes.items():
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node


def settle_in(path: str) -> None:
    """Let the folder at *path* be the one that its `format` names: it is a disk and no copy."""
    place = os.path.join(path, "format")
    try:
        with open(place) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return
    here = os.stat(path)
    found.update(inode=here.st_ino, device=here.st_dev)
    with open(place, "w") as file:
        json.dump(found, file)


def some(points: Sequence[int], most: int, seed: int) -> list[int]:
    """Return at most *most* of *points*, always the same ones for a seed, the last included."""
    if len(points) <= most:
        return [*points]
    return sorted({points[-1], *random.Random(seed).sample(points, most - 1)})


# Enough that each order of two unsynced names comes up; few enough for a minute on a slow machine.
RANDOM = 2


def lucks(seed: int) -> list[Luck]:
    kinds = [Luck(*kind, seed=seed) for kind in LUCK]
    return kinds + [Luck("any", "any", seed=seed + number) for number in range(RANDOM)]


def cut(recorder: Recorder, operation: Operation, folder: str, until: int, luck: Luck) -> None:
    """Cut the power when the first *until* things had happened, start again and check."""
    target = os.path.join(folder, "left")
    told: Told = recorder.told(until)
    Disk(recorder.base, recorder.journal[:until]).cut(luck, target)
    path = os.path.join(target, "state")
    if os.path.isdir(path):
        settle_in(path)
    as_a_new_process()
    with standing_in(Unsynced()):
        check_restart(path, told, operation.occurrences, whole=operation.whole)
        operation.after(path, told)
    as_a_new_process()
    shutil.rmtree(target)


def prepared(operation: Operation, folder: str, *, dies_at: int = 0) -> tuple[object, Recorder]:
    root = os.path.join(folder, "live")
    os.mkdir(root)
    with standing_in(Unsynced()):
        as_a_new_process()
        made = operation.prepare(os.path.join(root, "state"))
    return made, Recorder(root, dies_at=dies_at)


def check_every_cut(operation: Operation, folder: str) -> None:
    """Do *operation*, and cut the power after each thing that it did, in every way."""
    made, recorder = prepared(operation, folder)
    with standing_in(recorder):
        operation.act(made, recorder.tell)
    as_a_new_process()
    for until in range(len(recorder.journal) + 1):
        for luck in lucks(until):
            cut(recorder, operation, folder, until, luck)
