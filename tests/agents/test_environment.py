"""A turn sees what its author meant it to see, and nothing of an agent around the scheduler."""

from datetime import timedelta

import pytest

from routines.agents.environment import environment, read_env_file
from routines.agents.surroundings import SURROUNDING
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


# What a real Claude Code 2.1.332 gave what it started, of which half was in no list of ours.
CLAUDE_AROUND = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_CHILD_NOTES_DIR": "/notes",
    "CLAUDE_CODE_MESSAGING_TOKEN": "t",
    "CLAUDE_CODE_SESSION_ATTENDED": "1",
    "CLAUDE_EFFORT": "high",
    "CLAUDE_PID": "7",
    "GIT_EDITOR": "true",
    "NoDefaultCurrentDirectoryInExePath": "1",
    "COREPACK_ENABLE_AUTO_PIN": "0",
}


def test_nothing_of_a_real_claude_leaks():
    made = environment(CLAUDE_AROUND, make_turn(), root="/w", state="/s")

    assert not CLAUDE_AROUND.keys() & made.keys()


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("CLAUDECODE", "CLAUDE_CODE_OF_NEXT_YEAR"),
        ("CLAUDECODE", "CLAUDE_OF_NEXT_YEAR_TOKEN"),
        ("CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR"),
        ("CODEX_THREAD_ID", "CODEX_OF_NEXT_YEAR"),
        ("GEMINI_CLI", "GEMINI_CLI_OF_NEXT_YEAR"),
        ("QWEN_CODE", "QWEN_CODE_MESSAGING_TOKEN"),
    ],
)
def test_what_no_list_knows_yet_goes_where_its_program_is_around(sign, name):
    around = environment({sign: "1", name: "x"}, make_turn(), root="/w", state="/s")
    alone = environment({sign: "", name: "x"}, make_turn(), root="/w", state="/s")

    assert name not in around
    # A service or a shell has no such sign, and loses nothing to a guess.
    assert alone[name] == "x"


def test_an_editor_that_a_person_chose_stays():
    base = CLAUDE_AROUND | {"GIT_EDITOR": "vim"}

    assert environment(base, make_turn(), root="/w", state="/s")["GIT_EDITOR"] == "vim"


def test_what_env_and_env_file_say_stays_whatever_is_around(tmp_path):
    (tmp_path / "env").write_text("CLAUDE_CODE_MESSAGING_TOKEN=mine\n")

    made = environment(
        CLAUDE_AROUND,
        make_turn(),
        root="/w",
        state="/s",
        env_file=str(tmp_path / "env"),
        env={"CLAUDE_OF_NEXT_YEAR": "mine"},
    )

    assert made["CLAUDE_CODE_MESSAGING_TOKEN"] == made["CLAUDE_OF_NEXT_YEAR"] == "mine"


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
     "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
     "CLAUDE_CODE_DISABLE_CRON", "CODEX_HOME", "CODEX_API_KEY", "GEMINI_API_KEY",
     "GEMINI_CLI_HOME", "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "QWEN_CODE_SYSTEM_SETTINGS_PATH",
     "QWEN_CODE_DISABLE_CRON", "OPENCODE_CONFIG", "ANTHROPIC_API_KEY"],
)  # fmt: skip
def test_settings_and_keys_of_a_person_stay(name):
    around = CLAUDE_AROUND | {"CODEX_CI": "1", "GEMINI_CLI": "1", "QWEN_CODE": "1", "OPENCODE": "1"}

    for base in ({}, around):
        made = environment(base | {name: "mine"}, make_turn(), root="/w", state="/s")
        assert made[name] == "mine"


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
