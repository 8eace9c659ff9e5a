"""The power may go at any moment: what a caller was told is then still true (PROMISES D5)."""

import os
import shutil
import zlib

import pytest

from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.errors import NotDurable
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing
from tests.builders import BOOT, NOW, draft, slot
from tests.store.crash import as_a_new_process, standing_in, start_again
from tests.store.operations import CLAIMS, CURSORS, OPERATIONS, WAKEUPS, Operation
from tests.store.power import (
    Died,
    Disk,
    Luck,
    Recorder,
    check_every_cut,
    cut,
    lucks,
    prepared,
    some,
)

EVERY = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
# Few enough for half a minute on a slow machine.
DEATHS = 8
CUTS_AFTER_DEATH = 4


@EVERY
def test_a_power_cut_at_any_step_leaves_every_promise_kept(
    operation: Operation, quick_path: str
) -> None:
    check_every_cut(operation, quick_path)


AGAIN = [one for one in CURSORS if one.name in ("first-cursor", "give-up")]


@pytest.mark.parametrize("operation", [*CLAIMS, *WAKEUPS, *AGAIN], ids=lambda one: one.name)
def test_a_power_cut_after_another_process_went_on_with_what_a_dead_one_left(
    operation: Operation, quick_path: str
) -> None:
    """Somebody dies between a write and its sync; nobody may stand on that without a sync."""
    made, recorder = prepared(operation, quick_path)
    with standing_in(recorder):
        operation.act(made, recorder.tell)
    as_a_new_process()
    del made
    shutil.rmtree(os.path.join(quick_path, "live"))
    seed = zlib.crc32(operation.name.encode())
    for dies_at in some(range(2, recorder.count + 1), DEATHS, seed):
        made, dying = prepared(operation, quick_path, dies_at=dies_at)
        path = os.path.join(quick_path, "live", "state")
        with standing_in(dying):
            with pytest.raises(Died):
                operation.act(made, dying.tell)
            dying.dies_at = 0
            as_a_new_process()
            death = len(dying.journal)
            state = open_for_writing(path, boot=BOOT)
            if operation in AGAIN:
                operation.act(state, dying.tell)
            claims = ClaimStore(state)
            for occurrence in operation.occurrences:
                claim = claims.take(draft(occurrence), at=NOW)
                dying.tell("already" if claim is None else "claimed", occurrence.claim_path)
                if claim is not None:
                    claim.let_go()
            start_again(path, dying.tell)
        as_a_new_process()
        for until in some(range(death, len(dying.journal) + 1), CUTS_AFTER_DEATH, seed + dies_at):
            for luck in lucks(until):
                cut(dying, operation, quick_path, until, luck)
        del made
        shutil.rmtree(os.path.join(quick_path, "live"))


def test_an_outcome_whose_sync_failed_is_on_the_disk_once_settling_has_worked(
    quick_path: str,
) -> None:
    """After a failed sync the kernel calls the pages clean: to sync again would be a lie (D2)."""
    operation = next(one for one in CLAIMS if one.name == "a-turn")
    made, recorder = prepared(operation, quick_path)
    (claim,) = made
    with standing_in(recorder):
        claim.append(Event.STARTED, at=NOW)
        recorder.sync_fails_at = recorder.count + 2
        with pytest.raises(NotDurable):
            claim.settle(Outcome.COMPLETED, at=NOW)
        assert claim.settle(Outcome.FAILED, at=NOW).outcome is Outcome.COMPLETED
        recorder.tell("settled", slot().claim_path, "completed")
        claim.let_go()
    for luck in lucks(0):
        cut(recorder, operation, quick_path, len(recorder.journal), luck)


def test_the_model_loses_what_is_not_synced_and_keeps_what_is(quick_path: str) -> None:
    """Otherwise everything here would pass for nothing."""
    root = os.path.join(quick_path, "live")
    os.mkdir(root)
    recorder = Recorder(root)
    with standing_in(recorder):
        fd = recorder.open(f"{root}/file", os.O_CREAT | os.O_RDWR, 0o600)
        recorder.write(fd, b"synced")
        recorder.fsync(fd)
        named = len(recorder.journal)
        top = recorder.open(root, os.O_DIRECTORY | os.O_RDONLY)
        recorder.fsync(top)
        recorder.write(fd, b" and not")
        recorder.close(top)
        recorder.close(fd)

    def left(until: int, luck: Luck) -> dict[str, bytes]:
        target = os.path.join(quick_path, "left")
        Disk(recorder.base, recorder.journal[:until]).cut(luck, target)
        found = {one: files.read(os.path.join(target, one)) or b"" for one in os.listdir(target)}
        shutil.rmtree(target)
        return found

    end = len(recorder.journal)
    assert left(named, Luck("none", "none")) == {}
    assert left(named, Luck("all", "none")) == {"file": b"synced"}
    assert left(end, Luck("none", "none")) == {"file": b"synced"}
    assert left(end, Luck("none", "zeros")) == {"file": b"synced\0\0\0\0\0\0\0\0"}
    assert left(end, Luck("none", "all")) == {"file": b"synced and not"}
