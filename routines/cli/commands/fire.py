"""`routines fire`."""

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("fire", short_help="Deliver one slot, for an outside clock.")
@click.argument("name")
@click.option("--slot", required=True, metavar="INSTANT", help="The slot, like 2026-11-29T09:00Z.")
def command(call: Call, *, name: str, slot: str) -> int:
    """Claim one slot, run it and settle it; delivered twice it runs once.

    One that has to wait for an earlier turn of its routine (`overlap`) is waited for. Exit code: 0
    when the slot is dealt with, 1 if its turn or the store failed or it is parked, 75 if its
    session or its group is busy, or it still has to wait or be tried again (deliver it again).
    """
    from routines.domain.when import parse_when
    from routines.operations import running
    from routines.operations.finding import check_known
    from routines.operations.history import as_entry

    check_known(call.context, name)
    zone, now = call.context.zone_of(name), call.context.clock.now()
    instant = parse_when(slot, zone=zone, now=now, past=True)
    result = running.fire(call.context, name, slot=instant)
    if call.json:
        found = result.record or result.missed
        record = None if found is None else as_entry(call.context, found).to_json()
        call.answer({"message": result.message, "record": record})
    elif result.message:
        call.note(result.message)
    return result.exit_code
