"""No row of a table is wider than the terminal, whatever the names and texts are (screens 4)."""

import pytest

from routines.cli.escape import width as columns_of
from routines.cli.screens.table import Column, Row, layout
from routines.domain.occurrence import Kind
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.store.wakeups import WakeupStore
from tests.surfaces.world import NOW, World, berlin

NAME = "weekly-report-of-all-that-happened"
# What is longer than its line leaves no room for anything.
LONGEST_NAME = "n" * 100
WIDE_NAME = "週次レポート-毎週月曜日の朝"
LONG = "one word after the other and none of them the last, " * 8
HOST = "a-very-long-user-name@a-host-with-a-very-long-name.example.org"


def a_world_of_long_things(ws: World) -> None:
    ws.settings("tz: America/Argentina/ComodRivadavia\nagent: echo\nconcurrency: 1\n")
    ws.clock = type(ws.clock)(NOW)
    ws.scheduler()
    crons = ", ".join(f'"{minute} 3,5,7,9,11,13 * * 1-5"' for minute in range(0, 50, 10))
    for name in (NAME, WIDE_NAME, "short"):
        ws.routine(name, f"cron: [{crons}]\ntz: Europe/Berlin\ndescription: {LONG}\n")
        ws.done(
            name, berlin("2025-11-24 09:00"), "failed", "exit", LONG, took=200_000, turn=123_456
        )
        usage = {"usd": 12_345.678, "tokens": 1_234_567_890}
        ws.done(name, berlin("2026-03-20 09:00"), reply=LONG, usage=usage, warnings=[LONG])
        ws.done(name, berlin("2026-11-29 15:00"), "failed", "exit", LONG, usage=usage)
        ws.started(ws.claim(name, berlin("16:00"), by=HOST))
        hand = ws.claim(name, berlin("16:12"), kind=Kind.MANUAL, occurrence_id="k3m9q2", by=HOST)
        ws.started(hand)
        ws.end(hand, reply=LONG, usage=usage)
        ws.session(f"routine:{name}", agent="an-agent-with-a-long-name", turns=1_234_567)
        for number, way in enumerate(({"at": "2027-03-29T09:00"}, {"every": "100h"})):
            request = WakeRequest(prompt=LONG + str(number), session=f"routine:{name}", by=HOST, turn=f"w/{name}@2026-11-29T15:00:00Z", **way)  # fmt: skip
            WakeupStore(ws.state).wake(
                request, now=NOW, bounds=DEFAULT_BOUNDS, zone_key="Europe/Berlin"
            )
    for queue in ("default", "a-queue-with-a-long-name-of-its-own"):
        ws.ask("jobs", "add", "--queue", queue, "--priority", "1000000", LONG)
    ws.ask("jobs", "add", "--id", "a-job-whose-id-was-made-by-a-program-4711", LONG)
    ws.ask("pause", NAME, "--reason", LONG)


COMMANDS = [
    ("list",),
    ("next", "-n", "4"),
    ("next", "short", "-n", "4", "--decide"),
    ("next", "-n", "4", "--decide"),
    ("history", "--since", "500d"),
    ("history", NAME),
    ("history", "--usage", "--since", "500d"),
    ("wakeups", "list"),
    ("session", "list"),
    ("jobs", "list"),
]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(ws, width):
    a_world_of_long_things(ws)

    for words in COMMANDS:
        answer = ws.ask(*words, width=width)
        too_wide = [line for line in answer.out.splitlines() if columns_of(line) > width]

        assert answer.code == 0, answer.err
        assert len(answer.out.splitlines()) > 3
        assert too_wide == [], words


@pytest.mark.parametrize("width", [80, 120])
def test_a_name_is_never_cut_and_its_row_wraps_where_it_leaves_no_room(ws, width):
    ws.scheduler()
    ws.cron(LONGEST_NAME, "0 9 * * *")
    ws.cron("short", "0 9 * * *")
    ws.done(LONGEST_NAME, berlin("09:00"))

    for words in (("list",), ("next",), ("history",)):
        lines = ws.ask(*words, width=width).out.splitlines()

        assert any(LONGEST_NAME in line for line in lines)
        assert all(columns_of(line) <= width for line in lines if LONGEST_NAME not in line)


A, B = "a" * 20, "b" * 12


@pytest.mark.parametrize(
    ("total", "rest"),
    [
        (90, f"ccccccc...  {'d' * 30}...  eeeee"),
        (60, "cc...  ddddd...  eeeee"),
        (50, "...  ..."),
        (46, "...  ..."),
        (36, ""),
    ],
)
def test_a_row_out_of_line_gives_up_its_long_text_first_and_its_names_never(total, rest):
    columns = [
        Column("A", 5, cut=False),
        Column("B", 5, cut=False),
        Column("C", 10),
        Column("D", 8, rest=True),
        Column("E", 5),
    ]
    cells = [A, B, "c" * 30, "d" * 60, "e" * 5]

    *_, row = layout(columns, [Row(cells)], total=total)

    assert row == f"  {A}  {B}  {rest}".rstrip()
    assert columns_of(row) <= total
