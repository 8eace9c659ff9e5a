"""`routines explain`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("explain", short_help="Why a slot ran or did not.")
@click.argument("name")
@click.argument("when", required=False)
def command(call: Call, *, name: str, when: str | None) -> None:
    """Say why a slot of NAME ran, did not run, or is unknown: the newest one, or that of WHEN."""
    from routines.operations.explaining import explain

    found = explain(call.context, name, when)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.explaining import explain_screen

    call.print(explain_screen(found, call.times(found.routine), width=call.width))
