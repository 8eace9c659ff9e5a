"""What a model hands to a tool: arguments made of anything, read without trusting any of it.

Every refusal says what the tool takes instead, since it is read by whoever has to ask again.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from routines.domain.outcome import one_line
from routines.domain.wake_texts import Tool
from routines.errors import WakeupRefused

# In characters of JSON. The longest prompt (32 KiB, unless a host allows more) takes 192 KiB where
# each of its bytes is written as an escape of six letters; five times that leaves a host room for
# a larger bound, and is read in a few milliseconds whatever stands in it.
LARGEST_ARGUMENTS = 1024 * 1024
# Enough to recognise what was written; the rest of it helps nobody.
_SHOWN = 60
# Nobody means a number of more digits, and Python refuses to write those of more than 4300.
_LONGEST_NUMBER = 10**15
# What models call the text of a message elsewhere.
_PROMPTS = frozenset(["message", "text", "content", "reminder", "note", "task", "instructions"])
_UNFIT = re.compile("[\0\ud800-\udfff]")


def arguments_of(tool: Tool, given: object) -> dict[str, Any]:
    """Return the arguments of a call of *tool*, those left out that say nothing.

    What they are worth is for the tool to say; here they are only known to be its own, flat and
    of a size that can be shown.

    Args:
        tool: What was called.
        given: A mapping, or JSON text of one; None and an empty text are no arguments.

    Raises:
        WakeupRefused: They are none that this tool has; the message says which it takes.
    """
    found = _mapping(tool, given)
    arguments = {}
    for key, value in found.items():
        name = _name(tool, key)
        if name is None:
            raise _refused(
                tool, f'{tool.name} has no argument "{_quoted(key)}": {_meant(tool, key)}.'
            )
        if name in arguments:
            raise _refused(tool, f'{tool.name} was given "{name}" twice.')
        if value is not None:
            arguments[name] = _flat(tool, name, value)
    return arguments


def _mapping(tool: Tool, given: object) -> Mapping[Any, Any]:
    if given is None or (isinstance(given, str | bytes) and not given.strip()):
        return {}
    if isinstance(given, str | bytes | bytearray):
        if len(given) > LARGEST_ARGUMENTS:
            raise _refused(
                tool,
                f"the arguments of {tool.name} have {len(given)} characters; the most is"
                f" {LARGEST_ARGUMENTS}.",
            )
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise _refused(tool, f"the arguments of {tool.name} are no JSON.") from None
    if not isinstance(given, Mapping):
        raise _refused(tool, f"the arguments of {tool.name} are no JSON object: {_takes(tool)}.")
    return given


def _name(tool: Tool, key: object) -> str | None:
    """Return the argument that *key* names.

    `in_` is how Python has to spell `in`: a program whose schema comes from our functions gives
    it, and a refusal would send its model back to a schema that has no other word.
    """
    if not isinstance(key, str):
        return None
    name = "in" if key == "in_" else key
    return name if name in tool.params else None


def _flat(tool: Tool, name: str, value: object) -> str | float | bool:
    if isinstance(value, str):
        unfit = _UNFIT.search(value)
        if unfit is None:
            return value
        # No program could be given it, and at that time nobody is there to ask again.
        what = "a NUL character" if unfit[0] == "\0" else "half a character"
        raise _refused(tool, f"{name} holds {what} at {unfit.start()}.")
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int) and abs(value) < _LONGEST_NUMBER:
        return value
    kind = "a number of that size" if isinstance(value, int) else type(value).__name__
    meaning = tool.params[name]
    # An example, where there is one; a sentence about it would be a second one in this.
    example = "" if meaning.endswith(".") else f": {meaning}"
    raise _refused(tool, f"{name} must be text, not {kind}{example}.")


def _meant(tool: Tool, key: object) -> str:
    if "prompt" in tool.params and key in _PROMPTS:
        return "the text goes in prompt"
    return _takes(tool)


def _takes(tool: Tool) -> str:
    return f"it has {', '.join(tool.params)}" if tool.params else "it has none"


def _quoted(key: object) -> str:
    return one_line(key if isinstance(key, str) else type(key).__name__, most=_SHOWN)


def _refused(tool: Tool, message: str) -> WakeupRefused:
    nothing = "scheduled" if tool.name == "wake" else "changed"
    return WakeupRefused(f"{message} Nothing was {nothing}.")
