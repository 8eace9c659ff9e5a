"""Wake-ups on disk: nothing vanishes in silence, nothing fires twice (PROMISES W1 to W6)."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event
from routines.domain.wake_firing import Fire, Skip, Wait, plan_busy
from routines.domain.wake_request import AlreadySet, WakeRequest
from routines.domain.wakeup import Bounds
from routines.domain.zones import zone
from routines.errors import NotDurable, StoreBusy, StoreError, WakeupRefused
from routines.store import files, locks
from routines.store.claims import ClaimStore
from routines.store.state import State
from routines.store.wake_entries import Entries, lock_path, session_folder
from routines.store.wake_firings import FiringStore
from routines.store.wake_hints import Hint
from routines.store.wakeups import Unwoken, WakeupStore

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
BERLIN = "Europe/Berlin"
PLACE = zone(BERLIN)
SESSION = "routine:daily"
MINUTE = timedelta(minutes=1)
MIDNIGHT = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)  # in Berlin


def later(**span):
    return NOON + timedelta(**span)


@pytest.fixture
def store(state: State) -> WakeupStore:
    return WakeupStore(state)


@pytest.fixture
def claims(state: State) -> ClaimStore:
    return ClaimStore(state)


class Unsynced(files.Calls):
    """The real calls but for the sync: the kernel outlives the process, so it changes nothing."""

    @staticmethod
    def fsync(fd: int) -> None:
        os.fstat(fd)


@pytest.fixture(autouse=True)
def _calls():
    real, files.calls = files.calls, Unsynced()
    yield
    files.calls = real


def as_a_new_process() -> None:
    """Forget what only memory knows, as the end of a process does."""
    files.calls = Unsynced()
    for fd in tuple(locks._held):
        locks.let_go(fd)


def unwake(store, wakeup_id, *, session=SESSION):
    claims = ClaimStore(store._state)
    return store.unwake(session, wakeup_id, claims=claims, by="ana@studio", at=NOON)


def cancel(store, wakeup_id, *, session=SESSION):
    found = unwake(store, wakeup_id, session=session)
    return found.wakeup if found.stopped else None


def ask(store, *, session=SESSION, now=NOON, bounds=None, prompt="look", **words):
    request = WakeRequest(prompt=prompt, session=session, by="w/daily@x", turn="w/daily@x", **words)
    return store.wake(request, now=now, bounds=bounds or Bounds(), zone_key=BERLIN)


def plan(store, hint, now, claims, bounds=None):
    return FiringStore(store._state).plan(
        hint, claims=claims, now=now, bounds=bounds or Bounds(), place=PLACE
    )


def take(store, wakeup, instant, claims, *, at=None, passed=None, bounds=None, **more):
    return FiringStore(store._state).take(
        wakeup.session,
        wakeup.id,
        instant,
        claims=claims,
        at=at or instant,
        bounds=bounds or Bounds(),
        place=PLACE,
        passed=passed,
        **more,
    )


def look(store, claims, now, *, busy=False, bounds=None):
    """Do what an engine does with all that is due; return what was fired and what was skipped."""
    firings, fired, skipped = FiringStore(store._state), [], []
    for hint in store.due(now):
        planned = plan(store, hint, now, claims, bounds)
        if planned is None:
            continue
        wakeup, due = planned
        if busy and isinstance(due, Fire):
            due = plan_busy(wakeup, due, now=now)
        match due:
            case Fire():
                claim = take(
                    store, wakeup, due.instant, claims, at=now, passed=due.passed, bounds=bounds
                )
                if claim is not None:
                    fired.append((wakeup.id, due.instant))
                    claim.settle(Outcome.COMPLETED, at=now)
                    claim.let_go()
            case Skip():
                record = firings.settle_skipped(
                    wakeup.session, wakeup.id, due, claims=claims, at=now
                )
                if record is not None:
                    skipped.append((wakeup.id, due.instant, record.reason))
            case Wait(limit=True):
                firings.postpone(
                    wakeup.session,
                    wakeup.id,
                    wakeup.next_at,
                    until=due.until,
                    claims=claims,
                    at=now,
                )
            case Wait() if busy:
                firings.defer(
                    wakeup.session,
                    wakeup.id,
                    wakeup.next_at,
                    until=due.until,
                    claims=claims,
                    at=now,
                )
    return fired, skipped


def below(state: State, *parts: str) -> list[str]:
    """Every file under the state folder, drafts included."""
    root = state.at(*parts)
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    )


def hints(state: State) -> list[str]:
    return [path.rpartition("/")[2] for path in below(state, "wakeups", "due")]


# Setting -------------------------------------------------------------------------------------


def test_what_is_set_is_an_entry_and_a_hint(store, state):
    one = ask(store, in_="10m")
    assert store.pending(SESSION) == [one]
    assert below(state, "wakeups") == [
        f"due/2026-11-29/12/2026-11-29T12-10-00Z~routine%3Adaily~{one.id}",
        f"routine%3Adaily/{one.id}.json",
    ]
    with open(state.at("wakeups", "routine%3Adaily", f"{one.id}.json")) as file:
        assert json.load(file)["prompt"] == "look"


def test_what_is_pending_is_found_by_session_id_and_for_all(store):
    here = ask(store, in_="10m")
    there = ask(store, in_="5m", session="host session/2")
    assert store.read(SESSION, here.id) == here
    assert store.read("host session/2", here.id) is None
    assert store.find(there.id) == there
    assert store.find("../../etc/passwd") is None
    assert store.pending_all(10) == [there, here]
    assert store.pending_all(1) == [there]
    assert store.count() == (2, 2)


def test_sessions_whose_names_are_odd_do_not_meet(store, state):
    odd = ["due", "Due", "a/b", "a%2Fb", "..", "x" * 300, "x" * 301, "名前", "a~b", "con"]
    set_ = {name: ask(store, in_="10m", session=name) for name in odd}
    assert {name: store.pending(name) for name in odd} == {k: [v] for k, v in set_.items()}
    assert len(store.due(later(minutes=10))) == len(odd)
    assert all(len(os.fsencode(name)) < 256 for name in hints(state))


def test_a_session_never_shares_the_folder_of_the_hints():
    assert session_folder("due") == "%64ue"
    assert session_folder("DUE") == "%44UE"


def test_a_look_finds_what_is_due_and_nothing_else(store):
    soon, far = ask(store, in_="10m"), ask(store, in_="60d", prompt="far")
    assert store.due(later(minutes=9, seconds=59)) == []
    assert [hint.id for hint in store.due(later(minutes=10))] == [soon.id]
    # BR-18: 60 days ahead is no special distance.
    assert [hint.id for hint in store.due(later(days=60))] == [soon.id, far.id]


def test_the_next_instant_to_look_at_is_known_without_a_walk(store, monkeypatch):
    assert store.next_due(NOON) is None
    for n in range(8):
        ask(store, in_=f"{n + 1}d", prompt=str(n))
    ask(store, in_="10m")
    listed = []
    real = files.names
    monkeypatch.setattr(files, "names", lambda path: listed.append(path) or real(path))
    assert store.next_due(NOON) == later(minutes=10)
    assert len(listed) == 3  # the days, the hours of one day, one hour
    assert store.next_due(later(minutes=10)) == later(days=1)


def test_a_look_opens_no_entry_of_what_is_not_due(store, state, monkeypatch):
    for n in range(18):
        ask(store, in_=f"{n + 1}d", prompt=str(n))
    listed = []
    real = files.names
    monkeypatch.setattr(files, "names", lambda path: listed.append(path) or real(path))
    monkeypatch.setattr(files, "read", lambda path: pytest.fail(f"{path} was read"))
    assert store.due(NOON) == []
    assert len(listed) <= 4  # the days, and the hours of the first


def test_empty_folders_go_with_their_last_hint(store, state, claims):
    ask(store, in_="10m")
    look(store, claims, later(minutes=10))
    assert os.listdir(state.at("wakeups")) == ["due"]
    assert os.listdir(state.at("wakeups", "due")) == []


# BR-21: five hundred identical calls and five hundred distinct ones in one turn.
def test_a_thousand_calls_in_one_turn_leave_twenty_wakeups(store):
    answers = [ask(store, in_="10m") for _ in range(500)]
    assert sum(not isinstance(one, AlreadySet) for one in answers) == 1
    refused = 0
    for n in range(500):
        try:
            ask(store, in_="10m", prompt=f"look {n}")
        except WakeupRefused:
            refused += 1
    assert refused == 481
    assert len(store.pending(SESSION)) == 20
    with pytest.raises(WakeupRefused, match="20 of 20"):
        ask(store, in_="10m", prompt="one more")


def test_two_calls_at_once_can_not_both_be_the_last_one(store, state):
    bounds = Bounds(pending=3)
    barrier, results = threading.Barrier(8), []

    def call(n):
        barrier.wait()
        try:
            results.append(ask(WakeupStore(state), in_="10m", prompt=str(n), bounds=bounds))
        except WakeupRefused:
            results.append(None)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one is not None for one in results) == 3
    assert len(store.pending(SESSION)) == 3


def test_while_another_process_changes_them_nothing_is_changed(store, state, monkeypatch):
    one = ask(store, in_="10m")
    monkeypatch.setattr(
        Entries,
        "locked",
        lambda self, folder, patience=0.05: files.section(
            lock_path(self._state, SESSION), patience=0.05, what="what is pending"
        ),
    )
    before = below(state, "wakeups")
    with files.section(lock_path(state, SESSION)):
        for change in (
            lambda: ask(store, in_="20m"),
            lambda: cancel(store, one.id),
            lambda: store.add(one.with_(id="w-000000")),
            lambda: take(store, one, one.next_at, ClaimStore(state)),
            lambda: unwake(store, one.id),
        ):
            with pytest.raises(StoreBusy, match="what is pending"):
                change()
        # Reading takes no lock.
        assert store.pending(SESSION) == [one]
        assert store.find(one.id) == one
    assert below(state, "wakeups") == before


def test_patience_is_five_seconds():
    assert files.PATIENCE_S == 5.0


def test_an_id_that_is_taken_is_not_written_over(store):
    one = ask(store, in_="10m")
    assert not store.add(one.with_(prompt="another"))
    assert store.read(SESSION, one.id) == one


# What can't be read, and what is not ours ----------------------------------------------------


def test_what_can_not_be_read_is_set_aside_and_the_rest_works(store, state, claims):
    bad, good = ask(store, in_="10m", prompt="bad"), ask(store, in_="10m", prompt="good")
    path = state.at("wakeups", "routine%3Adaily", f"{bad.id}.json")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace('"bad"', '"worse"'))  # the digest belongs to another text
    assert store.pending(SESSION) == [good]
    fired, _ = look(store, claims, later(minutes=10))
    assert fired == [(good.id, good.next_at)]
    assert list(store.corrupt()) == [f"wakeups/routine%3Adaily/{bad.id}.json.corrupt"]
    assert hints(state) == []


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"[]", b"{", b"[" * 100_000])
def test_garbage_is_no_wakeup(store, state, claims, content):
    one = ask(store, in_="10m")
    with open(state.at("wakeups", "routine%3Adaily", f"{one.id}.json"), "wb") as file:
        file.write(content)
    assert store.pending(SESSION) == []
    assert look(store, claims, later(minutes=10)) == ([], [])
    assert len(list(store.corrupt())) == 1


# BR-17: a leftover of another time must not bring it back.
def test_foreign_files_are_nothing(store, state, claims):
    one = ask(store, every="30m")
    path = state.at("wakeups", "routine%3Adaily", f"{one.id}.json")
    content = Path(path).read_bytes()
    assert cancel(store, one.id) == one
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for name in (
        f"{one.id}.json.4121.tmp",
        f".{one.id}.json.4121.draft",
        "w-ABCDEF.json",
        ".DS_Store",
    ):
        Path(os.path.dirname(path), name).write_bytes(content)
    Path(state.at("wakeups"), ".DS_Store").write_bytes(b"x")
    Path(state.at("wakeups"), "notes.txt").write_bytes(b"x")
    os.makedirs(state.at("wakeups", "due", "2026-11-29", "12"), exist_ok=True)
    os.makedirs(state.at("wakeups", "due", "tomorrow", "99"), exist_ok=True)
    Path(state.at("wakeups", "due", "2026-11-29", "12"), "x~y").write_bytes(b"")
    again = WakeupStore(state)
    assert again.repair().hinted == 0
    assert again.pending(SESSION) == []
    assert again.count() == (0, 0)
    assert look(again, claims, later(hours=5)) == ([], [])
    assert again.next_due(NOON) is None


def test_a_copy_in_another_sessions_folder_is_not_that_sessions(store, state, claims):
    one = ask(store, in_="10m")
    ask(store, in_="10m", session="other")
    shutil.copy(
        state.at("wakeups", "routine%3Adaily", f"{one.id}.json"), state.at("wakeups", "other")
    )
    assert [found.session for found in store.pending("other")] == ["other"]
    store.repair()
    fired, _ = look(store, claims, later(minutes=10))
    assert len(fired) == len(set(fired)) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_is_not_corruption(store, state):
    one = ask(store, in_="10m")
    path = state.at("wakeups", "routine%3Adaily", f"{one.id}.json")
    os.chmod(path, 0)
    with pytest.raises(StoreError, match="EACCES"):
        store.pending(SESSION)
    assert os.path.exists(path)


# Hints and entries that have lost each other ---------------------------------------------------


def test_a_hint_without_an_entry_goes(store, state, claims):
    one = ask(store, in_="10m")
    os.unlink(state.at("wakeups", "routine%3Adaily", f"{one.id}.json"))
    assert look(store, claims, later(minutes=10)) == ([], [])
    assert hints(state) == []


def test_an_entry_without_a_hint_is_found_at_boot(store, state, claims):
    one, other = ask(store, in_="10m"), ask(store, every="30m", session="b")
    shutil.rmtree(state.at("wakeups", "due"))
    assert store.due(later(days=1)) == []
    found = store.repair()
    assert (found.pending, found.hinted, found.removed) == (2, 2, 0)
    fired, _ = look(store, claims, later(minutes=30))
    assert sorted(fired) == sorted([(one.id, one.next_at), (other.id, other.next_at)])


def test_a_sound_folder_is_repaired_without_opening_anything(store, monkeypatch):
    for n in range(5):
        ask(store, in_="10m", session=f"s{n}")
    monkeypatch.setattr(files, "read", lambda path: pytest.fail(f"{path} was read"))
    assert store.repair().pending == 5


def test_a_stale_hint_gives_the_entry_its_own_before_it_goes(store, state, claims):
    one = ask(store, in_="30m")
    hint = hints(state)[0]
    folder = state.at("wakeups", "due", "2026-11-29", "12")
    os.rename(os.path.join(folder, hint), os.path.join(folder, hint.replace("12-30", "12-10")))
    assert look(store, claims, later(minutes=10)) == ([], [])
    assert hints(state) == [hint]
    fired, _ = look(store, claims, later(minutes=30))
    assert fired == [(one.id, one.next_at)]


# Firing --------------------------------------------------------------------------------------


# BR-13: taken once, whatever its outcome.
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_one_shot_is_taken_once_whatever_its_outcome(store, state, claims, outcome):
    one = ask(store, in_="90s")
    claim = take(store, one, one.next_at, claims)
    reason = {Outcome.FAILED: Reason.EXIT, Outcome.TIMED_OUT: Reason.TIMEOUT}.get(outcome)
    claim.settle(outcome, reason, at=one.next_at)
    claim.let_go()
    for n in range(100):
        assert look(WakeupStore(state), claims, one.next_at + n * MINUTE) == ([], [])
    assert take(store, one, one.next_at, claims) is None
    assert store.pending(SESSION) == []


def test_the_claim_holds_the_whole_wakeup(store, claims):
    one = ask(store, in_="10m", prompt="look\n\ud800ü")
    claim = take(store, one, one.next_at, claims, extra={"key": "w/x", "by": "ana@studio"})
    line = claim.record.claim
    assert line["wakeup"] == one.with_(firings=1).to_json()
    assert (line["session"], line["trigger"], line["due_at"]) == (
        SESSION,
        "wake-up",
        "2026-11-29T12:10:00Z",
    )
    assert (line["key"], line["by"], line["missed"]) == ("w/x", "ana@studio", None)
    assert claim.record.trigger.value == "wake-up"
    claim.let_go()


def test_a_recurring_one_goes_on_from_what_it_fired_for(store, claims):
    one = ask(store, every="30m")
    fired, _ = look(store, claims, later(minutes=30))
    assert fired == [(one.id, later(minutes=30))]
    (left,) = store.pending(SESSION)
    assert (left.next_at, left.firings) == (later(hours=1), 1)


def test_after_an_absence_it_fires_once_and_counts_the_rest(store, claims):
    one = ask(store, every="30m")
    fired, _ = look(store, claims, later(hours=3, minutes=10))
    assert fired == [(one.id, later(hours=3))]
    record = claims.read(Occurrence(Kind.WAKE, SESSION, later(hours=3), one.id))
    assert record.claim["missed"] == {
        "from": "2026-11-29T12:30:00Z",
        "to": "2026-11-29T14:30:00Z",
        "count": 5,
    }
    assert look(store, claims, later(hours=3, minutes=20)) == ([], [])
    assert store.pending(SESSION)[0].next_at == later(hours=3, minutes=30)


def test_a_firing_that_is_not_the_newest_any_more_is_looked_at_again(store, claims):
    one = ask(store, every="30m")
    assert take(store, one, later(minutes=30), claims, at=later(hours=1)) is None
    assert look(store, claims, later(hours=1))[0] == [(one.id, later(hours=1))]


# BR-15: set anew during the turn that it woke; the end of that turn concerns the firing alone.
def test_what_is_set_during_its_own_turn_survives_the_end_of_it(store, state, claims):
    one = ask(store, in_="10m")
    claim = take(store, one, one.next_at, claims)
    again = ask(store, in_="10m", now=one.next_at)
    claim.settle(Outcome.COMPLETED, at=later(minutes=11))
    claim.let_go()
    assert WakeupStore(state).pending(SESSION) == [again]
    assert look(store, claims, later(minutes=20))[0] == [(again.id, again.next_at)]


def test_a_claim_left_by_a_crash_ends_the_wakeup_without_a_firing(store, state, claims):
    one = ask(store, in_="10m")
    saved = Path(state.at("wakeups", "routine%3Adaily", f"{one.id}.json")).read_bytes()
    take(store, one, one.next_at, claims).let_go()
    assert store.add(one)  # as the crash between claim and removal leaves it
    assert Path(state.at("wakeups", "routine%3Adaily", f"{one.id}.json")).read_bytes() == saved
    # It is not pending in truth: an agent must not be told "already set".
    assert store.pending(SESSION) == []
    assert not isinstance(ask(store, at="2026-11-29T12:10Z"), AlreadySet)
    assert unwake(store, one.id).how is Unwoken.NOT_STARTED
    fired, _ = look(store, claims, later(minutes=10))
    assert one.id not in [wakeup_id for wakeup_id, _ in fired]
    assert below(state, "wakeups") == []


def test_a_recurring_one_moves_past_a_claim_left_by_a_crash(store, state, claims):
    one = ask(store, every="30m")
    take(store, one, later(minutes=30), claims).let_go()
    cancel(store, one.id)
    store.add(one)
    assert look(store, claims, later(minutes=31)) == ([], [])
    assert store.pending(SESSION)[0].next_at == later(hours=1)


def test_a_claim_left_in_the_midst_of_an_absence_is_not_counted_as_missed(store, state, claims):
    one = ask(store, every="30m")
    take(store, one, later(hours=2), claims, at=later(hours=2)).let_go()
    cancel(store, one.id)
    store.add(one)
    look(store, claims, later(hours=4))
    _fired, _ = look(store, claims, later(hours=4))
    record = claims.read(Occurrence(Kind.WAKE, SESSION, later(hours=4), one.id))
    assert record.claim["missed"] == {
        "from": "2026-11-29T14:30:00Z",
        "to": "2026-11-29T15:30:00Z",
        "count": 3,
    }


def test_a_draft_that_another_process_holds_delays_and_loses_nothing(store, state, claims):
    one = ask(store, in_="10m")
    os.makedirs(state.at("open"), exist_ok=True)
    left = state.at("open", f"wake~routine%3Adaily~2026-11-29T12-10-00Z~{one.id}")
    fd = files.open_append(left, create=True)
    assert locks.try_lock(fd)
    # Nothing is claimed, and nothing was taken: it must not go as if it had been.
    with contextlib.suppress(StoreBusy):
        assert look(store, claims, later(minutes=10)) == ([], [])
    assert store.pending(SESSION) == [one]
    os.unlink(left)
    locks.let_go(fd)
    assert look(store, claims, later(minutes=10))[0] == [(one.id, one.next_at)]


def test_only_a_claim_that_is_there_ends_what_is_pending(store, state, claims):
    one, often = ask(store, in_="10m"), ask(store, every="10m")

    class TakesNothing(ClaimStore):
        def take(self, draft, *, at):
            return None

    assert look(store, TakesNothing(state), later(minutes=10)) == ([], [])
    assert {found.id for found in store.pending(SESSION)} == {one.id, often.id}
    assert sorted(look(store, claims, later(minutes=10))[0]) == sorted(
        [(one.id, one.next_at), (often.id, often.next_at)]
    )


# BR-24: deferred is pending, and `completed` comes only after a turn.
def test_a_busy_session_puts_a_one_shot_off_for_half_a_minute(store, state, claims):
    one = ask(store, in_="10m")
    assert look(store, claims, later(minutes=10), busy=True) == ([], [])
    (waiting,) = store.pending(SESSION)
    assert (waiting.deferred_since, waiting.try_at) == (
        later(minutes=10),
        later(minutes=10, seconds=30),
    )
    assert store.due(later(minutes=10, seconds=29)) == []
    assert not os.path.exists(state.at("claims"))
    assert look(store, claims, later(minutes=10, seconds=30))[0] == [(one.id, one.next_at)]


def test_busy_for_an_hour_it_is_skipped_in_the_end(store, state, claims):
    one = ask(store, in_="10m")
    now, skipped = one.next_at, []
    while not skipped:
        assert now < later(hours=2)
        _, skipped = look(store, claims, now, busy=True)
        now += timedelta(seconds=30)
    assert skipped == [(one.id, one.next_at, Reason.BUSY)]
    assert now - timedelta(seconds=30) == one.next_at + timedelta(hours=1)
    record = claims.read(Occurrence(Kind.WAKE, SESSION, one.next_at, one.id))
    assert (record.outcome, record.reason) == (Outcome.SKIPPED, Reason.BUSY)
    assert claims.open_entries() == []
    assert below(state, "wakeups") == []


def test_a_recurring_firing_that_finds_it_busy_is_skipped_and_the_next_one_comes(store, claims):
    one = ask(store, every="30m")
    assert look(store, claims, later(minutes=30), busy=True)[1] == [
        (one.id, later(minutes=30), Reason.BUSY)
    ]
    assert look(store, claims, later(hours=1))[0] == [(one.id, later(hours=1))]


def test_over_the_firings_of_a_day_a_recurring_one_is_skipped_and_a_one_shot_waits(store, claims):
    bounds = Bounds(firings=2)
    for n in range(2):
        ask(store, in_=f"{n + 2}m", prompt=str(n))
    recurring, last = ask(store, every="30m"), ask(store, in_="35m", prompt="last")
    look(store, claims, later(minutes=5), bounds=bounds)
    now = later(minutes=40)
    fired, skipped = look(store, claims, now, bounds=bounds)
    assert fired == []
    assert skipped == [(recurring.id, later(minutes=30), Reason.LIMIT)]
    assert store.read(SESSION, last.id).next_at == MIDNIGHT
    assert cancel(store, recurring.id)
    assert look(store, claims, MIDNIGHT - MINUTE, bounds=bounds) == ([], [])
    assert look(store, claims, MIDNIGHT, bounds=bounds)[0] == [(last.id, MIDNIGHT)]
    record = claims.read(Occurrence(Kind.WAKE, SESSION, MIDNIGHT, last.id))
    assert record.due_at == last.next_at


def test_the_limit_holds_under_the_lock_too(store, claims):
    bounds = Bounds(firings=1)
    one, other = ask(store, in_="10m"), ask(store, in_="10m", prompt="other")
    now = later(minutes=10)
    planned = [plan(store, hint, now, claims, bounds) for hint in store.due(now)]
    assert [due for _, due in planned] == [Fire(now), Fire(now)]
    taken = [take(store, wakeup, now, claims, bounds=bounds) for wakeup in (one, other)]
    assert [claim is None for claim in taken] == [False, True]
    assert store.pending(SESSION) == [other]


def test_firings_are_counted_by_the_day_of_the_workspace(store, claims):
    for minutes in (10, 11, 690):  # 23:30 UTC is the next day in Berlin
        one = ask(store, in_=f"{minutes}m", prompt=str(minutes))
        take(store, one, one.next_at, claims).let_go()
    start = datetime(2026, 11, 28, 23, tzinfo=UTC)
    day = timedelta(days=1)
    assert store.fired(SESSION, start, start + day) == 2
    assert store.fired(SESSION, start + day, start + 2 * day) == 1
    assert store.fired("other", start, start + day) == 0


# Cancelling ------------------------------------------------------------------------------------


def test_what_was_pending_is_gone(store, state, claims):
    one = ask(store, in_="10m")
    answer = unwake(store, one.id)
    assert (answer.how, answer.wakeup, answer.stopped) == (Unwoken.GONE, one, True)
    assert below(state, "wakeups") == []
    assert look(store, claims, later(minutes=10)) == ([], [])
    assert unwake(store, one.id).how is Unwoken.UNKNOWN


def test_another_sessions_wakeup_is_unknown_here(store, claims):
    one = ask(store, in_="10m")
    assert unwake(store, one.id, session="routine:other").how is Unwoken.UNKNOWN
    assert cancel(store, one.id, session="routine:other") is None
    assert unwake(store, "../../x").how is Unwoken.UNKNOWN
    assert store.pending(SESSION) == [one]


def test_a_claimed_firing_that_has_not_started_is_the_callers_to_cancel(store, claims):
    one = ask(store, in_="10m")
    claim = take(store, one, one.next_at, claims)
    answer = unwake(store, one.id)
    assert (answer.how, answer.firing.ref) == (Unwoken.NOT_STARTED, claim.record.ref)
    claim.let_go()


def test_a_started_firing_goes_on_and_no_other_comes(store, state, claims):
    one = ask(store, every="30m")
    claim = take(store, one, later(minutes=30), claims)
    claim.append(Event.STARTED, at=later(minutes=30))
    answer = unwake(store, one.id)
    assert (answer.how, answer.stopped, answer.firing.ref) == (
        Unwoken.STARTED,
        True,
        claim.record.ref,
    )
    assert below(state, "wakeups") == []
    # Its own turn's result is kept.
    assert claim.settle(Outcome.COMPLETED, at=later(minutes=31)).outcome is Outcome.COMPLETED
    claim.let_go()
    assert look(store, claims, later(hours=9)) == ([], [])
    assert unwake(store, one.id).how is Unwoken.ENDED


def test_a_one_shot_that_has_started_says_so(store, claims):
    one = ask(store, in_="10m")
    claim = take(store, one, one.next_at, claims)
    claim.append(Event.STARTED, at=one.next_at)
    answer = unwake(store, one.id)
    assert (answer.how, answer.stopped) == (Unwoken.STARTED, False)
    assert answer.wakeup.id == one.id
    claim.let_go()


# Crashes ---------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone; no clean-up of ours may run on the disk."""


