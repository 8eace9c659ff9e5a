"""What becomes of claims whose owner is gone (PROMISES L9 to L11, T2, BR-14, BR-62)."""

import asyncio
import logging
import os
import time
from datetime import timedelta

import pytest

from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome
from routines.domain.record import Event, Owner
from routines.domain.routine import OverlapPolicy
from routines.engine import host
from routines.engine.off_loop import quiet
from routines.engine.turns import TurnSteps
from routines.engine.work import work_of
from routines.errors import NotDurable, SessionBusyError
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from tests.engine.stage import HOUR, MINUTE, SECOND, at, content, every, once, put, routine

REF = "digest@2026-06-01T08:05:00Z"
SLOT = Occurrence(Kind.SLOT, "digest", at("08:05"))


def owner(**changes):
    here = host.here()
    known = {
        "host": here.host,
        "boot": here.boot,
        "pid": 999_999_99,
        "start": "1",
        "pidns": None,
        "user": "ana@studio",
    }
    return Owner(**known | changes)


ELSEWHERE = owner(host="another-machine", boot="another-boot")


def leave_claim(stage, *, events=(), occurrence=SLOT, of=None, **claim):
    """Leave an open claim as a process that is gone would."""
    stage.clock.set(max(stage.clock.now(), occurrence.instant + SECOND))
    line = {
        "routine": occurrence.owner,
        "session": f"routine:{occurrence.owner}",
        "owner": (of or owner()).to_json(),
        "due_at": occurrence.instant,
    }
    made = stage.claims.take(Draft(occurrence, line | claim), at=stage.clock.now())
    for event in events:
        made.append(event, at=stage.clock.now(), owner=(of or owner()).to_json())
    path = made.path
    made.let_go()
    return path


def age(path, minutes):
    when = time.time() - minutes * 60
    os.utime(path, (when, when))


async def look(stage, *routines):
    async with stage.running(*(routines or [routine(schedule=every(5))])):
        await stage.clock.advance()


async def crashed_turn(stage, digest):
    """A turn in the engine's process whose engine is killed."""
    engine = stage.engine(digest)
    await engine.start()
    stage.agent.hold()
    await stage.clock.advance_to(at("08:05"))
    assert len(stage.agent.turns) == 1
    held = list(engine._in_flight.values())
    await stage.crash(engine)
    stage.agent.release()
    return held


# By the last line ------------------------------------------------------------------------------


async def test_claim_that_was_never_started_runs_late_under_the_same_claim(stage):
    leave_claim(stage)
    await look(stage)

    assert [turn.key.partition("/")[2] for turn in stage.agent.turns] == [REF]
    assert [event["event"] for event in stage.record(REF).events] == [
        "attempt",
        "started",
        "outcome",
    ]


@pytest.mark.parametrize(
    ("claim", "word"), [({}, "taken-up"), ({"detached": True}, "fired")], ids=["died", "detached"]
)
async def test_claim_of_a_process_that_is_gone_is_fired_only_if_that_was_left_to_us(
    stage, claim, word
):
    by_hand = Occurrence(Kind.MANUAL, "digest", at("08:01"), "k3m9q2")
    occurrence = by_hand if claim else SLOT
    leave_claim(stage, occurrence=occurrence, **claim)
    await look(stage)

    assert [e.name for e in stage.events if e.ref == occurrence.ref] == [word, "settled"]


async def test_started_turn_whose_owner_died_is_interrupted_and_never_run_again(stage):
    leave_claim(stage, events=[Event.STARTED])
    await look(stage)

    assert stage.history() == ["08:05 interrupted owner-died"]
    assert stage.agent.turns == []


async def test_turn_that_was_being_cancelled_when_its_owner_died_is_cancelled(stage):
    leave_claim(stage, events=[Event.STARTED, Event.CANCELLING])
    await look(stage)

    assert stage.history() == ["08:05 cancelled person"]


async def test_turn_whose_owner_died_while_it_was_cancelled_keeps_the_reason(stage):
    leave_claim(stage, events=[Event.STARTED, Event.CANCELLING])
    cancels = CancelStore(stage.state)
    for why in ("", "wrong prompt"):
        cancels.ask(REF, by="ana@studio", person=True, at=stage.clock.now(), reason=why)
    cancels.accept(cancels.pending(REF))
    await look(stage)

    end = stage.record(REF).end
    assert end["detail"] == "wrong prompt; its owner died while it was being ended"


async def test_claim_that_was_taken_up_three_times_and_never_started_has_failed(stage):
    leave_claim(stage, events=[Event.ATTEMPT, Event.ATTEMPT])
    await look(stage)

    assert stage.history() == ["08:05 failed not-started"]
    assert stage.agent.turns == []


