"""`routines list`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("list", short_help="Every routine and where it stands.")
@click.option("--tag", "tags", multiple=True, help="Only routines with this tag.")
def command(call: Call, *, tags: tuple[str, ...]) -> None:
    """Show every routine: where it stands, what comes next and what was last."""
    from routines.operations.listing import list_routines

    listing = list_routines(call.context, week=call.wide or call.json, tags=tags)
    if listing.zone_note:
        call.note(f"note: {listing.zone_note}")
    if call.json:
        call.answer(listing.to_json())
        return
    from routines.cli.screens.listing import list_screen

    call.print(list_screen(listing, call.times(), width=call.width, home=call.context.home))
