"""What has ended of one routine, newest first, read no further than it is asked for.

`list` asks this of every routine at once. So the names of the files say what comes next, a record
is known by its last line alone, and only what is shown is read whole.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from operator import itemgetter

from routines.domain.names import instant_name, parse_instant, parse_instant_name, safe_name
from routines.domain.outcome import Outcome, Reason
from routines.operations.endings import ending, name_key
from routines.operations.entries import Entry, as_it_stands, from_missed
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Missed
from routines.store.state import State

WEEK = timedelta(days=7)
# A run of failures is counted this far: further back than a person counts.
_LOOK_BACK = 50
_BAD = frozenset([Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED])
# These neither begin nor end a run of failures: no turn of the agent has ended.
_SAYS_NOTHING = frozenset([Outcome.SKIPPED, Outcome.CANCELLED, Outcome.SUPERSEDED, Outcome.MISSED])


@dataclass(frozen=True, slots=True)
class Ended:
    """What the last line of a record says.

    Attributes:
        instant: What it is filed under.
        ended_at: When it ended.
        outcome: How it ended.
        warned: Whether it carries warnings.
        whole: Reads the rest.
    """

    instant: datetime
    ended_at: datetime
    outcome: Outcome
    warned: bool
    whole: Callable[[], Entry | None]

    @property
    def is_bad(self) -> bool:
        """Whether it is marked with `!`."""
        return self.outcome in _BAD or self.outcome is Outcome.MISSED or self.warned


def _is_sign(one: Ended, *, gates: bool) -> bool:
    """Return whether it says that the routine works: it completed, or its gate kept it."""
    if one.outcome is Outcome.COMPLETED:
        return True
    if not gates or one.outcome is not Outcome.SKIPPED:
        return False
    whole = one.whole()
    return whole is not None and whole.reason == Reason.GATE.value


class Past:
    """What has ended of one routine.

    Attributes:
        last: The newest of it, whole; None if there is nothing.
        failing: How many of the newest ended badly, one after the other.
        failing_since: The first of these, or None.
    """

    def __init__(self, state: State | None, routine: str, *, now: datetime) -> None:
        self._state = state
        self._routine = routine
        self._now = now
        self._read: list[Ended] = []
        self._more = iter(()) if state is None else self._walk(state)
        newest = next(self._ended(), None)
        self.last = None if newest is None else newest.whole()
        self.failing, self.failing_since = self._failures()

    def _failures(self) -> tuple[int, datetime | None]:
        count, since = 0, None
        for one in islice(self._ended(), _LOOK_BACK):
            if one.outcome in _BAD:
                count, since = count + 1, one.instant
            elif one.outcome not in _SAYS_NOTHING:
                break
        return count, since

    def newest_sign(self, *, gates: bool) -> datetime | None:
        """Return when the newest that completed ended, or None if none did of late.

        Args:
            gates: Whether a slot that its gate skipped counts as well.
        """
        for one in islice(self._ended(), _LOOK_BACK):
            if _is_sign(one, gates=gates):
                return one.ended_at
        return None

    def begun(self, *, gates: bool) -> list[datetime]:
        """Return when each turn began that has ended since `newest_sign`."""
        newer = takewhile(lambda one: not _is_sign(one, gates=gates), self._ended())
        wholes = (one.whole() for one in islice(newer, _LOOK_BACK))
        return [one.started_at for one in wholes if one is not None and one.started_at is not None]

    def week(self, most: int) -> tuple[int | None, int | None, bool]:
        """Return how many of seven days completed, how many are bad, and whether more exist.

        Args:
            most: So many are looked at.
        """
        ok = bad = seen = 0
        for one in self._ended():
            if one.instant < self._now - WEEK:
                break
            if seen == most:
                return ok, bad, True
            seen += 1
            ok += one.outcome is Outcome.COMPLETED
            bad += one.is_bad
        return (ok, bad, False) if seen else (None, None, False)

    def _ended(self) -> Iterator[Ended]:
        """Yield from the newest on; what was read once is not read again."""
        yield from self._read
        for one in self._more:
            self._read.append(one)
            yield one

    def _walk(self, state: State) -> Iterator[Ended]:
        claims, cursors = ClaimStore(state), CursorStore(state)
        makers: list[Iterator[tuple[str, Callable[[], Ended | None]]]] = [
            (
                (name_key(path), partial(_of_claim, state, claims, path))
                for path in claims.walk([safe_name(self._routine)], until=self._now)
            ),
            (
                (instant_name(one.last), partial(_of_missed, one))
                for one in cursors.missed(self._routine, until=self._now)
            ),
        ]
        for _key, make in merge(*makers, key=itemgetter(0), reverse=True):
            one = make()
            if one is not None:
                yield one


def _of_missed(missed: Missed) -> Ended:
    return Ended(
        missed.last, missed.at, Outcome.MISSED, warned=False, whole=partial(from_missed, missed)
    )


def _of_claim(state: State, claims: ClaimStore, path: str) -> Ended | None:
    """Return what a claim ended in; None while it has no outcome."""
    end = ending(files.read(state.at(path)) or b"")
    instant = parse_instant_name(name_key(path))
    if instant is None or end is None:
        return None
    whole = partial(_read_whole, state, claims, path)
    try:
        ended_at = parse_instant(str(end.get("at")))
    except ValueError:
        ended_at = instant
    return Ended(instant, ended_at, Outcome(end["outcome"]), bool(end.get("warnings")), whole)


def _read_whole(state: State, claims: ClaimStore, path: str) -> Entry | None:
    record = claims.read_path(path)
    if record is None:
        return None
    return as_it_stands(record, state=state, claims=claims)
