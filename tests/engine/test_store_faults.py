"""Disks that refuse: no claim no turn, and the loop lives (PROMISES D2, D4, L8, BR-56)."""

import errno
import os
from itertools import pairwise

import pytest

from routines.store import files
from routines.store.sessions import session_key
from tests.engine.stage import MINUTE, SECOND, at, every, once, routine

ENOSPC = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Refusing(files.Calls):
    """System calls that fail while they are told to."""

    def __init__(self):
        self.refuses = lambda name, path: False
        self.refused = []

    def _ask(self, name, path):
        if self.refuses(name, path):
            self.refused.append((name, path))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path, flags, *more):
        if flags & os.O_CREAT:
            self._ask("open", path)
        return os.open(path, flags, *more)

    def write(self, fd, data):
        self._ask("write", bytes(data))
        return os.write(fd, data)

    def link(self, source, path):
        self._ask("link", path)
        os.link(source, path)

    def fsync(self, fd):
        self._ask("fsync", fd)
        os.fsync(fd)

    def rename(self, source, path):
        self._ask("rename", path)
        os.rename(source, path)


@pytest.fixture
def disk(monkeypatch):
    calls = Refusing()
    monkeypatch.setattr(files, "calls", calls)
    return calls


def full(name, path):
    return name in ("write", "link")


async def test_without_a_claim_there_is_no_turn_and_afterwards_the_slot_runs(stage, disk):
    async with stage.running(routine(schedule=every(60))):
        disk.refuses = full
        await stage.clock.advance_to(at("09:10"))
        assert stage.agent.turns == []
        assert stage.claims.open_entries() == []
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("09:12"))
        await stage.clock.advance_to(at("10:00"))

    assert stage.history() == ["09:00 completed", "10:00 completed"]


async def test_a_scheduler_shows_what_the_store_refuses_until_it_no_longer_does(stage, disk):
    from routines.store.schedulers import SchedulerStore

    async with stage.running(routine("bad", every(60)), routine("good", every(60))):
        disk.refuses = lambda name, path: name == "link" and "/claims/bad/" in path
        await stage.clock.advance_to(at("09:01"))
        ((shown, _),) = SchedulerStore(stage.state).live()
        assert shown.faults.keys() == {"bad"}
        assert os.strerror(errno.ENOSPC) in shown.faults["bad"]
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("09:05"))
        ((shown, _),) = SchedulerStore(stage.state).live()

    assert shown.faults == {}


async def test_full_disk_is_asked_at_a_growing_pace(stage, disk):
    asked = []
    async with stage.running(routine(schedule=once("09:00"))):
        await stage.clock.advance_to(at("09:00") - SECOND)
        disk.refuses = lambda name, path: (
            name == "link" and "/claims/" in path and (asked.append(stage.clock.now()) or True)
        )
        await stage.clock.advance_to(at("09:30"), step=SECOND)
        disk.refuses = lambda *_: False
        await stage.clock.advance(MINUTE)

    pauses = [(b - a).total_seconds() for a, b in pairwise(asked)]
    assert pauses[0] <= 2
    assert pauses[-1] >= 60
    assert pauses == sorted(pauses)
    assert len(asked) < 40
    assert stage.history() == ["09:00 completed"]


async def test_other_routines_run_while_one_cannot_be_claimed(stage, disk):
    disk.refuses = lambda name, path: name == "link" and "/claims/bad/" in path
    async with stage.running(routine("bad", every(60)), routine("good", every(60))):
        await stage.clock.advance_to(at("09:00"))

    assert [turn.routine for turn in stage.agent.turns] == ["good"]


async def test_turn_whose_start_cannot_be_written_is_not_run_and_runs_later(stage, disk):
    async with stage.running(routine(schedule=every(60))):
        disk.refuses = lambda name, data: name == "write" and b'"event":"started"' in data
        await stage.clock.advance_to(at("09:02"))
        assert stage.agent.turns == []
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("09:10"))

    assert stage.history() == ["09:00 completed"]
    assert len(stage.agent.turns) == 1


async def test_turn_that_could_not_be_started_three_times_has_failed_as_not_started(stage, disk):
    async with stage.running(routine(schedule=every(60))):
        disk.refuses = lambda name, data: name == "write" and b'"event":"started"' in data
        await stage.clock.advance_to(at("09:30"))
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("10:00"))

    assert stage.history() == ["09:00 failed not-started", "10:00 completed"]
    assert len(stage.agent.turns) == 1


async def test_turn_whose_start_cannot_be_synced_is_never_run(stage, disk):
    started = set()

    def refuses(name, what):
        if name == "write" and b'"event":"started"' in what:
            started.add(True)
        return name == "fsync" and bool(started)

    async with stage.running(routine(schedule=every(60))):
        disk.refuses = refuses
        await stage.clock.advance_to(at("09:01"))
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("09:10"))

    assert stage.agent.turns == []
    assert stage.history()[0].startswith("09:00 interrupted")


async def test_outcome_that_cannot_be_written_is_written_later_and_the_turn_not_repeated(
    stage, disk
):
    tries = []

    def refuses(name, data):
        if name == "write" and b'"event":"outcome"' in data:
            tries.append(data)
            return len(tries) < 5
        return False

    async with stage.running(routine(schedule=every(60))):
        disk.refuses = refuses
        await stage.clock.advance_to(at("09:05"))

    assert len(tries) == 5
    assert stage.history() == ["09:00 completed"]
    assert len(stage.agent.turns) == 1


