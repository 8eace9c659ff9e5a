"""Turns of an agent that lives in the engine's process (PROMISES T5, T6, L17, O2, O3)."""

import asyncio
import sys
import threading

import pytest

from routines.agents.base import (
    AgentUnavailable,
    OutcomeUnknown,
    Reply,
    SessionBusy,
    TurnFailed,
    Usage,
)
from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.engine import gates, turns
from routines.errors import SessionBusyError
from tests.engine.stage import HOUR, MINUTE, SECOND, at, content, eventually, every, once, routine


def raising(error):
    def answer(turn):
        raise error

    return answer


async def one_turn(stage, answer=None, **changes):
    stage.agent._answer = answer
    async with stage.running(routine(schedule=every(60), **changes)):
        # Long enough for what never started to be tried for the last time.
        await stage.clock.advance_to(at("09:10"))
    return stage.records()[0]


# How an answer is judged -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (lambda _: "done", "completed None"),
        (lambda _: Reply(text="done"), "completed None"),
        (lambda _: Reply(failed="the build is red"), "failed agent"),
        (raising(TurnFailed("no tokens left")), "failed agent"),
        (raising(ZeroDivisionError("division by zero")), "failed agent"),
        (raising(OutcomeUnknown("the line went dead")), "interrupted outcome-unknown"),
        (raising(SessionBusy("in use")), "failed not-started"),
        (raising(AgentUnavailable("refused")), "failed not-started"),
        (raising(asyncio.CancelledError()), "failed agent"),
    ],
)
async def test_end_of_a_turn_follows_from_what_the_agent_did(stage, answer, end):
    record = await one_turn(stage, answer)

    assert f"{record.outcome} {record.reason}" == end


async def test_function_that_answers_something_else_has_bad_output(stage):
    async with stage.running(routine(schedule=once("08:05")), agent=lambda turn: 42):
        await stage.clock.advance_to(at("08:05"))
        await eventually(lambda: stage.history() == ["08:05 failed bad-output"])


async def test_turn_that_never_started_says_so_in_its_record(stage):
    record = await one_turn(stage, raising(AgentUnavailable("connection refused")))

    assert record.newest(Event.NOT_STARTED)["reason"] == "not-started"
    assert "connection refused" in record.end["detail"]


async def test_empty_reply_is_completed_with_a_warning(stage):
    record = await one_turn(stage, lambda _: Reply(text=" \n"))

    assert (record.outcome, record.end["warnings"]) == (Outcome.COMPLETED, ["empty-reply"])


async def test_prompt_and_reply_are_kept_beside_the_record(stage):
    record = await one_turn(stage, lambda _: "línea 1\nline 2 \U0001f98a")
    folder = stage.state.at("output", record.occurrence.place)

    assert content(f"{folder}/reply.md").decode() == "línea 1\nline 2 \U0001f98a"
    assert content(f"{folder}/prompt.md") == b"write the digest"


async def test_cost_of_a_turn_is_the_difference_of_running_totals(stage):
    totals = iter(
        [Usage(usd_total=0.10, tokens_total=100), Usage(usd_total=0.25, tokens_total=160)]
    )
    stage.agent._answer = lambda _: Reply(text="done", usage=next(totals))
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:10"))

    assert [record.end["usage"] for record in stage.records()] == [
        {"usd": 0.10, "tokens": 100},
        {"usd": 0.15, "tokens": 60},
    ]


async def test_unknown_agent_of_one_routine_harms_no_other(stage):
    digest = routine(schedule=once("08:05"), agent="nobody")
    async with stage.running(digest, routine("other", once("08:05"))):
        await stage.clock.advance_to(at("08:06"))

    assert stage.history("other") == ["08:05 completed"]


# The limit ---------------------------------------------------------------------------------------


async def test_coroutine_past_its_limit_is_cancelled_and_timed_out(stage):
    stage.agent.hold()
    async with stage.running(routine(schedule=every(60), timeout=10 * MINUTE)):
        await stage.clock.advance_to(at("09:09:59"), step=SECOND * 30)
        assert stage.history() == ["09:00 running"]
        await stage.clock.advance(SECOND, step=SECOND)
        assert stage.history() == ["09:00 timed-out timeout"]
        stage.agent.release()
        await stage.clock.advance_to(at("10:00"))

    assert stage.history() == ["09:00 timed-out timeout", "10:00 completed"]


