"""Wake-ups: what adding, cancelling and taking cost with 100,000 pending against 100.

The pending ones are spread over sessions of 10 and over sixty days. They are written as the store
writes them (one is made by `WakeupStore.add` and its entry copied), since a hundred thousand calls
would only measure the making. Then each operation is done by turns on the large and on the small
state folder, with flushes that cost nothing:

- add: `wake`, with all its guardrails, in a session that has others pending;
- cancel: `unwake` of that one;
- take: `plan` and `take` of one that is due;
- a look while nothing is due, which an engine makes each second: also counted as names listed.
"""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from benchmarks.measure import Places, Row, Size, ratio, room, timed
from routines.domain.wake_firing import Fire
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import DEFAULT_BOUNDS, Timing, Wakeup
from routines.domain.zones import zone
from routines.store.claim import Claim
from routines.store.claims import ClaimStore
from routines.store.state import State, open_for_writing
from routines.store.wake_entries import session_folder
from routines.store.wake_firings import FiringStore
from routines.store.wake_hints import Hint
from routines.store.wakeups import WakeupStore

COUNTS = {Size.TINY: (10, 40), Size.USUAL: (100, 20_000), Size.FULL: (100, 100_000)}
ROUNDS = {Size.TINY: 2, Size.USUAL: 60, Size.FULL: 120}
NOW = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
_A_SESSION = 10
_DAYS = 60
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def _id(number: int) -> str:
    text = ""
    for _ in range(6):
        number, rest = divmod(number, len(_ALPHABET))
        text = _ALPHABET[rest] + text
    return f"w-{text}"


def _fill(state: State, count: int) -> None:
    """Write *count* pending wake-ups: each entry a file of its own, each hint an empty one."""
    store = WakeupStore(state)
    first = _wakeup("first", _id(0), NOW + timedelta(days=_DAYS + 1))
    if not store.add(first):
        raise RuntimeError("the first was not added")
    empty = state.at("empty")
    open(empty, "wb").close()
    made: set[str] = set()
    for number in range(1, count):
        session = f"chat-{number // _A_SESSION}"
        span = timedelta(seconds=3600 + number * (_DAYS * 86_400) // count)
        wakeup = _wakeup(session, _id(number), NOW + span)
        folder = session_folder(session)
        hint = Hint(wakeup.look_at, folder, wakeup.id)
        due = state.at("wakeups", "due", *hint.hour)
        for path in (state.at("wakeups", folder), due):
            if path not in made:
                os.makedirs(path, exist_ok=True)
                made.add(path)
        with open(state.at("wakeups", folder, f"{wakeup.id}.json"), "w", encoding="utf-8") as file:
            json.dump(wakeup.to_json(), file)
        os.link(empty, os.path.join(due, hint.name))


def _wakeup(session: str, wakeup_id: str, at: datetime) -> Wakeup:
    return Wakeup(
        id=wakeup_id,
        session=session,
        prompt="See whether the deployment has gone through.",
        timing=Timing.AT,
        asked="a time",
        schedule=None,
        tz="UTC",
        next_at=at,
        asked_for=at,
        created_at=NOW,
        created_by="ana@studio",
    )


class One:
    """One state folder, and the operations on it."""

    def __init__(self, folder: str, count: int) -> None:
        self.state = open_for_writing(os.path.join(folder, f"state-{count}"), boot=None)
        _fill(self.state, count)
        self.store = WakeupStore(self.state)
        self.firings = FiringStore(self.state)
        self.claims = ClaimStore(self.state)
        self.now = NOW

    def add(self) -> Wakeup:
        request = WakeRequest(
            session="chat-1", prompt=f"Look again, {self.now}.", in_="30h", by="ana@studio"
        )
        found = self.store.wake(request, now=self.now, bounds=DEFAULT_BOUNDS, zone_key="UTC")
        if not isinstance(found, Wakeup):
            raise TypeError("it was set already")
        return found

    def cancel(self, wakeup: Wakeup) -> None:
        self.store.unwake(
            wakeup.session, wakeup.id, claims=self.claims, by="benchmark", at=self.now
        )

    def due(self, number: int) -> Hint:
        """Make one that is due, of a session of its own; not timed."""
        wakeup = _wakeup(f"due-{number}", _id(number), self.now - timedelta(seconds=5))
        self.store.add(wakeup)
        return Hint(wakeup.look_at, session_folder(wakeup.session), wakeup.id)

    def take(self, hint: Hint) -> None:
        place = zone("UTC")
        planned = self.firings.plan(
            hint, claims=self.claims, now=self.now, bounds=DEFAULT_BOUNDS, place=place
        )
        if planned is None or not isinstance(planned[1], Fire):
            raise RuntimeError(f"{hint.id} is not to be fired: {planned}")
        wakeup, fire = planned
        claim = self.firings.take(
            wakeup.session, wakeup.id, fire.instant, claims=self.claims, at=self.now,
            bounds=DEFAULT_BOUNDS, place=place,
        )  # fmt: skip
        if not isinstance(claim, Claim):
            raise TypeError("it was not taken")
        claim.let_go()

    def look(self) -> None:
        if self.store.due(self.now):
            raise RuntimeError("something is due")

    def names_listed(self) -> int:
        """Return how many names one look reads."""
        seen, listdir = 0, os.listdir

        def counted(path: Any) -> list[str]:
            nonlocal seen
            found = listdir(path)
            seen += len(found)
            return found

        os.listdir = counted
        try:
            self.look()
        finally:
            os.listdir = listdir
        return seen


def run(size: Size, places: Places) -> Iterable[Row]:
    few, many = COUNTS[size]
    with room(places.memory) as folder:
        ones = One(folder, few), One(folder, many)
        times: dict[str, tuple[list[float], list[float]]] = {}
        for number in range(ROUNDS[size]):
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                for what, seconds in _round(ones[index], number):
                    times.setdefault(what, ([], []))[index].append(seconds)
        note = f"{many:,} pending against {few}"
        for what, (small, large) in times.items():
            yield Row(what, ratio(median(large), median(small)), 3.0, note=note)
        names = [one.names_listed() for one in ones]
        # A day's folder for each day, an hour's for each hour of the first: no session, no entry.
        yield Row("names listed by a look while nothing is due", names[1], _DAYS + 30, "",
                  f"{names[0]} with {few}")  # fmt: skip


def _round(one: One, number: int) -> Iterable[tuple[str, float]]:
    one.now = NOW + timedelta(seconds=number)
    added: list[Wakeup] = []
    yield "add", timed(lambda: added.append(one.add()))
    yield "cancel", timed(lambda: one.cancel(added[0]))
    hint = one.due(10_000_000 + number)
    yield "take", timed(lambda: one.take(hint))
    yield "a look while nothing is due", timed(one.look)
