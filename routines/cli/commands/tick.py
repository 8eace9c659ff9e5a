"""`routines tick`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("tick", short_help="One pass, for crontab and timers.")
@click.argument("names", nargs=-1)
def command(call: Call, *, names: tuple[str, ...]) -> int:
    """Run what is due, wait for it and print the counts; safe beside a scheduler.

    What falls due meanwhile is left to the next. Exit code: 0 if all that it claimed completed, or
    nothing was due.
    """
    from routines.operations import running

    result = running.tick(call.context, list(names))
    if call.json:
        call.answer(result.counts)
    else:
        words = [f"{count} {word}" for word, count in result.counts.items() if count]
        call.print([", ".join(words) or "nothing was due"])
    return result.exit_code
