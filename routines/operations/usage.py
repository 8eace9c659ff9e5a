"""What turns cost: money and tokens, of each turn, of each day, of each routine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

from routines.domain.names import RESERVED_ROUTINES, format_instant
from routines.domain.zones import shown
from routines.errors import UsageError
from routines.operations.context import Context, zone_or
from routines.operations.entries import Entry, from_record
from routines.operations.finding import check_known
from routines.operations.history import (
    MOST_OPENED,
    Query,
    folders_of,
    is_of_query,
    job_folders,
    wanted_routines,
)
from routines.store.claims import ClaimStore

# Without a beginning: a week is what a person compares.
USUAL_SPAN = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Sum:
    """What some turns cost together.

    Attributes:
        turns: How many started.
        usd: As far as their agents say; None if none of them says.
        tokens: As `usd`.
        silent: How many say neither.
    """

    turns: int = 0
    usd: float | None = None
    tokens: int | None = None
    silent: int = 0

    def plus(self, entry: Entry) -> "Sum":
        """Return the sum with one more turn."""
        usd, tokens = entry.usd, entry.tokens
        return Sum(
            self.turns + 1,
            self.usd if usd is None else round((self.usd or 0.0) + usd, 6),
            self.tokens if tokens is None else (self.tokens or 0) + tokens,
            self.silent + (usd is None and tokens is None),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as `history --usage --json` shows it."""
        return {
            "turns": self.turns,
            "usd": self.usd,
            "tokens": self.tokens,
            "silent": self.silent,
        }


@dataclass(frozen=True, slots=True)
class Used:
    """The answer.

    Attributes:
        since: From when on.
        turns: Each turn with its routine (its session for one without) and day, newest first.
        cut: Whether the search gave up before all was looked at.
    """

    since: datetime
    turns: tuple[tuple[str, date, Entry], ...]
    cut: bool = False

    @property
    def total(self) -> Sum:
        """Of all turns together."""
        return _sum(entry for _, _, entry in self.turns)

    @property
    def by_day(self) -> dict[tuple[date, str], Sum]:
        """Of each routine on each day, the newest day first."""
        found: dict[tuple[date, str], Sum] = {}
        for name, day, entry in self.turns:
            found[day, name] = found.get((day, name), Sum()).plus(entry)
        names_first = sorted(found.items(), key=lambda item: item[0][1])
        return dict(sorted(names_first, key=lambda item: item[0][0], reverse=True))

    @property
    def by_routine(self) -> dict[str, Sum]:
        """Of each routine, by name."""
        found: dict[str, Sum] = {}
        for name, _, entry in self.turns:
            found[name] = found.get(name, Sum()).plus(entry)
        return dict(sorted(found.items()))

    def to_json(self) -> dict[str, Any]:
        """Return it as `history --usage --json` shows it."""
        return {
            "since": format_instant(self.since),
            "total": self.total.to_json(),
            "routines": [
                {"routine": name, **one.to_json()} for name, one in self.by_routine.items()
            ],
            "days": [
                {"day": day.isoformat(), "routine": name, **one.to_json()}
                for (day, name), one in self.by_day.items()
            ],
            "turns": [
                {
                    "id": entry.id,
                    "routine": entry.routine,
                    "day": day.isoformat(),
                    "outcome": entry.outcome,
                    "usd": entry.usd,
                    "tokens": entry.tokens,
                }
                for _, day, entry in self.turns
            ],
            "cut": self.cut,
        }


def usage(context: Context, query: Query) -> Used:
    """Return what the turns that a query is about cost; of a week if it says no beginning.

    Raises:
        UnknownRoutine: There never was a routine of that name.
        UsageError: The query pages, which makes no sense for a sum.
    """
    if query.before is not None:
        raise UsageError("--usage and --before exclude each other", hint="narrow it with --since")
    if query.routine is not None and query.routine not in RESERVED_ROUTINES:
        check_known(context, query.routine)
    since = query.since or context.clock.now() - USUAL_SPAN
    query = replace(query, since=since)
    found = list(islice(_turns(context, query), MOST_OPENED + 1))
    return Used(since, tuple(found[:MOST_OPENED]), cut=len(found) > MOST_OPENED)


def _turns(context: Context, query: Query) -> Iterator[tuple[str, date, Entry]]:
    state = context.state_or_none
    if state is None:
        return
    claims = ClaimStore(state)
    wanted = wanted_routines(context, query)
    folders = [*folders_of(context, state, query), *job_folders(wanted)]
    for path in claims.walk(folders, since=query.since):
        record = claims.read_path(path)
        if record is None or record.started_at is None:
            continue
        if record.occurrence.is_job and not is_of_query(record, wanted):
            continue
        entry = from_record(record, state=state, standing=record.written_state.value)
        if query.matches(entry):
            # The day that limits count it for: that on which it started, in its own zone.
            day = shown(record.started_at, zone_or(entry.tz, context.zone)).date()
            yield entry.routine or entry.session or "-", day, entry


def _sum(entries: Iterable[Entry]) -> Sum:
    total = Sum()
    for entry in entries:
        total = total.plus(entry)
    return total
