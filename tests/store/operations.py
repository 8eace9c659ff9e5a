"""Everything that the stores write: each operation, ready to be stopped anywhere on its way."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from routines.domain.alerting import Told as WasTold
from routines.domain.occurrence import Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event
from routines.domain.wake_firing import Skip
from routines.domain.wake_managing import Change, paused, updated
from routines.domain.wake_request import AlreadySet, WakeRequest
from routines.domain.wakeup import Bounds, Timing, Wakeup, keyed_id
from routines.domain.zones import zone
from routines.errors import StoreError
from routines.store import files, replies
from routines.store.alerts import AlertStore
from routines.store.cancels import CancelStore
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.natives import NativeStore
from routines.store.places import PlaceStore, Room
from routines.store.programs import Answered, Mark, ProgramStore
from routines.store.retention import Keep, RetentionStore
from routines.store.schedulers import SchedulerStore
from routines.store.sessions import Lease, SessionStore, ledger_path
from routines.store.state import adopt, open_for_reading, open_for_writing
from routines.store.switches import Switch, SwitchStore
from routines.store.wake_entries import session_folder
from routines.store.wake_firings import FiringStore
from routines.store.wake_managing import ManagedStore
from routines.store.wakeups import WakeupStore
from routines.store.works import WorkStore
from tests.builders import (
    BOOT,
    NOW,
    FakeClock,
    by_hand,
    cursor,
    draft,
    firing,
    job,
    ledger,
    missed,
    opened,
    scheduler,
    skipped,
    slot,
)
from tests.store import job_operations
from tests.store.crash import Tell, Told, claim_files, server_later

OTHER_BOOT = "5f2c0a6e-0000-4000-8000-000000000002"
SESSION = "routine:daily"
UTC_ZONE = zone("UTC")


def _open(path: str) -> Any:
    return open_for_writing(path, boot=BOOT)


def _nothing_more(path: str, told: Told) -> None:
    pass


@dataclass(frozen=True)
class Operation:
    """Something that a store does to the disk.

    Attributes:
        name: What a person would call it.
        covers: The functions that it is made of, `module.Class.method`.
        act: Does it, with what *prepare* returned, telling what it answers.
        prepare: Makes what must be there before, in the same process.
        after: Checks its own promise once the program has started again.
        occurrences: Whose claims it is about: each may be claimed once.
        whole: Whether a claim is never empty; that takes hard links.
    """

    name: str
    covers: tuple[str, ...]
    act: Callable[[Any, Tell], None]
    prepare: Callable[[str], Any] = _open
    after: Callable[[str, Told], None] = _nothing_more
    occurrences: tuple[Occurrence, ...] = ()
    whole: bool = True


def _answer(tell: Tell, draft: Draft, taken: Claim | StoreError | None) -> None:
    path = draft.occurrence.claim_path
    if isinstance(taken, StoreError):
        tell("failed", taken.code, path)
    else:
        tell("already" if taken is None else "claimed", path)


# Claims ----------------------------------------------------------------------------------------


def _take(*drafts: Draft) -> Callable[[Any, Tell], None]:
    def act(state: Any, tell: Tell) -> None:
        taken = ClaimStore(state).take_many(drafts, at=NOW)
        for one, result in zip(drafts, taken, strict=True):
            _answer(tell, one, result)
            if isinstance(result, Claim) and one.end is not None:
                tell("settled", one.occurrence.claim_path, one.end["outcome"])
                result.let_go()

    return act


def _claimed(*occurrences: Occurrence) -> Callable[[str], list[Claim]]:
    """Claims of this process."""

    def prepare(path: str) -> list[Claim]:
        drafts = [draft(one) for one in occurrences]
        claims = ClaimStore(_open(path)).take_many(drafts, at=NOW)
        assert all(isinstance(one, Claim) for one in claims)
        return claims  # type: ignore[return-value]

    return prepare


def _one_turn(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    path = claim.record.path
    claim.append(Event.STARTED, at=NOW, owner=None)
    tell("line", path, "started")
    claim.settle(Outcome.COMPLETED, at=NOW)
    tell("settled", path, "completed")
    claim.let_go()


def _not_started_and_retried(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    for event in (Event.STARTED, Event.NOT_STARTED, Event.RETRY):
        claim.append(event, at=NOW)
        tell("line", claim.record.path, event.value)
    claim.touch()
    claim.let_go()


def _settle_twice(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    claim.settle(Outcome.COMPLETED, at=NOW)
    tell("settled", claim.record.path, "completed")
    claim.settle(Outcome.FAILED, Reason.EXIT, "must not be believed", at=NOW)
    tell("settled", claim.record.path, "completed")


def _durable_run(claims: list[Claim], tell: Tell) -> None:
    """A durable turn: its run is known, another goes on with it, and it ends."""
    (claim,) = claims
    for event, more in (
        (Event.STARTED, {"durable": True}),
        (Event.RUN, {"run_id": "r-1"}),
        (Event.RUN, {"run_id": "r-1", "resumed": True}),
    ):
        claim.append(event, at=NOW, **more)
        tell("line", claim.record.path, event.value)
        assert claim.record.is_durable
    assert claim.record.run_id == "r-1"
    claim.settle(Outcome.COMPLETED, at=NOW)
    tell("settled", claim.record.path, "completed")
    claim.let_go()


def _keep_work(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    WorkStore(claim._state).keep(claim.record, b"what it is to do\n")
    tell("kept", "the work")
    claim.append(Event.STARTED, at=NOW, durable=True)
    tell("line", claim.record.path, "started")
    claim.let_go()


def _began_only_with_its_work(path: str, told: Told) -> None:
    """What a durable turn is to do is whole on the disk before `started` is."""
    if not os.path.exists(os.path.join(path, slot().claim_path)):
        return
    state = open_for_reading(path)
    record = ClaimStore(state).read(slot())
    kept = WorkStore(state).read(record)
    assert kept in (None, b"what it is to do\n"), "half a work"
    if record.started is not None or ["kept", "the work"] in told:
        assert kept is not None, "begun, and nobody knows with what"


def _kept_work(path: str) -> list[Claim]:
    claims = _claimed(slot())(path)
    WorkStore(claims[0]._state).keep(claims[0].record, b"old\n")
    return claims


def _discard_work(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    claim.append(Event.STARTED, at=NOW)
    tell("line", claim.record.path, "started")
    claim.settle(Outcome.COMPLETED, at=NOW)
    tell("settled", claim.record.path, "completed")
    WorkStore(claim._state).discard(claim.record)
    claim.let_go()


def _folder_taken_away(path: str) -> list[Claim]:
    claims = _claimed(slot())(path)
    shutil.rmtree(os.path.join(path, "claims"))
    return claims


def _everything_taken_away(path: str) -> list[Claim]:
    claims = _claimed(slot())(path)
    shutil.rmtree(os.path.join(path, "claims"))
    shutil.rmtree(os.path.join(path, "open"))
    return claims


def _settle(claims: list[Claim], tell: Tell) -> None:
    (claim,) = claims
    claim.settle(Outcome.COMPLETED, at=NOW)
    tell("settled", claim.record.path, "completed")


def _lost(path: str) -> Any:
    """A turn whose owner has died, and one that had died after writing its outcome."""
    lost, ended = _claimed(slot("09:00"), slot("09:01"))(path)
    lost.append(Event.STARTED, at=NOW)
    entry = ended.open_path
    ended.settle(Outcome.COMPLETED, at=NOW)
    os.link(ended.path, entry)
    lost.let_go()
    ended.let_go()
    return lost._state


def _reconcile(state: Any, tell: Tell) -> None:
    claims = ClaimStore(state)
    for entry in claims.open_entries():
        claim = claims.hold(entry)
        if claim is not None:
            claim.settle(Outcome.INTERRUPTED, Reason.OWNER_DIED, at=NOW)
            tell("settled", claim.record.path, "interrupted")
            claim.let_go()


def _abandoned_draft(path: str) -> Any:
    """A winner, and the draft of a loser that died before it could remove it."""
    claim = _claimed(slot())(path)[0]
    loser = os.open(f"{path}/{slot().open_path('10531053')}", os.O_CREAT | os.O_RDWR, 0o600)
    os.close(loser)
    os.close(os.open(f"{path}/{slot('10:00').open_path('0ff')}", os.O_CREAT | os.O_RDWR, 0o600))
    claim.settle(Outcome.COMPLETED, at=NOW)
    claim.let_go()
    return claim._state


def _sweep(state: Any, tell: Tell) -> None:
    claims = ClaimStore(state)
    for entry in claims.open_entries():
        assert claims.hold(entry) is None
        claims.sweep(entry, server_now=server_later())


def _dead_draft(occurrence: Occurrence) -> Callable[[str], Any]:
    """The draft of a process that died before its link, under a name that has no other."""

    def prepare(path: str) -> Any:
        state = _open(path)
        os.makedirs(state.at("open"), exist_ok=True)
        with open(state.at(occurrence.open_path("")), "x") as file:
            file.write('{"event":"claim"')
        return state

    return prepare


def _claimed_by_the_dead(*occurrences: Occurrence) -> Callable[[str], Any]:
    def prepare(path: str) -> Any:
        claims = _claimed(*occurrences)(path)
        for claim in claims:
            claim.let_go()
        return claims[0]._state

    return prepare


TAKES = (
    "claim.publish",
    "claim_making.Maker.take_many",
    "claims.ClaimStore.take",
    "claims.ClaimStore.take_many",
)
SETTLES = ("claim.Claim.settle", "claim.Claim.drop_open_name")
_MANY = (slot("09:00"), slot("2026-07-02 09:00", "weekly"), by_hand(), job())

CLAIMS = [
    Operation("claim", TAKES, _take(draft(slot())), occurrences=(slot(),)),
    Operation("claim-many", TAKES, _take(*map(draft, _MANY)), occurrences=_MANY),
    Operation("claim-twice", TAKES, _take(draft(slot()), draft(slot())), occurrences=(slot(),)),
    Operation(
        "claim-what-the-dead-claimed",
        TAKES,
        _take(draft(slot())),
        prepare=_claimed_by_the_dead(slot()),
        occurrences=(slot(),),
    ),
    Operation("claim-a-firing", TAKES, _take(draft(firing())), occurrences=(firing(),)),
    Operation(
        "claim-a-firing-that-the-dead-drafted",
        TAKES,
        _take(draft(firing())),
        prepare=_dead_draft(firing()),
        occurrences=(firing(),),
    ),
    Operation("settled-at-birth", TAKES, _take(skipped(slot())), occurrences=(slot(),)),
    Operation(
        "a-turn",
        ("claim.Claim.append", "claim.Claim.let_go", *SETTLES),
        _one_turn,
        prepare=_claimed(slot()),
        occurrences=(slot(),),
    ),
    Operation(
        "not-started-and-retried",
        ("claim.Claim.append", "claim.Claim.touch", "claim.Claim.let_go"),
        _not_started_and_retried,
        prepare=_claimed(slot()),
        occurrences=(slot(),),
    ),
    Operation(
        "durable-run", SETTLES, _durable_run, prepare=_claimed(slot()), occurrences=(slot(),)
    ),
    Operation(
        "keep-the-work-of-a-durable-turn",
        ("works.WorkStore.keep",),
        _keep_work,
        prepare=_claimed(slot()),
        after=_began_only_with_its_work,
        occurrences=(slot(),),
    ),
    Operation(
        "discard-the-work-of-a-durable-turn",
        ("works.WorkStore.discard",),
        _discard_work,
        prepare=_kept_work,
        occurrences=(slot(),),
    ),
    Operation(
        "settle-twice", SETTLES, _settle_twice, prepare=_claimed(slot()), occurrences=(slot(),)
    ),
    Operation(
        "settle-after-the-folder-was-taken-away",
        SETTLES,
        _settle,
        prepare=_folder_taken_away,
        occurrences=(slot(),),
    ),
    Operation(
        "settle-after-everything-was-taken-away",
        SETTLES,
        _settle,
        prepare=_everything_taken_away,
        occurrences=(slot(),),
    ),
    Operation(
        "reconcile",
        ("claims.ClaimStore.hold", *SETTLES),
        _reconcile,
        prepare=_lost,
        occurrences=(slot("09:00"), slot("09:01")),
    ),
    Operation(
        "sweep",
        ("claims.ClaimStore.sweep", "claims.ClaimStore.hold"),
        _sweep,
        prepare=_abandoned_draft,
        occurrences=(slot(), slot("10:00")),
    ),
]


# Cursors and counted records -------------------------------------------------------------------

NEWER = cursor(since=NOW + timedelta(hours=1))
COUNTED = missed(first=NOW - timedelta(days=2), count=3)


def _with_cursor(path: str) -> Any:
    state = _open(path)
    CursorStore(state).write(cursor())
    return state


def _write_cursor(state: Any, tell: Tell) -> None:
    CursorStore(state).write(NEWER)
    tell("done")


def _write_new_cursors(state: Any, tell: Tell) -> None:
    weekly = cursor("weekly")
    assert CursorStore(state).write_new([NEWER, weekly]) == [NEWER, weekly]
    tell("done")


def _cursor_is(*known: Any) -> Callable[[str, Told], None]:
    def after(path: str, told: Told) -> None:
        found = CursorStore(open_for_reading(path)).peek("daily")
        assert found in ([NEWER] if ["done"] in told else known)

    return after


def _with_torn_cursor(path: str) -> Any:
    state = _with_cursor(path)
    with open(state.at("cursors", "daily.json"), "w") as file:
        file.write('{"routine": "dai')
    return state


def _read_cursor(state: Any, tell: Tell) -> None:
    assert CursorStore(state).read("daily") is None
    tell("done")


def _is_kept_aside(place: str) -> Callable[[str, Told], None]:
    def after(path: str, told: Told) -> None:
        found = {"", ".corrupt"} & {
            ending
            for ending in ("", ".corrupt")
            if os.path.exists(os.path.join(path, place + ending))
        }
        assert len(found) == 1, "D6: what can't be read is kept"

    return after


def _give_up(state: Any, tell: Tell) -> None:
    CursorStore(state).give_up(missed())
    tell("done")


def _given_up(path: str) -> Any:
    state = _open(path)
    CursorStore(state).give_up(missed())
    return state


def _fill_in(state: Any, tell: Tell) -> None:
    CursorStore(state).fill_in(COUNTED)
    tell("done")


def _missed_is(*known: Any, done: Any) -> Callable[[str, Told], None]:
    def after(path: str, told: Told) -> None:
        found = [*CursorStore(open_for_reading(path)).missed("daily")]
        kept = [(one.last, one.count) for one in found]
        allowed = [done] if ["done"] in told else [*known, done]
        if any(word == "failed" for word, *_ in told) and [] in known:
            allowed = [[]]
        assert kept in [[(one.last, one.count) for one in case] for case in allowed]

    return after


CURSORS = [
    Operation(
        "first-cursor", ("cursors.CursorStore.write",), _write_cursor, after=_cursor_is(None, NEWER)
    ),
    Operation(
        "first-cursors",
        ("cursors.CursorStore.write_new",),
        _write_new_cursors,
        after=_cursor_is(None, NEWER),
    ),
    Operation(
        "next-cursor",
        ("cursors.CursorStore.write",),
        _write_cursor,
        prepare=_with_cursor,
        after=_cursor_is(cursor(), NEWER),
    ),
    Operation(
        "torn-cursor",
        ("cursors.CursorStore.read",),
        _read_cursor,
        prepare=_with_torn_cursor,
        after=_is_kept_aside("cursors/daily.json"),
    ),
    Operation(
        "give-up",
        ("cursors.CursorStore.give_up",),
        _give_up,
        after=_missed_is([], done=[missed()]),
    ),
    Operation(
        "give-up-again",
        ("cursors.CursorStore.give_up",),
        _give_up,
        prepare=_given_up,
        after=_missed_is(done=[missed()]),
    ),
    Operation(
        "fill-in",
        ("cursors.CursorStore.fill_in",),
        _fill_in,
        prepare=_given_up,
        after=_missed_is([missed()], done=[COUNTED]),
    ),
    Operation(
        "section",
        ("cursors.CursorStore.section",),
        lambda state, tell: CursorStore(state).section("daily", patience=0).__enter__(),
    ),
]


# Sessions --------------------------------------------------------------------------------------


def _session(path: str) -> Any:
    return SessionStore(open_for_reading(path))


def _take_session(state: Any, tell: Tell) -> None:
    lease = SessionStore(state).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease)
    lease.stamp(slot().claim_path)
    tell("stamped")
    lease.write(lease.ledger.with_(turns=1))
    tell("turns")
    lease.stamp(None)
    tell("cleared")
    lease.let_go()


def _ledger_follows(path: str, told: Told) -> None:
    """Each write is there or not, in the order in which they were made."""
    found = _session(path).peek(SESSION) or ledger(SESSION)
    steps = [(None, 0), (slot().claim_path, 0), (slot().claim_path, 1), (None, 1)]
    done = [word for word, *_ in told if word in ("stamped", "turns", "cleared")]
    assert (found.claim, found.turns) in steps[len(done) : len(done) + 2]
    lease = _session(path).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease), "the dead hold no session"
    lease.let_go()


def _open_session(state: Any, tell: Tell) -> None:
    lease = SessionStore(state).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease)
    lease.stamp(None, held_by="ana@studio", opened=opened())
    # The program is started here.
    tell("opened")
    tell("ended")
    lease.stamp(None)
    tell("cleared")
    lease.let_go()


def _opened_is_known(path: str, told: Told) -> None:
    """A program that may live keeps the session; and whoever knows that it has ended has it."""
    done = [word for word, *_ in told if word in ("opened", "ended", "cleared")]
    taken = _session(path).take(SESSION, clock=FakeClock())
    if isinstance(taken, Lease):
        assert done != ["opened"], "the program may be at work in it"
        taken.let_go()
    else:
        assert "cleared" not in done, "nobody is in it"
        assert taken.opened == opened()
        lease = _session(path).take(SESSION, clock=FakeClock(), past=taken.opened)
        assert isinstance(lease, Lease), "the dead hold no session"
        lease.let_go()


def _with_ledger(path: str) -> Any:
    state = _open(path)
    lease = SessionStore(state).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease)
    lease.write(ledger(SESSION, turns=3))
    return lease


def _forget(lease: Any, tell: Tell) -> None:
    lease.forget()
    lease.let_go()
    tell("done")


def _forgotten(path: str, told: Told) -> None:
    found = _session(path).peek(SESSION)
    assert found in (None, ledger(SESSION, turns=3))
    lease = _session(path).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease), "the dead hold no session"
    lease.let_go()


def _with_torn_ledger(path: str) -> Any:
    lease = _with_ledger(path)
    lease.let_go()
    with open(ledger_path(lease._state, SESSION), "w") as file:
        file.write("\0\0\0\0")
    return lease._state


def _read_ledger(state: Any, tell: Tell) -> None:
    assert SessionStore(state).read(SESSION) is None
    tell("done")


def _torn_ledger_aside(path: str, told: Told) -> None:
    place = os.path.relpath(ledger_path(open_for_reading(path), SESSION), path)
    _is_kept_aside(place)(path, told)


def _adopt_lease(lease: Any, tell: Tell) -> None:
    again = SessionStore(lease._state).adopt(SESSION, lease.fd)
    again.let_go()


SESSIONS = [
    Operation(
        "session",
        (
            "sessions.SessionStore.take",
            "sessions.Lease.write",
            "sessions.Lease.stamp",
            "sessions.Lease.let_go",
        ),
        _take_session,
        after=_ledger_follows,
    ),
    Operation(
        "open-session",
        (
            "sessions.SessionStore.take",
            "sessions.Lease.write",
            "sessions.Lease.stamp",
            "sessions.Lease.let_go",
        ),
        _open_session,
        after=_opened_is_known,
    ),
    Operation(
        "forget-session",
        ("sessions.Lease.forget", "sessions.Lease.let_go"),
        _forget,
        prepare=_with_ledger,
        after=_forgotten,
    ),
    Operation(
        "torn-ledger",
        ("sessions.SessionStore.read",),
        _read_ledger,
        prepare=_with_torn_ledger,
        after=_torn_ledger_aside,
    ),
    Operation(
        "adopt-lease",
        ("sessions.SessionStore.adopt",),
        _adopt_lease,
        prepare=_with_ledger,
        after=_forgotten,
    ),
]


# Cancels ---------------------------------------------------------------------------------------


def _cancels(path: str) -> CancelStore:
    return CancelStore(open_for_reading(path))


def _ask(state: Any, tell: Tell) -> None:
    CancelStore(state).ask(slot().ref, by="ana@studio", person=True, at=NOW)
    tell("done")


def _asked(path: str, told: Told) -> None:
    pending = _cancels(path).pending(slot().ref)
    if ["done"] in told:
        assert pending is not None, "D5: told that it was asked"
    if any(word == "failed" for word, *_ in told):
        assert pending is None, "D5: told that nothing was asked, and it happens later"


def _with_cancel(path: str) -> Any:
    state = _open(path)
    return state, CancelStore(state).ask(slot().ref, by="ana@studio", person=True, at=NOW)


def _accept(made: Any, tell: Tell) -> None:
    state, cancel = made
    assert CancelStore(state).accept(cancel)
    assert not CancelStore(state).withdraw(cancel)
    tell("done")


def _take_up_cancel(made: Any, tell: Tell) -> None:
    state, cancel = made
    assert CancelStore(state).take_up(cancel.ref) == cancel
    tell("taken up")


def _still_called_off(path: str, told: Told) -> None:
    found = _cancels(path)
    assert found.pending(slot().ref) or found.accepted(slot().ref), "a cancel was lost"
    if ["taken up"] in told:
        # Whoever took it up may have been kept from writing what follows: it holds for the next.
        assert CancelStore(_open(path)).take_up(slot().ref), "a cancel that was accepted was lost"
        assert found.pending(slot().ref) is None, "D5: told that it was accepted"


def _withdraw(made: Any, tell: Tell) -> None:
    state, cancel = made
    assert CancelStore(state).withdraw(cancel)
    assert not CancelStore(state).accept(cancel)
    tell("withdrawn")


def _not_pending(path: str, told: Told) -> None:
    if told and told[-1][0] == "withdrawn":
        assert _cancels(path).pending(slot().ref) is None, "D5: told that it was withdrawn"


def _clear(made: Any, tell: Tell) -> None:
    CancelStore(made[0]).clear(slot().ref)
    tell("done")


CANCELS = [
    Operation("ask", ("cancels.CancelStore.ask", "objects.write"), _ask, after=_asked),
    Operation(
        "accept",
        ("cancels.CancelStore.accept", "cancels.CancelStore.withdraw"),
        _accept,
        prepare=_with_cancel,
    ),
    Operation(
        "withdraw",
        ("cancels.CancelStore.withdraw", "cancels.CancelStore.accept"),
        _withdraw,
        prepare=_with_cancel,
        after=_not_pending,
    ),
    Operation(
        "take up cancel",
        ("cancels.CancelStore.take_up",),
        _take_up_cancel,
        prepare=_with_cancel,
        after=_still_called_off,
    ),
    Operation("clear", ("cancels.CancelStore.clear",), _clear, prepare=_with_cancel),
]


# Switches --------------------------------------------------------------------------------------


def _pause(state: Any, tell: Tell) -> None:
    SwitchStore(state).write(Switch("digest", "ana@studio", NOW, None, "holiday"))
    tell("done")


def _paused(path: str, told: Told) -> None:
    switch = SwitchStore(open_for_reading(path)).read("digest")
    if ["done"] in told:
        assert switch is not None, "D5: told that it is paused"


def _with_switch(path: str) -> Any:
    state = _open(path)
    SwitchStore(state).write(Switch("digest", "ana@studio", NOW, None, "holiday"))
    return state


def _resume(state: Any, tell: Tell) -> None:
    assert SwitchStore(state).end("digest", by="ben@studio", at=NOW)
    tell("done")


def _resumed(path: str, told: Told) -> None:
    if ["done"] in told:
        switches = SwitchStore(open_for_reading(path))
        assert switches.read("digest") is None, "D5: told that it is resumed"
        resumed = switches.resumed("digest")
        assert resumed is not None, "L20: told that it is resumed, and by whom is lost"
        assert resumed.by == "ben@studio"


SWITCHES = [
    Operation("pause", ("switches.SwitchStore.write", "objects.write"), _pause, after=_paused),
    Operation(
        "resume", ("switches.SwitchStore.end",), _resume, prepare=_with_switch, after=_resumed
    ),
]


# Schedulers ------------------------------------------------------------------------------------


def _enter_beat_leave(state: Any, tell: Tell) -> None:
    store = SchedulerStore(state)
    fd = store.enter(scheduler())
    tell("entered")
    store.beat(scheduler(beat_at=NOW + timedelta(seconds=15)))
    store.leave(scheduler(ended_at=NOW + timedelta(seconds=20), why="stopped"), fd)
    tell("left")


def _scheduler_is_known(path: str, told: Told) -> None:
    store = SchedulerStore(open_for_reading(path))
    for _, held in store.live():
        assert not held, "the dead look alive"
    if ["left"] in told:
        assert [one.why for one in store.past()] == ["stopped"]
    for one, _ in [*store.live()]:
        store.leave(one, None)
    assert not [*store.live()]


SCHEDULERS = [
    Operation(
        "scheduler",
        (
            "schedulers.SchedulerStore.enter",
            "schedulers.SchedulerStore.beat",
            "schedulers.SchedulerStore.leave",
            "objects.write",
        ),
        _enter_beat_leave,
        after=_scheduler_is_known,
    ),
]


# Places ----------------------------------------------------------------------------------------


def _place(state: Any, tell: Tell) -> None:
    places = PlaceStore(state)
    first = places.take(places=2, group="disk")
    second = places.take(places=2, group=None)
    assert isinstance(first, Room)
    assert isinstance(second, Room)
    assert isinstance(places.take(places=2, group=None), str)
    assert isinstance(places.take(places=3, group="disk"), str)
    first.let_go()


def _places_are_free(path: str, told: Told) -> None:
    room = PlaceStore(open_for_reading(path)).take(places=1, group="disk")
    assert isinstance(room, Room), "the dead hold no place"
    room.let_go()


PLACES = [
    Operation(
        "place", ("places.PlaceStore.take", "places.Room.let_go"), _place, after=_places_are_free
    ),
]


# Replies ---------------------------------------------------------------------------------------


def _put_reply(state: Any, tell: Tell) -> None:
    replies.put(state.at("out"), "digest.md", "3 PRs merged\n")
    tell("done")


def _reply_is_whole(path: str, told: Told) -> None:
    found = files.read(os.path.join(path, "out", "digest.md"))
    assert found in ([b"3 PRs merged\n"] if ["done"] in told else [None, b"3 PRs merged\n"])


def _with_journal(path: str) -> Any:
    state = _open(path)
    replies.add(state.at("journal.md"), "before\n")
    return state


def _add_reply(state: Any, tell: Tell) -> None:
    replies.add(state.at("journal.md"), "## digest\n\nnow\n")
    tell("done")


def _journal_keeps_what_was_there(path: str, told: Told) -> None:
    found = files.read(os.path.join(path, "journal.md")) or b""
    assert found.startswith(b"before\n"), "what was delivered before is lost"
    assert ["done"] not in told or found.endswith(b"## digest\n\nnow\n")


REPLIES = [
    Operation("put-a-reply", ("replies.put",), _put_reply, after=_reply_is_whole),
    Operation(
        "add-a-reply",
        ("replies.add",),
        _add_reply,
        prepare=_with_journal,
        after=_journal_keeps_what_was_there,
    ),
]


# Alerts ----------------------------------------------------------------------------------------

OPEN_ALERT = WasTold(open=True, kind="failing", at=NOW, word="alert", title="daily: needs you")
RECOVERED = WasTold(kind="failing", at=NOW, recovered_at=NOW + timedelta(hours=1), word="recovery")


def _tell_first(state: Any, tell: Tell) -> None:
    AlertStore(state).write("daily", {"turns": OPEN_ALERT})
    tell("done")


def _with_alert(path: str) -> Any:
    state = _open(path)
    AlertStore(state).write("daily", {"turns": OPEN_ALERT})
    return state


def _tell_next(state: Any, tell: Tell) -> None:
    with AlertStore(state).section("daily"):
        AlertStore(state).write("daily", {"turns": RECOVERED})
    tell("done")


def _told_is(before: Any, after: Any) -> Callable[[str, Told], None]:
    def check(path: str, told: Told) -> None:
        found = AlertStore(open_for_reading(path)).peek("daily").get("turns")
        assert found in ([after] if ["done"] in told else [before, after])

    return check


def _with_torn_alert(path: str) -> Any:
    state = _with_alert(path)
    with open(state.at("alerts", "daily.json"), "w") as file:
        file.write('{"routine": "dai')
    return state


def _read_alert(state: Any, tell: Tell) -> None:
    assert AlertStore(state).read("daily") == {}
    tell("done")


ALERTS = [
    Operation(
        "first-alert",
        ("alerts.AlertStore.write",),
        _tell_first,
        after=_told_is(None, OPEN_ALERT),
    ),
    Operation(
        "next-alert",
        ("alerts.AlertStore.write", "alerts.AlertStore.section"),
        _tell_next,
        prepare=_with_alert,
        after=_told_is(OPEN_ALERT, RECOVERED),
    ),
    Operation(
        "torn-alert",
        ("alerts.AlertStore.read",),
        _read_alert,
        prepare=_with_torn_alert,
        after=_is_kept_aside("alerts/daily.json"),
    ),
]


# The folder itself -----------------------------------------------------------------------------


def _create(path: str, tell: Tell) -> None:
    tell("workspace", open_for_writing(path, boot=BOOT).workspace)


def _same_workspace(path: str, told: Told) -> None:
    for word, *rest in told:
        if word == "workspace":
            assert open_for_reading(path).workspace == rest[0]


def _existing(path: str) -> str:
    _open(path)
    return path


def _on_another_boot(path: str, tell: Tell) -> None:
    before = open_for_reading(path).workspace
    tell("workspace", before)
    assert open_for_writing(path, boot=OTHER_BOOT).workspace == before


def _adopt(fork: bool) -> Callable[[str, Tell], None]:
    def act(path: str, tell: Tell) -> None:
        before = open_for_reading(path).workspace
        if not fork:
            tell("workspace", before)
        after = adopt(path, boot=BOOT, fork=fork).workspace
        assert (after == before) != fork
        if fork:
            tell("workspace", after)

    return act


STATE = [
    Operation(
        "create-state",
        ("state.open_for_writing",),
        _create,
        prepare=lambda path: path,
        after=_same_workspace,
    ),
    Operation(
        "state-on-another-boot",
        ("state.open_for_writing",),
        _on_another_boot,
        prepare=_existing,
        after=_same_workspace,
    ),
    Operation(
        "adopt", ("state.adopt",), _adopt(fork=False), prepare=_existing, after=_same_workspace
    ),
    Operation(
        "fork", ("state.adopt",), _adopt(fork=True), prepare=_existing, after=_same_workspace
    ),
]


# Wake-ups --------------------------------------------------------------------------------------

ALARM = Wakeup(
    id="w-7k3m9q",
    session=SESSION,
    prompt="look at the build",
    timing=Timing.AT,
    asked="at 09:00",
    schedule=None,
    tz="UTC",
    next_at=NOW,
    asked_for=NOW,
    created_at=NOW - timedelta(hours=1),
    created_by="ana@studio",
)
DAYS_LATER = NOW + timedelta(days=2)


def _wakeups(state: Any) -> tuple[WakeupStore, ClaimStore]:
    return WakeupStore(state), ClaimStore(state)


def _firings(state: Any) -> tuple[FiringStore, ClaimStore]:
    return FiringStore(state), ClaimStore(state)


def _wake(state: Any, tell: Tell) -> None:
    request = WakeRequest(prompt="look", in_="10m", session=SESSION, by="ana@studio")
    made = _wakeups(state)[0].wake(request, now=NOW, bounds=Bounds(), zone_key="UTC")
    assert isinstance(made, Wakeup)
    tell("pending")


def _wake_again(state: Any, tell: Tell) -> None:
    request = WakeRequest(prompt=ALARM.prompt, at="2026-07-01T09:00:00Z", session=SESSION)
    before = NOW - timedelta(minutes=30)
    found = _wakeups(state)[0].wake(request, now=before, bounds=Bounds(), zone_key="UTC")
    assert isinstance(found, AlreadySet)
    tell("pending")


def _add_alarm(state: Any, tell: Tell) -> None:
    assert _wakeups(state)[0].add(ALARM)
    tell("pending")


def _with_alarm(path: str) -> Any:
    state = _open(path)
    assert _wakeups(state)[0].add(ALARM)
    return state


def _take_alarm(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    (hint,) = WakeupStore(state).due(NOW)
    assert store.plan(hint, claims=claims, now=NOW, bounds=Bounds(), place=UTC_ZONE)
    _fire(store, claims, tell)


def _fire(store: FiringStore, claims: ClaimStore, tell: Tell) -> None:
    claim = store.take(
        SESSION, ALARM.id, NOW, claims=claims, at=NOW, bounds=Bounds(), place=UTC_ZONE
    )
    assert claim is not None
    tell("claimed", claim.record.path)


def _skip_alarm(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    busy = Skip(NOW, Reason.BUSY)
    record = store.settle_skipped(SESSION, ALARM.id, busy, claims=claims, at=NOW)
    assert record is not None
    tell("settled", record.path, "skipped")


def _alarm_claimed_by_the_dead(path: str) -> Any:
    state = _with_alarm(path)
    claim = ClaimStore(state).take(draft(firing()), at=NOW)
    assert claim is not None
    claim.let_go()
    return state


def _plan_what_is_claimed(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    for hint in WakeupStore(state).due(NOW):
        assert not store.plan(hint, claims=claims, now=NOW, bounds=Bounds(), place=UTC_ZONE)


def _defer(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    until = NOW + timedelta(seconds=30)
    assert store.defer(SESSION, ALARM.id, NOW, until=until, claims=claims, at=NOW)
    tell("pending")


def _postpone(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    until = NOW + timedelta(days=1)
    assert store.postpone(SESSION, ALARM.id, NOW, until=until, claims=claims, at=NOW)
    tell("pending")


def _with_torn_alarm(path: str) -> Any:
    state = _with_alarm(path)
    with open(state.at("wakeups", session_folder(SESSION), f"{ALARM.id}.json"), "w") as file:
        file.write('{"id": "w-7k3')
    return state


def _hold_torn(state: Any, tell: Tell) -> None:
    store, claims = _wakeups(state)
    assert not store.unwake(SESSION, ALARM.id, claims=claims, by="ana@studio", at=NOW).stopped
    tell("done")


def _unwake(state: Any, tell: Tell) -> None:
    store, claims = _wakeups(state)
    assert store.unwake(SESSION, ALARM.id, claims=claims, by="ana@studio", at=NOW).stopped
    tell("gone")


def _without_hint(path: str) -> Any:
    state = _with_alarm(path)
    shutil.rmtree(state.at("wakeups", "due"))
    return state


def _repair(state: Any, tell: Tell) -> None:
    _wakeups(state)[0].repair()


def _fires(*allowed: int, failed: tuple[int, ...] = ()) -> Callable[[str, Told], None]:
    """Check how often the alarm fires in all, whatever was interrupted: *allowed* times."""

    def after(path: str, told: Told) -> None:
        state = _open(path)
        store, claims = _wakeups(state)
        firings = FiringStore(state)
        store.repair()
        for pending in store.pending(SESSION):
            hints = [hint.look_at for hint in store.due(DAYS_LATER) if hint.id == pending.id]
            assert pending.look_at in hints, "a pending alarm that nobody looks at"
        for _ in range(2):
            for hint in store.due(DAYS_LATER):
                found = firings.plan(
                    hint, claims=claims, now=DAYS_LATER, bounds=Bounds(), place=UTC_ZONE
                )
                if found is None:
                    continue
                claim = firings.take(
                    SESSION,
                    hint.id,
                    found[0].next_at,
                    claims=claims,
                    at=DAYS_LATER,
                    bounds=Bounds(),
                    place=UTC_ZONE,
                )
                assert claim is not None, "it is due, and nobody has it"
                claim.settle(Outcome.COMPLETED, at=DAYS_LATER)
                claim.let_go()
        assert not store.pending(SESSION)
        assert not store.due(DAYS_LATER)
        fired = [one for one in claim_files(path) if one.startswith("claims/wake/")]
        words = {word for word, *_ in told}
        times = {1} if words & {"pending", "claimed", "settled"} else set(allowed)
        if "gone" in words:
            times = {0}
        if "failed" in words and failed:
            times = set(failed)
        assert len(fired) in times, f"it fired {len(fired)} times, told {told}"

    return after


# What a wake-up's operation is made of, in the modules below the one that is asked.
_WAKE_COVERS = {
    "wake": ("wakeups.WakeupStore.wake", "wake_entries.Entries.readable"),
    "add": ("wakeups.WakeupStore.add", "wake_entries.Entries.add", "wake_hints.Hints.make"),
    "take": ("wake_firings.FiringStore.take", "wake_entries.Entries.move_on"),
    "settle_skipped": ("wake_firings.FiringStore.settle_skipped", "wake_hints.Hints.drop"),
    "plan": ("wake_firings.FiringStore.plan", "wake_entries.Entries.sync"),
    "defer": ("wake_firings.FiringStore.defer",),
    "postpone": ("wake_firings.FiringStore.postpone",),
    "hold": ("wake_entries.Entries.hold", "wake_entries.Entries.locked"),
    "unwake": ("wakeups.WakeupStore.unwake", "wake_entries.Entries.held"),
    "repair": (
        "wakeups.WakeupStore.repair",
        "wake_entries.Entries.forget_hint",
        "wake_hints.Hints.make_anew",
    ),
}


MANAGED = WakeRequest(
    prompt="look at the build",
    at="2026-07-01T09:00:00Z",
    session=SESSION,
    by="host",
    key="build",
    fingerprint="1",
)
EARLIER = NOW - timedelta(minutes=30)
MANAGED_ID = keyed_id(SESSION, "build")
_WHEN: dict[str, Any] = {"now": EARLIER, "bounds": Bounds(), "zone_key": "UTC"}


def _create(state: Any, tell: Tell) -> None:
    assert ManagedStore(state).create(MANAGED, **_WHEN).new
    tell("pending")


def _managed(path: str) -> Any:
    state = _open(path)
    ManagedStore(state).create(MANAGED, **_WHEN)
    return state


def _create_again(state: Any, tell: Tell) -> None:
    assert not ManagedStore(state).create(MANAGED, **_WHEN).new
    tell("pending")


def _update(state: Any, tell: Tell) -> None:
    change = Change(at="2026-07-01T12:00:00Z", prompt="another")
    made = ManagedStore(state).change(
        SESSION,
        MANAGED_ID,
        1,
        lambda one, company: updated(one, change, company, now=EARLIER, by="ana"),
        **_WHEN,
    )
    assert made.revision == 2
    tell("pending", "updated")


def _is_one_or_the_other(path: str, told: Told) -> None:
    """Whole in the one revision or the other, and in the newer one if that was said."""
    known = ManagedStore(_open(path)).known(SESSION, MANAGED_ID)
    assert known is not None
    found = (known.wakeup.revision, known.wakeup.prompt, known.wakeup.next_at.hour)
    assert found in {(1, "look at the build", 9), (2, "another", 12)}
    if ["pending", "updated"] in told:
        assert found[0] == 2
    _fires(1)(path, told)


def _hold_back(state: Any, tell: Tell) -> None:
    store = ManagedStore(state)
    store.change(SESSION, MANAGED_ID, 1, lambda one, _: paused(one, now=EARLIER, by="ana"), **_WHEN)
    tell("paused")


def _is_paused_or_not(path: str, told: Told) -> None:
    state = _open(path)
    store, known = WakeupStore(state), ManagedStore(state).known(SESSION, MANAGED_ID)
    store.repair()
    assert known is not None
    assert known.pending
    if ["paused"] in told:
        assert known.wakeup.paused_at is not None
    if known.wakeup.paused_at is None:
        _fires(1)(path, told)
        return
    firings, claims = _firings(state)
    for hint in store.due(DAYS_LATER):
        planned = firings.plan(hint, claims=claims, now=DAYS_LATER, bounds=Bounds(), place=UTC_ZONE)
        assert planned is None, "what is paused is planned"
    assert [one for one in store.pending_all(10) if one.id == MANAGED_ID], "nobody sees it"


def _end_managed(state: Any, tell: Tell) -> None:
    ManagedStore(state).cancel(SESSION, MANAGED_ID, 1, by="ana", at=EARLIER)
    tell("gone")


def _is_remembered(path: str, told: Told) -> None:
    """Whatever happened, its key is not free: the same creation again makes no second one."""
    state = _open(path)
    made = ManagedStore(state).create(MANAGED, **_WHEN)
    assert not made.new
    if ["gone"] in told:
        assert made.wakeup.cancelled_at is not None
    _fires(0, 1, failed=(1,))(path, told)
    assert not ManagedStore(state).create(MANAGED, **_WHEN).new


def _take_managed(state: Any, tell: Tell) -> None:
    store, claims = _firings(state)
    claim = store.take(
        SESSION, MANAGED_ID, NOW, claims=claims, at=NOW, bounds=Bounds(), place=UTC_ZONE
    )
    assert claim is not None
    tell("claimed", claim.record.path)


def _ended(path: str) -> Any:
    state = _managed(path)
    ManagedStore(state).cancel(SESSION, MANAGED_ID, 1, by="ana", at=EARLIER)
    return state


def _forget_ended(state: Any, tell: Tell) -> None:
    ManagedStore(state).prune(DAYS_LATER)


def _is_forgotten_or_whole(path: str, told: Told) -> None:
    known = ManagedStore(_open(path)).known(SESSION, MANAGED_ID)
    # Nothing is promised of what has been forgotten: a power cut may bring it back.
    assert known is None or known.wakeup.cancelled_at is not None


def _managed_operation(
    name: str, covers: tuple[str, ...], act: Callable[[Any, Tell], None], **more: Any
) -> Operation:
    return Operation(f"managed-{name}", covers, act, **{"prepare": _managed, **more})


MANAGED_OPERATIONS = [
    _managed_operation(
        "create",
        ("wake_managing.ManagedStore.create",),
        _create,
        prepare=_open,
        after=_fires(0, 1, failed=(0,)),
    ),
    _managed_operation("create-again", (), _create_again, after=_fires(1)),
    _managed_operation(
        "update", ("wake_managing.ManagedStore.change",), _update, after=_is_one_or_the_other
    ),
    _managed_operation("pause", (), _hold_back, after=_is_paused_or_not),
    _managed_operation(
        "cancel",
        ("wake_managing.ManagedStore.cancel", "wake_entries.Entries.cancel"),
        _end_managed,
        after=_is_remembered,
    ),
    _managed_operation("take", (), _take_managed, after=_is_remembered),
    _managed_operation(
        "prune",
        ("wake_managing.ManagedStore.prune", "wake_entries.Entries.forget_ended"),
        _forget_ended,
        prepare=_ended,
        after=_is_forgotten_or_whole,
    ),
]


def _wake_operation(name: str, act: Callable[[Any, Tell], None], **more: Any) -> Operation:
    known: dict[str, Any] = {"prepare": _with_alarm, "after": _fires(1)}
    return Operation(f"wake-{name}", _WAKE_COVERS[name], act, **known | more)


def _also(operation: Operation, name: str, **changes: Any) -> Operation:
    return replace(operation, name=f"{operation.name}-{name}", **changes)


WAKEUPS = [
    _wake_operation("wake", _wake, prepare=_open, after=_fires(0, 1, failed=(0,))),
    _also(_wake_operation("wake", _wake_again), "again"),
    _wake_operation("add", _add_alarm, prepare=_open, after=_fires(0, 1, failed=(0,))),
    _wake_operation("take", _take_alarm),
    _also(
        _wake_operation("take", lambda state, tell: _fire(*_firings(state), tell)),
        "over-a-dead-draft",
        prepare=lambda path: (_with_alarm(path), _dead_draft(firing())(path))[1],
    ),
    _wake_operation("settle_skipped", _skip_alarm),
    _wake_operation("plan", _plan_what_is_claimed, prepare=_alarm_claimed_by_the_dead),
    _wake_operation("defer", _defer),
    _wake_operation("postpone", _postpone),
    _wake_operation(
        "hold",
        _hold_torn,
        prepare=_with_torn_alarm,
        after=_is_kept_aside(f"wakeups/{session_folder(SESSION)}/{ALARM.id}.json"),
    ),
    _wake_operation("unwake", _unwake, after=_fires(0, 1, failed=(1,))),
    _wake_operation("repair", _repair, prepare=_without_hint),
    *MANAGED_OPERATIONS,
]


# What goes -------------------------------------------------------------------------------------

OLD = (slot("2026-05-01 09:00"), slot("2026-05-02 09:00"), slot("2026-05-02 10:00"))
NEWEST = slot("2026-05-03 09:00")


def _old_claims(path: str) -> Any:
    """Two that are settled and old, an old one that is open, and the newest of all."""
    claims = _claimed(*OLD, NEWEST)(path)
    for claim in claims[:1] + claims[2:]:
        claim.settle(Outcome.COMPLETED, at=NOW)
    for claim in claims:
        claim.let_go()
    return claims[0]._state


def _prune(state: Any, tell: Tell) -> None:
    RetentionStore(state, clock=FakeClock()).prune(Keep(claims=1, days=1), now=NOW)
    assert not ClaimStore(state).is_claimed(OLD[0])


def _keeps_open_and_newest(path: str, told: Told) -> None:
    kept = claim_files(path)
    assert OLD[1].claim_path in kept, "D8: an open claim is kept"
    assert NEWEST.claim_path in kept, "D8: the newest claim is kept"


def _sync_claim(state: Any, tell: Tell) -> None:
    ClaimStore(state).sync(slot())
    tell("already", slot().claim_path)


REST = [
    Operation(
        "prune",
        ("retention.RetentionStore.prune",),
        _prune,
        prepare=_old_claims,
        after=_keeps_open_and_newest,
    ),
    Operation(
        "sync-a-claim",
        ("claims.ClaimStore.sync",),
        _sync_claim,
        prepare=_claimed_by_the_dead(slot()),
        occurrences=(slot(),),
    ),
]

# What can be asked again ------------------------------------------------------------------------

MARK = Mark(path="/usr/bin/agent", size=7, changed=1, inode=2)


def _remember_version(state: Any, tell: Tell) -> None:
    ProgramStore(state).remember(MARK, ("--version",), "1.2.3", now=NOW)


def _version_is_whole(path: str, told: Told) -> None:
    answered = ProgramStore(_open(path)).read(MARK, ("--version",), now=NOW)
    assert answered in (None, Answered("1.2.3")), "half an answer"


REST.append(
    Operation(
        "remember-a-version",
        ("programs.ProgramStore.remember",),
        _remember_version,
        after=_version_is_whole,
    )
)

NATIVE = "ses_4f2a"


def _take_native(state: Any, tell: Tell) -> None:
    told = NativeStore(state).take(NATIVE, program="agent", session=SESSION)
    assert told is None
    lease = SessionStore(state).take(SESSION, clock=FakeClock())
    assert isinstance(lease, Lease)
    lease.write(ledger(session=SESSION, native_session=NATIVE))
    lease.let_go()
    tell("taken")


def _native_has_one_session(path: str, told: Told) -> None:
    state = _open(path)
    known = SessionStore(state).peek(SESSION)
    written = known is not None and known.native_session == NATIVE
    other = NativeStore(state).take(NATIVE, program="agent", session="wake:x")
    assert other == (SESSION if written else None), "two sessions have one conversation"
    assert written or ["taken"] not in told


def _forgotten_native(path: str) -> Any:
    state = _open(path)
    NativeStore(state).take(NATIVE, program="agent", session="routine:gone")
    return state


REST += [
    Operation(
        "take-a-native-session",
        ("natives.NativeStore.take",),
        _take_native,
        after=_native_has_one_session,
    ),
    Operation(
        "prune-native-sessions",
        ("natives.NativeStore.prune",),
        lambda state, tell: tell("pruned", NativeStore(state).prune()),
        prepare=_forgotten_native,
        after=_native_has_one_session,
    ),
]

JOBS = job_operations.operations(Operation)

OPERATIONS = [
    *CLAIMS,
    *CURSORS,
    *SESSIONS,
    *CANCELS,
    *SWITCHES,
    *SCHEDULERS,
    *PLACES,
    *REPLIES,
    *ALERTS,
    *STATE,
    *WAKEUPS,
    *JOBS,
    *REST,
]
