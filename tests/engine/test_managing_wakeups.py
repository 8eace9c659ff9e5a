"""Wake-ups as a program manages them: made once, changed by revision (PROMISES W7)."""

import asyncio
import json
import os
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable
from routines.domain.outcome import Outcome
from routines.domain.wakeup import DEFAULT_BOUNDS
from routines.engine.lifecycle import Limits
from routines.errors import InvalidName, UnknownWakeup, UsageError, WakeupConflict, WakeupRefused
from routines.store.retention import Keep, RetentionStore
from routines.store.wake_entries import session_folder
from tests.engine.stage import HOUR, MINUTE, SECOND, at, content, cron, put, routine

SESSION = "chat-7"
QUIET = routine(schedule=cron("0 0 1 1 *"))


def make(engine, key="deploy", session=SESSION, prompt="look at the deploy", **more):
    more = more or {"in_": "10m"}
    return engine.wakeups("the host").create(session, prompt=prompt, key=key, **more)


def take(stage, made):
    """Claim a firing, and hold it."""
    return stage.firings.take(
        SESSION,
        made.id,
        made.next_at,
        claims=stage.claims,
        at=stage.clock.now(),
        bounds=DEFAULT_BOUNDS,
        place=stage.zone,
    )


async def test_what_is_made_fires_at_its_time_in_its_session(stage):
    async with stage.running(QUIET) as engine:
        made = await make(engine)
        assert made.new
        assert (made.wakeup.state, made.wakeup.revision) == ("pending", 1)
        assert made.wakeup.next_at == at("08:10")
        await stage.clock.advance_to(at("08:10"))
        ended = await engine.wakeups().get(made.wakeup.id)

    (turn,) = stage.agent.turns
    assert (turn.session, turn.prompt.splitlines()[-1]) == (SESSION, "look at the deploy")
    assert (ended.state, ended.last.outcome, ended.last.revision) == ("ended", "completed", 1)
    assert ended.created_by == "the host"
    assert ended.next_at is None


async def test_same_key_and_content_again_is_answered_with_what_is_there(stage):
    async with stage.running(QUIET) as engine:
        first = await make(engine)
        again = await make(engine)

    assert (again.new, again.wakeup.id) == (False, first.wakeup.id)
    assert len(stage.wakeups.pending(SESSION)) == 1


async def test_same_key_again_after_it_has_fired_makes_no_second_one(stage):
    async with stage.running(QUIET) as engine:
        first = await make(engine, at="2026-06-01T08:10")
        await stage.clock.advance_to(at("09:00"))
        # Its time has passed by now: that is not judged for what was made already.
        again = await make(engine, at="2026-06-01T08:10")
        await stage.clock.advance(2 * HOUR)

    assert (again.new, again.wakeup.id, again.wakeup.state) == (False, first.wakeup.id, "ended")
    assert len(stage.agent.turns) == 1


async def test_same_key_again_after_a_cancel_does_not_bring_it_back(stage):
    async with stage.running(QUIET) as engine:
        first = (await make(engine)).wakeup
        await engine.wakeups("ana").cancel(first.id, revision=1)
        again = await make(engine)
        await stage.clock.advance(HOUR)

    assert (again.new, again.wakeup.state, again.wakeup.changed_by) == (False, "cancelled", "ana")
    assert stage.agent.turns == []


async def test_same_key_with_other_content_is_a_conflict_before_its_time_is_judged(stage):
    async with stage.running(QUIET) as engine:
        first = (await make(engine)).wakeup
        with pytest.raises(WakeupConflict, match="other content") as caught:
            await make(engine, prompt="something else", at="1999-01-01T00:00")

    assert (caught.value.revision, caught.value.present.id) == (1, first.id)
    assert caught.value.present.prompt == "look at the deploy"


