"""What routines there are, as the files or the host program say at the moment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from routines.config.watcher import Watcher
from routines.config.workspace import (
    Root,
    Workspace,
    load_settings,
    load_workspace,
    read_definition,
)
from routines.domain.agent import ECHO, AgentSpec
from routines.domain.limits import DayLimit
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.routine import Routine
from routines.domain.targets import Target
from routines.engine.verdicts import Verdict
from routines.engine.work import Work, signature, work_of
from routines.errors import Problem, UnknownAgent

_OFTEN = timedelta(seconds=1)
# How an agent object that the host gave is called in records and ledgers.
HOST_AGENT = "host"


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent by name, and how it is driven; None for an object in the engine's own process."""

    name: str
    spec: AgentSpec | None


class Definitions(Protocol):
    """Where an engine has its routines from."""

    @property
    def root(self) -> str:
        """The workspace folder; paths in definitions are absolute already."""

    @property
    def is_whole(self) -> bool:
        """Whether a routine that is not here is gone; else another process may have it."""

    @property
    def routines(self) -> Mapping[str, Routine]:
        """What can be armed, by name."""

    @property
    def broken(self) -> frozenset[str]:
        """Names whose file is there and can't be used."""

    @property
    def concurrency(self) -> int:
        """How many turns run at once."""

    @property
    def zone(self) -> str:
        """The zone of the workspace."""

    @property
    def limits(self) -> tuple[DayLimit, ...]:
        """The limits of the workspace, for all turns together."""

    @property
    def deliver(self) -> tuple[Target, ...]:
        """Where the workspace says that replies go."""

    @property
    def alert(self) -> tuple[Target, ...]:
        """Who the workspace says is told what went wrong, besides the log."""

    @property
    def faults(self) -> Mapping[str, str]:
        """What is wrong with the file of a routine, by name; under "" with routines.yaml."""

    @property
    def pause(self) -> timedelta:
        """How long to wait until the next look for edits."""

    def look(self, now: datetime) -> bool:
        """Look for edits; return whether anything changed."""

    def current(self, name: str) -> Routine | None:
        """Return what the routine's file says this moment; a broken one counts as unchanged."""

    def agent(self, name: str | None) -> AgentChoice:
        """Return the agent of that name, or the default one.

        Raises:
            UnknownAgent: There is none.
        """

    def work(self, routine: Routine, *, agent: str | None = None) -> Work:
        """Return what a turn of *routine* is to do, by *agent* if that is named."""

    def work_without_routine(self, *, agent: str | None = None) -> Work:
        """Return what a turn of no routine is to do, by *agent* if named; its prompt is empty."""


class FixedDefinitions:
    """Routines that a host program made; `replace` gives it others."""

    is_whole = False

    def __init__(
        self,
        routines: Iterable[Routine],
        *,
        root: str,
        concurrency: int,
        zone: str = "UTC",
        agents: Mapping[str, AgentSpec] | None = None,
        has_host_agent: bool = True,
    ) -> None:
        self.root = root
        self.concurrency = concurrency
        self.zone = zone
        self.broken: frozenset[str] = frozenset()
        self.limits: tuple[DayLimit, ...] = ()
        self.deliver: tuple[Target, ...] = ()
        self.alert: tuple[Target, ...] = ()
        self.faults: Mapping[str, str] = {}
        self._agents = dict(agents or {})
        self._has_host_agent = has_host_agent
        self._changed = False
        self.routines: dict[str, Routine] = {}
        self.replace(routines)

    def replace(self, routines: Iterable[Routine]) -> None:
        """Take *routines* in the place of those there are."""
        self.routines = {routine.name: routine for routine in routines}
        self._changed = True

    @property
    def pause(self) -> timedelta:
        """Return how long to wait until the next look."""
        return _OFTEN

    def look(self, now: datetime) -> bool:  # noqa: ARG002 - files need it, an object does not
        """Return whether `replace` was called since."""
        changed, self._changed = self._changed, False
        return changed

    def current(self, name: str) -> Routine | None:
        """Return the routine of that name."""
        return self.routines.get(name)

    def agent(self, name: str | None) -> AgentChoice:
        """Return the named agent, or the one that the host gave."""
        if name is None or name == HOST_AGENT:
            if self._has_host_agent:
                return AgentChoice(HOST_AGENT, None)
            raise UnknownAgent(name or HOST_AGENT, self._agents)
        return _choose(name, self._agents)

    def work(self, routine: Routine, *, agent: str | None = None) -> Work:
        """Return what a turn of *routine* is to do."""
        choice = self.agent(agent or routine.agent)
        return work_of(
            routine,
            root=self.root,
            agent=choice.spec,
            agent_name=choice.name,
            limits=self.limits,
        )

    def work_without_routine(self, *, agent: str | None = None) -> Work:
        """Return what a turn that belongs to no routine is to do."""
        choice = self.agent(agent)
        return Work(
            root=self.root,
            routine=None,
            agent=choice.spec,
            agent_name=choice.name,
            prompt="",
            cwd=self.root,
            limits=self.limits,
        )


