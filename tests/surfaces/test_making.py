"""`init`, `new` and `check`: files that are right the first time, and are never overwritten."""

import io
import json

import pytest

from tests.surfaces.world import World, world


@pytest.fixture
def empty(tmp_path):
    with world(tmp_path) as made:
        yield made


def test_init_writes_a_workspace_that_works(empty):
    answer = empty.ask("init", "--yes")

    assert answer.code == 0
    assert "tz: Europe/Berlin" in (empty.root / "routines.yaml").read_text()
    assert empty.ask("check").code == 0
    assert (empty.root / ".routines" / ".gitignore").read_text() == "*\n"
    assert answer.out.splitlines()[-3:] == [
        "routines run daily-digest   # now, once, by hand",
        "routines start              # from now on, at its times",
        "routines history daily-digest",
    ]


def test_init_takes_the_first_agent_that_is_there(empty):
    empty.program("claude")

    empty.ask("init", "--yes")

    settings = (empty.root / "routines.yaml").read_text()
    assert "agent: claude-code\n" in settings
    # A preset needs no entry.
    assert "agents:" not in settings
    assert empty.ask("check").code == 0


def test_init_offers_the_programs_that_are_there_with_their_versions(empty, monkeypatch):
    empty.program("claude", "echo '2.1.332 (Claude Code)'")
    empty.program("pi", "echo 1.6.0; sleep 60 & exit 1")
    monkeypatch.setattr("sys.stdin", Terminal("pi\nEurope/Riga\n"))

    answer = empty.ask("init")

    home = empty.home
    assert answer.err.splitlines()[:3] == [
        f"  claude-code  {home}/bin/claude 2.1.332",
        # Its version is no reason to leave it out.
        f"  pi           {home}/bin/pi",
        "  echo         answers with the prompt: for a rehearsal",
    ]
    assert "agent: pi\n" in (empty.root / "routines.yaml").read_text()


@pytest.mark.parametrize("words", [["--yes"], ["--json"], ["--agent", "claude-code"]], ids=str)
def test_init_that_shows_no_versions_starts_no_program(empty, monkeypatch, words):
    empty.program("claude", f": > {empty.home}/asked; echo 2.1.332")
    monkeypatch.setattr("sys.stdin", Terminal("Europe/Riga\n"))

    assert empty.ask("init", *words).code == 0

    assert not (empty.home / "asked").exists()
    assert "agent: claude-code\n" in (empty.root / "routines.yaml").read_text()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_init_keeps_what_exists(empty):
    empty.settings("tz: Europe/Riga\nagent: echo\n")
    empty.routine("mine", 'cron: "0 9 * * *"\n')

    answer = empty.ask("init", "--yes")

    assert answer.code == 0
    assert (empty.root / "routines.yaml").read_text() == "tz: Europe/Riga\nagent: echo\n"
    assert [path.name for path in (empty.root / "routines").iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("words", [["--tz", "Berlin"], ["--agent", "gpt"]])
def test_init_refuses_what_is_not_there_and_writes_nothing(empty, words):
    answer = empty.ask("init", "--yes", *words)

    assert answer.code in (1, 2)
    assert not list(empty.root.iterdir())


def test_new_writes_a_file_that_is_read_back_as_it_was_typed(ws: World):
    prompt = 'say: "hello"\n  # not a comment\n'

    answer = ws.ask("new", "weekly report", "--cron", "0 9 * * 1", "--cron", "@daily", prompt)

    assert answer.code == 0
    assert "weekly report is next due, in Europe/Berlin (+01:00):" in answer.out
    assert ws.ask("check").code == 0
    schedule = json.loads(ws.ask("list", "--json").out)["routines"][0]["schedule"]
    assert schedule == "0 9 * * 1; @daily"


def test_new_reads_a_prompt_from_stdin(ws, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"two\r\nlines\r\n")))

    ws.ask("new", "a", "-")

    assert "two\n  lines" in (ws.root / "routines" / "a.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "--cron", "0 9 * *", "x"], "has 4 fields"),
        (["a", "--every", "5", "x"], 'write "5s" or "5m"'),
        (["a", "--at", "09:00", "x"], "time of day"),
        (["a", "--tz", "Europe/Rigga", "x"], "Europe/Rigga"),
        (["a", "--agent", "nobody", "x"], "no agent is called that"),
        (["a", ""], "prompt"),
    ],
)
def test_new_refuses_what_would_not_be_right_and_writes_nothing(ws, words, said):
    answer = ws.ask("new", *words)

    assert answer.code == 1
    assert said in answer.err
    assert not (ws.root / "routines").exists()


def test_new_never_overwrites_also_in_another_case(ws):
    ws.routine("Daily", 'cron: "0 9 * * *"\n')

    answer = ws.ask("new", "daily", "x")

    assert answer.code == 2
    assert "there is a routine 'Daily' already" in answer.err


def test_check_of_one_file_looks_at_no_other(ws):
    ws.routine("good", 'cron: "0 9 * * *"\n')
    ws.routine("bad", "promt: x\n")

    good = ws.ask("check", "routines/good.yaml")
    assert good.code == 0
    assert good.out.startswith("1 routine, all right.")
    assert ws.ask("check", "routines/bad.yaml").out.splitlines()[-1].startswith("1 of 1 files")
    assert ws.ask("check", "routines/bad.yaml").code == 1