class Dying(Unsynced):
    """Calls that work until the nth, and then never again."""

    def __init__(self, after: int | None = None) -> None:
        self.left = after
        self.count = 0

    def __getattribute__(self, name: str):
        real = super().__getattribute__(name)
        if name not in (
            "open",
            "write",
            "close",
            "link",
            "unlink",
            "mkdir",
            "rmdir",
            "rename",
            "fsync",
        ):
            return real

        def call(*args):
            self.count += 1
            if self.left is not None and self.count > self.left:
                raise Crash
            return real(*args)

        return call


class Failing(Dying):
    """Calls of which the nth fails, and only that one."""

    def __getattribute__(self, name: str):
        real = Unsynced.__getattribute__(self, name)
        if name not in ("open", "write", "link", "unlink", "mkdir", "rmdir", "rename", "fsync"):
            return real

        def call(*args):
            self.count += 1
            if self.count == self.left:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        return call


def _wake(store, claims):
    ask(store, in_="10m", prompt="new")


def _wake_recurring(store, claims):
    ask(store, every="10m", prompt="new")


def _fire(store, claims):
    look(store, claims, later(minutes=10))


def _fire_late(store, claims):
    look(store, claims, later(minutes=35))


def _busy(store, claims):
    look(store, claims, later(minutes=10), busy=True)