async def test_coroutine_that_ignores_its_cancel_keeps_its_session_busy_until_it_has_ended(stage):
    go_on = asyncio.Event()

    async def stubborn(turn):
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    digest = routine(schedule=once("09:00"), timeout=10 * MINUTE)
    async with stage.running(digest, agent=stubborn) as engine:
        await stage.clock.advance_to(at("09:11"))
        assert stage.history() == ["09:00 timed-out timeout"]
        with pytest.raises(SessionBusyError):
            await engine.run("digest")
        go_on.set()
        await stage.clock.advance()
        assert (await engine.run("digest")).outcome == "completed"


async def test_function_past_its_limit_is_timed_out_and_its_session_busy_until_it_has_ended(stage):
    go_on = threading.Event()

    def sitting(turn):
        assert go_on.wait(30)
        return "at last"

    digest = routine(schedule=once("09:00"), timeout=10 * MINUTE)
    async with stage.running(digest, agent=sitting) as engine:
        await stage.clock.advance_to(at("09:11"))
        assert stage.history() == ["09:00 timed-out timeout"]
        with pytest.raises(SessionBusyError):
            await engine.run("digest")
        go_on.set()
        await eventually(lambda: stage.sessions.is_busy("routine:digest") is None)
        assert (await engine.run("digest")).outcome == "completed"


async def test_function_in_its_thread_delays_no_other_turn(stage):
    go_on = threading.Event()

    def agent(turn):
        if turn.routine == "sitting":
            assert go_on.wait(30)
        return "done"

    sitting = [routine(f"sitting{n}", once("08:05")) for n in range(3)]
    async with stage.running(*sitting, routine("other", once("08:06")), agent=agent):
        await stage.clock.advance_to(at("08:06"))
        await eventually(lambda: stage.history("other") == ["08:06 completed"])
        go_on.set()


# Cancels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("person", "reason"), [(True, "person"), (False, "turn")])
async def test_cancel_ends_a_running_turn_within_a_second_or_two(stage, person, reason):
    async with stage.running(routine(schedule=once("08:05"))):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:05"))
        stage.cancel("digest@2026-06-01T08:05:00Z", person=person, by="eve@studio")
        await stage.clock.advance(2 * SECOND, step=SECOND)

        assert stage.history() == [f"08:05 cancelled {reason}"]
    (record,) = stage.records()
    assert record.end["by"] == "eve@studio"
    assert [event["event"] for event in record.events] == ["started", "cancelling", "outcome"]


async def test_cancel_between_claim_and_start_settles_without_running(stage, monkeypatch):
    begin = turns.TurnSteps.begin

    def cancelled(self, work):
        stage.cancel(self.ref)
        return begin(self, work)

    monkeypatch.setattr(turns.TurnSteps, "begin", cancelled)
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:05"))

    assert stage.history() == ["08:05 cancelled person"]
    assert stage.agent.turns == []


async def test_cancel_that_is_withdrawn_in_time_changes_nothing(stage):
    from routines.store.cancels import CancelStore

    async with stage.running(routine(schedule=once("08:05"))):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:05"))
        cancel = stage.cancel("digest@2026-06-01T08:05:00Z")
        assert CancelStore(stage.state).withdraw(cancel)
        await stage.clock.advance(5 * SECOND, step=SECOND)
        stage.agent.release()
        await stage.clock.advance()

    assert stage.history() == ["08:05 completed"]


async def test_cancel_that_was_taken_up_cannot_be_withdrawn(stage):
    from routines.store.cancels import CancelStore

    async with stage.running(routine(schedule=once("08:05"))):
        stage.agent.hold()
        await stage.clock.advance_to(at("08:05"))
        cancel = stage.cancel("digest@2026-06-01T08:05:00Z")
        await stage.clock.advance(2 * SECOND, step=SECOND)
        assert not CancelStore(stage.state).withdraw(cancel)


