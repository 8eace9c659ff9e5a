"""A host's hook decides who may do what, and what may fire (PROMISES W8)."""

import asyncio
import threading
from datetime import timedelta

import pytest

from routines import Decision
from routines.engine.authorizing import _MOST_HANGING
from routines.engine.wake_snapshots import snapshot
from routines.errors import (
    AuthorizationUnavailable,
    NotAuthorized,
    UnknownWakeup,
    WakeupConflict,
    WakeupRefused,
)
from routines.operations.context import Context
from routines.operations.waking import ToolDesk
from tests.engine.stage import HOUR, MINUTE, SECOND, at, cron, eventually, routine

SESSION = "chat-7"
QUIET = routine(schedule=cron("0 0 1 1 *"))
ACTS = ("update", "pause", "resume", "recover", "cancel", "get")


class Hook:
    """Notes what it is asked, and answers what it is told to."""

    def __init__(self, answer=lambda action, caller, schedule: True):
        self.answer = answer
        self.asked = []

    def __call__(self, action, caller, schedule):
        self.asked.append((action, caller, None if schedule is None else schedule["revision"]))
        return self.answer(action, caller, schedule)

    @property
    def fires(self):
        return [one for one in self.asked if one[0] == "fire"]


def make(engine, key="deploy", prompt="look at the deploy", **more):
    more = more or {"in_": "10m"}
    return engine.wakeups("the host").create(SESSION, prompt=prompt, key=key, **more)


async def test_hook_is_asked_before_anything_is_read_and_again_with_the_concrete_one(stage):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        wakeups = engine.wakeups("ana")
        await wakeups.get(made.id)
        await wakeups.update(made.id, revision=1, prompt="another")
        await wakeups.pause(made.id, revision=2)
        await wakeups.list()

    assert hook.asked == [
        ("create", "the host", None),
        ("create", "the host", 1),
        ("get", "ana", None),
        ("get", "ana", 1),
        ("update", "ana", None),
        ("update", "ana", 2),
        ("pause", "ana", None),
        ("pause", "ana", 3),
        ("list", "ana", None),
        ("list", "ana", 3),
    ]


async def test_refusal_at_first_reads_nothing_and_tells_nothing(stage, monkeypatch):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.answer = lambda *_: False
        monkeypatch.setattr(
            "routines.store.wake_managing.ManagedStore.known",
            lambda *_: pytest.fail("something was read"),
        )
        for wakeup_id in (made.id, "w-aaaaaa"):
            for act in ACTS:
                more = {} if act == "get" else {"revision": 99}
                with pytest.raises(NotAuthorized, match=f"{act} is not allowed"):
                    await getattr(engine.wakeups("eve"), act)(wakeup_id, **more)
        with pytest.raises(NotAuthorized):
            await engine.wakeups("eve").list()
        with pytest.raises(NotAuthorized):
            await make(engine, key="another")


async def test_refusal_of_the_concrete_one_changes_nothing(stage):
    def only_create(action, caller, schedule):
        return schedule is None or action == "create"

    async with stage.running(QUIET, authorize=Hook(only_create)) as engine:
        made = (await make(engine)).wakeup
        for act in ACTS:
            more = {} if act == "get" else {"revision": 1}
            with pytest.raises(NotAuthorized):
                await getattr(engine.wakeups(), act)(made.id, **more)
        assert (await engine.wakeups().list()).wakeups == ()

    (pending,) = stage.wakeups.pending(SESSION)
    assert (pending.revision, pending.paused_at) == (1, None)


async def test_who_may_not_see_it_learns_nothing_from_conflicts_and_bounds(stage):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.answer = lambda action, caller, schedule: schedule is None
        eve = engine.wakeups("eve")
        with pytest.raises(NotAuthorized):
            await eve.update(made.id, revision=99, prompt="x")
        with pytest.raises(NotAuthorized):
            await eve.update(made.id, revision=1, in_="1s")
        with pytest.raises(NotAuthorized):
            await eve.create(SESSION, prompt="other words", key="deploy", in_="10m")


async def test_list_leaves_out_what_the_caller_may_not_see(stage):
    def own(action, caller, schedule):
        return schedule is None or schedule["prompt"] == caller

    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        await make(engine, key="a", prompt="ana")
        await make(engine, key="b", prompt="ben")
        hook.answer = own
        found = await engine.wakeups("ana").list(limit=1)

    assert [one.prompt for one in found.wakeups] == ["ana"]


async def test_reason_of_a_refusal_is_told(stage):
    async with stage.running(QUIET, authorize=lambda *_: Decision(False, "no budget")) as engine:
        with pytest.raises(NotAuthorized, match="no budget"):
            await make(engine)

    assert stage.wakeups.pending(SESSION) == []


