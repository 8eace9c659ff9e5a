"""What an absence costs: a row a rule."""

from datetime import UTC, datetime, timedelta

import pytest

from routines.domain import schedule
from routines.domain.due import Admission, GiveUp, Owed, Plan, admit, find_owed, plan
from routines.domain.outcome import Reason, Trigger
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.domain.timetable import Timetable

HOURLY = Timetable("digest", schedule.cron("0 * * * *", "UTC"))
DAY = datetime(2026, 6, 1, tzinfo=UTC)
NONE, ONE, ALL = CatchUpPolicy.NONE, CatchUpPolicy.ONE, CatchUpPolicy.ALL
WHY = Reason.NO_SCHEDULER


def at(hour, minute=0, second=0):
    return DAY.replace(hour=hour, minute=minute, second=second)


def given_up(after, last, reason=WHY):
    return GiveUp(after=at(after), last=at(last), reason=reason)


@pytest.mark.parametrize(
    ("since", "claim", "missed", "now", "owed"),
    [
        # A new routine owes nothing for the time before it existed.
        (at(9, 30), None, None, at(9, 59), None),
        (at(9, 30), None, None, at(10), (at(9, 30), at(10), None)),
        # The newest of claim, record and beginning counts, and a claim outranks the others.
        (at(5), at(8), None, at(9, 59), (at(8), at(9), None)),
        (at(5), at(8), at(9), at(9, 59), None),
        (at(5), at(9), at(7), at(9, 59), None),
        (at(5), at(6), at(7), at(9, 59), (at(7), at(9), at(8))),
        # A slot is owed from its very instant on.
        (at(5), at(8), None, at(8, 59, 59), None),
        (at(5), at(8), None, at(9), (at(8), at(9), None)),
    ],
)
def test_what_lies_between_cursor_and_now(since, claim, missed, now, owed):
    found = find_owed(HOURLY, since=since, newest_claim=claim, newest_missed=missed, now=now)

    wanted = None if owed is None else Owed(base=owed[0], newest=owed[1], previous=owed[2])
    assert found == wanted


SIX = timedelta(hours=6)


@pytest.mark.parametrize(
    ("base", "now", "policy", "within", "seen", "answer"),
    [
        # On time there is nothing to decide.
        (8, at(9), ONE, None, False, Plan(run=at(9))),
        (8, at(9, 1), NONE, None, False, Plan(run=at(9))),
        (8, at(9), ALL, None, False, Plan(run=at(9))),
        # After an absence: `one` runs the newest, and the older ones are one record.
        (8, at(9, 30), ONE, None, False, Plan(run=at(9), trigger=Trigger.CATCH_UP)),
        (
            2,
            at(9, 30),
            ONE,
            None,
            False,
            Plan(give_up=(given_up(2, 8),), run=at(9), trigger=Trigger.CATCH_UP),
        ),
        # `none` runs only what a scheduler saw within 60 s of its instant.
        (8, at(9, 1, 1), NONE, None, False, Plan(give_up=(given_up(8, 9),))),
        (2, at(9, 30), NONE, None, False, Plan(give_up=(given_up(2, 9),))),
        (2, at(9), NONE, None, False, Plan(give_up=(given_up(2, 8),), run=at(9))),
        # What was seen in time and only waits is no absence.
        (8, at(9, 30), NONE, None, True, Plan(run=at(9))),
        (8, at(9, 30), ONE, None, True, Plan(run=at(9))),
        # Later than start_within is too late for all of them, in one record.
        (
            2,
            at(9, 30),
            ONE,
            timedelta(minutes=29),
            False,
            Plan(give_up=(given_up(2, 9, Reason.TOO_LATE),)),
        ),
        (
            8,
            at(9, 30),
            ONE,
            timedelta(minutes=30),
            False,
            Plan(run=at(9), trigger=Trigger.CATCH_UP),
        ),
        # `all` begins with the oldest of the newest three; those before are over its bound.
        (8, at(9, 30), ALL, None, False, Plan(run=at(9), trigger=Trigger.CATCH_UP)),
        (7, at(9, 30), ALL, None, False, Plan(run=at(8), trigger=Trigger.CATCH_UP)),
        (6, at(9, 30), ALL, None, False, Plan(run=at(7), trigger=Trigger.CATCH_UP)),
        (
            2,
            at(9, 30),
            ALL,
            None,
            False,
            Plan(give_up=(given_up(2, 6, Reason.OVER_BOUND),), run=at(7), trigger=Trigger.CATCH_UP),
        ),
        # Some of them may be too late while the younger are not.
        (
            2,
            at(9, 30),
            ALL,
            timedelta(hours=2),
            False,
            Plan(give_up=(given_up(2, 7, Reason.TOO_LATE),), run=at(8), trigger=Trigger.CATCH_UP),
        ),
        # The present slot stands behind the owed ones, as an ordinary one.
        (7, at(9), ALL, None, True, Plan(run=at(8), trigger=Trigger.CATCH_UP)),
        (8, at(9), ALL, None, True, Plan(run=at(9))),
    ],
)
def test_plan(base, now, policy, within, seen, answer):
    owed = find_owed(HOURLY, since=at(base), newest_claim=None, newest_missed=None, now=now)

    assert owed is not None
    assert (
        plan(
            owed,
            HOURLY,
            now=now,
            catch_up=policy,
            most=3,
            start_within=within,
            seen=seen,
            why_older=WHY,
        )
        == answer
    )


