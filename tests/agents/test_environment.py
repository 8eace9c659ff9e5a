"""A turn sees what its author meant it to see, and nothing of an agent around the scheduler."""

from datetime import timedelta

import pytest

from routines.agents.environment import SURROUNDING, environment, read_env_file
from routines.domain.outcome import Trigger
from routines.errors import InvalidFiles
from tests.agents.stubs import make_turn


def test_turn_is_told_root_state_session_routine_slot_turn_trigger_and_lateness():
    made = environment({}, make_turn(), root="/w", state="/w/.routines")

    assert made == {
        "ROUTINES_ROOT": "/w",
        "ROUTINES_STATE": "/w/.routines",
        "ROUTINES_SESSION": "routine:digest",
        "ROUTINES_ROUTINE": "digest",
        "ROUTINES_SLOT": "2026-07-01T09:00:00Z",
        "ROUTINES_TURN": "0f3c/digest@2026-07-01T09:00:00Z",
        "ROUTINES_TRIGGER": "schedule",
        "ROUTINES_LATE_S": "3",
    }


def test_what_does_not_apply_is_absent():
    turn = make_turn(slot=None, routine=None, trigger=Trigger.MANUAL, late=timedelta(0))

    made = environment(
        {"ROUTINES_SLOT": "old", "ROUTINES_ROUTINE": "old"}, turn, root="/", state="/s"
    )

    assert "ROUTINES_SLOT" not in made
    assert "ROUTINES_ROUTINE" not in made
    assert made["ROUTINES_LATE_S"] == "0"


@pytest.mark.parametrize("name", sorted(SURROUNDING))
def test_what_a_surrounding_agent_set_does_not_leak(name):
    assert name not in environment({name: "1"}, make_turn(), root="/w", state="/s")


def test_nothing_of_an_outer_turn_leaks():
    outer = {"ROUTINES_TURN": "outer", "ROUTINES_ANYTHING": "x", "ROUTINES_HTTP_TOKEN": "secret"}

    made = environment(outer, make_turn(), root="/w", state="/s")

    assert "outer" not in made.values()
    assert not {"ROUTINES_ANYTHING", "ROUTINES_HTTP_TOKEN"} & made.keys()


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
     "CODEX_HOME", "CODEX_API_KEY", "GEMINI_API_KEY", "OPENCODE_CONFIG", "ANTHROPIC_API_KEY"],
)  # fmt: skip
def test_settings_and_keys_of_a_person_stay(name):
    assert environment({name: "mine"}, make_turn(), root="/w", state="/s")[name] == "mine"


def test_later_sources_win_and_ours_wins_last(tmp_path):
    path = tmp_path / "secrets.env"
    path.write_text("A=file\nB=file\nC=file\n")

    made = environment(
        {"A": "base", "Z": "base"},
        make_turn(),
        root="/w",
        state="/s",
        env_file=str(path),
        env={"B": "routine", "C": "routine", "ROUTINES_TURN": "forged"},
        spec_env=[("C", "spec"), ("CLAUDECODE", "wanted after all")],
    )

    assert [made[key] for key in "ABCZ"] == ["file", "routine", "spec", "base"]
    assert made["ROUTINES_TURN"] == make_turn().key
    assert made["CLAUDECODE"] == "wanted after all"


def test_base_is_not_changed():
    base = {"CLAUDECODE": "1"}

    environment(base, make_turn(), root="/w", state="/s", env={"A": "b"})

    assert base == {"CLAUDECODE": "1"}


def test_env_file_takes_comments_exports_quotes_and_other_systems_line_ends(tmp_path):
    path = tmp_path / "e"
    path.write_bytes(
        '\ufeff# a comment\r\n\r\nexport KEY=value\r\nSPACES = around it \nQ="two words"\n'
        "S='single # not a comment'\nEMPTY=\nEQ=a=b=c\nHASH=a#b\nUML=ä€\nLIT=$HOME\\n\nexport=1\n"
        "FF=a\x0cb\u2028c".encode()
    )

    assert read_env_file(str(path)) == {
        "KEY": "value",
        "SPACES": "around it",
        "Q": "two words",
        "S": "single # not a comment",
        "EMPTY": "",
        "EQ": "a=b=c",
        "HASH": "a#b",
        "UML": "ä€",
        "LIT": "$HOME\\n",
        "export": "1",
        "FF": "a\x0cb\u2028c",
    }


def test_every_bad_line_is_reported_with_its_number_and_without_its_value(tmp_path):
    path = tmp_path / "e"
    path.write_text('GOOD=1\nsk-secret\n2KEY=sk-secret\nOPEN="sk-secret\nNUL=sk-\0secret\n')

    with pytest.raises(InvalidFiles) as caught:
        read_env_file(str(path))

    assert [(p.line, p.message) for p in caught.value.problems] == [
        (2, "a line without '='"),
        (3, "what stands before '=' is no name of a variable"),
        (4, "the quote that begins the value of OPEN is not closed"),
        (5, "the value of NUL holds a NUL byte"),
    ]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"A=\xff", "not UTF-8"),
        (b"A=" + b"x" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_env_file_that_cannot_be_used_is_named(tmp_path, content, message):
    path = tmp_path / "e"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidFiles, match=message) as caught:
        read_env_file(str(path))

    assert caught.value.path == str(path)