def _limit(store, claims):
    look(store, claims, later(minutes=10), bounds=Bounds(firings=0))


def _unwake(store, claims):
    for one in store.pending(SESSION):
        unwake(store, one.id)


def _repair(store, claims):
    shutil.rmtree(store._state.at("wakeups", "due"))
    store.repair()


STEPS = [_wake, _wake_recurring, _fire, _fire_late, _busy, _limit, _unwake, _repair]


def prepared(state: State):
    store = WakeupStore(state)
    ask(store, in_="10m", prompt="one-shot")
    ask(store, every="10m", prompt="recurring")
    return store, ClaimStore(state)


def how_many(tmp_path: Path, step) -> int:
    from routines.store.state import open_for_writing

    store, claims = prepared(open_for_writing(str(tmp_path / "counted"), boot="b"))
    files.calls = Dying()
    step(store, claims)
    count = files.calls.count
    files.calls = Unsynced()
    return count


def run_on(state: State, until: datetime, *, repair: bool) -> list[tuple[str, datetime]]:
    """Start again and let time pass; return every firing that has a claim by then."""
    store, claims = WakeupStore(state), ClaimStore(state)
    for entry in claims.open_entries():  # what the sweep of open/ does after a minute
        claims.sweep(entry, server_now=datetime.now(UTC) + timedelta(hours=1))
    if repair:
        store.repair()
    now = NOON
    while now <= until:
        look(store, claims, now)
        now += timedelta(seconds=30)
    look(store, claims, MIDNIGHT)
    return [
        (path.removesuffix(".jsonl").rpartition(".")[2], claims.read_path(path).occurrence.instant)
        for path in claims.walk(claims.owners())
    ]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_a_crash_at_any_call_loses_no_firing_and_repeats_none(tmp_path, step):
    from routines.store.state import open_for_writing

    calls = how_many(tmp_path, step)
    assert calls > 3
    for number in range(calls):
        state = open_for_writing(str(tmp_path / str(number)), boot="b")
        store, claims = prepared(state)
        known = {one.prompt: one for one in store.pending(SESSION)}
        files.calls = Dying(number)
        with pytest.raises(Crash):
            step(store, claims)
        as_a_new_process()
        # The order of writing alone has to hold: `repair` is for what people delete.
        firings = run_on(state, later(minutes=45), repair=step is _repair)
        assert len(firings) == len(set(firings)), f"call {number}: a firing has two claims"
        check_all_came(step, known, firings, f"call {number}")
        left = {one.prompt: one for one in WakeupStore(state).pending(SESSION)}
        assert "one-shot" not in left
        assert len(hints(state)) == len(left), f"call {number}: {hints(state)}"


