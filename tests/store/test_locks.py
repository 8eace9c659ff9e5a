"""Locks that live as long as a process does (PROMISES L11, T1, T2)."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from routines.store import files, locks
from tests.store.crash import Tell, in_child


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def opened(path: str) -> int:
    return files.open_append(path, create=True)


def test_a_lock_is_held_against_any_other_descriptor_of_any_process(path: str) -> None:
    first, second = opened(path), opened(path)
    assert locks.try_lock(first)
    assert not locks.try_lock(second)
    assert in_child(lambda tell: tell(locks.try_lock(opened(path))))[1] == [[False]]
    files.close(second)
    locks.let_go(first)
    assert in_child(lambda tell: tell(locks.try_lock(opened(path))))[1] == [[True]]


def test_a_lock_is_free_when_its_process_has_ended_however_it_ended(path: str) -> None:
    def take_and_die(tell: Tell) -> None:
        tell(locks.try_lock(opened(path)))
        os._exit(0)

    assert in_child(take_and_die)[1] == [[True]]
    fd = opened(path)
    assert locks.try_lock(fd)
    locks.let_go(fd)


def test_closing_another_descriptor_of_the_file_frees_nothing(path: str) -> None:
    """As plain POSIX locks would."""
    fd = opened(path)
    assert locks.try_lock(fd)
    files.close(opened(path))
    files.read(path)
    assert in_child(lambda tell: tell(locks.try_lock(opened(path))))[1] == [[False]]
    locks.let_go(fd)


def test_a_forked_child_keeps_no_lock_of_its_parent(path: str) -> None:
    """Else the dead would look alive as long as any of their children."""
    fd = opened(path)
    assert locks.try_lock(fd)
    waiting, go = os.pipe()
    reading, ready = os.pipe()
    with warnings.catch_warnings():
        # The test runner may have a thread of its own; the child does next to nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(go)
        os.write(ready, b"!")
        os.read(waiting, 1)
        os._exit(0)
    os.close(waiting)
    os.read(reading, 1)
    locks.let_go(fd)
    again = opened(path)
    assert locks.try_lock(again), "the child holds what its parent let go"
    locks.let_go(again)
    os.close(go)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(ready)


def test_a_descriptor_that_is_handed_on_keeps_the_lock_after_its_giver_has_closed_it(
    path: str,
) -> None:
    fd = opened(path)
    assert locks.try_lock(fd)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[fd]
    ) as child:
        locks.let_go(fd)
        other = opened(path)
        assert not locks.try_lock(other)
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        assert locks.try_lock(other)
        locks.let_go(other)


def test_a_descriptor_that_was_handed_over_is_closed_in_programs_that_are_started(
    path: str,
) -> None:
    fd = opened(path)
    os.set_inheritable(fd, True)
    locks.adopt(fd)
    assert not os.get_inheritable(fd)
    locks.let_go(fd)


def test_whether_a_lock_is_held_is_asked_without_taking_it(path: str) -> None:
    if locks._OFD_GETLK is None:
        pytest.skip("only Linux can be asked")
    assert locks.path_is_locked(path) is False
    fd = opened(path)
    assert locks.path_is_locked(path) is False
    assert locks.try_lock(fd)
    assert locks.path_is_locked(path) is True
    assert locks.is_locked(fd) is False, "one's own lock is no other's"
    locks.let_go(fd)
    assert locks.path_is_locked(path) is False


def test_without_such_locks_flock_does_the_same_but_can_not_be_asked(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_OFD_SETLK", None)
    monkeypatch.setattr(locks, "_OFD_GETLK", None)
    first, second = opened(path), opened(path)
    assert locks.try_lock(first)
    assert not locks.try_lock(second)
    assert locks.path_is_locked(path) is None
    files.close(second)
    locks.let_go(first)


def test_a_lock_that_may_not_be_looked_at_can_not_be_told(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert locks.path_is_locked(path) is None
