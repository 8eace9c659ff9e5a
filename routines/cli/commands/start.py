"""`routines start`."""

from functools import partial

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("start", answers=False, short_help="Run the scheduler.")
@click.option(
    "--grace", default="30s", show_default=True, metavar="SPAN", help="For turns at a stop."
)
@click.option("--leave-turns", is_flag=True, help="At a stop, leave turns to their own processes.")
@click.option(
    "--external-clock", is_flag=True, help="Arm nothing: slots come by fire or tick from outside."
)
@click.option(
    "--http", metavar="HOST:PORT", help="Serve /metrics and /health there: 127.0.0.1:9464."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people or for programs.",
)
def command(
    call: Call,
    *,
    grace: str,
    leave_turns: bool,
    external_clock: bool,
    http: str | None,
    log_format: str,
) -> int:
    """Run the scheduler until it is stopped: SIGTERM, SIGHUP or ^C."""
    from routines.domain.durations import parse_span
    from routines.operations import running

    start = partial(
        running.start,
        call.context,
        grace=parse_span(grace),
        leave_turns=leave_turns,
        log_format=log_format,
        external_clock=external_clock,
    )
    if http is None:
        return start()
    from routines.web.opening import opened

    with opened(http, call.context) as companion:
        return start(companion=companion)
