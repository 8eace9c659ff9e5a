"""What happened: `history`, newest first, from the names of files, opening only what is shown."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, islice
from operator import itemgetter

from routines.domain.decoding import whole_or
from routines.domain.names import RESERVED_ROUTINES, day_name, instant_name, safe_name
from routines.domain.outcome import Outcome, State, Trigger
from routines.domain.record import Record
from routines.errors import UsageError
from routines.operations.context import Context
from routines.operations.endings import ending, is_calm, is_of_slot, name_key
from routines.operations.entries import MOST_COUNTED as MOST_OF_A_RECORD
from routines.operations.entries import Entry, as_it_stands, from_missed, owed_entry
from routines.operations.finding import check_known, find, known_routines
from routines.operations.last_good import tagged
from routines.operations.life import schedulers
from routines.operations.pending import due_slots, due_words, open_claims, slots_of
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore, Missed
from routines.store.state import State as StateFolder

# Without a name: what happened since yesterday at this time.
USUAL_SPAN = timedelta(hours=24)
USUAL_COUNT = 20
# A filter that matches little is not to read 200,000 files: so many are opened at the most.
MOST_OPENED = 20_000
# To say how many are like what was asked for, so many more are opened behind the last row.
MOST_OPENED_TO_COUNT = 5_000
# Beyond so many the count is "more than": all names of years would have to be listed for it.
MOST_COUNTED = 10_000
# A thousand routines may share a second; to read them all for the newest twenty would take long.
_SORTED_WITHIN_A_SECOND = 50
_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked for.

    Attributes:
        routine: Its name, or None for all.
        count: How many at most; None for all.
        outcome: Only this one; a state like `running` too.
        since: Not before this instant.
        problems: Only what `Entry.is_problem` says.
        session: Only turns of this session.
        before: Only what is older than this occurrence.
        tags: Only of routines that have one of these; none for all.
    """

    routine: str | None = None
    count: int | None = USUAL_COUNT
    outcome: str | None = None
    since: datetime | None = None
    problems: bool = False
    session: str | None = None
    before: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def picks(self) -> bool:
        """Whether only some of what is recorded is asked for, which no name of a file tells."""
        given = (self.outcome, self.session, self.before)
        return self.problems or any(one is not None for one in given)

    def matches(self, entry: Entry) -> bool:
        """Return whether *entry* is asked for."""
        if self.outcome is not None and self.outcome not in (entry.outcome, entry.state):
            return False
        if self.session is not None and entry.session != self.session:
            return False
        return entry.is_problem if self.problems else True


@dataclass(frozen=True, slots=True)
class History:
    """The rows, and what they are part of.

    Attributes:
        routine: Whose, or None for all.
        entries: Newest first; what is due now and unclaimed stands first.
        total: How many are recorded in all; beyond MOST_COUNTED, at least how many.
        counts: How many of the rows ended in each outcome; slots of a counted record one by one.
        uncounted_missed: Whether more slots were missed than `counts` says: of a record of more
            than 1000, or one that has not been counted yet, the number is not known.
        unsettled: How many rows have no outcome.
        open_elsewhere: How many claims of the routine have no outcome and are not among the rows.
        cut: Whether the search gave up before all was looked at.
        matching: How many are like what was asked for, if that is less than all; else None.
        uncounted: Whether there may be more of these than `matching`.
    """

    routine: str | None
    entries: tuple[Entry, ...]
    total: int
    counts: dict[str, int]
    unsettled: int
    open_elsewhere: int
    cut: bool = False
    matching: int | None = None
    uncounted: bool = False
    uncounted_missed: bool = False

    @property
    def asked_words(self) -> str:
        """Of how many the rows are a part, as it is said."""
        if self.matching is None:
            return self.total_words
        return f"at least {self.matching}" if self.uncounted else f"{self.matching}"

    @property
    def total_words(self) -> str:
        """The total as it is said: a number, or `more than 10000`."""
        total = max(self.total, len(self.entries))
        return f"{total}" if self.total <= MOST_COUNTED else f"more than {MOST_COUNTED}"


WORDS = frozenset([*(o.value for o in Outcome), *(s.value for s in State), "unknown"])


