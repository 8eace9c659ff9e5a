"""`routines run`."""

import click

from routines.cli.call import Call, echo_output, read_prompt
from routines.cli.call import command as make


@make("run", short_help="Run one routine now.")
@click.argument("name")
@click.option(
    "--append", metavar="TEXT", help="Put below the prompt, for this turn only; - reads stdin."
)
@click.option("--agent", help="Another agent for this turn, in a session of its own.")
@click.option("--session", help="Another session for this turn.")
@click.option("--detach", is_flag=True, help="Hand it to the scheduler and print its id.")
def command(
    call: Call,
    *,
    name: str,
    append: str | None,
    agent: str | None,
    session: str | None,
    detach: bool,
) -> int:
    """Give one routine its prompt now and print the reply.

    Exit code: 0 completed, 1 any other outcome, 75 its session is busy.
    """
    from routines.cli.screens.running import ended_note
    from routines.operations import running
    from routines.operations.history import as_entry

    if append is not None:
        append = read_prompt((append,))
    result = running.run(
        call.context, name, append=append, agent=agent, session=session, detach=detach
    )
    entry = None if result.record is None else as_entry(call.context, result.record)
    if call.json:
        call.answer({"id": result.ref} if entry is None else entry.to_json())
    elif result.reply is not None:
        with call.while_read():
            echo_output([result.reply.removesuffix("\n")], ends="\n")
    elif entry is None:
        click.echo(result.ref)
    if entry is not None and not call.json:
        for note in ended_note(entry):
            call.note(note)
    return result.exit_code
