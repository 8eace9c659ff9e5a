"""`routines unwake`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("unwake", short_help="Cancel a pending wake-up.")
@click.argument("wakeup_id", metavar="ID")
def command(call: Call, *, wakeup_id: str) -> None:
    """Cancel one of your pending wake-ups; outside of a turn, any one."""
    from routines.cli.escape import block
    from routines.operations import waking

    answer = waking.unwake(call.context, wakeup_id)
    if call.json:
        call.answer(answer.data)
    else:
        call.print(block(answer.text).split("\n"))
