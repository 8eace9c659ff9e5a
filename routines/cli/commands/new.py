"""`routines new`."""

import click

from routines.cli.call import Call, read_prompt
from routines.cli.call import command as make


@make("new", short_help="Write a new routine.")
@click.argument("name")
@click.argument("prompt", nargs=-1, required=True)
@click.option("--cron", multiple=True, help="Five fields or an @alias; may be given several times.")
@click.option("--every", metavar="SPAN", help="A span of at least 1m, like 30m or 1h30m.")
@click.option("--at", metavar="INSTANT", help='One instant, like "2026-11-30 09:00".')
@click.option("--tz", metavar="ZONE", help="Its zone, if it is not the workspace's.")
@click.option("--agent", help="Its agent, if it is not the workspace's.")
@click.option("--session", help="stable, fresh or named:NAME.")
@click.option("--description", help="For people who read the list.")
def command(
    call: Call,
    *,
    name: str,
    prompt: tuple[str, ...],
    cron: tuple[str, ...],
    every: str | None,
    at: str | None,
    tz: str | None,
    agent: str | None,
    session: str | None,
    description: str | None,
) -> None:
    """Write routines/NAME.yaml with a prompt and print its next three times.

    PROMPT is the text, or - to read it from stdin.
    """
    from routines.cli.screens.making import made_screen
    from routines.operations import making
    from routines.operations.zone_note import zone_note

    made = making.new(
        call.context,
        name,
        prompt=read_prompt(prompt),
        cron=cron,
        every=every,
        at=at,
        tz=tz,
        agent=agent,
        session=session,
        description=description,
    )
    note = zone_note(call.context)
    if note:
        call.note(f"note: {note}")
    if call.json:
        call.answer(made.to_json())
    else:
        call.print(made_screen(made, call.times(made.routine), first=False))
