"""`routines cancel`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("cancel", short_help="End what runs or waits.")
@click.argument("ref")
@click.option("--reason", default="", help="Kept in the record.")
def command(call: Call, *, ref: str, reason: str) -> None:
    """End an occurrence that runs or waits; NAME means whatever of it does."""
    from routines.cli.escape import escape
    from routines.operations import cancelling

    results = cancelling.cancel(call.context, ref, reason=reason)
    if call.json:
        call.answer([{"id": one.ref, "message": one.message} for one in results])
    else:
        call.print(f"{escape(one.ref)}  {escape(one.message)}" for one in results)
