"""Jobs in an engine: in order, in their sessions, once, and run again as often as was allowed."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable, OutcomeUnknown, SessionBusy
from routines.domain.limits import DayLimit
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event
from routines.engine.definitions import FixedDefinitions
from routines.engine.lifecycle import Limits
from routines.engine.off_loop import quiet
from routines.engine.unparking import unpark
from routines.errors import NotDurable, StoreBusy, UnknownAgent
from routines.operations.embedded import Engine
from routines.operations.jobs import Jobs
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.job_settling import settling
from routines.store.places import PlaceStore
from routines.store.switches import Switch, SwitchStore
from tests.engine.stage import MINUTE, SECOND, Mortal, cron, every, routine


def queue(stage):
    return Jobs(stage.path, clock=stage.clock, by="ci@studio")


def answering(stage, **answers):
    """Let the agent raise, for these prompts, what is given; what it has answered else stands."""

    def answer(turn):
        found = answers.get(turn.prompt, turn.prompt)
        if isinstance(found, Exception):
            raise found
        return found

    stage.agent._answer = answer


def outcomes(stage):
    """The outcome of each job by its id; None while it has none."""
    found = {}
    for record in stage.records("job"):
        end = record.end
        word = None if end is None else end["outcome"]
        found[record.occurrence.id] = (
            word if end is None or not end["reason"] else (f"{word}: {end['reason']}")
        )
    return found


async def step(stage, seconds=1):
    await stage.clock.advance(timedelta(seconds=seconds), step=SECOND)


async def test_a_queued_job_is_given_to_the_agent_exactly_and_settled(stage):
    jobs = queue(stage)
    jobs.add("  look\nat {this} \x1b[31m ", id="a", session="named:ops")
    async with stage.running():
        await step(stage)

    (turn,) = stage.agent.turns
    assert turn.prompt == "  look\nat {this} \x1b[31m "
    assert (turn.session, turn.trigger, turn.slot) == ("named:ops", "job", None)
    assert turn.key.endswith("/job:a")
    assert outcomes(stage) == {"a": "completed"}
    assert [one.id for one in jobs.settled()] == ["a"]
    assert not jobs.pending()


async def test_the_highest_priority_goes_first_and_then_arrival_over_all_queues(stage):
    jobs = queue(stage)
    for job_id, priority, name in [("a", 0, "x"), ("b", 5, "y"), ("c", 0, "y"), ("d", 9, "x")]:
        jobs.add(job_id, id=job_id, priority=priority, queue=name)
    async with stage.running(limits=Limits(concurrency=1)):
        for _ in range(5):
            await step(stage)

    assert stage.told == ["d", "b", "a", "c"]


async def test_no_more_run_at_once_than_there_are_places(stage):
    jobs = queue(stage)
    jobs.add_many([f"j{number}" for number in range(5)])
    stage.agent.hold()
    async with stage.running(limits=Limits(concurrency=2)):
        await step(stage)
        assert len(stage.agent.turns) == 2
        await step(stage, 5)
        assert len(stage.agent.turns) == 2
        stage.agent.release()
        for _ in range(4):
            await step(stage)

    assert sorted(stage.told) == [f"j{number}" for number in range(5)]


async def test_a_job_whose_session_is_busy_is_passed_over_and_not_lost(stage):
    jobs = queue(stage)
    jobs.add("first", id="a", session="named:ops", priority=9)
    jobs.add("second", id="b", session="named:ops", priority=8)
    jobs.add("other", id="c")
    stage.agent.hold()
    async with stage.running():
        await step(stage)
        assert sorted(stage.told) == ["first", "other"]
        stage.agent.release()
        await step(stage)
        await step(stage)

    assert stage.told[-1] == "second"
    assert set(outcomes(stage).values()) == {"completed"}


async def test_a_job_for_the_session_of_a_routine_runs_as_that_routine_does(stage):
    queue(stage).add("one more thing", id="a", session="routine:digest")
    async with stage.running(routine(prompt="write", only_if=("false",), verify=("true",))):
        await step(stage)

    (turn,) = stage.agent.turns
    assert (turn.routine, turn.session) == ("digest", "routine:digest")
    assert outcomes(stage) == {"a": "completed"}


async def test_a_job_for_a_shared_session_is_answered_by_the_agent_of_the_routine_that_names_it(
    stage,
):
    # By the workspace's agent the conversation would begin anew, in another program.
    queue(stage).add("x", id="a", session="named:ops")
    sharer = routine(schedule=cron("0 0 1 1 *"), session="named:ops", agent="echo")
    async with stage.running(sharer):
        await step(stage)
        (record,) = stage.records("job")

    assert record.claim["agent"] == "echo"
    assert (record.claim["session"], record.claim["routine"]) == ("named:ops", None)
    assert stage.agent.turns == []


@pytest.mark.parametrize("name", [None, "digest"])
async def test_what_is_paused_holds_its_jobs_until_it_is_resumed(stage, name):
    jobs = queue(stage)
    jobs.add("x", id="a", session="routine:digest")
    switches = SwitchStore(stage.state)
    switches.write(Switch(name, "ana", stage.clock.now(), None, ""))
    async with stage.running(routine()):
        await step(stage, 5)
        assert stage.told == []
        assert jobs.read("a").state == "waiting"
        switches.end(name, by="ana", at=stage.clock.now())
        await step(stage)
        await step(stage)

    assert "x" in stage.told


async def test_a_job_for_later_runs_at_its_time(stage):
    queue(stage).add("x", id="a", after="10m")
    async with stage.running() as engine:
        await step(stage)
        assert stage.told == []
        assert engine.next_due() == stage.clock.now() - SECOND + 10 * MINUTE
        await step(stage, 599)
        await step(stage)

    assert stage.told == ["x"]


async def test_a_job_for_later_is_begun_at_its_instant_between_two_looks(stage):
    at = stage.clock.now() + 10 * MINUTE + timedelta(milliseconds=250)
    queue(stage).add("x", id="a", after=at)
    async with stage.running():
        await step(stage, 600)
        await stage.clock.advance(timedelta(milliseconds=249), step=SECOND)
        assert stage.told == []
        await stage.clock.advance(timedelta(milliseconds=2), step=SECOND)

    assert stage.told == ["x"]
    assert at <= queue(stage).read("a").claimed_at <= at + timedelta(milliseconds=1)


async def test_an_agent_that_nobody_knows_fails_the_job_and_no_other(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", agent="nobody", priority=1)
    jobs.add("y", id="b")
    async with stage.running():
        await step(stage)

    assert outcomes(stage) == {"a": "failed: not-found", "b": "completed"}


async def test_a_full_day_leaves_jobs_queued_until_the_next(stage):
    jobs = queue(stage)
    jobs.add("x", id="a")
    jobs.add("y", id="b")
    definitions = FixedDefinitions([], root=stage.root, concurrency=1)
    definitions.limits = (DayLimit(turns=1),)
    async with stage.running(routines=definitions):
        for _ in range(5):
            await step(stage)
        assert stage.told == ["x"]
        assert jobs.read("b").state == "waiting"
        await stage.clock.advance(timedelta(days=1), step=timedelta(hours=1))
        await step(stage)

    assert stage.told == ["x", "y"]


async def test_the_last_turns_of_a_day_go_to_the_most_urgent_jobs(stage):
    """However many could start at once: none is claimed that another one then leaves no turn."""
    jobs = queue(stage)
    for priority in (6, 9, 7, 8):
        jobs.add(f"p{priority}", id=f"p{priority}", priority=priority)
    definitions = FixedDefinitions([], root=stage.root, concurrency=10)
    definitions.limits = (DayLimit(turns=2),)
    stage.agent.hold()
    async with stage.running(routines=definitions):
        for _ in range(3):
            await step(stage)
        assert sorted(stage.told) == ["p8", "p9"]
        assert [jobs.read(one).state for one in ("p7", "p6")] == ["waiting", "waiting"]


async def test_the_turns_of_a_full_day_are_not_read_again_in_each_look(stage, monkeypatch):
    jobs = queue(stage)
    jobs.add("x", id="a")
    jobs.add("y", id="b")
    definitions = FixedDefinitions([], root=stage.root, concurrency=1)
    definitions.limits = (DayLimit(turns=1),)
    counted = []
    count = ClaimStore.changed_since
    monkeypatch.setattr(
        ClaimStore, "changed_since", lambda *args: counted.append(args) or count(*args)
    )
    async with stage.running(routines=definitions):
        for _ in range(5):
            await step(stage)
        assert stage.told == ["x"]
        before = len(counted)
        await step(stage, 40)
        assert len(counted) == before

        definitions.limits = (DayLimit(turns=2),)
        await step(stage)
        await step(stage)

    assert stage.told == ["x", "y"]


async def test_a_group_that_is_in_use_is_asked_for_once_in_a_look(stage, monkeypatch):
    jobs = queue(stage)
    for number in range(20):
        jobs.add("x", id=f"a{number}", session=f"routine:digest@{number}")
    asked = []
    take = PlaceStore.take

    def note(self, *, places, group):
        asked.append(group)
        return take(self, places=places, group=group)

    shop = routine(schedule=every(60), exclusive="shop")
    stage.agent.hold()
    async with stage.running(shop) as engine:
        await step(stage)
        assert len(engine.in_flight) == 1
        monkeypatch.setattr(PlaceStore, "take", note)
        await step(stage)
        monkeypatch.undo()

    assert asked.count("shop") == 1


async def test_the_room_of_a_job_that_comes_back_is_taken_once(stage, monkeypatch):
    """Let go of and taken again, another process could have it in between."""
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    await crash_in_mid_turn(stage)
    taken = []
    take = PlaceStore.take

    def note(self, *, places, group):
        taken.append(places)
        return take(self, places=places, group=group)

    monkeypatch.setattr(PlaceStore, "take", note)
    async with stage.running():
        await step(stage)
        await step(stage)

    assert outcomes(stage) == {"a": "completed"}
    assert len(taken) == 1


# Recovery (J3) ---------------------------------------------------------------------------------


async def crash_in_mid_turn(stage, **options):
    engine = stage.engine(**options)
    stage.agent.hold()
    await engine.start()
    await step(stage)
    assert stage.agent.turns
    await stage.crash(engine)
    stage.agent.release()


async def test_an_interrupted_job_is_run_again_as_often_as_was_allowed_and_the_count_is_kept(
    stage,
):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=2)
    for runs in (1, 2, 3):
        await crash_in_mid_turn(stage)
        assert len(stage.agent.turns) == runs
    async with stage.running():
        await step(stage)

    keys = [turn.key.rpartition("/")[2] for turn in stage.agent.turns]
    assert keys == ["job:a", "job:a#2", "job:a#3"]
    status = jobs.read("a")
    assert (status.outcome, status.reason, status.recovered) == ("interrupted", "owner-died", 2)
    assert len(jobs.settled()) == 1


async def test_a_job_that_never_started_uses_no_recovery(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    job = jobs.read("a").job
    claim = jobs._jobs.take(job, at=stage.clock.now(), extra={"owner": None})
    claim.let_go()
    async with stage.running():
        await step(stage)

    status = jobs.read("a")
    assert (status.outcome, status.recovered) == ("completed", 0)
    assert stage.told == ["x"]


async def test_a_job_that_came_back_under_the_eyes_of_another_process_is_taken_up_at_once(
    stage, monkeypatch
):
    """Not at the look of the next minute: the other one may leave it as it was."""
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    await crash_in_mid_turn(stage)
    hold, looks = ClaimStore.hold, []

    def looked_at(self, entry):
        # Put back, and found again; then another process has it for a moment.
        looks.append(entry.name)
        return None if len(looks) == 3 else hold(self, entry)

    monkeypatch.setattr(ClaimStore, "hold", looked_at)
    async with stage.running():
        for _ in range(5):
            await step(stage)

    assert len(looks) > 3
    assert stage.told == ["x", "x"]


async def test_what_comes_back_goes_by_its_own_priority_and_arrival(stage):
    jobs = queue(stage)
    jobs.add("low", id="low", recoveries=1)
    await crash_in_mid_turn(stage, limits=Limits(concurrency=1))
    jobs.add("high", id="high", priority=1)
    jobs.add("later", id="later")
    async with stage.running(limits=Limits(concurrency=1)):
        for _ in range(4):
            await step(stage)

    assert stage.told == ["low", "high", "low", "later"]


async def test_a_cancel_that_was_recorded_before_the_crash_makes_it_cancelled(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=3)
    engine = stage.engine()
    stage.agent.hold()
    await engine.start()
    await step(stage)
    await stage.crash(engine)
    assert jobs.cancel("a", "i1").word == "recorded"
    stage.agent.release()
    async with stage.running():
        await step(stage)

    assert len(stage.agent.turns) == 1
    assert outcomes(stage) == {"a": "cancelled: person"}
    assert jobs.cancel("a", "i1").word == "replayed"


async def test_what_a_dead_owner_left_is_ended_once_and_before_the_lock_of_the_end_is_taken(
    stage, monkeypatch
):
    """A stubborn program may take as long as it likes; whoever cancels the job waits 5 s."""
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    await crash_in_mid_turn(stage)
    said = []

    def stubborn(*_, **__):
        said.append(jobs.cancel("a", f"i{len(said)}").word)
        return []

    monkeypatch.setattr("routines.engine.recovering.end_tree", stubborn)
    async with stage.running():
        await step(stage)

    assert said == ["recorded"]
    assert outcomes(stage) == {"a": "cancelled: person"}


async def test_a_stop_of_the_engine_gives_a_job_back_while_it_has_recoveries(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    stage.agent.hold()
    async with stage.running() as engine:
        await step(stage)
        stopping = asyncio.ensure_future(engine.stop(grace=timedelta(0)))
        await step(stage)
        await stopping
        stage.agent.release()
    assert jobs.read("a").state == "retrying"
    async with stage.running():
        await step(stage)

    assert outcomes(stage) == {"a": "completed"}
    assert len(stage.agent.turns) == 2


async def test_an_unknown_outcome_is_never_run_again(stage):
    queue(stage).add("x", id="a", recoveries=3)
    answering(stage, x=OutcomeUnknown("the line was cut"))
    async with stage.running():
        await step(stage)
        await step(stage)

    assert outcomes(stage) == {"a": "interrupted: outcome-unknown"}
    assert len(stage.agent.turns) == 1


@pytest.mark.parametrize("session", [None, "routine:hourly", "named:team"])
async def test_an_agent_that_is_never_there_parks_a_job_and_other_work_goes_on(stage, session):
    """Also in the session of a routine, whose own slots come again and are given up instead."""
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=3, session=session)
    answering(stage, x=AgentUnavailable("refused"))
    jobs.add("y", id="b")
    hourly = routine("hourly", every(60))
    team = routine("team", every(60), session="named:team")
    async with stage.running(hourly, team):
        await stage.clock.advance(timedelta(minutes=30))

    assert jobs.read("a").state == "parked"
    assert outcomes(stage) == {"a": None, "b": "completed"}
    assert jobs.cancel("a", "i1").outcome == "cancelled"


async def test_a_parked_job_that_a_person_recovers_runs(stage):
    jobs = queue(stage)
    jobs.add("x", id="a")
    answering(stage, x=AgentUnavailable("refused"))
    async with stage.running():
        await stage.clock.advance(timedelta(minutes=30))
        assert jobs.read("a").state == "parked"
        answering(stage, x="done")
        path = stage.record("job:a").path
        assert unpark(stage.claims, path, at=stage.clock.now(), by="ana@studio", person=True)
        await stage.clock.advance(timedelta(minutes=2))

    assert outcomes(stage) == {"a": "completed"}


# Cancel and lanes (J4) -------------------------------------------------------------------------


async def test_a_running_job_that_is_cancelled_is_ended(stage):
    jobs = queue(stage)
    jobs.add("x", id="a")
    stage.agent.hold()
    async with stage.running():
        await step(stage)
        assert jobs.cancel("a", "i1", reason="not needed").word == "recorded"
        assert jobs.head()[0].cancel_asked
        for _ in range(3):
            await step(stage)

    status = jobs.read("a")
    assert (status.outcome, status.reason) == ("cancelled", "person")
    assert "not needed" in status.detail


async def test_a_turn_that_completes_after_its_cancel_was_recorded_is_cancelled_all_the_same(
    stage,
):
    jobs = queue(stage)
    jobs.add("x", id="a")

    def cancel_and_answer(turn):
        assert jobs.cancel("a", "i1").word == "recorded"
        return "done"

    stage.agent._answer = cancel_and_answer
    async with stage.running():
        await step(stage)

    status = jobs.read("a")
    assert (status.outcome, status.reply) == ("cancelled", "done")


class _CancelledMeanwhile:
    """An agent whose job somebody cancels while its turn is being ended."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.said = []

    async def run(self, turn):
        try:
            await asyncio.Event().wait()
        finally:
            self.said.append(self.jobs.cancel("a", "i1", reason="not needed").word)


