"""Claims: whole, locked and durable, or not at all; settled once (PROMISES D1 to D9, L1, L10)."""

import errno
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from routines.domain.occurrence import Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event
from routines.errors import NotDurable, StateForeign, StoreBusy, StoreError
from routines.store import claim_making, files, locks
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.state import State
from tests.builders import NOW, at, by_hand, draft, firing, job, owner, skipped, slot
from tests.store.crash import (
    Unsynced,
    WithoutLinks,
    as_a_new_process,
    check_claims,
    failing,
    server_later,
    standing_in,
)
from tests.store.interleave import every_interruption

EACH_KIND = pytest.mark.parametrize(
    "occurrence", [slot(), by_hand(), firing(), job()], ids=lambda one: one.kind.value
)
LINKS = pytest.mark.parametrize("calls", [Unsynced, WithoutLinks], ids=["links", "no links"])


@pytest.fixture
def claims(state: State) -> ClaimStore:
    return ClaimStore(state)


def take(claims: ClaimStore, occurrence: Occurrence | None = None, **claim: Any) -> Claim:
    taken = claims.take(draft(occurrence, **claim), at=NOW)
    assert taken is not None
    return taken


def lost(claims: ClaimStore, occurrence: Occurrence | None = None, *events: Event) -> None:
    """A claim whose owner has died after *events*."""
    claim = take(claims, occurrence)
    for event in events:
        claim.append(event, at=NOW)
    claim.let_go()


def held(claims: ClaimStore) -> list[Claim]:
    found = (claims.hold(entry) for entry in claims.open_entries())
    return [claim for claim in found if claim is not None]


# One winner ------------------------------------------------------------------------------------


@EACH_KIND
@LINKS
def test_an_occurrence_is_claimed_once_for_ever(
    claims: ClaimStore, occurrence: Occurrence, calls: Callable[[], files.Calls]
) -> None:
    with standing_in(calls()):
        assert not claims.is_claimed(occurrence)
        claim = take(claims, occurrence)
        assert claims.is_claimed(occurrence)
        if occurrence.kind.value == "slot":
            assert claims.take(draft(occurrence), at=NOW) is None
        claim.settle(Outcome.COMPLETED, at=NOW)
        claim.let_go()
        assert claims.take(draft(occurrence), at=NOW) is None
        assert claims.open_entries() == []


@EACH_KIND
def test_a_claim_says_whose_it_is_and_by_whom(claims: ClaimStore, occurrence: Occurrence) -> None:
    take(claims, occurrence).let_go()
    record = claims.read(occurrence)
    assert record is not None
    assert record == claims.read_path(occurrence.claim_path)
    assert record.occurrence == occurrence
    assert record.owner == owner()
    assert record.claimed_at == NOW
    assert record.end is None


def test_a_claim_of_the_living_is_open_and_locked(claims: ClaimStore) -> None:
    claim = take(claims)
    assert [entry.claim_path for entry in claims.open_entries()] == [slot().claim_path]
    assert held(claims) == []
    assert claims.is_held(claim.record) in (True, None)
    claim.let_go()
    assert claims.is_held(claim.record) in (False, None)
    (again,) = held(claims)
    again.let_go()


def test_many_are_claimed_with_the_syncs_of_few(claims: ClaimStore) -> None:
    claims.take(draft(slot("08:59")), at=NOW)
    seen: list[int] = []

    class Counting(files.Calls):
        @staticmethod
        def fsync(fd: int) -> None:
            seen.append(os.fstat(fd).st_ino)

    many = [draft(slot(f"09:{minute:02}")) for minute in range(30)]
    with standing_in(Counting()):
        assert all(isinstance(one, Claim) for one in claims.take_many(many, at=NOW))
    assert len(seen) == 30 + 2, "each file once, and open/ and the day's folder once"
    assert len(set(seen)) == len(seen)