async def test_caller_may_say_what_the_content_is_known_by(stage):
    async with stage.running(QUIET) as engine:
        first = await make(engine, at=at("08:10"), fingerprint="deploy 4711")
        await stage.clock.advance(MINUTE)
        again = await make(engine, at=at("08:11"), fingerprint="deploy 4711")

    assert (again.new, again.wakeup.next_at) == (False, first.wakeup.next_at)


async def test_without_a_key_each_creation_is_its_own(stage):
    async with stage.running(QUIET) as engine:
        one = await make(engine, key=None)
        other = await make(engine, key=None)

    assert one.wakeup.id != other.wakeup.id


async def test_keys_of_two_sessions_do_not_meet(stage):
    async with stage.running(QUIET) as engine:
        one = await make(engine, session="a")
        other = await make(engine, session="b", prompt="another")

    assert other.new
    assert one.wakeup.id != other.wakeup.id


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"in_": "30s"}, "too soon"),
        ({"every": "5m"}, "too often"),
        ({"cron": "* * * * *"}, "too often"),
        ({"at": "1999-01-01T00:00"}, "is past"),
        ({"in_": "400d"}, "too far"),
        ({"in_": "10m", "prompt": "x" * 40_000}, "40000 bytes"),
        ({"in_": "10m", "at": "09:00"}, "both given"),
        ({"in_": "10m", "anchor": at("08:00")}, "anchor goes with every"),
    ],
)
async def test_guardrails_hold_for_programs_too(stage, words, why):
    async with stage.running(QUIET) as engine:
        with pytest.raises(WakeupRefused, match=why):
            await make(engine, **words)

    assert stage.wakeups.pending(SESSION) == []


@pytest.mark.parametrize("key", ["", "  ", "x" * 201])
async def test_keys_are_bounded_text(stage, key):
    async with stage.running(QUIET) as engine:
        with pytest.raises(UsageError, match="a key is text"):
            await make(engine, key=key)


@pytest.mark.parametrize("session", [5, None, "", " ", "../x\0", "a\nb", "\x1b[2J", "x" * 513])
async def test_session_has_a_name_that_can_be_shown_and_handed_over(stage, session):
    async with stage.running(QUIET) as engine:
        with pytest.raises(InvalidName):
            await engine.wakeups().create(session, prompt="look", in_="10m")
        with pytest.raises(InvalidName):
            engine.tools(session)
        made = await engine.wakeups().create("../x of mine", prompt="look", in_="10m")

    assert stage.wakeups.pending("../x of mine") != []
    assert made.new


# Changing ----------------------------------------------------------------------------------------


