"""A process may die before or after any one of its calls, or any one of them may fail."""

import ast
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import routines.store
from routines.store import files, locks
from routines.store.claims import ClaimStore
from routines.store.state import State
from tests.store.crash import (
    Steps,
    Tell,
    Told,
    Unsynced,
    WithoutLinks,
    as_a_new_process,
    check_claims,
    check_restart,
    check_told,
    claim_files,
    failing,
    in_child,
    lines_of,
    standing_in,
    stop_after,
    stop_before,
    telling_of_failure,
)
from tests.store.operations import CLAIMS, OPERATIONS, Operation

Stop = Callable[[int], Steps]
EVERY = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
# Claims, and what else has a name in `open/` or a second one elsewhere.
LINKED = [*CLAIMS, *(one for one in OPERATIONS if "job_feed.JobFeed.publish" in one.covers)]
EVERY_LINKED = pytest.mark.parametrize("operation", LINKED, ids=lambda one: one.name)


def how_many_calls(operation: Operation, path: str, inner: type[files.Calls]) -> int:
    steps = Steps(inner=inner())

    def work(tell: Tell) -> None:
        with standing_in(inner()):
            made = operation.prepare(path)
            with standing_in(steps):
                operation.act(made, tell)
        tell("calls", steps.count)

    stopped, told = in_child(work)
    assert not stopped
    assert told[-1][0] == "calls"
    check(operation, path, told, whole=inner is Unsynced)
    return int(told[-1][1])


def check(operation: Operation, path: str, told: Told, *, whole: bool) -> None:
    check_restart(path, told, operation.occurrences, whole=whole and operation.whole)
    operation.after(path, told)


def stop_everywhere(
    operation: Operation, folder: str, inner: type[files.Calls], stops: tuple[Stop, ...]
) -> None:
    calls = how_many_calls(operation, os.path.join(folder, "whole"), inner)
    assert calls or operation.name == "section"
    for number in range(1, calls + 1):
        for stop in stops:
            path = os.path.join(folder, "state")
            steps = stop(number)
            steps._inner = inner()

            def work(tell: Tell, path: str = path, steps: Steps = steps) -> None:
                with standing_in(inner()):
                    made = operation.prepare(path)
                    with standing_in(steps):
                        operation.act(made, tell)

            stopped, told = in_child(work)
            assert stopped
            with standing_in(inner()):
                check(operation, path, told, whole=inner is Unsynced)
            shutil.rmtree(path, ignore_errors=True)


@EVERY
def test_a_process_that_dies_at_any_step_leaves_every_promise_kept(
    operation: Operation, quick_path: str
) -> None:
    stop_everywhere(operation, quick_path, Unsynced, (stop_before, stop_after))


@EVERY_LINKED
def test_it_is_the_same_without_hard_links_but_that_a_claim_may_be_empty(
    operation: Operation, quick_path: str
) -> None:
    stop_everywhere(operation, quick_path, WithoutLinks, (stop_before,))


# Calls that fail -------------------------------------------------------------------------------


def fail_at(
    operation: Operation, path: str, number: int, code: int, *, lasting: bool, inner: files.Calls
) -> bool:
    """Let the *number*th call fail and check what follows; False if there is no such call."""
    told: Told = []
    whole = isinstance(inner, Unsynced) and not isinstance(inner, WithoutLinks)
    before = set(os.listdir("/dev/fd"))
    with standing_in(inner):
        made = operation.prepare(path)
        known = claim_files(path)
        steps = failing(number, code, lasting=lasting)
        steps._inner = inner
        with standing_in(steps), telling_of_failure(told, lasting=lasting):
            operation.act(made, lambda *words: told.append(list(words)))
        # The process lives, and has been told.
        if os.path.isdir(os.path.join(path, "claims")):
            check_claims(path, whole=whole and operation.whole)
        check_told(path, told)
        check_refused_is_free_or_kept(path, told, known)
        as_a_new_process()
        del made
        leaked = set(os.listdir("/dev/fd")) - before
        assert not [fd for fd in leaked if os.path.exists(f"/dev/fd/{fd}")], "a descriptor is lost"
        check_restart(path, told, operation.occurrences, whole=whole and operation.whole)
        operation.after(path, told)
    shutil.rmtree(path, ignore_errors=True)
    return steps.count >= number


