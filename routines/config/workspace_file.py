"""routines.yaml: what holds for all routines of a workspace, and the agents it knows."""

import re
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field

from routines.config import reader
from routines.config.agents_table import ECHO_NAME, Agents
from routines.config.files import absolute
from routines.config.kinds import (
    ALERT,
    DELIVER,
    LIMITS,
    PATH,
    ZONE,
    day_limit,
    path_of,
    targets_of,
    tells_cost,
)
from routines.config.report import Report, near
from routines.config.single import Text, Whole
from routines.config.tree import Document, Node
from routines.config.walker import Key, Table, Values, read_table
from routines.domain.agent import ECHO, PRESETS, AgentSpec
from routines.domain.limits import DayLimit
from routines.domain.targets import Target
from routines.errors import Problem

FILE_NAME = "routines.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long records are kept.

    Attributes:
        claims: At least so many of each routine.
        days: And at least those of so many days.
        output_days: What a turn printed is kept so long.
        output_mib: And no more of it than this, over all routines.
    """

    claims: int = 1000
    days: int = 30
    output_days: int = 30
    output_mib: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    """What routines.yaml says, defaults filled in.

    Attributes:
        tz: The zone of routines that name none.
        tz_is_set: Whether the file names it; else it is UTC by default.
        agent: The agent of routines that name none; None for the one given to the engine.
        agents: The entries under `agents:`, by name.
        concurrency: How many turns run at once.
        limits: The most that a day of all routines may take, or None.
        deliver: Where replies go, of routines that say nothing else.
        alert: Who is told what went wrong, besides the log.
        env_file: Absolute path of KEY=VALUE lines for all routines, or None.
        state: Absolute path of the state folder, or None for the usual one.
        is_whole: False for the defaults that stand in for a file that can't be used.
        line_of: The line of each key in routines.yaml, for messages.
    """

    tz: str = "UTC"
    tz_is_set: bool = False
    agent: str | None = None
    agents: Dict[str, AgentSpec] = field(default_factory=dict)
    concurrency: int = 4
    limits: DayLimit | None = None
    retention: Retention = Retention()
    deliver: tuple[Target, ...] = ()
    alert: tuple[Target, ...] = ()
    env_file: str | None = None
    state: str | None = None
    is_whole: bool = True
    line_of: Dict[str, int] = field(default_factory=dict, compare=False)

    def knows_agent(self, name: str) -> bool:
        """Return whether a routine may name this agent."""
        return name in self.agent_names or not self.is_whole

    def spec_of(self, name: str) -> AgentSpec | None:
        """Return how the agent of that name is driven: an entry, a preset or echo; else None."""
        if name in self.agents:
            return self.agents[name]
        if name in PRESETS:
            # Here and not above: see `Agents`.
            from routines.config.presets import preset_spec

            return preset_spec(name)
        return ECHO if name == ECHO_NAME else None

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The names that a routine may give under `agent`."""
        return tuple(dict.fromkeys([*self.agents, *PRESETS, ECHO_NAME]))


# --- the table --------------------------------------------------------------------------------


WORKSPACE_KEYS = (
    Key("tz", ZONE, "The time zone of routines that name none.", "UTC"),
    Key("agent", Text("the name of an agent"), "The agent of routines that name none."),
    Key("agents", Agents(), "How agents are driven, by name."),
    Key("concurrency", Whole(1, 1000), "How many turns run at once.", "4"),
    Key("limits", LIMITS, "The most that all routines may use a day."),
    Key(
        "retention",
        Table(
            (
                Key("claims", Whole(1), "Records kept of each routine, at least.", "1000"),
                Key("days", Whole(1), "Days whose records are kept, at least.", "30"),
                Key("output_days", Whole(0), "Days that outputs are kept.", "30"),
                Key("output_mib", Whole(0), "The most that outputs may take, in MiB.", "1024"),
            )
        ),
        "How long records are kept.",
    ),
    Key("deliver", DELIVER, "Where replies go, of routines that say nothing else.", "nowhere"),
    Key("alert", ALERT, "Who is told what went wrong, besides the log.", "nobody else"),
    Key("env_file", PATH, "KEY=VALUE lines for the environment of all turns."),
    Key("state", PATH, "The state folder.", ".routines"),
)
_FOREIGN = {
    "timezone": "write tz",
    "time_zone": "write tz",
    "zone": "write tz",
    "prompt": "a routine has a file of its own: routines/NAME.yaml",
    "routines": "each routine has a file of its own: routines/NAME.yaml",
    "jobs": "each routine has a file of its own: routines/NAME.yaml",
    "max_concurrency": "write concurrency",
}