# Firings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_firing_is_asked_and_its_decision_is_kept_with_it(stage, is_async):
    hook = Hook()

    async def later(action, caller, schedule):
        await asyncio.sleep(0)
        return hook(action, caller, schedule)

    async with stage.running(QUIET, authorize=later if is_async else hook) as engine:
        made = (await make(engine, every="10m")).wakeup
        await engine.wakeups("ana").update(made.id, revision=1, prompt="twice")
        await stage.clock.advance_to(at("08:25"))

    assert hook.fires == [("fire", "ana", 2), ("fire", "ana", 2)]
    assert [one.outcome for one in stage.records()] == ["completed", "completed"]
    assert [one.claim["authorized_at"] for one in stage.records()] == [
        "2026-06-01T08:10:00Z",
        "2026-06-01T08:20:00Z",
    ]


async def test_refused_firing_is_recorded_and_final_and_the_next_one_is_asked_anew(stage):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine, every="10m")).wakeup
        hook.answer = lambda *_: Decision(False, "the account is closed")
        await stage.clock.advance_to(at("08:15"))
        hook.answer = lambda *_: True
        found = await engine.wakeups().get(made.id)
        await stage.clock.advance_to(at("08:25"))
        later = await engine.wakeups().get(made.id)

    first, second = stage.records()
    assert (first.outcome, first.reason) == ("skipped", "refused")
    assert first.end["detail"] == "the account is closed"
    assert second.outcome == "completed"
    assert stage.slots == ["08:20"]
    assert (found.refusal.instant, found.refusal.detail) == (at("08:10"), "the account is closed")
    assert (later.last.outcome, later.refusal.instant) == ("completed", at("08:10"))


async def test_refused_one_shot_is_over(stage):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.answer = lambda *_: False
        await stage.clock.advance(HOUR)
        hook.answer = lambda *_: True
        await stage.clock.advance(HOUR)
        found = await engine.wakeups().get(made.id)

    assert (found.state, found.refusal.reason) == ("ended", "refused")
    assert len(hook.fires) == 1
    assert stage.agent.turns == []


def raises(*_):
    raise ConnectionError("the policy service is down")


def cancels(*_):
    raise asyncio.CancelledError


async def cancels_itself(*_):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def hangs(*_):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "fault", [raises, cancels, lambda *_: None, lambda *_: "yes", lambda *_: 1]
)
async def test_hook_that_fails_is_an_outage_and_is_asked_again(stage, fault, caplog):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.answer = fault
        await stage.clock.advance_to(at("08:15"))
        waiting = snapshot(stage.managed.known(SESSION, made.id), now=stage.clock.now())
        assert (waiting.state, waiting.late) == ("pending", 5 * MINUTE)
        assert stage.records() == []
        assert 3 <= len(hook.fires) <= 20
        hook.answer = lambda *_: True
        await stage.clock.advance(MINUTE, step=SECOND)

    assert [one.outcome for one in stage.records()] == ["completed"]
    assert stage.slots == ["08:10"]
    assert "authorize-outage" in [one.message for one in caplog.records]


async def test_hook_that_hangs_is_an_outage_and_delays_no_other_work(stage):
    answers = {"hang": False}

    async def hook(action, caller, schedule):
        if answers["hang"] and schedule and schedule["prompt"] == "hangs":
            await hangs()
        return True

    async with stage.running(routine(schedule=cron("12 8 * * *")), authorize=hook) as engine:
        await make(engine, key="a", prompt="hangs")
        await engine.wakeups().create("chat-8", prompt="goes", in_="11m")
        answers["hang"] = True
        await stage.clock.advance_to(at("08:15"), step=SECOND)
        assert [turn.session for turn in stage.agent.turns] == ["chat-8", "routine:digest"]
        answers["hang"] = False
        await stage.clock.advance(MINUTE, step=SECOND)

    assert [turn.session for turn in stage.agent.turns][2:] == [SESSION]


async def test_hook_that_hangs_in_a_thread_is_an_outage_too(stage):
    free = threading.Event()
    hanging = threading.Event()

    def hook(action, caller, schedule):
        if hanging.is_set():
            free.wait(60)
        return True

    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hanging.set()
        asking = asyncio.ensure_future(engine.wakeups().get(made.id))
        await asyncio.sleep(0.05)
        await stage.clock.advance(11 * SECOND, step=SECOND)
        with pytest.raises(AuthorizationUnavailable, match="no answer within 10 s"):
            await asking
        hanging.clear()
        free.set()
        await stage.clock.advance_to(at("08:11"), step=SECOND)

    assert stage.slots == ["08:10"]


