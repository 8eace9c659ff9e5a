"""`routines init`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from routines.cli.call import Call
from routines.cli.call import command as make

if TYPE_CHECKING:
    from routines.operations.making import AgentChoice


@make("init", short_help="Make a workspace of this folder.")
@click.option("--yes", is_flag=True, help="Ask nothing: the first agent found, the machine's zone.")
@click.option("--agent", help="The agent of routines that name none.")
@click.option("--tz", help="The zone in which times are read, like Europe/Berlin.")
def command(call: Call, *, yes: bool, agent: str | None, tz: str | None) -> None:
    """Make a workspace of this folder: routines.yaml, and one routine that only reads.

    What is there already stays as it is.
    """
    from routines.cli.screens.making import made_screen
    from routines.domain.zones import zone
    from routines.operations import making

    choices = making.agent_choices(call.context)
    ask = not yes and not call.json and sys.stdin.isatty()
    if agent is None:
        agent = _ask_agent(call, choices) if ask else choices[0].name
    if tz is None:
        usual = making.usual_zone(call.context)
        tz = click.prompt("Time zone", default=usual, err=True) if ask else usual
    made = making.init(call.context, tz=zone(tz).key, agent=_known(agent, choices))
    if call.json:
        call.answer(made.to_json())
    else:
        call.print(made_screen(made, call.times(made.routine), first=True))


def _ask_agent(call: Call, choices: "Sequence[AgentChoice]") -> str:
    from routines.cli.escape import escape
    from routines.operations import making

    for choice in making.choices_with_versions(call.context, choices):
        where = escape(choice.program or "") or "answers with the prompt: for a rehearsal"
        version = f" {choice.version}" if choice.version else ""
        click.echo(f"  {choice.name:<12} {where}{version}", err=True)
    return str(
        click.prompt(
            "Agent",
            default=choices[0].name,
            type=click.Choice([choice.name for choice in choices]),
            show_choices=False,
            err=True,
        )
    )


def _known(agent: str, choices: "Sequence[AgentChoice]") -> str:
    from routines.errors import UnknownAgent

    names = [choice.name for choice in choices]
    if agent not in names:
        raise UnknownAgent(agent, names)
    return agent
