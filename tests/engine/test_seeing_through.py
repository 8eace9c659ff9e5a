"""`fire` and `tick` see through what they claimed and could not start yet (L8, L13, L14)."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from routines.agents.base import SessionBusy
from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.engine.pausing import Pausing
from routines.errors import SessionBusyError
from routines.store.cancels import CancelStore
from routines.testing import RecordingAgent
from tests.engine.stage import MINUTE, SECOND, at, cron, every, routine
from tests.engine.test_recovering import leave_claim
from tests.engine.test_retrying import reluctant

BUFFER, SUPERSEDE = OverlapPolicy.BUFFER_ONE, OverlapPolicy.SUPERSEDE


def digest(overlap=BUFFER, **changes):
    return routine(schedule=every(5), overlap=overlap, **changes)


def begin(stage, verb, *routines, **options):
    """A process of its own that fires a slot, or ticks: its task."""

    async def act():
        async with stage.engine(*routines, is_scheduler=False, **options).opened() as engine:
            return await (engine.tick() if verb == "tick" else engine.fire("digest", at(verb)))

    return asyncio.create_task(act())


async def die(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def seen_by_a_scheduler(stage, *routines):
    async with stage.running(*routines):
        pass


async def first_then(stage, second, *routines):
    """A turn that does not end, and five minutes later the next delivery or pass."""
    stage.agent.hold()
    stage.clock.set(at("08:05:01"))
    first = begin(stage, "tick" if second == "tick" else "08:05", *routines)
    await stage.clock.advance(SECOND)
    await stage.clock.advance_to(at("08:10:01"))
    return first, begin(stage, second, *routines)


# Slots that are delivered ----------------------------------------------------------------------


async def test_delivery_that_supersedes_takes_the_place_of_the_running_turn(stage):
    first, second = await first_then(stage, "08:10", digest(SUPERSEDE))
    await stage.clock.advance(10 * SECOND, step=SECOND)
    assert stage.slots == ["08:05", "08:10"]
    stage.agent.release()
    await stage.clock.advance(SECOND)

    assert (await first).record.outcome == "superseded"
    assert (await second).record.outcome == "completed"
    assert stage.history() == ["08:05 superseded", "08:10 completed"]


async def test_delivery_that_is_buffered_runs_when_the_turn_before_it_has_ended(stage):
    first, second = await first_then(stage, "08:10", digest())
    await stage.clock.advance(2 * MINUTE)
    assert stage.slots == ["08:05"]
    stage.agent.release()
    await stage.clock.advance(5 * SECOND, step=SECOND)

    assert (await first).record.outcome == "completed"
    assert ((await second).word, (await second).record.outcome) == ("buffered", "completed")
    assert stage.slots == ["08:05", "08:10"]


async def test_buffered_delivery_hears_that_a_newer_slot_took_its_place(stage):
    first, second = await first_then(stage, "08:10", digest())
    await stage.clock.advance_to(at("08:15:01"))
    third = begin(stage, "08:15", digest())
    await stage.clock.advance(2 * SECOND, step=SECOND)
    record = (await second).record
    assert (record.outcome, record.reason) == ("skipped", "overlap")
    stage.agent.release()
    await stage.clock.advance(5 * SECOND, step=SECOND)

    assert [(await one).record.outcome for one in (first, third)] == ["completed"] * 2
    assert stage.slots == ["08:05", "08:15"]


async def test_slot_is_seen_through_by_its_second_delivery_when_the_first_has_died(stage):
    first, second = await first_then(stage, "08:10", digest())
    await stage.clock.advance(SECOND)
    await die(second)
    again = begin(stage, "08:10", digest())
    await stage.clock.advance(SECOND)
    stage.agent.release()
    await stage.clock.advance(5 * SECOND, step=SECOND)

    await first
    assert (await again).record.outcome == "completed"
    assert stage.slots == ["08:05", "08:10"]


async def test_buffered_slot_runs_once_however_many_see_it_through(stage):
    first, second = await first_then(stage, "08:10", digest())
    others = [begin(stage, "08:10", digest()) for _ in range(3)]
    async with stage.running(digest()):
        await stage.clock.advance(5 * SECOND, step=SECOND)
        stage.agent.release()
        await stage.clock.advance(5 * SECOND, step=SECOND)
        ended = [await one for one in (first, second, *others)]

    assert [one.record.outcome for one in ended] == ["completed"] * 5
    assert stage.slots == ["08:05", "08:10"]


async def test_delivery_waits_no_longer_than_the_turn_before_it_and_its_own_may_take(stage):
    stopped = leave_claim(stage)
    (entry,) = stage.claims.open_entries()
    claim = stage.claims.hold(entry)
    claim.append(Event.STARTED, at=at("08:05"), owner=claim.record.claim["owner"])
    stage.clock.set(at("08:10:01"))
    timeout = timedelta(minutes=10)
    delivery = begin(stage, "08:10", digest(timeout=timeout))
    await stage.clock.advance(2 * timeout)
    assert not delivery.done()
    await stage.clock.advance(5 * MINUTE)

    found = await delivery
    assert (found.word, found.record.written_state) == ("buffered", "buffered")
    claim.settle(Outcome.COMPLETED, at=stage.clock.now())
    claim.let_go()
    assert stopped
    assert (await begin(stage, "08:10", digest())).record.outcome == "completed"


async def test_delivery_takes_back_what_the_turn_before_it_did_not_take_up(stage):
    leave_claim(stage)
    (entry,) = stage.claims.open_entries()
    claim = stage.claims.hold(entry)
    claim.append(Event.STARTED, at=at("08:05"), owner=claim.record.claim["owner"])
    stage.clock.set(at("08:10:01"))
    delivery = begin(stage, "08:10", digest(SUPERSEDE))
    await stage.clock.advance(5 * SECOND)
    assert CancelStore(stage.state).pending(claim.record.ref) is not None
    await stage.clock.advance(2 * MINUTE)
    assert CancelStore(stage.state).pending(claim.record.ref) is None

    claim.settle(Outcome.COMPLETED, at=stage.clock.now())
    claim.let_go()
    await stage.clock.advance(2 * SECOND)
    assert (await delivery).record.outcome == "completed"


async def test_delivery_settles_what_the_dead_turn_before_it_left(stage):
    leave_claim(stage)
    (entry,) = stage.claims.open_entries()
    claim = stage.claims.hold(entry)
    claim.append(Event.STARTED, at=at("08:05"), owner=claim.record.claim["owner"])
    stage.clock.set(at("08:10:01"))
    delivery = begin(stage, "08:10", digest())
    await stage.clock.advance(SECOND)
    claim.let_go()
    await stage.clock.advance(3 * SECOND, step=SECOND)

    assert (await delivery).record.outcome == "completed"
    assert stage.history() == ["08:05 interrupted owner-died", "08:10 completed"]


async def test_pause_ends_the_wait_of_a_delivery_and_leaves_the_slot_claimed(stage):
    first, second = await first_then(stage, "08:10", digest())
    await stage.clock.advance(SECOND)
    pausing = Pausing(stage.state, by="ana@studio")
    pausing.pause("digest", now=stage.clock.now(), until=None, reason="")
    await stage.clock.advance(2 * SECOND, step=SECOND)

    assert (await second).record.written_state == "buffered"
    stage.agent.release()
    await first


async def test_delivery_again_of_a_claim_that_finds_its_session_busy_says_so(stage):
    leave_claim(stage)
    async with (
        stage.engine(is_scheduler=False).opened() as engine,
        engine.hold("routine:digest", who="ana's shell"),
    ):
        with pytest.raises(SessionBusyError, match="ana's shell"):
            await begin(stage, "08:05", digest())
    assert (await begin(stage, "08:05", digest())).record.outcome == "completed"


async def test_delivery_that_finds_its_group_busy_names_the_group(stage):
    mine, other = digest(exclusive="g"), routine("other", cron("0 0 1 1 *"), exclusive="g")
    stage.agent.hold()
    stage.clock.set(at("08:05:01"))
    async with stage.running(other) as engine:
        running = asyncio.create_task(engine.run("other"))
        await stage.clock.advance(SECOND)
        for _ in range(2):
            with pytest.raises(SessionBusyError, match=r"^the exclusive group g is busy"):
                await begin(stage, "08:05", mine)
        stage.agent.release()
        await running


# Slots that are tried again --------------------------------------------------------------------


@pytest.mark.parametrize("catch_up", CatchUpPolicy)
async def test_delivery_again_makes_the_next_attempt_when_that_is_due_and_not_before(
    stage, catch_up
):
    answer = reluctant(stage, 2, SessionBusy)
    mine = routine(schedule=every(60), retry=Retry(), catch_up=catch_up)
    stage.clock.set(at("09:00:01"))
    words, tried = [], []
    for minute in ("09:00:01", "09:00:30", "09:01:02", "09:02:30", "09:03:03", "09:03:30"):
        await stage.clock.advance_to(at(minute))
        delivery = await begin(stage, "09:00", mine)
        words.append((delivery.word, delivery.record.written_state))
        tried.append(len(answer.asked))

    assert words == [
        ("claimed", "retrying"),
        ("retrying", "retrying"),
        ("retrying", "retrying"),
        ("retrying", "retrying"),
        ("retrying", "settled"),
        ("duplicate", "settled"),
    ]
    assert tried == [1, 1, 2, 2, 3, 3]
    assert stage.history() == ["09:00 completed"]


@pytest.mark.parametrize("what", ["paused", "busy"])
async def test_delivery_again_of_what_is_to_be_tried_again_waits_for_nothing(stage, what):
    reluctant(stage, 1, SessionBusy)
    mine = routine(schedule=every(60), retry=Retry())
    stage.clock.set(at("09:00:01"))
    await begin(stage, "09:00", mine)
    await stage.clock.advance_to(at("09:05"))
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(stage.engine(is_scheduler=False).opened())
        if what == "busy":
            await stack.enter_async_context(engine.hold("routine:digest", who="a shell"))
        else:
            pausing = Pausing(stage.state, by="ana@studio")
            pausing.pause("digest", now=stage.clock.now(), until=None, reason="")
        delivery = await begin(stage, "09:00", mine)
    assert (delivery.word, delivery.record.written_state) == ("retrying", "retrying")


async def test_delivery_again_of_a_slot_that_was_cancelled_while_it_waited_settles_it(stage):
    reluctant(stage, 9)
    mine = routine(schedule=every(60), retry=Retry())
    stage.clock.set(at("09:00:01"))
    ref = (await begin(stage, "09:00", mine)).record.ref
    await stage.clock.advance_to(at("09:05"))
    stage.cancel(ref)
    assert (await begin(stage, "09:00", mine)).record.outcome == "cancelled"


# Single passes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("overlap", "fate"), [(SUPERSEDE, "superseded"), (BUFFER, "completed")])
async def test_tick_sees_through_what_it_claimed_behind_a_running_turn(stage, overlap, fate):
    known = digest(overlap)
    await seen_by_a_scheduler(stage, known)
    first, second = await first_then(stage, "tick", known)
    await stage.clock.advance(MINUTE)
    stage.agent.release()
    await stage.clock.advance(5 * SECOND, step=SECOND)

    assert [record.outcome for record in await first] == [fate]
    assert [(r.occurrence.instant, r.outcome) for r in await second] == [(at("08:10"), "completed")]
    assert stage.slots == ["08:05", "08:10"]


@pytest.mark.parametrize("catch_up", [CatchUpPolicy.ONE, CatchUpPolicy.ALL])
async def test_tick_claims_nothing_that_fell_due_after_its_start(stage, catch_up):
    known = [digest(catch_up=catch_up), routine("long", cron("5 8 * * *"))]
    await seen_by_a_scheduler(stage, *known)
    stage.agent.hold("long")
    stage.clock.set(at("08:05:01"))
    tick = begin(stage, "tick", *known)
    await stage.clock.advance(SECOND)
    await stage.clock.advance(7 * MINUTE)
    stage.agent.release()
    await stage.clock.advance(SECOND)

    assert len(await tick) == 2
    assert stage.history() == ["08:05 completed"]
    assert [len(await begin(stage, "tick", *known)), *stage.history()] == [
        1,
        "08:05 completed",
        "08:10 completed",
    ]


async def test_tick_fires_no_wake_up_that_fell_due_after_its_start(stage):
    known = routine(schedule=cron("5 8 * * *"))
    await seen_by_a_scheduler(stage, known)
    stage.agent.hold("digest")
    stage.clock.set(at("08:05:01"))
    tick = begin(stage, "tick", known)
    await stage.clock.advance(SECOND)
    async with stage.engine(known, is_scheduler=False).opened() as other:
        other.tools("routine:another").wake("look again", in_="1m")
    await stage.clock.advance(3 * MINUTE)
    stage.agent.release()
    await stage.clock.advance(SECOND)

    assert [record.trigger for record in await tick] == ["schedule"]
    assert [record.trigger for record in await begin(stage, "tick", known)] == ["wake-up"]


async def test_tick_leaves_to_others_what_they_claimed_after_its_start(stage):
    """With slots that always overlap it would otherwise take up one after the other for ever."""
    known = digest(SUPERSEDE)
    await seen_by_a_scheduler(stage, known)
    first, second = await first_then(stage, "tick", known)
    for minute in (15, 20, 25):
        await stage.clock.advance(5 * SECOND, step=SECOND)
        assert first.done()
        await stage.clock.advance_to(at(f"08:{minute}:01"))
        first, second = second, begin(stage, "tick", known)
    await stage.clock.advance(5 * SECOND, step=SECOND)
    stage.agent.release()
    await stage.clock.advance(SECOND)

    assert [record.outcome for record in await second] == ["completed"]
    assert stage.slots == ["08:05", "08:10", "08:15", "08:20", "08:25"]


async def test_tick_waits_for_its_turns_and_its_buffered_slots_side_by_side(stage):
    known = [digest(), routine("long", cron("10 8 * * *"))]
    await seen_by_a_scheduler(stage, *known)
    stage.agent.hold()
    stage.clock.set(at("08:05:01"))
    first = begin(stage, "08:05", *known)
    await stage.clock.advance_to(at("08:10:01"))
    mine = RecordingAgent()
    mine.hold("long")
    second = begin(stage, "tick", *known, agent=mine)
    await stage.clock.advance(SECOND)
    assert [turn.routine for turn in mine.turns] == ["long"]
    stage.agent.release()
    await stage.clock.advance(5 * SECOND, step=SECOND)
    assert [turn.routine for turn in mine.turns] == ["long", "digest"]

    mine.release()
    await first
    assert {record.outcome for record in await second} == {"completed"}


# What another process keeps locked --------------------------------------------------------------


async def test_tick_says_which_owed_routines_another_process_keeps_locked(stage):
    known = [digest(), *(routine(name, every(5)) for name in ("other", "third"))]
    await seen_by_a_scheduler(stage, *known)
    stage.clock.set(at("08:05:01"))
    with contextlib.ExitStack() as locked:
        for name in ("digest", "third"):
            locked.enter_context(stage.cursors.section(name, patience=0))
        async with stage.engine(*known, is_scheduler=False).opened() as engine:
            ticked = asyncio.create_task(engine.tick_through())
            await stage.clock.advance(4 * SECOND, step=SECOND / 5)
            # What nobody keeps is not kept waiting, and all that is locked is waited for at once.
            assert stage.history("other") == ["08:05 completed"]
            assert not ticked.done()
            await stage.clock.advance(2 * SECOND, step=SECOND / 5)
            assert ticked.done()
    assert {name: error.code for name, error in (await ticked).refused.items()} == {
        "digest": "store-busy",
        "third": "store-busy",
    }
    assert stage.history() == []


async def test_tick_runs_what_another_process_lets_go_of_in_time(stage):
    await seen_by_a_scheduler(stage, digest())
    stage.clock.set(at("08:05:01"))
    async with stage.engine(digest(), is_scheduler=False).opened() as engine:
        with stage.cursors.section("digest", patience=0):
            ticked = asyncio.create_task(engine.tick_through())
            await stage.clock.advance(2 * SECOND, step=SECOND / 5)
        await stage.clock.advance(SECOND, step=SECOND / 5)
    assert ((await ticked).refused, stage.history()) == ({}, ["08:05 completed"])


async def test_tick_says_nothing_of_a_locked_routine_that_owes_nothing(stage):
    await seen_by_a_scheduler(stage, digest())
    with stage.cursors.section("digest", patience=0):
        async with stage.engine(digest(), is_scheduler=False).opened() as engine:
            assert (await engine.tick_through()).refused == {}


async def test_tick_counts_what_was_claimed_before_and_still_waits_until_it_runs(stage):
    leave_claim(stage)
    async with stage.engine(digest(), is_scheduler=False).opened() as engine:
        async with engine.hold("routine:digest", who="ana's shell"):
            ticked = await engine.tick_through()
            assert (list(ticked.waiting.values()), ticked.records) == (["digest"], [])
        await stage.clock.advance(2 * SECOND)
        ticked = await engine.tick_through()
    assert (ticked.waiting, [one.outcome for one in ticked.records]) == ({}, ["completed"])


async def test_tick_does_not_count_what_waited_for_one_of_its_own_turns(stage):
    known = [routine(name, every(5), exclusive="g") for name in ("digest", "other")]
    await seen_by_a_scheduler(stage, *known)
    stage.clock.set(at("08:05:01"))
    async with stage.engine(*known, is_scheduler=False).opened() as engine:
        ticked = await engine.tick_through()
    assert ticked.waiting == {}
    assert [one.outcome for one in ticked.records] == ["completed"] * 2