def check_all_came(step, known, firings, where):
    one, often = known["one-shot"], known["recurring"]
    if step is _unwake:
        return  # the crash came before or after; never more than once is checked above
    ids = [wakeup_id for wakeup_id, _ in firings]
    assert ids.count(one.id) == 1, f"{where}: the one-shot fired {ids.count(one.id)} times"
    due = {*(later(minutes=n) for n in (10, 20, 30, 40)), MIDNIGHT}
    assert {instant for wakeup_id, instant in firings if wakeup_id == often.id} <= due
    assert (often.id, later(minutes=40)) in firings, f"{where}: the recurring one has stopped"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_a_call_that_fails_leaves_what_was_pending_or_does_what_was_asked(tmp_path, step):
    from routines.store.state import open_for_writing

    for number in range(1, how_many(tmp_path, step) + 1):
        state = open_for_writing(str(tmp_path / str(number)), boot="b")
        store, claims = prepared(state)
        known = {one.prompt: one for one in store.pending(SESSION)}
        files.calls = Failing(number)
        try:
            step(store, claims)
            told = True
        except StoreError:
            told = False
        files.calls = Unsynced()
        left = {one.prompt for one in WakeupStore(state).pending(SESSION)}
        if step in (_wake, _wake_recurring):
            # Told "failed", it is never seen to happen; told "set", it is there.
            assert ("new" in left) == told, f"call {number}"
        if step is _unwake and told:
            assert not left, f"call {number}"
        # The order of writing alone has to hold: `repair` is for what people delete.
        firings = run_on(state, later(minutes=45), repair=step is _repair)
        assert len(firings) == len(set(firings))
        check_all_came(step, known, firings, f"call {number}")


