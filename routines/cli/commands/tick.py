"""`routines tick`."""

import click

from routines.cli.call import Call, say_error
from routines.cli.call import command as make


@make("tick", short_help="One pass, for crontab and timers.")
@click.argument("names", nargs=-1)
def command(call: Call, *, names: tuple[str, ...]) -> int:
    """Run what is due, wait for it and print the counts; safe beside a scheduler.

    What falls due meanwhile is left to the next. Exit code: 0 if all that it claimed completed, or
    nothing was due; 1 also if the store refused something that is owed.
    """
    from routines.operations import running

    result = running.tick(call.context, list(names))
    if call.json:
        told = [("error", one.as_json()) for one in result.errors[:1]]
        call.answer({**result.counts, **dict(told)})
    else:
        words = [f"{count} {word}" for word, count in result.counts.items() if count]
        nothing = "" if result.errors else "nothing was due"
        call.print(filter(None, [", ".join(words) or nothing]))
        for error in result.errors:
            say_error(error.message, error.hint)
    return result.exit_code