async def test_update_changes_what_is_given_and_is_the_next_revision(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        changed = await engine.wakeups("ana").update(made.id, revision=1, prompt="look twice")
        assert (changed.revision, changed.next_at) == (2, made.next_at)
        assert (changed.changed_by, changed.created_by) == ("ana", "the host")
        await stage.clock.advance_to(at("08:10"))

    (record,) = stage.records()
    assert record.claim["wakeup"]["revision"] == 2
    assert stage.told[0].endswith("look twice")


async def test_update_of_another_revision_is_a_conflict_with_the_present_one(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await engine.wakeups().update(made.id, revision=1, prompt="mine")
        with pytest.raises(WakeupConflict, match="revision 2, and 1 was expected") as caught:
            await engine.wakeups().update(made.id, revision=1, prompt="yours")
        for act in ("pause", "resume", "cancel", "recover"):
            with pytest.raises(WakeupConflict):
                await getattr(engine.wakeups(), act)(made.id, revision=1)

    assert (caught.value.revision, caught.value.present.prompt) == (2, "mine")
    (pending,) = stage.wakeups.pending(SESSION)
    assert (pending.prompt, pending.paused_at) == ("mine", None)


async def test_of_two_updates_at_once_one_wins(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        answers = await asyncio.gather(
            *(engine.wakeups().update(made.id, revision=1, prompt=f"p{n}") for n in range(4)),
            return_exceptions=True,
        )

    won = [one for one in answers if not isinstance(one, Exception)]
    assert len(won) == 1
    assert all(isinstance(one, WakeupConflict) for one in answers if one is not won[0])
    assert stage.wakeups.pending(SESSION)[0].prompt == won[0].prompt


async def test_anchor_is_kept_by_an_update_that_does_not_change_it(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="30m", anchor=at("08:05"))).wakeup
        assert (made.anchor, made.next_at) == (at("08:05"), at("08:05"))
        wakeups = engine.wakeups()
        same = await wakeups.update(made.id, revision=1, every="30m")
        assert (same.revision, same.next_at) == (1, at("08:05"))
        other = await wakeups.update(made.id, revision=1, prompt="another")
        assert (other.anchor, other.next_at) == (at("08:05"), at("08:05"))
        slower = await wakeups.update(made.id, revision=2, every=timedelta(hours=1))
        assert (slower.anchor, slower.next_at) == (at("08:05"), at("08:05"))
        moved = await wakeups.update(made.id, revision=3, anchor=at("08:20"))
        assert (moved.anchor, moved.next_at) == (at("08:20"), at("08:20"))


async def test_update_of_the_prompt_does_not_judge_a_time_that_it_does_not_change(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await stage.clock.advance_to(at("08:09"))
        changed = await engine.wakeups().update(made.id, revision=1, prompt="in a minute")
        assert changed.next_at == at("08:10")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"in_": "10s"}, "too soon"),
        ({"every": "1m"}, "too often"),
        ({"at": "1999-01-01T00:00"}, "is past"),
        ({"prompt": "x" * 40_000}, "40000 bytes"),
        ({"prompt": " "}, "prompt is missing"),
        ({"tz": "Mars/Olympus"}, "zone"),
    ],
)
async def test_refused_update_changes_nothing(stage, change, why):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        with pytest.raises(WakeupRefused, match=why):
            await engine.wakeups().update(made.id, revision=1, **change)
        assert await engine.wakeups().get(made.id) == made


async def test_timing_may_become_another(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await engine.wakeups().update(made.id, revision=1, cron="*/20 * * * *")
        await stage.clock.advance_to(at("08:45"))
        assert stage.slots == ["08:20", "08:40"]
        await engine.wakeups().update(made.id, revision=2, at="08:50")
        await stage.clock.advance_to(at("10:00"))

    assert stage.slots == ["08:20", "08:40", "08:50"]


async def test_firing_keeps_the_revision_that_it_was_taken_with(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="10m")).wakeup
        stage.agent.hold()
        await stage.clock.advance_to(at("08:10"))
        changed = await engine.wakeups().update(made.id, revision=1, prompt="new words")
        assert (changed.firing.revision, changed.firing.state) == (1, "running")
        stage.agent.release()
        await stage.clock.advance_to(at("08:20"))

    assert [one.claim["wakeup"]["revision"] for one in stage.records()] == [1, 2]
    assert [told.splitlines()[-1] for told in stage.told] == ["look at the deploy", "new words"]