class NeverSyncs(Unsynced):
    """A disk that takes what is written and never confirms it."""

    @staticmethod
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_on_a_disk_that_confirms_nothing_nothing_is_set_and_nothing_cancelled(store):
    one, often = ask(store, in_="10m"), ask(store, every="30m")
    files.calls = NeverSyncs()
    for change in (
        lambda: ask(store, in_="20m"),
        lambda: cancel(store, one.id),
        lambda: cancel(store, often.id),
    ):
        with pytest.raises(NotDurable):
            change()
        assert store.pending(SESSION) == [one, often]


def test_a_wakeup_that_could_not_be_cancelled_is_pending_as_it_was(tmp_path):
    from routines.store.state import open_for_writing

    def cancel_with_a_fault(number):
        store, _ = prepared(open_for_writing(str(tmp_path / str(number)), boot="b"))
        before = store.pending(SESSION)
        files.calls = Failing(number)
        try:
            cancel(store, before[0].id)
        except StoreError:
            assert store.pending(SESSION) == before, f"call {number}"
        else:
            assert store.pending(SESSION) == before[1:], f"call {number}"
        reached = files.calls.count >= number
        files.calls = Unsynced()
        return reached

    number = 1
    while cancel_with_a_fault(number):
        number += 1
    assert number > 3


