"""The keys of an entry with `acp:`, and what is wrong between them."""

import re
from collections.abc import Mapping as Dict
from typing import Any

from routines.config.report import Report, near
from routines.config.single import Text, Word
from routines.config.walker import Key, ListOf, Table, Values
from routines.domain.acp_agent import ACP_READ_KEYS, DEFAULT_ACP_READ, TOOL_KINDS, AcpSpec
from routines.domain.agent import PLACEHOLDERS

ACP_KEYS = (
    Key(
        "approve",
        Table(
            (
                Key("kinds", ListOf(Word(TOOL_KINDS), "kinds of tool"), "Kinds of tool."),
                Key("titles", ListOf(Text()), "Exact titles of tools, as the agent shows them."),
            )
        ),
        "What the agent may do when it asks; all else is refused.",
    ),
    Key(
        "authenticate",
        Text("the id of a method"),
        "The method by which one logs in at the start of each turn.",
    ),
)
# What has a meaning beside `acp` alone.
ACP_ONLY = tuple(key.name for key in ACP_KEYS)
_FOR_ACP = (
    "acp",
    "program",
    "args",
    "interactive",
    "version",
    "read",
    "busy",
    "not_started",
    "lost",
    "stop",
    "env",
    "model",
)
_SIGNS = ("busy", "not_started", "lost")
_PLACEHOLDER = r"\{([A-Za-z_][A-Za-z0-9_]*)\}"
# What its words may hold: the prompt and the conversation go by the protocol.
_IN_WORDS = frozenset(["session", "session_uuid", "turn", "options"])


def check_acp(values: Values, at: str, report: Report) -> None:
    """Report what does not go together in an entry with `acp:`."""

    def refuse(key: str, message: str, cure: str) -> None:
        report.add(values.nodes[key], f"{at}.{key}", f"{at}.{key}: {message}", cure)

    for key in values.nodes:
        if key not in _FOR_ACP + ACP_ONLY:
            refuse(key, f"`{key}` has no meaning beside `acp`", "remove the key")
    for sign in _SIGNS:
        for key in values.get(sign, {}):
            if key != "error":
                refuse(sign, f"`{key}` has no meaning beside `acp`", "use `error`")
    for key in values.get("read", {}):
        if key not in ACP_READ_KEYS:
            known = ", ".join(sorted(ACP_READ_KEYS))
            refuse("read", f"the protocol itself says `{key}`", f"known are {known}")
    for name in [n for word in values.get("acp", ()) for n in re.findall(_PLACEHOLDER, word)]:
        if name not in PLACEHOLDERS:
            cure = near(name, sorted(_IN_WORDS)) or f"known are {', '.join(sorted(_IN_WORDS))}"
            refuse("acp", f"no placeholder is called {{{name}}}", cure)
        elif name not in _IN_WORDS:
            refuse("acp", f"there is no {{{name}}} here", "remove the word")


def check_no_acp(values: Values, at: str, report: Report) -> None:
    """Report keys of `acp` in an entry without it."""
    for key in ACP_ONLY:
        if key in values.nodes:
            message = f"`{key}` has a meaning beside `acp` alone"
            report.add(values.nodes[key], f"{at}.{key}", f"{at}.{key}: {message}", "remove the key")


def acp_spec(given: Dict[str, Any]) -> AcpSpec:
    """Return how the agent is answered, from the values of its entry by key."""
    approve = given.get("approve", {})
    return AcpSpec(
        kinds=approve.get("kinds", ()),
        titles=approve.get("titles", ()),
        authenticate=given.get("authenticate"),
    )


def acp_read(given: Dict[str, Any]) -> Dict[str, str]:
    """Return where in the protocol's messages cost and tokens stand."""
    found: Dict[str, str] = given.get("read", DEFAULT_ACP_READ)
    return found
