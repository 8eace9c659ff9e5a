"""`check` and `doctor` of folders and files that routines name and this machine does not have."""

import json
import os

import pytest

from tests.surfaces.world import World


def remarks(ws: World, *files: str) -> list[tuple[str, int | None, str]]:
    answer = ws.ask("check", *files, "--json")
    assert answer.code == 0, answer.out
    return [(one["path"], one["line"], one["message"]) for one in json.loads(answer.out)["remarks"]]


def test_a_cwd_and_an_env_file_that_are_not_there_are_notes_with_place_and_cure(ws):
    ws.routine("daily", "cwd: shop\nenv_file: shop.env\n")
    ws.routine("other", "")

    answer = ws.ask("check", width=300)

    assert answer.out.splitlines()[:3] == [
        "routines/daily.yaml",
        (
            f"  1     note: cwd: {ws.root}/shop is not there;"
            " make it, or correct the path: no program can be run there"
        ),
        (
            f"  2     note: env_file: {ws.root}/shop.env is not there;"
            " write it, or correct the path: each turn fails without it"
        ),
    ]
    assert remarks(ws) == [
        ("routines/daily.yaml", 1, f"cwd: {ws.root}/shop is not there"),
        ("routines/daily.yaml", 2, f"env_file: {ws.root}/shop.env is not there"),
    ]
    assert remarks(ws, str(ws.root / "routines" / "other.yaml")) == []


def test_what_is_there_is_no_note(ws):
    (ws.root / "shop").mkdir()
    (ws.root / "shop.env").write_text("# keys\nexport KEY=value\n")
    ws.settings("tz: Europe/Berlin\nagent: echo\nenv_file: shop.env\n")
    ws.routine("daily", "cwd: shop\nenv_file: ./shop.env\n")

    assert remarks(ws) == []


def test_the_env_file_of_the_workspace_is_told_once_at_its_own_line(ws):
    ws.settings("tz: Europe/Berlin\nagent: echo\nenv_file: all.env\n")
    ws.routine("daily", "")
    ws.routine("other", "")

    assert remarks(ws) == [("routines.yaml", 3, f"env_file: {ws.root}/all.env is not there")]


def test_a_line_that_can_not_be_used_is_told_where_it_stands_and_without_its_value(ws):
    (ws.root / "shop.env").write_text("A=1\nsecret-of-mine\n")
    ws.routine("daily", "env_file: shop.env\n")
    ws.routine("other", "env_file: shop.env\n")

    assert remarks(ws) == [("shop.env", 2, "a line without '='")]
    assert "secret-of-mine" not in ws.ask("check").out


@pytest.mark.parametrize(
    ("key", "make", "says"),
    [
        ("cwd", lambda path: path.write_text(""), "is no folder"),
        ("env_file", lambda path: path.mkdir(), "this env_file can't be read: Is a directory"),
    ],
    ids=["cwd", "env_file"],
)
def test_what_is_of_another_kind_is_told_too(ws, key, make, says):
    make(ws.root / "thing")
    ws.routine("daily", f"{key}: thing\n")

    ((path, line, message),) = remarks(ws)
    assert (path, line) == ("routines/daily.yaml", 1)
    assert says in message


def test_doctor_notes_them_beside_the_files(ws):
    ws.routine("daily", "cwd: shop\n")

    answer = ws.ask("doctor", "--only", "files", width=300)

    assert answer.code == 0
    first, second, *_ = answer.out.splitlines()
    assert first.startswith("ok    files")
    assert second == (
        f"note  files       routines/daily.yaml:1: cwd: {os.path.join(ws.root, 'shop')} is not"
        " there; make it, or correct the path: no program can be run there"
    )
