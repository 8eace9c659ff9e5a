"""`routines next`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("next", short_help="The coming instants.")
@click.argument("name", required=False)
@click.option("-n", "count", type=int, default=10, show_default=True, help="How many.")
@click.option("--from", "start", metavar="WHEN", help="From this instant on.")
@click.option("--to", "end", metavar="WHEN", help="Up to this instant.")
@click.option("--decide", is_flag=True, help="What each would meet from today's state.")
def command(
    call: Call, *, name: str | None, count: int, start: str | None, end: str | None, decide: bool
) -> None:
    """Show the coming instants, of one routine or of all."""
    from routines.domain.when import parse_when
    from routines.operations.upcoming import upcoming

    zone, now = call.context.zone_of(name), call.context.clock.now()
    found = upcoming(
        call.context,
        name,
        count=count,
        start=None if start is None else parse_when(start, zone=zone, now=now, past=False),
        end=None if end is None else parse_when(end, zone=zone, now=now, past=False),
        decide=decide,
    )
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.upcoming import next_screen

    call.print(next_screen(found, call.times(name), width=call.width))
