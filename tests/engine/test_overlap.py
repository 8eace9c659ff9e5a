"""A slot that meets the running turn of its own predecessor (L13)."""

from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.engine import host
from routines.store.cancels import CancelStore
from routines.store.claim_making import Draft
from tests.engine.stage import HOUR, MINUTE, SECOND, at, every, routine

BUFFER, SUPERSEDE = OverlapPolicy.BUFFER_ONE, OverlapPolicy.SUPERSEDE


def ends(stage):
    return [
        (r.occurrence.instant.strftime("%H:%M"), r.outcome, r.reason)
        for r in sorted(stage.records(), key=lambda one: one.occurrence.instant)
    ]


@pytest.mark.parametrize("policy", list(OverlapPolicy))
async def test_with_nothing_in_the_way_every_policy_fires(stage, policy):
    async with stage.running(routine(schedule=every(60), overlap=policy)):
        await stage.clock.advance_to(at("10:00"))

    assert ends(stage) == [("09:00", "completed", None), ("10:00", "completed", None)]


async def test_buffered_slot_goes_when_its_predecessor_has_ended(stage):
    buffered = routine(schedule=every(10), overlap=BUFFER)
    async with stage.running(buffered):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:20"))
        assert [r.written_state for r in stage.records()].count("buffered") == 1

        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [("08:10", "completed", None), ("08:20", "completed", None)]
    assert stage.slots == ["08:10", "08:20"]


async def test_only_the_newest_slot_is_buffered(stage):
    buffered = routine(schedule=every(10), overlap=BUFFER)
    async with stage.running(buffered):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:41"))
        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [
        ("08:10", "completed", None),
        ("08:20", "skipped", "overlap"),
        ("08:30", "skipped", "overlap"),
        ("08:40", "completed", None),
    ]


async def test_buffered_slot_survives_a_restart(stage):
    buffered = routine(schedule=every(10), overlap=BUFFER)
    engine = stage.engine(buffered)
    await engine.start()
    stage.agent.hold()
    await stage.clock.advance_to(at("08:20"))
    await stage.crash(engine)
    stage.agent.release()
    async with stage.running(buffered):
        await stage.clock.advance(2 * MINUTE)

    assert ends(stage) == [("08:10", "interrupted", "owner-died"), ("08:20", "completed", None)]


async def test_buffered_slot_that_waited_too_long_is_missed(stage):
    buffered = routine(
        schedule=every(30), overlap=BUFFER, start_within=timedelta(minutes=5), timeout=2 * HOUR
    )
    async with stage.running(buffered):
        stage.agent.hold()
        await stage.clock.advance_to(at("09:10"))
        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [("08:30", "completed", None), ("09:00", "missed", "too-late")]


async def test_superseded_turn_ends_and_the_newer_slot_takes_its_session(stage):
    newer = routine(schedule=every(10), overlap=SUPERSEDE)
    async with stage.running(newer):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:20"))
        # It looks each second. In one step of a minute it might be asked back before it has looked.
        await stage.clock.advance(5 * SECOND, step=SECOND)
        await stage.clock.advance(5 * MINUTE)
        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [("08:10", "superseded", None), ("08:20", "completed", None)]
    first = min(stage.records(), key=lambda one: one.occurrence.instant)
    assert "08:20" in first.end["detail"]


async def test_slots_that_are_caught_up_wait_for_each_other_whatever_the_policy(stage):
    known = routine(schedule=every(10), overlap=SUPERSEDE, catch_up=CatchUpPolicy.ALL)
    async with stage.running(known):
        pass
    stage.clock.sleep_machine(timedelta(minutes=35))
    async with stage.running(known):
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [
        ("08:10", "completed", None),
        ("08:20", "completed", None),
        ("08:30", "completed", None),
    ]
    assert stage.slots == ["08:10", "08:20", "08:30"]


async def test_overlap_is_about_the_routine_also_where_each_slot_has_its_own_session(stage):
    fresh = routine(schedule=every(10), overlap=BUFFER, session="fresh")
    async with stage.running(fresh) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("08:25"))
        assert len(engine.in_flight) == 1
        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert ends(stage) == [("08:10", "completed", None), ("08:20", "completed", None)]


async def test_turn_that_does_not_take_up_the_cancel_goes_on_and_the_newer_slot_waits(stage):
    newer = routine(schedule=every(10), overlap=SUPERSEDE)
    async with stage.running(newer):
        pass
    # A turn whose owner is stopped: it lives, holds its claim, and looks at nothing.
    stopped = stage.claims.take(
        Draft(
            Occurrence(Kind.SLOT, "digest", at("08:10")),
            {"routine": "digest", "session": "routine:digest", "owner": host.owner().to_json()},
        ),
        at=at("08:10"),
    )
    stopped.append(Event.STARTED, at=at("08:10"), owner=host.owner().to_json())
    async with stage.running(newer):
        await stage.clock.advance_to(at("08:20"))
        await stage.clock.advance(5 * MINUTE)
        assert CancelStore(stage.state).pending(stopped.record.ref) is None
        assert stopped.reread().last == "started"
        states = {r.occurrence.instant.minute: r.written_state for r in stage.records()}
        assert states == {10: "running", 20: "buffered"}

        stopped.settle(Outcome.COMPLETED, at=stage.clock.now())
        stopped.let_go()
        await stage.clock.advance(2 * MINUTE)

    assert ends(stage) == [("08:10", "completed", None), ("08:20", "completed", None)]
