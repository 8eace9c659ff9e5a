"""Stopping a store at any one of its calls, and failing any one of them.

Everything that the stores change goes through `files.calls`. Here another object is put in its
place: one that ends the process before or after the nth call, one that lets it fail. After that
the program starts again, and the promises of the store are looked at one by one.
"""

import contextlib
import errno
import json
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event
from routines.errors import RoutinesError
from routines.store import files, locks
from routines.store.claims import ClaimStore, OpenEntry
from routines.store.state import State, open_for_writing
from tests.builders import BOOT, NOW, draft

CALLS = (
    "open",
    "write",
    "close",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "rename",
    "utime",
    "fsync",
)
# What a caller was told, word by word: ["claimed", path], ["settled", path, outcome], ["done"].
Told = list[list[Any]]
Tell = Callable[..., None]
_STOPPED = 42


class Steps:
    """Stands in for `files.calls`: counts the calls and lets something happen at each."""

    def __init__(
        self,
        *,
        before: Callable[[int, str, tuple[Any, ...]], None] | None = None,
        after: Callable[[int, str, tuple[Any, ...], Any], None] | None = None,
        inner: Any = None,
    ) -> None:
        self.count = 0
        self._before = before
        self._after = after
        self._inner = inner or Unsynced()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        assert name in CALLS, f"a new call, {name}: add it to CALLS"
        return partial(self._step, name)

    def _step(self, name: str, *args: Any) -> Any:
        with self._lock:
            self.count += 1
            number = self.count
        if self._before is not None:
            self._before(number, name, args)
        result = None
        try:
            result = getattr(self._inner, name)(*args)
        finally:
            # Also after a call that found what it is there to find, and raised.
            if self._after is not None:
                self._after(number, name, args, result)
        return result


class Unsynced(files.Calls):
    """The real calls but for the sync: the kernel outlives the process, so it changes nothing."""

    @staticmethod
    def fsync(fd: int) -> None:
        os.fstat(fd)


