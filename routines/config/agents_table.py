"""The table `agents:` of routines.yaml: names, and an entry for each."""

import re
from dataclasses import dataclass
from typing import Any

from routines.config.report import Report, shown
from routines.config.tree import Mapping, Node, Unusable
from routines.config.walker import object_schema
from routines.domain.agent import AgentSpec
from routines.errors import InvalidName

ECHO_NAME = "echo"


def agent_name(text: str) -> str:
    """Return *text* if an agent may be called so, or raise `InvalidName`."""
    if not re.fullmatch(r"[\w.-]{1,100}", text):
        raise InvalidName(
            f"an agent can't be called {text[:40]!r}", hint="letters, digits, '-', '_' and '.'"
        )
    return text


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
        # Here and not above: most files have no entries, and what belongs to each way of driving
        # an agent is a fifth of what `list` imports.
        from routines.config.agent_entry import read_agent

        specs = {}
        for name, (place, entry) in node.entries.items():
            at = f"{key}.{shown(name)}"
            try:
                agent_name(name)
            except InvalidName as error:
                report.add(place, at, error.message, error.hint)
            if name == ECHO_NAME:
                report.add(place, at, "`echo` is there without an entry", "use another name")
            spec = read_agent(entry, name, at, report)
            if spec is not None:
                specs[name] = spec
        return specs

    def schema(self) -> dict[str, Any]:
        """Return the object whose values are entries."""
        from routines.config.agent_keys import AGENT_KEYS

        return {"type": "object", "additionalProperties": object_schema(AGENT_KEYS)}
