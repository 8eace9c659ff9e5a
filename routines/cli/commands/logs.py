"""`routines logs`."""

import sys

import click

from routines.cli.call import Call, chunks
from routines.cli.call import command as make


@make("logs", short_help="What a turn printed.")
@click.argument("ref")
@click.option("-f", "--follow", is_flag=True, help="Go on until the turn has ended.")
def command(call: Call, *, ref: str, follow: bool) -> None:
    """Print what the turn of REF printed: stdout on stdout, stderr on stderr."""
    from routines.operations.showing import follow_logs, logs

    if follow:
        for text in chunks(follow_logs(call.context, ref)):
            click.echo(text, nl=False)
            sys.stdout.flush()
        return
    found = logs(call.context, ref)
    if call.json:
        call.answer(found.to_json())
        return
    for text in chunks([found.stdout]):
        click.echo(text, nl=False)
    sys.stdout.flush()
    for text in chunks([found.stderr]):
        click.echo(text, nl=False, err=True)
