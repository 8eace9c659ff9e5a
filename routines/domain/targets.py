"""Where a reply or an alert goes, as a value; who hands it over is `engine.delivering`."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from routines.domain.outcome import one_line

# A URL of apprise carries its tokens anywhere; what is shown of it ends before them.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,39}://[^\s\x00-\x1f\x7f]+", re.ASCII)
_WEB = re.compile(r"https?://(?:[^/@?#]*@)?(?P<host>[^/?#]+)", re.ASCII)
_LONGEST_SHOWN = 60


class TargetKind(StrEnum):
    """How something is handed over."""

    DESKTOP = "desktop"
    FILE = "file"
    COMMAND = "command"
    URL = "url"
    PING = "ping"


@dataclass(frozen=True, slots=True)
class Target:
    """One place that a reply or an alert goes to.

    Attributes:
        kind: How.
        where: The absolute path, with a `/` at its end if it was written as a folder; the URL.
        words: The command.
        shown: What a person calls it. Never a secret: URLs hold tokens.
    """

    kind: TargetKind
    where: str = ""
    words: tuple[str, ...] = ()
    shown: str = ""

    @property
    def label(self) -> str:
        """What records and screens call it."""
        return one_line(self.shown or self.kind.value, most=_LONGEST_SHOWN)

    def to_json(self) -> dict[str, Any]:
        """Return the form in which a turn process gets it."""
        return {
            "kind": self.kind.value,
            "where": self.where,
            "words": list(self.words),
            "shown": self.shown,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Target":
        """Return the target that `to_json` wrote."""
        return cls(
            TargetKind(data["kind"]), str(data["where"]), tuple(data["words"]), str(data["shown"])
        )


DESKTOP = Target(TargetKind.DESKTOP, shown="desktop")


def to_file(path: str, *, shown: str = "") -> Target:
    """Return the target of an absolute *path*; one that ends in `/` is a folder."""
    return Target(TargetKind.FILE, where=path, shown=shown or path)


def to_command(*words: str) -> Target:
    """Return the target of a command, which gets the text on stdin."""
    return Target(TargetKind.COMMAND, words=words, shown=words[0].rpartition("/")[2] or words[0])


def to_url(url: str) -> Target:
    """Return the target of a URL of apprise."""
    return Target(TargetKind.URL, where=url, shown=f"{url.partition('://')[0]}://")


def to_ping(url: str) -> Target:
    """Return the target of a web address that is told of each slot that completed."""
    found = _WEB.match(url)
    return Target(TargetKind.PING, where=url, shown=f"ping {found['host'] if found else '?'}")


def is_url(text: str) -> bool:
    """Return whether *text* has the form of a URL."""
    return _URL.fullmatch(text) is not None


def is_web_url(text: str) -> bool:
    """Return whether *text* has the form of an http or https address."""
    return is_url(text) and _WEB.match(text) is not None