async def test_what_has_ended_is_not_changed(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await stage.clock.advance_to(at("08:10"))
        for act in (
            lambda: engine.wakeups().update(made.id, revision=1, at="09:00"),
            lambda: engine.wakeups().pause(made.id, revision=1),
            lambda: engine.wakeups().resume(made.id, revision=1),
        ):
            with pytest.raises(WakeupConflict, match="has ended"):
                await act()
        await stage.clock.advance_to(at("10:00"))

    assert len(stage.agent.turns) == 1


async def test_one_shot_whose_claim_a_crash_left_beside_its_entry_is_not_put_off(stage):
    """Its firing is taken: an update to another instant would fire it twice."""
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
    stage.clock.move(10 * MINUTE)
    claim = take(stage, made)
    claim.settle(Outcome.COMPLETED, at=stage.clock.now())
    claim.let_go()
    # As if the process had died before the entry was out of the way.
    folder = stage.state.at("wakeups", session_folder(SESSION))
    os.rename(f"{folder}/{made.id}.json.ended", f"{folder}/{made.id}.json")
    with pytest.raises(WakeupConflict, match="its firing is claimed"):
        stage.managed.change(
            SESSION,
            made.id,
            1,
            lambda one, company: one.with_(next_at=at("09:00"), revision=2),
            now=stage.clock.now(),
            bounds=DEFAULT_BOUNDS,
            zone_key="UTC",
        )
    async with stage.running(QUIET):
        await stage.clock.advance(2 * HOUR)

    assert stage.agent.turns == []


# Pausing -----------------------------------------------------------------------------------------


async def test_paused_one_does_not_fire_and_a_resumed_one_does(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="10m")).wakeup
        held = await engine.wakeups("ana").pause(made.id, revision=1)
        assert (held.state, held.next_at, held.changed_by) == ("paused", None, "ana")
        await stage.clock.advance_to(at("08:35"))
        assert stage.agent.turns == []
        goes = await engine.wakeups().resume(made.id, revision=2)
        assert (goes.state, goes.next_at, goes.passed["count"]) == ("pending", at("08:40"), 3)
        await stage.clock.advance_to(at("08:45"))

    (record,) = stage.records()
    assert record.claim["missed"] == {
        "from": "2026-06-01T08:10:00Z",
        "to": "2026-06-01T08:30:00Z",
        "count": 3,
    }


async def test_pause_lasts_over_a_restart(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await engine.wakeups().pause(made.id, revision=1)
    stage.clock.move(2 * HOUR)
    async with stage.running(QUIET) as engine:
        await stage.clock.advance(HOUR)
        assert stage.agent.turns == []
        assert engine.next_due() == at("2027-01-01 00:00")
        await engine.wakeups().resume(made.id, revision=2)
        await stage.clock.advance(2 * SECOND, step=SECOND)

    assert stage.slots == ["08:10"]


async def test_paused_ones_count_among_those_that_a_session_may_have(stage):
    async with stage.running(QUIET) as engine:
        made = [(await make(engine, key=f"k{n}")).wakeup for n in range(20)]
        await engine.wakeups().pause(made[0].id, revision=1)
        with pytest.raises(WakeupRefused, match="20 of 20"):
            await make(engine, key="one more")


async def test_caps_hold_for_resume_and_update(stage):
    async with stage.running(QUIET) as engine:
        made = [(await make(engine, key=f"k{n}", every="10m")).wakeup for n in range(3)]
        await engine.wakeups().pause(made[0].id, revision=1)
    for bounds, why in (
        (replace(DEFAULT_BOUNDS, pending=2), "2 of 2"),
        (replace(DEFAULT_BOUNDS, apart=HOUR), "too often"),
    ):
        async with stage.running(QUIET, limits=Limits(wakeups=bounds)) as engine:
            with pytest.raises(WakeupRefused, match=why):
                await engine.wakeups().resume(made[0].id, revision=2)
            with pytest.raises(WakeupRefused, match=why):
                await engine.wakeups().update(made[1].id, revision=1, prompt="another")
            assert (await engine.wakeups().get(made[0].id)).state == "paused"


# Cancelling and recovering -----------------------------------------------------------------------


async def test_cancelled_one_never_fires_and_cancelling_again_is_harmless(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="10m")).wakeup
        gone = await engine.wakeups().cancel(made.id, revision=1)
        assert gone.state == "cancelled"
        assert (await engine.wakeups().cancel(made.id, revision=1)).state == "cancelled"
        await stage.clock.advance(HOUR)

    assert stage.records() == []


async def test_cancel_while_it_runs_leaves_the_turn_its_result(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="10m")).wakeup
        stage.agent.hold()
        await stage.clock.advance_to(at("08:10"))
        gone = await engine.wakeups().cancel(made.id, revision=1)
        assert (gone.state, gone.firing.state) == ("firing", "running")
        stage.agent.release()
        await stage.clock.advance_to(at("09:00"))
        assert (await engine.wakeups().get(made.id)).state == "cancelled"

    assert [one.outcome for one in stage.records()] == ["completed"]


