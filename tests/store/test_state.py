"""The state folder: whose it is, and whether it is the one it was (PROMISES D6, D10)."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from routines.errors import (
    StateCopied,
    StateForeign,
    StateMissing,
    StateNewer,
    StateUnusable,
    StoreError,
)
from routines.store import state as state_module
from routines.store.state import State, adopt, open_for_reading, open_for_writing, was_called
from tests.builders import BOOT
from tests.store.operations import OTHER_BOOT


def note(path: str, **changes: Any) -> None:
    place = Path(path, "format")
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))


def everything_in(path: str) -> dict[str, bytes]:
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in sorted(Path(path).rglob("*"))
        if one.is_file()
    }


def test_a_new_state_folder_explains_itself_and_stays_out_of_git(state: State) -> None:
    assert sorted(os.listdir(state.path)) == [".gitignore", "README", "format"]
    assert Path(state.path, ".gitignore").read_text() == "*\n"
    assert "doctor --fork" in Path(state.path, "README").read_text()
    assert os.stat(state.path).st_mode & 0o777 == 0o700


def test_a_state_folder_keeps_its_id(state: State) -> None:
    again = open_for_writing(state.path, boot=BOOT)
    assert again == state
    assert open_for_reading(state.path) == state
    assert state.key("daily@x") == f"{state.workspace}/daily@x"


def test_reading_makes_nothing(state_path: str) -> None:
    with pytest.raises(StateMissing, match="no state folder"):
        open_for_reading(state_path)
    assert not os.path.exists(state_path)


def test_a_copied_folder_is_refused_until_it_says_what_it_is(state: State) -> None:
    copy = f"{state.path}-copy"
    shutil.copytree(state.path, copy)
    before = everything_in(copy)
    with pytest.raises(StateCopied) as refused:
        open_for_writing(copy, boot=BOOT)
    assert "doctor --adopt" in (refused.value.hint or "")
    assert everything_in(copy) == before
    with pytest.raises(StateCopied):
        open_for_writing(copy, boot=OTHER_BOOT)
    assert open_for_reading(copy).workspace == state.workspace


def test_a_folder_that_was_moved_is_adopted_and_keeps_its_id(state: State) -> None:
    moved = f"{state.path}-moved"
    shutil.copytree(state.path, moved)
    assert adopt(moved, boot=BOOT, fork=False).workspace == state.workspace
    assert open_for_writing(moved, boot=BOOT).workspace == state.workspace


def test_a_copy_beside_the_original_is_forked_and_gets_an_id_of_its_own(state: State) -> None:
    copy = f"{state.path}-copy"
    shutil.copytree(state.path, copy)
    forked = adopt(copy, boot=BOOT, fork=True).workspace
    assert forked != state.workspace
    assert open_for_writing(copy, boot=BOOT).workspace == forked
    assert open_for_writing(state.path, boot=BOOT).workspace == state.workspace


def test_another_device_within_one_boot_is_a_copy(state: State) -> None:
    note(state.path, device=state.format.device + 1)
    with pytest.raises(StateCopied):
        open_for_writing(state.path, boot=BOOT)


@pytest.mark.parametrize("boot", [OTHER_BOOT, None])
def test_another_device_after_a_reboot_is_the_same_folder(state: State, boot: str | None) -> None:
    """Device numbers change with a reboot on btrfs, APFS, NFS and volumes."""
    note(state.path, device=state.format.device + 1)
    again = open_for_writing(state.path, boot=boot)
    assert again.workspace == state.workspace
    assert again.format.device == state.format.device
    assert again.format.boot == boot


def test_a_newer_layout_is_refused_and_an_upgrade_named(state: State) -> None:
    note(state.path, layout=state_module.LAYOUT + 1)
    before = everything_in(state.path)
    for look in (
        lambda: open_for_writing(state.path, boot=OTHER_BOOT),
        lambda: open_for_reading(state.path),
        lambda: adopt(state.path, boot=BOOT, fork=True),
    ):
        with pytest.raises(StateNewer) as refused:
            look()
        assert "pip install -U" in (refused.value.hint or "")
    assert everything_in(state.path) == before


def test_the_folder_of_another_user_is_left_alone(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_in(state.path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.stat(state.path).st_uid + 1)
        with pytest.raises(StateForeign) as refused:
            open_for_writing(state.path, boot=OTHER_BOOT)
        with pytest.raises(StateForeign):
            adopt(state.path, boot=BOOT, fork=False)
    assert "belongs to" in (refused.value.hint or "")
    assert "this process runs as" in (refused.value.hint or "")
    assert everything_in(state.path) == before


def test_a_file_in_its_place_is_no_state_folder(state_path: str) -> None:
    Path(state_path).write_text("mine")
    with pytest.raises(StateUnusable, match="no folder"):
        open_for_writing(state_path, boot=BOOT)
    assert Path(state_path).read_text() == "mine"


_ID = "6ad0fb3c-1d5c-4a3e-9f47-0d6f0f7c2c11"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\0\0\0", "it holds nothing but NUL bytes"),
        (b"\xff", "byte 1 (0xFF) is no text"),
        (b'{"layout": 1, \xff', "byte 15 (0xFF) is no text"),
        (b"{", "it is no JSON (line 1, column 2: "),
        (b"layout: 1", "it is no JSON (line 1, column 1: "),
        (b"[" * 4000, "it is no JSON"),
        (b"[]", "it is JSON, but no object"),
        (b"null", "it is JSON, but no object"),
        (b"{}" + b" " * 5000, "it has more than 4096 bytes"),
        (b"{}", "its `layout` is missing"),
        (b'{"layout": "x"}', "its `layout` is no whole number"),
        (b'{"layout": 1e999}', "its `layout` is no whole number"),
        (b'{"layout": true}', "its `layout` is no whole number"),
        (b'{"layout": 1}', "its `workspace` is no id"),
        (b'{"layout": 1, "workspace": 3}', "its `workspace` is no id"),
        (f'{{"layout": 1, "workspace": "{_ID}"}}'.encode(), "its `inode` is missing"),
        (f'{{"layout": 1, "workspace": "{_ID}", "boot": 3}}'.encode(), "its `boot` is no id"),
    ],
)
def test_a_format_that_can_not_be_read_is_reported_and_never_overwritten(
    state: State, content: bytes, says: str
) -> None:
    place = Path(state.path, "format")
    place.write_bytes(content)
    for open_it in (open_for_reading, lambda path: open_for_writing(path, boot=BOOT)):
        with pytest.raises(StoreError) as caught:
            open_it(state.path)
        assert f"{place} can't be read: {says}" in caught.value.message
        assert "put it back from a copy" in (caught.value.hint or "")
        assert "Error" not in caught.value.message
    assert place.read_bytes() == content


def test_of_two_that_start_at_once_both_use_one_id(state_path: str) -> None:
    from tests.store.interleave import every_interruption  # its states are made here anew

    def start(state: State) -> str:
        return open_for_writing(f"{state.path}/inner", boot=BOOT).workspace

    for _, one, other in every_interruption(os.path.dirname(state_path), start, start):
        assert one == other


def test_a_folder_was_called_what_leads_to_it_and_what_it_was_moved_away_from(state: State) -> None:
    link, moved = f"{state.path}-link", f"{state.path}-moved"
    os.symlink(state.path, link)
    assert was_called(state.path, link)
    assert was_called(link, f"{state.path}/")

    os.rename(state.path, moved)
    assert was_called(moved, state.path)
    assert was_called(moved, link)
    # Another workspace has been made where it was.
    assert open_for_writing(state.path, boot=BOOT).workspace != state.workspace
    assert was_called(moved, state.path)
    assert was_called(moved, link)


def test_a_copy_was_never_called_what_its_original_is(state: State) -> None:
    copy = f"{state.path}-copy"
    shutil.copytree(state.path, copy)
    adopt(copy, boot=BOOT, fork=False)
    assert not was_called(copy, state.path)
    assert not was_called(state.path, copy)
    # The original can't be read now: it is there all the same.
    Path(state.path, "format").write_text("{")
    assert not was_called(copy, state.path)


def test_what_is_no_state_folder_was_never_called_anything_else(tmp_path: Path) -> None:
    assert was_called(f"{tmp_path}/none", f"{tmp_path}/none/")
    assert not was_called(f"{tmp_path}/none", f"{tmp_path}/nor-this")