def history(context: Context, query: Query) -> History:
    """Return what happened.

    Raises:
        UnknownRoutine: There never was a routine of that name.
        UsageError: No outcome and no state has that name.
    """
    rows = _rows(context, query)
    if rows is None:
        return History(query.routine, (), 0, {}, 0, 0)
    query, state = rows.query, rows.state
    coming = iter(rows)
    entries = tuple(islice(coming, query.count))
    cut = rows.cut
    matching = None
    if query.picks:
        rows.open_at_most(MOST_OPENED_TO_COUNT)
        matching = len(entries) + sum(1 for _ in coming)
    return History(
        routine=query.routine,
        entries=entries,
        total=_total(context, state, query, entries),
        counts=_count(entries),
        unsettled=sum(entry.outcome is None for entry in entries),
        open_elsewhere=_count_open_elsewhere(context, state, query, entries),
        cut=cut,
        matching=matching,
        uncounted=rows.cut,
        uncounted_missed=any(map(_is_uncounted, entries)),
    )


def newest(context: Context, query: Query) -> tuple[Entry, ...]:
    """Return the rows alone: nothing is counted for it.

    Raises:
        UnknownRoutine: There never was a routine of that name.
        UsageError: No outcome and no state has that name.
    """
    rows = _rows(context, query)
    return () if rows is None else tuple(islice(rows, rows.query.count))


def _rows(context: Context, query: Query) -> "_Rows | None":
    """Return the rows of *query*, None where there is no state folder yet."""
    if query.outcome is not None and query.outcome not in WORDS:
        raise UsageError(
            f"no outcome is called {query.outcome!r}",
            hint="one of " + ", ".join(outcome.value for outcome in Outcome),
        )
    if query.routine is not None and query.routine not in RESERVED_ROUTINES:
        check_known(context, query.routine)
    now = context.clock.now()
    if query.routine is None and query.since is None and query.before is None:
        query = replace(query, since=now - USUAL_SPAN)
    state = context.state_or_none
    if state is None:
        return None
    before = None if query.before is None else find(context, query.before)
    return _Rows(context, state, query, before=before)


def _total(context: Context, state: StateFolder, query: Query, entries: tuple[Entry, ...]) -> int:
    folders = folders_of(context, state, query)
    total = count_records(state, folders, since=query.since, most=MOST_COUNTED)
    if "job" in folders:
        return total
    # Jobs in the session of a routine lie among all jobs: those that were found count.
    return total + sum(entry.trigger == Trigger.JOB.value for entry in entries)


def _count_open_elsewhere(
    context: Context, state: StateFolder, query: Query, entries: tuple[Entry, ...]
) -> int:
    claims, names = ClaimStore(state), wanted_routines(context, query)
    if names is None:
        in_all = len(claims.open_entries())
    else:
        in_all = sum(len(claims.open_entries(routine=name)) for name in names)
        in_all += sum(
            record is not None and record.end is None and is_of_query(record, names)
            for entry in (claims.open_entries() if job_folders(names) else ())
            if entry.is_job
            for record in (claims.read_path(entry.claim_path),)
        )
    # What is due and unclaimed has a row without a claim.
    shown = sum(entry.outcome is None and entry.claimed_at is not None for entry in entries)
    # One that was settled in between is in neither.
    return max(in_all - shown, 0)


def wanted_routines(context: Context, query: Query) -> list[str] | None:
    """Return the routines that a query is about; None for everything."""
    if not query.tags:
        return None if query.routine is None else [query.routine]
    carried = tagged(context, query.tags)
    return [name for name in carried if query.routine in (None, name)]


