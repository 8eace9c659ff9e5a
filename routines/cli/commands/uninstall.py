"""`routines uninstall`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("uninstall", short_help="Undo install.")
@click.option("--print", "print_", is_flag=True, help="Only print what would be removed.")
def command(call: Call, *, print_: bool) -> None:
    """Stop and remove what `routines install` wrote for this workspace; state and files stay."""
    from routines.cli.screens.installing import uninstalled_lines
    from routines.operations import installing

    found = installing.to_remove(call.context) if print_ else installing.uninstall(call.context)
    if call.json:
        call.answer([one.to_json() for one in found])
    elif print_ and found:
        for one in found:
            call.note(f"would be removed: {one.path or 'these lines of your crontab'}")
            for note in one.notes:
                call.note(f"  {note}")
            # As it is, like `install --print`.
            click.echo(one.text, nl=False)
    else:
        call.print(uninstalled_lines(call.context, found))
