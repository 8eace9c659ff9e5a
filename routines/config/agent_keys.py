"""The keys of an entry under `agents:`, and of a preset: they are the same."""

import os
import re
from typing import Any

from routines.config.acp_entry import ACP_KEYS, ACP_ONLY, acp_read, acp_spec
from routines.config.http_entry import HTTP_KEYS, HTTP_SIGNS, address, http_read, http_spec
from routines.config.kinds import ENVIRONMENT, WORDS, Command
from routines.config.single import Text, Truth, Whole, Word
from routines.config.walker import Key, ListOf, Pairs, Table
from routines.domain.agent import (
    PRESETS,
    READ_KEYS,
    READ_STDERR_KEYS,
    STOP_SIGNALS,
    USUALLY_BUSY,
    AgentKind,
    AgentSpec,
    McpHandover,
    OutputFormat,
    PromptBy,
    Signs,
    Unfinished,
)
from routines.domain.output_path import parse_path
from routines.domain.versions import is_version
from routines.errors import InvalidName


def _function(text: str) -> str:
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", text):
        raise InvalidName("expected module:function", hint="like my_agents.daily:answer")
    return text


def _path_into_output(text: str) -> str:
    parse_path(text)
    return text


def _version(text: str) -> str:
    if not is_version(text):
        raise InvalidName("expected a version", hint="like 2.1.277")
    return text


def _program(text: str) -> str:
    return os.path.expanduser(text)


def _signs(what: str, default: str = "") -> Key:
    """Return the key under which a program's signs for one thing stand."""
    name, _, meaning = what.partition(": ")
    return Key(
        name,
        Table(
            (
                Key(
                    "exit",
                    ListOf(Whole(1, 255), "exit codes", cure=lambda _, text: f"exit: [{text}]"),
                    "Exit codes that mean it, where nothing was printed on stdout.",
                    "[75]" if name == "busy" else "",
                ),
                Key(
                    "stderr",
                    ListOf(Text()),
                    "Exact texts on stderr that mean it, beside another exit code than 0.",
                ),
                Key(
                    "error",
                    ListOf(Text()),
                    "Exact texts that mean it in the failure that the output declares.",
                ),
                *HTTP_SIGNS,
            )
        ),
        meaning,
        default,
    )


AGENT_KEYS = (
    Key("preset", Word(PRESETS), "A program that is known; the other keys override it."),
    Key("command", Command(), "Words of the command that answers a turn; no shell."),
    Key("python", Text("module:function", _function), "A Python function that answers a turn."),
    Key("http", Text("an address", address), "Where a turn is posted."),
    Key("acp", Command(), "Words that start an agent that speaks ACP; no shell."),
    Key(
        "program",
        Text("a name or path of a program", _program),
        "Stands in the place of the first word of the commands.",
    ),
    Key("args", WORDS, "Words added to every turn's command, before the routine's own."),
    Key("first", Command(), "Words for the first turn of a session.", "as `command`"),
    Key("interactive", Command(), "Words that open the program on the conversation."),
    Key("version", Command(), "Words that print the program's version."),
    Key("prompt_by", Word(tuple(PromptBy)), "How the prompt reaches the command.", "stdin"),
    Key("output", Word(tuple(OutputFormat)), "How the answer is read.", "text"),
    Key(
        "read",
        Pairs(
            "paths by what they mean, like {reply: result}",
            names=tuple(sorted(READ_KEYS)),
            value=Text("a path into the output", _path_into_output),
        ),
        "Where things stand in the output.",
    ),
    Key(
        "read_stderr",
        Pairs(
            "texts by what follows them, like {tokens: 'Token usage:'}",
            names=tuple(sorted(READ_STDERR_KEYS)),
            value=Text(),
        ),
        "What stands before things on a line of stderr.",
    ),
    Key(
        "totals_from",
        Text("a version", _version),
        "The version from which `cost_total` and `tokens_total` are running totals; before, they"
        " are of the turn alone.",
        "always running totals",
    ),
    _signs("busy: How the program says that the session is in use.", "{exit: [75]}"),
    _signs("not_started: How it says that it did nothing, and that this may heal."),
    _signs("lost: How it says that the conversation is gone."),
    Key(
        "unfinished",
        Word(tuple(Unfinished)),
        "What follows a first turn that was launched and never finished.",
        "new-epoch",
    ),
    Key(
        "continuations",
        Truth(),
        "Whether another id that comes back is the same conversation, continued.",
        "false",
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
    Key(
        "mcp",
        Table(
            (
                Key("words", WORDS, "Words added to the command."),
                Key("env", ENVIRONMENT, "Variables added to the turn's environment."),
            )
        ),
        "How the program takes an MCP server for one turn: the wake tools are handed over so.",
    ),
    *HTTP_KEYS,
    *ACP_KEYS,
)
# Each says how the agent is driven, so there is one of them.
WAYS = ("preset", "command", "python", "http", "acp")
# What says how a command is run has no meaning for a function.
OF_COMMANDS = frozenset(key.name for key in AGENT_KEYS) - {*WAYS, "stop", "env"}
# An entry that overrides a preset changes single values of these, and all of the others.
_TABLES = ("read", "read_stderr", "busy", "not_started", "lost", "env", "mcp")
_COMMANDS = ("command", "acp", "first", "interactive", "version")


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a preset with those of an entry over them."""
    joined = {**base, **over}
    for key in _TABLES:
        if key in base and key in over:
            joined[key] = {**base[key], **over[key]}
    return joined


def spec_of(name: str, values: dict[str, Any]) -> AgentSpec:
    """Return what the values of an entry, or of a preset, make."""
    if "http" in values:
        return AgentSpec(
            name=name,
            kind=AgentKind.HTTP,
            http=http_spec(values),
            output=OutputFormat(values.get("output", OutputFormat.JSON)),
            read=http_read(values),
            env=tuple(values.get("env", {}).items()),
        )
    given = dict(values)
    program = given.pop("program", None)
    if program is not None:
        for key in _COMMANDS:
            if key in given:
                given[key] = (program, *given[key][1:])
    busy = Signs(**{"exit": USUALLY_BUSY.exit, **given.pop("busy", {})})
    made: dict[str, Any] = {
        "prompt_by": PromptBy(given.pop("prompt_by", PromptBy.STDIN)),
        "output": OutputFormat(given.pop("output", OutputFormat.TEXT)),
        "unfinished": Unfinished(given.pop("unfinished", Unfinished.NEW_EPOCH)),
        "not_started": Signs(**given.pop("not_started", {})),
        "lost": Signs(**given.pop("lost", {})),
        "env": tuple(given.pop("env", {}).items()),
    }
    mcp = given.pop("mcp", None)
    if mcp is not None:
        made["mcp"] = McpHandover(mcp.get("words", ()), tuple(mcp.get("env", {}).items()))
    if "acp" in given:
        spec, read = acp_spec(given), acp_read(given)
        given = {key: value for key, value in given.items() if key not in ACP_ONLY}
        given |= {"command": given.pop("acp"), "read": read}
        return AgentSpec(name=name, kind=AgentKind.ACP, acp=spec, busy=busy, **made, **given)
    kind = AgentKind.PYTHON if "python" in given else AgentKind.COMMAND
    return AgentSpec(name=name, kind=kind, busy=busy, **made, **given)
