"""`routines install`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("install", short_help="Start the scheduler at every login.")
@click.option(
    "--with",
    "manager",
    type=click.Choice(["systemd", "launchd", "cron"]),
    help="What keeps it running; by default what this machine has.",
)
@click.option(
    "--grace", default="30s", show_default=True, metavar="SPAN", help="For turns at a stop."
)
@click.option("--print", "print_", is_flag=True, help="Only print what would be written.")
def command(call: Call, *, manager: str | None, grace: str, print_: bool) -> int:
    """Write a systemd unit, a launch agent or a crontab line for this workspace, and start it.

    It is written with the PATH of this shell: run it again when that has changed.
    """
    from routines.cli.screens.installing import installed_lines
    from routines.domain.durations import parse_span
    from routines.domain.service_files import Manager
    from routines.operations import installing

    chosen = installing.manager_here(call.context) if manager is None else Manager(manager)
    if print_:
        found = installing.planned(call.context, chosen, grace=parse_span(grace))
        if call.json:
            call.answer(found.to_json())
        else:
            call.note(f"would be written to {found.path or 'your crontab'}")
            # As it is: it is to be put into a file.
            click.echo(found.text, nl=False)
        return 0
    found = installing.install(call.context, chosen, grace=parse_span(grace))
    if call.json:
        call.answer(found.to_json())
    else:
        call.print(installed_lines(call.context, found))
    return 1 if found.running is False else 0
