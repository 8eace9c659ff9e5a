"""routines.yaml: what holds for all routines of a workspace, and the agents it knows."""

import re
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Any

from routines.config import reader
from routines.config.files import absolute
from routines.config.kinds import (
    ALERT,
    DELIVER,
    ENVIRONMENT,
    LIMITS,
    PATH,
    WORDS,
    ZONE,
    Command,
    day_limit,
    targets_of,
    tells_cost,
)
from routines.config.reader import Mapping, Node, Unusable
from routines.config.walker import (
    Key,
    ListOf,
    Pairs,
    Report,
    Table,
    Text,
    Values,
    Whole,
    Word,
    near,
    object_schema,
    read_table,
    shown,
)
from routines.domain.agent import (
    ECHO,
    PLACEHOLDERS,
    READ_KEYS,
    STOP_SIGNALS,
    AgentKind,
    AgentSpec,
    OutputFormat,
    PromptBy,
)
from routines.domain.limits import DayLimit
from routines.domain.targets import Target
from routines.errors import InvalidName, Problem

FILE_NAME = "routines.yaml"
ECHO_NAME = "echo"
# Names that a later version will know without an entry.
PRESETS = ("claude-code", "codex", "gemini", "qwen", "opencode", "pi", "llm")


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

    def knows_agent(self, name: str) -> bool:
        """Return whether a routine may name this agent."""
        return name == ECHO_NAME or name in self.agents or not self.is_whole


# --- the tables -------------------------------------------------------------------------------


def agent_name(text: str) -> str:
    """Return *text* if an agent may be called so, or raise `InvalidName`."""
    if not re.fullmatch(r"[\w.-]{1,100}", text):
        raise InvalidName(
            f"an agent can't be called {text[:40]!r}", hint="letters, digits, '-', '_' and '.'"
        )
    return text


def _function(text: str) -> str:
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", text):
        raise InvalidName("expected module:function", hint="like my_agents.daily:answer")
    return text


def _dotted_path(text: str) -> str:
    if not all(text.split(".")):
        raise InvalidName("expected a dotted path, like result.text")
    return text


AGENT_KEYS = (
    Key("command", Command(), "Words of the command that answers a turn; no shell."),
    Key("python", Text("module:function", _function), "A Python function that answers a turn."),
    Key("http", Text("a URL"), "An agent behind HTTP.", later=True),
    Key("acp", Command(), "An agent that speaks ACP.", later=True),
    Key("preset", Text("a preset"), "Data for a known program.", later=True),
    Key("first", Command(), "Words for the first turn of a session.", "as `command`"),
    Key("interactive", Command(), "Words that open the program on the conversation."),
    Key("prompt_by", Word(tuple(PromptBy)), "How the prompt reaches the command.", "stdin"),
    Key("output", Word(tuple(OutputFormat)), "How stdout is read.", "text"),
    Key(
        "read",
        Pairs(
            "paths by what they mean, like {reply: result}",
            names=tuple(sorted(READ_KEYS)),
            value=Text("a dotted path", _dotted_path),
        ),
        "Dotted paths into the output.",
    ),
    Key(
        "busy",
        Table(
            (
                Key(
                    "exit",
                    ListOf(Whole(1, 255), "exit codes", cure=lambda _, text: f"exit: [{text}]"),
                    "Exit codes that mean: the session is in use, nothing was done.",
                    "[75]",
                ),
                Key(
                    "stderr",
                    ListOf(Text()),
                    "Exact texts on stderr that mean the same, beside a non-zero exit.",
                ),
            )
        ),
        "How the program says that the session is in use.",
    ),
    Key(
        "stop",
        ListOf(
            Word(
                ("INT", "TERM", "HUP", "QUIT", "KILL"),
                {f"sig{name.lower()}": f"write {name}" for name in STOP_SIGNALS},
            ),
            "signals",
            least=1,
        ),
        "Signals that end a turn, 10 s apart.",
        "[TERM, KILL]",
    ),
    Key("env", ENVIRONMENT, "Variables added to the turn's environment."),
    Key("model", WORDS, "Words added when a model is set, like [--model, '{model}']."),
)
_WAYS = ("command", "python", "http", "acp", "preset")
# What says how a command is run has no meaning for a function.
_OF_COMMANDS = ("first", "interactive", "prompt_by", "output", "read", "busy", "model")


