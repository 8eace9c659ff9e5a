"""What people asked of tools like this one, most asked for first, and three faults they reported.

FR-02 (caps) across processes is in `tests/acceptance/test_two_schedulers.py`, FR-03 and BR-71
(alerts) in `test_alerting.py`, and what needs a person's own commands (FR-03's pause by itself,
FR-04, FR-09, FR-10) in `tests/acceptance/test_asked_for.py`.
"""

import itertools
import json
from collections import Counter
from datetime import timedelta

import pytest

from routines.agents.base import Reply, TurnFailed, Usage
from routines.domain.limits import DayLimit
from routines.domain.occurrence import Kind
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy
from routines.domain.timetable import offset_of
from routines.store.retention import Keep, RetentionStore
from routines.store.switches import SwitchStore
from routines.testing import RecordingAgent
from tests.engine.stage import HOUR, MINUTE, SECOND, Mortal, at, cron, every, routine

# BR-29: a stable session grew until the provider refused it, and the job was disabled for good.


def too_long_after(turns):
    """An agent whose conversation takes so many turns and no more."""
    had = Counter()

    def answer(turn):
        had[turn.session_uuid] += 1
        if had[turn.session_uuid] > turns:
            raise TurnFailed("context too long: 204,318 tokens of 200,000")
        return "done"

    return RecordingAgent(answer)


async def test_session_that_has_grown_too_long_fails_visibly_and_disables_nothing(stage):
    stage.agent = too_long_after(30)
    async with stage.running(routine(schedule=every(60))):
        await stage.clock.advance(50 * HOUR, step=15 * MINUTE)

    records = stage.records("digest")
    assert Counter(record.outcome for record in records) == {"completed": 30, "failed": 20}
    assert len(stage.agent.turns) == 50, "each later slot is still attempted"
    assert all("context too long" in r.end["detail"] for r in records if r.outcome == "failed")
    assert SwitchStore(stage.state).held("digest", now=stage.clock.now()) is None
    assert stage.cursors.read("digest").standing == "armed"
    assert [event.name for event in stage.events if event.name == "alert"] == ["alert"]


async def test_session_that_begins_anew_in_time_never_grows_too_long(stage):
    stage.agent = too_long_after(30)
    async with stage.running(routine(schedule=every(60), session_turns=25)):
        await stage.clock.advance(50 * HOUR, step=15 * MINUTE)

    assert {record.outcome for record in stage.records("digest")} == {"completed"}
    assert stage.sessions.peek("routine:digest").epoch == 2


# BR-80, second half: failed runs were retried every 60 s straight into the rate limit.