class Slow:
    """A hook in threads that answers when it is let, and knows how many it was asked at once."""

    def __init__(self):
        self.free = threading.Event()
        self.free.set()
        self.lock = threading.Lock()
        self.now = self.most = 0

    def __call__(self, action, caller, schedule):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.free.wait(60)
        with self.lock:
            self.now -= 1
        return True


async def many(wakeups, made, count):
    asked = [asyncio.ensure_future(wakeups.get(made.id)) for _ in range(count)]
    await asyncio.sleep(0)
    return asked


async def test_calls_that_are_under_way_are_waited_for_and_hang_only_past_their_time(stage):
    hook = Slow()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.free.clear()
        asked = await many(engine.wakeups(), made, 20)
        await eventually(lambda: hook.now == _MOST_HANGING)
        await stage.clock.advance(9 * SECOND, step=SECOND)
        assert [one for one in asked if one.done()] == []
        hook.free.set()
        found = await asyncio.gather(*asked)

    assert {one.id for one in found} == {made.id}
    assert hook.most == _MOST_HANGING


async def test_no_more_threads_are_left_behind_than_the_bound_and_those_come_back(stage):
    hook = Slow()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.free.clear()
        # Those who asked first have gone away, and their threads hang all the same.
        gone = await many(engine.wakeups(), made, _MOST_HANGING // 2)
        for one in gone:
            one.cancel()
        asked = await many(engine.wakeups(), made, 20)
        await eventually(lambda: hook.now == _MOST_HANGING)
        await stage.clock.advance(11 * SECOND, step=SECOND)
        faults = await asyncio.gather(*asked, return_exceptions=True)
        with pytest.raises(AuthorizationUnavailable, match=f"{_MOST_HANGING} earlier calls hang"):
            await engine.wakeups().get(made.id)
        assert hook.most == _MOST_HANGING
        hook.free.set()
        names = {"routines-in_its_thread"}
        await eventually(lambda: names.isdisjoint(t.name for t in threading.enumerate()))
        assert (await engine.wakeups().get(made.id)).id == made.id

    assert {type(fault) for fault in faults} == {AuthorizationUnavailable}


@pytest.mark.parametrize("fault", [cancels, cancels_itself])
async def test_hook_that_cancels_itself_is_an_outage_and_no_cancel_of_the_caller(stage, fault):
    answers = {"fault": False}

    async def hook(*asked):
        return await as_coroutine(fault, asked) if answers["fault"] else True

    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        answers["fault"] = True
        with pytest.raises(AuthorizationUnavailable, match="cancelled itself"):
            await engine.wakeups().get(made.id)
        await stage.clock.advance_to(at("08:11"), step=SECOND)
        assert stage.records() == []
        answers["fault"] = False
        await stage.clock.advance(MINUTE, step=SECOND)

    assert stage.slots == ["08:10"]


async def as_coroutine(fault, asked):
    found = fault(*asked)
    return await found if asyncio.iscoroutine(found) else found


async def test_cancel_of_the_caller_stays_one(stage):
    async with stage.running(QUIET, authorize=Hook()) as engine:
        made = (await make(engine)).wakeup

    async with stage.running(QUIET, authorize=hangs) as engine:
        asking = asyncio.ensure_future(engine.wakeups().get(made.id))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize("fault", [raises, cancels, lambda *_: None])
async def test_management_under_an_outage_changes_nothing_and_can_be_repeated(stage, fault):
    hook = Hook()
    async with stage.running(QUIET, authorize=hook) as engine:
        made = (await make(engine)).wakeup
        hook.answer = fault
        with pytest.raises(AuthorizationUnavailable, match="pause"):
            await engine.wakeups().pause(made.id, revision=1)
        with pytest.raises(AuthorizationUnavailable):
            await make(engine, key="another")
        hook.answer = lambda *_: True
        assert (await engine.wakeups().pause(made.id, revision=1)).state == "paused"
        assert (await make(engine, key="another")).new


async def test_firing_that_was_changed_while_it_was_asked_about_is_asked_anew(stage):
    """What was allowed is one revision: another one is not fired on its word."""
    hook = Hook()
    answer = asyncio.Event()

    async def slow(action, caller, schedule):
        hook(action, caller, schedule)
        if action == "fire" and schedule["revision"] == 1:
            await answer.wait()
        return not (action == "fire" and schedule["prompt"] == "evil")

    async with stage.running(QUIET, authorize=slow) as engine:
        made = (await make(engine, every="10m")).wakeup
        await stage.clock.advance_to(at("08:10"))
        await engine.wakeups("eve").update(made.id, revision=1, prompt="evil")
        answer.set()
        await stage.clock.advance(5 * SECOND, step=SECOND)

    assert hook.fires == [("fire", "the host", 1), ("fire", "eve", 2)]
    assert stage.agent.turns == []
    assert [(one.outcome, one.reason) for one in stage.records()] == [("skipped", "refused")]


async def test_cancel_while_it_is_asked_about_keeps_it_from_firing(stage):
    answer = asyncio.Event()

    async def slow(action, caller, schedule):
        if action == "fire":
            await answer.wait()
        return True

    async with stage.running(QUIET, authorize=slow) as engine:
        made = (await make(engine)).wakeup
        await stage.clock.advance_to(at("08:10"))
        await engine.wakeups().cancel(made.id, revision=1)
        answer.set()
        await stage.clock.advance(MINUTE)

    assert stage.records() == []


async def test_what_a_hook_does_to_what_it_is_told_reaches_nothing(stage):
    def meddles(action, caller, schedule):
        if schedule is not None:
            schedule["prompt"] = "something else"
            schedule["session"] = "another"
        return True

    async with stage.running(QUIET, authorize=meddles) as engine:
        await make(engine)
        await stage.clock.advance_to(at("08:10"))

    (turn,) = stage.agent.turns
    assert (turn.session, turn.prompt.splitlines()[-1]) == (SESSION, "look at the deploy")


async def test_wake_up_that_an_agent_set_is_asked_about_when_it_fires(stage):
    hook = Hook(lambda action, *_: action != "fire")
    async with stage.running(QUIET, authorize=hook) as engine:
        engine.tools(SESSION).wake("look", in_="10m")
        await stage.clock.advance_to(at("08:11"))

    assert [(one.outcome, one.reason) for one in stage.records()] == [("skipped", "refused")]


@pytest.mark.parametrize("turn", ["digest@2026-06-01T08:00:00Z", None])
async def test_wake_up_that_was_set_from_another_process_is_asked_about_when_it_fires(stage, turn):
    hook = Hook(lambda action, *_: action != "fire")
    environ = {"ROUTINES_ROOT": stage.root, "ROUTINES_STATE": stage.path}
    environ |= {"ROUTINES_SESSION": SESSION} | ({"ROUTINES_TURN": turn} if turn else {})
    # As `routines mcp` has it: no engine, and so no hook.
    context = Context(environ=environ, cwd="/", clock=stage.clock)
    async with stage.running(QUIET, authorize=hook):
        answer = ToolDesk(lambda: context).call("wake", {"prompt": "look", "in": "10m"})
        await stage.clock.advance_to(at("08:11"))

    assert not answer.refused
    assert hook.asked == [("fire", context.who, 1)]
    assert [(one.outcome, one.reason) for one in stage.records()] == [("skipped", "refused")]


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_single_pass_waits_for_the_hook(stage, allowed):
    async with stage.running(QUIET) as engine:
        await make(engine)
    stage.clock.move(10 * MINUTE)
    async with stage.engine(QUIET, authorize=Hook(lambda *_: allowed)).opened() as engine:
        records = await engine.tick()

    assert [record.outcome for record in records] == ["completed" if allowed else "skipped"]


async def test_a_single_pass_does_not_wait_for_an_outage_to_end(stage):
    async with stage.running(QUIET) as engine:
        await make(engine)
    stage.clock.move(10 * MINUTE)
    async with stage.engine(QUIET, authorize=raises).opened() as engine:
        assert await engine.tick() == []

    assert len(stage.wakeups.pending(SESSION)) == 1


async def test_stop_while_a_hook_hangs_is_no_wait(stage):
    asked = asyncio.Event()

    async def hook(action, caller, schedule):
        if action == "fire":
            asked.set()
            await hangs()
        return True

    async with stage.running(QUIET, authorize=hook) as engine:
        await make(engine)
        await stage.clock.advance_to(at("08:10"))
        assert asked.is_set()
        await asyncio.wait_for(engine.stop(grace=timedelta(0)), 20)

    assert len(stage.wakeups.pending(SESSION)) == 1


async def test_errors_of_the_store_are_still_told_to_who_may_see(stage):
    async with stage.running(QUIET, authorize=Hook()) as engine:
        made = (await make(engine)).wakeup
        with pytest.raises(WakeupConflict):
            await engine.wakeups().update(made.id, revision=7, prompt="x")
        with pytest.raises(WakeupRefused):
            await engine.wakeups().update(made.id, revision=1, in_="1s")
        with pytest.raises(UnknownWakeup):
            await engine.wakeups().get("w-aaaaaa")