@dataclass(frozen=True, slots=True)
class Agents:
    """The entries under `agents:`."""

    expected: str = "entries by name, like {claude: {command: [claude, -p]}}"

    def read(self, node: Node, key: str, report: Report) -> dict[str, AgentSpec] | None:
        """Return the entries that are right."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, Mapping):
            report.refuse(node, key, f"expected {self.expected}")
            return None
        specs = {}
        for name, (place, entry) in node.entries.items():
            at = f"{key}.{shown(name)}"
            try:
                agent_name(name)
            except InvalidName as error:
                report.add(place, at, error.message, error.hint)
            if name == ECHO_NAME:
                report.add(place, at, "`echo` is there without an entry", "use another name")
            spec = _read_agent(entry, name, at, report)
            if spec is not None:
                specs[name] = spec
        return specs

    def schema(self) -> dict[str, Any]:
        """Return the object whose values are entries."""
        return {"type": "object", "additionalProperties": object_schema(AGENT_KEYS)}


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
        env_file=_path_of(values, "env_file", root, report),
        state=_path_of(values, "state", root, report),
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
    spec = ECHO if agent == ECHO_NAME else settings.agents.get(agent)
    if not tells_cost(spec):
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
    if name in PRESETS:
        message = "presets are not built yet in this version"
        cure = f"add an entry for it under `agents:` in {FILE_NAME}"
    else:
        message = "no agent is called that"
        cure = near(name, [*settings.agents, ECHO_NAME]) or (
            f"add an entry for it under `agents:` in {FILE_NAME}, or use {ECHO_NAME}"
        )
    report.refuse(node, "agent", message, cure)


def _is_only_comments(document: reader.Document) -> bool:
    lines = [line.strip() for line in document.source.splitlines()]
    return all(not line or line.startswith("#") for line in lines) and bool(document.source)


def _state_by_eye(data: bytes, root: str) -> str | None:
    """Return the folder after `state:` in a file that is no YAML at the moment."""
    found = re.search(rb"^state:[ \t]*([^\r\n#]+)", data, re.MULTILINE)
    if not found:
        return None
    text = found[1].decode("utf-8", "replace").strip().strip("\"'")
    return absolute(text, root) if text else None


def _path_of(values: Values, key: str, root: str, report: Report) -> str | None:
    text = values.get(key)
    if text is None:
        return None
    path = absolute(text, root)
    if path is None:
        report.refuse(values.nodes[key], key, "no user of that name has a home folder")
    return path


def _targets(values: Values, key: str, root: str, report: Report) -> tuple[Target, ...]:
    if key not in values.by_key:
        return ()
    return targets_of(values.by_key[key], key, values.nodes[key], root, report) or ()


def _read_agent(node: Node, name: str, at: str, report: Report) -> AgentSpec | None:
    if isinstance(node, Unusable):
        return None
    if not isinstance(node, Mapping):
        report.refuse(node, at, "expected keys like `command: [program, word]`")
        return None
    before = len(report.problems)
    values = read_table(node, AGENT_KEYS, report, prefix=f"{at}.")
    ways = [way for way in _WAYS if way in values.nodes]
    if not ways and not _is_misspelt(report, before):
        report.add(node, at, f"{at} has no command", "give it `command:` or `python:`")
    elif len(ways) > 1:
        place = values.nodes[ways[1]]
        report.add(place, f"{at}.{ways[1]}", f"{at} has {' and '.join(ways)}", "keep one of them")
    elif ways == ["python"]:
        _check_function(values, at, report)
    elif ways == ["command"] and len(report.problems) == before:
        _Placeholders(values, at, report).check()
    return _spec(name, values) if len(report.problems) == before else None


def _is_misspelt(report: Report, before: int) -> bool:
    """Return whether a problem already says which key was to be `command` or `python`."""
    cures = [problem.cure or "" for problem in report.problems[before:]]
    return any(f"'{way}'" in cure for cure in cures for way in _WAYS)


def _check_function(values: Values, at: str, report: Report) -> None:
    for key in _OF_COMMANDS:
        if key in values.nodes:
            message = f"`{key}` has no meaning beside `python`"
            report.add(values.nodes[key], f"{at}.{key}", message, "remove the key")


def _spec(name: str, values: Values) -> AgentSpec:
    given = values.by_key
    busy = given.get("busy", {})
    plain = {
        key: given[key]
        for key in ("command", "first", "interactive", "python", "read", "stop", "model")
        if key in given
    }
    return AgentSpec(
        name=name,
        kind=AgentKind.PYTHON if "python" in given else AgentKind.COMMAND,
        prompt_by=PromptBy(given.get("prompt_by", PromptBy.STDIN)),
        output=OutputFormat(given.get("output", OutputFormat.TEXT)),
        busy_exit=busy.get("exit", (75,)),
        busy_stderr=busy.get("stderr", ()),
        env=tuple(given.get("env", {}).items()),
        **plain,
    )


# --- placeholders -----------------------------------------------------------------------------

# Braces around a word; `{"a": 1}` in a command is what it looks like, JSON.
_PLACEHOLDER = r"\{([A-Za-z_][A-Za-z0-9_]*)\}"


class _Placeholders:
    """Checks that each placeholder is known, and can be filled in when its command runs."""

    def __init__(self, values: Values, at: str, report: Report) -> None:
        self.values = values
        self.at = at
        self.report = report
        self.used = {
            key: [name for word in values.get(key, ()) for name in re.findall(_PLACEHOLDER, word)]
            for key in ("command", "first", "interactive", "model")
        }

    def check(self) -> None:
        for key, names in self.used.items():
            for name in names:
                if name not in PLACEHOLDERS:
                    self._refuse(
                        key,
                        f"no placeholder is called {{{name}}}",
                        near(name, sorted(PLACEHOLDERS)) or f"known are {_known()}",
                    )
        self._check_prompt()
        self._check_native_session()
        if "read" in self.values.by_key and self.values.get("output", "text") == "text":
            self._refuse("read", "`read` needs structured output", "add `output: json` or jsonl")

    def _check_prompt(self) -> None:
        as_argument = self.values.get("prompt_by", "stdin") == PromptBy.ARGUMENT
        for key in ("command", "first", "interactive", "model"):
            words = self.values.get(key)
            if words is None:
                continue
            uses = "prompt" in self.used[key]
            if key in {"interactive", "model"}:
                if uses:
                    self._refuse(key, "there is no {prompt} here", "remove the word")
            elif uses and not as_argument:
                self._refuse(
                    key, "{prompt} is here and the prompt goes to stdin", "prompt_by: argument"
                )
            elif as_argument and words.count("{prompt}") != 1:
                self._refuse(
                    key,
                    "with `prompt_by: argument` the prompt stands in a word of its own, once",
                    'add "{prompt}" as a word',
                )

    def _check_native_session(self) -> None:
        """See that the program's own id is known by the time a command needs it.

        It is known from the second turn of an epoch on, and only if the first turn was given an
        id of ours or its output says which id the program chose.
        """
        if "native_session" in self.used["first"]:
            self._refuse(
                "first",
                "{native_session} is not known before the first turn",
                "use {session_uuid}, or leave the choice to the program",
            )
        needs = [key for key in ("command", "interactive") if "native_session" in self.used[key]]
        if not needs:
            return
        learns = "native_session" in self.values.get("read", {})
        if "command" in needs and "first" not in self.values.by_key:
            self._refuse(
                "command",
                "{native_session} is not known in the first turn",
                "add `first:` with the words for that turn",
            )
        elif not learns and "session_uuid" not in (self.used["first"] or self.used["command"]):
            self._refuse(
                needs[0],
                "nothing says what {native_session} is",
                "use {session_uuid} in `first`, or name its place under `read: {native_session:}`",
            )

    def _refuse(self, key: str, message: str, cure: str | None = None) -> None:
        self.report.add(
            self.values.nodes[key], f"{self.at}.{key}", f"{self.at}.{key}: {message}", cure
        )


def _known() -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(PLACEHOLDERS))


__all__ = [
    "AGENT_KEYS",
    "FILE_NAME",
    "WORKSPACE_KEYS",
    "Retention",
    "WorkspaceSettings",
    "parse_settings",
]