async def test_session_that_cannot_be_locked_leaves_the_slot_owed_and_its_place_free(stage, disk):
    from routines.engine.lifecycle import Limits

    digest, other = routine(schedule=every(60)), routine("other", once("09:02"))
    async with stage.running(digest, other, limits=Limits(concurrency=1)):
        disk.refuses = lambda name, path: (
            name == "open" and "/sessions/" in str(path) and stage.clock.now() < at("09:02")
        )
        await stage.clock.advance_to(at("09:20"))

    assert disk.refused
    assert stage.history("other") == ["09:02 completed"]
    assert stage.history() == ["09:00 completed"]


async def test_session_that_cannot_be_locked_keeps_no_other_slot_of_its_instant_waiting(
    stage, disk
):
    key = session_key("routine:bad")
    async with stage.running(routine("bad", every(60)), routine("good", every(60))):
        disk.refuses = lambda name, path: name == "open" and key in str(path)
        await stage.clock.advance_to(at("09:00"))
        assert stage.history("good") == ["09:00 completed"]

    assert disk.refused


async def test_cursor_that_cannot_be_written_is_tried_again(stage, disk):
    async with stage.running(routine("first", every(60))) as engine:
        disk.refuses = lambda name, path: name == "link" and "/cursors/" in path
        engine.replace([routine("first", every(60)), routine("second", every(60))])
        await stage.clock.advance_to(at("08:05"))
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("09:00"))

    assert sorted(turn.routine for turn in stage.agent.turns) == ["first", "second"]


async def test_ledger_that_cannot_be_written_starts_no_turn(stage, disk):
    async with stage.running(routine(schedule=every(60))):
        disk.refuses = lambda name, path: (
            name == "rename" and "/sessions/" in path and stage.clock.now() < at("09:02")
        )
        await stage.clock.advance_to(at("09:01"))
        assert stage.agent.turns == []
        await stage.clock.advance_to(at("09:20"))

    assert stage.history() == ["09:00 completed"]
    assert disk.refused


async def test_heartbeat_that_cannot_be_written_harms_nobody(stage, disk):
    disk.refuses = lambda name, path: name == "rename" and "/schedulers/" in path
    with pytest.raises(Exception, match="ENOSPC"):
        # A scheduler that can't show itself does not start.
        async with stage.running(routine()):
            pass
    disk.refuses = lambda *_: False
    async with stage.running(routine(schedule=every(60))):
        disk.refuses = lambda name, path: name == "rename" and "/schedulers/" in path
        await stage.clock.advance_to(at("09:00"))
        disk.refuses = lambda *_: False

    assert stage.history() == ["09:00 completed"]


async def test_output_that_cannot_be_kept_fails_no_turn(stage, disk):
    disk.refuses = lambda name, path: name == "rename" and "/output/" in path
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:05"))

    assert stage.history() == ["08:05 completed"]


async def test_count_that_cannot_be_written_is_worked_out_by_readers(stage, disk):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.move(23 * MINUTE)
    disk.refuses = lambda name, path: name == "rename" and "/missed/" in path
    async with stage.running(digest):
        pass

    assert [one.count for one in stage.cursors.missed("digest")] == [None]
    assert stage.missed()[0].count == 3
    assert stage.slots[-1] == "08:25"


async def test_counted_record_that_cannot_be_written_gives_nothing_up(stage, disk):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.move(23 * MINUTE)
    disk.refuses = lambda name, path: name == "link" and "/missed/" in path
    async with stage.running(digest):
        await stage.clock.advance(MINUTE)
        # The newest does not overtake the older ones: they would be lost in silence.
        assert stage.slots == ["08:05"]
        disk.refuses = lambda *_: False
        await stage.clock.advance_to(at("08:30"))

    lines = stage.history()
    assert lines[0] == "08:05 completed"
    assert lines[-1] == "08:30 completed"
    covered = sum(one.count for one in stage.missed()) + len(stage.records())
    assert covered == 6


async def test_refused_wake_ups_stay_pending(stage, disk):
    from tests.engine.test_waking_up import QUIET, wake

    async with stage.running(QUIET):
        wake(stage, in_="10m")
        disk.refuses = lambda name, path: name == "link" and "/claims/" in path
        await stage.clock.advance_to(at("08:20"))
        assert stage.agent.turns == []
        disk.refuses = lambda *_: False
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert len(stage.agent.turns) == 1


async def test_errors_of_a_full_disk_are_logged_at_a_calm_pace(stage, disk, caplog):
    async with stage.running(routine(schedule=every(60))):
        await stage.clock.advance_to(at("08:59"))
        disk.refuses = lambda name, data: (
            name == "write" and (b'"event":"started"' in data or b'"event":"attempt"' in data)
        )
        await stage.clock.advance_to(at("09:00"))
        caplog.clear()
        await stage.clock.advance(10 * MINUTE, step=SECOND)
        errors = [one for one in caplog.records if one.levelname == "ERROR"]
        assert 0 < len(errors) < 10
        disk.refuses = lambda *_: False
        await stage.clock.advance(15 * MINUTE)

    assert stage.history() == ["09:00 completed"]
