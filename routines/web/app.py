"""What is answered to whom: `/health` and `/metrics`, to those who may ask."""

import hmac
import json
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from routines.web.address import Address

log = logging.getLogger("routines")

# What is told is of now, and for nobody else.
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Answer = Callable[[], Awaitable[tuple[int, bytes, str]]]


class Guard:
    """Lets through who names this address as host, and has the token if there is one.

    Args:
        app: What is guarded.
        address: What it listens on.
        token: What `Authorization: Bearer` must say; None asks for nothing.
    """

    def __init__(self, app: ASGIApp, *, address: Address, token: str | None) -> None:
        self._app = app
        self._address = address
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            raise RuntimeError(f"nothing but HTTP is answered, not {scope['type']}")
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        reached_at = (scope.get("server") or ("", 0))[0]
        if len(hosts) != 1 or not self._address.answers_to(hosts[0], reached_at=reached_at):
            return _plain(403, "this address goes by another name\n")
        if self._token is None:
            return None
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) == 1 and self._is_token(given[0]):
            return None
        return _plain(401, "a token is needed\n", {"WWW-Authenticate": "Bearer"})

    def _is_token(self, header: bytes) -> bool:
        scheme, _, given = header.partition(b" ")
        # Not `==`: it ends at the first byte that differs, and the time tells which one that was.
        return hmac.compare_digest(given.strip(), self._token or b"") and (
            scheme.lower() == b"bearer"
        )


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, _HEADERS | (headers or {}), "text/plain")


def application(*, address: Address, token: str | None, health: Answer, metrics: Answer) -> ASGIApp:
    """Return the application: two pages, guarded."""
    app = Starlette(
        routes=[
            Route("/health", _page(health), methods=["GET"]),
            Route("/metrics", _page(metrics), methods=["GET"]),
        ]
    )
    return Guard(app, address=address, token=token)


def _page(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        try:
            status, content, kind = await answer()
        except Exception:
            # A fault of ours is in the log; who asked learns nothing of our insides.
            log.exception("http-failed", extra={"path": request.url.path})
            return _plain(500, "failed; the log says why\n")
        return Response(content, status, _HEADERS, media_type=kind)

    return page


def as_json(value: object) -> bytes:
    """Return *value* as JSON in ASCII: a name that is no text can be sent too."""
    return json.dumps(value, ensure_ascii=True, indent=1).encode() + b"\n"
