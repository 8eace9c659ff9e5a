"""Text from a model, a name or a file never moves the cursor, forges a row or reorders one (BR-52)."""

import json
import re

import pytest

from routines.cli.escape import block, escape, fit, line, pad, width, wrap
from tests.surfaces.world import World, berlin

RLO, LS, NUL, ESC, BELL = "\u202e", "\u2028", "\0", "\x1b", "\x07"
EVIL = f"{ESC}[2J{ESC}]0;owned{BELL}\r\n! ok  completed  all fine{NUL}{LS}{RLO}gnitrower"
# What may never reach a terminal from a record: controls, separators, bidi overrides.
DANGEROUS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        (f"{ESC}[2J", r"\x1b[2J"),
        (f"{ESC}]0;t{BELL}", r"\x1b]0;t\x07"),
        ("a\r\nb", r"a\r\nb"),
        ("a\tb", r"a\tb"),
        (NUL, r"\x00"),
        (LS, r"\u2028"),
        (RLO, r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\x9b2J", r"\x9b2J"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        # Letters of any script, emoji and what joins them are text.
        (
            "gr\u00fc\u00dfe \u65e5\u672c \U0001f469\u200d\U0001f4bb",
            "gr\u00fc\u00dfe \u65e5\u672c \U0001f469\u200d\U0001f4bb",
        ),
    ],
)
def test_what_could_move_the_cursor_is_shown_and_not_sent(text, shown):
    assert escape(text) == shown


def test_prose_on_one_line_has_its_white_space_folded():
    assert line(" two\n\n  lines \t here ") == "two lines here"


def test_a_block_keeps_its_lines_and_tabs_and_nothing_else():
    assert block(f"a\r\n\tb{ESC}[31m\nc") == "a\n\tb\\x1b[31m\nc"


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("\u65e5\u672c", 4), ("e\u0301", 1), ("\U0001f600", 2), ("", 0)],
)
def test_wide_and_combining_characters_are_counted_as_a_terminal_draws_them(text, columns):
    assert width(text) == columns
    assert width(pad(text, 10)) == 10


@pytest.mark.parametrize("columns", range(3, 12))
def test_a_cut_text_ends_in_dots_and_never_takes_more(columns):
    cut = fit("\u65e5\u672c\u8a9e\u306e\u6587 text", columns)

    assert width(cut) <= columns
    assert cut.endswith("...")


def test_wrapping_breaks_at_spaces_and_keeps_every_word():
    lines = wrap("one two three four", 9, indent="  ")

    assert lines == ["one two", "  three", "  four"]


@pytest.fixture
def evil(ws: World) -> World:
    """Everything that a model, a program or a person outside can put into the files."""
    ws.cron("daily", "0 9 * * *", f"description: {json.dumps(EVIL)}\n")
    ws.done(
        "daily",
        berlin("2026-11-27 09:00"),
        "failed",
        "agent",
        EVIL,
        claim={
            "by": EVIL,
            "prompt": EVIL,
            "agent": EVIL,
            "model": EVIL,
            "cwd": EVIL,
            "session": EVIL,
        },
        reply=EVIL,
        warnings=[EVIL],
        native_session=EVIL,
    )
    ws.done("daily", berlin("2026-11-28 09:00"), reply=EVIL, warnings=[])
    ws.output(
        "daily/2026-11-27/2026-11-27T08-00-00Z", prompt=EVIL, reply=EVIL, stdout=EVIL, stderr=EVIL
    )
    ws.session(EVIL, agent=EVIL, native_session=EVIL, epoch_reason=EVIL)
    ws.routine("broken", f"{json.dumps(EVIL)}: 1\n")
    return ws


SCREENS = [
    ("list",),
    ("history",),
    ("history", "daily"),
    ("history", "daily", "--problems"),
    ("show", "daily@2026-11-27 09:00"),
    ("show", "daily"),
    ("explain", "daily", "2026-11-27 09:00"),
    ("explain", "daily"),
    ("check",),
    ("doctor",),
    ("session", "list"),
    ("session", "show", EVIL),
    ("show", f"daily@{EVIL}"),
    ("show", EVIL),
    (EVIL,),
    ("list", f"--{EVIL}"),
    ("history", "--outcome", EVIL),
    ("new", EVIL.replace("\0", ""), "text"),
]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", SCREENS, ids=range(len(SCREENS)))
def test_no_screen_and_no_error_sends_what_a_model_wrote_raw(evil, words, columns):
    answer = evil.ask(*words, width=columns)

    for printed in (answer.out, answer.err):
        assert not DANGEROUS.search(printed)
        # A prompt and a reply are shown whole, under heads of their own; elsewhere one line is one
        # record.
        forged = [row for row in printed.splitlines() if row.startswith("! ok  completed")]
        assert words[0] == "show" or not forged


@pytest.mark.parametrize("columns", [80, 120])
def test_one_record_is_one_line(evil, columns):
    answer = evil.ask("history", "daily", width=columns)

    rows = answer.out.split("\n\n")[1].splitlines()
    assert len(rows) == 1 + 2
    assert all(width(row) <= columns for row in rows)


def test_json_gives_the_text_exactly_as_it_was(evil):
    (entry,) = json.loads(evil.ask("history", "daily", "--outcome", "failed", "--json").out)

    assert entry["reply"] == EVIL
    assert entry["by"] == EVIL


def test_output_that_is_piped_is_exact(evil):
    assert evil.ask("logs", "daily@2026-11-27 09:00").out == EVIL


def test_output_on_a_terminal_is_harmless(evil, monkeypatch):
    monkeypatch.setattr("routines.cli.call.is_terminal", lambda: True)

    answer = evil.ask("logs", "daily@2026-11-27 09:00")

    assert not DANGEROUS.search(answer.out + answer.err)


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_stands_only_on_a_terminal_and_obeys_no_color(evil, monkeypatch, environ, coloured):
    monkeypatch.setattr("routines.cli.call.is_terminal", lambda: True)
    evil.environ.update(environ)

    coloured_screen = evil.ask("history", "daily")
    monkeypatch.undo()
    plain = evil.ask("history", "daily")

    assert ("\x1b[31m" in coloured_screen.out) is coloured
    assert re.sub(r"\x1b\[[0-9]+m", "", coloured_screen.out) == plain.out
