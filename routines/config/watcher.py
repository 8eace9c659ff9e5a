"""Sees edits: looks at names, times, sizes and inodes, and reads again what has changed.

A look costs a listing and one stat a file. It works on every file system, needs no descriptors
that run out, and sees what was moved into place.
"""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta

from routines.config.files import Signature, signature, signature_of
from routines.config.routine_file import Definition, read_routine_file, routine_name
from routines.config.workspace import (
    Root,
    Workspace,
    assemble,
    folder_problem,
    load_settings,
    read_definition,
)
from routines.config.workspace_file import WorkspaceSettings
from routines.domain.routine import Routine
from routines.errors import Problem

# An editor or a copy has written a file out by then; what hasn't changed for longer is whole.
SETTLED_AFTER = timedelta(seconds=2)
# From this many files on a look is made less often: one takes about 4 us a file. And soon again
# while a file changes: what is looked at each second must be seen within two.
MANY_FILES = 1_000
OFTEN = timedelta(seconds=1)
SELDOM = timedelta(seconds=3)
SOON = timedelta(seconds=0.4)

_Seen = dict[str, Signature | None]


class Watcher:
    """Yields a new `Workspace` each time that its files say something else.

    One thread uses it. What was good and is broken now stays armed in its last good version for
    as long as the watcher lives.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self.workspace: Workspace | None = None
        self._settings = WorkspaceSettings()
        self._settings_problems: tuple[Problem, ...] = ()
        self._folder_problems: tuple[Problem, ...] = ()
        # By file name: what each file said when it was last read.
        self._definitions: dict[str, Definition] = {}
        self._last_good: dict[str, Routine] = {}
        # By path: the signature under which a file was read, and the one of the look before.
        self._read: _Seen = {}
        self._looked: _Seen = {}
        # What was read so soon after it was written, or could not be read: read at the next look.
        self._unsure: set[str] = set()
        self._folder: Signature | None = None

    @property
    def pause(self) -> timedelta:
        """Return how long to wait before the next look: less while something is changing."""
        if self._looked != self._read:
            return SOON
        return SELDOM if len(self._looked) > MANY_FILES else OFTEN

    def look(self, now: datetime) -> Workspace | None:
        """Return the workspace if its files say something else than at the last look, or None.

        The first look returns what is there. Later a file counts once it has stopped changing:
        it is the same in two looks, or older than 2 s.
        """
        seen = self._stat()
        if seen == self._looked and seen == self._read and not self._unsure:
            return None
        settled = self._settled(seen, now)
        self._looked = seen
        changed = {path for path in settled if path in self._unsure or self._differs(path, seen)}
        if not changed and self.workspace is not None:
            return None
        return self._take(changed, seen, now)

    def reread(self, name: str) -> Definition | None:
        """Return what the file of one routine says now, settled or not; None if it is gone."""
        return read_definition(self.root, self._settings, name)

    # --- looking ---

    def _stat(self) -> _Seen:
        """Return the signature of everything that the workspace is made of."""
        seen: _Seen = {self.root.settings_file: signature(self.root.settings_file)}
        self._folder = signature(self.root.folder)
        problems: tuple[Problem, ...] = ()
        try:
            with os.scandir(self.root.folder) as entries:
                for entry in entries:
                    if routine_name(entry.name) is not None:
                        seen[entry.path] = _signature_of_entry(entry)
        except FileNotFoundError:
            pass
        except OSError as error:
            # No file has vanished because the folder can't be listed at the moment.
            problems = (folder_problem(error),)
            seen = {**self._looked, **seen}
        if problems != self._folder_problems:
            self._folder_problems = problems
            self._unsure.add(self.root.folder)
        for path in self._sources():
            seen[path] = signature(path)
        return seen

    def _sources(self) -> Iterable[str]:
        return {path for each in self._definitions.values() for path in each.sources}

    def _settled(self, seen: _Seen, now: datetime) -> set[str]:
        """Return the paths that have stopped changing, also those that are gone for good."""
        if self.workspace is None:
            return set(seen)
        return {
            path
            for path in seen.keys() | self._read.keys() | self._unsure
            if seen.get(path) == self._looked.get(path)
            or _is_old(seen.get(path, self._folder), now)
        }

    def _differs(self, path: str, seen: _Seen) -> bool:
        return seen.get(path) != self._read.get(path, _NEVER)

    # --- reading ---

    def _take(self, changed: set[str], seen: _Seen, now: datetime) -> Workspace | None:
        """Read what has changed; return the workspace if that makes a difference."""
        if self.workspace is None or self.root.settings_file in changed:
            before = self._settings
            self._take_settings()
            if self._settings != before:
                # Defaults are filled into every routine.
                changed = changed | set(self._paths())
        with_sources = {
            path
            for path in self._paths()
            if changed.intersection(self._definitions[_name(path)].sources)
        }
        for path in sorted((changed | with_sources) & (seen.keys() | set(self._paths()))):
            if os.path.dirname(path) == self.root.folder:
                self._take_file(path, seen)
        self._remember(changed, seen, now)
        return self._assembled()

    def _paths(self) -> list[str]:
        return [os.path.join(self.root.folder, name) for name in self._definitions]

    def _take_settings(self) -> None:
        settings, problems = load_settings(self.root)
        self._settings_problems = problems
        # A broken file leaves what was good; at boot there is nothing good, and nothing is armed.
        if settings.is_whole or self.workspace is None or not self._settings.is_whole:
            self._settings = settings

    def _take_file(self, path: str, seen: _Seen) -> None:
        name = _name(path)
        stem = routine_name(name)
        if path not in seen or stem is None:
            self._definitions.pop(name, None)
            return
        definition = read_routine_file(path, stem, root=self.root.path, settings=self._settings)
        self._definitions[name] = definition

    def _remember(self, changed: set[str], seen: _Seen, now: datetime) -> None:
        """Note under which signature each path was read, and whether to read it once more."""
        for path in changed:
            again = path in self._unsure
            self._unsure.discard(path)
            if path not in seen:
                self._read.pop(path, None)
                continue
            self._read[path] = seen[path]
            definition = self._definitions.get(_name(path))
            unread = definition is not None and definition.unreadable
            # Written twice within one tick of the file system's clock, a file looks the same: what
            # was read that soon is read a second time.
            soon = not again and seen[path] is not None and not _is_old(seen[path], now)
            if unread or soon:
                self._unsure.add(path)

    def _assembled(self) -> Workspace | None:
        workspace = assemble(
            self.root,
            self._settings,
            self._definitions.values(),
            last_good=self._last_good,
            settings_problems=self._settings_problems,
            folder_problems=self._folder_problems,
        )
        self._last_good = dict(workspace.routines)
        same = workspace == self.workspace
        # Kept also when it is the same: lines may have moved, which messages name.
        self.workspace = workspace
        return None if same else workspace


_NEVER: Signature = (-1, -1, -1, -1)


def _name(path: str) -> str:
    return os.path.basename(path)


def _signature_of_entry(entry: os.DirEntry[str]) -> Signature | None:
    try:
        return signature_of(entry.stat())
    except OSError:
        return None


def _is_old(found: Signature | None, now: datetime) -> bool:
    """Return whether a file was last touched longer ago than it takes to write one out."""
    if found is None:
        return False
    return now.timestamp() - found[3] / 1e9 > SETTLED_AFTER.total_seconds()
