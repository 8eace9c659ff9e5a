"""`routines check`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("check", short_help="Validate the files.")
@click.argument("files", nargs=-1)
def command(call: Call, *, files: tuple[str, ...]) -> int:
    """Say what is wrong with the files, all of it at once; exit 1 if anything is."""
    from routines.operations.checking import check

    found = check(call.context, files)
    if call.json:
        call.answer(found.to_json())
    else:
        from routines.cli.screens.checking import check_screen

        call.print(check_screen(found, width=call.width))
    return 0 if found.ok else 1
