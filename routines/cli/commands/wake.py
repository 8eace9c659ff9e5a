"""`routines wake`."""

import click

from routines.cli.call import Call, read_prompt
from routines.cli.call import command as make


@make("wake", short_help="Be called again later.")
@click.argument("prompt", nargs=-1, required=True)
@click.option("--in", "in_", metavar="SPAN", help="From now, like 30m; at least 1m.")
@click.option("--at", metavar="INSTANT", help="2026-11-30T09:00, or 09:00: its next coming.")
@click.option("--every", metavar="SPAN", help="Again and again, at least 10m apart.")
@click.option("--cron", metavar="CRON", help="Five fields, at least 10 min apart.")
@click.option("--tz", metavar="ZONE", help="For --at and --cron; the workspace's by default.")
@click.option("--session", help="The session to wake; that of this turn by default.")
def command(
    call: Call,
    *,
    prompt: tuple[str, ...],
    in_: str | None,
    at: str | None,
    every: str | None,
    cron: str | None,
    tz: str | None,
    session: str | None,
) -> None:
    """Be called again later, in this same conversation. Exactly one of --in, --at, --every, --cron.

    PROMPT is what you will be told, or - to read it from stdin. Say what to look at, what to do
    then, and when to stop. Outside of a turn the wake-up gets a conversation of its own, unless
    --session names one.
    """
    from routines.cli.escape import block
    from routines.operations import stepping_in

    answer = stepping_in.wake(
        call.context,
        prompt=read_prompt(prompt),
        in_=in_,
        at=at,
        every=every,
        cron=cron,
        tz=tz,
        session=session,
    )
    if call.json:
        call.answer(answer.data)
    else:
        call.print(block(answer.text).split("\n"))
