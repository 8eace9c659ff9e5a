"""What waits for its session or a place waits unclaimed (PROMISES L8, L13, BR-24, BR-27)."""

import asyncio

import pytest

from routines.domain.outcome import Reason
from routines.domain.routine import CatchUpPolicy
from routines.engine.lifecycle import Limits
from routines.errors import SessionBusyError
from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, every, once, routine

ONE_PLACE = Limits(concurrency=1)


# For its session -------------------------------------------------------------------------------


async def test_slot_that_meets_its_session_held_waits_unclaimed_and_runs_when_it_is_free(stage):
    async with stage.running(routine(schedule=every(60))) as engine:
        async with engine.hold("routine:digest"):
            await stage.clock.advance_to(at("09:10"))
            assert stage.records() == []
        await stage.clock.advance(SECOND, step=SECOND)

    assert stage.history() == ["09:00 completed"]
    assert stage.agent.turns[0].trigger == "schedule"


async def test_slot_that_meets_a_run_by_hand_waits_for_it(stage):
    async with stage.running(routine(schedule=every(30))) as engine:
        stage.agent.hold()
        by_hand = asyncio.create_task(engine.run("digest"))
        await stage.clock.advance_to(at("08:40"))
        assert [record.occurrence.kind for record in stage.records()] == ["manual"]
        stage.agent.release()
        await by_hand
        await stage.clock.advance()

    assert stage.history() == ["manual 08:00 completed", "08:30 completed"]


@pytest.mark.parametrize("policy", [CatchUpPolicy.ONE, CatchUpPolicy.NONE])
async def test_of_what_waits_for_its_session_the_newest_runs_and_the_others_are_missed_busy(
    stage, policy
):
    async with stage.running(routine(schedule=every(5), catch_up=policy)) as engine:
        async with engine.hold("routine:digest"):
            await stage.clock.advance_to(at("08:23"))
        await stage.clock.advance()

    assert stage.slots == ["08:20"]
    assert {one.reason for one in stage.missed()} == {Reason.BUSY}
    assert (stage.missed()[0].first, stage.missed()[-1].last) == (at("08:05"), at("08:15"))
    assert sum(one.count for one in stage.missed()) == 3


async def test_what_waits_past_its_start_within_is_missed_too_late(stage):
    async with stage.running(routine(schedule=every(60), start_within=10 * MINUTE)) as engine:
        async with engine.hold("routine:digest"):
            await stage.clock.advance_to(at("09:12"))
        await stage.clock.advance_to(at("09:20"))

    assert stage.history() == ["09:00-09:00 missed too-late x1"]


async def test_waiting_is_told_once_with_its_reason(stage):
    async with (
        stage.running(routine(schedule=every(60))) as engine,
        engine.hold("routine:digest", who="ana's shell"),
    ):
        await stage.clock.advance_to(at("09:10"))
    waits = [event for event in stage.events if event.name == "waiting"]

    assert [event.ref for event in waits] == ["digest"]
    assert "ana's shell" in waits[0].data["why"]


async def test_slot_waits_for_a_turn_of_another_routine_in_the_same_named_session(stage):
    shared = {"session": "named:team", "schedule": cron("0 9 * * *")}
    async with stage.running(routine("a", **shared), routine("b", **shared)):
        stage.agent.hold()
        await stage.clock.advance_to(at("09:10"))
        assert [turn.routine for turn in stage.agent.turns] == ["a"]
        assert stage.records("b") == []
        stage.agent.release()
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert stage.history("a") == stage.history("b") == ["09:00 completed"]
    assert [record.attempts for record in stage.records("b")] == [1]


