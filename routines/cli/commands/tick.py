"""`routines tick`."""

import click

from routines.cli.call import Call, say_error
from routines.cli.call import command as make


@make("tick", short_help="One pass, for crontab and timers.")
@click.argument("names", nargs=-1)
def command(call: Call, *, names: tuple[str, ...]) -> int:
    """Run what is due, wait for it and print the counts; safe beside a scheduler.

    What falls due meanwhile is left to the next, and what waits for its session or a place is
    counted. Exit code: 0 if all that it claimed completed or was recorded without running, or
    nothing was due; 1 also if the store refused something that is owed.
    """
    from routines.operations import running

    result = running.tick(call.context, list(names))
    if call.json:
        told = [("error", one.as_json()) for one in result.errors[:1]]
        waiting = {"waiting": result.waiting} if result.waiting else {}
        call.answer({**result.counts, **waiting, **dict(told)})
    else:
        words = [f"{count} {word}" for word, count in result.counts.items() if count]
        if result.waiting:
            words.append(f"{result.waiting} {'waits' if result.waiting == 1 else 'wait'}")
        nothing = "" if result.errors else "nothing was due"
        call.print(filter(None, [", ".join(words) or nothing]))
        for error in result.errors:
            say_error(error.message, error.hint)
    return result.exit_code
