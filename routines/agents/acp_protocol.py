"""One turn in the Agent Client Protocol, version 1: JSON-RPC, a message a line.

Bytes come in, bytes go out; no process, clock or file. The official Python library was not taken:
it starts its agents by asyncio, whose transports end with their loop, reads lines of any length
into memory, and brings pydantic for the eight messages that a turn needs. Tests hold what is sent
here against its models.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from routines.agents.event_stream import JsonLines
from routines.agents.handover import WAKE_SERVER, McpServer
from routines.agents.output import Capture
from routines.agents.reading import Said, check_native_session, parse_json
from routines.domain.acp_agent import AcpSpec
from routines.domain.agent import AgentSpec
from routines.domain.outcome import Outcome, Reason, Warn, one_line
from routines.domain.output_path import parse_path

VERSION = 1
# How Gemini CLI titles the wake tools when it asks for leave.
WAKE_TITLES = tuple(f"{tool} ({WAKE_SERVER} MCP Server)" for tool in ("wake", "unwake", "wakeups"))
# Of JSON-RPC and of the protocol: what an error's number says.
_NO_SUCH_METHOD = -32601
_LOGIN_NEEDED = -32000
_NO_SUCH_RESOURCE = -32002
# The conversation itself, with at most its id between: what else was not found (an MCP server, a
# file of the agent's own) may be there again in a minute, and a conversation that was thrown away
# never is.
_SAYS_LOST = re.compile(
    r"""
      \b(?:session|conversation)(?:[ _-]?id)? (?:[ ]with[ ]id)? (?::?[ ][^ ,;]+)? :?
      [ ](?:was[ ]|is[ ])?not[ ]found\b
    | ^not[ ]found:?[ ](?:session|conversation)\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
# An agent asks a few times a turn. One that asks without end, and perhaps reads no answer, would
# fill the memory with them.
_MOST_REQUESTS = 10_000
# The answer says it again. A number or a UUID is far shorter; of megabytes it would fill the memory
# where the agent reads no answer.
_LONGEST_ID = 256
# More tools than a person would read about in a warning.
_MOST_DENIED = 20
_LONGEST_TOOL = 60
_LONGEST_ERROR = 4096

# How a turn ends, by the word with which the agent stops; what is not here is no end at all.
_STOPPED = {
    "max_tokens": "it stopped at its limit of tokens",
    "max_turn_requests": "it stopped at its limit of requests",
    "refusal": "it refused",
    "cancelled": "it says that the turn was cancelled",
}
_DONE = "end_turn"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the turn ended, as far as the protocol says.

    Attributes:
        outcome: The outcome; None if the agent provably did nothing.
        reason: Why, from the list of that outcome.
        detail: In words.
    """

    outcome: Outcome | None
    reason: Reason | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a turn asks of the agent.

    Attributes:
        prompt: What it is given.
        cwd: Where it works; absolute.
        native_session: The conversation that is taken up; None for a new one.
        servers: MCP servers that it is handed.
        own_tools: Exact titles under which it shows the tools of those servers; approved.
        version: Ours.
    """

    prompt: str
    cwd: str
    native_session: str | None
    servers: tuple[McpServer, ...] = ()
    own_tools: frozenset[str] = frozenset()
    version: str = ""