async def test_claim_that_finds_its_lease_taken_after_all_waits_and_runs_later(stage, monkeypatch):
    from routines.store.sessions import SessionStore

    async with stage.running(routine(schedule=every(60))) as engine:
        async with engine.hold("routine:digest"):
            # As if it had been taken between the look and the claim.
            monkeypatch.setattr(SessionStore, "is_busy", lambda *_: None)
            await stage.clock.advance_to(at("09:02"))
            monkeypatch.undo()
            (record,) = stage.records()
            assert (record.last, record.end) == ("claim", None)
            await stage.clock.advance_to(at("09:05"))
        await stage.clock.advance(2 * SECOND, step=SECOND)

    (record,) = stage.records()
    assert (record.outcome, [event["event"] for event in record.events]) == (
        "completed",
        ["attempt", "started", "outcome"],
    )


async def test_claim_that_waits_gives_way_to_a_newer_slot_and_is_missed_busy(stage, monkeypatch):
    from routines.store.sessions import SessionStore

    async with stage.running(routine(schedule=every(60))) as engine:
        async with engine.hold("routine:digest"):
            monkeypatch.setattr(SessionStore, "is_busy", lambda *_: None)
            await stage.clock.advance_to(at("09:02"))
            monkeypatch.undo()
            await stage.clock.advance_to(at("10:05"))
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert stage.history() == ["09:00 missed busy", "10:00 completed"]


async def test_cancel_settles_a_claim_that_waits_for_its_session(stage, monkeypatch):
    from routines.store.sessions import SessionStore

    async with (
        stage.running(routine(schedule=every(60))) as engine,
        engine.hold("routine:digest"),
    ):
        monkeypatch.setattr(SessionStore, "is_busy", lambda *_: None)
        await stage.clock.advance_to(at("09:02"))
        monkeypatch.undo()
        stage.cancel("digest@2026-06-01T09:00:00Z")
        await stage.clock.advance(2 * SECOND, step=SECOND)
        assert stage.history() == ["09:00 cancelled person"]

    assert stage.agent.turns == []


# For a place -----------------------------------------------------------------------------------


async def test_full_house_lets_the_oldest_slot_in_first(stage):
    names = ["c", "b", "a"]
    waiting = [routine(name, once(f"08:0{n}")) for n, name in enumerate(names, 1)]
    async with stage.running(*waiting, routine("z", once("08:00:30")), limits=ONE_PLACE):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:10"))
        assert [turn.routine for turn in stage.agent.turns] == ["z"]
        stage.agent.release()
        await stage.clock.advance(3 * SECOND, step=SECOND)

    assert [turn.routine for turn in stage.agent.turns] == ["z", "c", "b", "a"]


async def test_after_an_absence_a_full_house_lets_the_oldest_slot_in_first(stage):
    names = ["c", "b", "a"]
    owed = [routine(name, once(f"08:0{n}")) for n, name in enumerate(names, 1)]
    async with stage.running(*owed):
        pass
    stage.clock.move(HOUR)
    async with stage.running(*owed, limits=ONE_PLACE):
        await stage.clock.advance(3 * SECOND, step=SECOND)

    assert [turn.routine for turn in stage.agent.turns] == ["c", "b", "a"]


async def test_newer_slot_does_not_overtake_one_that_waits_for_a_place(stage):
    first, second, third = (
        routine("first", once("08:01")),
        routine("second", once("08:02")),
        routine("a-third", once("08:04")),
    )
    async with stage.running(first, second, third, limits=ONE_PLACE) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("08:03"))
        # A place comes free in another process, unseen, in the second that the third falls due.
        await stage.clock.advance_to(at("08:03:59"), step=SECOND)
        (turn,) = engine._in_flight.values()
        stage.agent.release()
        await stage.clock.advance(SECOND, step=SECOND)
        await stage.clock.advance(3 * SECOND, step=SECOND)
        assert turn.done.done()

    assert [turn.routine for turn in stage.agent.turns] == ["first", "second", "a-third"]


async def test_long_turn_delays_nobody_else(stage):
    long = routine("long", once("08:05"), timeout=3 * HOUR)
    async with stage.running(long, routine("other", every(5))):
        stage.agent.hold("long")
        await stage.clock.advance_to(at("09:00"))
        others = [turn for turn in stage.agent.turns if turn.routine == "other"]

    assert len(others) == 12
    assert {turn.late for turn in others} == {0 * SECOND}


