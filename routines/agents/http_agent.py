"""Running an agent behind HTTP: one POST of JSON a turn, its answer read within bounds.

What was never sent never started. Once the request is on its way the turn counts as started,
whatever the server says; an answer that is lost then is `interrupted: outcome-unknown`, and
nothing is sent again.
"""

import codecs
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any

from routines.agents.base import (
    AgentUnavailable,
    BadOutput,
    OutcomeUnknown,
    Reply,
    SessionBusy,
    SessionChanged,
    SessionLost,
    Turn,
    TurnFailed,
    TurnResult,
)
from routines.agents.calling import run_call
from routines.agents.event_stream import Event, JsonLines, ServerSentEvents
from routines.agents.http_messages import (
    encode_body,
    first_text,
    request_headers,
    says,
    says_busy,
    text_at,
    words_of,
)
from routines.agents.output import Lines, open_captures
from routines.agents.reading import LARGEST_JSON, Said, parse_json
from routines.agents.trees import STOP_INTERVAL_S
from routines.domain.agent import AgentSpec, OutputFormat
from routines.domain.clock import Clock
from routines.domain.http_agent import (
    HttpSpec,
    fill_body,
)
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason, Warn, one_line
from routines.domain.output_path import MISSING, OutputPath, parse_path

# A server says in a few words why it refuses; a page of HTML is cut here.
_LARGEST_REFUSAL = 256 * 1024
_FIRST_GOOD, _FIRST_OTHER = 200, 300
_DID_NOT_RUN = "it says that it did not run"
NO_EXTRA = "needs httpx, which is not installed: pip install 'agent-routines[http]'"
_ACCEPT = {
    OutputFormat.EVENTS: "text/event-stream",
    OutputFormat.JSONL: "application/x-ndjson, application/json",
    OutputFormat.JSON: "application/json",
    OutputFormat.TEXT: "text/plain, */*",
}


def run_http(
    spec: AgentSpec,
    turn: Turn,
    *,
    model: str | None = None,
    env: Mapping[str, str],
    folder: str | None,
    clock: Clock,
    timeout: timedelta,
    stop_requested: Callable[[], str | None] = lambda: None,
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
    on_native_session: Callable[[str], object] | None = None,
    masker: Masker | None = None,
) -> TurnResult:
    """Put *turn* to the server of *spec* and return how it ended.

    Args:
        spec: The agent, with `http`.
        turn: What it is given.
        model: Handed over where the body has `{model}`.
        env: The turn's environment: header values, proxies, certificates.
        folder: Where the answer is kept as it came, stdout.log; None for nowhere.
        clock: Counts *timeout*.
        timeout: How long it may take, awake.
        stop_requested: Asked twice a second; a word of `programs.STOP_WORDS` ends the turn, which
            closes the connection.
        grace: What closing it may take.
        on_native_session: Told the id of the conversation as soon as the server says it.
        masker: Takes secrets out of what is kept.
    """
    out, err = open_captures(folder)
    masker = masker or Masker()
    kept = Lines(out, masker)
    try:
        agent = HttpAgent(spec, env=env, model=model, keep=kept.feed, mask=masker.mask)
        result, _ = run_call(
            agent.run,
            turn,
            clock=clock,
            timeout=timeout,
            stop_requested=stop_requested,
            grace=grace,
            on_native_session=on_native_session,
        )
    except ImportError:
        detail = f"the agent {spec.name} {NO_EXTRA}"
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.NOT_FOUND, detail=detail)
    finally:
        kept.close()
        err.close()
    return result


