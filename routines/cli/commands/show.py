"""`routines show`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("show", short_help="One occurrence whole.")
@click.argument("ref")
def command(call: Call, *, ref: str) -> None:
    """Show one occurrence: what it was given, what it answered, where its files are.

    REF is NAME (its newest), NAME@WHEN, a wake-up's id, or the id that --json prints.
    """
    from routines.operations.showing import show

    shown = show(call.context, ref)
    if call.json:
        call.answer(shown.to_json())
        return
    from routines.cli.screens.showing import show_screen

    times = call.times(shown.entry.routine)
    call.print(show_screen(shown, times, width=call.width, home=call.context.home))
