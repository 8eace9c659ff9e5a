"""`start --http`: everything that can be wrong with it is said before anything is armed."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from routines.errors import ExtraMissing, UsageError
from routines.operations.context import Context
from routines.web.address import parse_address

if TYPE_CHECKING:
    from routines.web.server import Companion

TOKEN_VARIABLE = "ROUTINES_HTTP_TOKEN"  # noqa: S105 - its name, not its value
# Less can be guessed by trying; `openssl rand -hex 16` makes 32.
_SHORTEST_TOKEN = 16


@contextlib.contextmanager
def opened(http: str, context: Context) -> "Iterator[Companion]":
    """Listen on *http* for the block, and return what answers there beside a scheduler.

    Args:
        http: `HOST:PORT`.
        context: Where and when; its environment has the token.

    Raises:
        UsageError: It is no address, or one that asks for a token and has none.
        ExtraMissing: The libraries are not installed.
        AddressUnusable: Nothing can listen there.
    """
    address = parse_address(http)
    token = _token(context.environ.get(TOKEN_VARIABLE, ""))
    if token is None and not address.is_loopback:
        raise UsageError(
            f"{http} can be reached by others, and there is no token that they must know",
            hint=f"set {TOKEN_VARIABLE}, or give an address of this machine alone: 127.0.0.1:9464",
        )
    try:
        from routines.web import server
    except ImportError as error:
        if (error.name or "").startswith("routines"):
            raise
        raise ExtraMissing("--http", extra="server", module=error.name or "") from error
    with contextlib.closing(server.listen(address)) as listening:
        yield server.Companion(context, address=address, listening=listening, token=token)


def _token(text: str) -> str | None:
    token = text.strip()
    if not token:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or any(c.isspace() for c in token):
        raise UsageError(
            f"{TOKEN_VARIABLE} is no token: one has {_SHORTEST_TOKEN} or more ASCII characters",
            hint="`openssl rand -hex 32` makes one",
        )
    return token
