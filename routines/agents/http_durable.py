"""A durable agent behind HTTP: its runs are started, inspected and cancelled at three addresses.

Whether an answer was heard makes all the difference: what was never sent, or was refused for good,
is said so; everything else says nothing, and the same question is put again under the same key.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from routines.agents.base import (
    AgentUnavailable,
    BadOutput,
    NotFound,
    Reply,
    RunState,
    SessionBusy,
    Turn,
    TurnFailed,
    Waiting,
)
from routines.agents.http_agent import NO_EXTRA, HttpAgent
from routines.agents.http_messages import (
    encode_body,
    request_headers,
    says,
    says_busy,
    words_of,
)
from routines.agents.reading import LARGEST_JSON, Said, parse_json
from routines.domain.agent import AgentSpec
from routines.domain.durable import RunWord, cancel_key, checked_run_id
from routines.domain.http_agent import HttpDurable, fill_body, header_secrets
from routines.domain.masking import Masker, declared_secrets
from routines.domain.outcome import one_line
from routines.domain.output_path import MISSING, parse_path

_FIRST_GOOD, _FIRST_OTHER = 200, 300
# There is no such run; anything else may pass.
_GONE = frozenset([404, 410])
# Of those that refuse: a time-out, a conflict, too early, a quota. They may pass, and a start that
# was refused so may be repeated; any other of them says that no run will ever come of it.
_MAY_PASS = frozenset([408, 409, 423, 425, 429])
_FIRST_REFUSAL, _FIRST_FAULT = 400, 500


class Unheard(Exception):
    """There was no answer that says anything."""


class HttpDurableAgent:
    """An agent behind HTTP whose runs outlive this process.

    Args:
        spec: Its entry, with `http` and there `durable`.
        env: The turn's environment.
        model: The model, if one is set.

    Raises:
        ImportError: httpx is not installed.
    """

    def __init__(self, spec: AgentSpec, *, env: Mapping[str, str], model: str | None) -> None:
        from routines.agents.http_connection import send

        if spec.http is None or spec.http.durable is None:
            raise ValueError(f"the entry {spec.name} is not durable")
        self._send = send
        self._http = spec.http
        self._durable: HttpDurable = spec.http.durable
        self._mask = Masker((*header_secrets(spec.http, env), *declared_secrets(env))).mask
        self._turns = HttpAgent(spec, env=env, model=model, mask=self._mask)
        self._env = env
        self._read = {key: parse_path(path) for key, path in spec.read.items()}

    async def start(self, turn: Turn) -> str:
        """Start the run of *turn* and return its id."""
        try:
            content = encode_body(fill_body(self._http.body, self._turns.values(turn)))
            status, phrase, document, data = await self._ask(
                "POST", self._http.url, key=turn.key, content=content
            )
        except NotFound as error:
            # Nothing was sent and never will be: asking again heals nothing.
            raise TurnFailed(str(error)) from error
        said = _said(status, phrase, document, data)
        if says(self._durable.waiting, status, document):
            raise Waiting(said)
        if says(self._http.busy, status, document) or says_busy(self._http, status, document):
            raise SessionBusy(said)
        if says(self._http.not_started, status, document):
            raise AgentUnavailable(said)
        if _FIRST_REFUSAL <= status < _FIRST_FAULT and status not in _MAY_PASS:
            raise TurnFailed(said)
        self._must_be_good(status, said)
        found = _first(document, self._durable.run)
        run_id = checked_run_id(str(found) if isinstance(found, int) else found)
        # Of dots alone it would lead to another address, however it is written.
        if run_id is None or isinstance(found, bool) or not run_id.strip("."):
            raise Unheard(f"it answered no run id at {self._durable.run}")
        return run_id

    async def inspect(self, run_id: str) -> RunState:
        """Return where a run stands."""
        url = _filled(self._durable.inspect, run_id)
        status, phrase, document, data = await self._ask("GET", url)
        if status in _GONE:
            return RunState(RunWord.MISSING, detail=_said(status, phrase, document, data))
        self._must_be_good(status, _said(status, phrase, document, data))
        if document is MISSING:
            raise Unheard("the answer is not JSON")
        found = _first(document, self._durable.state)
        word = self._durable.words.get(str(found), found if isinstance(found, str) else "")
        detail = _first(document, self._durable.detail) if self._durable.detail else None
        if not isinstance(detail, str):
            detail = "" if word in {RunWord.ACTIVE, RunWord.COMPLETED} else words_of(document, b"")
        return RunState(word, self._reply(document), one_line(detail))

    async def cancel(self, run_id: str) -> None:
        """End a run: return if that was taken up, or if there is no such run any more."""
        url = _filled(self._durable.cancel, run_id)
        status, phrase, document, data = await self._ask(
            "POST", url, key=cancel_key(run_id), content=b"{}"
        )
        if status not in _GONE:
            self._must_be_good(status, _said(status, phrase, document, data))

    # Asking -------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, url: str, *, key: str | None = None, content: bytes | None = None
    ) -> tuple[int, str, Any, bytes]:
        """Return status, its words, the document and the bytes of an answer."""
        sent = self._send(
            method,
            url,
            content=content,
            headers=request_headers(self._http, self._env, key=key, accept="application/json"),
            env=self._env,
            connect=self._http.connect,
            silence=self._http.silence,
        )
        async with sent as answer:
            try:
                data = await _whole(answer.chunks)
            except BadOutput as error:
                # A run may well have begun: that its answer can't be read says nothing of it.
                raise Unheard(str(error)) from error
        return answer.status, answer.phrase, parse_json(data), data

    def _must_be_good(self, status: int, said: str) -> None:
        if not _FIRST_GOOD <= status < _FIRST_OTHER:
            raise Unheard(said)

    def _reply(self, document: Any) -> Reply:
        said = Said()
        said.take(document, self._read)
        denied = said.denied(self._mask)
        return Reply(
            text=said.reply() or "",
            native_session=said.native_session(),
            usage=said.usage(),
            warnings=() if denied is None else (denied,),
        )


class MissingExtra:
    """Stands where an agent can't be made, and says why: nothing is ever started by it."""

    def __init__(self, name: str) -> None:
        self._words = f"the agent {name} {NO_EXTRA}"

    async def start(self, turn: Turn) -> str:
        """Refuse *turn*."""
        raise TurnFailed(f"{self._words} ({turn.key} was not sent)")

    async def inspect(self, run_id: str) -> RunState:
        """Say nothing of a run."""
        raise Unheard(f"{run_id}: {self._words}")

    async def cancel(self, run_id: str) -> None:
        """Leave a run alone."""
        raise Unheard(f"{run_id}: {self._words}")


def http_durable(
    spec: AgentSpec, *, env: Mapping[str, str], model: str | None
) -> HttpDurableAgent | MissingExtra:
    """Return the durable agent of *spec*, or what says that the extra is missing."""
    try:
        return HttpDurableAgent(spec, env=env, model=model)
    except ImportError:
        return MissingExtra(spec.name)


async def _whole(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_JSON:
            raise Unheard(f"the answer is more than {LARGEST_JSON >> 20} MiB")
    return bytes(data)


def _filled(url: str, run_id: str) -> str:
    # It comes from elsewhere: as a part of an address it must not lead to another one.
    return url.replace("{run}", quote(run_id, safe=""))


def _first(document: Any, path: str) -> Any:
    found = [] if document is MISSING else parse_path(path).of(document)
    return found[0] if found else None


def _said(status: int, phrase: str, document: Any, data: bytes) -> str:
    words = words_of(document, data)
    return one_line(f"HTTP {status} {phrase}: {words}" if words else f"HTTP {status} {phrase}")
