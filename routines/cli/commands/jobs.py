"""`routines jobs`."""

import click

from routines.cli.call import Call, NearGroup, json_option, read_prompt, root_option
from routines.cli.call import command as make

# A page of the screen; -n shows more.
USUAL_COUNT = 20


@make("add", short_help="Put a prompt into the queue.")
@click.argument("prompt", nargs=-1, required=True)
@click.option("--id", "job_id", metavar="ID", help="Your name for it: the same again is a repeat.")
@click.option("--queue", default="default", show_default=True, help="Which queue.")
@click.option("--lane", help="What it can be failed together with.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")
@click.option("--session", help="The conversation; by default one of its own.")
@click.option("--agent", help="Who answers it.")
@click.option(
    "--recoveries",
    type=int,
    default=0,
    show_default=True,
    help="How often it may run again after an interrupted turn.",
)
@click.option("--after", metavar="INSTANT|SPAN", help="Not before then.")
def add(
    call: Call,
    *,
    prompt: tuple[str, ...],
    job_id: str | None,
    queue: str,
    lane: str | None,
    priority: int,
    session: str | None,
    agent: str | None,
    recoveries: int,
    after: str | None,
) -> None:
    """Put PROMPT, or all of stdin for `-`, into the durable queue; it is on the disk on return."""
    from routines.operations.queue import add_job

    added = add_job(
        call.context,
        read_prompt(prompt),
        job_id=job_id,
        queue=queue,
        lane=lane,
        priority=priority,
        session=session,
        agent=agent,
        recoveries=recoveries,
        after=after,
    )
    if call.json:
        call.answer(added.to_json())
        return
    from routines.cli.screens.jobs import added_lines

    call.print(added_lines(added, call.times()))


@make("list", short_help="What runs and what is next.")
@click.option("--queue", help="Only of this queue.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, 1_000_000_000),
    default=USUAL_COUNT,
    help="How many at most.",
)
def list_(call: Call, *, queue: str | None, count: int) -> None:
    """Show what runs of the queue, then what is next, in its order."""
    from routines.operations.queue import list_jobs

    found = list_jobs(call.context, queue=queue, count=count)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.jobs import jobs_screen

    call.print(jobs_screen(found, call.times(), width=call.width))


@make("show", short_help="One of them whole.")
@click.argument("job_id", metavar="ID")
def show(call: Call, *, job_id: str) -> None:
    """Show one job whole, also after it has ended."""
    from routines.operations.queue import show_job

    found = show_job(call.context, job_id)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.jobs import job_screen

    call.print(job_screen(found, call.times()))


@make("cancel", short_help="Cancel one.")
@click.argument("job_id", metavar="ID")
@click.option("--if-queued", is_flag=True, help="Leave it alone if it runs.")
@click.option("--intent", metavar="ID", help="Your name for this cancel: with it, ask again.")
@click.option("--reason", default="", help="Kept in the record.")
@click.pass_context
def cancel(
    ctx: click.Context,
    call: Call,
    *,
    job_id: str,
    if_queued: bool,
    intent: str | None,
    reason: str,
) -> None:
    """Cancel a job: one that is queued ends at once, one that runs is asked to."""
    from routines.operations.queue import cancel_job

    answer = cancel_job(
        call.context, job_id, intent=intent, only_if_queued=if_queued, reason=reason
    )
    if call.json:
        call.answer(
            {
                "id": job_id,
                "result": answer.word.value,
                "outcome": answer.outcome,
                "detail": answer.detail,
            }
        )
    else:
        from routines.cli.screens.jobs import cancelled_line

        call.print([cancelled_line(job_id, answer)])
    if answer.word == "conflict":
        ctx.exit(1)


class _Jobs(NearGroup):
    """`routines jobs` alone lists them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, with `list` put before options that stand alone."""
        alone = not args or args[0].startswith("-")
        if alone and not {"-h", "--help", *self.commands} & set(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


command = _Jobs(
    "jobs",
    params=[root_option(), json_option()],
    short_help="The durable queue of prompts.",
    help="Put prompts into the durable queue, and see what became of them; alone it lists them.",
)
for _one in (add, list_, show, cancel):
    command.add_command(_one)
