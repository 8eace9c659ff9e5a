"""Edits are seen once they are whole, and a broken one does not disarm what was good."""

import os
import shutil
import time
from datetime import UTC, datetime, timedelta

import pytest

from routines.config.watcher import Watcher

GOOD = "cron: '0 9 * * *'\nprompt: hello\n"


def now():
    """The clock of the file system: signatures are compared with it."""
    return datetime.fromtimestamp(time.time(), UTC)


class Watching:
    """A watcher that has seen the workspace, and whose looks can be counted."""

    def __init__(self, folder):
        self.watcher = Watcher(folder.root)
        self.first = self.watcher.look(now())
        self.settle()

    def look(self):
        return self.watcher.look(now())

    def settle(self):
        """Look until nothing is news; return the last news."""
        news = None
        for _ in range(4):
            news = self.look() or news
        return news

    @property
    def workspace(self):
        return self.watcher.workspace


@pytest.fixture
def watch(folder):
    def start():
        return Watching(folder)

    return start


def prompts(workspace):
    return {name: routine.prompt for name, routine in workspace.routines.items()}


def test_the_first_look_shows_what_is_there_and_the_next_nothing(folder, watch):
    folder.routine("a")
    watching = watch()
    assert watching.first.names == ("a",)
    assert [watching.look() for _ in range(5)] == [None] * 5


def test_an_edit_is_seen_at_the_second_look_that_finds_it_unchanged(folder, watch):
    folder.routine("a", "prompt: one\n")
    watching = watch()
    folder.routine("a", "prompt: two\n")
    assert watching.look() is None
    assert prompts(watching.look()) == {"a": "two"}
    assert watching.settle() is None


def test_an_edit_that_is_older_than_two_seconds_is_seen_at_the_first_look(folder, watch):
    folder.routine("a", "prompt: one\n")
    watching = watch()
    folder.routine("a", "prompt: two\n")
    later = now() + timedelta(seconds=3)
    assert prompts(watching.watcher.look(later)) == {"a": "two"}


def test_a_file_counts_only_once_it_has_stopped_changing(folder, watch):
    watching = watch()
    text = "prompt: |\n  one\n  two\n  three\n"
    for end in range(12, len(text)):
        folder.routine("a", text[:end])
        assert watching.look() is None
    folder.routine("a", text)
    assert watching.look() is None
    assert prompts(watching.look()) == {"a": "one\ntwo\nthree\n"}


def test_a_half_written_file_leaves_the_good_version_armed(folder, watch):
    folder.routine("a", GOOD)
    watching = watch()
    folder.routine("a", "cron: '0 9 * * *\nprom")
    workspace = watching.settle()
    assert prompts(workspace) == {"a": "hello"}
    assert (dict(workspace.broken), list(workspace.stale)) == ({}, ["a"])
    folder.routine("a", "cron: '0 9 * * *'\nprompt: done\n")
    workspace = watching.settle()
    assert prompts(workspace) == {"a": "done"}
    assert dict(workspace.stale) == {}


def test_a_good_file_that_turned_bad_runs_on_until_a_restart(folder, watch):
    folder.routine("a", GOOD)
    watching = watch()
    folder.routine("a", "prompt: x\nschedul: y\n")
    workspace = watching.settle()
    assert workspace.stale["a"][0].cure == "write cron, every, at or rrule" or workspace.stale["a"]
    assert workspace.problems == workspace.stale["a"]
    folder.routine("a", "prompt: x\nstill: bad\n")
    assert prompts(watching.settle()) == {"a": "hello"}
    # A new process has no good version.
    workspace = Watching(folder).first
    assert (dict(workspace.routines), list(workspace.broken)) == ({}, ["a"])


def test_a_bad_file_that_turns_good_is_armed(folder, watch):
    folder.routine("a", "prompt: [")
    watching = watch()
    assert list(watching.first.broken) == ["a"]
    folder.routine("a", GOOD)
    workspace = watching.settle()
    assert (prompts(workspace), workspace.problems) == ({"a": "hello"}, ())


def test_a_vanished_file_drops_out_also_if_it_was_stale(folder, watch):
    folder.routine("a")
    folder.routine("b")
    watching = watch()
    folder.routine("a", "prompt: [")
    watching.settle()
    os.remove(folder.file("routines/a.yaml"))
    os.remove(folder.file("routines/b.yaml"))
    assert watching.look() is None
    assert watching.look().names == ()
    folder.routine("a", "prompt: [")
    assert list(watching.settle().broken) == ["a"]


def test_a_file_that_is_gone_for_a_moment_is_not_dropped(folder, watch):
    # Some editors remove a file and then write it anew.
    folder.routine("a")
    watching = watch()
    os.remove(folder.file("routines/a.yaml"))
    assert watching.look() is None
    folder.routine("a")
    assert watching.settle() is None
    assert watching.workspace.names == ("a",)