def test_a_failure_of_one_claim_is_no_others(claims: ClaimStore, state: State) -> None:
    claims.take(draft(slot("09:01")), at=NOW)
    os.makedirs(state.at("claims"), exist_ok=True)
    Path(state.at("claims", "weekly")).write_text("in the way")
    drafts = [draft(slot()), draft(slot("09:00", "weekly")), draft(slot("09:01"))]
    first, second, third = claims.take_many(drafts, at=NOW)
    assert isinstance(first, Claim)
    assert isinstance(second, StoreError)
    assert third is None
    assert len(claims.open_entries()) == 2


def test_what_is_skipped_is_claimed_and_settled_in_one(claims: ClaimStore) -> None:
    claim = claims.take(skipped(), at=NOW)
    assert claim is not None
    assert claim.record.outcome is Outcome.SKIPPED
    assert claims.open_entries() == []
    claim.let_go()


@LINKS
def test_two_that_claim_one_firing_at_once_never_both_win(
    quick_path: str, calls: Callable[[], files.Calls]
) -> None:
    """Its draft has a name that both would use."""

    def try_it(state: State) -> Claim | str | None:
        try:
            return ClaimStore(state).take(draft(firing()), at=NOW)
        except StoreBusy:
            return "busy"

    for state, one, other in every_interruption(quick_path, try_it, try_it):
        winners = [claim for claim in (one, other) if isinstance(claim, Claim)]
        assert len(winners) == 1
        assert winners[0].still_named()
        check_claims(state.path)


def test_two_that_reconcile_at_once_never_both_hold_a_claim(quick_path: str) -> None:
    def reconcile(state: State) -> list[Claim]:
        return held(ClaimStore(state))

    def die_and_reconcile(state: State) -> list[Claim]:
        lost(ClaimStore(state))
        return reconcile(state)

    others = []
    for _, one, other in every_interruption(quick_path, die_and_reconcile, reconcile):
        assert len(one) + len(other) <= 1
        others += other
    assert others, "the other never came first"


# Settled once ----------------------------------------------------------------------------------


def test_the_first_outcome_is_final(claims: ClaimStore) -> None:
    claim = take(claims)
    assert claim.settle(Outcome.COMPLETED, at=NOW).outcome is Outcome.COMPLETED
    assert claim.settle(Outcome.FAILED, Reason.EXIT, at=NOW).outcome is Outcome.COMPLETED
    data = files.read(claim.path) or b""
    assert data.count(b'"outcome"') == data.count(b'"event":"outcome"') + 1
    assert data.count(b'"event":"outcome"') == 1
    claim.let_go()


def test_a_line_after_the_outcome_does_not_count(claims: ClaimStore) -> None:
    claim = take(claims)
    claim.settle(Outcome.COMPLETED, at=NOW)
    claim.append(Event.STARTED, at=NOW)
    record = claims.read(slot())
    assert record is not None
    assert (record.outcome, record.last) == (Outcome.COMPLETED, "outcome")
    claim.let_go()


def test_whoever_takes_a_lock_reads_what_was_written_before(claims: ClaimStore) -> None:
    claim = take(claims)
    os.link(claim.open_path, f"{claim.open_path}x")
    claim.settle(Outcome.COMPLETED, at=NOW)
    claim.let_go()
    os.rename(f"{claim.open_path}x", claim.open_path)
    assert held(claims) == []
    assert claims.open_entries() == [], "the name that was left over goes"


def test_a_claim_is_one_file_for_ever(claims: ClaimStore) -> None:
    claim = take(claims)
    inode = os.stat(claim.path).st_ino
    for event in (Event.STARTED, Event.NOT_STARTED, Event.RETRY, Event.ATTEMPT, Event.STARTED):
        claim.append(event, at=NOW)
    claim.settle(Outcome.COMPLETED, at=NOW)
    assert os.stat(claim.path).st_ino == inode
    assert claim.record.attempts == 2
    claim.let_go()