def test_an_agent_whose_program_is_not_there_is_an_error_of_check(ws):
    ws.settings("tz: Europe/Berlin\nagent: mine\nagents: {mine: {command: [my-agent]}}\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    missing = ws.ask("check", width=120)
    ws.program("my-agent")
    there = ws.ask("check")

    assert missing.code == 1
    assert "mine: my-agent: not on PATH (/no/bin)" in missing.out
    assert there.code == 0


def make_plain(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)


def make_script(first_line):
    def make(path):
        path.write_text(f"{first_line}\n")
        path.chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "{at} is a folder"),
        (make_plain, "{at} is not executable; chmod +x makes it so"),
        (
            make_script("#!/no/such/python -u"),
            "the interpreter that {at} names in its #! line is not there",
        ),
        (
            make_script("#!/usr/bin/env nopython"),
            "nopython, which {at} names in its #! line, is not on PATH",
        ),
        (make_script("echo hello"), "{at} has no #! line"),
        (lambda path: None, "not there"),
    ],
)
def test_check_says_why_no_turn_can_be_started_with_a_program(ws, make, says):
    at = ws.root / "agent"
    make(at)
    ws.settings(f"tz: UTC\nagent: mine\nagents: {{mine: {{command: [{at}]}}}}\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')
    ws.routine("other", 'cron: "0 9 * * *"\nagent: echo\n')

    answer = ws.ask("check", width=500)

    assert answer.code == 1
    assert says.format(at=at) in answer.out
    foot = answer.out.splitlines()[-1]
    assert foot == "2 routines, no mistake in the files, but 1 agent can't be used. Agents: echo."


@pytest.mark.parametrize(
    "first_line", ["#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env -S sh -e", "#!/usr/bin/env A=1 x"]
)
def test_check_has_nothing_against_a_script_that_can_be_started(ws, first_line):
    make_script(first_line)(ws.root / "agent")
    ws.settings(f"tz: UTC\nagent: mine\nagents: {{mine: {{command: [{ws.root}/agent]}}}}\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    answer = ws.ask("check")

    assert (answer.code, answer.out.splitlines()[-1]) == (
        0,
        "1 routine, all right. Agents: mine.",
    )


def test_a_routine_without_an_agent_is_an_error_of_check_and_a_state_of_list(ws):
    ws.settings("tz: Europe/Berlin\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    assert ws.ask("check").code == 1
    assert "! daily           no agent" in ws.ask("list").out


def test_while_no_zone_is_set_a_note_says_what_utc_means_here(ws):
    ws.settings("agent: echo\n")
    ws.routine("daily", 'cron: "0 9 * * *"\n')

    answer = ws.ask("list")

    assert answer.err == (
        "note: no zone is set, so times are UTC: 09:00 is 10:00 here (Europe/Berlin, +01:00)."
        " Write in routines.yaml: tz: Europe/Berlin\n"
    )


def test_adopt_takes_a_moved_state_folder_and_fork_gives_a_copy_its_own_id(ws):
    before = ws.state.workspace
    copy = ws.root / ".routines"
    copy.rename(ws.root / "old")
    import shutil

    shutil.copytree(ws.root / "old", copy)

    assert ws.ask("doctor", "--only", "state").code == 1
    assert ws.ask("doctor", "--adopt").code == 0
    assert ws.ask("doctor", "--only", "state").code == 0
    assert ws.state.workspace == before
    assert ws.ask("doctor", "--fork").code == 0
    assert ws.state.workspace != before


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)]
)
def test_files_for_people_honour_the_umask_and_the_state_is_private(empty, umask, file, folder):
    import os

    old = os.umask(umask)
    try:
        empty.ask("init", "--yes")
        empty.ask("new", "weekly", "--cron", "0 9 * * 1", "Look.")
    finally:
        os.umask(old)

    def mode(path: str) -> int:
        return (empty.root / path).stat().st_mode & 0o777

    for path in ("routines.yaml", "routines/daily-digest.yaml", "routines/weekly.yaml"):
        assert mode(path) == file, path
    assert mode("routines") == folder
    assert (mode(".routines"), mode(".routines/format")) == (0o700, 0o600)


def test_a_value_that_is_wrong_is_said_once(empty):
    empty.settings()

    answer = empty.ask("new", "x", "--cron", "0 9 * *", "hi")

    assert answer.code == 1
    assert answer.err.splitlines()[0] == (
        "Error: routines/x.yaml:1:7: cron: 0 9 * * has 4 fields, and cron needs 5"
    )


def test_check_says_which_program_of_which_version_answers(ws):
    ws.program("claude", "echo '2.1.332 (Claude Code)'")
    ws.settings("agent: claude-code\n")
    ws.routine("daily", "every: 1d\n")

    assert "Agents: claude-code 2.1.332." in ws.ask("check").out
    (agent,) = json.loads(ws.ask("check", "--json").out)["agents"]
    assert (agent["program"], agent["version"]) == (f"{ws.home}/bin/claude", "2.1.332")


def test_check_asks_a_program_again_when_its_file_has_changed(ws):
    ws.settings("agent: codex\n")
    ws.routine("daily", "every: 1d\n")
    for version in ("0.171.0", "0.172.0"):
        ws.program("codex", f"echo codex-cli {version}")
        assert f"Agents: codex {version}." in ws.ask("check").out


def test_check_waits_for_no_program_and_believes_no_version_that_is_none(ws):
    ws.settings("agent: codex\n")
    ws.routine("daily", "every: 1d\n")
    for body in ("echo 'version \033[31m1'", "echo 0.171.0; exit 3", "echo 1 >&2", "kill -9 $$"):
        ws.program("codex", body)
        answer = ws.ask("check")
        assert (answer.code, "Agents: codex." in answer.out) == (0, True), body
