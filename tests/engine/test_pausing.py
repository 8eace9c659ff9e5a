"""Pause keeps everything armed and starts nothing; resume says what was passed over (L16)."""

import logging
from datetime import timedelta

import pytest

from routines.domain.outcome import LONGEST_DETAIL
from routines.engine.arming import counted
from routines.engine.pausing import Pausing
from routines.errors import UnknownRoutine
from routines.store.cursors import CursorStore
from tests.campaigns.scheduler import Each
from tests.engine.stage import HOUR, MINUTE, at, every, once, routine


def missed(stage):
    return [
        (m.reason, m.first.strftime("%H:%M"), m.last.strftime("%H:%M"), m.count, m.by)
        for m in map(counted, CursorStore(stage.state).missed("digest"))
    ]


def told_missed(stage):
    """What a host was told, which is what the log says."""
    return [
        "{from} to {to} x{count} {reason}".format(
            **one.data | {key: one.data[key][11:16] for key in ("from", "to")}
        )
        for one in stage.events
        if one.name == "missed"
    ]


async def test_paused_routine_starts_nothing_and_owes_nothing_when_resumed(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest", reason="holiday")
        await stage.clock.advance_to(at("08:45"))
        assert stage.agent.turns == []

        await engine.resume("digest")
        await stage.clock.advance_to(at("08:55"))

    assert stage.slots == ["08:50"]
    ((reason, first, last, count, by),) = missed(stage)
    assert (reason, first, last, count) == ("paused", "08:10", "08:40", 4)
    assert "@" in by


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("everything", [False, True])
async def test_what_a_pause_passed_over_is_told_once_when_it_ends(stage, by_another, everything):
    name = None if everything else "digest"
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause(name)
        await stage.clock.advance_to(at("08:45"))
        if by_another:
            Pausing(stage.state, by="ben@studio").resume(name, now=stage.clock.now())
        else:
            await engine.resume(name)
        await stage.clock.advance_to(at("08:55"))

    assert told_missed(stage) == ["08:10 to 08:40 x4 paused"]


async def test_what_a_pause_that_ends_by_itself_passed_over_is_told_once(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest", until=at("08:25"))
        await stage.clock.advance_to(at("08:29"))

    assert told_missed(stage) == ["08:10 to 08:20 x2 paused"]


async def test_record_of_a_pause_says_who_paused_since_when_why_and_who_resumed(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest", reason="on\nholiday " + "x" * 1000)
        await stage.clock.advance_to(at("08:45"))
        Pausing(stage.state, by="ben@studio").resume("digest", now=stage.clock.now())

    (found,) = CursorStore(stage.state).missed("digest")
    me = engine._who()[0]
    assert found.detail.startswith(
        f"paused by {me} since 2026-06-01T08:00:00Z, resumed by ben@studio: on holiday xxx"
    )
    assert len(found.detail) <= LONGEST_DETAIL
    assert "\n" not in found.detail


async def test_record_of_a_pause_of_everything_that_ended_by_itself_says_so(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause(until=at("08:25"))
        await stage.clock.advance_to(at("08:29"))

    (found,) = CursorStore(stage.state).missed("digest")
    assert found.detail == (
        f"everything was paused by {engine._who()[0]} since 2026-06-01T08:00:00Z,"
        " until 2026-06-01T08:25:00Z"
    )


@pytest.fixture
def switched(caplog):
    """The lines of the log about pauses, as event and facts."""
    caplog.set_level(logging.INFO, "routines")

    def lines():
        keys = ("routine", "by", "since", "until", "reason")
        return [
            (one.getMessage(), {key: one.__dict__[key] for key in keys if one.__dict__.get(key)})
            for one in caplog.records
            if one.getMessage() in ("paused", "resumed")
        ]

    return lines


async def test_log_says_once_who_paused_and_who_resumed_also_from_another_process(stage, switched):
    async with stage.running(routine(schedule=every(10))):
        ana, ben = Pausing(stage.state, by="ana@studio"), Pausing(stage.state, by="ben@studio")
        ana.pause("digest", now=stage.clock.now(), until=None, reason="holiday")
        await stage.clock.advance_to(at("08:05"))
        ana.pause("digest", now=stage.clock.now(), until=at("09:00"), reason="")
        await stage.clock.advance_to(at("08:15"))
        ben.resume("digest", now=stage.clock.now())
        await stage.clock.advance_to(at("08:20"))

    since = {"routine": "digest", "since": "2026-06-01T08:00:00Z"}
    assert switched() == [
        ("paused", since | {"by": "ana@studio", "reason": "holiday"}),
        ("paused", since | {"by": "ana@studio", "until": "2026-06-01T09:00:00Z"}),
        ("resumed", since | {"by": "ben@studio"}),
    ]


async def test_log_says_once_that_a_pause_has_ended_by_its_own_time(stage, switched):
    async with stage.running(routine(schedule=every(10))), stage.running():
        ana = Pausing(stage.state, by="ana@studio")
        ana.pause(None, now=stage.clock.now(), until=at("08:25"), reason="")
        await stage.clock.advance_to(at("08:29"))

    since = {"routine": "all", "since": "2026-06-01T08:00:00Z"}
    begun = ("paused", since | {"by": "ana@studio", "until": "2026-06-01T08:25:00Z"})
    # Two schedulers, each with its own log.
    assert switched() == [begun, begun, *[("resumed", since | {"by": "until"})] * 2]


async def test_pause_that_stood_when_a_scheduler_started_is_no_line_and_its_end_is(stage, switched):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest")
    async with stage.running(routine(schedule=every(10))):
        await stage.clock.advance(MINUTE)
        assert [word for word, _ in switched()] == []
        Pausing(stage.state, by="ben@studio").resume("digest", now=stage.clock.now())
        await stage.clock.advance(MINUTE)

    assert [(word, facts["by"]) for word, facts in switched()] == [("resumed", "ben@studio")]


async def test_pause_ends_by_itself_at_its_time(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest", until=at("08:25"))
        await stage.clock.advance_to(at("08:41"))

    assert stage.slots == ["08:30", "08:40"]
    assert [row[:4] for row in missed(stage)] == [("paused", "08:10", "08:20", 2)]


async def test_pause_outlasts_a_restart(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest")
    async with stage.running(routine(schedule=every(10))):
        await stage.clock.advance_to(at("09:00"))

    assert stage.agent.turns == []


async def test_running_turn_goes_on(stage):
    async with stage.running(routine(schedule=every(10))) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("08:10"))
        await engine.pause("digest")
        stage.agent.release()
        await stage.clock.advance(MINUTE)

    assert [r.outcome for r in stage.records()] == ["completed"]


async def test_one_shot_that_fell_due_meanwhile_fires_when_resumed(stage):
    async with stage.running(routine(schedule=once("09:00"))) as engine:
        await engine.pause("digest")
        await stage.clock.advance_to(at("10:00"))
        assert stage.agent.turns == []
        await engine.resume("digest")
        await stage.clock.advance(MINUTE)

    assert [(r.outcome, r.trigger) for r in stage.records()] == [("completed", "schedule")]


async def test_one_shot_that_is_too_late_by_then_is_missed(stage):
    short = routine(schedule=once("09:00"), start_within=timedelta(minutes=5))
    async with stage.running(short) as engine:
        await engine.pause("digest")
        await stage.clock.advance_to(at("10:00"))
        await engine.resume("digest")
        await stage.clock.advance(MINUTE)

    assert stage.agent.turns == []
    assert [row[0] for row in missed(stage)] == ["too-late"]


async def test_pause_of_everything_holds_wake_ups_too(stage):
    async with stage.running(routine(schedule=every(60))) as engine:
        engine.tools("routine:digest").wake("look again", in_="2m")
        await engine.pause()
        await stage.clock.advance(30 * MINUTE)
        assert stage.agent.turns == []

        await engine.resume()
        await stage.clock.advance(MINUTE)

    assert [turn.trigger for turn in stage.agent.turns] == ["wake-up"]


async def test_wake_up_of_a_paused_routine_waits_and_that_of_another_fires(stage):
    async with stage.running(routine(schedule=every(60)), routine(name="other")) as engine:
        engine.tools("routine:digest").wake("look again", in_="2m")
        engine.tools("routine:other").wake("and here", in_="2m")
        await engine.pause("digest")
        await stage.clock.advance(3 * MINUTE)

    assert [turn.session for turn in stage.agent.turns] == ["routine:other"]


async def test_run_by_hand_disregards_a_pause(stage):
    async with stage.running(routine(schedule=every(60))) as engine:
        await engine.pause("digest")
        record = await engine.run("digest")

    assert record.outcome == "completed"


async def test_what_was_owed_before_the_pause_keeps_its_own_reason(stage):
    async with stage.running(routine(schedule=every(60))):
        pass
    stage.clock.sleep_machine(2 * HOUR + 30 * MINUTE)
    engine = stage.engine(routine(schedule=every(60)))
    async with engine.opened():
        await engine.pause("digest")
        stage.clock.move(HOUR)
        await engine.resume("digest")

    assert [row[:4] for row in missed(stage)] == [
        ("paused", "11:00", "11:00", 1),
        ("no-scheduler", "09:00", "10:00", 2),
    ]


async def test_pause_of_a_routine_that_is_not_there_is_refused(stage):
    async with stage.running(routine()) as engine:
        with pytest.raises(UnknownRoutine, match="digset"):
            await engine.pause("digset")


@pytest.mark.parametrize("edit", ["schedule", "enabled"])
async def test_what_a_pause_passed_over_is_paused_also_where_it_is_edited_meanwhile(stage, edit):
    changed = routine(schedule=every(30)) if edit == "schedule" else routine(enabled=False)
    async with stage.running(routine(schedule=every(10))) as engine:
        await engine.pause("digest", reason="holiday")
        await stage.clock.advance_to(at("08:25"))
        engine.replace([changed])
        await stage.clock.advance_to(at("08:45"))
        engine.replace([routine(schedule=every(30))])
        await stage.clock.advance_to(at("08:46"))
        await engine.resume("digest")
        await stage.clock.advance_to(at("09:01"))

    assert stage.slots == ["09:00"]
    after = {
        "schedule": ("paused", "08:30", "08:30", 1),
        "enabled": ("disabled", "08:30", "08:40", 5),
    }[edit]
    assert [row[:4] for row in missed(stage)][-1] == ("paused", "08:10", "08:20", 2)
    assert [row[0] for row in missed(stage)] == [after[0], "paused"]
    assert [m.detail for m in CursorStore(stage.state).missed("digest")][-1] == (
        f"paused by {engine._who()[0]} since 2026-06-01T08:00:00Z, edited while it was: holiday"
    )


@pytest.mark.parametrize(("first", "second"), [("digest", None), (None, "digest")])
async def test_the_earlier_of_two_pauses_says_why_where_it_is_edited_under_both(
    stage, first, second
):
    async with stage.running(routine(schedule=every(10))) as engine:
        await stage.clock.advance_to(at("08:05"))
        await engine.pause(first)
        await stage.clock.advance_to(at("08:45"))
        await engine.pause(second)
        await stage.clock.advance_to(at("09:05"))
        engine.replace([routine(schedule=every(30))])
        await stage.clock.advance_to(at("09:06"))

    assert {row[0] for row in missed(stage)} == {"paused"}
    assert (missed(stage)[-1][1], missed(stage)[0][2]) == ("08:10", "09:00")


async def test_slot_of_before_the_pause_is_not_passed_over_for_it_when_it_is_edited(stage):
    async with stage.running(routine(schedule=every(10))):
        pass
    stage.clock.sleep_machine(15 * MINUTE)
    engine = stage.engine(routine(schedule=every(10)))
    async with engine.opened():
        await engine.pause("digest")
        stage.clock.move(10 * MINUTE)
        engine.replace([routine(schedule=every(30))])
        await engine.tick()

    assert [row[:4] for row in missed(stage)] == [
        ("paused", "08:20", "08:20", 1),
        ("no-scheduler", "08:10", "08:10", 1),
    ]


async def test_slot_that_waited_is_not_said_to_have_had_no_scheduler_when_it_is_edited(stage):
    async with (
        stage.running(routine(schedule=every(10))) as engine,
        engine.hold("routine:digest"),
    ):
        await stage.clock.advance_to(at("08:11"))
        engine.replace([routine(schedule=every(60))])
        await stage.clock.advance_to(at("08:12"))

    ((reason, *_),) = missed(stage)
    assert reason == "busy"
    (record,) = CursorStore(stage.state).missed("digest")
    assert record.detail == "it was edited before it could start"


async def test_pause_of_a_hosts_own_kind_of_schedule_owes_nothing_either(stage):
    """It can't be read back from the cursor; the engine has it at hand."""
    own = routine(schedule=Each(600))
    async with stage.running(own) as engine:
        await engine.pause("digest", until=at("08:25"))
        await stage.clock.advance_to(at("08:26"))
        await engine.pause("digest")
        await stage.clock.advance_to(at("08:45"))
        await engine.resume("digest")
        await stage.clock.advance_to(at("08:51"))

    assert stage.slots == ["08:50"]
    ranges = [(m.reason, f"{m.last:%H:%M}") for m in CursorStore(stage.state).missed("digest")]
    assert ranges == [("paused", "08:40"), ("paused", "08:20")]


@pytest.mark.parametrize("first_ended", ["digest", None], ids=["itself", "everything"])
async def test_of_two_pauses_the_later_one_makes_no_absence_of_the_earlier(stage, first_ended):
    """Everything is paused first, then the routine too; and one of them is resumed first."""
    async with stage.running(routine(schedule=every(10))) as engine:
        await stage.clock.advance_to(at("08:06"))
        await engine.pause(reason="holiday")
        await stage.clock.advance_to(at("08:16"))
        await engine.pause("digest", reason="moving house")
        await stage.clock.advance_to(at("08:35"))
        await engine.resume(first_ended)
        await stage.clock.advance_to(at("08:55"))
        await engine.resume(None if first_ended else "digest")
        await stage.clock.advance_to(at("09:01"))

    assert stage.slots == ["09:00"]
    rows = missed(stage)
    assert {row[0] for row in rows} == {"paused"}
    assert sum(row[3] for row in rows) == 5
    assert (rows[-1][1], rows[0][2]) == ("08:10", "08:50")
    oldest = list(CursorStore(stage.state).missed("digest"))[-1]
    assert oldest.detail.startswith("everything was paused by ")
    assert (f"{oldest.last:%H:%M}", oldest.detail[-9:]) == ("08:10", ": holiday")