@pytest.mark.parametrize("away", ["claims", "."], ids=["claims", "everything"])
def test_a_record_whose_folder_was_taken_away_is_published_anew(
    claims: ClaimStore, state: State, away: str
) -> None:
    claim = take(claims)
    claim.append(Event.STARTED, at=NOW)
    shutil.rmtree(os.path.normpath(state.at(away)))
    claim.append(Event.PARKED, at=NOW)
    assert claim.still_named()
    assert held(claims) == [], "the lock has moved with it"
    claim.settle(Outcome.COMPLETED, at=NOW)
    claim.let_go()
    record = claims.read(slot())
    assert record is not None
    assert [line["event"] for line in record.events] == ["started", "parked", "outcome"]
    assert claims.open_entries() == []


def test_a_holder_whose_name_leads_to_another_claim_leaves_that_alone(
    claims: ClaimStore, state: State
) -> None:
    claim = take(claims)
    shutil.rmtree(state.at("claims"))
    other = take(claims)
    before = files.read(other.path)
    with pytest.raises(NotDurable, match="ESTALE"):
        claim.settle(Outcome.FAILED, at=NOW)
    assert files.read(other.path) == before
    assert other.still_named()
    other.settle(Outcome.COMPLETED, at=NOW)
    claim.let_go()
    other.let_go()


# What can't be written -------------------------------------------------------------------------


def test_no_claim_on_disk_no_turn_and_the_slot_is_free_again_when_there_is_space(
    claims: ClaimStore,
) -> None:
    with standing_in(failing(2, errno.ENOSPC, lasting=True)):
        for _ in range(3):
            with pytest.raises(NotDurable, match="ENOSPC"):
                claims.take(draft(), at=NOW)
    assert not claims.is_claimed(slot())
    take(claims).let_go()


def test_a_claim_whose_name_could_not_be_synced_is_settled_and_no_turn_follows(
    claims: ClaimStore, state: State
) -> None:
    take(claims, slot("08:59")).let_go()

    class DayFolderFails(files.Calls):
        @staticmethod
        def fsync(fd: int) -> None:
            if os.path.samestat(os.fstat(fd), os.stat(state.at("claims/daily/2026-07-01"))):
                raise OSError(errno.EIO, "")

    with standing_in(DayFolderFails()), pytest.raises(NotDurable, match="EIO"):
        claims.take(draft(), at=NOW)
    record = claims.read(slot())
    assert record is not None
    assert (record.outcome, record.reason) == (Outcome.FAILED, Reason.NOT_DURABLE)


def test_a_claim_that_can_be_neither_synced_nor_settled_is_kept_by_its_maker(
    claims: ClaimStore, state: State
) -> None:
    take(claims, slot("08:59")).settle(Outcome.COMPLETED, at=NOW)

    class Breaking(files.Calls):
        linked = False

        @classmethod
        def link(cls, source: str, path: str) -> None:
            os.link(source, path)
            cls.linked = True

        @classmethod
        def fsync(cls, fd: int) -> None:
            if cls.linked:
                raise OSError(errno.EIO, "")

        @classmethod
        def write(cls, fd: int, data: bytes) -> int:
            if cls.linked:
                raise OSError(errno.EIO, "")
            return os.write(fd, data)

    with standing_in(Breaking()), pytest.raises(NotDurable):
        claims.take(draft(), at=NOW)
    assert claims.is_claimed(slot())
    assert held(claims) == [], "nobody else takes it up while its maker lives"
    as_a_new_process()
    (found,) = held(claims)
    found.let_go()


def test_a_finished_turn_whose_outcome_did_not_fit_is_settled_when_there_is_space(
    claims: ClaimStore,
) -> None:
    claim = take(claims)
    claim.append(Event.STARTED, at=NOW)
    with standing_in(failing(1, errno.ENOSPC, lasting=True)):
        for _ in range(3):
            with pytest.raises(NotDurable):
                claim.settle(Outcome.COMPLETED, at=NOW)
        assert held(claims) == []
    assert claim.settle(Outcome.COMPLETED, at=NOW).outcome is Outcome.COMPLETED
    claim.let_go()
    record = claims.read(slot())
    assert record is not None
    assert [line["event"] for line in record.events] == ["started", "outcome"]


