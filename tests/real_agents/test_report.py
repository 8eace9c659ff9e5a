"""The report of `python -m tests.real_agents`, made of values; the programs are driven elsewhere."""

from tests.real_agents.__main__ import main, whole
from tests.real_agents.page import page
from tests.real_agents.shows import SHOWS

SHOWN = {"show": "two turns", "result": "ok", "says": "the second carried | the <b>first</b>\n# x"}
REPORT = {
    "routines": "1.0.0",
    "python": "3.11.2",
    "system": "Linux x86_64",
    "programs": {
        "codex": {
            "version": "codex-cli 0.171.0",
            "at": "2026-11-30 01:00",
            "shows": [SHOWN, {"show": "used", "result": "no", "says": "nothing"}],
        },
        "llm": {"version": None, "shows": []},
    },
}


def test_page_has_a_column_for_what_was_found_and_names_what_was_absent():
    lines = page(REPORT).splitlines()

    assert "| | codex |" in lines
    assert "| two turns | yes |" in lines
    assert "| used | **no** |" in lines
    assert "Absent on that machine, and so not shown: llm." in lines


def test_what_a_program_said_stays_one_line_of_the_page():
    (line,) = [line for line in page(REPORT).splitlines() if line.startswith("- two turns")]

    assert line == r"- two turns: yes; the second carried \| the \<b\>first\</b\> # x"


def test_program_that_is_not_there_is_named_and_nothing_is_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = []

    report = whole(["codex", "llm"], [], say=said.append)

    assert said == ["codex        absent: no codex on PATH", "llm          absent: no llm on PATH"]
    assert report["programs"]["codex"] == {"version": None, "shows": []}


def test_exit_code_says_that_none_was_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["pi"]) == 2


def test_each_show_says_what_it_shows():
    assert all(show.__doc__ and show.__doc__.strip().endswith(".") for _, show in SHOWS)
    assert len({name for name, _ in SHOWS}) == len(SHOWS)
