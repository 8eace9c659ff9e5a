"""Everything an operation needs: which workspace, its state, the time, and who asks."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from routines.domain.clock import Clock
from routines.domain.zones import zone
from routines.errors import InvalidZone, StateMissing
from routines.store import files
from routines.store.state import State, open_for_reading, open_for_writing

if TYPE_CHECKING:
    from routines.config.workspace import Root, Workspace


class Context:
    """What one call of one surface works with; everything is looked up when it is first needed.

    Attributes:
        explicit_root: What `--root` said, or None.
        environ: The environment, which a test passes in.
        cwd: The folder that paths are read from.
        clock: Tells the time and waits.
    """

    def __init__(
        self,
        *,
        explicit_root: str | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.explicit_root = explicit_root
        self.environ = os.environ if environ is None else environ
        self.cwd = os.getcwd() if cwd is None else cwd
        self.clock = _system_clock() if clock is None else clock

    @cached_property
    def root(self) -> "Root":
        """Where the workspace and its state are.

        Raises:
            WorkspaceNotFound: There is none here.
        """
        from routines.config.workspace import find_root

        return find_root(explicit=self.explicit_root, environ=self.environ, cwd=self.cwd)

    @cached_property
    def workspace(self) -> "Workspace":
        """What its files say, read once."""
        from routines.config.workspace import load_workspace

        return load_workspace(self.root)

    @cached_property
    def state(self) -> State:
        """The state folder, opened for reading: nothing is written.

        Raises:
            StateMissing: There is none yet.
        """
        return open_for_reading(self.root.state)

    @property
    def state_or_none(self) -> State | None:
        """The state folder, or None if there is none yet."""
        try:
            return self.state
        except StateMissing:
            return None

    @cached_property
    def writable_state(self) -> State:
        """The state folder, made if it is missing, and checked to be the one that it was."""
        from routines.agents.identity import boot_id

        state = open_for_writing(self.root.state, boot=boot_id() or None)
        # What was opened for reading before may have had no id yet.
        self.__dict__["state"] = state
        return state

    def forget_state(self) -> None:
        """Look at the state folder anew: it has another id now."""
        self.__dict__.pop("state", None)
        self.__dict__.pop("writable_state", None)

    @cached_property
    def who(self) -> str:
        """Who asks: the turn that this process belongs to, else `user@host`."""
        turn = self.environ.get("ROUTINES_TURN")
        return turn or f"{files.current_user()}@{os.uname().nodename.partition('.')[0]}"

    @property
    def is_person(self) -> bool:
        """Whether a person asks, as far as that can be told: not a turn."""
        return not self.environ.get("ROUTINES_TURN")

    @property
    def zone(self) -> ZoneInfo:
        """The zone of the workspace."""
        return zone(self.workspace.settings.tz)

    def zone_of(self, routine: str | None) -> ZoneInfo:
        """Return the zone in which times of *routine* are read and shown."""
        found = None if routine is None else self.workspace.routines.get(routine)
        if found is not None:
            return zone_or(found.zone, self.zone)
        state = None if routine is None else self.state_or_none
        if routine is None or state is None:
            return self.zone
        from routines.store.cursors import CursorStore

        # Its file is gone or broken: its past is read in the zone that it had.
        cursor = CursorStore(state).peek(routine)
        schedule = {} if cursor is None else cursor.schedule or {}
        return zone_or(schedule.get("tz"), self.zone)

    @property
    def home(self) -> str:
        """The home folder, which paths on screens are shortened by; empty if there is none."""
        return self.environ.get("HOME", "")

    def short(self, path: str) -> str:
        """Return *path* as a person says it: with `~` for the home folder."""
        home = self.home.rstrip("/")
        if home and (path == home or path.startswith(f"{home}/")):
            return f"~{path[len(home) :]}"
        return path


def zone_or(key: object, otherwise: ZoneInfo) -> ZoneInfo:
    """Return the zone that a record names, or another one where it names none that is known."""
    if not isinstance(key, str):
        return otherwise
    try:
        return zone(key)
    except InvalidZone:
        return otherwise


def _system_clock() -> Clock:
    from routines.engine.clock import SystemClock

    return SystemClock()
