"""Two at once, without luck: one is interrupted before each of its calls by all of the other.

And the history of many at once: slots are independent and written once, so whether it could have
been one after the other is decided in one pass, slot by slot.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.outcome import Outcome
from routines.domain.record import Event
from routines.errors import RoutinesError
from routines.store import files
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.state import State, open_for_writing
from tests.builders import BOOT, NOW, at, draft, owner, slot
from tests.store.crash import Steps, Unsynced, as_a_new_process, check_restart, standing_in


def every_interruption(
    folder: str, one: Callable[[State], Any], other: Callable[[State], Any]
) -> Iterator[tuple[State, Any, Any]]:
    """Yield what *one* and *other* answered, for each call of *one* that *other* comes before."""
    number = 1
    while True:
        answers: list[Any] = []
        state = open_for_writing(os.path.join(folder, f"state-{number}"), boot=BOOT)

        def before(
            count: int,
            name: str,
            args: Any,
            number: int = number,
            answers: list[Any] = answers,
            state: State = state,
        ) -> None:
            if count == number:
                # The other's calls are not counted.
                with standing_in(Unsynced()):
                    answers.append(other(state))

        steps = Steps(before=before)
        with standing_in(Unsynced()):
            try:
                with standing_in(steps):
                    first = one(state)
            except (RoutinesError, OSError) as error:
                raise AssertionError(f"interrupted before call {number}: {error}") from error
            if not answers:
                return
            yield state, first, answers[0]
        as_a_new_process()
        number += 1


# Checks that the real store passes, and a wrong one must not ------------------------------------


def one_slot_has_one_winner(folder: str) -> None:
    def take(state: State) -> Claim | None:
        return ClaimStore(state).take(draft(), at=NOW)

    for state, one, other in every_interruption(folder, take, take):
        winners = [claim for claim in (one, other) if claim is not None]
        assert len(winners) == 1, f"{len(winners)} winners of one slot"
        kept = ClaimStore(state).read(slot())
        assert kept is not None
        assert kept.claim["draft"] == winners[0].record.claim["draft"]
        winners[0].settle(Outcome.COMPLETED, at=NOW)
        as_a_new_process()
        check_restart(state.path, [["settled", slot().claim_path, "completed"]], [slot()])


def two_writers_of_one_file_leave_it_whole(folder: str) -> None:
    long, short = b"long" * 4000, b"short"

    def write(data: bytes) -> Callable[[State], None]:
        return lambda state: files.replace(state.at("file"), data)

    for state, _, _ in every_interruption(folder, write(long), write(short)):
        found = files.read(state.at("file"))
        assert found in (long, short), "neither what the one nor what the other wrote"


def a_claim_of_the_living_is_never_taken_up(folder: str) -> None:
    def turn(state: State) -> Claim:
        claim = ClaimStore(state).take(draft(), at=NOW)
        assert claim is not None
        claim.append(Event.STARTED, at=NOW)
        claim.settle(Outcome.COMPLETED, at=NOW)
        return claim

    def reconcile(state: State) -> list[Claim]:
        claims = ClaimStore(state)
        found = (claims.hold(entry) for entry in claims.open_entries())
        return [claim for claim in found if claim is not None]

    for state, claim, held in every_interruption(folder, turn, reconcile):
        assert not held, "the claim of a live turn was taken up by another"
        assert claim.still_named(), "the name leads to another file than the lock"
        record = ClaimStore(state).read(slot())
        assert record is not None
        assert record.outcome is Outcome.COMPLETED


def life_is_told_by_the_lock(folder: str) -> None:
    claims = ClaimStore(open_for_writing(os.path.join(folder, "state"), boot=BOOT))
    # Its number belongs to somebody else now: to us.
    reused = claims.take(draft(owner=owner(pid=os.getpid()).to_json()), at=NOW)
    assert reused is not None
    reused.let_go()
    (entry,) = claims.open_entries()
    taken_up = claims.hold(entry)
    assert taken_up is not None, "a dead owner looks alive, since its number was given out again"
    taken_up.settle(Outcome.COMPLETED, at=NOW)
    # It lives in another pid namespace: its number is nobody's here.
    foreign = claims.take(draft(slot("09:01"), owner=owner(pid=2**22 + 1).to_json()), at=NOW)
    assert foreign is not None
    (entry,) = claims.open_entries()
    assert claims.hold(entry) is None, "a live owner looks dead, since its number is not known here"
    as_a_new_process()


def the_newest_slot_is_the_newest(folder: str) -> None:
    def take(time: str) -> Callable[[State], Claim | None]:
        return lambda state: ClaimStore(state).take(draft(slot(time)), at=NOW)

    for state, _, _ in every_interruption(folder, take("09:00"), take("09:01")):
        newest, _ = ClaimStore(state).newest_slot("daily", until=at("12:00"))
        assert newest == at("09:01"), "the newest slot went backwards"


# Histories -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One try to claim a slot, with the time of its call and of its reply.

    Attributes:
        slot: Which.
        called: When it was called.
        replied: When it was answered.
        won: Whether the answer was the claim.
        newest: What the newest slot was said to be between *replied* and *asked_until*.
        asked_until: When that was answered.
    """

    slot: datetime
    called: int
    replied: int
    won: bool
    newest: datetime | None = None
    asked_until: int = 0


def check_history(calls: list[Call], slots: list[datetime]) -> None:
    """Check that the calls could have been made one after the other on a store that is right."""
    by_slot: dict[datetime, list[Call]] = {one: [] for one in slots}
    for call in calls:
        by_slot[call.slot].append(call)
    winners: dict[datetime, Call] = {}
    for one, made in by_slot.items():
        won = [call for call in made if call.won]
        assert len(won) == 1, f"{len(won)} winners of {one}"
        winners[one] = won[0]
        for call in made:
            assert call.replied >= won[0].called, "told that it is claimed before anybody asked"
    for call in calls:
        if call.asked_until:
            finished = [s for s, won in winners.items() if won.replied <= call.replied]
            begun = [s for s, won in winners.items() if won.called <= call.asked_until]
            assert call.newest is not None
            assert max(finished, default=call.newest) <= call.newest, "the newest went backwards"
            assert call.newest <= max(begun), "the newest was not claimed yet"


def refuses(check: Callable[[], None]) -> bool:
    """Return whether *check* turns red."""
    with suppress(AssertionError):
        check()
        return False
    return True
