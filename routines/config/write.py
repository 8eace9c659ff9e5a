"""Texts for new files: what they say is read back exactly as it was given.

Nothing is written here. A value is in quotes wherever YAML or a person could take it for
something else, and a prompt is a block of text, so that it can be edited as one.
"""

import re
from collections.abc import Sequence
from datetime import timedelta

from routines.config import reader
from routines.config.reader import unix_lines
from routines.config.tree import Scalar
from routines.domain.durations import format_span

# An editor with a YAML language server reads this line, and then completes keys.
_EDITOR_LINE = "# yaml-language-server: $schema="
WORKSPACE_SCHEMA = ".routines/workspace.schema.json"
ROUTINE_SCHEMA = "../.routines/routine.schema.json"

_INDENT = "  "


def routine_text(
    *,
    prompt: str,
    cron: str | Sequence[str] | None = None,
    every: timedelta | str | None = None,
    at: str | None = None,
    rrule: str | None = None,
    tz: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    description: str | None = None,
    schema: str | None = None,
) -> str:
    """Return the text of a routine's file.

    Args:
        prompt: The text that the agent gets; its line ends become LF.
        cron: An expression, or several.
        every: A period, as a span or as it is written.
        at: One instant.
        rrule: A rule with DTSTART.
        tz: Its zone, if it is not the workspace's.
        agent: Its agent, if it is not the workspace's.
        session: Which conversation it continues, if not its own.
        description: For people who read the list.
        schema: Where an editor finds the JSON Schema of routines, or None.
    """
    span = format_span(every) if isinstance(every, timedelta) else every
    keys = [
        ("description", description),
        ("cron", cron),
        ("every", span),
        ("at", at),
        ("rrule", rrule),
        ("tz", tz),
        ("agent", agent),
        ("session", session),
    ]
    lines = [f"{_EDITOR_LINE}{schema}"] if schema else []
    lines += [f"{key}: {_value(value)}" for key, value in keys if value]
    return "".join(f"{line}\n" for line in lines) + _prompt(unix_lines(prompt))


def workspace_text(
    *,
    tz: str | None,
    agent: str | None,
    agents: str | None = None,
    schema: str | None = WORKSPACE_SCHEMA,
) -> str:
    """Return the text of routines.yaml.

    Args:
        tz: The zone in which times are read; None leaves it at UTC, with a line to fill in.
        agent: The agent of routines that name none; None leaves a line to fill in.
        agents: The block under `agents:`, as YAML without indentation, or None.
        schema: Where an editor finds the JSON Schema of this file, or None.
    """
    lines = [f"{_EDITOR_LINE}{schema}"] if schema else []
    lines += [
        f"tz: {_value(tz)}" if tz else "# tz: Europe/Berlin     times are read in UTC without it",
        f"agent: {_value(agent)}" if agent else "# agent: echo          who answers, by name",
    ]
    if agents:
        lines.append("agents:")
        lines += [(_INDENT + line).rstrip() for line in agents.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _value(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return value if _is_plain(value) else double_quoted(value)
    return f"[{', '.join(double_quoted(item) for item in value)}]"


# Zones and names of agents: no reader of YAML takes these for anything else.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z_]*(?:[/-][A-Za-z_]+)*", re.ASCII)
# What YAML 1.1 takes for a truth or for nothing.
_WITH_A_MEANING = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null"])


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text.casefold() not in _WITH_A_MEANING


def _prompt(prompt: str) -> str:
    """Return `prompt:` with its text: as a block if that says exactly the same, else in quotes."""
    block = "prompt: " + _block(prompt)
    if _reads_as(block, prompt):
        return block
    return f"prompt: {double_quoted(prompt)}\n"


def _block(text: str) -> str:
    """Return *text* as a literal block under a key at the left edge."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    keep = "-" if ends == 0 else "" if ends == 1 else "+"
    # Without the number, spaces at the beginning would be taken for indentation.
    width = str(len(_INDENT)) if text[:1] in {" ", "\n", "\t"} else ""
    lines = [f"{_INDENT}{line}" if line else "" for line in body.split("\n")]
    return f"|{width}{keep}\n" + "\n".join(lines) + "\n" * max(ends, 1)


def _reads_as(text: str, wanted: str) -> bool:
    """Return whether a block is read as what went in: YAML has signs that it folds or refuses."""
    document = reader.read(text.encode("utf-8", "surrogatepass"), "")
    if document.problems or document.root is None:
        return False
    node = document.root.entries["prompt"][1]
    return isinstance(node, Scalar) and node.text == wanted


_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
}
_LAST_OF_TWO = 0xFF
_LAST_OF_FOUR = 0xFFFF


def double_quoted(text: str) -> str:
    """Return *text* in double quotes, on one line, everything that can't be seen escaped."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code <= _LAST_OF_TWO:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR else f"\\U{code:08x}"
