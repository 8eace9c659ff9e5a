"""`routines mcp`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("mcp", answers=False, short_help="The wake tools as an MCP server.")
@click.option("--session", help="The session to wake; that of this turn by default.")
def command(call: Call, *, session: str | None) -> int:
    """Offer wake, unwake and wakeups to an agent program, as an MCP server on stdin and stdout.

    Within a turn the wake-ups are those of its session: routines hands this server over by
    itself where the program allows it. Elsewhere each wake-up begins a conversation of its own,
    unless --session names one.
    """
    from routines.errors import UsageError
    from routines.mcp_server.opening import serve

    if call.closed & {"stdin", "stdout"}:
        raise UsageError(
            "routines mcp speaks on stdin and stdout, and one of them is closed",
            hint="an agent program starts it",
        )
    return serve(call.fresh_context, session=session, note=call.note)
