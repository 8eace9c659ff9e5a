"""The engine as a host program has it: the engine itself, and the answers that surfaces give.

`routines.Engine` is this class. What the command line says of a slot, it says in the same words.
"""

from datetime import datetime

from routines.config.workspace import FoundBy, Root, Workspace
from routines.config.workspace_file import WorkspaceSettings
from routines.domain.names import format_instant
from routines.engine import engine
from routines.operations.context import Context
from routines.operations.entries import Entry
from routines.operations.explaining import explain
from routines.operations.explanation import Explanation
from routines.operations.history import Query, newest
from routines.operations.jobs import Jobs


class _HostContext(Context):
    """A context that is made of an engine, and looks for nothing."""

    def __init__(self, host: "Engine") -> None:
        known = host.definitions
        super().__init__(explicit_root=known.root, environ={}, cwd=known.root, clock=host.clock)
        root = Root(path=known.root, found_by=FoundBy.OPTION, state=host.state_path)
        settings = WorkspaceSettings(tz=known.zone, concurrency=known.concurrency)
        # Found before it is looked for: a host's routines are in no file.
        self.__dict__["root"] = root
        self.__dict__["workspace"] = Workspace(
            root=root, settings=settings, routines=dict(known.routines)
        )


class Engine(engine.Engine):
    """Runs routines on one state folder, in the process of an agent; see `engine.Engine`."""

    def explain(self, name: str, when: datetime | None = None) -> Explanation:
        """Return why a slot of the routine *name* ran, did not run, or is unknown.

        Reads the files alone: it may be asked of a stopped engine, and takes no lock.

        Args:
            name: The routine.
            when: The slot, aware; None for the newest one.

        Raises:
            UnknownRoutine: There never was a routine of that name.
            UnknownOccurrence: It has no schedule, and nothing is recorded of it.
        """
        wanted = None if when is None else format_instant(when)
        return explain(_HostContext(self), name, wanted)

    def jobs(self) -> Jobs:
        """Return the durable queue of this engine's state folder; what is added is seen at once.

        The calls block for as long as the disk takes: from a coroutine use `asyncio.to_thread`.

        Raises:
            StoreError: The state folder can't be used.
        """
        return Jobs(self.state_path, clock=self.clock, on_change=self._look_now)

    def entries(self, query: Query | None = None) -> tuple[Entry, ...]:
        """Return rows of history as `routines history` shows them, newest first.

        Unlike `history` these include slots that were given up, and what runs or waits now.

        Args:
            query: What is asked for; the newest of everything if None.
        """
        return newest(_HostContext(self), query or Query())