def _count(entries: tuple[Entry, ...]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for entry in entries:
        if entry.outcome is not None:
            found[entry.outcome] += (
                whole_or((entry.missed or {}).get("count"), 1)
                if (entry.outcome == Outcome.MISSED.value)
                else 1
            )
    return dict(found)


def _is_uncounted(entry: Entry) -> bool:
    if entry.outcome != Outcome.MISSED.value or entry.missed is None:
        return False
    count = entry.missed.get("count")
    return not count or count > MOST_OF_A_RECORD


def folders_of(context: Context, state: StateFolder, query: Query) -> list[str]:
    """Return the folders of claims that the query can be about."""
    owners = ClaimStore(state).owners()
    names = wanted_routines(context, query)
    if names is None:
        return owners
    wanted = set()
    for name in names:
        if name == "wake":
            wanted |= {folder for folder in owners if folder.startswith("wake/")}
        routine = context.workspace.routines.get(name)
        own = _past_session(state, name) if routine is None else routine.session_for("")
        sessions = {f"routine:{name}", *([own] if own else [])}
        wanted |= {safe_name(name), *(f"wake/{safe_name(session)}" for session in sessions)}
    return [folder for folder in owners if folder in wanted]


def job_folders(routines: list[str] | None) -> list[str]:
    """Return the folders to be looked through for jobs in the sessions of *routines*.

    Names do not say which session a job is in. Where all are asked for, they are there already.
    """
    return [] if routines is None or set(routines) <= RESERVED_ROUTINES else ["job"]


def is_of_query(record: Record, routines: list[str] | None) -> bool:
    """Return whether a job is asked for where *routines* are, None for everything."""
    return routines is None or "job" in routines or record.routine in routines


def _past_session(state: StateFolder, name: str) -> str | None:
    """Return the session of the newest slot of a routine whose file is gone or can't be used.

    Its file alone says which one it names; the wake-ups that were set in it are filed there.
    """
    claims = ClaimStore(state)
    newest = next(filter(is_of_slot, claims.walk([safe_name(name)])), None)
    record = None if newest is None else claims.read_path(newest)
    return None if record is None else record.session


class _Rows:
    """The rows of a query, newest first, made one by one as they are asked for."""

    def __init__(
        self,
        context: Context,
        state: StateFolder,
        query: Query,
        *,
        before: Record | Missed | None,
    ) -> None:
        self.context = context
        self.state = state
        self.query = query
        self.before = None if before is None else _order(as_entry(context, before))
        self.until = None if self.before is None else self.before[0]
        self.claims = ClaimStore(state)
        self.cut = False
        self._opened = 0
        self._jobs_opened = 0
        self._most = self._most_jobs = MOST_OPENED

    def open_at_most(self, more: int) -> None:
        """Give up after so many more: what is still to come is not shown, and only counted."""
        self._most = min(self._most, self._opened + more)
        self._most_jobs = min(self._most_jobs, self._jobs_opened + more)

    def __iter__(self) -> Iterator[Entry]:
        if self.until is None:
            yield from filter(self.query.matches, self._computed())
        for _key, same in groupby(self._recorded(), key=itemgetter(0)):
            # The names tell the order to the second, the records within it.
            for chunk in batches(same, _SORTED_WITHIN_A_SECOND):
                if self._opened >= self._most:
                    self.cut = True
                    return
                entries = [entry for _key, make in chunk if (entry := make()) is not None]
                yield from filter(self._is_asked_for, sorted(entries, key=_order, reverse=True))

    def _is_asked_for(self, entry: Entry) -> bool:
        older = self.before is None or _order(entry) < self.before
        return older and self.query.matches(entry)

    def _computed(self) -> Iterator[Entry]:
        context, query = self.context, self.query
        routines = context.workspace.routines
        names = wanted_routines(context, query)
        wanted = [r for name, r in routines.items() if names is None or name in names]
        now = context.clock.now()
        alive = schedulers(self.state, now=now)
        settings = context.workspace.settings
        due = due_slots(
            self.state,
            wanted,
            now=now,
            alive=alive,
            opened=open_claims(self.state),
            known=routines,
            concurrency=settings.concurrency,
        )
        for one in sorted(due.values(), key=lambda one: one.slot, reverse=True):
            routine = routines[one.routine]
            detail = due_words(one, alive, concurrency=settings.concurrency)
            for slot in slots_of(one, routine):
                yield owed_entry(
                    one.routine,
                    slot,
                    tz=routine.zone,
                    state=one.state,
                    detail=detail,
                    session=routine.session_for(""),
                )

    def _recorded(self) -> Iterator["_Maker"]:
        """Yield how to make each row, newest first, opening no file."""
        query, until = self.query, self.until
        folders = folders_of(self.context, self.state, query)
        claims: Iterator[_Maker] = (
            (name_key(path), partial(self._claim, path))
            for path in self.claims.walk(folders, since=query.since, until=until)
        )
        wanted = wanted_routines(self.context, query)
        routines = known_routines(self.context) if wanted is None else wanted
        missed: list[Iterator[_Maker]] = [
            ((instant_name(one.last), partial(from_missed, one)) for one in self._missed(routine))
            for routine in routines
        ]
        jobs: Iterator[_Maker] = (
            (name_key(path), partial(self._job, path, wanted))
            for path in self.claims.walk(job_folders(wanted), since=query.since, until=until)
        )
        found = (claims, jobs, *missed)
        merged: Iterator[_Maker] = heapq.merge(*found, key=itemgetter(0), reverse=True)
        for maker in merged:
            if until is None or maker[0] <= instant_name(until):
                yield maker

    def _missed(self, routine: str) -> Iterator[Missed]:
        store = CursorStore(self.state)
        return store.missed(routine, since=self.query.since, until=self.until)

    def _job(self, path: str, wanted: list[str] | None) -> Entry | None:
        """Return the row of a job if it is in the session of a routine that is asked for."""
        if self._jobs_opened >= self._most_jobs:
            # The slots go on all the same.
            self.cut = True
            return None
        self._jobs_opened += 1
        record = self.claims.read_path(path)
        if record is None or not is_of_query(record, wanted):
            return None
        return self._claim(path)

    def _claim(self, path: str) -> Entry | None:
        self._opened += 1
        if self._is_left_out(path):
            return None
        record = self.claims.read_path(path)
        if record is None:
            return None
        return _in_zone(self.context, as_it_stands(record, state=self.state, claims=self.claims))

    def _is_left_out(self, path: str) -> bool:
        """Return whether the last line alone says that a record is not asked for.

        A filter that matches little reads thousands; to fold each whole would take seconds.
        """
        query = self.query
        if not query.problems and query.outcome is None:
            return False
        end = ending(files.read(self.state.at(path)) or b"")
        if end is None:
            return False
        if query.problems and is_calm(end):
            return True
        return query.outcome not in (None, end["outcome"], State.SETTLED.value)


def _order(entry: Entry) -> tuple[datetime, datetime, str]:
    """Return what rows are ordered by: what they are filed under, then when they were claimed."""
    return entry.instant, entry.claimed_at or entry.instant, entry.id


def batches(found: Iterator["_Maker"], size: int) -> Iterator[list["_Maker"]]:
    """Yield what comes in lists of at most *size*, no further than it is asked for."""
    while chunk := list(islice(found, size)):
        yield chunk


# How to make a row, and the instant that it sorts by as text.
_Maker = tuple[str, Callable[[], Entry | None]]


def count_records(
    state: StateFolder, folders: list[str], *, since: datetime | None = None, most: int
) -> int:
    """Return how many claims and counted records there are, by their names.

    More than *most* only means that there are more: it stops there.
    """
    total = 0
    for base, suffix in (("claims", ".jsonl"), ("missed", ".json")):
        for folder in folders:
            for many in _counts(state.at(base, *folder.split("/")), suffix, since):
                total += many
                if total > most:
                    return total
    return total


def _counts(folder: str, suffix: str, since: datetime | None) -> Iterator[int]:
    """Yield how many names each day has."""
    first = "" if since is None else day_name(since)
    least = "" if since is None else instant_name(since)
    for day in files.names(folder):
        if day >= first:
            names = files.names(f"{folder}/{day}")
            yield sum(name.endswith(suffix) and name >= least for name in names)


def follow(context: Context, query: Query) -> Iterator[Entry]:
    """Yield what is recorded from now on: each occurrence as its turn starts and as it ends.

    Never returns by itself; it looks once a second.
    """
    seen = {entry.id: _mark(entry) for entry in newest(context, query)}
    while True:
        context.clock.sleep(_POLL_S)
        fresh = [one for one in newest(context, query) if seen.get(one.id) != _mark(one)]
        for entry in reversed(fresh):
            seen[entry.id] = _mark(entry)
            yield entry


def _mark(entry: Entry) -> tuple[str, str | None]:
    return entry.state, entry.outcome


def entry_of(context: Context, ref: str) -> Entry:
    """Return the row of one occurrence.

    Raises:
        UnknownOccurrence: There is none.
    """
    return as_entry(context, find(context, ref))


def as_entry(context: Context, found: Record | Missed) -> Entry:
    """Return the row of a record."""
    if isinstance(found, Missed):
        return from_missed(found)
    claims = ClaimStore(context.state)
    return _in_zone(context, as_it_stands(found, state=context.state, claims=claims))


def _in_zone(context: Context, entry: Entry) -> Entry:
    """Return a row with the zone that it is read in: a program that works a job knows none."""
    if entry.tz is not None or entry.trigger != Trigger.JOB.value:
        return entry
    return replace(entry, tz=context.zone.key)
