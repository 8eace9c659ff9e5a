"""What an entry under `agents:` says: how a program answers a turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from routines.domain.acp_agent import AcpSpec
from routines.domain.http_agent import HttpSpec


class AgentKind(StrEnum):
    """Which key of an entry says how the agent is driven."""

    COMMAND = "command"
    PYTHON = "python"
    HTTP = "http"
    ACP = "acp"
    ECHO = "echo"


class PromptBy(StrEnum):
    """How the prompt reaches a command."""

    STDIN = "stdin"
    ARGUMENT = "argument"


class OutputFormat(StrEnum):
    """How a command's stdout, or a server's answer, is read."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    # Server-sent events: for `http` alone.
    EVENTS = "events"


class Unfinished(StrEnum):
    """What follows a first turn that was launched and never finished."""

    RESUME = "resume"
    NEW_EPOCH = "new-epoch"


# The only placeholders that a command's words may hold.
PLACEHOLDERS = frozenset(
    [
        "session",
        "session_uuid",
        "session_file",
        "native_session",
        "prompt",
        "turn",
        "model",
        "options",
    ]
)
# Stands for any number of words, and so is a word of its own.
OPTIONS = "{options}"
# What `read:` may name: places in the JSON that the program printed, `domain.output_path`.
READ_KEYS = frozenset(
    [
        "reply",
        "native_session",
        "failed",
        "error",
        "denied",
        "cost",
        "cost_total",
        "tokens",
        "tokens_total",
    ]
)
# What `read_stderr:` may name: what follows a text on the last such line of stderr.
READ_STDERR_KEYS = frozenset(["native_session", "tokens", "cost"])
# Programs that are known, in the order in which `init` offers them.
PRESETS = ("claude-code", "codex", "gemini", "qwen", "opencode", "pi", "llm")
STOP_SIGNALS = frozenset(["INT", "TERM", "HUP", "QUIT", "KILL"])


@dataclass(frozen=True, slots=True)
class Signs:
    """How a program says one particular thing; each is exact, and one is enough.

    Attributes:
        exit: Exit codes that mean it.
        stderr: Texts on stderr that mean it, beside an exit code that is not 0.
        error: Texts that mean it in a failure that the output declares.
    """

    exit: tuple[int, ...] = ()
    stderr: tuple[str, ...] = ()
    error: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in which they are handed on."""
        return {"exit": list(self.exit), "stderr": list(self.stderr), "error": list(self.error)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Signs":
        """Return the signs that `to_json` wrote."""
        return cls(tuple(data["exit"]), tuple(data["stderr"]), tuple(data["error"]))


# What the words and the environment may hold that hand an MCP server over: its program and its
# arguments as JSON texts, both in one list, its environment as a JSON object or a TOML table. And
# the folder of the files that come with the presets, for programs that take a server by one.
MCP_PLACEHOLDERS = frozenset(
    ["mcp_command", "mcp_args", "mcp_command_line", "mcp_env", "mcp_env_toml", "mcp_folder"]
)


@dataclass(frozen=True, slots=True)
class McpHandover:
    """How a program takes an MCP server for one turn, and leave to use its tools with it.

    Attributes:
        words: Words added to the command.
        env: Variables added to the environment, unless they are set to something else already.
    """

    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is handed on."""
        return {"words": list(self.words), "env": [list(pair) for pair in self.env]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> "McpHandover | None":
        """Return what `to_json` wrote."""
        if data is None:
            return None
        return cls(tuple(data["words"]), tuple((key, value) for key, value in data["env"]))


# 75 is EX_TEMPFAIL of sysexits.h: try again later.
USUALLY_BUSY = Signs(exit=(75,))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """How one agent is driven.

    Attributes:
        name: As routines name it.
        kind: Which of the ways below applies.
        preset: The preset that it is made of, or None.
        command: Words of the command, no shell; placeholders in braces are filled in.
        first: Words for the first turn of an epoch; None if it is as the others.
        interactive: Words that open the agent's own program on the conversation, or None.
        version: Words that print the program's version, or None.
        args: Words added to every turn's command, before the routine's own.
        python: `module:function`, for kind python.
        http: Where and how a turn is posted, for kind http.
        acp: How the agent is answered, for kind acp; `command` has the words that start it.
        prompt_by: stdin, or an argument (then `{prompt}` is a word of its own).
        output: How stdout is read.
        read: Where in that output something stands, by `READ_KEYS`.
        read_stderr: What stands before it on a line of stderr, by `READ_STDERR_KEYS`.
        totals_from: The version from which `cost_total` and `tokens_total` are running totals of
            the conversation; before, they are of the turn alone. None: always running totals.
        busy: The session is in use, nothing was done.
        not_started: Nothing was done, and that may heal.
        lost: The conversation is gone, nothing was done.
        unfinished: What follows a first turn that was launched and never finished.
        continuations: Whether another id that comes back is the same conversation, continued.
        stop: Signals to the whole tree, the leader's group first, 10 s apart, that end a turn.
        env: Added to the turn's environment.
        model: Words added when a model is set, `{model}` filled in.
        mcp: How it takes an MCP server for one turn; None if it can't.
    """

    name: str
    kind: AgentKind
    preset: str | None = None
    command: tuple[str, ...] = ()
    first: tuple[str, ...] | None = None
    interactive: tuple[str, ...] | None = None
    version: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    python: str | None = None
    http: HttpSpec | None = None
    acp: AcpSpec | None = None
    prompt_by: PromptBy = PromptBy.STDIN
    output: OutputFormat = OutputFormat.TEXT
    read: Mapping[str, str] = field(default_factory=dict)
    read_stderr: Mapping[str, str] = field(default_factory=dict)
    totals_from: str | None = None
    busy: Signs = USUALLY_BUSY
    not_started: Signs = Signs()
    lost: Signs = Signs()
    unfinished: Unfinished = Unfinished.NEW_EPOCH
    continuations: bool = False
    stop: tuple[str, ...] = ("TERM", "KILL")
    env: tuple[tuple[str, str], ...] = ()
    model: tuple[str, ...] = ()
    mcp: McpHandover | None = None

    @property
    def program(self) -> str | None:
        """The word that names the program, None if there is none."""
        return self.command[0] if self.command else None

    @property
    def tells_cost(self) -> bool:
        """Whether its output may say what a turn cost."""
        return bool({*self.read, *self.read_stderr} & {"cost", "cost_total"})

    def to_json(self) -> dict[str, Any]:
        """Return the form in which an entry is handed to a turn process."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AgentSpec":
        """Return the entry that `to_json` wrote."""
        return cls(**{name: _made(name, value) for name, value in data.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Signs | McpHandover | HttpSpec | AcpSpec):
        return value.to_json()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


_MADE: Mapping[str, Any] = {
    "kind": AgentKind,
    "prompt_by": PromptBy,
    "output": OutputFormat,
    "unfinished": Unfinished,
    "busy": Signs.from_json,
    "not_started": Signs.from_json,
    "lost": Signs.from_json,
    "http": lambda value: None if value is None else HttpSpec.from_json(value),
    "mcp": McpHandover.from_json,
    "acp": lambda value: None if value is None else AcpSpec.from_json(value),
}


def _made(name: str, value: Any) -> Any:
    if name in _MADE:
        return _MADE[name](value)
    if isinstance(value, list):
        return tuple(tuple(one) if isinstance(one, list) else one for one in value)
    return value


# Needs no entry: answers with the prompt. For rehearsal, examples and the first run.
ECHO = AgentSpec(name="echo", kind=AgentKind.ECHO)
