"""Small real objects for tests: each takes what the test is about and fills in the rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Owner, outcome_event
from routines.store.claim_making import Draft
from routines.store.cursors import Cursor, Missed
from routines.store.opened import Opened
from routines.store.schedulers import Scheduler
from routines.store.sessions import Ledger

BOOT = "5f2c0a6e-0000-4000-8000-000000000001"
NOW = datetime(2026, 7, 1, 9, 0, 0, tzinfo=UTC)


class FakeClock:
    """A clock that moves only when it is told to, or slept on."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now
        self._awake = 0.0

    def now(self) -> datetime:
        return self._now

    def awake(self) -> float:
        return self._awake

    def sleep(self, seconds: float) -> None:
        self.advance(seconds=seconds)

    def advance(self, **span: float) -> datetime:
        self._now += timedelta(**span)
        self._awake += timedelta(**span).total_seconds()
        return self._now


def at(text: str) -> datetime:
    """`at("09:01")` on the day of NOW, `at("2026-07-02 09:00")` on another."""
    day, _, time = text.rpartition(" ")
    return datetime.fromisoformat(f"{day or '2026-07-01'}T{time}+00:00")


def owner(**changes: Any) -> Owner:
    known: dict[str, Any] = {
        "host": "6d616368696e65",
        "boot": BOOT,
        "pid": 4121,
        "start": "8123",
        "pidns": "pid:[4026531836]",
        "user": "ana@studio",
    }
    return Owner(**known | changes)


def slot(time: str = "09:00", routine: str = "daily") -> Occurrence:
    return Occurrence(Kind.SLOT, routine, at(time))


def by_hand(manual_id: str = "k3m9q2", time: str = "09:00", routine: str = "daily") -> Occurrence:
    return Occurrence(Kind.MANUAL, routine, at(time), manual_id)


def firing(
    wakeup_id: str = "w-7k3m9q", time: str = "09:00", session: str = "routine:daily"
) -> Occurrence:
    return Occurrence(Kind.WAKE, session, at(time), wakeup_id)


def job(job_id: str = "j-42", time: str = "09:00") -> Occurrence:
    return Occurrence(Kind.JOB, "", at(time), job_id)


def draft(occurrence: Occurrence | None = None, **claim: Any) -> Draft:
    occurrence = occurrence or slot()
    line: dict[str, Any] = {"session": "routine:daily", "owner": owner().to_json()}
    if occurrence.kind is not Kind.JOB:
        line["session" if occurrence.kind is Kind.WAKE else "routine"] = occurrence.owner
    return Draft(occurrence, line | claim)


def skipped(occurrence: Occurrence | None = None) -> Draft:
    """A claim that is settled in the moment that it is made."""
    end = outcome_event(at=NOW, outcome=Outcome.SKIPPED, reason=Reason.OVERLAP)
    plain = draft(occurrence)
    return Draft(plain.occurrence, plain.claim, end)


def cursor(routine: str = "daily", **changes: Any) -> Cursor:
    known: dict[str, Any] = {
        "routine": routine,
        "first_seen_at": NOW,
        "since": NOW,
        "schedule": {"cron": ["0 9 * * *"], "tz": "UTC"},
    }
    return Cursor(**known | changes)


def missed(last: str = "09:00", routine: str = "daily", **changes: Any) -> Missed:
    known: dict[str, Any] = {
        "routine": routine,
        "after": at("2026-06-28 09:00"),
        "last": at(last),
        "reason": Reason.NO_SCHEDULER,
        "at": NOW,
    }
    return Missed(**known | changes)


def opened(**changes: Any) -> Opened:
    known: dict[str, Any] = {"mark": f"ROUTINES_HELD_{'5' * 32}", "owner": owner(), "at": NOW}
    return Opened(**known | changes)


def ledger(session: str = "routine:daily", **changes: Any) -> Ledger:
    return Ledger(session=session, **changes)


def scheduler(scheduler_id: str = "0b0f7d5c", **changes: Any) -> Scheduler:
    known: dict[str, Any] = {
        "id": scheduler_id,
        "owner": owner().to_json(),
        "version": "1.0.0",
        "started_at": NOW,
        "beat_at": NOW,
    }
    return Scheduler(**known | changes)
