"""The one door to the disk: whole or not at all, and nothing overwritten in silence."""

import errno
import os
import threading
from pathlib import Path

import pytest

from routines.errors import NotDurable, StateForeign, StoreBusy, StoreError
from routines.store import files
from tests.store.crash import CALLS, Steps, Unsynced, WithoutLinks, failing, standing_in


def place(folder: Path, name: str = "file") -> str:
    return str(folder / name)


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def forbid(path: str) -> OSError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@pytest.mark.parametrize("calls", [Unsynced(), WithoutLinks()], ids=["links", "no links"])
def test_a_file_is_created_once_and_keeps_its_first_content(
    tmp_path: Path, calls: files.Calls
) -> None:
    with standing_in(calls):
        assert files.create(place(tmp_path), b"first")
        assert not files.create(place(tmp_path), b"second")
        assert files.create_many([(place(tmp_path), b"x"), (place(tmp_path, "new"), b"y")]) == {
            place(tmp_path, "new")
        }
    assert files.read(place(tmp_path)) == b"first"
    assert [name for name in names_in(tmp_path) if not name.endswith(".lock")] == ["file", "new"]


def test_a_file_that_is_replaced_is_the_old_or_the_new_and_leaves_no_draft(tmp_path: Path) -> None:
    files.replace(place(tmp_path), b"old")
    with standing_in(failing(2, errno.ENOSPC, lasting=False)), pytest.raises(OSError):
        files.replace(place(tmp_path), b"new")
    assert files.read(place(tmp_path)) == b"old"
    files.replace(place(tmp_path), b"new")
    assert files.read(place(tmp_path)) == b"new"
    assert names_in(tmp_path) == ["file"]


def test_a_file_whose_name_could_not_be_synced_is_taken_back(tmp_path: Path) -> None:
    steps = Steps()
    with standing_in(steps):
        files.create(place(tmp_path, "a"), b"x")
    for number in range(1, steps.count + 1):
        with standing_in(failing(number, errno.EIO, lasting=False)):
            try:
                files.create(place(tmp_path), b"x")
            except OSError:
                assert not os.path.exists(place(tmp_path))
        files.discard(place(tmp_path))


def test_private_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    files.make_folder(place(tmp_path, "a/b"))
    files.create(place(tmp_path, "a/b/file"), b"")
    assert os.stat(place(tmp_path, "a/b")).st_mode & 0o777 == 0o700
    assert os.stat(place(tmp_path, "a/b/file")).st_mode & 0o777 == 0o600


def test_a_line_goes_to_the_disk_in_one_write_and_one_sync(tmp_path: Path) -> None:
    fd = files.open_append(place(tmp_path), create=True)
    seen: list[str] = []
    with standing_in(Steps(before=lambda number, name, args: seen.append(name))):
        files.append_line(fd, b"line")
    files.close(fd)
    assert seen == ["write", "fsync"]
    assert files.read(place(tmp_path)) == b"line\n"


@pytest.mark.parametrize("tail", [b'{"torn', b"\0\0\0\0"])
def test_a_torn_tail_swallows_no_line(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "file").write_bytes(b"first\n" + tail)
    fd = files.open_append(place(tmp_path))
    files.append_line(fd, b"second")
    files.close(fd)
    lines = [*files.whole_lines(files.read(place(tmp_path)) or b"")]
    assert lines == [b"first", *([tail] if tail[0] else []), b"second"]


def test_a_line_that_did_not_fit_is_an_error_and_no_whole_line(tmp_path: Path) -> None:
    fd = files.open_append(place(tmp_path), create=True)

    class Short(Unsynced):
        @staticmethod
        def write(fd: int, data: bytes) -> int:
            return os.write(fd, data[:3])

    with standing_in(Short()), pytest.raises(OSError, match="No space"):
        files.append_line(fd, b"a line")
    files.append_line(fd, b"next")
    files.close(fd)
    assert [*files.whole_lines(files.read(place(tmp_path)) or b"")] == [b"a l", b"next"]


def test_names_that_no_writer_gives_are_left_out_of_a_listing(tmp_path: Path) -> None:
    for name in (".DS_Store", ".file.12.ab.draft", "b", "a"):
        (tmp_path / name).touch()
    assert files.names(str(tmp_path)) == ["a", "b"]
    assert files.names(place(tmp_path, "none")) == []
    assert files.names(place(tmp_path, "a")) == []


def test_what_was_set_aside_is_never_overwritten(tmp_path: Path) -> None:
    kept = []
    for content in (b"first", b"second", b"third"):
        (tmp_path / "file").write_bytes(content)
        kept.append(files.set_aside(place(tmp_path)))
    assert [files.read(path) for path in kept] == [b"first", b"second", b"third"]
    assert all(path.endswith(".corrupt") for path in kept)
    files.set_aside(place(tmp_path))  # another process was quicker


