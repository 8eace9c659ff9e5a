"""How commands are called, what they exit with, and where what they say goes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from routines.cli.main import COMMANDS, group
from tests.surfaces.world import World, berlin

READ_ONLY = [
    ("list",),
    ("next",),
    ("next", "daily-digest"),
    ("history",),
    ("history", "daily-digest"),
    ("show", "daily-digest"),
    ("logs", "daily-digest"),
    ("explain", "daily-digest"),
    ("check",),
    ("doctor",),
    ("wakeups",),
    ("wakeups", "list"),
    ("jobs",),
    ("jobs", "list"),
    ("session", "list"),
    ("session", "show", "daily-digest"),
]


@pytest.fixture
def digest(ws: World) -> World:
    """A routine with one turn behind it."""
    ws.cron("daily-digest", "0 9 * * 1-5")
    ws.done("daily-digest", berlin("2026-11-27 09:00"), reply="Two merged.")
    ws.output("daily-digest/2026-11-27/2026-11-27T08-00-00Z", stdout="merged: 2\n", stderr="slow\n")
    ws.session("routine:daily-digest", agent="echo", turns=1)
    return ws


def every_file(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("words", READ_ONLY, ids=" ".join)
def test_read_only_commands_write_nothing(digest, words):
    digest.scheduler()
    before = every_file(digest.home)

    answer = digest.ask(*words)

    assert answer.err == "" or words[0] == "logs"
    assert answer.out
    assert every_file(digest.home) == before


@pytest.mark.parametrize("words", READ_ONLY, ids=" ".join)
def test_json_is_one_value_on_stdout(digest, words):
    answer = digest.ask(*words, "--json")

    assert isinstance(json.loads(answer.out), dict | list)
    assert "\x1b" not in answer.out


@pytest.mark.parametrize("words", READ_ONLY, ids=" ".join)
def test_read_only_commands_work_while_there_is_no_state_yet(ws, words):
    ws.routine("daily-digest", 'cron: "0 9 * * 1-5"\n')

    answer = ws.ask(*words, "--json")

    assert answer.code in (0, 1)
    assert not (ws.root / ".routines").exists()


def test_lists_are_arrays_and_the_rest_are_objects(digest):
    kinds = {words[0]: type(json.loads(digest.ask(*words, "--json").out)) for words in READ_ONLY}

    lists = {name for name, kind in kinds.items() if kind is list}
    assert lists == {"next", "history", "wakeups", "jobs"}


# Errors -----------------------------------------------------------------------------------------


def test_a_misspelt_routine_exits_1_and_names_the_near_one(digest):
    answer = digest.ask("show", "daily-diggest")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        "Error: there is no routine named 'daily-diggest'\nHint: did you mean 'daily-digest'?\n"
    )


def test_a_misspelt_command_exits_2_and_names_the_near_one(ws):
    answer = ws.ask("histroy")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "Error: there is no command 'histroy'\nHint: did you mean routines history?\n"
    )


def test_a_misspelt_command_of_a_group_names_the_near_one(ws):
    assert "did you mean routines session reset?" in ws.ask("session", "resett").err


def test_an_unknown_option_points_to_the_help_of_that_command(ws):
    answer = ws.ask("list", "--nope")

    assert answer.code == 2
    assert "routines list --help" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("history", "-n", "0"),
        ("history", "-n", "many"),
        ("history", "--outcome", "gren"),
        ("history", "--since", "10"),
        ("next", "-n", "0"),
        ("next", "--from", "tomorow"),
        ("next", "--from", "2026-12-02", "--to", "2026-12-01"),
        ("explain",),
        ("explain", "daily-digest", "sometime"),
        ("show",),
        ("logs",),
        ("check", "nowhere.yaml"),
        ("doctor", "--only", "weather"),
        ("doctor", "--adopt", "--fork"),
        ("new", "daily-digest"),
        ("new", ".hidden", "text"),
        ("new", "wake", "text"),
        ("new", "both", "--every", "1h", "--at", "2026-12-01 09:00", "text"),
        ("new", "daily-digest", "text"),
        ("start", "--grace", "30"),
        ("start", "--log-format", "xml"),
        ("fire", "daily-digest"),
        ("fire", "daily-digest", "--slot", "noon"),
        ("session", "hold", "s"),
        ("wakeups", "cancel"),
        ("schema", "state"),
    ],
    ids=" ".join,
)
def test_a_command_called_wrongly_exits_2_with_a_hint_and_changes_nothing(digest, words):
    before = every_file(digest.home)

    answer = digest.ask(*words)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Error: ")
    assert "Hint: " in answer.err or answer.err.count("\n") == 1
    assert every_file(digest.home) == before


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("show", "nothing"), "unknown-routine", 1),
        (("show", "daily-digest@2026-11-26 09:00"), "unknown-occurrence", 1),
        (("session", "show", "nobody"), "unknown-session", 1),
        (("wakeups", "show", "w-000000"), "unknown-wakeup", 1),
        (("history", "--since", "10"), "invalid-when", 2),
        (("start", "--grace", "30"), "invalid-span", 2),
        (("new", "a/b", "text"), "invalid-name", 2),
        (("new", "a", "--cron", "1", "text"), "invalid-files", 1),
        (("list", "--root", "/nowhere/at/all"), "no-workspace", 1),
        (("histroy",), "usage", 2),
        (("run", "daily-digest", "--detach"), "no-scheduler", 1),
    ],
)
def test_a_failure_with_json_is_an_object_on_stdout(digest, words, code, exit_code):
    answer = digest.ask(*words, "--json") if words[0] != "start" else digest.ask("--json", *words)

    error = json.loads(answer.out)["error"]
    assert (error["code"], answer.code, answer.err) == (code, exit_code, "")
    assert list(error) == ["code", "message", "hint", "path", "line"]


def test_a_bug_exits_3_and_leaves_its_traceback_in_a_file(digest, monkeypatch):
    def broken(*_args, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr("routines.operations.listing.list_routines", broken)
    digest.environ["XDG_STATE_HOME"] = str(digest.home / "xdg")

    answer = digest.ask("list", "--json")

    error = json.loads(answer.out)["error"]
    assert (answer.code, error["code"]) == (3, "bug")
    assert "ZeroDivisionError" in Path(error["path"]).read_text()


def test_an_interrupt_exits_130(digest, monkeypatch):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("routines.operations.listing.list_routines", interrupted)

    assert digest.ask("list").code == 130


def test_root_is_taken_before_and_after_the_command(digest, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    before = digest.ask("--root", str(digest.root), "list", cwd=elsewhere)
    after = digest.ask("list", "--root", str(digest.root), cwd=elsewhere)

    assert before == after
    assert before.code == 0


def test_problems_exits_1_if_there_is_one_and_0_if_not(digest):
    assert digest.ask("history", "daily-digest", "--problems").code == 0

    digest.done("daily-digest", berlin("2026-11-26 09:00"), "failed", "exit", "exit 1")

    answer = digest.ask("history", "daily-digest", "--problems")
    assert answer.code == 1
    assert "Thu 26 09:00" in answer.out
    assert "Fri 27 09:00" not in answer.out


def test_logs_keep_the_streams_of_the_turn_apart(digest):
    answer = digest.ask("logs", "daily-digest")

    assert (answer.out, answer.err) == ("merged: 2\n", "slow\n")


def test_logs_follow_ends_with_the_turn(digest):
    answer = digest.ask("logs", "-f", "daily-digest")

    assert (answer.code, answer.out) == (0, "merged: 2\nslow\n")


def test_schema_is_a_json_schema_of_either_file(ws):
    assert json.loads(ws.ask("schema").out)["title"] == "A routine"
    assert json.loads(ws.ask("schema", "workspace").out)["title"] == "A workspace of routines"


# As a process -----------------------------------------------------------------------------------


def routines(*words: str, cwd: Path, **options) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(
        [sys.executable, "-m", "routines", *words],
        cwd=cwd,
        env=environ,
        capture_output=True,
        **options,
    )


def test_a_reader_that_goes_away_is_no_error(digest):
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "routines", "history", "daily-digest"]
    ended = subprocess.run(
        words,
        cwd=digest.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)

    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words",
    [
        "history daily-digest --problems",
        "history daily-digest --problems --json",
        "doctor",
        "doctor --json",
    ],
)
def test_a_reader_that_goes_away_leaves_the_exit_code_as_it_is(digest, words):
    digest.end(digest.started(digest.claim("daily-digest", berlin("09:00"))), "failed", "agent")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "routines", *words.split()]
    ended = subprocess.run(
        command,
        cwd=digest.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)

    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("words", ["history daily-digest", "list --json", "run daily-digest"])
def test_an_output_that_is_closed_is_no_error(digest, words):
    ended = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m routines {words} >&-"],
        cwd=digest.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stderr=subprocess.PIPE,
    )

    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["list", "list --json", "--version", "no-such"])
def test_an_answer_that_can_not_be_written_is_said_and_is_no_bug(digest, words):
    ended = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m routines {words} >/dev/full"],
        cwd=digest.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stderr=subprocess.PIPE,
        text=True,
    )

    if words == "no-such":
        assert ended.returncode == 2
        return
    assert ended.returncode == 1
    first, _ = ended.stderr.splitlines()
    assert first == "Error: no answer: No space left on device"


def test_a_word_of_ten_thousand_characters_is_not_said_whole(ws):
    answer = ws.ask("show", "x" * 10_000)

    assert answer.code == 1
    assert len(answer.err) < 5000


@pytest.mark.parametrize("words", [("history",), ("jobs", "list")])
def test_an_absurd_count_is_an_error_of_the_call(ws, words):
    answer = ws.ask(*words, "-n", "9" * 20)

    assert answer.code == 2
    assert "is not in the range" in answer.err


def test_doctor_fails_where_the_state_folder_is_a_file(ws):
    (ws.root / ".routines").write_text("not a folder")

    answer = ws.ask("doctor", "--only", "state")

    assert answer.code == 1
    assert "is no folder" in answer.out


def test_a_narrow_encoding_never_becomes_a_traceback(digest):
    digest.done("daily-digest", berlin("2026-11-26 09:00"), reply="gr\u00fc\u00dfe \U0001f600")
    environ = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONPATH": os.getcwd()}
    ended = subprocess.run(
        [sys.executable, "-m", "routines", "history", "daily-digest"],
        cwd=digest.root,
        env={**environ, "HOME": str(digest.home)},
        capture_output=True,
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "gr\u00fc\u00dfe \U0001f600" in ended.stdout.decode()


def test_version_needs_no_workspace(tmp_path):
    ended = routines("--version", cwd=tmp_path)

    assert ended.returncode == 0
    assert ended.stdout.startswith(b"routines 1.")


# What the read-only commands have no use for; asyncio alone would cost them a third.
HEAVY = {
    "asyncio",
    "subprocess",
    "filelock",
    "dateutil",
    "routines.store.wakeups",
    "routines.domain.wakeup",
    "routines.agents",
}


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (
            ["--version"],
            {"asyncio", "yaml", "routines.operations", "subprocess", "importlib.metadata"},
        ),
        (["--help"], {"asyncio", "yaml", "routines.operations", "subprocess"}),
        (["list"], HEAVY),
        (["next"], HEAVY),
    ],
)
def test_a_command_imports_only_what_it_uses(digest, words, absent):
    code = (
        "import sys; from routines.cli.main import main; main(sys.argv[1:]);"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=digest.root,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
    )

    assert not absent & set(ended.stderr.split())


# The documentation ------------------------------------------------------------------------------


def every_command() -> list[tuple[str, click.Command]]:
    context = click.Context(group, info_name="routines")
    found = []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", one) for sub, one in command.commands.items()]
    return found


@pytest.mark.parametrize(("name", "command"), every_command(), ids=str)
def test_every_command_has_a_help_of_its_own(ws, name, command):
    answer = ws.ask(*name.split(), "--help")

    assert answer.code == 0
    assert answer.out.startswith(f"Usage: routines {name}")
    assert command.short_help


def test_the_reference_names_every_command_and_option():
    text = Path("docs/reference/commands.md").read_text()
    sections = {part.split("\n", 1)[0].strip("` "): part for part in text.split("\n## ")[1:]}

    assert set(sections) == {name for name, _ in every_command()}
    for name, command in every_command():
        for param in command.params:
            words = [*param.opts, *param.secondary_opts] if isinstance(param, click.Option) else []
            for word in words:
                if word not in ("--root", "--json"):
                    assert f"`{word}" in sections[name], (name, word)


def test_the_reference_names_no_option_that_is_not_there():
    text = Path("docs/reference/commands.md").read_text()
    sections = {part.split("\n", 1)[0].strip("` "): part for part in text.split("\n## ")[1:]}
    for name, command in every_command():
        known = {word for param in command.params for word in param.opts}
        table = [row.split("|")[1] for row in sections[name].splitlines() if row.startswith("| `-")]
        named = {word.split()[0] for cell in table for word in cell.strip(" `").split("`, `")}
        assert named <= known, name


def test_every_error_code_has_a_heading_in_troubleshooting():
    from routines.errors import all_codes

    text = Path("docs/troubleshooting.md").read_text()
    headings = {
        row.removeprefix("## ").strip("`") for row in text.splitlines() if row.startswith("## `")
    }

    assert headings == {*all_codes(), "bug", "interrupted", "not-written"}


NOT_UTF_8 = [
    (["wake", "--in", "5m", "-"], "wakeups"),
    (["jobs", "add", "-"], "jobs"),
    (["new", "other", "--every", "1d", "-"], "routines/other.yaml"),
    (["run", "daily", "--append", "-"], "claims"),
]


@pytest.mark.parametrize(("words", "made"), NOT_UTF_8)
def test_prompt_on_stdin_that_is_no_text_is_said_and_nothing_is_done(ws, monkeypatch, words, made):
    ws.settings("tz: UTC\nagent: echo\n")
    ws.routine("daily", "every: 1d\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("ä".encode() + b"\xff\xfe")))

    answer = ws.ask(*words)

    assert answer.code == 2
    assert "stdin is not UTF-8 text at byte 2; nothing was done" in " ".join(answer.err.split())
    for place in (ws.root / made, ws.root / ".routines" / made):
        assert not [one for one in place.rglob("*.json*") if one.is_file()]
        assert not place.is_file()


def test_prompt_in_words_that_are_no_text_is_said_and_nothing_is_done(ws):
    ws.settings("tz: UTC\nagent: echo\n")

    answer = ws.ask("wake", "--in", "5m", "look", os.fsdecode(b"\xff"))

    assert (answer.code, "the prompt is not UTF-8 text at byte 5" in answer.err) == (2, True)


def test_what_is_appended_is_read_from_stdin_for_a_dash(ws, monkeypatch):
    ws.settings("tz: UTC\nagent: echo\n")
    ws.routine("daily", "every: 1d\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("größer\n".encode())))

    assert ws.ask("run", "daily", "--append", "-").out.endswith("größer\n")