class FileDefinitions:
    """Routines as the files of a workspace say, picked up while they change.

    Args:
        root: The workspace.
        live: Whether edits are watched for; without, the files are read once.
    """

    is_whole = True

    def __init__(self, root: Root, *, live: bool) -> None:
        self._root = root
        self._watcher = Watcher(root) if live else None
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._kept: dict[str, AgentChoice] = {}
        self.workspace: Workspace | None = None

    @property
    def root(self) -> str:
        """The workspace folder."""
        return self._root.path

    def _loaded(self) -> Workspace:
        if self.workspace is None:
            self.workspace = load_workspace(self._root)
        return self.workspace

    @property
    def routines(self) -> Mapping[str, Routine]:
        """What can be armed, by name."""
        return self._loaded().routines

    @property
    def broken(self) -> frozenset[str]:
        """Names whose file is there and can't be used."""
        return frozenset(self._loaded().broken) - self._loaded().routines.keys()

    @property
    def concurrency(self) -> int:
        """How many turns run at once."""
        return self._loaded().settings.concurrency

    @property
    def zone(self) -> str:
        """The zone of the workspace."""
        return self._loaded().settings.tz

    @property
    def deliver(self) -> tuple[Target, ...]:
        """Where the workspace says that replies go."""
        return self._loaded().settings.deliver

    @property
    def alert(self) -> tuple[Target, ...]:
        """Who the workspace says is told what went wrong, besides the log."""
        return self._loaded().settings.alert

    @property
    def faults(self) -> Mapping[str, str]:
        """What is wrong with the file of a routine, by name; under "" with routines.yaml."""
        loaded = self._loaded()
        if loaded.settings_problems:
            # One file is broken, and not as many as there are routines.
            return {"": _first(loaded.settings_problems)}
        return {name: _first(found) for name, found in {**loaded.broken, **loaded.stale}.items()}

    @property
    def pause(self) -> timedelta:
        """Return how long to wait until the next look."""
        return _OFTEN if self._watcher is None else self._watcher.pause

    def look(self, now: datetime) -> bool:
        """Take up what has changed and stopped changing."""
        if self.pause > _OFTEN and timedelta(0) <= now - self._looked_at < self.pause:
            # So many files that looking at them each second would be the most that we do.
            return False
        self._looked_at = now
        if self._watcher is None:
            fresh = None if self.workspace is not None else load_workspace(self._root)
        else:
            fresh = self._watcher.look(now)
        if fresh is None:
            return False
        # First: whoever sees the last good version of a routine finds its agent too.
        self._kept = self._agents_of(fresh)
        self.workspace = fresh
        return True

    def _agents_of(self, fresh: Workspace) -> dict[str, AgentChoice]:
        """Return the agent of each routine; a last good version has it though its entry is gone."""
        found = {}
        for name, routine in fresh.routines.items():
            spec = None if routine.agent is None else fresh.settings.spec_of(routine.agent)
            if routine.agent is not None and spec is not None:
                found[name] = AgentChoice(routine.agent, spec)
            elif name in fresh.stale and name in self._kept:
                found[name] = self._kept[name]
        return found

    def current(self, name: str) -> Routine | None:
        """Return what the file of *name* says this moment; a broken one counts as unchanged."""
        known = self._loaded().routines.get(name)
        found = read_definition(self._root, self._loaded().settings, name)
        if found is None:
            return None
        return found.routine or known

    def agent(self, name: str | None) -> AgentChoice:
        """Return the named agent, or the workspace's."""
        settings = self._loaded().settings
        name = name or settings.agent
        if name is None:
            raise UnknownAgent("agent", settings.agent_names)
        spec = settings.spec_of(name)
        if spec is None:
            raise UnknownAgent(name, settings.agent_names)
        return AgentChoice(name, spec)

    def work(self, routine: Routine, *, agent: str | None = None) -> Work:
        """Return what a turn of *routine* is to do."""
        choice = self._agent_of(routine) if agent is None else self.agent(agent)
        paths = [self._root.settings_file, *([routine.path] if routine.path else [])]
        return work_of(
            routine,
            root=self.root,
            agent=choice.spec,
            agent_name=choice.name,
            files=tuple(signature(self._absolute(path)) for path in paths),
            limits=self.limits,
        )

    def _agent_of(self, routine: Routine) -> AgentChoice:
        """Return the agent of *routine*; one that is gone goes on for a last good version (L5)."""
        try:
            return self.agent(routine.agent)
        except UnknownAgent:
            kept = self._kept.get(routine.name)
            if kept is None or kept.name != routine.agent:
                raise
            return kept

    def work_without_routine(self, *, agent: str | None = None) -> Work:
        """Return what a turn that belongs to no routine is to do."""
        choice = self.agent(agent)
        return Work(
            root=self.root,
            routine=None,
            agent=choice.spec,
            agent_name=choice.name,
            prompt="",
            cwd=self.root,
            env_file=self._loaded().settings.env_file,
            limits=self.limits,
        )

    @property
    def limits(self) -> tuple[DayLimit, ...]:
        """The limits of the workspace, for all turns together."""
        settings = self._loaded().settings
        return () if settings.limits is None else (replace(settings.limits, zone=settings.tz),)

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._root.path}/{path}"


