"""`routines wakeups`."""

import click

from routines.cli.call import Call, NearGroup, json_option, root_option
from routines.cli.call import command as make


@make("list", short_help="What is pending.")
@click.option("--session", help="Only of this session.")
def list_(call: Call, *, session: str | None) -> None:
    """Show the pending wake-ups, next first."""
    from routines.operations.alarms import list_alarms

    found = list_alarms(call.context, session=session)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.alarms import alarms_screen

    call.print(alarms_screen(found, call.times(), width=call.width))


@make("show", short_help="One of them whole.")
@click.argument("wakeup_id", metavar="ID")
def show(call: Call, *, wakeup_id: str) -> None:
    """Show one pending wake-up whole."""
    from routines.operations.alarms import alarm_json, show_alarm

    found = show_alarm(call.context, wakeup_id)
    if call.json:
        call.answer(alarm_json(found))
        return
    from routines.cli.screens.alarms import alarm_screen

    call.print(alarm_screen(found, call.times(), width=call.width))


@make("cancel", short_help="Cancel one, or many.")
@click.argument("wakeup_id", metavar="ID", required=False)
@click.option("--session", help="All of this session.")
@click.option("--all", "all_", is_flag=True, help="All of all sessions.")
def cancel(call: Call, *, wakeup_id: str | None, session: str | None, all_: bool) -> None:
    """Cancel one pending wake-up, those of a session, or all."""
    from routines.cli.escape import block
    from routines.errors import UsageError
    from routines.operations import unwaking

    if sum(map(bool, (wakeup_id, session, all_))) != 1:
        raise UsageError("cancel which? Write an ID, --session SESSION or --all")
    answers = unwaking.wakeups_cancel(call.context, wakeup_id=wakeup_id, session=session, all_=all_)
    if call.json:
        call.answer([answer.data for answer in answers])
    else:
        texts = [line for answer in answers for line in block(answer.text).split("\n")]
        call.print(texts or ["No wake-ups are pending."])
    if wakeup_id is None:
        running = unwaking.turns_under_way(call.context, session=session)
        if running:
            call.note(_may_set_others(running))


def _may_set_others(running: list[str]) -> str:
    who = f"{running[0]} still runs" if len(running) == 1 else f"{len(running)} turns still run"
    return (
        f"{who}, and may set others: routines pause --all --now ends every turn and"
        " holds all wake-ups back"
    )


class _Wakeups(NearGroup):
    """`routines wakeups` alone lists them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, with `list` put before options that stand alone."""
        alone = not args or args[0].startswith("-")
        if alone and not {"-h", "--help", *self.commands} & set(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)


command = _Wakeups(
    "wakeups",
    params=[root_option(), json_option()],
    short_help="Pending wake-ups.",
    help="Show what agents asked to be woken for; alone it lists what is pending.",
)
for _one in (list_, show, cancel):
    command.add_command(_one)