async def test_places_hold_over_all_engines_of_a_state_folder(stage):
    async with (
        stage.running(routine("a", once("08:05")), limits=ONE_PLACE),
        stage.running(routine("b", once("08:05")), limits=ONE_PLACE),
    ):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:06"))
        assert len(stage.agent.turns) == 1
        stage.agent.release()
        await stage.clock.advance(2 * SECOND, step=SECOND)
        assert len(stage.agent.turns) == 2


# For its own earlier occurrence ----------------------------------------------------------------


@pytest.mark.parametrize("session", ["stable", "fresh"])
async def test_slot_that_meets_its_own_earlier_turn_is_skipped_for_overlap(stage, session):
    async with stage.running(routine(schedule=every(5), session=session)):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:11"))
        stage.agent.release()
        await stage.clock.advance_to(at("08:15"))

    assert stage.history() == ["08:05 completed", "08:10 skipped overlap", "08:15 completed"]
    assert "digest@2026-06-01T08:05:00Z" in stage.records()[1].end["detail"]


async def test_fresh_sessions_are_one_a_slot(stage):
    async with stage.running(routine(schedule=every(5), session="fresh")):
        await stage.clock.advance_to(at("08:10"))

    assert [turn.session for turn in stage.agent.turns] == [
        "routine:digest@2026-06-01T08:05:00Z",
        "routine:digest@2026-06-01T08:10:00Z",
    ]


# By hand ---------------------------------------------------------------------------------------


async def test_run_by_hand_uses_up_no_slot(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        await stage.clock.advance_to(at("08:04"))
        record = await engine.run("digest", by="ana@studio")
        await stage.clock.advance_to(at("08:05"))

    assert (record.trigger, record.outcome, record.claim["by"]) == (
        "manual",
        "completed",
        "ana@studio",
    )
    assert stage.history() == ["manual 08:04 completed", "08:05 completed"]
    assert stage.agent.turns[0].slot is None


async def test_run_by_hand_on_the_very_second_of_a_slot_uses_up_no_slot(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        await stage.clock.advance_to(at("08:05"))
        await engine.run("digest")

    assert sorted(stage.history()) == ["08:05 completed", "manual 08:05 completed"]


async def test_run_by_hand_that_meets_a_busy_session_is_refused_at_once_naming_the_holder(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("08:05"))
        with pytest.raises(SessionBusyError) as refused:
            await engine.run("digest")

    assert "digest@2026-06-01T08:05:00Z" in str(refused.value)
    assert [record.occurrence.kind for record in stage.records()] == ["slot"]


async def test_run_by_hand_disregards_schedule_and_enabled(stage):
    async with stage.running(routine(schedule=every(5), enabled=False)) as engine:
        record = await engine.run("digest")

    assert record.outcome == "completed"


async def test_text_after_the_prompt_and_another_session_are_taken(stage):
    async with stage.running(routine(prompt="look\n")) as engine:
        await engine.run("digest", append="at the logs", session="named:other")

    assert stage.told == ["look\n\nat the logs"]
    assert stage.agent.turns[0].session == "named:other"


async def test_detached_run_is_taken_up_by_a_scheduler(stage):
    bystander = stage.engine(routine(), is_scheduler=False)
    async with bystander.opened():
        ref = await bystander.detach_run("digest", append="more")
    assert stage.record(ref).end is None
    async with stage.running(routine()):
        await stage.clock.advance()

    assert stage.record(ref).outcome == "completed"
    assert stage.told == ["write the digest\n\nmore"]


async def test_hold_waits_for_as_long_as_it_is_told_to(stage):
    async with stage.running(routine(schedule=once("08:01"))) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("08:02"))
        holding = asyncio.create_task(engine.hold("routine:digest", wait=10 * SECOND).__aenter__())
        await stage.clock.advance(11 * SECOND, step=SECOND)
        with pytest.raises(SessionBusyError):
            await holding
