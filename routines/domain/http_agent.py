"""What an entry with `http:` says: one POST of JSON a turn, and how the answer is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

# The only placeholders of a body; each is a text of its own, never a part of one.
BODY_PLACEHOLDERS = frozenset(
    ["session", "session_uuid", "native_session", "prompt", "turn", "model", "routine"]
)
# For a server of one's own: what it does not need it ignores, what is not known is left out.
DEFAULT_BODY: Mapping[str, Any] = {
    "session": "{session}",
    "prompt": "{prompt}",
    "turn": "{turn}",
    "model": "{model}",
}
DEFAULT_READ: Mapping[str, str] = {"reply": "reply"}
# Statuses that mean busy if the body says so with one of `BUSY_CODES`. Without it they may as
# well mean that a key was used twice (409), a locked file (423) or a spent quota (429).
BUSY_STATUSES = (409, 423, 429)
# What is compared with them: letters in lower case, `-`, `.` and spaces as `_`.
BUSY_CODES = frozenset(["session_busy", "conversation_busy", "thread_busy", "busy"])
# Where a server's error has its code, whichever is a text.
BUSY_PATHS = ("code", "error.code", "error", "error.type", "reason", "type", "detail.code")

# A name is looked up and a connection made within milliseconds; ten seconds is a bad network,
# and longer is one that is not there.
CONNECT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSigns:
    """How a server says one particular thing; all that is listed must be so.

    Attributes:
        status: One of these statuses; None for any.
        when: Paths into the answer (or an event), and the value that each must have.
    """

    status: tuple[int, ...] | None = None
    when: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is listed."""
        return self.status is not None or bool(self.when)

    def to_json(self) -> dict[str, Any]:
        """Return the form in which they are handed on."""
        status = None if self.status is None else list(self.status)
        return {"status": status, "when": [list(pair) for pair in self.when]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "HttpSigns":
        """Return what `to_json` wrote."""
        status = data["status"]
        return cls(
            status=None if status is None else tuple(status),
            when=tuple((path, value) for path, value in data["when"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """How a stream of events is read (`output: events` or `jsonl`).

    Attributes:
        name: The path at which an event's data says what it is; None for the `event:` line.
        text: Pieces of the reply: the path of the piece, by the event's name.
        end: The names that end a turn well; empty: the end of the stream does.
        failed: Events that end it badly: the path of the words, by name.
    """

    name: str | None = None
    text: Mapping[str, str] = field(default_factory=dict)
    end: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpDurable:
    """How a run that outlives its turn is followed; `HttpSpec.url` is where it is started.

    Attributes:
        inspect: Where it is asked about, `{run}` for its id.
        cancel: Where it is told to end, likewise.
        run: The path of its id in the answer to its start.
        state: The path of its state in the answer about it.
        words: What the server's words for a state mean: words of `domain.durable.RunWord`. One
            that is not among them means itself, and what is no such word means `active`.
        detail: The path of the words for what went wrong, or None.
        waiting: A person has to approve of it first, nothing has started.
    """

    inspect: str
    cancel: str
    run: str = "id"
    state: str = "state"
    words: Mapping[str, str] = field(default_factory=dict)
    detail: str | None = None
    waiting: HttpSigns = HttpSigns()

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is handed to a turn process."""
        return {
            "inspect": self.inspect,
            "cancel": self.cancel,
            "run": self.run,
            "state": self.state,
            "words": dict(self.words),
            "detail": self.detail,
            "waiting": self.waiting.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "HttpDurable":
        """Return what `to_json` wrote."""
        return cls(**{**data, "waiting": HttpSigns.from_json(data["waiting"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSpec:
    """How a turn is put to an agent behind HTTP.

    Attributes:
        url: Where the turn is posted.
        body: The JSON, texts in braces filled in; what is not known is left out with its key.
        headers: Names with values; `{env:NAME}` in a value is a variable of the turn.
        events: How a stream is read.
        busy: The conversation is in use, nothing was done; without any the usual statuses with
            a code in the body.
        not_started: Nothing was done, and that may heal.
        lost: The conversation is gone, nothing was done.
        connect: How long a connection may take.
        silence: How long nothing may come; None for as long as the turn may take.
        durable: How its runs are followed that outlive a turn; None where there are none.
    """

    url: str
    body: Any = field(default_factory=lambda: dict(DEFAULT_BODY))
    headers: tuple[tuple[str, str], ...] = ()
    events: Events = Events()
    busy: HttpSigns = HttpSigns()
    not_started: HttpSigns = HttpSigns()
    lost: HttpSigns = HttpSigns()
    connect: timedelta = CONNECT
    silence: timedelta | None = None
    durable: HttpDurable | None = None

    @property
    def shown(self) -> str:
        """The address as it may be shown: what stands behind `?` may well be a key."""
        return self.url.partition("?")[0]

    def uses(self, placeholder: str) -> bool:
        """Return whether the body has this placeholder."""
        return f"{{{placeholder}}}" in _texts(self.body)

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is handed to a turn process."""
        return {
            "url": self.url,
            "body": self.body,
            "headers": [list(pair) for pair in self.headers],
            "events": {
                "name": self.events.name,
                "text": dict(self.events.text),
                "end": list(self.events.end),
                "failed": dict(self.events.failed),
            },
            "busy": self.busy.to_json(),
            "not_started": self.not_started.to_json(),
            "lost": self.lost.to_json(),
            "connect_s": self.connect.total_seconds(),
            "silence_s": None if self.silence is None else self.silence.total_seconds(),
            "durable": None if self.durable is None else self.durable.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "HttpSpec":
        """Return what `to_json` wrote."""
        events, silence, durable = data["events"], data["silence_s"], data["durable"]
        return cls(
            url=data["url"],
            body=data["body"],
            headers=tuple((name, value) for name, value in data["headers"]),
            events=Events(
                name=events["name"],
                text=dict(events["text"]),
                end=tuple(events["end"]),
                failed=dict(events["failed"]),
            ),
            busy=HttpSigns.from_json(data["busy"]),
            not_started=HttpSigns.from_json(data["not_started"]),
            lost=HttpSigns.from_json(data["lost"]),
            connect=timedelta(seconds=data["connect_s"]),
            silence=None if silence is None else timedelta(seconds=silence),
            durable=None if durable is None else HttpDurable.from_json(durable),
        )


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


_NOT_KNOWN: Any = object()


def fill_body(body: Any, values: Mapping[str, str | None]) -> Any:
    """Return *body* with its placeholders filled in, one pass over each.

    What was filled in is never looked at again, so a prompt may be "{session}". A key whose
    value is not known (no model is set, no id yet) is left out, and so is an item of a list.
    """
    filled = _fill(body, values)
    return {} if filled is _NOT_KNOWN else filled


def _fill(value: Any, values: Mapping[str, str | None]) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _fill(inner, values)) for key, inner in value.items())
        return {key: inner for key, inner in pairs if inner is not _NOT_KNOWN}
    if isinstance(value, list):
        return [inner for item in value if (inner := _fill(item, values)) is not _NOT_KNOWN]
    if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}":
        name = value[1:-1]
        if name in BODY_PLACEHOLDERS:
            found = values.get(name)
            return _NOT_KNOWN if found is None else found
    return value


# Headers ----------------------------------------------------------------------------------------

_FROM_ENV = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
# What a header's value may hold: visible ASCII, spaces and tabs. A line end would begin another.
_VALUE = re.compile(r"[\t\x20-\x7e]*")


class UnusableHeader(Exception):
    """A header that can't be sent, in words that show no value."""


def variables_of(value: str) -> list[str]:
    """Return the names of the variables that a header's value is made of."""
    return _FROM_ENV.findall(value)


def header_values(http: HttpSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with their variables filled in.

    Raises:
        UnusableHeader: A variable is not set, or its value can't stand in a header.
    """
    filled = {}
    for name, template in http.headers:
        for variable in variables_of(template):
            if not env.get(variable):
                raise UnusableHeader(f"header {name}: the variable {variable} is not set")
        value = _FROM_ENV.sub(lambda found: env[found[1]].strip(), template)
        if not _VALUE.fullmatch(value):
            raise UnusableHeader(f"header {name}: its value holds what no header may hold")
        filled[name] = value
    return filled


def header_secrets(http: HttpSpec, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what of the headers must never be shown.

    That is all that comes from a variable, and whatever stands in a header whose name speaks of
    a secret.
    """
    # Here and not above: `list` loads this module with the routines, and masks nothing.
    from routines.domain.masking import speaks_of_secret

    found: set[str] = set()
    for name, template in http.headers:
        found.update(env.get(variable, "").strip() for variable in variables_of(template))
        if speaks_of_secret(name):
            found.add(_FROM_ENV.sub(lambda match: env.get(match[1], ""), template).strip())
    return tuple(found - {""})
