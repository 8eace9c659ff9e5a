"""Slots that an outside clock delivers, and single passes (PROMISES L4)."""

import asyncio
from datetime import timedelta

import pytest

from routines.domain.outcome import LONGEST_DETAIL
from routines.domain.timetable import offset_of
from routines.engine.pausing import Pausing
from routines.errors import SessionBusyError, SlotRefused, UnknownRoutine
from routines.store.claims import ClaimStore
from tests.campaigns.scheduler import Each
from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, every, once, routine


async def fire(stage, slot, *routines):
    engine = stage.engine(*(routines or [routine(schedule=every(5))]), is_scheduler=False)
    async with engine.opened():
        return await engine.fire("digest", slot)


async def first_seen(stage, digest=None):
    async with stage.running(digest or routine(schedule=every(5))):
        pass


async def test_delivered_slot_is_claimed_run_and_settled(stage):
    stage.clock.set(at("08:05:02"))
    delivery = await fire(stage, at("08:05"))

    assert (delivery.word, delivery.record.outcome) == ("claimed", "completed")
    assert stage.agent.turns[0].trigger == "external"
    assert stage.history() == ["08:05 completed"]


async def test_slot_delivered_twice_runs_once(stage):
    stage.clock.set(at("08:05:02"))
    await fire(stage, at("08:05"))
    delivery = await fire(stage, at("08:05"))

    assert (delivery.word, delivery.record.outcome) == ("duplicate", "completed")
    assert len(stage.agent.turns) == 1


async def test_slot_delivered_twice_at_once_runs_once(stage):
    stage.clock.set(at("08:05:02"))
    deliveries = await asyncio.gather(*(fire(stage, at("08:05")) for _ in range(4)))

    assert sorted(one.word for one in deliveries) == ["claimed"] + ["duplicate"] * 3
    assert len(stage.agent.turns) == 1


