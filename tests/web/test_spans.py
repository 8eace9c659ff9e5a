"""Turns as spans, where OpenTelemetry is installed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from routines.web.spans import Spans
from tests.engine.stage import at, once, routine
from tests.web.scraping import numbers, scheduler_of


class Span:
    def __init__(self, name, start_time, attributes):
        self.name = name
        self.start_time = start_time
        self.attributes = attributes
        self.status = None
        self.end_time = None

    def set_status(self, status):
        self.status = status

    def end(self, end_time):
        self.end_time = end_time


@pytest.fixture
def spans(monkeypatch):
    """What is told to a stand-in for OpenTelemetry."""
    told = []

    def start_span(name, *, start_time, attributes):
        told.append(Span(name, start_time, attributes))
        return told[-1]

    module = ModuleType("opentelemetry")
    module.trace = SimpleNamespace(
        get_tracer=lambda name, version: SimpleNamespace(start_span=start_span),
        Status=lambda code: code,
        StatusCode=SimpleNamespace(ERROR="error"),
    )
    monkeypatch.setitem(sys.modules, "opentelemetry", module)
    return told


async def test_turn_is_a_span_with_its_begin_and_its_end(stage, spans):
    stage.agent.hold()
    async with scheduler_of(stage, routine(schedule=once("08:05"))) as (_, _, client):
        await stage.clock.advance_to(at("08:07"))
        stage.agent.release()
        await stage.clock.advance()
        assert await numbers(client)

    (span,) = spans
    assert span.name == "routines.turn"
    assert span.start_time == at("08:05").timestamp() * 1_000_000_000
    assert span.end_time == at("08:07").timestamp() * 1_000_000_000
    assert span.status is None
    assert span.attributes == {
        "routines.occurrence": f"digest@{at('08:05'):%Y-%m-%dT%H:%M:%SZ}",
        "routines.routine": "digest",
        "routines.trigger": "schedule",
        "routines.outcome": "completed",
        "routines.late_s": 0.0,
    }


def turn(**data):
    known = {"routine": "digest", "outcome": "completed", "duration_s": 2.5, "detail": "x"}
    Spans().turn("digest@x", known | data, ended_at=at("08:07"))


def test_turn_that_failed_is_an_error_and_its_text_is_not_told(spans):
    turn(outcome="failed", reason="exit", detail="SECRET")

    assert spans[0].status == "error"
    assert "SECRET" not in str(spans[0].attributes)


def test_what_never_ran_is_no_span(spans):
    turn(outcome="skipped", duration_s=None)

    assert spans == []


def test_without_opentelemetry_nothing_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    assert not Spans().on
    turn()
