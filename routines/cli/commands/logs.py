"""`routines logs`."""

import click

from routines.cli.call import Call, echo_output
from routines.cli.call import command as make


@make("logs", short_help="What a turn printed.")
@click.argument("ref")
@click.option("-f", "--follow", is_flag=True, help="Go on until the turn has ended.")
def command(call: Call, *, ref: str, follow: bool) -> None:
    """Print what the turn of REF printed: stdout on stdout, stderr on stderr."""
    from routines.operations.showing import follow_logs, logs

    if follow:
        echo_output(follow_logs(call.context, ref))
        return
    found = logs(call.context, ref)
    if call.json:
        call.answer(found.to_json())
        return
    echo_output([found.stdout])
    echo_output([found.stderr], err=True)
