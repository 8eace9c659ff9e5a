"""The keys of an entry with `http:`, and what is wrong between them."""

import re
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from routines.config.report import Report, near, shown
from routines.config.single import Span, Text, Whole
from routines.config.tree import Mapping, Node, Scalar, Sequence, Unusable
from routines.config.walker import Key, ListOf, Pairs, Table, Values
from routines.domain.agent import OutputFormat
from routines.domain.durable import RunWord
from routines.domain.http_agent import (
    BODY_PLACEHOLDERS,
    CONNECT,
    DEFAULT_BODY,
    DEFAULT_READ,
    Events,
    HttpDurable,
    HttpSigns,
    HttpSpec,
    variables_of,
)
from routines.domain.output_path import parse_path
from routines.errors import InvalidName

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Ours, or HTTP's own: another value would break the request, or what it promises.
_OWN_HEADERS = frozenset(
    [
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "idempotency-key",
        "transfer-encoding",
    ]
)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_WORDS = {"true": True, "false": False, "null": None}
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOMENT = timedelta(seconds=1)
_HIGHEST_STATUS, _FIRST_ERROR = 599, 400


def address(text: str) -> str:
    """Return *text* if a turn can be posted there, or raise `InvalidName`."""
    parts = _parts(text)
    if parts is None or not text.isprintable() or " " in text:
        raise InvalidName(
            "expected an address of http or https", hint="like http://127.0.0.1:8080/invoke"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidName(
            "a password in an address ends up in logs",
            hint="headers: {Authorization: 'Bearer {env:NAME_OF_A_VARIABLE}'}",
        )
    if parts.fragment:
        raise InvalidName("what stands behind # is never sent", hint="remove it")
    return text


def _parts(text: str) -> "SplitResult | None":
    # Here and not above: each command reads the tables of these keys, and few files have one.
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _run_address(text: str) -> str:
    """Return *text* if a run can be asked about there, or raise `InvalidName`."""
    if text.count("{run}") != 1:
        raise InvalidName(
            "expected {run} in it, once", hint="like http://127.0.0.1:8080/runs/{run}"
        )
    address(text.replace("{run}", "x"))
    asked, bare = _parts(text.replace("{run}", "x")), _parts(text)
    if asked is None or not asked.path.strip("/") or bare is None or "{run}" in bare.netloc:
        raise InvalidName("expected {run} in the path", hint="like .../runs/{run}")
    return text


def _header_name(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise InvalidName(f"{shown(text)} is no name of a header", hint="letters, digits and '-'")
    if text.lower() in _OWN_HEADERS:
        raise InvalidName(f"the header {text} is not yours to set", hint="remove it")
    return text


def _header_value(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise InvalidName("a header holds one line of ASCII")
    left = text
    for name in variables_of(text):
        left = left.replace(f"{{env:{name}}}", "")
    if "{" in left or "}" in left:
        raise InvalidName(
            "only {env:NAME} is filled in here", hint="NAME is a variable of the turn"
        )
    return text


def _path(text: str) -> str:
    parse_path(text)
    return text


@dataclass(frozen=True, slots=True)
class Json:
    """Keys and values of any depth that become JSON, with placeholders as texts of their own.

    What stands in quotes is text; `true`, `false`, `null` and numbers without quotes are what
    they look like, since a server is particular about it.
    """

    expected: str = 'keys and values, like {session: "{session}", text: "{prompt}"}'

    def read(self, node: Node, key: str, report: Report) -> dict[str, Any] | None:
        """Return the object."""
        if isinstance(node, Unusable):
            return None
        if not isinstance(node, Mapping):
            report.refuse(node, key, f"expected {self.expected}")
            return None
        before = len(report.problems)
        made = self._value(node, key, report)
        return made if len(report.problems) == before else None

    def _value(self, node: Node, key: str, report: Report) -> Any:
        if isinstance(node, Mapping):
            return {
                name: self._value(inner, f"{key}.{shown(name)}", report)
                for name, (_, inner) in node.entries.items()
            }
        if isinstance(node, Sequence):
            return [self._value(item, key, report) for item in node.items]
        return self._scalar(node, key, report) if isinstance(node, Scalar) else None

    def _scalar(self, node: Scalar, key: str, report: Report) -> Any:
        text = node.text
        if node.plain and (text in _WORDS or not text):
            return _WORDS.get(text)
        if node.plain and _NUMBER.fullmatch(text):
            return float(text) if "." in text else int(text)
        for name in _BRACED.findall(text):
            if name not in BODY_PLACEHOLDERS:
                cure = near(name, sorted(BODY_PLACEHOLDERS)) or f"known are {_known()}"
                report.add(node, key, f"{key}: no placeholder is called {{{name}}}", cure)
            elif text != f"{{{name}}}":
                report.add(
                    node,
                    key,
                    f"{key}: {{{name}}} stands within a text, and is filled in alone",
                    f'give it a key of its own, like {name}: "{{{name}}}"',
                )
        return text

    def schema(self) -> dict[str, Any]:
        """Return the object."""
        return {"type": "object"}


def _known() -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(BODY_PLACEHOLDERS))


_PATH_VALUE = Text("a dotted path", _path)
_TURN_KEYS = (
    Key("body", Json(), "The JSON that is posted.", "{session, prompt, turn, model}"),
    Key(
        "headers",
        Pairs(
            "headers with values, like {Authorization: 'Bearer {env:TOKEN}'}",
            name=_header_name,
            value=Text("a value", _header_value, empty=True),
        ),
        "Headers of each request; {env:NAME} is a variable of the turn.",
    ),
    Key(
        "events",
        Table(
            (
                Key("name", _PATH_VALUE, "Where an event's data says what it is."),
                Key(
                    "text",
                    Pairs("paths of pieces, like {delta: text}", value=_PATH_VALUE),
                    "Pieces of the reply: the path of the piece, by the event's name.",
                ),
                Key(
                    "end",
                    ListOf(Text("the name of an event"), "names of events", alone=True),
                    "The events that end a turn well.",
                ),
                Key(
                    "failed",
                    Pairs("paths of words, like {error: message}", value=_PATH_VALUE),
                    "Events that end it badly: the path of the words, by name.",
                ),
            )
        ),
        "How a stream of events is read.",
    ),
    Key(
        "waits",
        Table(
            (
                Key("connect", Span(_MOMENT), "How long a connection may take.", "10s"),
                Key("silence", Span(_MOMENT), "How long nothing may come."),
            )
        ),
        "Time limits of a request, beside the routine's timeout.",
    ),
)
# Further keys of `busy`, `not_started` and `lost`.
HTTP_SIGNS = (
    Key(
        "status",
        ListOf(
            Whole(_FIRST_ERROR, _HIGHEST_STATUS),
            "HTTP statuses",
            cure=lambda _, text: f"status: [{text}]",
        ),
        "For `http`: HTTP statuses that mean it.",
    ),
    Key(
        "when",
        Pairs("values by path, like {ran: 'false'}", name=_path, value=Text("a value")),
        "For `http`: values at paths of the answer that mean it.",
    ),
)
_DURABLE_KEY = Key(
    "durable",
    Table(
        (
            Key("inspect", Text("an address", _run_address), "Where a run is asked about."),
            Key("cancel", Text("an address", _run_address), "Where a run is told to end."),
            Key("run", _PATH_VALUE, "Where the answer to a start has the run's id.", "id"),
            Key("state", _PATH_VALUE, "Where the answer about a run has its state.", "state"),
            Key(
                "words",
                Table(
                    tuple(
                        Key(word, ListOf(Text("a word"), "words", alone=True), f"That mean {word}.")
                        for word in RunWord
                    )
                ),
                "The server's words for a state, by what they mean.",
            ),
            Key("detail", _PATH_VALUE, "Where the answer has what went wrong."),
            Key("waiting", Table(HTTP_SIGNS), "How a start says that a person has to approve."),
        )
    ),
    "The server's runs outlive a turn: how they are followed.",
)
HTTP_KEYS = (*_TURN_KEYS, _DURABLE_KEY)
# What may stand beside `http`, and what may stand beside nothing else.
_FOR_HTTP = ("http", "output", "read", "busy", "not_started", "lost", "env")
_ONLY_FOR_HTTP = tuple(key.name for key in HTTP_KEYS)
_SIGNS = ("busy", "not_started", "lost")
_SIGNS_OF_HTTP = tuple(key.name for key in HTTP_SIGNS)


def check_http(values: Values, at: str, report: Report, *, is_right: bool) -> None:
    """Report what does not go together in an entry with `http:`.

    Args:
        values: Of the entry.
        at: Where it stands.
        report: Where problems go.
        is_right: Whether each key is right by itself; else only what is wrong whatever the others
            say is reported.
    """
    refused = _Refused(values, at, report)
    for key in values.nodes:
        if key not in _FOR_HTTP + _ONLY_FOR_HTTP:
            cure = 'write model: "{model}" into `body`' if key == "model" else "remove the key"
            refused(key, f"`{key}` has no meaning beside `http`", cure)
    for sign in _SIGNS:
        for key in values.get(sign, {}):
            if key not in _SIGNS_OF_HTTP:
                refused(sign, f"a server has no `{key}`", "use `status` and `when`")
    if is_right:
        _check_together(values, refused)


def _check_together(values: Values, refused: "_Refused") -> None:
    output = values.get("output", OutputFormat.JSON)
    streams = output in {OutputFormat.EVENTS, OutputFormat.JSONL}
    if "events" in values.nodes and not streams:
        refused("events", "`events` needs a stream", "add `output: events` or jsonl")
    if "read" in values.by_key and output == OutputFormat.TEXT:
        refused("read", "`read` needs structured output", "remove `output: text`")
    body = HttpSpec(url="", body=values.get("body", DEFAULT_BODY))
    if not body.uses("prompt"):
        refused("body", "nothing in `body` carries the prompt", 'add prompt: "{prompt}"')
    if body.uses("native_session") and "native_session" not in values.get("read", {}):
        refused(
            "body",
            "nothing says what {native_session} is",
            "name its place under `read: {native_session: ..}`",
        )
    _check_tells_reply(values, streams=streams, refused=refused)
    if "durable" in values.nodes:
        _check_durable(values, refused)


def _check_tells_reply(values: Values, *, streams: bool, refused: "_Refused") -> None:
    if not streams or "reply" in values.get("read", {}):
        return
    if not values.get("events", {}).get("text"):
        refused(
            "output",
            "nothing says where the reply is",
            "add `events: {text: {NAME: path}}`, or `read: {reply: path}`",
        )


def _check_durable(values: Values, refused: "_Refused") -> None:
    durable = values.get("durable", {})
    for key in ("inspect", "cancel"):
        if key not in durable:
            refused("durable", f"`{key}` is missing", f"{key}: http://.../runs/{{run}}")
    if values.get("output", OutputFormat.JSON) != OutputFormat.JSON:
        refused("output", "the answers about a run are JSON", "remove `output`")
    if "lost" in values.nodes:
        refused("lost", "`lost` has no meaning beside `durable`", "remove the key")


def check_no_http(values: Values, at: str, report: Report) -> None:
    """Report keys of `http` in an entry without it."""
    refused = _Refused(values, at, report)
    for key in _ONLY_FOR_HTTP:
        if key in values.nodes:
            refused(key, f"`{key}` has a meaning beside `http` alone", "remove the key")
    for sign in _SIGNS:
        for key in _SIGNS_OF_HTTP:
            if key in values.get(sign, {}):
                refused(sign, f"a command has no `{key}`", "use `exit`, `stderr` and `error`")
    if values.get("output") == OutputFormat.EVENTS:
        refused("output", "`events` has a meaning beside `http` alone", "use jsonl")


@dataclass(frozen=True, slots=True)
class _Refused:
    values: Values
    at: str
    report: Report

    def __call__(self, key: str, message: str, cure: str) -> None:
        node = self.values.nodes.get(key) or self.values.nodes["http"]
        self.report.add(node, f"{self.at}.{key}", f"{self.at}.{key}: {message}", cure)


def http_spec(given: Dict[str, Any]) -> HttpSpec:
    """Return how the server of an entry is asked, from its values by key."""
    events, waits = given.get("events", {}), given.get("waits", {})
    return HttpSpec(
        url=given["http"],
        body=given.get("body", dict(DEFAULT_BODY)),
        headers=tuple(given.get("headers", {}).items()),
        events=Events(
            name=events.get("name"),
            text=events.get("text", {}),
            end=tuple(events.get("end", ())),
            failed=events.get("failed", {}),
        ),
        busy=_signs(given, "busy"),
        not_started=_signs(given, "not_started"),
        lost=_signs(given, "lost"),
        connect=waits.get("connect", CONNECT),
        silence=waits.get("silence"),
        durable=_durable(given.get("durable")),
    )


def _durable(given: Dict[str, Any] | None) -> HttpDurable | None:
    if given is None:
        return None
    words = given.get("words", {})
    plain = {
        key: given[key] for key in ("inspect", "cancel", "run", "state", "detail") if key in given
    }
    return HttpDurable(
        words={theirs: str(ours) for ours, some in words.items() for theirs in some},
        waiting=_signs(given, "waiting"),
        **plain,
    )


def _signs(given: Dict[str, Any], key: str) -> HttpSigns:
    signs = given.get(key, {})
    return HttpSigns(status=signs.get("status"), when=tuple(signs.get("when", {}).items()))


def http_read(given: Dict[str, Any]) -> Dict[str, str]:
    """Return the paths into the answer; without any, a reply of a server of one's own."""
    output = given.get("output", OutputFormat.JSON)
    found: Dict[str, str] = given.get("read", DEFAULT_READ if output == OutputFormat.JSON else {})
    return found