# Many at once ----------------------------------------------------------------------------------

RACE = """
import sys
from datetime import datetime
from routines.domain.wakeup import Bounds
from routines.domain.zones import zone
from routines.store.claims import ClaimStore
from routines.store.state import open_for_writing
from routines.store.wake_firings import FiringStore
path, session, wakeup_id, instant = sys.argv[1:]
state = open_for_writing(path, boot="5f2c0a6e-0000-4000-8000-000000000001")
store, claims, at = FiringStore(state), ClaimStore(state), datetime.fromisoformat(instant)
print("ready", flush=True)
sys.stdin.readline()
claim = store.take(session, wakeup_id, at, claims=claims, at=at, bounds=Bounds(), place=zone("UTC"))
print("none" if claim is None else "taken", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("words", [{"in_": "10m"}, {"every": "10m"}])
def test_of_eight_processes_one_takes_a_wakeup(store, state, claims, words):
    one = ask(store, **words)
    command = [sys.executable, "-c", RACE, state.path, SESSION, one.id, one.next_at.isoformat()]
    root = str(Path(__file__).parents[2])
    racers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )
        for _ in range(8)
    ]
    try:
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            racer.stdin.write("\n")
            racer.stdin.flush()
        answers = sorted(racer.stdout.readline().strip() for racer in racers)
    finally:
        for racer in racers:
            racer.communicate("\n", timeout=30)
    assert answers == ["none"] * 7 + ["taken"]
    assert len(list(claims.walk(claims.owners()))) == 1
    assert len(store.pending(SESSION)) == (1 if one.recurs else 0)


@pytest.mark.slow
def test_the_cost_does_not_grow_with_what_is_pending(state):
    def cost(store, claims, session):
        spent = []
        for n in range(30):
            began = time.perf_counter()
            one = ask(store, session=session, in_="10m", prompt=str(n))
            take(store, one, one.next_at, claims).let_go()
            other = ask(store, session=session, in_="20m", prompt=str(n))
            cancel(store, other.id, session=session)
            spent.append(time.perf_counter() - began)
        return sorted(spent)[len(spent) // 2]

    store, claims = WakeupStore(state), ClaimStore(state)
    sample = ask(store, in_="10m", session="s")
    fill(state, sample, 100)
    few = cost(store, claims, "few")
    fill(state, sample, 20_000)
    many = cost(store, claims, "many")
    assert many < 3 * few + 0.005


def fill(state: State, sample, count: int) -> None:
    """Make *count* pending wake-ups as the store would, without its syncs."""
    for n in range(count):
        session = f"full-{count}-{n // 20}"
        one = sample.with_(
            id=f"w-{n:06}", session=session, next_at=later(hours=n % 8000), asked_for=NOON
        )
        hint = Hint(one.next_at, session_folder(session), one.id)
        for path, content in (
            (state.at("wakeups", hint.folder, f"{one.id}.json"), json.dumps(one.to_json())),
            (state.at("wakeups", "due", *hint.hour, hint.name), ""),
        ):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).write_text(content)


def test_a_failed_write_says_that_nothing_was_scheduled(store, state):
    files.calls = Failing(1)
    with pytest.raises(NotDurable):
        ask(store, in_="10m")
    files.calls = Unsynced()
    assert store.pending(SESSION) == []