async def test_a_cancel_that_is_recorded_while_its_turn_ends_for_its_lane_goes_before_that(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", lane="pr-1")
    agent = _CancelledMeanwhile(jobs)
    async with stage.running(agent=agent):
        await step(stage)
        jobs.fail_lane("pr-1", "it was closed", wait=timedelta(0))
        for _ in range(3):
            await step(stage)

    assert agent.said == ["recorded"]
    assert outcomes(stage) == {"a": "cancelled: person"}
    assert jobs.read("a").detail.startswith("not needed; its lane was failed: it was closed")


async def test_a_cancel_goes_before_the_lane_also_where_the_owner_of_the_turn_died(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", lane="pr-1", recoveries=1)
    await crash_in_mid_turn(stage)
    jobs.fail_lane("pr-1", "it was closed", wait=timedelta(0))
    claims = ClaimStore(jobs._state)
    (entry,) = claims.open_entries()
    claim = claims.hold(entry)
    # As its owner wrote it down before it died.
    asked = CancelStore(jobs._state).take_up("job:a")
    claim.append(Event.CANCELLING, at=stage.clock.now(), by=asked.by, person=True, lane=True)
    claim.let_go()
    assert jobs.cancel("a", "i1").word == "recorded"
    async with stage.running():
        await step(stage)

    assert outcomes(stage) == {"a": "cancelled: person"}
    assert jobs.cancel("a", "i1").word == "replayed"


async def test_a_cancel_that_is_recorded_while_no_agent_is_found_for_a_job_is_not_lost(
    stage, monkeypatch
):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    await crash_in_mid_turn(stage)
    said = []

    def nobody(drainer, job):
        said.append(jobs.cancel(job.id, "i1").word)
        raise UnknownAgent("nobody", [])

    monkeypatch.setattr("routines.engine.draining.Drainer.work_of", nobody)
    async with stage.running():
        await step(stage)

    assert said == ["recorded"]
    assert outcomes(stage) == {"a": "cancelled: person"}


async def test_a_lock_that_is_busy_when_a_job_ends_costs_it_neither_outcome_nor_recovery(
    stage, monkeypatch
):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    refused = []

    def busy(state, occurrence):
        if len(refused) < 3:
            refused.append(occurrence.ref)
            raise StoreBusy("the job is being changed by another process", hint="", path="")
        return settling(state, occurrence)

    monkeypatch.setattr("routines.engine.settling.settling", busy)
    async with stage.running():
        await step(stage)
        await stage.clock.advance(timedelta(minutes=2))

    assert len(refused) == 3
    assert stage.told == ["x"]
    status = jobs.read("a")
    assert (status.outcome, status.recovered) == ("completed", 0)


async def test_a_job_can_be_cancelled_while_the_disk_refuses_its_outcome(stage, monkeypatch):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    settle, sleep = Claim.settle, stage.clock.sleep
    tries, said = [], []

    def refuse_twice(self, *args, **more):
        tries.append(self.occurrence.ref)
        if len(tries) <= 2:
            raise NotDurable("no space left on device", hint="", path="")
        return settle(self, *args, **more)

    def cancel_between_tries(seconds):
        if not said:
            # The second try takes it up, and comes to nothing.
            said.append(jobs.cancel("a", "i1").word)
        sleep(seconds)

    monkeypatch.setattr(Claim, "settle", refuse_twice)
    monkeypatch.setattr(stage.clock, "sleep", cancel_between_tries)
    async with stage.running():
        await step(stage)
        await step(stage)

    assert (said, len(tries)) == (["recorded"], 3)
    assert stage.told == ["x"]
    assert outcomes(stage) == {"a": "cancelled: person"}


async def test_a_lane_that_is_failed_ends_what_runs_of_it(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", lane="pr-1")
    jobs.add("y", id="b", lane="pr-1", after="1h")
    stage.agent.hold()
    async with stage.running():
        await step(stage)
        first = jobs.fail_lane("pr-1", "it was closed", wait=timedelta(0))
        assert (first.failed, first.asked, first.more) == (("b",), ("a",), True)
        for _ in range(3):
            await step(stage)

    assert outcomes(stage) == {"a": "failed: lane", "b": "failed: lane"}
    # What it was failed for, once, and how its turn ended.
    assert jobs.read("a").detail == "it was closed; ended on request"
    assert not jobs.fail_lane("pr-1", "it was closed", wait=timedelta(0)).more


# Beside programs that work jobs themselves -------------------------------------------------------


async def test_what_a_program_works_is_left_to_it_until_its_lease_lapses(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    claimed = jobs.claim()
    async with stage.running():
        await step(stage, 90)
        jobs.renew("a", claimed.token)
        await step(stage, 90)
        assert stage.told == []
        assert jobs.read("a").state == "running"
        await step(stage, 60)
        await step(stage, 1)

    assert stage.told == ["x"]
    assert jobs.settle("a", claimed.token, "completed").word == "conflict"
    status = jobs.read("a")
    assert (status.outcome, status.recovered) == ("completed", 1)


async def test_a_program_takes_over_what_an_engine_has_lost(stage):
    jobs = queue(stage)
    jobs.add("x", id="a", recoveries=1)
    await crash_in_mid_turn(stage)
    # A scheduler looks after the claims of the dead; while all is paused it starts nothing.
    switches = SwitchStore(stage.state)
    switches.write(Switch(None, "ana", stage.clock.now(), None, ""))
    async with stage.running():
        await step(stage)
    switches.end(None, by="ana", at=stage.clock.now())

    claimed = jobs.claim()
    assert claimed.run == 2
    assert jobs.settle("a", claimed.token, "completed").outcome == "completed"
    assert len(stage.agent.turns) == 1


async def test_two_engines_share_a_queue_and_each_job_runs_once(stage):
    jobs = queue(stage)
    jobs.add_many([f"j{number}" for number in range(20)])
    async with stage.running(), stage.running():
        for _ in range(12):
            await step(stage)

    assert sorted(stage.told) == sorted(f"j{number}" for number in range(20))
    assert [one.number for one in jobs.settled()] == list(range(1, 21))


async def test_what_the_host_adds_is_seen_at_once(stage):
    engine = Engine(stage.path, agent=Mortal(stage.agent), clock=stage.clock)
    await engine.start()
    await quiet()
    with contextlib.closing(contextlib.ExitStack()):
        await asyncio.to_thread(engine.jobs().add, "x")
        await quiet()
        assert stage.told == ["x"]
    await engine.stop()


async def test_a_look_at_an_empty_queue_writes_nothing_of_it(stage):
    async with stage.running():
        await step(stage, 5)

    assert not list(ClaimStore(stage.state).open_entries())
    assert not (stage.claims.owners())


async def test_one_look_drains_the_queue_for_a_crontab(stage):
    jobs = queue(stage)
    jobs.add_many([f"j{number}" for number in range(10)])
    engine = stage.engine(is_scheduler=False)
    async with engine.opened():
        records = await engine.tick()

    assert len(records) == 10
    assert {record.outcome for record in records} == {Outcome.COMPLETED}
    assert not jobs.pending()


async def test_the_agents_own_busy_session_is_tried_again_later(stage):
    jobs = queue(stage)
    jobs.add("x", id="a")
    answering(stage, x=SessionBusy("a person types"))
    async with stage.running():
        await step(stage)
        assert jobs.read("a").state == "retrying"
        answering(stage, x="done")
        await step(stage, 61)
        await step(stage)

    assert outcomes(stage) == {"a": "completed"}
    assert stage.record("job:a").reason is not Reason.BUSY