async def test_what_was_parked_waits_for_a_person(stage):
    leave_claim(stage, events=[Event.PARKED])
    await look(stage)

    assert stage.record(REF).last == Event.PARKED
    assert stage.agent.turns == []


async def test_claim_whose_outcome_is_there_loses_its_second_name(stage):
    leave_claim(stage, events=[Event.STARTED])
    (entry,) = stage.claims.open_entries()
    claim = stage.claims.hold(entry)
    os.link(claim.open_path, f"{claim.open_path}.kept")
    claim.settle(Outcome.COMPLETED, at=stage.clock.now())
    claim.let_go()
    os.rename(f"{claim.open_path}.kept", claim.open_path)
    await look(stage)

    assert stage.claims.open_entries() == []
    assert stage.history() == ["08:05 completed"]


@pytest.mark.parametrize("torn", [b"", b'{"event":"cla'], ids=["empty", "torn"])
async def test_claim_that_cannot_be_read_stays_claimed_and_is_settled_after_10_minutes(stage, torn):
    path = leave_claim(stage)
    put(path, torn)
    await look(stage)
    assert stage.record(REF).end is None

    age(path, 11)
    await look(stage)
    assert stage.history() == ["08:05 interrupted owner-unknown"]
    assert content(f"{path}.corrupt") == torn
    assert stage.agent.turns == []


# By whose it is --------------------------------------------------------------------------------


async def test_claim_of_an_earlier_boot_of_this_host_is_dead(stage):
    host_id = host.here().host or "a-host"
    leave_claim(stage, events=[Event.STARTED], of=owner(host=host_id, boot="earlier"))
    if host.here().host is None:
        pytest.skip("inside a container no host has an id")
    await look(stage)

    assert stage.history() == ["08:05 interrupted owner-died"]


@pytest.mark.parametrize("events", [[], [Event.STARTED]], ids=["unstarted", "started"])
async def test_claim_of_another_host_with_a_fresh_sign_of_life_is_left_alone(stage, events):
    leave_claim(stage, events=events, of=ELSEWHERE)
    await look(stage)

    assert stage.record(REF).end is None
    assert stage.agent.turns == []


@pytest.mark.parametrize("events", [[], [Event.STARTED]], ids=["unstarted", "started"])
async def test_claim_of_another_host_silent_for_10_minutes_is_settled_and_never_run(stage, events):
    path = leave_claim(stage, events=events, of=ELSEWHERE)
    age(path, 11)
    await look(stage)

    assert stage.history() == ["08:05 interrupted presumed"]
    assert stage.agent.turns == []


async def test_session_of_a_turn_presumed_dead_goes_on_in_a_new_epoch(stage):
    path = leave_claim(stage, events=[Event.STARTED], of=ELSEWHERE)
    lease = stage.sessions.take("routine:digest", clock=stage.clock)
    lease.write(lease.ledger.with_(agent="host", claim=SLOT.claim_path, native_session="n-1"))
    lease.let_go()
    age(path, 11)
    await look(stage)

    ledger = stage.sessions.peek("routine:digest")
    assert (ledger.epoch, ledger.native_session, ledger.claim) == (2, None, None)


async def test_live_owner_is_left_alone(stage):
    digest = routine(schedule=every(60))
    async with stage.running(digest):
        stage.agent.hold()
        await stage.clock.advance_to(at("09:00"))
        async with stage.running(digest):
            await stage.clock.advance(3 * MINUTE)
            assert stage.history() == ["09:00 running"]
        stage.agent.release()
        await stage.clock.advance()

    assert stage.history() == ["09:00 completed"]


# After a kill ----------------------------------------------------------------------------------


async def test_turn_of_a_killed_engine_is_interrupted_at_the_next_boot_and_the_next_slot_runs(
    stage,
):
    digest = routine(schedule=every(5))
    await crashed_turn(stage, digest)
    async with stage.running(digest):
        assert stage.history() == ["08:05 interrupted owner-died"]
        await stage.clock.advance_to(at("08:10"))

    assert stage.history() == ["08:05 interrupted owner-died", "08:10 completed"]
    assert stage.slots == ["08:05", "08:10"]


async def test_peer_notices_a_killed_engine_within_a_minute(stage):
    digest = routine(schedule=every(60))
    engine = stage.engine(digest)
    await engine.start()
    stage.agent.hold()
    await stage.clock.advance_to(at("09:00"))
    async with stage.running(digest):
        await stage.crash(engine)
        await stage.clock.advance(61 * SECOND, step=SECOND)
        assert stage.history() == ["09:00 interrupted owner-died"]