class WithoutLinks(Unsynced):
    """A file system that has no hard links."""

    @staticmethod
    def link(source: str, path: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@contextlib.contextmanager
def standing_in(calls: Any) -> Iterator[None]:
    """Let *calls* be what the stores change files by; one sync at a time, so that runs repeat."""
    before = files.calls, files._SYNC_THREADS
    files.calls, files._SYNC_THREADS = calls, 1
    try:
        yield
    finally:
        files.calls, files._SYNC_THREADS = before


def as_a_new_process() -> None:
    """Forget what only memory knows: locks that were held, folders that were synced."""
    for fd in tuple(locks._held):
        locks.let_go(fd)
    getattr(files, "_rooted", set()).clear()
    getattr(files, "_unrooted", {}).clear()


def in_child(work: Callable[[Tell], None]) -> tuple[bool, Told]:
    """Do *work* in a forked child; return whether it was stopped on the way, and what it told."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # The test runner may have a thread of its own; the child calls nothing but the stores.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)

            def tell(*words: Any) -> None:
                os.write(writing, json.dumps(words).encode() + b"\n")

            try:
                as_a_new_process()
                work(tell)
                code = 0
            except BaseException:
                tell("broke", traceback.format_exc())
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, _STOPPED), told[-1][-1] if told else f"the child ended with {code}"
    return code == _STOPPED, told


def stop_before(number: int) -> Steps:
    def before(count: int, name: str, args: tuple[Any, ...]) -> None:
        if count == number:
            os._exit(_STOPPED)

    return Steps(before=before)


def stop_after(number: int) -> Steps:
    def after(count: int, name: str, args: tuple[Any, ...], result: Any) -> None:
        if count == number:
            os._exit(_STOPPED)

    return Steps(after=after)


def failing(number: int, code: int, *, lasting: bool) -> Steps:
    """Return calls of which the *number*th fails, and each one after it if it is *lasting*.

    A write that fails for want of space has written the half before.
    """

    def before(count: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "close" or not (count == number or (lasting and count > number)):
            return
        if name == "open" and not args[1] & os.O_CREAT and code in (errno.ENOSPC, errno.EROFS):
            return  # these two are about writing
        if name in ("unlink", "rmdir", "fsync") and code == errno.EACCES:
            return  # as is true of a descriptor that is open
        if name == "write" and code == errno.ENOSPC and len(args[1]) > 1:
            os.write(args[0], args[1][: len(args[1]) // 2])
        raise OSError(code, os.strerror(code))

    return Steps(before=before)


# Starting again ------------------------------------------------------------------------------


def server_later() -> datetime:
    """A present in which every draft has been abandoned for long."""
    return datetime.now(UTC) + timedelta(hours=1)


def _silent(*words: Any) -> None:
    pass


def start_again(path: str, tell: Tell = _silent) -> State:
    """Do what a scheduler does with open claims when it boots: go by the last line of each."""
    state = open_for_writing(path, boot=BOOT)
    claims = ClaimStore(state)
    for entry in claims.open_entries():
        claim = claims.hold(entry)
        if claim is None:
            claims.sweep(entry, server_now=server_later())
            continue
        last = claim.record.last
        if not claim.record.readable:
            claim.settle(Outcome.INTERRUPTED, Reason.OWNER_UNKNOWN, at=NOW)
        elif last == Event.STARTED:
            claim.settle(Outcome.INTERRUPTED, Reason.OWNER_DIED, at=NOW)
        elif last == Event.CANCELLING:
            claim.settle(Outcome.CANCELLED, Reason.PERSON, at=NOW)
        elif last not in (Event.BUFFERED, Event.RETRY, Event.PARKED):
            claim.append(Event.ATTEMPT, at=NOW)
            claim.settle(Outcome.COMPLETED, at=NOW)
        if claim.record.outcome is not None:
            tell("settled", claim.record.path, claim.record.outcome.value)
        claim.let_go()
    return state


# Looking at what it promises -------------------------------------------------------------------


def claim_files(path: str) -> list[str]:
    """Every claim of the state folder, below it."""
    found = []
    for folder, _, names in os.walk(os.path.join(path, "claims")):
        place = os.path.relpath(folder, path)
        found += [f"{place}/{name}" for name in names if name.endswith(".jsonl")]
    return sorted(found)


def lines_of(path: str, claim_path: str) -> list[dict[str, Any]]:
    data = files.read(os.path.join(path, claim_path)) or b""
    found = []
    for line in files.whole_lines(data):
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def _leads_to(path: str, entry: OpenEntry, claim_path: str) -> bool:
    claim = os.path.join(path, claim_path)
    if os.path.samefile(os.path.join(path, "open", entry.name), claim):
        return True
    lines = lines_of(path, claim_path)
    return not lines or lines[0].get("draft") == entry.name.rpartition("~")[2]


def check_claims(path: str, *, whole: bool = True) -> None:
    """Check what holds of claims at every moment, whoever has died.

    Args:
        path: The state folder.
        whole: Whether each must be readable; without hard links one may be empty.
    """
    entries = ClaimStore(State(path, None)).open_entries()  # type: ignore[arg-type]
    for claim_path in claim_files(path):
        lines = lines_of(path, claim_path)
        if whole:
            assert lines, f"D1: {claim_path} is a claim that says nothing"
            assert lines[0]["event"] == "claim", f"D1: {claim_path} does not begin with its claim"
        ends = [line["outcome"] for line in lines if line["event"] == "outcome"]
        assert len(set(ends)) <= 1, f"D3: {claim_path} was settled twice: {ends}"
        if not ends:
            found = [
                entry
                for entry in entries
                if entry.claim_path == claim_path and _leads_to(path, entry, claim_path)
            ]
            assert found, f"D1: {claim_path} has no outcome and is not in open/"


def check_told(path: str, told: Told) -> None:
    """Check that what a caller was told is what is there (D5)."""
    for word, *rest in told:
        if word in ("claimed", "already"):
            assert rest[0] in claim_files(path), f"D5: told {word}, and {rest[0]} is not there"
        elif word == "line":
            events = [line["event"] for line in lines_of(path, rest[0])]
            assert rest[1] in events, f"D5: told that {rest[1]} was written: {events}"
        elif word == "settled":
            ends = [x["outcome"] for x in lines_of(path, rest[0]) if x["event"] == "outcome"]
            assert ends[:1] == [rest[1]], f"D5: told that it was settled {rest[1]}: {ends}"


def check_restart(path: str, told: Told, occurrences: Any, *, whole: bool = True) -> State:
    """Start the program again and check all that it promises about claims."""
    check_claims(path, whole=whole)
    check_told(path, told)
    before = set(claim_files(path))
    state = start_again(path)
    claims = ClaimStore(state)
    check_claims(path, whole=whole)
    check_told(path, told)
    assert before <= set(claim_files(path)), "a claim is gone"
    waiting = set()
    for claim_path in claim_files(path):
        record = claims.read_path(claim_path)
        assert record is not None
        assert not locks.path_is_locked(state.at(claim_path)), f"{claim_path} is locked by the dead"
        if record.end is None:
            waiting.add(claim_path)
    names = [entry.claim_path for entry in claims.open_entries()]
    assert sorted(names) == sorted(waiting), "D1: what is open is in open/, once, and nothing else"
    for occurrence in occurrences:
        claimed = claims.is_claimed(occurrence)
        again = claims.take(draft(occurrence), at=NOW)
        assert (again is None) == claimed, f"O: {occurrence.ref} has two claims or can have none"
        if again is not None:
            again.settle(Outcome.COMPLETED, at=NOW)
            again.let_go()
    assert {one.claim_path for one in occurrences} <= set(claim_files(path))
    check_claims(path, whole=whole)
    return state


@contextlib.contextmanager
def telling_of_failure(told: Told, *, lasting: bool) -> Iterator[None]:
    """Note a refusal that is an error of ours; any other exception is a fault of the store.

    While everything fails, what was begun can't be taken back either.
    """
    try:
        yield
    except RoutinesError as error:
        told.append(["fails on" if lasting else "failed", error.code])
