"""What the stand-in answers, and what a prompt can make it do.

Every answer says how many texts it was given, so that a second turn shows whether the first came
with it. A line of a prompt can ask for more; the last such line of the newest texts counts:

    standin: plain              nothing more
    standin: slow 60            first waits 60 s
    standin: shell COMMAND      has the program run COMMAND by the shell tool that it offers
    standin: work 60 COMMAND    the same, and takes 60 s over what the shell said
    standin: call NAME {JSON}   has the program call the tool that it offers under NAME
"""

import json
import re
from dataclasses import dataclass, field

_LINE = re.compile(r"^standin: (plain|slow|shell|work|call)\b[ ]?(.*)$", re.MULTILINE)
# What the seven programs call the tool that runs a command, in the order of preference.
_SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell")
# The parameters in which they take the command.
_COMMANDS = ("command", "cmd")
# What any request is said to have cost, so that a sum shows how many there were.
INPUT_TOKENS = 10
OUTPUT_TOKENS = 5


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, the same whichever dialect it came in.

    Attributes:
        model: The model that was asked for.
        stream: Whether the answer is wanted as a stream.
        texts: What people said, oldest first.
        newest: Of those, what came after the model's last words.
        results: What tools answered after the model's last words.
        tools: Names of the tools that are offered, each with the schema of its arguments.
    """

    model: str
    stream: bool
    texts: tuple[str, ...]
    newest: tuple[str, ...]
    results: tuple[str, ...] = ()
    tools: dict[str, dict] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the stand-in says: a text, or the call of a tool; and how long it thinks first."""

    text: str = ""
    tool: str | None = None
    arguments: dict = field(default_factory=dict)
    wait_s: float = 0.0


def answer(asked: Asked) -> Answer:
    """Return what the script says to *asked*."""
    plain = f"I was given {len(asked.texts)} texts."
    if asked.results:
        verb, rest = _wish(asked.texts)
        return Answer(
            text=f"{plain} The tool said: {' '.join(asked.results)}",
            # Some programs ask again while their shell goes on with the command.
            wait_s=float(rest.partition(" ")[0]) if verb == "work" else 0.0,
        )
    verb, rest = _wish(asked.newest)
    if verb == "slow":
        return Answer(text=plain, wait_s=float(rest))
    if verb == "work":
        rest = rest.partition(" ")[2]
    if verb in ("shell", "work"):
        return _shell(asked, rest) or _without(asked, "a shell", plain)
    if verb == "call":
        name, _, arguments = rest.partition(" ")
        return _call(asked, name, json.loads(arguments or "{}")) or _without(asked, name, plain)
    return Answer(text=plain)


def _wish(texts):
    found = _LINE.findall("\n".join(texts))
    return found[-1] if found else ("plain", "")


def _shell(asked, command):
    for name in _SHELLS:
        if name not in asked.tools:
            continue
        known = asked.tools[name].get("properties", {})
        key = next((key for key in _COMMANDS if key in known), "command")
        listed = known.get(key, {}).get("type") == "array"
        arguments = {key: ["bash", "-lc", command] if listed else command}
        for needed in set(asked.tools[name].get("required", [])) - {key}:
            # A description, a flag: whatever the program insists on, in the type that it wants.
            arguments[needed] = {"boolean": False, "number": 60, "integer": 60}.get(
                known.get(needed, {}).get("type"), "set an alarm"
            )
        return Answer(tool=name, arguments=arguments)
    return None


def _call(asked, name, arguments):
    # Each program puts words of its own before the name of a tool that came from an MCP server.
    for offered in asked.tools:
        if offered == name or re.search(rf"[_.-]{re.escape(name)}$", offered):
            return Answer(tool=offered, arguments=arguments)
    return None


def _without(asked, what, plain):
    offered = ", ".join(sorted(asked.tools)) or "none"
    return Answer(text=f"{plain} I was not offered {what}; I was offered: {offered}.")
