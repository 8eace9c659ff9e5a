"""What a host is told of lengths: of a pass, of a start, of a turn, and of lateness."""

from datetime import timedelta

import pytest

from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.record import Record
from routines.engine.measuring import measures
from tests.engine.stage import MINUTE, Refusing, at, every, once, routine

SLOT = Occurrence(Kind.SLOT, "digest", at("08:00"))


def line(event, second, **more):
    moment = at("08:00") + timedelta(seconds=second)
    return {"event": event, "at": format_instant(moment), **more}


def record(*events):
    return Record(SLOT, line("claim", 1), events)


STARTED = line("started", 3, late_s=3)
ENDED = line("outcome", 63, outcome="completed", reason=None, duration_s=60.0)


@pytest.mark.parametrize(
    ("events", "known"),
    [
        ((STARTED, ENDED), (3.0, 2.0, 60.0)),
        # Let go of and taken up again: the start counts from the last time.
        ((line("buffered", 1), line("attempt", 2.5), STARTED, ENDED), (3.0, 0.5, 60.0)),
        # A clock that was set back between the two.
        ((line("attempt", 9), STARTED, ENDED), (3.0, 0.0, 60.0)),
        # It never started.
        ((line("outcome", 5, outcome="skipped", reason="gate"),), (None, None, None)),
        # Its owner died: how long it ran is known to nobody.
        ((STARTED, line("outcome", 90, outcome="interrupted", reason=None)), (3.0, 2.0, None)),
    ],
)
def test_lengths_are_those_of_the_last_attempt(events, known):
    assert tuple(measures(record(*events)).values()) == known


async def test_settled_turn_says_whose_it_was_and_how_long_it_took(stage):
    stage.agent.hold()
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:07"))
        stage.agent.release()
        await stage.clock.advance()

    (settled,) = [event for event in stage.events if event.name == "settled"]
    facts = {"routine": "digest", "trigger": "schedule", "outcome": "completed"}
    lengths = {"late_s": 0.0, "start_s": 0.0, "duration_s": 120.0}
    assert settled.data.items() >= (facts | lengths).items()


async def test_each_pass_tells_its_length(stage):
    passes = []
    async with stage.running(routine(), on_pass=passes.append):
        await stage.clock.advance(3 * MINUTE)

    assert len(passes) >= 3
    assert {(one.seconds, one.faults) for one in passes} == {(0.0, ())}


async def test_pass_names_what_is_refused_until_it_no_longer_is(stage):
    passes = []
    digest = Refusing([routine(schedule=every(60))], root=stage.root, concurrency=1)
    async with stage.running(routines=digest, on_pass=passes.append):
        await stage.clock.advance_to(at("09:01"))
        assert passes[-1].faults == ("digest",)
        digest.mended = True
        await stage.clock.advance_to(at("09:05"))

    assert passes[-1].faults == ()


async def test_exception_in_on_pass_harms_nobody(stage):
    def broken(facts):
        raise ZeroDivisionError

    async with stage.running(routine(schedule=once("08:05")), on_pass=broken):
        await stage.clock.advance_to(at("08:06"))

    assert stage.history() == ["08:05 completed"]