class Conversation:
    """What is said between us and the agent in one turn.

    Args:
        asked: What the turn asks.
        spec: The agent, with `acp`.
        mask: Takes secrets out of what becomes a warning.
        on_session: Told the id of the conversation as soon as it is known; answers None, or who
            else has that conversation: then the prompt is not given.

    Attributes:
        over: Whether all has been said.
        prompted: Whether the prompt was sent: from there on the turn has started.
        session: The id of the conversation, if it can be taken up again later.
        lasts: Whether the agent can take up a conversation later; None until it has said so.
        verdict: How it ended; None while it has not.
        phase: What an answer is awaited to.
        settles: Whether the prompt waits until the conversation has been played back.
        played: How much of it has been, in messages.
    """

    def __init__(
        self,
        asked: Asked,
        spec: AgentSpec,
        *,
        mask: Callable[[str], str],
        on_session: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.over = False
        self.prompted = False
        self.session: str | None = None
        self.lasts: bool | None = None
        self.verdict: Verdict | None = None
        self.phase = ""
        self.settles = False
        self.played = 0
        self._asked = asked
        self._spec = spec.acp or AcpSpec()
        self._signs = ((spec.busy, Reason.BUSY), (spec.not_started, Reason.NOT_STARTED))
        self._lost = spec.lost
        self._on_session = on_session
        self._mask = mask
        self._paths = {key: parse_path(path) for key, path in spec.read.items()}
        self._say: Callable[[bytes], None] = lambda _: None
        self._lines = JsonLines()
        self._current: str | None = None
        self._method = ""
        self._number = 0
        self._then: Callable[[dict[str, Any]], None] = lambda _: None
        self._requests = 0
        self._interrupted = False
        self._begun = False
        self._text = Capture()
        self._gap = False
        self._said = Said()
        self._denied: dict[str, int] = {}

    # What a program that carries it calls -------------------------------------------------------

    def begin(self, say: Callable[[bytes], None]) -> None:
        """Say the first word; *say* is given all that goes out."""
        self._say = say
        self._request(
            "initialize",
            {
                "protocolVersion": VERSION,
                "clientCapabilities": {
                    # It works on the files and in the shell of its own process; through us there
                    # is nothing more.
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                },
                "clientInfo": {
                    "name": "routines",
                    "title": "routines",
                    "version": self._asked.version,
                },
            },
            self._initialized,
        )

    def hear(self, data: bytes) -> None:
        """Take what the agent printed."""
        for event in self._lines.feed(data):
            message = None if self.over else parse_json(event.data)
            # Programs print notices on stdout, and people write programs: what is no message
            # says nothing here, and stands in stdout.log.
            if isinstance(message, dict):
                self._hear(message)

    def settle(self) -> None:
        """Give the prompt: nothing of the past comes any more."""
        if self.settles and not self.over:
            self.settles = False
            self._give_prompt()

    def interrupt(self) -> None:
        """Ask the agent to end the turn."""
        if self._interrupted or self.over:
            return
        self._interrupted = True
        if self.prompted and self._current is not None:
            self._send({"method": "session/cancel", "params": {"sessionId": self._current}})
        else:
            self.over = True

    # What came of it ----------------------------------------------------------------------------

    def reply(self) -> tuple[str, tuple[str, ...]]:
        """Return what the agent said, and warnings about it."""
        warnings = []
        if self._denied:
            tools = [n if c == 1 else f"{n} x{c}" for n, c in self._denied.items()]
            more = len(tools) - _MOST_DENIED
            shown = ", ".join(tools[:_MOST_DENIED]) + (f" and {more} more" if more > 0 else "")
            warnings.append(f"{Warn.DENIED}: {shown}")
        if self._text.dropped or self._lines.too_long:
            warnings.append(Warn.TRUNCATED.value)
        return self._text.text(), tuple(warnings)

    @property
    def said(self) -> Said:
        """What it said of cost and tokens."""
        return self._said

    # Messages -----------------------------------------------------------------------------------

    def _hear(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if isinstance(method, str):
            if "id" in message:
                self._answer(number, method, params)
            elif method == "session/update":
                self._update(params)
        elif number == self._number and not isinstance(number, bool):
            self._answered(message)

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
        self._say(line.encode("utf-8", "replace") + b"\n")

    def _request(
        self, method: str, params: dict[str, Any], then: Callable[[dict[str, Any]], None]
    ) -> None:
        self._number += 1
        self.phase, self._then = method, then
        self._send({"id": self._number, "method": method, "params": params})

    def _answered(self, message: dict[str, Any]) -> None:
        # One answer to each request: another under its number is nothing.
        self._number += 1
        if "error" in message:
            self._failed(message["error"])
            return
        result = message.get("result")
        self._then(result if isinstance(result, dict) else {})

    def _end(self, outcome: Outcome | None, reason: Reason | None, detail: str = "") -> None:
        self.verdict = Verdict(outcome, reason, one_line(detail))
        self.over = True

    # The way there ------------------------------------------------------------------------------

    def _initialized(self, result: dict[str, Any]) -> None:
        version = result.get("protocolVersion")
        if version != VERSION:
            said = one_line(json.dumps(version), most=40)
            detail = f"it speaks version {said} of the protocol, and routines speaks {VERSION}"
            self._end(Outcome.FAILED, Reason.AGENT, detail)
            return
        able = _dict(result.get("agentCapabilities"))
        loads = able.get("loadSession") is True
        # Resuming says nothing of the past again; loading plays it back.
        resumes = isinstance(_dict(able.get("sessionCapabilities")).get("resume"), dict)
        self.lasts = loads or resumes
        self._method = "session/resume" if resumes else "session/load"
        if self._spec.authenticate is None:
            self._open_session({})
        else:
            login = {"methodId": self._spec.authenticate}
            self._request("authenticate", login, self._open_session)

    def _open_session(self, _result: dict[str, Any]) -> None:
        place = {
            "cwd": self._asked.cwd,
            "mcpServers": [_handed(server) for server in self._asked.servers],
        }
        known = self._asked.native_session
        if known is None:
            self._request("session/new", place, self._opened)
        elif self.lasts:
            self._current = known
            self._request(self._method, {"sessionId": known, **place}, self._taken_up)
        else:
            self._end(None, Reason.SESSION_LOST, "it can't take up a conversation again")

    def _opened(self, result: dict[str, Any]) -> None:
        session = check_native_session(result.get("sessionId"))
        if session is None:
            self._end(Outcome.FAILED, Reason.BAD_OUTPUT, "session/new gave no id that can be used")
            return
        self._current = session
        self._taken_up({})

    def _taken_up(self, _result: dict[str, Any]) -> None:
        if self.lasts:
            # Their turn may be at work in it just now.
            theirs = self._on_session(str(self._current))
            if theirs is not None:
                detail = f"the conversation {self._current} is that of {theirs}"
                self._end(Outcome.FAILED, Reason.SESSION_CHANGED, detail)
                return
            self.session = self._current
        self.settles = self.phase == "session/load"
        if not self.settles:
            self._give_prompt()

    def _give_prompt(self) -> None:
        # From here on: whatever happens, it may have begun.
        self.prompted = True
        text = {"type": "text", "text": self._asked.prompt}
        prompt = {"sessionId": self._current, "prompt": [text]}
        self._request("session/prompt", prompt, self._stopped)

    def _stopped(self, result: dict[str, Any]) -> None:
        self._said.take(result, self._paths)
        reason = result.get("stopReason")
        if reason == _DONE:
            self._end(Outcome.COMPLETED, None)
        elif isinstance(reason, str) and reason in _STOPPED:
            self._end(Outcome.FAILED, Reason.AGENT, _STOPPED[reason])
        else:
            said = one_line(json.dumps(reason), most=40)
            self._end(
                Outcome.FAILED, Reason.BAD_OUTPUT, f"it stopped for an unknown reason: {said}"
            )

    def _failed(self, error: Any) -> None:
        error = _dict(error)
        words, text = _words_of(error)
        detail = f"{self.phase}: {words}"
        if not self._begun:
            for signs, reason in self._signs:
                if any(sign in text for sign in signs.error):
                    self._end(None, reason, detail)
                    return
        if self.prompted:
            self._end(Outcome.FAILED, Reason.AGENT, detail)
        elif error.get("code") == _LOGIN_NEEDED:
            self._end(Outcome.FAILED, Reason.AGENT, f"it wants to be logged in: {words}")
        elif self.phase not in {"session/load", "session/resume"}:
            self._end(Outcome.FAILED, Reason.AGENT, detail)
        elif self._says_lost(error, text):
            self._end(None, Reason.SESSION_LOST, words)
        else:
            # It did nothing yet, and why it could not may heal; to begin anew would lose what was.
            self._end(None, Reason.NOT_STARTED, detail)

    def _says_lost(self, error: dict[str, Any], text: str) -> bool:
        if error.get("code") == _NO_SUCH_RESOURCE or _SAYS_LOST.search(text):
            return True
        return any(sign in text for sign in self._lost.error)

    # What the agent asks ------------------------------------------------------------------------

    def _answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        if not isinstance(number, int | str) or isinstance(number, bool):
            return
        self._requests += 1
        if self._requests > _MOST_REQUESTS:
            self._end(Outcome.FAILED, Reason.BAD_OUTPUT, "it asks without end")
            return
        if len(str(number)) > _LONGEST_ID:
            self._end(Outcome.FAILED, Reason.BAD_OUTPUT, "it asks under an id without end")
            return
        if method == "session/request_permission":
            self._send({"id": number, "result": {"outcome": self._decide(params)}})
            return
        message = f"routines has no {method[:100]}"
        self._send({"id": number, "error": {"code": _NO_SUCH_METHOD, "message": message}})

    def _decide(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._interrupted or params.get("sessionId") != self._current:
            return {"outcome": "cancelled"}
        self._begun = True
        call = _dict(params.get("toolCall"))
        kind, title = call.get("kind"), call.get("title")
        kind = kind if isinstance(kind, str) else None
        title = title if isinstance(title, str) else ""
        # What a shell is to run may be titled by its words: only a tool of a server is ours.
        is_ours = title in self._asked.own_tools and kind in (None, "other")
        approved = is_ours or self._spec.approves(kind=kind, title=title)
        # Once: what is allowed for ever outlives the entry that allowed it.
        wanted = "allow_once" if approved else "reject_once"
        options = params.get("options")
        found = _option(options if isinstance(options, list) else [], wanted)
        if not approved or found is None:
            # Masked before the cut: the head of a secret is known to no masker.
            words = (one_line(self._mask(one), most=_LONGEST_TOOL) for one in (title, kind or ""))
            name = next(filter(None, words), "a tool")
            self._denied[name] = self._denied.get(name, 0) + 1
        if found is None:
            return {"outcome": "cancelled"}
        return {"outcome": "selected", "optionId": found}

    def _update(self, params: dict[str, Any]) -> None:
        if params.get("sessionId") != self._current:
            return
        if not self.prompted:
            # What was said before, and is played back.
            self.played += 1
            return
        update = _dict(params.get("update"))
        kind = update.get("sessionUpdate")
        self._said.take(update, self._paths)
        if kind == "agent_message_chunk":
            self._begun = True
            content = _dict(update.get("content"))
            text = content.get("text")
            if content.get("type") == "text" and isinstance(text, str):
                self._add(text)
        elif kind in ("tool_call", "tool_call_update"):
            self._begun = True
            self._gap = True
        elif kind == "agent_thought_chunk":
            self._begun = True

    def _add(self, text: str) -> None:
        if self._gap and self._text.total:
            self._text.feed(b"\n\n")
        self._gap = False
        self._text.feed(text.encode("utf-8", "replace"))


def _handed(server: McpServer) -> dict[str, Any]:
    """Return the form that the protocol has for a server: `mcpServers` of `session/new`."""
    return {
        "name": server.name,
        "command": server.command,
        "args": list(server.args),
        "env": [{"name": name, "value": value} for name, value in server.env.items()],
    }


def _option(options: Sequence[Any], kind: str) -> str | None:
    for one in options:
        found = _dict(one)
        if found.get("kind") == kind and isinstance(found.get("optionId"), str):
            return str(found["optionId"])
    return None


def _words_of(error: dict[str, Any]) -> tuple[str, str]:
    """Return what an error says in one line, and all of its text for signs to be looked for."""
    message = error.get("message")
    message = message if isinstance(message, str) else "an error without words"
    data = error.get("data")
    more = ""
    if isinstance(data, str):
        more = data
    elif isinstance(data, dict | list):
        more = json.dumps(data, ensure_ascii=False)
    details = _dict(data).get("details")
    shown = details if isinstance(details, str) else more
    words = one_line(f"{message}: {shown}" if shown else message)
    return words, f"{message}\n{more}"[:_LONGEST_ERROR]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