async def test_turn_that_fails_ten_times_in_a_row_is_tried_at_growing_pauses_under_one_record(
    stage,
):
    """With retries on: growing pauses, a limit, never beyond the next slot, one slot record."""
    begun = []

    def fails(turn):
        begun.append((turn.key, stage.clock.now()))
        raise TurnFailed("exit 1")

    stage.agent = RecordingAgent(fails)
    again = Retry(attempts=10, first=MINUTE, most=15 * MINUTE, started=True)
    async with stage.running(routine(schedule=cron("0 9,11 * * *"), retry=again)):
        await stage.clock.advance_to(at("12:59"))

    records = stage.records("digest")
    assert [f"{r.occurrence.instant:%H:%M} {r.outcome}" for r in records] == [
        "09:00 failed",
        "11:00 failed",
    ]
    first = [when for key, when in begun if key.endswith("@2026-06-01T09:00:00Z")]
    pauses = [(after - before) // MINUTE for before, after in itertools.pairwise(first)]
    assert pauses == [1, 2, 4, 8, 15, 15, 15, 15, 15]
    assert len(first) == 10, "a limit"
    assert max(first) < at("11:00"), "never beyond the next slot"
    assert records[0].retries == 9


async def test_turn_that_fails_is_not_tried_again_unless_its_file_says_so(stage):
    stage.agent = RecordingAgent(too_long_after(0)._answer)
    async with stage.running(routine(schedule=every(60), retry=Retry())):
        await stage.clock.advance_to(at("09:59"))

    assert len(stage.agent.turns) == 1


# FR-01: a rule a job for missed slots: run once late, skip, and how late is too late.


@pytest.mark.parametrize(
    ("policy", "within", "history"),
    [
        ("one", None, ["09:00-11:00 missed no-scheduler x3", "12:00 completed"]),
        ("none", None, ["09:00-12:00 missed no-scheduler x4"]),
        ("all", None, ["09:00 completed", "10:00 completed", "11:00 completed", "12:00 completed"]),
        ("one", timedelta(minutes=20), ["09:00-12:00 missed too-late x4"]),
        ("one", timedelta(minutes=40), ["09:00-11:00 missed no-scheduler x3", "12:00 completed"]),
        (
            "all",
            timedelta(hours=2),
            ["09:00-10:00 missed too-late x2", "11:00 completed", "12:00 completed"],
        ),
    ],
)
async def test_each_routine_has_its_own_rule_for_missed_slots(stage, policy, within, history):
    hourly = routine(schedule=every(60), catch_up=CatchUpPolicy(policy), start_within=within)
    async with stage.running(hourly):
        pass
    stage.clock.sleep_machine(4 * HOUR + 30 * MINUTE)
    async with stage.running(hourly):
        await stage.clock.advance(10 * SECOND, step=SECOND)

    assert stage.history() == history


# FR-02: caps on turns and money, a routine and overall, with a visible outcome.


@pytest.mark.parametrize(
    ("limit", "detail"),
    [
        (DayLimit(turns=2), "2 of 2 turns"),
        (DayLimit(usd=1.0), "$1.20 of $1.00"),
    ],
)
async def test_cap_is_an_outcome_that_says_what_it_is_a_cap_of(stage, limit, detail):
    stage.agent = RecordingAgent(lambda _: Reply(text="done", usage=Usage(usd=0.6)))
    async with stage.running(routine(schedule=every(60), limits=limit)):
        await stage.clock.advance_to(at("11:01"))

    assert stage.history() == ["09:00 completed", "10:00 completed", "11:00 skipped limit"]
    assert detail in stage.records()[-1].end["detail"]


# FR-06: spreading load: jitter, staggered catch-up, a limit on concurrent agents.


async def test_load_of_one_minute_is_spread_the_same_way_on_every_machine(stage):
    names = [f"r{number:02}" for number in range(60)]
    jitter = timedelta(minutes=10)
    crowd = [routine(name, cron("0 9 * * *"), jitter=jitter) for name in names]
    async with stage.running(*crowd, limits=None):
        await stage.clock.advance_to(at("09:11"), step=SECOND)

    begun = {r.routine: r.started_at - at("09:00") for r in stage.records()}
    assert {r.outcome for r in stage.records()} == {"completed"}
    assert begun == {name: offset_of(name, at("09:00"), jitter) for name in names}
    by_minute = Counter(span // MINUTE for span in begun.values())
    assert len(by_minute) >= 8
    assert max(by_minute.values()) <= 15


async def test_after_an_absence_no_more_agents_run_at_once_than_are_allowed(stage):
    names = [f"r{number:02}" for number in range(30)]
    crowd = [routine(name, every(60)) for name in names]
    async with stage.running(*crowd):
        pass
    stage.clock.sleep_machine(5 * HOUR)
    counting = Counting(stage.agent)
    stage.agent.hold()
    async with stage.running(*crowd, agent=Mortal(counting)):
        while counting.begun < len(names):
            await stage.clock.advance(2 * SECOND, step=SECOND)
            stage.agent.release()
            await stage.clock.advance(SECOND, step=SECOND)
            stage.agent.hold()
        stage.agent.release()
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert counting.most == 4
    done = [r.routine for r in stage.records() if r.outcome == "completed"]
    assert sorted(done) == names


class Counting:
    """Counts how many turns an agent has at once."""

    def __init__(self, agent):
        self.agent = agent
        self.now = self.most = self.begun = 0

    async def run(self, turn):
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.agent.run(turn)
        finally:
            self.now -= 1


# FR-08: choice of session: carry on in one, or start fresh each time, with pruning.


@pytest.mark.parametrize(
    ("session", "sessions", "firsts"),
    [
        ("stable", {"routine:digest"}, 1),
        ("named:team", {"named:team"}, 1),
        (
            "fresh",
            {f"routine:digest@2026-06-01T{hour:02}:00:00Z" for hour in (9, 10, 11)},
            3,
        ),
    ],
)
async def test_session_is_carried_on_or_new_as_its_file_says(stage, session, sessions, firsts):
    async with stage.running(routine(schedule=every(60), session=session)):
        await stage.clock.advance_to(at("11:30"))

    turns = stage.agent.turns
    assert {turn.session for turn in turns} == sessions
    assert len({turn.session_uuid for turn in turns}) == len(sessions)
    assert sum(turn.first for turn in turns) == firsts


async def test_fresh_session_goes_with_its_record_and_a_stable_one_stays(stage):
    daily = [routine(name, cron("0 9 * * *"), session=name) for name in ("fresh", "stable")]
    async with stage.running(*daily):
        await stage.clock.advance_to(at("2026-06-03 09:01"), step=30 * MINUTE)
    assert len(list(stage.sessions.all())) == 4
    later = stage.clock.now() + timedelta(days=60)

    RetentionStore(stage.state, clock=stage.clock).prune(Keep(claims=1, days=1), now=later)

    left = sorted(ledger.session for ledger in stage.sessions.all())
    assert left == ["routine:fresh@2026-06-03T09:00:00Z", "routine:stable"]


# FR-07: agents that schedule, move and end their own work, within bounds.


class Watching:
    """An agent that watches a deploy: it sets its alarm, moves it once, and ends it when done."""

    def __init__(self, stage):
        self.stage, self.engine, self.said = stage, None, []
        self.checks = 0

    def __call__(self, turn):
        tools = self.engine.tools(turn.session)
        if turn.trigger == "schedule":
            # Too often is refused, with what to ask instead; what is asked then is enough.
            self.said.append(tools.call("wake", {"every": "1m", "prompt": "look"}))
            self.said.append(tools.call("wake", {"every": "10m", "prompt": "look"}))
            return "watching"
        self.checks += 1
        pending = json.loads(json.dumps(tools.call("wakeups").data))["wakeups"]
        if self.checks == 2:
            # Moved: the old one goes, and another one takes its place.
            tools.call("unwake", {"id": pending[0]["id"]})
            self.said.append(tools.call("wake", {"every": "30m", "prompt": "look less often"}))
        if self.checks == 4:
            # The stop condition is its own: from here on nothing comes.
            self.said.append(tools.call("unwake", {"id": pending[0]["id"]}))
        return f"check {self.checks}"


async def test_an_agent_sets_moves_and_ends_its_own_work_and_each_act_says_whose_it_was(stage):
    watching = Watching(stage)
    stage.agent = RecordingAgent(watching)
    async with stage.running(routine(schedule=cron("0 9 * * *"))) as engine:
        watching.engine = engine
        await stage.clock.advance_to(at("13:00"))
        too_often, first, moved, ended = watching.said
        assert engine.tools("routine:digest").call("wakeups").data["wakeups"] == []

    assert too_often.refused
    assert "Nothing was scheduled" in too_often.text
    assert "10m" in too_often.text
    assert not any(answer.refused for answer in (first, moved, ended))
    # Every ten minutes, then every thirty, then never again.
    assert [f"{turn.slot:%H:%M} {turn.trigger}" for turn in stage.agent.turns] == [
        "09:00 schedule",
        "09:10 wake-up",
        "09:20 wake-up",
        "09:50 wake-up",
        "10:20 wake-up",
    ]
    woken = [r for r in stage.records() if r.occurrence.kind is Kind.WAKE]
    assert {record.outcome for record in woken} == {"completed"}
    # Who made it, and in which turn: the routine's own for the first, a woken one for the second.
    made_in = [record.claim["wakeup"]["created_in_turn"] for record in woken]
    ours = [turn.key for turn in stage.agent.turns]
    assert made_in == [ours[0], ours[0], ours[2], ours[2]]


async def test_an_agent_can_neither_end_nor_see_the_work_of_another_session(stage):
    async with stage.running(routine(schedule=cron("0 9 * * *"))) as engine:
        engine.tools("routine:other").call("wake", {"in": "2h", "prompt": "theirs"})
        (theirs,) = stage.wakeups.pending("routine:other")
        mine = engine.tools("routine:digest")

        assert mine.call("wakeups").data["wakeups"] == []
        assert mine.call("unwake", {"id": theirs.id}).refused
        assert stage.wakeups.pending("routine:other") == [theirs]
