"""Wake-ups that fall due (PROMISES W2 to W6, BR-14, BR-15, BR-23)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from routines.agents.base import SessionBusy
from routines.config.workspace import find_root
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.domain.zones import zone
from routines.engine.definitions import FileDefinitions
from routines.engine.lifecycle import Limits
from routines.testing import RecordingAgent
from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, eventually, once, put, routine
from tests.engine.test_recovering import owner

SESSION = "routine:digest"
QUIET = routine(schedule=cron("0 0 1 1 *"))


def unwake(stage, wakeup_id):
    now = stage.clock.now()
    return stage.wakeups.unwake(SESSION, wakeup_id, claims=stage.claims, by="ana@studio", at=now)


def wake(stage, prompt="look at the build", session=SESSION, **when):
    request = WakeRequest(prompt=prompt, session=session, by="ana@studio", **when)
    return stage.wakeups.wake(request, now=stage.clock.now(), bounds=DEFAULT_BOUNDS, zone_key="UTC")


def take_and_die(stage, wakeup):
    """Claim a firing as a process that dies before its start would."""
    claim = stage.firings.take(
        SESSION,
        wakeup.id,
        wakeup.next_at,
        claims=stage.claims,
        at=stage.clock.now(),
        bounds=DEFAULT_BOUNDS,
        place=zone("UTC"),
        extra={"owner": owner().to_json()},
    )
    claim.let_go()
    return claim


async def test_wake_up_fires_at_its_instant_in_its_session_with_its_prompt_wrapped(stage):
    async with stage.running(QUIET):
        wake(stage, in_="10m")
        await stage.clock.advance_to(at("08:09"))
        assert stage.agent.turns == []
        await stage.clock.advance_to(at("08:10"))

    (turn,) = stage.agent.turns
    assert (turn.session, turn.trigger, turn.slot) == (SESSION, "wake-up", at("08:10"))
    assert turn.prompt.endswith("look at the build")
    assert turn.prompt != "look at the build"
    (record,) = stage.records()
    assert (record.outcome, record.claim["by"]) == ("completed", "ana@studio")
    assert stage.wakeups.pending(SESSION) == []


async def test_prompt_of_a_routine_is_never_wrapped(stage):
    async with stage.running(routine(schedule=once("08:05"), prompt="do it\n")):
        await stage.clock.advance_to(at("08:05"))

    assert stage.told == ["do it\n"]


async def test_wake_up_of_a_session_without_a_routine_fires_with_the_agent_of_the_workspace(stage):
    async with stage.running():
        wake(stage, session="wake:w-aaaaaa", in_="5m")
        await stage.clock.advance_to(at("08:05"))

    (turn,) = stage.agent.turns
    assert (turn.session, turn.routine) == ("wake:w-aaaaaa", None)


async def test_wake_up_of_a_shared_session_fires_with_the_agent_of_the_routine_that_names_it(stage):
    # By the workspace's agent the conversation would begin anew, in another program.
    sharer = routine(
        schedule=cron("0 0 1 1 *"), session="named:ops", agent="echo", env=(("KEY", "of ops"),)
    )
    async with stage.running(sharer):
        wake(stage, session="named:ops", in_="5m")
        await stage.clock.advance_to(at("08:05"))
        (record,) = stage.records()

    assert record.claim["agent"] == "echo"
    assert (record.claim["session"], record.claim["routine"]) == ("named:ops", None)
    assert stage.agent.turns == []


def files_of(stage, settings="tz: UTC\n"):
    put(f"{stage.root}/routines.yaml", settings.encode())
    return FileDefinitions(find_root(explicit=stage.root, environ={}, cwd="/"), live=True)


async def test_wake_up_that_finds_no_agent_fails_not_found_once_and_is_told(stage, caplog):
    async with stage.running(routines=files_of(stage)):
        wake(stage, session="routine:removed", in_="5m")
        await stage.clock.advance_to(at("08:06"))

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("failed", "not-found")
    assert record.end["detail"].startswith("there is no agent named")
    assert stage.wakeups.pending("routine:removed") == []
    assert [event.ref for event in stage.events if event.name == "settled"] == [record.ref]
    assert "wake-failed" not in caplog.text


async def test_claimed_wake_up_whose_agent_is_gone_by_the_restart_fails_not_found(stage):
    wakeup = wake(stage, in_="5m")
    await stage.clock.advance_to(at("08:05"))
    take_and_die(stage, wakeup)
    async with stage.running(routines=files_of(stage)):
        await stage.clock.advance_to(at("08:06"))

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("failed", "not-found")


@pytest.mark.parametrize(
    ("agent", "expected"), [("two", "two"), ("gone", "echo")], ids=["there", "not there"]
)
async def test_wake_up_of_a_removed_routine_goes_to_the_agent_of_its_conversation(
    stage, agent, expected
):
    settings = "tz: UTC\nagent: echo\nagents:\n  two:\n    command: [cat]\n"
    lease = stage.sessions.take("routine:removed", clock=stage.clock)
    lease.write(lease.ledger.with_(agent=agent, epoch=3, epoch_reason="it was asked for"))
    lease.let_go()
    async with stage.running(routines=files_of(stage, settings)):
        wake(stage, session="routine:removed", in_="5m")
        await stage.clock.advance_to(at("08:05"))
        await eventually(lambda: stage.records() and stage.records()[0].outcome)

    assert stage.records()[0].claim["agent"] == expected
    assert stage.sessions.peek("routine:removed").epoch == (3 if expected == agent else 4)


def test_turn_without_a_routine_has_the_environment_and_the_limits_of_the_workspace(tmp_path):
    (tmp_path / "routines.yaml").write_text(
        "tz: UTC\nagent: echo\nenv_file: keys.env\nlimits: {turns_per_day: 5}\n"
    )
    definitions = FileDefinitions(
        find_root(explicit=str(tmp_path), environ={}, cwd="/"), live=False
    )

    work = definitions.work_without_routine()

    assert (work.agent_name, work.env_file) == ("echo", str(tmp_path / "keys.env"))
    assert [limit.turns for limit in work.limits] == [5]


async def test_recurring_wake_up_fires_each_time_until_it_is_cancelled(stage):
    async with stage.running(QUIET):
        wakeup = wake(stage, every="10m")
        await stage.clock.advance_to(at("08:35"))
        assert stage.slots == ["08:10", "08:20", "08:30"]
        unwake(stage, wakeup.id)
        await stage.clock.advance_to(at("09:00"))

    assert len(stage.agent.turns) == 3


async def test_cancelled_wake_up_never_fires(stage):
    async with stage.running(QUIET):
        wakeup = wake(stage, in_="10m")
        assert unwake(stage, wakeup.id).wakeup == wakeup
        await stage.clock.advance_to(at("08:30"))

    assert stage.records() == []


# Busy --------------------------------------------------------------------------------------------


async def test_one_shot_that_meets_its_session_busy_stays_pending_and_fires_when_it_is_free(stage):
    async with stage.running(QUIET) as engine:
        wakeup = wake(stage, in_="10m")
        async with engine.hold(SESSION):
            await stage.clock.advance_to(at("08:30"))
            assert stage.records() == []
            assert [one.id for one in stage.wakeups.pending(SESSION)] == [wakeup.id]
        await stage.clock.advance(31 * SECOND, step=SECOND)

    (record,) = stage.records()
    assert (record.outcome, record.due_at) == ("completed", at("08:10"))
    assert stage.agent.turns[0].late > 20 * MINUTE


async def test_one_shot_that_found_its_session_busy_for_an_hour_is_skipped_busy(stage, caplog):
    async with stage.running(QUIET) as engine:
        wake(stage, in_="10m")
        async with engine.hold(SESSION):
            await stage.clock.advance_to(at("09:09"))
            assert stage.records() == []
            await stage.clock.advance_to(at("09:12"))
        await stage.clock.advance(HOUR)

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("skipped", "busy")
    assert stage.agent.turns == []
    assert "wake-given-up" in [one.message for one in caplog.records if one.levelname == "ERROR"]


async def test_recurring_firing_that_meets_its_session_busy_is_skipped_and_the_next_comes(stage):
    async with stage.running(QUIET) as engine:
        wake(stage, every="10m")
        async with engine.hold(SESSION):
            await stage.clock.advance_to(at("08:12"))
        await stage.clock.advance_to(at("08:20"))

    assert [(f"{one.occurrence.instant:%H:%M}", one.outcome) for one in stage.records()] == [
        ("08:10", "skipped"),
        ("08:20", "completed"),
    ]


async def test_agents_own_busy_session_is_skipped_and_never_a_failure(stage):
    def busy(turn):
        raise SessionBusy("in use")

    stage.agent._answer = busy
    async with stage.running(QUIET):
        wake(stage, every="10m")
        await stage.clock.advance_to(at("08:10"))

    assert [(one.outcome, one.reason) for one in stage.records()] == [("skipped", "busy")]


async def test_wake_up_waits_for_a_free_place(stage):
    other = routine("other", once("08:05"), timeout=2 * HOUR)
    async with stage.running(QUIET, other, limits=Limits(concurrency=1)):
        stage.agent.hold("other")
        wake(stage, in_="10m")
        await stage.clock.advance_to(at("08:15"))
        assert len(stage.agent.turns) == 1
        stage.agent.release()
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert [turn.trigger for turn in stage.agent.turns] == ["schedule", "wake-up"]


async def test_slot_that_meets_a_woken_turn_waits_for_it(stage):
    async with stage.running(routine(schedule=once("08:20"))):
        stage.agent.hold()
        wake(stage, in_="10m")
        await stage.clock.advance_to(at("08:25"))
        assert [turn.trigger for turn in stage.agent.turns] == ["wake-up"]
        stage.agent.release()
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert [turn.trigger for turn in stage.agent.turns] == ["wake-up", "schedule"]


# Absences and crashes ----------------------------------------------------------------------------


async def test_after_an_absence_a_one_shot_fires_once_late(stage):
    async with stage.running(QUIET):
        wake(stage, in_="10m")
    stage.clock.move(timedelta(days=3))
    for _ in range(2):
        async with stage.running(QUIET):
            await stage.clock.advance(MINUTE)

    assert [turn.slot for turn in stage.agent.turns] == [at("08:10")]


async def test_after_an_absence_a_recurring_one_fires_once_and_counts_what_it_passed_over(stage):
    async with stage.running(QUIET):
        wake(stage, every="10m")
    stage.clock.move(65 * MINUTE)
    async with stage.running(QUIET):
        await stage.clock.advance_to(at("09:10"))

    assert stage.slots == ["09:00", "09:10"]
    assert stage.records()[0].claim["missed"] == {
        "from": "2026-06-01T08:10:00Z",
        "to": "2026-06-01T08:50:00Z",
        "count": 5,
    }
    assert stage.agent.turns[0].missed == 5


async def test_one_shot_cut_short_by_a_kill_is_interrupted_and_not_fired_again(stage):
    engine = stage.engine(QUIET)
    await engine.start()
    wake(stage, in_="10m")
    stage.agent.hold()
    await stage.clock.advance_to(at("08:10"))
    await stage.crash(engine)
    stage.agent.release()
    async with stage.running(QUIET):
        await stage.clock.advance(HOUR)

    assert [(one.outcome, one.reason) for one in stage.records()] == [("interrupted", "owner-died")]
    assert len(stage.agent.turns) == 1


async def test_firing_claimed_by_a_process_that_died_before_its_start_runs_under_its_claim(stage):
    wakeup = wake(stage, in_="10m")
    stage.clock.move(10 * MINUTE)
    take_and_die(stage, wakeup)
    async with stage.running(QUIET):
        await stage.clock.advance(MINUTE)

    (record,) = stage.records()
    assert (record.outcome, record.attempts) == ("completed", 2)
    assert len(stage.agent.turns) == 1
    assert stage.agent.turns[0].prompt.endswith("look at the build")


async def test_cancel_of_a_claimed_firing_that_has_not_started_settles_it(stage):
    wakeup = wake(stage, in_="10m")
    stage.clock.move(10 * MINUTE)
    claim = take_and_die(stage, wakeup)
    stage.cancel(claim.record.ref, by="the agent", person=False)
    async with stage.running(QUIET):
        await stage.clock.advance(MINUTE)

    assert [(one.outcome, one.reason) for one in stage.records()] == [("cancelled", "turn")]


# In its own turn -----------------------------------------------------------------------------------


class Planner(RecordingAgent):
    """Calls the tools of its own session in its turn."""

    def __init__(self, act):
        super().__init__()
        self.act = act
        self.answers = []

    async def run(self, turn):
        if not self.answers:
            self.answers.append(self.act(turn))
        return await super().run(turn)


async def test_wake_up_set_within_a_turn_of_its_own_session_fires_after_it(stage):
    stage.agent = Planner(lambda turn: wake(stage, in_="2m"))
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance_to(at("08:10"))

    assert stage.slots == ["08:05", "08:07"]


async def test_wake_up_set_anew_within_its_own_firing_is_not_removed_by_its_end(stage):
    stage.agent = Planner(lambda turn: wake(stage, prompt="once more", at="08:30"))
    async with stage.running(QUIET):
        wake(stage, in_="10m")
        await stage.clock.advance_to(at("08:31"))

    assert stage.slots == ["08:10", "08:30"]


async def test_recurring_one_that_cancels_itself_keeps_the_result_of_its_turn(stage):
    def cancel(turn):
        wakeup_id = turn.key.partition("wake:")[2].partition("@")[0]
        return unwake(stage, wakeup_id)

    stage.agent = Planner(cancel)
    async with stage.running(QUIET):
        wake(stage, every="10m")
        await stage.clock.advance_to(at("09:00"))

    assert [one.outcome for one in stage.records()] == ["completed"]


# Bounds ------------------------------------------------------------------------------------------


async def test_firings_over_the_days_limit_are_skipped_for_a_recurring_one(stage):
    bounds = Limits(wakeups=replace(DEFAULT_BOUNDS, firings=2))
    async with stage.running(QUIET, limits=bounds):
        wake(stage, every="10m")
        await stage.clock.advance_to(at("08:30"))

    assert [(one.outcome, one.reason) for one in stage.records()] == [
        ("completed", None),
        ("completed", None),
        ("skipped", "limit"),
    ]


async def test_one_shot_over_the_days_limit_waits_for_the_next_day(stage):
    bounds = Limits(wakeups=replace(DEFAULT_BOUNDS, firings=1))
    async with stage.running(QUIET, limits=bounds):
        wake(stage, "first", in_="10m")
        wake(stage, "second", in_="20m")
        await stage.clock.advance_to(at("2026-06-02 00:00"), step=10 * MINUTE)

    assert [turn.slot for turn in stage.agent.turns] == [at("08:10"), at("2026-06-02 00:00")]


async def test_wake_ups_keep_firing_beside_one_that_cannot(stage, monkeypatch):
    from routines.engine.waking import Waker

    fire = Waker._fire

    def failing(self, wakeup, due, now, woken, **more):
        if wakeup.prompt == "bad":
            raise OSError(5, "the disk is bad")
        fire(self, wakeup, due, now, woken, **more)

    monkeypatch.setattr(Waker, "_fire", failing)
    async with stage.running(QUIET):
        wake(stage, "bad", session="wake:w-aaaaaa", in_="5m")
        wake(stage, "good", session="wake:w-bbbbbb", in_="5m")
        await stage.clock.advance_to(at("08:06"))

    assert [turn.session for turn in stage.agent.turns] == ["wake:w-bbbbbb"]
