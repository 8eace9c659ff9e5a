"""`routines mcp`: what can be wrong with it is said before the protocol begins.

Nothing of the SDK is imported here: `routines mcp --help` needs none of it.
"""

import sys
from collections.abc import Callable

from routines.errors import ExtraMissing
from routines.operations.context import Context
from routines.operations.waking import ToolDesk


def serve(
    make_context: Callable[[], Context], *, session: str | None, note: Callable[[str], None]
) -> int:
    """Answer calls on stdin until it is closed; stdout carries the protocol and nothing else.

    A workspace that is missing or broken does not keep it from starting: a server that ends at
    once is one that an agent never hears of, while its answers say what to do.

    Args:
        make_context: Makes the context of a call.
        session: Whose wake-ups, or None for that of the turn.
        note: Says something to a person.

    Returns:
        The exit code.

    Raises:
        ExtraMissing: The SDK is not installed, or not in a version that this is written for.
    """
    try:
        from routines.mcp_server import server
    except ImportError as error:
        if (error.name or "").startswith("routines"):
            raise
        # Whichever of its parts was looked for first; version 1 has other ones.
        raise ExtraMissing("routines mcp", extra="mcp", module="mcp 2") from error
    desk = ToolDesk(make_context, session=session)
    problem = desk.problem()
    if problem is not None:
        note(
            f"no call can succeed: {problem.message}"
            + (f"; {problem.hint}" if problem.hint else "")
        )
    if sys.stdin.isatty():
        note("this is for an agent program, which starts it and speaks MCP on stdin; ^C ends it")
    return server.run(desk)