# What dead processes leave ---------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b'{"event":"claim","at', b"\0" * 40, b"[]\n", b"\xff\n"])
def test_a_claim_that_says_nothing_stays_claimed_and_is_found_open(
    claims: ClaimStore, state: State, content: bytes
) -> None:
    lost(claims)
    with open(state.at(slot().claim_path), "r+b") as file:
        file.truncate(0)
        file.write(content)
    assert claims.is_claimed(slot())
    assert claims.take(draft(), at=NOW) is None
    assert claims.newest_slot("daily", until=NOW) == (NOW, [])
    (claim,) = held(claims)
    assert not claim.record.readable
    assert claim.occurrence == slot()
    files.copy_aside(claim.path)
    claim.settle(Outcome.INTERRUPTED, Reason.OWNER_UNKNOWN, at=NOW)
    claim.let_go()
    assert claims.open_entries() == []
    record = claims.read(slot())
    assert record is not None
    assert record.outcome is Outcome.INTERRUPTED
    assert Path(f"{state.at(slot().claim_path)}.corrupt").read_bytes() == content
    assert claims.newest_slot("daily", until=NOW) == (NOW, [])


def test_a_torn_line_is_no_line_and_the_next_one_counts(claims: ClaimStore, state: State) -> None:
    lost(claims, slot(), Event.STARTED)
    with open(state.at(slot().claim_path), "ab") as file:
        file.write(b'{"event":"outcome","at":"2026-07-01T09:00:05Z","outc')
    (claim,) = held(claims)
    assert claim.record.last == "started"
    claim.settle(Outcome.INTERRUPTED, Reason.OWNER_DIED, at=NOW)
    claim.let_go()
    record = claims.read(slot())
    assert record is not None
    assert record.reason is Reason.OWNER_DIED


def test_the_draft_of_a_loser_is_not_taken_for_the_claim(claims: ClaimStore, state: State) -> None:
    claim = take(claims)
    loser = Path(state.at(slot().open_path("0123abcd")))
    loser.write_bytes(b'{"event":"claim","draft":"0123abcd"}\n')
    assert held(claims) == []
    claim.let_go()
    (found,) = held(claims)
    assert found.still_named()
    found.settle(Outcome.COMPLETED, at=NOW)
    found.let_go()
    assert held(claims) == []
    (entry,) = claims.open_entries()
    assert claims.sweep(entry, server_now=server_later())
    assert claims.open_entries() == []


def test_a_draft_is_swept_when_it_is_a_minute_old_and_nobody_has_it(
    claims: ClaimStore, state: State
) -> None:
    path = state.at(slot().open_path("0123abcd"))
    os.makedirs(state.at("open"))
    fd = files.open_new(path)
    (entry,) = claims.open_entries()
    made = datetime.fromtimestamp(os.fstat(fd).st_mtime, tz=NOW.tzinfo)
    assert not claims.sweep(entry, server_now=made + timedelta(seconds=59))
    assert locks.try_lock(fd)
    assert not claims.sweep(entry, server_now=made + timedelta(seconds=61))
    locks.let_go(fd)
    assert claims.hold(entry) is None
    assert claims.sweep(entry, server_now=made + timedelta(seconds=61))
    assert not claims.sweep(entry, server_now=made + timedelta(seconds=61))


def test_the_name_of_an_open_claim_is_never_swept(claims: ClaimStore) -> None:
    lost(claims)
    (entry,) = claims.open_entries()
    assert not claims.sweep(entry, server_now=server_later())
    assert [one.claim_path for one in claims.open_entries()] == [slot().claim_path]


def test_a_firing_whose_first_claimer_died_with_its_draft_is_claimed_by_the_next(
    claims: ClaimStore, state: State
) -> None:
    """ "Claimed already" would drop the alarm in silence."""
    os.makedirs(state.at("open"))
    Path(state.at(firing().open_path(""))).write_text("{")
    take(claims, firing()).let_go()


