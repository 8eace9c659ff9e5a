"""Sixteen processes and one due slot, two hundred times (PROMISES D1, BR-08)."""

import json
import multiprocessing
import os
import time
import warnings
from datetime import datetime, timedelta

import pytest

from routines.domain.names import format_instant, parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome
from routines.store.claims import ClaimStore
from routines.store.state import State
from tests.builders import NOW, draft
from tests.store.crash import (
    Unsynced,
    as_a_new_process,
    check_claims,
    claim_files,
    standing_in,
)
from tests.store.interleave import Call, check_history

PROCESSES = 16
SLOTS = [NOW + timedelta(minutes=number) for number in range(200)]
# What has not ended by then has hung: all of it takes a few seconds.
PATIENCE_S = 60


def occurrence(slot: datetime) -> Occurrence:
    return Occurrence(Kind.SLOT, "daily", slot)


def race(state: State, barrier: object, writing: int) -> None:
    claims = ClaimStore(state)
    calls = []
    with standing_in(Unsynced()):
        for slot in SLOTS:
            barrier.wait(PATIENCE_S)  # type: ignore[attr-defined]
            called = time.monotonic_ns()
            claim = claims.take(draft(occurrence(slot)), at=slot)
            replied = time.monotonic_ns()
            newest, _ = claims.newest_slot("daily", until=SLOTS[-1])
            asked = time.monotonic_ns()
            assert newest is not None
            calls.append(
                (
                    format_instant(slot),
                    called,
                    replied,
                    claim is not None,
                    format_instant(newest),
                    asked,
                )
            )
            if claim is not None:
                claim.settle(Outcome.COMPLETED, at=slot)
                claim.let_go()
    with open(writing, "w") as pipe:
        json.dump(calls, pipe)


def test_sixteen_processes_released_at_once_find_one_winner_of_each_of_200_slots(
    state: State,
) -> None:
    barrier = multiprocessing.get_context("fork").Barrier(PROCESSES)
    children: dict[int, int] = {}
    for _ in range(PROCESSES):
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                as_a_new_process()
                race(state, barrier, writing)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        children[pid] = reading
    calls = []
    for pid, reading in children.items():
        with open(reading) as pipe:
            told = pipe.read()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        calls += [
            Call(parse_instant(slot), called, replied, won, parse_instant(newest), asked)
            for slot, called, replied, won, newest, asked in json.loads(told)
        ]

    assert len(calls) == PROCESSES * len(SLOTS)
    check_history(calls, SLOTS)
    assert claim_files(state.path) == sorted(occurrence(slot).claim_path for slot in SLOTS)
    check_claims(state.path)
    records = [ClaimStore(state).read_path(path) for path in claim_files(state.path)]
    assert [one.outcome for one in records if one is not None] == [Outcome.COMPLETED] * len(SLOTS)
    assert ClaimStore(state).open_entries() == []


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        ([Call(NOW, 1, 2, True), Call(NOW, 1, 2, True)], "2 winners"),
        ([Call(NOW, 1, 2, False)], "0 winners"),
        ([Call(NOW, 5, 6, True), Call(NOW, 1, 2, False)], "before anybody asked"),
        (
            [Call(NOW, 1, 2, True), Call(NOW, 3, 4, False, NOW - timedelta(minutes=1), 5)],
            "went backwards",
        ),
        ([Call(NOW, 1, 2, True, NOW + timedelta(minutes=1), 3)], "not claimed yet"),
    ],
)
def test_a_history_that_could_not_have_been_is_refused(calls: list[Call], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check_history(calls, [NOW])
