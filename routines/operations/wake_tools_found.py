"""Which agents are handed the wake tools, and which have the command only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from routines.agents.handover import is_installed
from routines.config.workspace_file import WorkspaceSettings
from routines.domain.agent import AgentKind
from routines.domain.routine import Routine

HOW_TO_GET_IT = "pip install 'agent-routines[mcp]'"


@dataclass(frozen=True, slots=True)
class WakeToolsFound:
    """How the agents of a workspace have `wake`, by name.

    Attributes:
        taking: Those whose program takes an MCP server for one turn.
        others: Those that have the command only, whatever is installed.
        is_missing: Whether the extra is not installed that the server needs.
    """

    taking: tuple[str, ...]
    others: tuple[str, ...]
    is_missing: bool

    @property
    def lack(self) -> str | None:
        """What is missing, in words, where that makes a difference; None if nothing is."""
        if not self.is_missing or not self.taking:
            return None
        verb = "has" if len(self.taking) == 1 else "have"
        return f"the mcp extra is missing: {', '.join(self.taking)} {verb} the command only"

    def words(self) -> str:
        """Return who has the wake tools, and who the command."""
        if self.lack is not None:
            return self.lack
        handed = f"handed over to {', '.join(self.taking)}" if self.taking else ""
        command = f"the command only: {', '.join(self.others)}" if self.others else ""
        return "; ".join(part for part in (handed, command) if part) or "no agent needs them"

    def to_json(self) -> dict[str, Any]:
        """Return it as `check --json` shows it."""
        return {
            "handed_over": [] if self.is_missing else list(self.taking),
            "command_only": sorted([*(self.taking if self.is_missing else ()), *self.others]),
            "extra_missing": self.is_missing,
        }


def wake_tools_found(
    settings: WorkspaceSettings, routines: Mapping[str, Routine]
) -> WakeToolsFound:
    """Return which agents of the routines are handed the wake tools.

    What can't act by itself (`echo`, a function) has no use for tools and is named in neither list.
    """
    used = {one.agent or "" for one in routines.values() if one.enabled and one.wake_tools}
    taking: list[str] = []
    others: list[str] = []
    for name in sorted(used):
        spec = settings.spec_of(name) if name else None
        if spec is not None and spec.kind is AgentKind.ACP:
            # The protocol itself hands servers over.
            taking.append(name)
        if spec is not None and spec.kind is AgentKind.COMMAND:
            (others if spec.mcp is None else taking).append(name)
    return WakeToolsFound(tuple(taking), tuple(others), not is_installed())