async def test_scheduler_that_died_without_a_word_is_moved_to_the_past(stage):
    from routines.store.schedulers import SchedulerStore

    engine = stage.engine(routine())
    await engine.start()
    await stage.clock.advance(MINUTE)
    await stage.crash(engine)
    async with stage.running(routine()):
        (past,) = SchedulerStore(stage.state).past()

    assert past.why == "died"


async def test_free_lock_whose_stamp_names_an_open_claim_is_not_free(stage):
    digest = routine(schedule=every(5))
    await crashed_turn(stage, digest)
    # The other routine of the session comes before anybody has looked at the open claims.
    bystander = stage.engine(digest, is_scheduler=False)
    async with bystander.opened():
        assert stage.sessions.is_busy("routine:digest") is not None
        record = await bystander.run("digest")

    assert record.outcome == "completed"
    assert stage.history() == ["08:05 interrupted owner-died", "manual 08:05 completed"]


async def test_session_that_an_open_claim_has_stamped_cannot_be_held_by_anyone(stage):
    digest = routine(schedule=every(5))
    await crashed_turn(stage, digest)
    bystander = stage.engine(digest, is_scheduler=False)
    async with bystander.opened():
        with pytest.raises(SessionBusyError):
            async with bystander.hold("routine:digest"):
                pass


async def test_crash_between_outcome_and_ledger_loses_no_turn_from_the_count(stage):
    digest = routine(schedule=every(5))
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:05"))
    ledger = stage.sessions.peek("routine:digest")
    lease = stage.sessions.take("routine:digest", clock=stage.clock)
    # The ledger as it was when the turn began: stamped, and not yet counted.
    lease.write(ledger.with_(claim=SLOT.claim_path, turns=0, epoch_turns=0, last_at=None))
    lease.let_go()
    async with stage.running(digest):
        await stage.clock.advance_to(at("08:10"))

    after = stage.sessions.peek("routine:digest")
    assert (after.turns, after.epoch, after.claim) == (2, 1, None)
    assert stage.records()[-1].started["turn"] == 2


# Runs by hand ------------------------------------------------------------------------------------


async def test_unstarted_run_by_hand_is_dropped_since_whoever_typed_it_has_gone(stage):
    hand = Occurrence(Kind.MANUAL, "digest", at("08:04"), "k3m9q2")
    leave_claim(stage, occurrence=hand, detached=False)
    await look(stage)

    assert stage.history() == ["manual 08:04 failed not-started"]
    assert stage.agent.turns == []


async def test_unstarted_detached_run_is_taken_up(stage):
    hand = Occurrence(Kind.MANUAL, "digest", at("08:04"), "k3m9q2")
    leave_claim(stage, occurrence=hand, detached=True)
    await look(stage)

    assert stage.history() == ["manual 08:04 completed"]


# Decided anew --------------------------------------------------------------------------------------


async def test_unstarted_claim_that_is_too_late_by_now_is_missed(stage):
    leave_claim(stage)
    stage.clock.move(2 * HOUR)
    await look(stage, routine(schedule=once("08:05"), start_within=HOUR))

    assert stage.history() == ["08:05 missed too-late"]


async def test_unstarted_claim_older_than_one_that_ran_is_missed_stale(stage):
    leave_claim(stage)
    newer = Occurrence(Kind.SLOT, "digest", at("08:10"))
    leave_claim(stage, occurrence=newer, events=[Event.STARTED])
    stage.clock.move(12 * MINUTE)
    await look(stage, routine(schedule=every(5)))

    assert stage.history() == ["08:05 missed stale", "08:10 interrupted owner-died"]


@pytest.mark.parametrize("overlap", [OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE])
async def test_slot_that_takes_longer_to_start_than_to_the_next_one_is_not_lost_with_it(
    stage, overlap
):
    """The newer one was skipped for it, or waits for it: to give it up too would lose both."""
    often = routine(schedule=every(5), overlap=overlap)
    stage.clock.set(at("08:05"))
    line = {"routine": "digest", "session": "routine:digest", "owner": owner().to_json()}
    slow = stage.claims.take(Draft(SLOT, line | {"due_at": at("08:05")}), at=stage.clock.now())
    async with stage.running(often):
        await stage.clock.advance_to(at("08:10:30"))
        newer = {"skip": "08:10 skipped overlap", "buffer-one": "08:10 buffered"}[overlap]
        assert stage.history() == ["08:05 claimed", newer]
        lease = stage.sessions.take("routine:digest", clock=stage.clock)
        steps = TurnSteps(stage.state, slow, lease, clock=stage.clock, owner=owner())
        begun = steps.begin(work_of(often, root=stage.root, agent=None, agent_name="host"))
        lease.let_go()
        slow.settle(Outcome.COMPLETED, at=stage.clock.now())
        slow.let_go()
        await stage.clock.advance_to(at("08:14"))

    assert begun is not None, "it starts"
    newer = {"skip": "08:10 skipped overlap", "buffer-one": "08:10 completed"}[overlap]
    assert stage.history() == ["08:05 completed", newer]


