"""`routines wake`."""

import click

from routines.cli.call import Call, read_prompt
from routines.cli.call import command as make
from routines.domain.wake_texts import tools

# A model reads the same here as in the tool's schema.
_TOOL = tools(zone_key="that of the workspace")[0]
_HELP = f"""\
{_TOOL.description.replace("one of in, at, every, cron", "one of --in, --at, --every, --cron")}

PROMPT is {_TOOL.params["prompt"]} A lone - reads it from stdin.

Outside of a turn the wake-up gets a conversation of its own, unless --session names one.
"""


@make("wake", short_help="Be called again later.", help=_HELP)
@click.argument("prompt", nargs=-1, required=True)
@click.option("--in", "in_", metavar="SPAN", help=_TOOL.params["in"])
@click.option("--at", metavar="INSTANT", help=_TOOL.params["at"])
@click.option("--every", metavar="SPAN", help=_TOOL.params["every"])
@click.option("--cron", metavar="CRON", help=_TOOL.params["cron"])
@click.option("--tz", metavar="ZONE", help=_TOOL.params["tz"])
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
    """Set a wake-up and print its answer."""
    from routines.cli.escape import block
    from routines.operations import waking

    answer = waking.wake(
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
