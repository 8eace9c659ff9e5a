"""`routines uninstall`."""

from routines.cli.call import Call
from routines.cli.call import command as make


@make("uninstall", short_help="Undo install.")
def command(call: Call) -> None:
    """Stop and remove what `routines install` wrote for this workspace; state and files stay."""
    from routines.cli.screens.installing import uninstalled_lines
    from routines.operations import installing

    found = installing.uninstall(call.context)
    if call.json:
        call.answer([one.to_json() for one in found])
    else:
        call.print(uninstalled_lines(call.context, found))
