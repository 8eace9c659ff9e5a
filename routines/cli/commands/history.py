"""`routines history`."""

from typing import TYPE_CHECKING

import click

from routines.cli.call import Call
from routines.cli.call import command as make

if TYPE_CHECKING:
    from routines.operations.history import Query


@make("history", short_help="What happened.")
@click.argument("name", required=False)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, 1_000_000_000),
    default=20,
    show_default=True,
    help="How many.",
)
@click.option("--outcome", metavar="OUTCOME", help="Only this outcome or state.")
@click.option("--since", metavar="WHEN", help="Not before this; a span is ago, like 18h.")
@click.option("--problems", is_flag=True, help="Only what went wrong; exit 1 if there is any.")
@click.option("--session", help="Only turns of this session.")
@click.option("--tag", "tags", multiple=True, help="Only of routines with this tag.")
@click.option("--before", metavar="REF", help="Only what is older than this occurrence.")
@click.option("--follow", is_flag=True, help="Go on with what is yet to happen.")
@click.option("--usage", "used", is_flag=True, help="What it cost: by day and routine.")
def command(
    call: Call,
    *,
    name: str | None,
    count: int,
    outcome: str | None,
    since: str | None,
    problems: bool,
    session: str | None,
    tags: tuple[str, ...],
    before: str | None,
    follow: bool,
    used: bool,
) -> int:
    """Show what happened, newest first: of one routine, or of all in the last 24 hours."""
    from routines.domain.when import parse_when
    from routines.operations.history import Query, history, newest

    zone, now = call.context.zone_of(name), call.context.clock.now()
    query = Query(
        routine=name,
        count=count,
        outcome=outcome,
        since=None if since is None else parse_when(since, zone=zone, now=now, past=True),
        problems=problems,
        session=session,
        before=before,
        tags=tags,
    )
    if used:
        if follow:
            raise click.UsageError("--usage and --follow exclude each other")
        _usage(call, query)
        return 0
    if follow:
        _follow(call, query)
        return 0
    if call.json:
        entries = newest(call.context, query)
        call.answer([entry.to_json() for entry in entries])
    else:
        from routines.cli.screens.history import history_screen

        found = history(call.context, query)
        entries = found.entries
        routine = None if name is None else call.context.workspace.routines.get(name)
        call.print(history_screen(found, routine, call.times(name), width=call.width))
    return 1 if problems and entries else 0


def _usage(call: Call, query: "Query") -> None:
    from routines.operations.usage import usage

    found = usage(call.context, query)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.usage import usage_screen

    call.print(usage_screen(found, call.times(query.routine), width=call.width))


def _follow(call: Call, query: "Query") -> None:
    from routines.cli.screens.history import history_line
    from routines.operations.history import follow

    for entry in follow(call.context, query):
        if call.json:
            call.answer_line(entry.to_json())
        else:
            call.print([history_line(entry, call.times(query.routine), width=call.width)])
        if call.reader_gone:
            return
