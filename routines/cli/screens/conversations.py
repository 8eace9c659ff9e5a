"""`session`: the conversations."""

from collections.abc import Sequence

from routines.cli.escape import escape, line
from routines.cli.screens.table import Column, Row, layout
from routines.cli.times import Times
from routines.operations.conversations import Conversation


def sessions_screen(found: Sequence[Conversation], times: Times, *, width: int) -> list[str]:
    """Return the list."""
    head = f"times in {times.head}"
    if not found:
        return [head, "", "No session has had a turn yet."]
    columns = [
        Column("SESSION", 24, most=40, cut=False),
        Column("AGENT", 8, most=16),
        Column("TURNS", 5, most=7),
        Column("EPOCH", 5),
        Column("LAST", 12, most=20),
        Column("NOW", 8, rest=True),
    ]
    rows = [_row(one, times) for one in found]
    return [head, "", *layout(columns, rows, total=width)]


def _row(one: Conversation, times: Times) -> Row:
    ledger = one.ledger
    cells = [
        escape(ledger.session),
        escape(ledger.agent or "-"),
        str(ledger.turns),
        str(ledger.epoch),
        "-" if ledger.last_at is None else times.cell(ledger.last_at.replace(second=0)),
        _busy(one) or "free",
    ]
    return Row(cells, "*" if one.busy else " ")


def _busy(one: Conversation) -> str:
    if one.busy is None:
        return ""
    return line(f"busy: {one.busy.holder}" if one.busy.holder else "busy")


def session_screen(one: Conversation, times: Times, *, width: int) -> list[str]:  # noqa: ARG001
    """Return one conversation."""
    ledger = one.ledger
    count = f"{ledger.turns} turn{'' if ledger.turns == 1 else 's'}"
    turns = f"{count}, {ledger.epoch_turns} of them in epoch {ledger.epoch}"
    lines = [
        escape(ledger.session),
        f"{escape(ledger.agent or 'no agent yet')}; {turns}",
    ]
    if ledger.epoch_reason:
        lines.append(f"epoch {ledger.epoch} began: {line(ledger.epoch_reason)}")
    if ledger.native_session:
        lines.append(f"known to the program as {escape(ledger.native_session)}")
    if ledger.last_at is not None:
        lines.append(f"last turn ended {times.sentence(ledger.last_at)} {times.head}")
    return [*lines, _busy(one) or "free now"]