# --- reading ----------------------------------------------------------------------------------


def parse_settings(
    data: bytes, *, root: str, path: str = FILE_NAME
) -> tuple[WorkspaceSettings, tuple[Problem, ...]]:
    """Return what routines.yaml says, and its problems.

    With problems the settings are defaults that say they are not whole, except for `state`,
    which is taken wherever it can be read: another state folder than yesterday's would hide
    everything that is known.
    """
    document = reader.read(data, path)
    if document.root is None:
        if _is_only_comments(document):
            return WorkspaceSettings(), ()
        state = _state_by_eye(data, root)
        return WorkspaceSettings(state=state, is_whole=False), document.problems
    report = Report(document, list(document.problems))
    values = read_table(document.root, WORKSPACE_KEYS, report, foreign=_FOREIGN)
    settings = WorkspaceSettings(
        tz=values.get("tz", "UTC"),
        tz_is_set="tz" in values.by_key,
        agent=values.get("agent"),
        agents=values.get("agents", {}),
        concurrency=values.get("concurrency", 4),
        limits=day_limit(values.get("limits")),
        retention=Retention(**values.get("retention", {})),
        deliver=_targets(values, "deliver", root, report),
        alert=_targets(values, "alert", root, report),
        env_file=path_of(values, "env_file", root, report),
        state=path_of(values, "state", root, report),
        line_of=values.lines,
    )
    if settings.agent is not None and "agents" not in report_keys(report):
        check_agent(settings.agent, settings, values.nodes["agent"], report)
    check_cost("limits", values, settings.limits, settings.agent, settings, report)
    if report.problems:
        return WorkspaceSettings(state=settings.state, is_whole=False), tuple(report.problems)
    return settings, ()


def check_cost(
    key: str,
    values: Values,
    limit: DayLimit | None,
    agent: str | None,
    settings: WorkspaceSettings,
    report: Report,
) -> None:
    """Report a limit of money over an agent that never says what a turn cost."""
    if limit is None or limit.usd is None or agent is None:
        return
    if not tells_cost(settings.spec_of(agent)):
        report.add(
            values.nodes[key],
            f"{key}.usd_per_day",
            f"{key}: usd_per_day   the agent {agent} reports no cost, so this could never hold",
            f"say where its output has it, read: {{cost: ..}} under `agents: {agent}:`,"
            " or limit turns_per_day",
        )


def report_keys(report: Report) -> set[str]:
    """Return the keys at the top that have problems."""
    return {(problem.key or "").split(".")[0] for problem in report.problems}


def check_agent(name: str, settings: WorkspaceSettings, node: Node, report: Report) -> None:
    """Report an agent that nothing defines."""
    if settings.knows_agent(name):
        return
    cure = near(name, settings.agent_names) or (
        f"add an entry for it under `agents:` in {FILE_NAME}, or use {ECHO_NAME}"
    )
    report.refuse(node, "agent", "no agent is called that", cure)


def _is_only_comments(document: Document) -> bool:
    lines = [line.strip() for line in document.source.splitlines()]
    return all(not line or line.startswith("#") for line in lines) and bool(document.source)


def _state_by_eye(data: bytes, root: str) -> str | None:
    """Return the folder after `state:` in a file that is no YAML at the moment."""
    found = re.search(rb"^state:[ \t]*([^\r\n#]+)", data, re.MULTILINE)
    if not found:
        return None
    text = found[1].decode("utf-8", "replace").strip().strip("\"'")
    return absolute(text, root) if text else None


def _targets(values: Values, key: str, root: str, report: Report) -> tuple[Target, ...]:
    if key not in values.by_key:
        return ()
    return targets_of(values.by_key[key], key, values.nodes[key], root, report) or ()


__all__ = [
    "ECHO_NAME",
    "FILE_NAME",
    "WORKSPACE_KEYS",
    "Retention",
    "WorkspaceSettings",
    "parse_settings",
]