def test_a_copy_is_put_aside_once_and_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"torn")
    files.copy_aside(place(tmp_path))
    (tmp_path / "file").write_bytes(b"more")
    files.copy_aside(place(tmp_path))
    assert files.read(place(tmp_path)) == b"more"
    assert files.read(place(tmp_path, "file.corrupt")) == b"torn"


def test_what_may_not_be_read_is_an_error_and_not_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *more: object, **words: object) -> None:
        raise forbid(path)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        patch.setattr(os, "listdir", refuse)
        for ask in (files.read, files.names):
            with pytest.raises(StateForeign, match="EACCES"):
                ask(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        with pytest.raises(StateForeign, match="EACCES"):
            files.exists(place(tmp_path))


def test_an_error_names_the_file_the_cause_and_both_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = files.fault(OSError(errno.ENOSPC, ""), "write", "/a/b")
    assert isinstance(full, NotDurable)
    assert "can't write /a/b: No space left on device (ENOSPC)" in full.message
    assert "disk is full" in (full.hint or "")
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)
    foreign = files.fault(forbid("x"), "write", place(tmp_path, "no/such"))
    assert isinstance(foreign, StateForeign)
    assert f"{tmp_path} belongs to" in (foreign.hint or "")
    assert f"this process runs as user {2**31 - 7}" in (foreign.hint or "")
    assert type(files.fault(OSError(errno.EIO, ""), "read", "x")) is StoreError


def test_a_short_lock_that_is_not_free_in_time_changes_nothing(tmp_path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with files.section(place(tmp_path, "locks/a.lock")):
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    inside.wait(60)
    try:
        with (
            pytest.raises(StoreBusy, match="the routine a is being changed"),
            files.section(place(tmp_path, "locks/a.lock"), patience=0, what="the routine a"),
        ):
            pytest.fail("two are inside")
    finally:
        leave.set()
        other.join()
    with files.section(place(tmp_path, "locks/a.lock"), patience=0):
        pass


def test_a_folder_that_is_there_is_synced_in_its_parent_once_by_each_process(
    tmp_path: Path,
) -> None:
    """Whoever made it may have died before its sync."""
    root = place(tmp_path, "root")
    os.makedirs(f"{root}/a/b")
    files.root(root)
    assert files.add_folder(f"{root}/a/b") == [root, f"{root}/a"]
    files.make_folder(f"{root}/a/b")
    assert files.add_folder(f"{root}/a/b") == []
    os.rmdir(f"{root}/a/b")
    assert files.add_folder(f"{root}/a/b") == [f"{root}/a"]


def test_a_folder_that_is_taken_away_under_a_writer_is_made_again_once(tmp_path: Path) -> None:
    path = place(tmp_path, "day/file")
    tries: list[int] = []

    def write() -> bool:
        tries.append(1)
        if len(tries) == 1:
            os.rmdir(tmp_path / "day")
        return files.create(path, b"x")

    assert files.in_folder(path, write)
    assert files.read(path) == b"x"
    assert len(tries) == 2


def test_a_lost_reply_to_a_link_does_not_hide_who_won(tmp_path: Path) -> None:
    """A file server may do it, lose the answer, and answer the repeat with "exists"."""

    class Forgetful(Unsynced):
        @staticmethod
        def link(source: str, path: str) -> None:
            os.link(source, path)
            raise FileExistsError(errno.EEXIST, "")

    (tmp_path / "mine").touch()
    with standing_in(Forgetful()):
        files.link(place(tmp_path, "mine"), place(tmp_path, "name"))


def test_every_call_that_changes_files_goes_through_calls() -> None:
    """A call of `os` elsewhere could be neither stopped nor failed."""
    assert {name for name in vars(files.Calls) if not name.startswith("_")} == set(CALLS)
    folder = Path(files.__file__).parent
    changing = [f"os.{name}(" for name in (*CALLS, "replace", "remove", "makedirs", "truncate")]
    changing = [word for word in changing if word not in ("os.close(", "os.open(")]
    for source in folder.glob("*.py"):
        code = source.read_text().replace("os.fsync(fd)", "")
        assert not [word for word in changing if word in code], source.name


def test_what_a_mode_forbids_is_told_by_the_mode_and_not_by_the_owner(tmp_path):
    folder = tmp_path / "claims"
    folder.mkdir(mode=0o500)
    error = PermissionError(errno.EACCES, "no", str(folder / "a" / "b.jsonl"))
    folder_is_shut = "has mode 500: chmod u+rwx" if os.geteuid() else "the mode of"

    hint = files.fault(error, "write", "claims/a/b.jsonl").hint

    assert folder_is_shut in hint
    assert str(folder) in hint
    assert "belongs to" not in hint
