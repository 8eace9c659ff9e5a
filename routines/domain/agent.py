"""What an entry under `agents:` says: how a program answers a turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class AgentKind(StrEnum):
    """Which key of an entry says how the agent is driven."""

    COMMAND = "command"
    PYTHON = "python"
    ECHO = "echo"


class PromptBy(StrEnum):
    """How the prompt reaches a command."""

    STDIN = "stdin"
    ARGUMENT = "argument"


class OutputFormat(StrEnum):
    """How a command's stdout is read."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


# The only placeholders that a command's words may hold.
PLACEHOLDERS = frozenset(["session", "session_uuid", "native_session", "prompt", "turn", "model"])
# What `read:` may name: dotted paths into the JSON that the program printed.
READ_KEYS = frozenset(
    [
        "reply",
        "native_session",
        "failed",
        "denied",
        "cost",
        "cost_total",
        "tokens",
        "tokens_total",
    ]
)
STOP_SIGNALS = frozenset(["INT", "TERM", "HUP", "QUIT", "KILL"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """How one agent is driven.

    Attributes:
        name: As routines name it.
        kind: Which of the ways below applies.
        command: Words of the command, no shell; placeholders in braces are filled in.
        first: Words for the first turn of an epoch; None if it is as the others.
        interactive: Words that open the agent's own program on the conversation, or None.
        python: `module:function`, for kind python.
        prompt_by: stdin, or an argument (then `{prompt}` is a word of its own).
        output: How stdout is read.
        read: Dotted paths into that output, by `READ_KEYS`.
        busy_exit: Exit codes that mean: the session is in use, nothing was done.
        busy_stderr: Exact texts on stderr that mean the same, beside a non-zero exit.
        stop: Signals to the whole tree, 10 s apart, that end a turn.
        env: Added to the turn's environment.
        model: Words added when a model is set, `{model}` filled in.
    """

    name: str
    kind: AgentKind
    command: tuple[str, ...] = ()
    first: tuple[str, ...] | None = None
    interactive: tuple[str, ...] | None = None
    python: str | None = None
    prompt_by: PromptBy = PromptBy.STDIN
    output: OutputFormat = OutputFormat.TEXT
    read: Mapping[str, str] = field(default_factory=dict)
    busy_exit: tuple[int, ...] = (75,)
    busy_stderr: tuple[str, ...] = ()
    stop: tuple[str, ...] = ("TERM", "KILL")
    env: tuple[tuple[str, str], ...] = ()
    model: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the form in which an entry is handed to a turn process."""
        return {
            "name": self.name,
            "kind": self.kind.value,
            "command": list(self.command),
            "first": None if self.first is None else list(self.first),
            "interactive": None if self.interactive is None else list(self.interactive),
            "python": self.python,
            "prompt_by": self.prompt_by.value,
            "output": self.output.value,
            "read": dict(self.read),
            "busy_exit": list(self.busy_exit),
            "busy_stderr": list(self.busy_stderr),
            "stop": list(self.stop),
            "env": [list(pair) for pair in self.env],
            "model": list(self.model),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AgentSpec":
        """Return the entry that `to_json` wrote."""
        first, interactive = data["first"], data["interactive"]
        return cls(
            name=data["name"],
            kind=AgentKind(data["kind"]),
            command=tuple(data["command"]),
            first=None if first is None else tuple(first),
            interactive=None if interactive is None else tuple(interactive),
            python=data["python"],
            prompt_by=PromptBy(data["prompt_by"]),
            output=OutputFormat(data["output"]),
            read=dict(data["read"]),
            busy_exit=tuple(data["busy_exit"]),
            busy_stderr=tuple(data["busy_stderr"]),
            stop=tuple(data["stop"]),
            env=tuple((key, value) for key, value in data["env"]),
            model=tuple(data["model"]),
        )


# Needs no entry: answers with the prompt. For rehearsal, examples and the first run.
ECHO = AgentSpec(name="echo", kind=AgentKind.ECHO)