def _first(problems: Sequence[Problem]) -> str:
    if not problems:
        return "it can't be used"
    return f"{problems[0].place()}: {problems[0].message}"


def _choose(name: str, agents: Mapping[str, AgentSpec]) -> AgentChoice:
    if name in agents:
        return AgentChoice(name, agents[name])
    if name == ECHO.name:
        return AgentChoice(name, ECHO)
    raise UnknownAgent(name, [*agents, ECHO.name])


def edited(
    work: Work, new: Routine | None, occurrence: Occurrence, make: "WorkMaker"
) -> Work | Verdict:
    """Return what becomes of a claimed slot whose definition has changed since (L5).

    A file that is gone or broken stops new claims only: what was claimed goes on as it was.
    """
    if new is None or new.digest() == work.digest or occurrence.kind is not Kind.SLOT:
        return work
    if not new.enabled:
        return Verdict(Outcome.SKIPPED, Reason.EDITED, "it was disabled after the claim")
    if new.schedule is None or not new.schedule.names(occurrence.instant):
        return Verdict(Outcome.SKIPPED, Reason.EDITED, "the schedule no longer names this slot")
    return make(new)


class WorkMaker(Protocol):
    """Makes the work of a definition."""

    def __call__(self, routine: Routine, /) -> Work:
        """Return what a turn of *routine* is to do."""


def reread_from_files(root: Root, work: Work, occurrence: Occurrence) -> Work | Verdict:
    """Return the work as the files say now, for a turn process that sees an edit (L5)."""
    settings, _problems = load_settings(root)
    found = None if work.routine is None else read_definition(root, settings, work.routine)
    source = FileDefinitions(root, live=False)
    return edited(work, None if found is None else found.routine, occurrence, source.work)
