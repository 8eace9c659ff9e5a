"""Reading an entry under `agents:`, and what has to fit together in it."""

import re

from routines.config.acp_entry import check_acp, check_no_acp
from routines.config.agent_keys import AGENT_KEYS, OF_COMMANDS, WAYS, merged, spec_of
from routines.config.http_entry import check_http, check_no_http
from routines.config.presets import preset_values
from routines.config.report import Report, near
from routines.config.tree import Mapping, Node, Unusable
from routines.config.walker import Values, read_table
from routines.domain.agent import (
    MCP_PLACEHOLDERS,
    OPTIONS,
    PLACEHOLDERS,
    PRESETS,
    AgentSpec,
    PromptBy,
)
from routines.domain.output_path import parse_path


def read_agent(node: Node, name: str, at: str, report: Report) -> AgentSpec | None:
    """Return the entry *name*, or None if it is not right; *report* then says why."""
    if isinstance(node, Unusable):
        return None
    if not isinstance(node, Mapping):
        report.refuse(node, at, "expected keys like `command: [program, word]`")
        return None
    before = len(report.problems)
    values = read_table(node, AGENT_KEYS, report, prefix=f"{at}.")
    ways = [way for way in WAYS if way in values.nodes]
    if "preset" in ways and "command" in ways:
        # Another command for a program that is known: the rest of the preset still holds.
        ways.remove("command")
    if not ways and not _is_misspelt(report, before):
        cure = f"give it `preset: {name}`" if name in PRESETS else "give it `command:` or `preset:`"
        report.add(node, at, f"{at} has no command", cure)
    elif len(ways) > 1:
        place = values.nodes[ways[1]]
        report.add(place, f"{at}.{ways[1]}", f"{at} has {' and '.join(ways)}", "keep one of them")
    elif ways == ["python"]:
        _check_function(values, at, report)
    elif ways == ["http"]:
        check_http(values, at, report, is_right=len(report.problems) == before)
    elif ways == ["acp"]:
        check_acp(values, at, report)
    elif ways:
        if len(report.problems) == before:
            values = _with_preset(values)
            _Together(values, at, report).check()
        check_no_http(values, at, report)
        check_no_acp(values, at, report)
    return spec_of(name, values.by_key) if len(report.problems) == before else None


def _with_preset(values: Values) -> Values:
    """Return the values with those of the preset below them; what it says stands at its name."""
    preset = values.get("preset")
    if preset is None:
        return values
    known = preset_values(preset)
    place = values.nodes["preset"]
    nodes = {**dict.fromkeys(known, place), **values.nodes}
    return Values(merged(known, values.by_key), nodes, values.lines)


def _is_misspelt(report: Report, before: int) -> bool:
    """Return whether a problem already says which key was to be `command` or `python`."""
    cures = [problem.cure or "" for problem in report.problems[before:]]
    return any(f"'{way}'" in cure for cure in cures for way in WAYS)


def _check_function(values: Values, at: str, report: Report) -> None:
    for key in values.nodes:
        if key in OF_COMMANDS:
            message = f"{at}.{key}: `{key}` has no meaning beside `python`"
            report.add(values.nodes[key], f"{at}.{key}", message, "remove the key")


# --- placeholders -----------------------------------------------------------------------------

# Braces around a word; `{"a": 1}` in a command is what it looks like, JSON.
_PLACEHOLDER = r"\{([A-Za-z_][A-Za-z0-9_]*)\}"


# What is not known, or makes no sense, where a program is opened for a person or a model chosen.
_WITHOUT = {
    "interactive": frozenset(["prompt", "turn", "model", "options"]),
    "model": frozenset(["prompt", "options"]),
}


class _Together:
    """Checks that the keys of an entry fit together.

    Above all that each placeholder is known, and can be filled in when its command runs.
    """

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
        self._check_mcp()
        self._check_options()
        self._check_native_session()
        self._check_sums()
        if "read" in self.values.by_key and self.values.get("output", "text") == "text":
            self._refuse("read", "`read` needs structured output", "add `output: json` or jsonl")

    def _check_prompt(self) -> None:
        as_argument = self.values.get("prompt_by", "stdin") == PromptBy.ARGUMENT
        for key in ("command", "first", "interactive", "model"):
            words = self.values.get(key)
            if words is None:
                continue
            uses = "prompt" in self.used[key]
            if key in _WITHOUT:
                for name in sorted(_WITHOUT[key] & set(self.used[key])):
                    self._refuse(key, f"there is no {{{name}}} here", "remove the word")
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

    def _check_mcp(self) -> None:
        found = self.values.get("mcp", {})
        for text in (*found.get("words", ()), *found.get("env", {}).values()):
            for name in re.findall(_PLACEHOLDER, text):
                if name not in MCP_PLACEHOLDERS:
                    cure = near(name, sorted(MCP_PLACEHOLDERS)) or f"known are {_known_of_mcp()}"
                    self._refuse("mcp", f"no placeholder is called {{{name}}} here", cure)

    def _check_options(self) -> None:
        for key in ("command", "first"):
            count = self.used[key].count("options")
            if count > 1 or count != self.values.get(key, ()).count(OPTIONS):
                self._refuse(
                    key, "{options} stands for many words, in a word of its own, once", None
                )

    def _check_sums(self) -> None:
        for name, text in self.values.get("read", {}).items():
            if parse_path(text).sums and not name.startswith(("cost", "tokens")):
                self._refuse(
                    "read", f"{name}: only cost and tokens can be added up", "leave `sum of` out"
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
        learns = any(
            "native_session" in self.values.get(key, {}) for key in ("read", "read_stderr")
        )
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


def _known_of_mcp() -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(MCP_PLACEHOLDERS))


def _known() -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(PLACEHOLDERS))