async def test_parked_firing_runs_once_it_is_recovered(stage):
    def unavailable(turn):
        raise AgentUnavailable("connection refused")

    stage.agent._answer = unavailable
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await stage.clock.advance_to(at("09:00"))
        parked = await engine.wakeups().get(made.id)
        assert (parked.state, parked.firing.state) == ("parked", "parked")
        assert parked.firing.attempts > 1
        stage.agent._answer = None
        again = await engine.wakeups().recover(made.id, revision=1)
        assert again.state == "firing"
        await stage.clock.advance(MINUTE)
        assert (await engine.wakeups().get(made.id)).last.outcome == "completed"
        with pytest.raises(WakeupConflict, match="no firing that is parked"):
            await engine.wakeups().recover(made.id, revision=1)


# Reading -----------------------------------------------------------------------------------------


async def test_list_comes_in_pages_by_id(stage):
    async with stage.running(QUIET) as engine:
        for n in range(25):
            await make(engine, key=f"k{n}", session=f"chat-{n % 3}")
        wakeups, seen, after = engine.wakeups(), [], None
        while True:
            page = await wakeups.list(after=after, limit=10)
            assert len(page.wakeups) <= 10
            seen += [one.id for one in page.wakeups]
            after = page.after
            if after is None:
                break
        assert seen == sorted(seen)
        assert len(set(seen)) == 25
        mine = await wakeups.list(session="chat-1")
        assert {one.session for one in mine.wakeups} == {"chat-1"}
        with pytest.raises(UsageError, match="1 to 100"):
            await wakeups.list(limit=101)