async def test_cancelling_twice_is_harmless(stage):
    async with stage.running(routine(schedule=every(60))):
        stage.agent.hold()
        await stage.clock.advance_to(at("09:00"))
        for _ in range(2):
            stage.cancel("digest@2026-06-01T09:00:00Z")
        await stage.clock.advance(2 * SECOND, step=SECOND)
        stage.cancel("digest@2026-06-01T09:00:00Z")
        stage.agent.release()
        await stage.clock.advance_to(at("10:00"))

    assert stage.history() == ["09:00 cancelled person", "10:00 completed"]


# The gate ----------------------------------------------------------------------------------------


def python(code):
    return (sys.executable, "-Sc", code)


@pytest.mark.parametrize(
    ("code", "end", "detail"),
    [
        ("pass", "completed None", ""),
        ("print('x'); print('no new mail'); raise SystemExit(1)", "skipped gate", "no new mail"),
        (
            "print('broken'); raise SystemExit(2)",
            "failed gate",
            "only_if ended with exit 2: broken",
        ),
        ("import os; os.kill(os.getpid(), 9)", "failed gate", "only_if ended with a signal"),
    ],
)
async def test_gate_decides_whether_the_agent_is_asked(stage, code, end, detail):
    record = await one_turn(stage, only_if=python(code))

    assert f"{record.outcome} {record.reason}" == end
    assert record.end["detail"] == detail
    assert len(stage.agent.turns) == (end == "completed None")


async def test_gate_that_is_not_there_fails_the_turn(stage):
    record = await one_turn(stage, only_if=("no-such-program-anywhere",))

    assert (record.outcome, record.reason) == ("failed", "gate")
    assert "no-such-program-anywhere" in record.end["detail"]


async def test_gate_that_hangs_is_ended(stage, monkeypatch):
    monkeypatch.setattr(gates, "GATE_TIMEOUT", 0 * SECOND)
    record = await one_turn(stage, only_if=python("import time; time.sleep(600)"))

    assert (record.outcome, record.reason) == ("failed", "gate")
    assert "took longer than its limit" in record.end["detail"]


async def test_gate_is_not_asked_for_a_run_by_hand(stage):
    async with stage.running(routine(only_if=python("raise SystemExit(1)"))) as engine:
        assert (await engine.run("digest")).outcome == "completed"


# The session's ledger ----------------------------------------------------------------------------


async def test_turns_of_one_session_are_counted_and_only_the_first_is_the_first(stage):
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:15"))

    assert [turn.first for turn in stage.agent.turns] == [True, False, False]
    assert [record.started["turn"] for record in stage.records()] == [1, 2, 3]
    assert {turn.session_uuid for turn in stage.agent.turns} == {stage.agent.turns[0].session_uuid}


async def test_after_so_many_turns_a_new_epoch_begins(stage):
    async with stage.running(routine(schedule=every(5), session_turns=2)):
        await stage.clock.advance_to(at("08:25"))

    assert [record.started["epoch"] for record in stage.records()] == [1, 1, 2, 2, 3]
    assert len({turn.session_uuid for turn in stage.agent.turns}) == 3


async def test_another_agent_begins_a_new_epoch(stage):
    async with stage.running(routine(schedule=every(5))) as engine:
        await stage.clock.advance_to(at("08:05"))
        record = await engine.run("digest", agent="echo")
        assert record.started["epoch"] == 2

    ledger = stage.sessions.peek("routine:digest")
    assert ledger.epoch_reason == "the agent changed from host to echo"


async def test_session_that_the_agent_names_is_handed_to_its_next_turn(stage):
    stage.agent._answer = lambda _: Reply(text="done", native_session="n-77")
    async with stage.running(routine(schedule=every(5))):
        await stage.clock.advance_to(at("08:10"))

    assert [turn.native_session for turn in stage.agent.turns] == [None, "n-77"]


async def test_deadline_of_a_turn_is_its_start_and_its_limit(stage):
    async with stage.running(routine(schedule=once("08:05"), timeout=HOUR)):
        await stage.clock.advance_to(at("08:05"))

    assert stage.agent.turns[0].deadline == at("09:05")
