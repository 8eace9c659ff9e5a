"""`exclusive`, `verify` and `limits`: each with an outcome, or a wait, that one can see."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from routines.agents.base import AgentUnavailable, Reply, Usage
from routines.domain.limits import DayLimit
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.retry import Retry
from routines.engine import host
from routines.engine.definitions import FixedDefinitions
from routines.engine.turns import TurnSteps
from routines.engine.work import work_of
from routines.errors import SessionBusyError
from routines.operations.cancelling_due import cancel_due
from routines.store import files
from routines.store.claim_making import Draft
from routines.store.sessions import SessionStore
from routines.testing import RecordingAgent
from tests.engine.stage import MINUTE, at, every, once, routine


def outcomes(stage):
    return [
        (record.occurrence.instant.strftime("%H:%M"), record.outcome, record.reason)
        for record in stage.records()
    ]


async def test_slot_waits_while_a_turn_of_its_group_runs(stage):
    long = routine(name="long", schedule=every(60), exclusive="shop")
    late = routine(name="late", schedule=every(60), exclusive="shop")
    async with stage.running(long, late) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("09:00"))
        assert len(engine.in_flight) == 1

        stage.agent.release()
        await stage.clock.advance(2 * MINUTE)

    assert sorted(r.routine for r in stage.records() if r.outcome == "completed") == [
        "late",
        "long",
    ]


async def test_slot_that_is_cancelled_while_it_waits_for_its_group_never_runs(stage):
    long = routine(name="long", schedule=every(60), exclusive="shop")
    late = routine(name="late", schedule=once("09:01"), exclusive="shop")
    async with stage.running(long, late):
        stage.agent.hold()
        await stage.clock.advance_to(at("09:02"))
        person = SimpleNamespace(
            workspace=SimpleNamespace(routines={"late": late}),
            state_or_none=stage.state,
            writable_state=stage.state,
            clock=stage.clock,
            who="ana@studio",
            is_person=True,
        )
        (settled,) = cancel_due(person, "late", reason="not today")
        stage.agent.release()
        await stage.clock.advance(5 * MINUTE)

    assert (settled.outcome, settled.reason) == ("cancelled", "person")
    assert [turn.routine for turn in stage.agent.turns] == ["long"]
    assert stage.history("late") == ["09:01 cancelled person"]


async def test_routines_of_different_groups_run_at_once(stage):
    one = routine(name="one", schedule=every(60), exclusive="shop")
    two = routine(name="two", schedule=every(60), exclusive="mill")
    async with stage.running(one, two) as engine:
        stage.agent.hold()
        await stage.clock.advance_to(at("09:00"))
        assert len(engine.in_flight) == 2


async def test_run_by_hand_is_refused_while_its_group_is_in_use(stage):
    one = routine(name="one", exclusive="shop")
    two = routine(name="two", exclusive="shop")
    async with stage.running(one, two) as engine:
        stage.agent.hold()
        running = asyncio.create_task(engine.run("one"))
        await stage.clock.advance(MINUTE)
        with pytest.raises(SessionBusyError, match=r"^the exclusive group shop is busy: another"):
            await engine.run("two")
        stage.agent.release()
        await running

    assert [record.routine for record in stage.records()] == ["one"]


@pytest.mark.parametrize(
    ("code", "outcome", "reason", "detail"),
    [
        ("import sys; sys.exit(0)", "completed", None, ""),
        ("import sys; print('2 tests fail'); sys.exit(3)", "failed", "verify", "2 tests fail"),
    ],
)
async def test_verify_judges_a_completed_turn(stage, code, outcome, reason, detail):
    checked = routine(verify=(sys.executable, "-c", code))
    async with stage.running(checked) as engine:
        record = await engine.run("digest")

    assert (record.outcome, record.reason) == (outcome, reason)
    assert detail in record.end["detail"]


async def test_verify_reads_the_reply(stage):
    code = "import sys; sys.exit(0 if 'digest' in sys.stdin.read() else 1)"
    async with stage.running(routine(verify=(sys.executable, "-c", code))) as engine:
        record = await engine.run("digest")

    assert record.outcome == "completed"


async def test_verify_that_is_not_there_fails_the_turn_and_says_so(stage):
    async with stage.running(routine(verify=("no-such-program",))) as engine:
        record = await engine.run("digest")

    assert (record.outcome, record.reason) == ("failed", "verify")
    assert "no-such-program" in record.end["detail"]


async def test_no_more_turns_start_on_a_day_than_its_limit_says(stage):
    limited = routine(schedule=every(60), limits=DayLimit(turns=2))
    async with stage.running(limited):
        await stage.clock.advance_to(at("12:00"))

    assert sorted(outcomes(stage)) == [
        ("09:00", "completed", None),
        ("10:00", "completed", None),
        ("11:00", "skipped", "limit"),
        ("12:00", "skipped", "limit"),
    ]
    assert len(stage.agent.turns) == 2


async def test_turns_begin_while_the_agent_of_another_under_their_limit_is_looked_for(stage):
    limited = routine(limits=DayLimit(turns=1))

    def steps_at(instant):
        slot = Occurrence(Kind.SLOT, "digest", at(instant))
        line = {
            "session": f"named:{instant}",
            "owner": host.owner().to_json(),
            "due_at": at(instant),
        }
        claim = stage.claims.take(Draft(slot, line), at=stage.clock.now())
        lease = SessionStore(stage.state).take(str(line["session"]), clock=stage.clock)
        return TurnSteps(stage.state, claim, lease, clock=stage.clock, owner=host.owner())

    work = work_of(limited, root=stage.root, agent=None, agent_name="host")
    late, other = steps_at("08:00"), steps_at("08:05")
    began = []

    def looks_for_its_agent(_):
        began.append(other.begin(work))
        return False

    begun = late.begin(work, looks_for_its_agent)
    for steps in (late, other):
        steps.lease.let_go()
        steps.claim.let_go()

    assert began != [None]
    # And the limit holds for the one whose agent was looked for.
    assert begun is None
    assert stage.history() == ["08:00 skipped limit", "08:05 running"]


async def test_the_next_day_begins_anew(stage):
    limited = routine(schedule=every(60), limits=DayLimit(turns=1))
    async with stage.running(limited):
        await stage.clock.advance_to(at("2026-06-02 01:00"))

    days = [r.occurrence.instant.day for r in stage.records() if r.outcome == "completed"]
    assert days == [1, 2]


async def test_limit_of_all_together_holds_for_the_routines_of_a_host_too(stage):
    definitions = FixedDefinitions(
        [routine(schedule=once("08:05")), routine("second", schedule=once("08:10"))],
        root=stage.root,
        concurrency=4,
    )
    definitions.limits = (DayLimit(turns=1),)
    async with stage.running(routines=definitions):
        await stage.clock.advance_to(at("08:15"))

    assert stage.history("digest") == ["08:05 completed"]
    assert stage.history("second") == ["08:10 skipped limit"]


async def test_turns_by_hand_count_and_are_held_to_the_limit_too(stage):
    async with stage.running(routine(limits=DayLimit(turns=1))) as engine:
        first = await engine.run("digest")
        second = await engine.run("digest")

    assert (first.outcome, second.outcome, second.reason) == ("completed", "skipped", "limit")


async def test_money_is_counted_from_what_the_turns_said_they_cost(stage):
    stage.agent = RecordingAgent(lambda _: Reply(text="done", usage=Usage(usd=0.6)))
    async with stage.running(routine(schedule=every(60), limits=DayLimit(usd=1.0))):
        await stage.clock.advance_to(at("11:00"))

    assert [o for _, o, _ in outcomes(stage)] == ["completed", "completed", "skipped"]


async def test_every_turn_of_one_slot_counts_towards_the_day(stage):
    stage.agent = RecordingAgent(fails)
    again = Retry(attempts=3, first=MINUTE, started=True)
    limited = routine(schedule=every(60), limits=DayLimit(turns=2), retry=again)
    async with stage.running(limited):
        await stage.clock.advance_to(at("09:30"))

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("skipped", "limit")
    assert len(stage.agent.turns) == 2


def fails(_turn):
    raise RuntimeError("it broke")


@pytest.mark.parametrize("word", ["not-started", "retry"])
async def test_turn_that_never_started_does_not_count_also_where_the_disk_refused_to_say_so(
    stage, monkeypatch, word
):
    def refuse(fd, data, write=files.calls.write):
        if b'"event":"not-started"' in data:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    def never(_turn):
        if len(stage.agent.turns) < 3:
            raise AgentUnavailable("connection refused")
        return "done"

    attempts = 1 if word == "not-started" else 3
    limits = DayLimit(turns=1)
    stage.agent = RecordingAgent(never)
    often = routine(schedule=every(60), limits=limits, retry=Retry(attempts=attempts, first=MINUTE))
    async with stage.running(often):
        monkeypatch.setattr(files.calls, "write", refuse)
        await stage.clock.advance_to(at("11:30"))

    ends = [(r.outcome, r.reason) for r in stage.records()]
    assert ends.count(("completed", None)) == 1
    assert all(reason in (None, "not-started", "limit") for _, reason in ends)


async def test_what_a_turn_cost_that_was_tried_again_is_not_forgotten(stage):
    costs = iter([Usage(usd=0.5, tokens=10), Usage(usd=0.25, tokens=5)])

    def answer(turn):
        return Reply(
            text="x", usage=next(costs), failed="no" if len(stage.agent.turns) == 1 else None
        )

    stage.agent = RecordingAgent(answer)
    again = Retry(attempts=2, first=MINUTE, started=True)
    async with stage.running(routine(schedule=every(60), retry=again)):
        await stage.clock.advance_to(at("09:30"))

    (record,) = stage.records()
    assert (record.outcome, record.usage) == ("completed", {"usd": 0.75, "tokens": 15})


async def test_running_totals_of_a_turn_that_was_tried_again_are_counted_once(stage):
    totals = iter([0.5, 0.75, 1.0])

    def answer(turn):
        usage = Usage(usd_total=next(totals))
        return Reply(text="x", usage=usage, failed="no" if len(stage.agent.turns) == 2 else None)

    stage.agent = RecordingAgent(answer)
    again = Retry(attempts=2, first=MINUTE, started=True)
    async with stage.running(routine(schedule=every(60), retry=again)):
        await stage.clock.advance_to(at("10:30"))

    assert [record.usage["usd"] for record in stage.records()] == [0.5, 0.5]