def test_a_renamed_file_is_a_new_routine(folder, watch):
    folder.routine("a")
    watching = watch()
    os.rename(folder.file("routines/a.yaml"), folder.file("routines/b.yaml"))
    assert watching.settle().names == ("b",)
    os.rename(folder.file("routines/b.yaml"), folder.file("routines/B.yaml"))
    workspace = watching.settle()
    assert (workspace.names, workspace.problems) == (("B",), ())


def test_a_file_moved_into_place_with_an_older_time_is_seen(folder, watch):
    folder.routine("a", "prompt: new\n")
    watching = watch()
    old = folder.write("elsewhere.yaml", "prompt: old\n")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    os.replace(old, folder.file("routines/a.yaml"))
    assert prompts(watching.settle()) == {"a": "old"}


def test_an_edit_of_the_same_size_with_its_time_set_back_is_seen(folder, watch):
    path = folder.routine("a", "prompt: one\n")
    watching = watch()
    before = os.stat(path)
    folder.routine("a", "prompt: two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (os.stat(path).st_size, os.stat(path).st_mtime_ns) == (
        before.st_size,
        before.st_mtime_ns,
    )
    assert prompts(watching.settle()) == {"a": "two"}


def test_an_edit_within_one_tick_of_the_clock_is_seen(folder, watch, monkeypatch):
    # Same signature, other content: what a coarse file system shows for two quick writes.
    path = folder.routine("a", "prompt: one\n")
    frozen = os.stat(path)
    monkeypatch.setattr(
        "routines.config.watcher.signature_of",
        lambda _: (frozen.st_mtime_ns, frozen.st_size, frozen.st_ino, frozen.st_ctime_ns),
    )
    watcher = Watcher(folder.root)
    assert prompts(watcher.look(now())) == {"a": "one"}
    folder.routine("a", "prompt: two\n")
    assert prompts(watcher.look(now())) == {"a": "two"}


def test_a_touch_is_no_news(folder, watch):
    path = folder.routine("a")
    watching = watch()
    os.utime(path)
    assert watching.settle() is None


def test_a_comment_moves_lines_and_is_no_news(folder, watch):
    folder.routine("a", GOOD)
    watching = watch()
    folder.routine("a", "# why\n" + GOOD)
    assert watching.settle() is None
    assert watching.workspace.routines["a"].line_of["prompt"] == 3


# --- other files ---


def test_an_edit_of_a_prompt_file_is_an_edit_of_its_routine(folder, watch):
    folder.write("p.md", "one\n")
    folder.routine("a", "prompt_file: p.md\n")
    watching = watch()
    folder.write("p.md", "two\n")
    assert watching.look() is None
    assert prompts(watching.look()) == {"a": "two\n"}


def test_a_prompt_file_that_vanishes_leaves_the_routine_and_that_comes_back_is_seen(folder, watch):
    path = folder.write("p.md", "one\n")
    folder.routine("a", "prompt_file: p.md\n")
    watching = watch()
    os.remove(path)
    workspace = watching.settle()
    assert (prompts(workspace), list(workspace.stale)) == ({"a": "one\n"}, ["a"])
    folder.write("p.md", "two\n")
    assert prompts(watching.settle()) == {"a": "two\n"}


def test_a_missing_prompt_file_is_seen_to_come(folder, watch):
    folder.routine("a", "prompt_file: p.md\n")
    watching = watch()
    assert list(watching.first.broken) == ["a"]
    folder.write("p.md", "one\n")
    assert prompts(watching.settle()) == {"a": "one\n"}


def test_another_zone_of_the_workspace_reaches_every_routine(folder, watch):
    folder.write("routines.yaml", "tz: UTC\n")
    folder.routine("a")
    folder.routine("b", GOOD + "tz: Asia/Tokyo\n")
    watching = watch()
    folder.write("routines.yaml", "tz: Europe/Berlin\n")
    workspace = watching.settle()
    assert {name: routine.zone for name, routine in workspace.routines.items()} == {
        "a": "Europe/Berlin",
        "b": "Asia/Tokyo",
    }


def test_a_routines_yaml_that_turned_bad_leaves_everything_as_it_was(folder, watch):
    folder.write("routines.yaml", "tz: Europe/Berlin\n")
    folder.routine("a")
    watching = watch()
    folder.write("routines.yaml", "tz: Europe/Rigga\n")
    folder.routine("b", GOOD)
    workspace = watching.settle()
    assert workspace.settings.tz == "Europe/Berlin"
    assert workspace.settings_problems[0].path == "routines.yaml"
    assert workspace.names == ("a", "b")
    assert workspace.routines["b"].zone == "Europe/Berlin"