async def test_slot_that_a_scheduler_ran_is_a_duplicate(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:05"))
    delivery = await fire(stage, at("08:05"))

    assert delivery.word == "duplicate"
    assert len(stage.agent.turns) == 1


async def test_slot_older_than_one_that_ran_is_stale_and_recorded(stage):
    stage.clock.set(at("08:15:02"))
    await first_seen(stage)
    await fire(stage, at("08:15"))
    delivery = await fire(stage, at("08:05"))

    assert (delivery.word, delivery.record) == ("stale", None)
    assert stage.history() == ["08:05-08:05 missed stale x1", "08:15 completed"]


async def test_stale_slot_delivered_twice_is_recorded_once(stage):
    stage.clock.set(at("08:15:02"))
    await fire(stage, at("08:15"))
    for _ in range(2):
        await fire(stage, at("08:05"))

    assert len(stage.missed()) == 1


async def test_slot_of_a_disabled_routine_is_missed_disabled(stage):
    stage.clock.set(at("08:05:02"))
    delivery = await fire(stage, at("08:05"), routine(schedule=every(5), enabled=False))

    assert delivery.word == "missed"
    assert stage.history() == ["08:05-08:05 missed disabled x1"]


async def test_slot_past_its_start_within_is_missed_too_late(stage):
    stage.clock.set(at("10:00"))
    delivery = await fire(stage, at("08:05"), routine(schedule=every(5), start_within=HOUR))

    assert delivery.word == "missed"
    assert stage.history() == ["08:05-08:05 missed too-late x1"]


async def test_late_slot_runs_whatever_first_seen_and_catch_up_say(stage):
    stage.clock.set(at("10:00"))
    delivery = await fire(stage, at("08:05"), routine(schedule=once("08:05")))

    assert delivery.word == "claimed"
    assert stage.agent.turns[0].late == timedelta(minutes=115)


async def test_instant_that_the_schedule_does_not_name_is_refused_with_its_neighbours(stage):
    stage.clock.set(at("09:00"))
    with pytest.raises(SlotRefused) as refused:
        await fire(stage, at("08:07"))

    assert "2026-06-01T08:05:00Z and 2026-06-01T08:10:00Z" in refused.value.hint
    assert stage.history() == []


@pytest.mark.parametrize(("ahead", "taken"), [(60 * SECOND, True), (61 * SECOND, False)])
async def test_slot_may_come_a_minute_early_and_no_more(stage, ahead, taken):
    stage.clock.set(at("09:00") - ahead)
    if taken:
        assert (await fire(stage, at("09:00"))).word == "claimed"
    else:
        with pytest.raises(SlotRefused):
            await fire(stage, at("09:00"))


async def test_slot_that_came_early_is_not_run_again_when_it_is_due(stage):
    digest = routine(schedule=every(5))
    await first_seen(stage, digest)
    stage.clock.set(at("08:04:30"))
    await fire(stage, at("08:05"))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:10"))

    assert stage.slots == ["08:05", "08:10"]


async def test_without_a_schedule_any_whole_second_is_a_slot(stage):
    bare = routine()
    object.__setattr__(bare, "schedule", None)
    stage.clock.set(at("08:05:02"))
    assert (await fire(stage, at("08:03:07"), bare)).word == "claimed"
    with pytest.raises(SlotRefused):
        await fire(stage, at("08:03:08") + timedelta(milliseconds=5), bare)


async def test_slots_that_a_delivery_passes_over_are_recorded(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    stage.clock.set(at("08:25:01"))
    await fire(stage, at("08:25"))

    assert stage.history() == [
        "08:05 completed",
        "08:10-08:20 missed no-scheduler x3",
        "08:25 completed",
    ]


async def test_delivery_that_meets_its_session_busy_claims_nothing_and_says_who(stage):
    async with stage.running(routine(schedule=cron("0 0 1 1 *"))) as engine:
        async with engine.hold("routine:digest", who="ana's shell"):
            stage.clock.set(at("08:05:02"))
            with pytest.raises(SessionBusyError, match="ana's shell"):
                await fire(stage, at("08:05"))
        assert stage.records() == []
        assert (await fire(stage, at("08:05"))).word == "claimed"


async def test_delivery_that_meets_its_own_earlier_turn_is_skipped_for_overlap(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:05"))
        stage.clock.set(at("08:09:59"))
        delivery = await fire(stage, at("08:10"), digest)

    assert (delivery.word, delivery.record.reason) == ("skipped", "overlap")


async def test_delivery_of_a_claim_that_was_never_started_starts_it(stage):
    from tests.engine.test_recovering import leave_claim

    leave_claim(stage)
    delivery = await fire(stage, at("08:05"))

    assert (delivery.word, delivery.record.outcome) == ("claimed", "completed")


async def test_delivery_for_a_misspelt_routine_says_so(stage):
    engine = stage.engine(routine(), is_scheduler=False)
    async with engine.opened():
        with pytest.raises(UnknownRoutine):
            await engine.fire("digets", at("08:05"))


# Single passes -----------------------------------------------------------------------------------


async def test_tick_runs_what_is_due_waits_for_it_and_returns_the_records(stage):
    digest = routine(schedule=every(5))
    await first_seen(stage, digest)
    stage.clock.move(6 * MINUTE)
    async with stage.engine(digest, is_scheduler=False).opened() as engine:
        records = await engine.tick()

    assert [(record.ref, record.outcome) for record in records] == [
        ("digest@2026-06-01T08:05:00Z", "completed")
    ]


async def test_tick_twice_runs_it_once(stage):
    digest = routine(schedule=every(5))
    await first_seen(stage, digest)
    stage.clock.move(6 * MINUTE)
    for _ in range(2):
        async with stage.engine(digest, is_scheduler=False).opened() as engine:
            await engine.tick()

    assert len(stage.agent.turns) == 1


async def test_tick_of_one_routine_leaves_the_others(stage):
    routines = [routine("a", every(5)), routine("b", every(5))]
    async with stage.running(*routines):
        pass
    stage.clock.move(6 * MINUTE)
    async with stage.engine(*routines, is_scheduler=False).opened() as engine:
        await engine.tick(["a"])

    assert [turn.routine for turn in stage.agent.turns] == ["a"]


async def test_two_engines_on_one_state_folder_run_each_slot_once(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest), stage.running(digest), stage.running(digest):
        await stage.clock.advance_to(at("09:00"))

    assert len(stage.slots) == len(set(stage.slots)) == 12
    assert stage.history() == [f"08:{n:02} completed" for n in range(5, 60, 5)] + [
        "09:00 completed"
    ]


async def test_slot_that_another_process_claims_this_very_moment_is_a_duplicate(stage, monkeypatch):
    digest = routine(schedule=every(60))
    async with stage.running(digest):
        await stage.clock.advance_to(at("09:00"))
    whole = stage.records()[0]
    # As if the other had claimed it after our look.
    monkeypatch.setattr(ClaimStore, "is_claimed", lambda *_: False)
    monkeypatch.setattr(ClaimStore, "newest_slot", lambda *_, until: (None, []))
    async with stage.running(digest):
        monkeypatch.undo()

    assert len(stage.agent.turns) == 1
    assert stage.records() == [whole]


@pytest.mark.parametrize("way", ["fire", "tick"])
async def test_start_within_counts_from_the_slot_and_its_jitter_whoever_brings_it(stage, way):
    jitter = timedelta(minutes=4)
    offset = offset_of("digest", at("08:10"), jitter)
    assert offset > timedelta(seconds=30)
    late = routine(schedule=every(10), jitter=jitter, start_within=MINUTE)
    engine = stage.engine(late)
    async with engine.opened():
        await engine.tick()
        stage.clock.set(at("08:10") + offset + timedelta(seconds=59))
        if way == "fire":
            delivery = await engine.fire("digest", at("08:10"))
            assert delivery.word == "claimed"
        else:
            await engine.tick()

    (record,) = stage.records()
    assert (record.outcome, record.due_at) == ("completed", at("08:10") + offset)


async def test_what_a_delivery_passes_over_is_counted_also_of_a_hosts_own_kind_of_schedule(stage):
    """It can't be read back from the cursor; the routine at hand has it."""
    own = routine(schedule=Each(300))
    await first_seen(stage, own)
    stage.clock.set(at("08:20"))

    delivery = await fire(stage, at("08:20"), own)

    assert delivery.word == "claimed"
    (record,) = stage.cursors.missed("digest")
    assert (record.after, record.last) == (at("08:00"), at("08:15"))


async def test_record_of_a_slot_delivered_under_a_pause_says_who_paused_and_why(stage):
    await first_seen(stage)
    stage.clock.set(at("08:06"))
    Pausing(stage.state, by="ana@studio").pause(
        None, now=stage.clock.now(), until=None, reason="holiday"
    )
    stage.clock.set(at("08:15"))

    delivery = await fire(stage, at("08:15"))

    assert delivery.word == "missed"
    told = "everything was paused by ana@studio since 2026-06-01T08:06:00Z: holiday"
    assert [(f"{m.last:%H:%M}", m.reason, m.detail) for m in stage.missed()] == [
        ("08:05", "no-scheduler", ""),
        ("08:10", "paused", told),
        ("08:15", "paused", told),
    ]


async def test_record_of_a_slot_delivered_under_two_pauses_names_both_and_begins_with_the_older(
    stage,
):
    await first_seen(stage)
    for when, name, by, why in (
        ("08:06", "digest", "ben@studio", "moving " * 100),
        ("08:11", None, "ana@studio", "holiday"),
    ):
        stage.clock.set(at(when))
        Pausing(stage.state, by=by).pause(name, now=stage.clock.now(), until=None, reason=why)
    stage.clock.set(at("08:15"))

    await fire(stage, at("08:15"))

    found = [(f"{m.last:%H:%M}", m.reason, m.detail) for m in stage.missed()]
    assert [one[:2] for one in found] == [
        ("08:05", "no-scheduler"),
        ("08:10", "paused"),
        ("08:15", "paused"),
    ]
    for detail in (found[1][2], found[2][2]):
        everything, _, itself = detail.partition("; ")
        assert everything == (
            "everything was paused by ana@studio since 2026-06-01T08:11:00Z: holiday"
        )
        assert itself.startswith("paused by ben@studio since 2026-06-01T08:06:00Z: moving ")
        assert len(detail) <= LONGEST_DETAIL


@pytest.mark.parametrize("scheduled", [True, False])
async def test_slot_that_was_delivered_under_a_pause_is_a_duplicate_during_and_after_it(
    stage, scheduled
):
    mine = routine(schedule=every(5))
    await first_seen(stage, mine)
    if not scheduled:
        object.__setattr__(mine, "schedule", None)
    pausing = Pausing(stage.state, by="ana@studio")
    stage.clock.set(at("08:04"))
    pausing.pause("digest", now=stage.clock.now(), until=None, reason="")
    stage.clock.set(at("08:05:01"))
    words = [(await fire(stage, at("08:05"), mine)).word for _ in range(2)]
    stage.clock.set(at("08:06"))
    pausing.resume("digest", now=stage.clock.now())
    again = await fire(stage, at("08:05"), mine)

    assert [*words, again.word] == ["missed", "duplicate", "duplicate"]
    assert (again.missed.reason, again.missed.count) == ("paused", 1)
    assert stage.history() == ["08:05-08:05 missed paused x1"]


async def test_slot_that_a_pause_passed_over_undelivered_is_missed_for_it_and_not_stale(stage):
    mine = routine(schedule=every(5))
    await first_seen(stage, mine)
    pausing = Pausing(stage.state, by="ana@studio", routine_of={"digest": mine}.get)
    pausing.pause("digest", now=stage.clock.now(), until=None, reason="")
    stage.clock.set(at("08:11"))
    pausing.resume("digest", now=stage.clock.now())

    for slot in ("08:05", "08:10"):
        delivery = await fire(stage, at(slot), mine)
        assert (delivery.word, delivery.missed.reason) == ("missed", "paused")
    assert stage.history() == ["08:05-08:10 missed paused x2"]
