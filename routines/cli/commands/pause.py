"""`routines pause`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("pause", short_help="Start nothing of a routine.")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "all_", is_flag=True, help="Everything, wake-ups and the queue included.")
@click.option("--tag", "tags", multiple=True, help="The routines with this tag.")
@click.option("--until", metavar="WHEN", help="When it ends by itself; a span is from now.")
@click.option("--reason", default="", help="For those who wonder.")
@click.option("--now", "now_", is_flag=True, help="Cancel what runs, too.")
def command(
    call: Call,
    *,
    names: tuple[str, ...],
    all_: bool,
    tags: tuple[str, ...],
    until: str | None,
    reason: str,
    now_: bool,
) -> None:
    """Start nothing of these routines until they are resumed; their wake-ups wait too.

    They stay armed: what falls due meanwhile is counted, and recorded as missed: paused.
    """
    from routines.domain.when import parse_when
    from routines.operations import switching

    one = names[0] if len(names) == 1 else None
    zone, now = call.context.zone_of(one), call.context.clock.now()
    results = switching.pause(
        call.context,
        names,
        all_=all_,
        tags=tags,
        until=None if until is None else parse_when(until, zone=zone, now=now, past=False),
        reason=reason,
        now_=now_,
    )
    if call.json:
        call.answer([result.to_json() for result in results])
        return
    from routines.cli.screens.switching import paused_screen

    call.print(paused_screen(results, call.times(one)))