def check_refused_is_free_or_kept(path: str, told: Told, known: list[str]) -> None:
    """Check D2 and D5: a claim that was refused is not there, or settled, or kept by its maker."""
    for word, *rest in told:
        if word != "failed" or len(rest) < 2 or rest[1] in known:
            continue
        if rest[1] not in claim_files(path):
            continue
        ends = [line for line in lines_of(path, rest[1]) if line["event"] == "outcome"]
        if ends:
            # What was skipped at birth stays so: no turn follows from either.
            assert ends[0]["outcome"] == "skipped" or ends[0]["reason"] == "not-durable"
        elif ["claimed", rest[1]] not in told:
            assert locks.path_is_locked(os.path.join(path, rest[1])), "D2: claimed by nobody"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
@EVERY
def test_a_call_that_fails_leaves_every_promise_kept(
    operation: Operation, code: int, quick_path: str
) -> None:
    for lasting in (False, True):
        number = 1
        while fail_at(
            operation,
            os.path.join(quick_path, "state"),
            number,
            code,
            lasting=lasting,
            inner=Unsynced(),
        ):
            number += 1


@EVERY_LINKED
def test_a_call_that_fails_without_hard_links_leaves_every_promise_kept(
    operation: Operation, quick_path: str
) -> None:
    for lasting in (False, True):
        number = 1
        while fail_at(
            operation,
            os.path.join(quick_path, "state"),
            number,
            errno.ENOSPC,
            lasting=lasting,
            inner=WithoutLinks(),
        ):
            number += 1


# Nothing is left out ---------------------------------------------------------------------------

# What the two lowest modules do is what the operations are made of; a probe leaves nothing.
_BELOW = ("files", "locks", "probe")


def _writers() -> set[str]:
    """Every public function and method of the stores that reaches a writing call."""
    reaches: dict[str, set[str]] = {}
    folder = Path(routines.store.__file__).parent
    for source in sorted(folder.glob("*.py")):
        module = source.stem
        tree = ast.parse(source.read_text())
        imported = {
            alias.asname or alias.name: f"{node.module.rpartition('.')[2]}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("routines.store")
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                reaches[f"{module}.{node.name}"] = set(_calls_of(node, module, None, imported))
            elif isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.FunctionDef):
                        name = f"{module}.{node.name}.{part.name}"
                        reaches[name] = set(_calls_of(part, module, node.name, imported))
    writing = {"files.calls"}
    while True:
        more = {name for name, calls in reaches.items() if calls & writing} - writing
        if not more:
            break
        writing |= more
    return {
        name
        for name in writing
        if name.split(".")[0] not in _BELOW and not any(x[0] == "_" for x in name.split("."))
    }


def _calls_of(
    node: ast.AST, module: str, owner: str | None, imported: dict[str, str]
) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            if part.id == "calls" and module == "files":
                yield "files.calls"
            yield imported.get(part.id, f"{module}.{part.id}")
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            if part.value.id == "self" and owner is not None:
                yield f"{module}.{owner}.{part.attr}"
            else:
                # `files.remove`, `files.calls`, and methods of what is called as its class is.
                yield f"{part.value.id}.{part.attr}"
                yield f"{module}.{part.value.id.capitalize()}.{part.attr}"
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Attribute):
            # `self._hints.make`: of what is called as its class is.
            kind = part.value.attr.lstrip("_").capitalize()
            yield f"{imported.get(kind, f'{module}.{kind}')}.{part.attr}"


def test_everything_that_writes_is_stopped_and_failed_here() -> None:
    covered = {name for operation in OPERATIONS for name in operation.covers}
    assert sorted(_writers() - covered) == [], "add an operation for it to operations.py"
    assert sorted(covered - _writers()) == [], "covered, and not there or not writing any more"


def test_the_search_for_writers_finds_what_is_known_to_write() -> None:
    assert {"claims.ClaimStore.take", "claim.Claim.settle", "state.adopt"} <= _writers()
    assert "claims.ClaimStore.walk" not in _writers()


def test_a_check_fails_where_a_promise_is_broken(tmp_path: Path) -> None:
    """The checks themselves: a claim without a name in open/ must not go unseen."""
    path = str(tmp_path / "state")
    operation = CLAIMS[0]
    operation.act(operation.prepare(path), lambda *words: None)
    as_a_new_process()
    for entry in ClaimStore(State(path, None)).open_entries():  # type: ignore[arg-type]
        os.unlink(os.path.join(path, "open", entry.name))
    with pytest.raises(AssertionError, match="not in open/"):
        check_claims(path)