def test_a_routines_yaml_that_was_bad_at_the_start_arms_everything_once_it_is_good(folder, watch):
    folder.write("routines.yaml", "tz: Europe/Rigga\n")
    folder.routine("a")
    watching = watch()
    assert dict(watching.first.routines) == {}
    folder.write("routines.yaml", "tz: Europe/Riga\n")
    workspace = watching.settle()
    assert workspace.routines["a"].zone == "Europe/Riga"
    assert workspace.problems == ()


def test_a_clash_that_comes_later_leaves_the_good_version_armed(folder, watch):
    folder.routine("a", GOOD)
    watching = watch()
    folder.write("routines/a.yml", "prompt: other\n")
    workspace = watching.settle()
    assert prompts(workspace) == {"a": "hello"}
    assert len(workspace.stale["a"]) == 2
    os.remove(folder.file("routines/a.yml"))
    assert watching.settle().problems == ()


@pytest.mark.parametrize("name", [".a.yaml.swp", "a.yaml~", "#a.yaml#", ".#a.yaml", "a.tmp"])
def test_what_an_editor_leaves_is_no_news(folder, watch, name):
    folder.routine("a")
    watching = watch()
    folder.write(f"routines/{name}", "x")
    assert watching.settle() is None


def test_a_folder_that_comes_later_is_seen_and_one_that_goes_too(folder, watch):
    os.rmdir(folder.file("routines"))
    folder.write("routines.yaml", "tz: UTC\n")
    watching = watch()
    assert watching.first.names == ()
    folder.routine("a")
    assert watching.settle().names == ("a",)
    shutil.rmtree(folder.file("routines"))
    assert watching.settle().names == ()


def test_a_folder_that_cannot_be_listed_for_a_moment_drops_nothing(folder, watch, monkeypatch):
    folder.routine("a")
    watching = watch()

    def fails(_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("routines.config.watcher.os.scandir", fails)
        workspace = watching.settle()
    assert workspace.names == ("a",)
    assert workspace.problems[0].message == "can't be read: permission denied (EACCES)"
    assert watching.settle().problems == ()


def test_a_file_that_cannot_be_read_for_a_moment_is_read_again(folder, watch, monkeypatch):
    # Too many open files leaves no trace in the file's times.
    folder.routine("a", "prompt: one\n")
    watching = watch()
    folder.routine("a", "prompt: two\n")

    def fails(path, largest):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("routines.config.routine_file.read_bytes", fails)
        workspace = watching.settle()
        assert list(workspace.stale) == ["a"]
    assert prompts(watching.settle()) == {"a": "two"}


# --- many files ---


def test_five_hundred_changed_files_are_one_piece_of_news(folder, watch):
    for n in range(500):
        folder.routine(f"r{n}", "prompt: one\n")
    watching = watch()
    for n in range(500):
        folder.routine(f"r{n}", "prompt: two\n" if n % 10 else "prompt: [")
    assert watching.look() is None
    workspace = watching.look()
    assert watching.settle() is None
    assert list(prompts(workspace).values()).count("two") == 450
    assert len(workspace.stale) == 50


def test_only_what_changed_is_read_again(folder, watch, monkeypatch):
    for n in range(20):
        folder.routine(f"r{n}")
    watching = watch()
    read = []
    real = watching_read()
    monkeypatch.setattr(
        "routines.config.watcher.read_routine_file",
        lambda path, *args, **kwargs: (
            read.append(os.path.basename(path)) or real(path, *args, **kwargs)
        ),
    )
    folder.routine("r7", "prompt: two\n")
    watching.settle()
    assert set(read) == {"r7.yaml"}


def watching_read():
    from routines.config.routine_file import read_routine_file

    return read_routine_file


def test_one_definition_can_be_read_without_waiting(folder, watch):
    folder.routine("a", "prompt: one\n")
    watching = watch()
    folder.routine("a", "prompt: two\n")
    assert watching.watcher.reread("a").routine.prompt == "two"
    assert prompts(watching.workspace) == {"a": "one"}


def test_many_files_are_looked_at_less_often_until_one_of_them_changes(folder, watch, monkeypatch):
    monkeypatch.setattr("routines.config.watcher.MANY_FILES", 3)
    for n in range(3):
        folder.routine(f"r{n}")
    watching = watch()
    assert watching.watcher.pause == timedelta(seconds=3)
    folder.routine("r1", "prompt: two\n")
    watching.look()
    assert watching.watcher.pause == timedelta(seconds=0.4)
    watching.settle()
    assert watching.watcher.pause == timedelta(seconds=3)
    for n in range(2):
        os.remove(folder.file(f"routines/r{n}.yaml"))
    watching.settle()
    assert watching.watcher.pause == timedelta(seconds=1)


def test_an_idle_look_is_cheap(folder, watch):
    for n in range(200):
        folder.routine(f"r{n}")
    watching = watch()
    began = time.process_time()
    for _ in range(50):
        watching.look()
    # 0.5 % of a core at one look a second is 5 ms; measured is a tenth of it.
    assert (time.process_time() - began) / 50 < 0.005
