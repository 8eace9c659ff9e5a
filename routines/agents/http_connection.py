"""Talking HTTP: the one module that names httpx.

It says three things apart: what was never sent (the connection was not made), what was answered,
and what was sent and lost. Nothing is ever sent twice but where the server itself says that the
same request belongs elsewhere on the same host (307, 308).
"""

import contextlib
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

import httpx

from routines.agents.base import AgentUnavailable, BadOutput, NotFound, OutcomeUnknown, TurnFailed
from routines.domain.durations import format_span

# More than a server with a proxy in front ever needs; a loop ends here.
_MOST_REDIRECTS = 3
_SAME_REQUEST = frozenset([307, 308])
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400
# A server that takes nothing for so long, however large the prompt, is stuck.
_WRITE = timedelta(minutes=1)
# A peer that is gone (sleep, a dropped line) is noticed after 60 + 4 * 15 s of silence, where no
# limit of silence is set: the kernel asks, the agent need not speak.
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
# As much of a compressed answer at once: a bomb is noticed by its size, not by the memory.
_INFLATE_BYTES = 64 * 1024
# zlib's code for "gzip or zlib, as its head says".
_ANY_WINDOW = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    Attributes:
        status: The HTTP status.
        phrase: Its words.
        chunks: The body as it comes, decompressed.
    """

    status: int
    phrase: str
    chunks: AsyncIterator[bytes]


@contextlib.asynccontextmanager
async def send(
    method: str,
    url: str,
    *,
    content: bytes | None = None,
    headers: Mapping[str, str],
    env: Mapping[str, str],
    connect: timedelta,
    silence: timedelta | None,
) -> AsyncIterator[Answer]:
    """Send one request and give its answer; the connection ends with the block.

    Args:
        method: `GET` or `POST`.
        url: Where.
        content: The body, or None.
        headers: Beside those that HTTP itself needs.
        env: Whose proxies and certificates hold.
        connect: How long a connection may take.
        silence: How long nothing may come; None for no limit.

    Raises:
        AgentUnavailable: Nothing was sent: no such name, refused, no route, no handshake.
        NotFound: Nothing was sent, and never will be: the address or a header can't be used.
        OutcomeUnknown: It was sent, and the answer was lost.
        TurnFailed: It leads to another host.
    """
    timeout = httpx.Timeout(
        connect=connect.total_seconds(),
        read=None if silence is None else silence.total_seconds(),
        write=_WRITE.total_seconds(),
        pool=None,
    )
    async with contextlib.AsyncExitStack() as stack:
        with _words(url, connect=connect, silence=silence):
            client = await stack.enter_async_context(_client(url, env, timeout))
            response = await _asked(client, stack, method, url, content, headers)
        yield Answer(
            response.status_code,
            response.reason_phrase,
            _chunks(response, url, connect=connect, silence=silence),
        )


def _client(url: str, env: Mapping[str, str], timeout: httpx.Timeout) -> httpx.AsyncClient:
    try:
        transport = httpx.AsyncHTTPTransport(
            verify=_certificates(env),
            # What the environment says is looked up here, in the turn's and not in ours.
            trust_env=False,
            proxy=proxy_for(url, env),
            retries=0,
            socket_options=_keepalive(),
        )
    except ImportError as error:
        # A socks proxy, which needs one more library.
        raise NotFound(f"the proxy can't be used: {error}") from error
    except (OSError, ValueError) as error:
        raise NotFound(f"proxy or certificates can't be used: {error}") from error
    return httpx.AsyncClient(
        transport=transport, timeout=timeout, follow_redirects=False, trust_env=False
    )


async def _asked(
    client: httpx.AsyncClient,
    stack: contextlib.AsyncExitStack,
    method: str,
    url: str,
    content: bytes | None,
    headers: Mapping[str, str],
) -> httpx.Response:
    for hop in range(_MOST_REDIRECTS + 1):
        request = client.build_request(method, url, content=content, headers=dict(headers))
        try:
            response = await client.send(request, stream=True)
        except httpx.TransportError as error:
            if not hop:
                raise
            # The first server has seen the request: nobody can say that nothing was started.
            raise OutcomeUnknown(f"redirected to {_place(url)}: {_why(error)}") from error
        stack.push_async_callback(response.aclose)
        if not _FIRST_REDIRECT <= response.status_code < _FIRST_ERROR:
            return response
        url = _redirected(request.url, response)
        await response.aclose()
    raise TurnFailed(f"redirected more than {_MOST_REDIRECTS} times")


def _redirected(url: httpx.URL, response: httpx.Response) -> str:
    """Return where the same request belongs; what would carry its headers elsewhere is refused."""
    status = response.status_code
    location = response.headers.get("location", "")
    if not location:
        raise TurnFailed(f"HTTP {status}: redirected without a Location that says where to")
    try:
        target = url.join(location)
    except httpx.InvalidURL as error:
        raise TurnFailed(f"HTTP {status}: redirected to no address") from error
    place = f"{target.scheme}://{target.netloc.decode('ascii', 'replace')}"
    if status not in _SAME_REQUEST:
        raise TurnFailed(f"HTTP {status} to {place}: only 307 and 308 are followed with a POST")
    same = (target.scheme, target.host, _port(target)) == (url.scheme, url.host, _port(url))
    safer = (url.scheme, target.scheme) == ("http", "https") and target.host == url.host
    if not same and not safer:
        what = "scheme" if target.scheme != url.scheme else "port"
        if target.host != url.host:
            what = "host"
        raise TurnFailed(f"HTTP {status} to {place}: another {what} is not followed")
    return str(target)


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def _chunks(
    response: httpx.Response, url: str, *, connect: timedelta, silence: timedelta | None
) -> AsyncIterator[bytes]:
    inflate = _Inflate.of(response.headers.get("content-encoding", ""))
    with _words(url, connect=connect, silence=silence):
        async for chunk in response.aiter_raw():
            if inflate is None:
                yield chunk
                continue
            for piece in inflate.pieces(chunk):
                yield piece
        if inflate is not None:
            inflate.end()


class _Inflate:
    """Decompresses in small pieces, so that whoever counts them can end it in time."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_ANY_WINDOW)
        self._begun = False

    @classmethod
    def of(cls, coding: str) -> "_Inflate | None":
        """Return what undoes *coding*; None if there is nothing to undo.

        We ask for none; gzip is what a server in between adds all the same.
        """
        coding = coding.strip().lower()
        if coding in {"", "identity"}:
            return None
        if coding in {"gzip", "x-gzip", "deflate"}:
            return cls()
        raise BadOutput(f"the answer is compressed with {coding[:40]}, which was not asked for")

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Return what *data* holds."""
        try:
            while data:
                if self._zlib.eof:
                    # Gzip allows one after another, and zeros behind the last.
                    data = data.lstrip(b"\0")
                    if not data:
                        return
                    self._zlib = zlib.decompressobj(_ANY_WINDOW)
                self._begun = True
                yield self._zlib.decompress(data, _INFLATE_BYTES)
                data = self._zlib.unused_data or self._zlib.unconsumed_tail
        except zlib.error as error:
            raise BadOutput("the answer can't be decompressed") from error

    def end(self) -> None:
        """Say that there is no more of it."""
        if self._begun and not self._zlib.eof:
            raise BadOutput("the compressed answer breaks off")


@contextlib.contextmanager
def _words(url: str, *, connect: timedelta, silence: timedelta | None) -> Iterator[None]:
    """Turn what httpx raises into what it means for a turn."""
    place = _place(url)
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise AgentUnavailable(f"{place}: no connection within {format_span(connect)}") from error
    except (httpx.ConnectError, httpx.ProxyError, httpx.PoolTimeout) as error:
        raise AgentUnavailable(f"{place}: {_why(error)}") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
        raise NotFound(f"{place}: {_why(error)}") from error
    except httpx.ReadTimeout as error:
        limit = "a long time" if silence is None else format_span(silence)
        raise OutcomeUnknown(f"{place}: nothing came for {limit}") from error
    except httpx.TransportError as error:
        raise OutcomeUnknown(f"{place}: the answer was lost: {_why(error)}") from error


def _place(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "the address"
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii', 'replace')}"


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


# The environment --------------------------------------------------------------------------------


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy that *env* names for *url*; None for a direct connection.

    `https_proxy`, `http_proxy`, `all_proxy` and `no_proxy`, in small or capital letters, as curl
    reads them; the machine itself is never asked for through a proxy.
    """
    parsed = httpx.URL(url)
    if _is_this_machine(parsed.host):
        return None
    known = {name.lower(): value for name, value in env.items() if name.isupper()}
    known |= {name: value for name, value in env.items() if name.islower()}
    if _is_exempt(parsed, known.get("no_proxy", "")):
        return None
    found = known.get(f"{parsed.scheme}_proxy") or known.get("all_proxy")
    return found if not found or "://" in found else f"http://{found}"


def _is_exempt(url: httpx.URL, no_proxy: str) -> bool:
    for entry in no_proxy.replace(",", " ").lower().split():
        name = entry.lstrip(".")
        if name == "*" or name in (url.host, url.netloc.decode("ascii", "replace")):
            return True
        if url.host.endswith(f".{name}") or _is_in_network(url.host, name):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _certificates(env: Mapping[str, str]) -> ssl.SSLContext:
    """Return whom we trust: certifi's list, or what the turn's environment names instead."""
    file, folder = env.get("SSL_CERT_FILE"), env.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    return httpx.create_ssl_context(trust_env=False)


def _keepalive() -> list[tuple[int, int, int]]:
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
