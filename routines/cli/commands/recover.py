"""`routines recover`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("recover", short_help="Let what is parked run after all.")
@click.argument("ref")
def command(call: Call, *, ref: str) -> None:
    """Let what is parked run after all, however late it is; NAME means whatever of it is parked.

    `cancel` ends it instead.
    """
    from routines.cli.escape import escape
    from routines.operations import switching

    results = switching.recover(call.context, ref)
    if call.json:
        call.answer([{"id": one.ref, "message": one.message} for one in results])
    else:
        call.print(f"{escape(one.ref)}  {escape(one.message)}" for one in results)
