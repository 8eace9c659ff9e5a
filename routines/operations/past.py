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
from typing import Any

from routines.domain.alerting import Weight, threshold, weight
from routines.domain.names import instant_name, parse_instant, parse_instant_name, safe_name
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason
from routines.domain.routine import CatchUpPolicy, Routine
from routines.operations.endings import ending, is_of_slot, name_key
from routines.operations.entries import Entry, as_it_stands, from_missed
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Missed
from routines.store.state import State

WEEK = timedelta(days=7)
# A run of failures is counted this far: further back than a person counts.
_LOOK_BACK = 50
_BAD = frozenset([Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED])


@dataclass(frozen=True, slots=True)
class Ended:
    """What the last line of a record says.

    Attributes:
        instant: What it is filed under.
        ended_at: When it ended.
        outcome: How it ended.
        warned: Whether it carries warnings.
        weight: What it says of the routine's health, as an alert takes it.
        is_wakeup: Whether it is a wake-up of the routine's session.
        whole: Reads the rest.
    """

    instant: datetime
    ended_at: datetime
    outcome: Outcome
    warned: bool
    weight: Weight
    is_wakeup: bool
    whole: Callable[[], Entry | None]

    @property
    def is_bad(self) -> bool:
        """Whether it is marked with `!`."""
        return self.weight is Weight.PROBLEM or self.outcome in _BAD or self.warned


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
        failing: How many of the newest were problems, one after the other; 0 while they are too
            few to be told of.
        failing_since: The first of these, or None.

    Args:
        state: The state folder.
        routine: Its name.
        now: The present.
        known: What its file says, or None if it can't be used.
    """

    def __init__(
        self, state: State | None, routine: str, *, now: datetime, known: Routine | None = None
    ) -> None:
        self._state = state
        self._routine = routine
        self._known = known
        self._now = now
        self._read: list[Ended] = []
        self._more = iter(()) if state is None else self._walk(state)
        newest = next(self._ended(), None)
        self.last = None if newest is None else newest.whole()
        self.failing, self.failing_since = self._failures()

    def _failures(self) -> tuple[int, datetime | None]:
        """Return what an alert goes by: how many problems in a row, and the first of them."""
        newer = takewhile(lambda one: one.weight is not Weight.WELL, self._all())
        bad = [one for one in islice(newer, _LOOK_BACK) if one.weight is Weight.PROBLEM]
        schedule = None if self._known is None else self._known.schedule
        if not bad or len(bad) < threshold(schedule, self._now):
            return 0, None
        return len(bad), bad[-1].instant

    @property
    def is_warned_once(self) -> bool:
        """Whether all that is wrong is that the newest turn completed with a warning."""
        return self.failing == 1 and self.last is not None and bool(self.last.warnings)

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
        """Yield its slots and runs by hand, the newest first."""
        return (one for one in self._all() if not one.is_wakeup)

    def _all(self) -> Iterator[Ended]:
        """Yield from the newest on; what was read once is not read again."""
        yield from self._read
        for one in self._more:
            self._read.append(one)
            yield one

    def _walk(self, state: State) -> Iterator[Ended]:
        claims, cursors = ClaimStore(state), CursorStore(state)
        folders = [safe_name(self._routine), f"wake/{safe_name(f'routine:{self._routine}')}"]
        catch_up = CatchUpPolicy.ONE if self._known is None else self._known.catch_up
        made_good = catch_up is not CatchUpPolicy.NONE
        makers: list[Iterator[tuple[str, Callable[[], Ended | None]]]] = [
            (
                (name_key(path), partial(_of_claim, state, claims, path))
                for path in claims.walk(folders, until=self._now)
            ),
            (
                (instant_name(one.last), partial(_of_missed, one, made_good=made_good))
                for one in cursors.missed(self._routine, until=self._now)
            ),
        ]
        for _key, make in merge(*makers, key=itemgetter(0), reverse=True):
            one = make()
            if one is not None:
                yield one


def _of_missed(missed: Missed, *, made_good: bool) -> Ended:
    return Ended(
        missed.last,
        missed.at,
        Outcome.MISSED,
        warned=False,
        weight=weight(Kind.SLOT, Outcome.MISSED, missed.reason, made_good=made_good),
        is_wakeup=False,
        whole=partial(from_missed, missed),
    )


def _of_claim(state: State, claims: ClaimStore, path: str) -> Ended | None:
    """Return what a claim ended in; None while it has no outcome."""
    end = ending(files.read(state.at(path)) or b"")
    instant = parse_instant_name(name_key(path))
    if instant is None or end is None:
        return None
    try:
        ended_at = parse_instant(str(end.get("at")))
    except ValueError:
        ended_at = instant
    outcome, warned = Outcome(end["outcome"]), bool(end.get("warnings"))
    is_wakeup = path.startswith("claims/wake/")
    kind = Kind.WAKE if is_wakeup else Kind.SLOT if is_of_slot(path) else Kind.MANUAL
    return Ended(
        instant,
        ended_at,
        outcome,
        warned=warned,
        weight=weight(kind, outcome, _reason(end), warned=warned),
        is_wakeup=is_wakeup,
        whole=partial(_read_whole, state, claims, path),
    )


def _reason(end: dict[str, Any]) -> Reason | None:
    try:
        return Reason(end["reason"])
    except (ValueError, KeyError):
        # None, or a word of another version.
        return None


def _read_whole(state: State, claims: ClaimStore, path: str) -> Entry | None:
    record = claims.read_path(path)
    if record is None:
        return None
    return as_it_stands(record, state=state, claims=claims)
