"""`routines session`."""

import click

from routines.cli.call import Call, group
from routines.cli.call import command as make


@make("list", short_help="The conversations.")
def list_(call: Call) -> None:
    """Show the sessions, the one with the newest turn first."""
    from routines.operations.conversations import list_conversations

    found = list_conversations(call.context)
    if call.json:
        call.answer([one.to_json() for one in found])
        return
    from routines.cli.screens.conversations import sessions_screen

    call.print(sessions_screen(found, call.times(), width=call.width))


@make("show", short_help="One of them.")
@click.argument("session")
def show(call: Call, *, session: str) -> None:
    """Show one session: which conversation it is, and who has it now."""
    from routines.operations.conversations import show_conversation

    found = show_conversation(call.context, session)
    if call.json:
        call.answer(found.to_json())
        return
    from routines.cli.screens.conversations import session_screen

    call.print(session_screen(found, call.times(), width=call.width))


@make("open", answers=False, short_help="Carry on by hand.")
@click.argument("session")
def open_(call: Call, *, session: str) -> int:
    """Run the agent's own program on that conversation; no turn meets it meanwhile."""
    from routines.operations import holding

    return holding.session_open(call.context, session)


@make(
    "hold",
    answers=False,
    short_help="Run a command with the session held.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("session")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND")
def hold(call: Call, *, session: str, words: tuple[str, ...]) -> int:
    """Run any command while no turn can use that conversation."""
    from routines.operations import holding

    return holding.session_hold(call.context, session, list(words))


@make("reset", short_help="Begin a conversation anew.")
@click.argument("session")
@click.option("--reason", default="", help="Kept in the ledger.")
def reset(call: Call, *, session: str, reason: str) -> None:
    """Begin a new epoch: the next turn starts a conversation of its own."""
    from routines.cli.escape import escape
    from routines.operations import holding

    ledger = holding.session_reset(call.context, session, reason=reason)
    if call.json:
        call.answer({"session": ledger.session, "epoch": ledger.epoch})
    else:
        call.print([f"{escape(ledger.session)} begins anew: epoch {ledger.epoch}"])


command = group(
    "session",
    commands=[list_, show, open_, hold, reset],
    no_args_is_help=True,
    short_help="The conversations.",
    help="Look at conversations, carry one on by hand, or begin it anew.",
)