def test_a_firing_whose_claimer_is_in_the_midst_of_it_is_neither_free_nor_claimed(
    claims: ClaimStore, state: State
) -> None:
    os.makedirs(state.at("open"))
    fd = files.open_new(state.at(firing().open_path("")))
    assert locks.try_lock(fd)
    with pytest.raises(StoreBusy, match="being claimed"):
        claims.take(draft(firing()), at=NOW)
    locks.let_go(fd)


def test_a_draft_that_was_taken_for_dead_before_its_maker_had_locked_it_does_not_win(
    claims: ClaimStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would link one name: the file that is linked decides whose it is."""
    real = claim_making.lock_own
    others: list[Claim] = []

    def lock_late(fd: int) -> None:
        monkeypatch.setattr(claim_making, "lock_own", real)
        others.append(take(claims, firing()))
        real(fd)

    monkeypatch.setattr(claim_making, "lock_own", lock_late)
    assert claims.take(draft(firing()), at=NOW) is None
    (winner,) = others
    assert winner.still_named()
    winner.settle(Outcome.COMPLETED, at=NOW)
    winner.let_go()
    assert claims.open_entries() == []


# Without hard links ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_a_claim_is_made_held_and_swept_all_the_same(
    claims: ClaimStore, state: State, code: int
) -> None:
    class Calls(Unsynced):
        @staticmethod
        def link(source: str, path: str) -> None:
            raise OSError(code, "")

    with standing_in(Calls()):
        claim = take(claims)
        assert not os.path.samefile(claim.path, claim.open_path)
        assert claims.take(draft(), at=NOW) is None
        assert held(claims) == []
        (entry,) = claims.open_entries()
        assert not claims.sweep(entry, server_now=server_later())
        claim.append(Event.STARTED, at=NOW)
        claim.let_go()
        (again,) = held(claims)
        assert again.record.last == "started"
        again.settle(Outcome.INTERRUPTED, Reason.OWNER_DIED, at=NOW)
        again.let_go()
        assert claims.open_entries() == []


def test_without_hard_links_a_claim_left_empty_is_found_and_never_free(
    claims: ClaimStore, state: State
) -> None:
    os.makedirs(state.at("open"))
    os.makedirs(os.path.dirname(state.at(slot().claim_path)))
    Path(state.at(slot().open_path("0123abcd"))).write_text("{}\n")
    Path(state.at(slot().claim_path)).touch()
    with standing_in(WithoutLinks()):
        assert claims.take(draft(), at=NOW) is None
        (entry,) = claims.open_entries()
        assert not claims.sweep(entry, server_now=server_later())
        (claim,) = held(claims)
        assert not claim.record.readable
        claim.settle(Outcome.INTERRUPTED, Reason.OWNER_UNKNOWN, at=NOW)
        claim.let_go()
    assert claims.open_entries() == []


# Foreign things, and reading -------------------------------------------------------------------


def test_foreign_files_are_nothing(claims: ClaimStore, state: State) -> None:
    lost(claims)
    day = os.path.dirname(state.at(slot().claim_path))
    for folder, name in [
        (day, ".DS_Store"),
        (day, "2026-07-01T10-00-00Z.jsonl~"),
        (day, "2026-07-01T10-00-00Z.jsonl.corrupt"),
        (day, "2026-07-01T10-00-00Z.tmp"),
        (day, "2026-07-01T10:00:00Z.jsonl"),
        (day, "notes.jsonl"),
        (state.at("claims", "daily"), "zzz"),
        (state.at("open"), ".2026.12.ab.draft"),
        (state.at("open"), "notes.txt"),
        (state.at("open"), "a~b~c~d~e"),
        (state.at("open"), "daily~yesterday~1"),
    ]:
        Path(folder, name).write_text("x")
    assert len(claims.open_entries()) == 1
    assert claims.newest_slot("daily", until=at("12:00")) == (NOW, [])
    assert [*claims.walk(["daily"])] == [slot().claim_path]


def test_the_newest_slot_is_looked_for_folder_by_folder(claims: ClaimStore, state: State) -> None:
    assert claims.newest_slot("daily", until=at("12:00")) == (None, [])
    for one in (
        slot("2026-06-29 09:00"),
        slot("2026-06-29 10:00"),
        by_hand(time="2026-06-30 09:00"),
        slot("2026-08-01 09:00"),
        slot("09:00", "weekly"),
    ):
        lost(claims, one)
    os.makedirs(state.at("claims/daily/2026-07-01"))
    newest, ahead = claims.newest_slot("daily", until=at("12:00"))
    assert newest == at("2026-06-29 10:00")
    assert ahead == [at("2026-08-01 09:00")]
    # The short way to it, from the day itself, the day after, one later still, and before them all.
    for until, found in (
        ("2026-06-29 23:00", "2026-06-29 10:00"),
        ("2026-06-29 09:30", "2026-06-29 09:00"),
        ("2026-06-30 08:00", "2026-06-29 10:00"),
        ("2026-07-01 12:00", "2026-06-29 10:00"),
        ("2026-08-02 08:00", "2026-08-01 09:00"),
    ):
        assert claims.newest_at_or_before("daily", until=at(until)) == at(found)
    assert claims.newest_at_or_before("daily", until=at("2026-06-29 08:00")) is None


def test_claims_are_walked_newest_first_and_within_bounds(claims: ClaimStore) -> None:
    ones = [slot("2026-06-30 09:00"), slot("09:00"), by_hand(time="09:30"), firing(time="10:00")]
    for one in ones:
        lost(claims, one)
    assert claims.owners() == ["daily", "wake/routine%3Adaily"]
    everything = [*claims.walk(claims.owners())]
    assert everything == [one.claim_path for one in reversed(ones)]
    some = [*claims.walk(["daily"], since=at("09:00"), until=at("09:29"))]
    assert some == [slot("09:00").claim_path]


def test_open_entries_are_listed_for_one_routine_or_all(claims: ClaimStore) -> None:
    for one in (slot(), slot("09:00", "daily-2"), firing()):
        lost(claims, one)
    assert len(claims.open_entries()) == 3
    assert [one.claim_path for one in claims.open_entries(routine="daily")] == [slot().claim_path]


def test_claims_that_can_not_be_listed_are_an_error_and_not_none(
    claims: ClaimStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> list[str]:
        raise PermissionError(errno.EACCES, "")

    lost(claims)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        for look in (
            claims.open_entries,
            lambda: claims.newest_slot("daily", until=NOW),
            lambda: [*claims.walk(["daily"])],
        ):
            with pytest.raises(StateForeign, match="EACCES"):
                look()


def test_a_claim_that_may_not_be_opened_is_neither_held_nor_swept(claims: ClaimStore) -> None:
    lost(claims)
    (entry,) = claims.open_entries()
    with standing_in(failing(1, errno.EACCES, lasting=True)):
        with pytest.raises(StateForeign, match="EACCES"):
            claims.hold(entry)
        with pytest.raises(StateForeign, match="EACCES"):
            claims.sweep(entry, server_now=server_later())


def test_reading_takes_no_lock_and_changes_nothing(claims: ClaimStore) -> None:
    lost(claims, slot(), Event.STARTED)
    with standing_in(failing(1, errno.EROFS, lasting=True)):
        claims.read(slot())
        claims.is_claimed(slot())
        claims.newest_slot("daily", until=NOW)
        assert [*claims.walk(claims.owners())]
        assert claims.open_entries()


def test_a_touch_shows_life_to_other_hosts(claims: ClaimStore) -> None:
    claim = take(claims)
    os.utime(claim.path, (0, 0))
    claim.touch()
    assert os.stat(claim.path).st_mtime > 0
    claim.let_go()
