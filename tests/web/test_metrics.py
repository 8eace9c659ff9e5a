"""The numbers of a scheduler: what is counted, under which labels, and how many of them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from routines.operations.vital_signs import STANDINGS, VitalSigns
from routines.web.metrics import Metrics
from tests.engine.stage import MINUTE, at, every, once, routine
from tests.web.scraping import labels, numbers, samples, scheduler_of


@dataclass(frozen=True)
class Event:
    name: str
    ref: str
    data: dict[str, Any]


def settled(name="digest", **data):
    known = {"routine": name, "outcome": "completed", "reason": None, "detail": "x"}
    return Event("settled", f"{name}@2026-07-01T08:05:00Z", known | data)


def told(*events, **options):
    metrics = Metrics(pass_age_s=lambda: None, **options)
    for event in events:
        metrics.happened(event)
    return samples(metrics.text(None).decode())


# What happened ----------------------------------------------------------------------------------


async def test_what_an_engine_did_is_in_the_numbers(stage):
    stage.agent.hold("slow")
    digest, slow = routine(schedule=every(5)), routine("slow", once("08:05"))
    async with scheduler_of(stage, digest, slow) as (_, _, client):
        await stage.clock.advance_to(at("08:11"))
        found = await numbers(client)
        digest_completed = labels(routine="digest", outcome="completed")
        assert found["routines_fires_total"] == {digest_completed: 2.0}
        assert found["routines_open_claims"][labels(state="running")] == 1.0

        stage.agent.release()
        await stage.clock.advance()
        found = await numbers(client)

    slow_completed = labels(routine="slow", outcome="completed")
    assert found["routines_fires_total"] == {digest_completed: 2.0, slow_completed: 1.0}
    assert found["routines_open_claims"] == {labels(state=word): 0.0 for word in STANDINGS}
    assert found["routines_turn_seconds_sum"][labels(routine="slow")] == 360.0
    assert found["routines_lateness_seconds_count"][labels(routine="digest")] == 2.0
    assert found["routines_turn_start_seconds_count"][()] == 3.0
    assert found["routines_pass_seconds_count"][()] >= 11
    assert found["routines_schedulers"] == {(): 1.0}
    assert found["routines_files_read"] == {(): 1.0}
    assert found["routines_last_pass_age_seconds"] == {(): 0.0}
    assert found["routines_heartbeat_age_seconds"] == {(): 0.0}
    assert found["routines_scheduler_start_seconds"] == {(): 0.0}


async def test_late_start_and_slots_given_up_are_counted(stage):
    digest = routine(schedule=every(60))
    async with stage.running(digest):
        pass
    stage.clock.sleep_machine(timedelta(hours=5))
    async with scheduler_of(stage, digest) as (_, _, client):
        await stage.clock.advance(MINUTE)
        found = await numbers(client)

    assert found["routines_lateness_seconds_count"] == {labels(routine="digest"): 1.0}
    missed = labels(routine="digest", reason="no-scheduler")
    assert found["routines_missed_total"] == {missed: 1.0}


async def test_what_is_put_off_and_what_is_refused_is_counted(stage):
    found = told(
        Event("retrying", "digest@2026-07-01T08:05:00Z", {"routine": "digest", "detail": "x"}),
        Event("parked", "digest@2026-07-01T08:05:00Z", {"routine": "digest", "detail": "x"}),
        Event("fault", "digest", {"error": "x"}),
        Event("fired", "digest@2026-07-01T08:05:00Z", {"routine": "digest"}),
        Event("an-event-of-a-newer-version", "digest", {}),
    )

    assert found["routines_put_off_total"] == {
        labels(routine="digest", state="retrying"): 1.0,
        labels(routine="digest", state="parked"): 1.0,
    }
    assert found["routines_faults_total"] == {labels(routine="digest"): 1.0}


async def test_pending_wake_ups_are_counted(stage):
    async with scheduler_of(stage, routine()) as (engine, _, client):
        await engine._off(lambda: engine.tools("routine:digest").wake("Look again.", in_="1h"))
        found = await numbers(client)

    assert found["routines_pending_wakeups"] == {(): 1.0}


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.004, "0.01"), (0.01, "0.01"), (299, "300.0"), (301, "900.0")]
)
def test_turns_are_told_apart_from_10_ms_on(seconds, bucket):
    counts = told(settled(duration_s=seconds))["routines_turn_seconds_bucket"]

    holding = [dict(key)["le"] for key, count in counts.items() if count]
    assert holding[0] == bucket


def test_turn_without_lengths_is_counted_and_not_measured():
    found = told(settled(outcome="skipped", late_s=None, duration_s=None, start_s=None))

    assert found["routines_fires_total"] == {labels(routine="digest", outcome="skipped"): 1.0}
    assert found["routines_turn_seconds_count"] == {labels(routine="digest"): 0.0}


def test_without_the_files_what_is_in_them_is_absent():
    metrics = Metrics(pass_age_s=lambda: 3.0)
    metrics.text(VitalSigns(1, 2.0, {"running": 4}, 5))
    found = samples(metrics.text(None).decode())

    assert found["routines_files_read"] == {(): 0.0}
    assert found["routines_last_pass_age_seconds"] == {(): 3.0}
    assert not {"routines_open_claims", "routines_schedulers"} & found.keys()


# Labels -----------------------------------------------------------------------------------------


def routines_of(found, name="routines_fires_total"):
    return [dict(key)["routine"] for key in found[name]]


def test_routines_beyond_the_bound_are_one_label():
    found = told(*(settled(f"r{i}") for i in range(1000)), settled("r1"), most_routines=3)

    assert routines_of(found) == ["r0", "r1", "r2", "(other)"]
    other = labels(routine="(other)", outcome="completed")
    assert found["routines_fires_total"][other] == 997.0


def test_bounded_labels_bound_the_length_of_a_scrape():
    metrics = Metrics(pass_age_s=lambda: None)
    lengths = {"late_s": 1, "duration_s": 1, "start_s": 1}
    for i in range(3000):
        metrics.happened(settled(f"routine-{i}", **lengths))

    assert len(metrics.text(None)) < 1_000_000


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Täglich früh", "Täglich früh"),
        ('a"} 1\nroutines_fires_total{routine="b', 'a"} 1 routines_fires_total{routine="b'),
        ("back\\slash", "back\\slash"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\udcff", "\\xdcff"),
        ("x" * 500, "x" * 117 + "..."),
        (None, "(none)"),
        ("(none)", "(none)"),
    ],
)
def test_name_is_escaped_and_cut(name, label):
    assert routines_of(told(settled(name))) == [label]


def test_words_that_are_no_outcome_are_one_label():
    found = told(*(settled(outcome=f"made up {i}") for i in range(100)))

    assert list(found["routines_fires_total"]) == [labels(routine="digest", outcome="(other)")]


def test_nothing_is_left_in_the_registry_of_the_process():
    told(settled(duration_s=1))

    assert not [one.name for one in REGISTRY.collect() if one.name.startswith("routines")]
