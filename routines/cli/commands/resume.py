"""`routines resume`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("resume", short_help="End a pause.")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "all_", is_flag=True, help="End the pause of everything.")
@click.option("--tag", "tags", multiple=True, help="The routines with this tag.")
def command(call: Call, *, names: tuple[str, ...], all_: bool, tags: tuple[str, ...]) -> None:
    """End a pause. What was passed over is one record; the next slot comes as planned.

    A one-shot that fell due meanwhile fires now, unless it is too late for it.
    """
    from routines.operations import switching

    results = switching.resume(call.context, names, all_=all_, tags=tags)
    if call.json:
        call.answer([result.to_json() for result in results])
        return
    from routines.cli.screens.switching import resumed_screen

    call.print(resumed_screen(results, call.times()))
