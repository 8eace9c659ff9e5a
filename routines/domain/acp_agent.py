"""What an entry with `acp:` says beside its words: what is approved, and how one logs in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The kinds of tool that the protocol knows.
TOOL_KINDS = (
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
)
# What may stand under `read` of such an entry: the protocol itself says all the rest.
ACP_READ_KEYS = frozenset(["cost", "cost_total", "tokens", "tokens_total"])
DEFAULT_ACP_READ: Mapping[str, str] = {"tokens": "usage.totalTokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSpec:
    """How an agent that speaks the Agent Client Protocol is answered.

    Attributes:
        kinds: Kinds of tool that are approved, once each time; all others are refused.
        titles: Exact titles of tools that are approved as well.
        authenticate: The method by which one logs in at the start of each turn, or None.
    """

    kinds: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    authenticate: str | None = None

    def approves(self, *, kind: str | None, title: str) -> bool:
        """Return whether a tool may be used."""
        return kind in self.kinds or title in self.titles

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is handed to a turn process."""
        return {
            "kinds": list(self.kinds),
            "titles": list(self.titles),
            "authenticate": self.authenticate,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AcpSpec":
        """Return what `to_json` wrote."""
        return cls(
            kinds=tuple(data["kinds"]),
            titles=tuple(data["titles"]),
            authenticate=data["authenticate"],
        )
