"""Random sequences of all that may happen to a state folder; see `tests.engine.machine`.

The long version: `python -m tests.campaigns.machine --minutes 60`.
"""

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, Phase, settings

from routines.domain.limits import DayLimit
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from tests.engine.durable_machine import DurableMachine
from tests.engine.machine import Machine, play
from tests.engine.stage import HOUR, MINUTE, SECOND, every, routine

# The same sequences each time. One that fails is printed as it is: the campaign cuts it down, which
# would take minutes here.
SETTINGS = settings(
    max_examples=20,
    stateful_step_count=50,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
Machine.TestCase.settings = SETTINGS
DurableMachine.TestCase.settings = settings(SETTINGS, max_examples=15)
TestMachine = Machine.TestCase
TestDurableMachine = DurableMachine.TestCase


# Sequences that failed once, cut down to what they need -----------------------------------------


def three(**first):
    """Return the beginning: three routines, of which the first is as told."""
    usual = [routine(name, every(60)) for name in "abc"]
    return "begin", {"routines": (replace(usual[0], **first), *usual[1:]), "concurrency": 3}


def test_slot_delivered_in_a_pause_passes_nothing_over_in_silence():
    steps = [
        three(schedule=every(10)),
        ("pause", {"name": None, "minutes": None}),
        ("die_in_the_middle", {"calls": 6, "span": 20 * SECOND, "away": 5 * HOUR}),
        ("fire_slot", {"name": "a", "back": 0, "odd": False}),
    ]
    assert play(steps) is None


def test_turn_that_swallows_its_end_keeps_its_group():
    group = {"exclusive": "shop", "timeout": 25 * MINUTE}
    begin, given = three(schedule=every(10), **group)
    given["routines"] = tuple(replace(one, **group) for one in given["routines"])
    steps = [
        (begin, given),
        ("next_turns", {"moods": ["stubborn"]}),
        ("advance_long", {"span": HOUR}),
    ]
    assert play(steps) is None


def test_pause_that_failed_is_none():
    steps = [
        three(),
        ("pause", {"name": None, "minutes": None}),
        ("disk_is_full_once", {"name": "fsync", "nth": 1}),
        ("pause", {"name": "b", "minutes": None}),
    ]
    assert play(steps) is None


def test_waiting_claim_that_is_given_up_says_who_settled_it():
    steps = [
        three(schedule=every(10), retry=Retry(attempts=3)),
        ("next_turns", {"moods": ["unavailable"] * 3}),
        ("advance", {"span": 10 * MINUTE}),
        ("sleep_the_machine", {"span": 5 * HOUR}),
        ("advance", {"span": timedelta(minutes=5)}),
    ]
    assert play(steps) is None


def test_slot_that_is_buffered_does_not_start_by_being_delivered():
    alone = {"schedule": every(10), "session": "fresh", "overlap": OverlapPolicy.BUFFER_ONE}
    steps = [
        three(**alone, timeout=5 * HOUR),
        ("next_turns", {"moods": ["holds"] * 2}),
        ("advance", {"span": 20 * MINUTE}),
        ("fire_slot", {"name": "a", "back": 0, "odd": False}),
    ]
    assert play(steps) is None


def test_slot_that_a_person_recovers_waits_for_its_session_whatever_slot_comes_next():
    steps = [
        three(schedule=every(10), retry=Retry(attempts=1, park=True)),
        ("next_turns", {"moods": ["unavailable", "holds"]}),
        ("advance", {"span": 10 * MINUTE}),
        ("advance", {"span": 10 * MINUTE}),
        ("recover_parked", {}),
        ("advance", {"span": 10 * MINUTE}),
    ]
    assert play(steps) is None


def test_turn_that_failed_and_waits_for_another_try_is_not_said_to_have_never_started():
    again = Retry(attempts=2, started=True)
    steps = [
        three(schedule=every(10), session="named:team", retry=again),
        ("next_turns", {"moods": ["fails"]}),
        ("advance", {"span": 10 * MINUTE}),
        ("sleep_the_machine", {"span": 50 * MINUTE}),
        ("advance", {"span": 2 * MINUTE}),
    ]
    assert play(steps) is None


def test_routine_that_is_disabled_in_a_pause_gives_nothing_up_twice():
    alone = {"overlap": OverlapPolicy.BUFFER_ONE, "catch_up": CatchUpPolicy.NONE}
    begin, given = three(schedule=every(10), **alone, exclusive="shop", timeout=5 * HOUR)
    held = replace(given["routines"][0], name="b", prompt="write the b")
    given["routines"] = (given["routines"][0], held, given["routines"][2])
    steps = [
        (begin, given),
        ("next_turns", {"moods": ["holds and fails"]}),
        ("advance_long", {"span": 25 * MINUTE}),
        ("pause", {"name": None, "minutes": None}),
        ("advance_long", {"span": 20 * MINUTE}),
        ("edit", {"name": "b", "what": "enabled"}),
        ("resume", {"name": None}),
    ]
    assert play(steps) is None


def test_turn_that_was_parked_and_recovered_stays_counted_for_its_day():
    parks, short = Retry(attempts=1, park=True), {"timeout": 25 * MINUTE, "rerun_interrupted": 2}
    begin, given = three(
        schedule=every(15),
        session="fresh",
        overlap=OverlapPolicy.BUFFER_ONE,
        catch_up=CatchUpPolicy.NONE,
        start_within=7 * MINUTE,
        retry=parks,
        exclusive="shop",
        **short,
    )
    _, b, c = given["routines"]
    limited = replace(
        b,
        schedule=every(10),
        session="named:team",
        overlap=OverlapPolicy.BUFFER_ONE,
        jitter=3 * MINUTE,
        retry=Retry(attempts=2, started=True, park=True),
        exclusive="shop",
        limits=DayLimit(turns=9, usd=None, routine=None, zone="UTC"),
        **short,
    )
    beside = replace(
        c,
        schedule=every(15),
        session="named:team",
        overlap=OverlapPolicy.SUPERSEDE,
        catch_up=CatchUpPolicy.ALL,
        max_catch_up=2,
        timeout=5 * HOUR,
        retry=parks,
    )
    given |= {"routines": (given["routines"][0], limited, beside), "concurrency": 2}
    steps = [
        (begin, given),
        ("next_turns", {"moods": ["fails", "fails", "unknown"]}),
        ("release", {"which": 3}),
        ("start", {}),
        ("next_turns", {"moods": ["holds and fails"]}),
        ("stop", {"away": 5 * HOUR, "which": 3, "grace": 0 * SECOND}),
        ("fire_slot", {"odd": True, "back": 1, "name": "a"}),
        ("crash", {"away": 30 * SECOND, "which": 1}),
        ("die_in_the_middle", {"away": 50 * MINUTE, "calls": 37, "span": 11 * MINUTE}),
        ("advance_long", {"span": 25 * MINUTE}),
        ("edit", {"name": "b", "what": "absent"}),
        ("recover_parked", {}),
        ("die_in_the_middle", {"away": 50 * MINUTE, "span": 5 * MINUTE, "calls": 23}),
    ]
    assert play(steps) is None