class HttpAgent:
    """An agent behind HTTP.

    Args:
        spec: Its entry, with `http`.
        env: The turn's environment.
        mask: Takes secrets out of what becomes a warning.
        model: The model, if one is set.
        keep: Is given the answer as it comes.

    Raises:
        ImportError: httpx is not installed.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        env: Mapping[str, str],
        mask: Callable[[str], str],
        model: str | None = None,
        keep: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        # Here and not above: it costs a fifth of a second, and no other agent needs it.
        from routines.agents.http_connection import send

        if spec.http is None:
            raise ValueError(f"the entry {spec.name} has no `http`")
        self._send = send
        self._spec = spec
        self._http: HttpSpec = spec.http
        self._read = {key: parse_path(path) for key, path in spec.read.items()}
        self._env = env
        self._model = model
        self._keep = keep
        self._mask = mask

    async def run(self, turn: Turn) -> AsyncIterator[str | Reply]:
        """Put *turn* to it: yields pieces of the reply, and last a `Reply` with all the rest."""
        content = encode_body(fill_body(self._http.body, self.values(turn)))
        sent = self._send(
            "POST",
            self._http.url,
            content=content,
            headers=self._headers(turn),
            env=self._env,
            connect=self._http.connect,
            silence=self._http.silence,
        )
        async with sent as answer:
            if not _FIRST_GOOD <= answer.status < _FIRST_OTHER:
                await self._refused(turn, answer.status, answer.phrase, answer.chunks)
            read = self._readers[self._spec.output]
            async for piece in read(self, turn, answer.status, answer.chunks):
                yield piece

    # What is sent -------------------------------------------------------------------------------

    def values(self, turn: Turn) -> dict[str, str | None]:
        """Return what the placeholders of a body stand for."""
        return {
            "session": turn.session,
            "session_uuid": turn.session_uuid,
            "native_session": turn.native_session,
            "prompt": turn.prompt,
            "turn": turn.key,
            "model": self._model,
            "routine": turn.routine,
        }

    def _headers(self, turn: Turn) -> dict[str, str]:
        return request_headers(
            self._http, self._env, key=turn.key, accept=_ACCEPT[self._spec.output]
        )

    def _asked_session(self, turn: Turn) -> str | None:
        if self._http.uses("native_session") and turn.native_session is not None:
            return turn.native_session
        return turn.session_uuid if self._http.uses("session_uuid") else None

    # What comes back ----------------------------------------------------------------------------

    async def _refused(
        self, turn: Turn, status: int, phrase: str, chunks: AsyncIterator[bytes]
    ) -> None:
        data = b""
        async for chunk in chunks:
            self._keep(chunk)
            data += chunk[: _LARGEST_REFUSAL - len(data)]
            if len(data) >= _LARGEST_REFUSAL:
                break
        document = parse_json(data)
        words = words_of(document, data)
        said = one_line(f"HTTP {status} {phrase}: {words}" if words else f"HTTP {status} {phrase}")
        never = self._never_started(turn, status, document)
        if never is not None:
            raise never(said)
        if says_busy(self._http, status, document):
            raise SessionBusy(said)
        raise TurnFailed(said)

    def _never_started(
        self, turn: Turn, status: int, document: Any
    ) -> type[SessionBusy | AgentUnavailable | SessionLost] | None:
        """Return how the answer says that nothing was done, None if it does not say so."""
        http = self._http
        # A conversation that was never begun can't be gone.
        if not turn.first and says(http.lost, status, document):
            return SessionLost
        if says(http.busy, status, document):
            return SessionBusy
        return AgentUnavailable if says(http.not_started, status, document) else None

    async def _text(
        self, _turn: Turn, _status: int, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[str | Reply]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in chunks:
            self._keep(chunk)
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)

    async def _json(
        self, turn: Turn, status: int, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[str | Reply]:
        data = bytearray()
        async for chunk in chunks:
            self._keep(chunk)
            data += chunk
            if len(data) > LARGEST_JSON:
                raise BadOutput(f"the answer is more than {LARGEST_JSON >> 20} MiB of JSON")
        document = parse_json(bytes(data))
        if document is MISSING:
            raise BadOutput("the answer is not JSON" if data.strip() else "the answer is empty")
        never = self._never_started(turn, status, document)
        if never is not None:
            raise never(words_of(document, b"") or _DID_NOT_RUN)
        said = Said()
        said.take(document, self._read)
        yield self._reply(turn, said)

    async def _events(
        self, turn: Turn, status: int, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[str | Reply]:
        lines = self._spec.output is OutputFormat.JSONL
        stream = _Stream(self._http, self._read, JsonLines() if lines else ServerSentEvents())
        asked, told = self._asked_session(turn), False
        async for event in stream.events(chunks, self._keep):
            document = parse_json(event.data)
            never = self._never_started(turn, status, document)
            if never is not None:
                words = words_of(document, b"") or _DID_NOT_RUN
                if not stream.count:
                    raise never(words)
                # What was said before may have been done before.
                raise TurnFailed(f"after it had begun: {words}")
            piece = stream.take(event, document)
            if piece:
                yield piece
            found = stream.said.native_session()
            if not told and found is not None and asked in (None, found):
                told = True
                yield Reply(native_session=found)
            if stream.over:
                break
        stream.judge()
        yield self._reply(turn, stream.said)

    _readers: Mapping[OutputFormat, Callable[..., AsyncIterator[str | Reply]]] = {
        OutputFormat.TEXT: _text,
        OutputFormat.JSON: _json,
        OutputFormat.JSONL: _events,
        OutputFormat.EVENTS: _events,
    }

    def _reply(self, turn: Turn, said: Said) -> Reply:
        failed = said.failed()
        changed = said.changed_session(self._asked_session(turn))
        if failed is None and changed is not None:
            raise SessionChanged(changed)
        denied = said.denied(self._mask)
        warnings = [] if denied is None else [denied]
        if said.truncated:
            warnings.append(Warn.TRUNCATED.value)
        return Reply(
            text=said.reply() or "",
            native_session=said.native_session(),
            usage=said.usage(),
            failed=failed if failed is None else failed or said.error() or "",
            warnings=tuple(warnings),
        )


class _Stream:
    """What the events of one answer have said so far.

    Attributes:
        said: By the paths of `read`.
        count: How many events there were.
        over: Whether the last one has come.
    """

    def __init__(
        self, http: HttpSpec, read: Mapping[str, OutputPath], parser: ServerSentEvents | JsonLines
    ) -> None:
        self._events = http.events
        named = http.events.name
        self._name_at = None if named is None else parse_path(named)
        self._read = read
        self._pieces = {name: parse_path(path) for name, path in http.events.text.items()}
        self._parser = parser
        self._bad = 0
        self._lost = 0
        self._spoke = False
        self.said = Said()
        self.count = 0
        self.over = False

    async def events(
        self, chunks: AsyncIterator[bytes], keep: Callable[[bytes], None]
    ) -> AsyncIterator[Event]:
        """Return the events as they come."""
        async for chunk in chunks:
            keep(chunk)
            for event in self._parser.feed(chunk):
                yield event
        for event in self._parser.end():
            yield event

    def take(self, event: Event, document: Any) -> str:
        """Take one event in; return the piece of the reply that it carries."""
        self.count += 1
        if document is MISSING:
            # Not all that ends a stream is JSON: `data: [DONE]`.
            raw = event.data.decode("utf-8", "replace").strip()
            self.over = raw in self._events.end or event.name in self._events.end
            if not self.over:
                self._bad += 1
                self._lost += _looks_like_json(raw)
            return ""
        name = self._name(event, document)
        self.said.take(document, self._read)
        if name in self._events.failed:
            words = first_text(document, self._events.failed[name])
            self.said.values["failed"] = [words or True]
            self.over = True
        self.over = self.over or name in self._events.end
        path = self._pieces.get(name)
        found = () if path is None else path.of(document)
        piece = "".join(one for one in found if isinstance(one, str))
        self._spoke = self._spoke or bool(piece)
        return piece

    def _name(self, event: Event, document: Any) -> str:
        return event.name if self._name_at is None else text_at(document, self._name_at)

    def judge(self) -> None:
        """Say whether the stream has ended as it should."""
        lost = self._lost + self._parser.too_long
        self.said.truncated = lost > 0 or self._parser.broken_off
        if self._events.end and not self.over:
            raise OutcomeUnknown("the stream ended before its last event")
        bad = self._bad + self._parser.too_long
        if bad and not self._spoke and self.said.reply() is None and self.said.failed() is None:
            raise BadOutput(f"{bad} events can't be read, and there is no reply")
        if not self.count and not bad:
            raise BadOutput("the answer has not one event")


def _looks_like_json(text: str) -> bool:
    """Return whether an event that can't be read was meant to be JSON, and so may carry a piece.

    A notice beside the events (`data: ping`, a `[DONE]` that the entry does not name) is none: a
    warning in every turn would be read in none.
    """
    return text.startswith(("{", "[")) and text != "[DONE]"