def test_lateness_counts_from_when_a_slot_with_jitter_fell_due():
    table = Timetable("digest", schedule.cron("0 * * * *", "UTC"), timedelta(minutes=59))
    due = table.due_at(at(9))
    owed = find_owed(table, since=at(8), newest_claim=None, newest_missed=None, now=due)

    assert owed is not None
    assert owed.newest == at(9)
    assert plan(
        owed,
        table,
        now=due,
        catch_up=ONE,
        most=1,
        start_within=timedelta(0),
        seen=False,
        why_older=WHY,
    ) == Plan(run=at(9))


@pytest.mark.parametrize(
    ("policy", "running", "lost", "admission"),
    [
        # With nothing in the way every policy fires.
        *((policy, 0, 0, Admission.START) for policy in OverlapPolicy),
        # What is left of a dead turn is ended first.
        *((policy, 0, 1, Admission.WAIT) for policy in OverlapPolicy),
        (OverlapPolicy.SKIP, 1, 0, Admission.SKIP),
        (OverlapPolicy.SKIP, 1, 1, Admission.SKIP),
        (OverlapPolicy.BUFFER_ONE, 1, 0, Admission.BUFFER),
        (OverlapPolicy.SUPERSEDE, 1, 0, Admission.SUPERSEDE),
    ],
)
def test_slot_that_meets_its_predecessor(policy, running, lost, admission):
    assert admit(policy, running=running, lost=lost) is admission


def test_planning_after_ten_years_asks_as_often_as_after_an_hour():
    class Counting:
        def __init__(self):
            self.asked = 0
            self.zone_key = "UTC"

        def next_after(self, instant):
            self.asked += 1
            return HOURLY.schedule.next_after(instant)

        def newest_at_or_before(self, instant):
            self.asked += 1
            return HOURLY.schedule.newest_at_or_before(instant)

    asked = []
    for absence in (timedelta(hours=1), timedelta(days=3652)):
        counting = Counting()
        table = Timetable("digest", counting)
        owed = find_owed(
            table, since=at(9, 30) - absence, newest_claim=None, newest_missed=None, now=at(9, 30)
        )
        plan(
            owed,
            table,
            now=at(9, 30),
            catch_up=ONE,
            most=1,
            start_within=None,
            seen=False,
            why_older=WHY,
        )
        asked.append(counting.asked)

    assert asked[0] == asked[1]
