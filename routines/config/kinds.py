"""The kinds of value that both files share: zones, paths, commands, variables, targets."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from routines.config.files import absolute
from routines.config.mistakes import quoted
from routines.config.report import Report
from routines.config.single import Amount, Kind, Span, Text, Truth, Whole, Word
from routines.config.tree import Node
from routines.config.walker import AnyOf, Key, ListOf, Pairs, Table, Values, flow_word
from routines.domain import targets, zones
from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.limits import DayLimit
from routines.domain.retry import Retry
from routines.domain.targets import Target
from routines.errors import InvalidName

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SHELL_SIGNS = r"[|&;<>$*?`()]"


def zone_name(text: str) -> str:
    """Return *text* if it is an IANA zone, or raise `InvalidZone`."""
    zones.zone(text)
    return text


def variable_name(text: str) -> str:
    """Return *text* if an author may set a variable of that name, or raise `InvalidName`."""
    if not re.fullmatch(_VARIABLE, text):
        raise InvalidName(
            f"{text[:40]!r} is no name of a variable", hint="letters, digits and _, no digit first"
        )
    if text.upper().startswith("ROUTINES_"):
        raise InvalidName(
            f"{text} can't be set: ROUTINES_* tell a turn where it is", hint="use another name"
        )
    return text


def as_command(key: str, text: str) -> str:
    """Return how a command that was written as one text is written as a list of words."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if not words or re.search(_SHELL_SIGNS, text):
        return f"no shell is used; if you need one: {key}: [sh, -c, {quoted(text)}]"
    return f"{key}: [{', '.join(flow_word(word) for word in words)}]"


_COMMAND = ListOf(Text(expected="a word", empty=True), "words", least=1, cure=as_command)


@dataclass(frozen=True, slots=True)
class Command:
    """A list of words of which the first is a program."""

    words: Kind = _COMMAND

    @property
    def expected(self) -> str:
        """Return what a list of words is called."""
        return self.words.expected

    def read(self, node: Node, key: str, report: Report) -> tuple[str, ...] | None:
        """Return the words."""
        words: tuple[str, ...] | None = self.words.read(node, key, report)
        if words is not None and not words[0].strip():
            report.refuse(node, key, "the first word is the program, and it is empty")
            return None
        return words

    def schema(self) -> dict[str, Any]:
        """Return the array."""
        return self.words.schema()


WORDS = ListOf(Text(expected="a word", empty=True), "words", cure=as_command)
ENVIRONMENT = Pairs("variables with values, like {NAME: value}", name=variable_name)
ZONE = Text("an IANA time zone like Europe/Berlin", zone_name)
PATH = Text("a path", tilde=True)
MOMENT = timedelta(seconds=1)


def url(text: str) -> str:
    """Return *text* if it is a URL, or raise `InvalidName`."""
    if not targets.is_url(text):
        raise InvalidName("expected a URL", hint="like mailto://user:password@example.com")
    return text


def web_url(text: str) -> str:
    """Return *text* if it is an address of the web, or raise `InvalidName`."""
    if not targets.is_web_url(text):
        raise InvalidName("expected a web address", hint="like https://hc-ping.com/your-uuid")
    return text


_FILE = Key("file", PATH, "A file that it is added to; a folder gets one file a slot.")
_COMMAND_KEY = Key("command", Command(), "A command that gets the text on stdin.")
_URL = Key("url", Text("a URL", url), "Where apprise sends the text.")
_PING = Key("ping", Text("a web address", web_url), "Asked for after each slot that completed.")


@dataclass(frozen=True, slots=True)
class OneOf:
    """A mapping with exactly one of a few keys."""

    table: Table

    @property
    def expected(self) -> str:
        """Return `file, command or url, like {file: out/}`."""
        *most, last = [key.name for key in self.table.keys]
        return f"one of {', '.join(most)} and {last}"

    def read(self, node: Node, key: str, report: Report) -> dict[str, Any] | None:
        """Return the one value by its key."""
        values = self.table.read(node, key, report)
        if values is not None and len(values) != 1:
            report.refuse(node, key, f"expected {self.expected}", "make each an item of the list")
            return None
        return values

    def schema(self) -> dict[str, Any]:
        """Return the object."""
        return {**self.table.schema(), "minProperties": 1, "maxProperties": 1}


_DESKTOP = Word(("desktop",))
DELIVER = ListOf(
    AnyOf(_DESKTOP, OneOf(Table((_FILE, _COMMAND_KEY, _URL, _PING)))),
    "targets",
)
ALERT = ListOf(AnyOf(_DESKTOP, OneOf(Table((_FILE, _COMMAND_KEY, _URL)))), "targets")


def path_of(values: Values, key: str, root: str, report: Report) -> str | None:
    """Return the absolute path that *key* names, None if it names none or that can't be told."""
    text = values.get(key)
    if text is None:
        return None
    path = absolute(text, root)
    if path is None:
        report.refuse(values.nodes[key], key, "no user of that name has a home folder")
    return path


def targets_of(
    given: Sequence[str | dict[str, Any]] | None, key: str, node: Node, root: str, report: Report
) -> tuple[Target, ...] | None:
    """Return the targets that the value of *key* names; None if there is none."""
    if given is None:
        return None
    return tuple(
        target for one in given if (target := _target(one, key, node, root, report)) is not None
    )


def _target(
    one: str | dict[str, Any], key: str, node: Node, root: str, report: Report
) -> Target | None:
    if isinstance(one, str):
        return targets.DESKTOP
    if "command" in one:
        return targets.to_command(*one["command"])
    if "url" in one:
        return targets.to_url(one["url"])
    if "ping" in one:
        return targets.to_ping(one["ping"])
    path = absolute(one["file"], root)
    if path is None:
        report.refuse(node, key, "no user of that name has a home folder")
        return None
    # Written as a folder it is one, also while it is not there yet.
    ending = "/" if one["file"].endswith("/") else ""
    return targets.to_file(path.rstrip("/") + ending, shown=one["file"])


LIMITS = Table(
    (
        Key("turns_per_day", Whole(1), "The most turns a day."),
        Key("usd_per_day", Amount(), "The most that a day may cost, in US dollars."),
    )
)
RETRY = Table(
    (
        Key("attempts", Whole(1, 100), "How often a start is tried."),
        Key("first", Span(MOMENT), "The first wait."),
        Key("most", Span(MOMENT), "The longest wait."),
        Key("started", Truth(), "Also turns that ran and failed."),
        Key("then", Word(("park",)), "What becomes of it after the last attempt."),
    )
)


def day_limit(values: dict[str, Any] | None) -> DayLimit | None:
    """Return the limit that the values of `limits` make; None if nothing is limited."""
    if not values:
        return None
    return DayLimit(turns=values.get("turns_per_day"), usd=values.get("usd_per_day"))


def tells_cost(spec: AgentSpec | None) -> bool:
    """Return whether an agent can say what a turn cost; a function of yours may."""
    if spec is None or spec.kind is AgentKind.PYTHON:
        return True
    return spec.kind in {AgentKind.COMMAND, AgentKind.HTTP, AgentKind.ACP} and spec.tells_cost


def retry_of(values: dict[str, Any] | None) -> Retry:
    """Return the policy that the values of `retry` make; what is not said is as usual."""
    values = values or {}
    usual = Retry()
    first = values.get("first", usual.first)
    return Retry(
        attempts=values.get("attempts", usual.attempts),
        first=first,
        # A first pause longer than the usual longest one is meant, not a contradiction.
        most=values.get("most", max(usual.most, first)),
        started=values.get("started", False),
        park=values.get("then") == "park",
    )
