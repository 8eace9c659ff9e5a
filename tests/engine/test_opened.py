"""Programs that outlived who opened them in a session: ended before anybody else has it (T2, T3)."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from routines.engine import host
from routines.engine.opened import end_opened, marks_around, may_live, to_be_opened
from routines.errors import SessionBusyError, StoreError
from routines.operations.jobs import Jobs
from routines.store.sessions import Lease, SessionStore, ledger_path
from routines.store.state import adopt, open_for_writing
from tests.engine.stage import MINUTE, SECOND, at, eventually, once, routine
from tests.engine.test_recovering import ELSEWHERE, age, leave_claim, look, owner

SESSION = "routine:digest"
# Deaf: it ends by KILL, and only once the time of the fake clock has passed for that.
PROGRAM = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def start(stage):
    """Start a program with a mark in its environment; ended after the test."""
    started = []

    def call(opened):
        words = [sys.executable, "-Ssc", PROGRAM]
        env = os.environ | opened.variable(stage.state.path)
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
        started.append(process)
        process.stdout.readline()
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def leave(stage, **changes):
    """Leave the record of a program, as `session open` does that is killed; return it."""
    opened = replace(to_be_opened(stage.clock), **changes)
    lease = stage.sessions.take(SESSION, clock=stage.clock)
    lease.stamp(None, held_by="ana@studio (session open: claude)", opened=opened)
    lease.let_go()
    return opened


async def test_a_slot_waits_until_what_was_left_in_its_session_has_ended(stage, start):
    process = start(leave(stage))
    async with stage.running(routine(schedule=once("08:01"))):
        await stage.clock.advance_to(at("08:01") + SECOND)
        assert (stage.told, process.poll()) == ([], None)
        await stage.clock.advance(20 * SECOND, step=SECOND)
        await eventually(lambda: process.poll() is not None)
        await eventually(lambda: stage.sessions.is_busy(SESSION) is None)
        await stage.clock.advance(5 * SECOND, step=SECOND)

    assert stage.history() == ["08:01 completed"]


async def test_a_slot_is_not_held_up_by_a_record_of_what_has_ended(stage):
    leave(stage)
    async with stage.running(routine(schedule=once("08:01"))):
        await stage.clock.advance_to(at("08:01") + SECOND)

    assert stage.history() == ["08:01 completed"]
    assert stage.sessions.peek(SESSION).opened is None


async def test_a_host_that_holds_a_session_for_its_own_turn_gets_it_once_that_has_ended(
    stage, start
):
    process = start(leave(stage))
    async with stage.running() as engine:
        with pytest.raises(SessionBusyError) as busy:
            await engine.hold(SESSION).__aenter__()
        assert "session open: claude" in busy.value.message
        await stage.clock.advance(20 * SECOND, step=SECOND)
        await eventually(lambda: process.poll() is not None)
        await eventually(lambda: stage.sessions.is_busy(SESSION) is None)
        async with engine.hold(SESSION) as lease:
            assert lease.ledger.opened is None


async def test_only_what_has_the_mark_is_ended(stage, start):
    other = start(to_be_opened(stage.clock))
    mine = start(leave(stage))
    end_opened(stage.state, SESSION, clock=stage.clock)

    assert (mine.wait(), other.poll()) == (-9, None)


async def test_a_copy_of_the_folder_ends_nothing_of_the_original(stage, start):
    process = start(leave(stage))
    copy = adopted_copy(stage)
    end_opened(copy, SESSION, clock=stage.clock)

    assert SessionStore(copy).peek(SESSION).opened is None
    assert process.poll() is None


def adopted_copy(stage):
    """A copy of the state folder, adopted by mistake."""
    path = f"{stage.path}-copy"
    shutil.copytree(stage.path, path)
    return adopt(path, boot=host.here().boot, fork=False)


async def test_a_program_is_found_by_whatever_name_the_folder_is_known(stage, start, tmp_path):
    process = start(leave(stage))
    (tmp_path / "link").symlink_to(stage.path)
    linked = open_for_writing(str(tmp_path / "link"), boot=host.here().boot)
    end_opened(linked, SESSION, clock=stage.clock)

    assert process.wait() == -9


@pytest.mark.parametrize("again", [False, True], ids=["nothing", "another"])
async def test_a_program_is_found_after_the_folder_was_moved(stage, start, again):
    process = start(leave(stage))
    moved = f"{stage.path}-moved"
    os.rename(stage.path, moved)
    if again:
        # Where it was, another workspace is begun.
        open_for_writing(stage.path, boot=host.here().boot)
    end_opened(adopt(moved, boot=host.here().boot, fork=False), SESSION, clock=stage.clock)

    assert process.wait() == -9


async def test_a_session_that_somebody_holds_is_left_alone(stage, start):
    process = start(opened := leave(stage))
    lease = stage.sessions.take(SESSION, clock=stage.clock, past=opened)
    end_opened(stage.state, SESSION, clock=stage.clock)

    assert process.poll() is None
    assert lease.ledger.opened == opened
    lease.let_go()


async def test_what_can_not_be_ended_keeps_the_session(stage, start, monkeypatch):
    start(leave(stage))
    monkeypatch.setattr("routines.agents.trees._send", lambda row, number: None)
    with pytest.raises(StoreError, match=r"of ana@studio \(session open: claude\) can't be ended"):
        end_opened(stage.state, SESSION, clock=stage.clock)

    assert not isinstance(stage.sessions.take(SESSION, clock=stage.clock), Lease)


async def test_what_was_opened_on_another_host_is_presumed_dead_after_10_minutes(stage):
    opened = leave(stage, owner=ELSEWHERE)
    end_opened(stage.state, SESSION, clock=stage.clock)
    assert may_live(stage.state, opened)
    assert stage.sessions.peek(SESSION).opened == opened

    stage.clock.set(stage.clock.now() + 11 * MINUTE)
    end_opened(stage.state, SESSION, clock=stage.clock)
    ledger = stage.sessions.peek(SESSION)
    assert (ledger.opened, ledger.epoch) == (None, 2)
    assert ledger.epoch_reason == (
        "ana@studio (session open: claude) was presumed dead on another host"
    )


async def test_what_was_opened_in_another_pid_namespace_of_this_boot_can_not_be_seen_to_have_ended(
    stage,
):
    opened = leave(stage, owner=replace(host.owner(), pidns="pid:[1]"))
    end_opened(stage.state, SESSION, clock=stage.clock)
    assert may_live(stage.state, opened)
    assert stage.sessions.peek(SESSION).opened == opened

    stage.clock.set(stage.clock.now() + 11 * MINUTE)
    end_opened(stage.state, SESSION, clock=stage.clock)
    ledger = stage.sessions.peek(SESSION)
    assert (ledger.opened, ledger.epoch) == (None, 2)
    assert ledger.epoch_reason.endswith("was presumed dead on another container")


async def test_what_another_host_says_to_have_opened_in_time_to_come_counts_from_its_writing(stage):
    leave(stage, owner=ELSEWHERE, at=at("08:00") + 73 * 365 * 24 * 60 * MINUTE)
    end_opened(stage.state, SESSION, clock=stage.clock)
    assert stage.sessions.peek(SESSION).opened is not None

    age(ledger_path(stage.state, SESSION), 11)
    end_opened(stage.state, SESSION, clock=stage.clock)
    ledger = stage.sessions.peek(SESSION)
    assert (ledger.opened, ledger.epoch) == (None, 2)


async def test_what_was_opened_before_this_host_was_started_again_is_dead(
    stage, start, monkeypatch
):
    here = replace(host.here(), host="this-machine")
    monkeypatch.setattr(host, "here", lambda: here)
    opened = leave(stage, owner=owner(boot="earlier"))
    process = start(opened)
    end_opened(stage.state, SESSION, clock=stage.clock)

    ledger = stage.sessions.peek(SESSION)
    assert (ledger.opened, ledger.held_by, ledger.epoch) == (None, None, 1)
    # Its numbers are not ours, whatever is called so.
    assert process.poll() is None


def test_marks_alone_are_handed_on():
    mark = f"ROUTINES_HELD_{'a' * 32}"
    base = {mark: "1", "ROUTINES_HELD_x": "1", "ROUTINES_TURN": "k", "PATH": "/bin"}

    assert marks_around(base) == {mark: "1"}


async def test_a_program_that_works_jobs_has_what_was_left_in_their_session_ended(stage, start):
    jobs = Jobs(stage.path, clock=stage.clock, by="ci@studio")
    jobs.add("look", id="a", session=SESSION)
    process = start(leave(stage))
    claimed = jobs.claim()

    assert (claimed.job.id, process.wait()) == ("a", -9)


async def test_an_unstarted_claim_is_not_kept_waiting_by_a_record_of_what_has_ended(stage):
    leave_claim(stage)
    leave(stage)
    await look(stage)

    assert stage.history() == ["08:05 completed"]
