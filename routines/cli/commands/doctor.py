"""`routines doctor`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("doctor", short_help="Health, with an exit code.")
@click.option("--only", metavar="NAMES", help="Subjects with commas, like scheduler,state.")
@click.option("--adopt", is_flag=True, help="The state folder was moved: take it as it is.")
@click.option("--fork", is_flag=True, help="The state folder is a copy: give it its own id.")
def command(call: Call, *, only: str | None, adopt: bool, fork: bool) -> int:
    """Say whether everything is well; exit 1 if something fails."""
    from routines.cli.screens.health import doctor_screen
    from routines.errors import UsageError
    from routines.operations.health import Health, doctor, take_over

    if adopt and fork:
        raise UsageError("--adopt is for a folder that was moved, --fork for a copy: write one")
    if adopt or fork:
        found = Health((take_over(call.context, fork=fork),))
    else:
        found = doctor(call.context, [name for name in (only or "").split(",") if name])
    if call.json:
        call.answer(found.to_json())
    else:
        foot = not (adopt or fork)
        call.print(doctor_screen(found, call.times(None), width=call.width, foot=foot))
    return 1 if found.failed else 0