async def test_unstarted_claim_of_a_routine_that_is_gone_is_skipped_edited(stage):
    leave_claim(stage)
    await look(stage, routine("other", schedule=every(60)))

    assert stage.history() == ["08:05 skipped edited"]


async def test_cancel_before_the_start_settles_without_running(stage):
    leave_claim(stage)
    stage.cancel(REF, reason="no longer needed")
    await look(stage)

    assert stage.history() == ["08:05 cancelled person"]
    assert stage.record(REF).end["detail"].startswith("no longer needed")
    assert stage.record(REF).end["by"] == "ana@studio"
    assert stage.agent.turns == []


async def test_fault_with_one_claim_keeps_no_other_from_being_settled(stage, monkeypatch):
    from routines.engine.recovering import Recoverer
    from routines.errors import StoreError

    leave_claim(stage, events=[Event.STARTED])
    other = Occurrence(Kind.SLOT, "other", at("08:05"))
    leave_claim(stage, occurrence=other, events=[Event.STARTED])
    end = Recoverer._end

    def refusing(self, claim, recovery):
        if claim.record.ref == REF:
            raise StoreError("it can't be settled")
        return end(self, claim, recovery)

    monkeypatch.setattr(Recoverer, "_end", refusing)
    await look(stage)

    assert stage.record(REF).end is None
    assert stage.history("other") == ["08:05 interrupted owner-died"]


async def test_abandoned_draft_is_swept_away_once_it_is_a_minute_old(stage):
    path = stage.state.at("open", "digest~2026-06-01T08-05-00Z~0badcafe")
    put(path)
    await look(stage)
    assert content(path) == b""
    age(path, 2)
    await look(stage)

    assert content(path) is None
    assert stage.records() == []


async def test_loop_lives_on_after_a_fault_of_ours(stage, monkeypatch):
    digest = routine(schedule=every(5))
    async with stage.running(digest) as engine:
        monkeypatch.setattr(engine._recoverer, "recover", lambda: 1 / 0)
        await stage.clock.advance(2 * MINUTE)
        monkeypatch.undo()
        await stage.clock.advance_to(at("08:05"))
        await asyncio.sleep(0)
        await quiet()

    assert stage.slots == ["08:05"]
    assert timedelta(0) == stage.agent.turns[0].late


# What is said of it ---------------------------------------------------------------------------------


def lines_about(caplog, ref):
    """The events of the log about one occurrence, without those of its claim and start."""
    return [
        one.getMessage()
        for one in caplog.records
        if getattr(one, "ref", None) == ref and one.levelno >= logging.WARNING
    ]


async def test_what_is_settled_for_its_dead_owner_is_one_line_of_the_log(stage, caplog):
    leave_claim(stage, events=[Event.STARTED])
    await look(stage)

    assert lines_about(caplog, REF) == ["settled"]
    assert [e.data["reason"] for e in stage.events if e.ref == REF and e.name == "settled"] == [
        "owner-died"
    ]


async def test_what_is_settled_since_another_slot_waits_for_it_is_told_too(stage, caplog):
    engine = stage.engine(routine(schedule=every(5)))
    async with engine.opened():
        leave_claim(stage, events=[Event.STARTED])
        await engine.fire("digest", at("08:05"))
        stage.clock.set(at("08:10"))
        await engine.fire("digest", at("08:10"))

    assert lines_about(caplog, REF) == ["settled"]
    assert next(e.ref for e in stage.events if e.name == "settled") == REF


async def test_turn_that_is_to_run_again_is_one_line_of_the_log(stage, caplog):
    leave_claim(stage)
    claim = stage.claims.hold(stage.claims.open_entries()[0])
    claim.append(Event.STARTED, at=stage.clock.now(), owner=owner().to_json(), rerun_interrupted=1)
    claim.let_go()
    await look(stage)

    assert lines_about(caplog, REF) == ["retrying"]


async def test_cancel_that_was_taken_up_holds_though_the_end_could_not_be_written(
    stage, monkeypatch
):
    settle, refused = Claim.settle, []

    def refuse_once(self, *args, **more):
        if not refused:
            refused.append(self.occurrence.ref)
            raise NotDurable("no space left on device", hint="", path="")
        return settle(self, *args, **more)

    leave_claim(stage)
    stage.cancel(SLOT.ref)
    monkeypatch.setattr(Claim, "settle", refuse_once)
    async with stage.running(routine(schedule=once("08:05"))):
        await stage.clock.advance(3 * MINUTE)

    assert refused == [SLOT.ref]
    assert stage.agent.turns == []
    assert stage.history() == ["08:05 cancelled person"]