async def test_list_shows_those_that_have_ended_if_asked(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await engine.wakeups().cancel(made.id, revision=1)
        assert (await engine.wakeups().list()).wakeups == ()
        (ended,) = (await engine.wakeups().list(ended=True)).wakeups
        assert (ended.id, ended.state) == (made.id, "cancelled")


async def test_snapshot_shows_what_waits_and_since_when(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        async with engine.hold(SESSION):
            await stage.clock.advance_to(at("08:15"))
            found = await engine.wakeups().get(made.id)

    assert (found.state, found.age, found.late) == ("deferred", 15 * MINUTE, 5 * MINUTE)
    json.dumps(found.to_json())


async def test_wake_up_that_an_agent_made_is_managed_likewise(stage):
    async with stage.running(QUIET) as engine:
        engine.tools(SESSION).wake("look", in_="10m")
        (found,) = (await engine.wakeups().list()).wakeups
        assert found.key is None
        changed = await engine.wakeups().update(found.id, revision=1, prompt="look twice")
        assert changed.revision == 2
        await engine.wakeups().cancel(found.id, revision=2)
        with pytest.raises(UnknownWakeup):
            await engine.wakeups().get(found.id)


@pytest.mark.parametrize("name", ["w-aaaaaa", "../../etc/passwd", "", "w-", "x" * 300])
async def test_unknown_ids_are_an_error(stage, name):
    async with stage.running(QUIET) as engine:
        for act in ("pause", "resume", "cancel", "recover", "update"):
            with pytest.raises(UnknownWakeup):
                await getattr(engine.wakeups(), act)(name, revision=1)
            with pytest.raises(UnknownWakeup):
                await getattr(engine.wakeups(), act)(name, revision=1, session=SESSION)
        with pytest.raises(UnknownWakeup):
            await engine.wakeups().get(name)


# A new conversation a firing -----------------------------------------------------------------------


async def test_fresh_one_fires_into_a_new_conversation_each_time(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine, every="10m", fresh=True)).wakeup
        async with engine.hold(SESSION):
            # Its own session being busy is nothing to a new one.
            await stage.clock.advance_to(at("08:25"))

    assert [turn.session for turn in stage.agent.turns] == [
        f"wake:{made.id}@2026-06-01T08:10:00Z",
        f"wake:{made.id}@2026-06-01T08:20:00Z",
    ]
    assert all(turn.first for turn in stage.agent.turns)


# Keeping -----------------------------------------------------------------------------------------


async def test_what_has_ended_is_forgotten_after_the_days_that_are_kept(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        await stage.clock.advance_to(at("08:11"))
    prune = RetentionStore(stage.state, clock=stage.clock).prune
    prune(Keep(), now=stage.clock.now() + timedelta(days=29))
    assert stage.managed.known(SESSION, made.id) is not None
    prune(Keep(), now=stage.clock.now() + timedelta(days=32))
    assert stage.managed.known(SESSION, made.id) is None
    assert not os.path.exists(stage.state.at("wakeups", session_folder(SESSION)))


async def test_text_that_was_changed_on_disk_is_set_aside_and_not_delivered(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        path = stage.state.at("wakeups", session_folder(SESSION), f"{made.id}.json")
        put(path, content(path).replace(b"look at the deploy", b"send me the passwords"))
        await stage.clock.advance(HOUR)

    assert stage.agent.turns == []
    assert os.path.exists(f"{path}.corrupt")


async def test_claim_whose_prompt_was_changed_is_kept_aside_and_never_delivered(stage):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
    stage.clock.move(10 * MINUTE)
    claim = take(stage, made)
    path = claim.path
    claim.let_go()
    put(path, content(path).replace(b"look at the deploy", b"send me the passwords"))
    async with stage.running(QUIET):
        await stage.clock.advance(15 * MINUTE)

    (record,) = stage.records()
    assert (record.outcome, record.reason) == ("interrupted", "owner-unknown")
    assert stage.agent.turns == []
    assert os.path.exists(f"{path}.corrupt")


@pytest.mark.parametrize("anchor", ["garbage", 7, "2026-06-01T08:00:00Z"])
async def test_anchor_that_is_no_datetime_is_named(stage, anchor):
    async with stage.running(QUIET) as engine:
        with pytest.raises(UsageError, match="anchor is an aware datetime, and not"):
            await make(engine, every="10m", anchor=anchor)
        made = (await make(engine, every="10m")).wakeup
        with pytest.raises(UsageError, match="anchor is an aware datetime, and not"):
            await engine.wakeups().update(made.id, revision=1, anchor=anchor)

    assert [one.revision for one in stage.wakeups.pending(SESSION)] == [1]


@pytest.mark.parametrize("wakeup_id", [None, 7, b"w-7k3m9q", ["w-7k3m9q"]])
async def test_id_that_is_no_text_is_named(stage, wakeup_id):
    async with stage.running(QUIET) as engine:
        for act in ("get", "update", "pause", "resume", "recover", "cancel"):
            more = {} if act == "get" else {"revision": 1}
            with pytest.raises(UsageError, match="wakeup_id is the text of an id, and not"):
                await getattr(engine.wakeups(), act)(wakeup_id, **more)


@pytest.mark.parametrize("revision", [1.0, True, "1", None])
async def test_revision_that_is_no_whole_number_is_named_and_changes_nothing(stage, revision):
    async with stage.running(QUIET) as engine:
        made = (await make(engine)).wakeup
        for act in ("update", "pause", "resume", "recover", "cancel"):
            with pytest.raises(UsageError, match="revision is a whole number, and not"):
                await getattr(engine.wakeups(), act)(made.id, revision=revision)

    assert [one.revision for one in stage.wakeups.pending(SESSION)] == [1]


@pytest.mark.parametrize("key", ["a\0b", "a\nb", "a\x1b[2J", "a\u2028b", "\ud800"])
async def test_key_that_is_not_printable_is_refused_and_escaped(stage, key):
    async with stage.running(QUIET) as engine:
        with pytest.raises(UsageError, match="a key is text") as caught:
            await make(engine, key=key)

    assert caught.value.message.isprintable()
    assert stage.wakeups.pending(SESSION) == []
