"""What is owed after an absence, as tables (PROMISES L1, L2, L8, L13)."""

from datetime import timedelta

import pytest

from routines.domain import schedule
from routines.domain.due import Admission, GiveUp, Owed, Plan, admit, find_owed, plan
from routines.domain.outcome import Reason, Trigger
from routines.domain.routine import CatchUpPolicy, OverlapPolicy
from routines.domain.timetable import Timetable
from tests.builders import at

MINUTE = timedelta(minutes=1)
HOURLY = Timetable("daily", schedule.cron("0 * * * *", "UTC"))
ONCE = Timetable("daily", schedule.at("2026-07-01T09:00:00Z", "UTC"))
NONE, ONE, ALL = CatchUpPolicy.NONE, CatchUpPolicy.ONE, CatchUpPolicy.ALL


def when(text):
    return None if text is None else at(text)


@pytest.mark.parametrize(
    ("since", "claim", "missed", "now", "owed"),
    [
        # Nothing has fallen due since it was first seen.
        ("09:10", None, None, "09:50", None),
        ("09:00", None, None, "09:50", None),
        # One slot since, or several.
        ("09:10", None, None, "10:00", ("09:10", "10:00", None)),
        ("09:10", None, None, "10:59", ("09:10", "10:00", None)),
        ("09:10", None, None, "13:30", ("09:10", "13:00", "12:00")),
        # The newest of all three is the base.
        ("09:10", "11:00", None, "13:30", ("11:00", "13:00", "12:00")),
        ("09:10", "12:00", None, "13:30", ("12:00", "13:00", None)),
        ("09:10", "13:00", None, "13:30", None),
        ("09:10", None, "12:00", "13:30", ("12:00", "13:00", None)),
        ("09:10", "10:00", "12:00", "13:30", ("12:00", "13:00", None)),
        ("12:30", "10:00", "11:00", "13:30", ("12:30", "13:00", None)),
        # A second is enough.
        ("09:10", "12:00", None, "12:59:59", None),
    ],
)
def test_owed_is_what_lies_between_the_cursor_and_now(since, claim, missed, now, owed):
    found = find_owed(
        HOURLY, since=at(since), newest_claim=when(claim), newest_missed=when(missed), now=at(now)
    )

    assert found == (
        None if owed is None else Owed(base=at(owed[0]), newest=at(owed[1]), previous=when(owed[2]))
    )


@pytest.mark.parametrize(
    ("since", "claim", "now", "owed"),
    [
        ("08:00", None, "08:59", False),
        ("08:00", None, "09:00", True),
        ("08:00", None, "2026-10-01 09:00", True),
        ("08:00", "09:00", "2026-10-01 09:00", False),
        # New when it was over already.
        ("09:30", None, "10:00", False),
    ],
)
def test_one_shot_is_owed_until_it_is_claimed(since, claim, now, owed):
    found = find_owed(
        ONCE, since=at(since), newest_claim=when(claim), newest_missed=None, now=at(now)
    )

    assert (found is not None) is owed


def decided(catch_up, base, now, *, seen=False, within=None, most=100):
    owed = find_owed(HOURLY, since=at(base), newest_claim=None, newest_missed=None, now=at(now))
    return plan(
        owed,
        HOURLY,
        now=at(now),
        catch_up=catch_up,
        most=most,
        start_within=within,
        seen=seen,
        why_older=Reason.ASLEEP,
    )


def gives_up(after, last, reason=Reason.ASLEEP):
    return (GiveUp(after=at(after), last=at(last), reason=reason),)


@pytest.mark.parametrize(
    ("policy", "base", "now", "expected"),
    [
        # On time: every policy runs it.
        (NONE, "09:10", "10:00", Plan(run=at("10:00"))),
        (ONE, "09:10", "10:00", Plan(run=at("10:00"))),
        (ALL, "09:10", "10:00", Plan(run=at("10:00"))),
        (NONE, "09:10", "10:01", Plan(run=at("10:00"))),
        # One slot, late.
        (NONE, "09:10", "10:01:01", Plan(give_up=gives_up("09:10", "10:00"))),
        (ONE, "09:10", "10:01:01", Plan(run=at("10:00"), trigger=Trigger.CATCH_UP)),
        (ALL, "09:10", "10:01:01", Plan(run=at("10:00"), trigger=Trigger.CATCH_UP)),
        # Several.
        (NONE, "09:10", "13:30", Plan(give_up=gives_up("09:10", "13:00"))),
        (
            ONE,
            "09:10",
            "13:30",
            Plan(give_up=gives_up("09:10", "12:00"), run=at("13:00"), trigger=Trigger.CATCH_UP),
        ),
        (ALL, "09:10", "13:30", Plan(run=at("10:00"), trigger=Trigger.CATCH_UP)),
        # Several, the newest on time.
        (NONE, "09:10", "13:00", Plan(give_up=gives_up("09:10", "12:00"), run=at("13:00"))),
        (ONE, "09:10", "13:00", Plan(give_up=gives_up("09:10", "12:00"), run=at("13:00"))),
        (ALL, "12:10", "13:00", Plan(run=at("13:00"))),
    ],
)
def test_policy_decides_what_an_absence_costs(policy, base, now, expected):
    assert decided(policy, base, now) == expected


@pytest.mark.parametrize("policy", list(CatchUpPolicy))
def test_slot_that_a_scheduler_saw_only_waits_and_is_never_caught_up_with(policy):
    assert decided(policy, "12:10", "13:40", seen=True) == Plan(run=at("13:00"))


@pytest.mark.parametrize("policy", list(CatchUpPolicy))
@pytest.mark.parametrize("seen", [True, False])
def test_past_start_within_one_record_says_it_all(policy, seen):
    assert decided(policy, "09:10", "13:30:01", seen=seen, within=30 * MINUTE) == Plan(
        give_up=gives_up("09:10", "13:00", Reason.TOO_LATE)
    )


def test_start_within_is_the_last_moment_that_counts():
    assert decided(ONE, "12:10", "13:30", within=30 * MINUTE).run == at("13:00")


def test_all_owes_the_newest_so_many_and_gives_the_others_up_as_over_bound():
    assert decided(ALL, "03:10", "13:30", most=3) == Plan(
        give_up=gives_up("03:10", "10:00", Reason.OVER_BOUND),
        run=at("11:00"),
        trigger=Trigger.CATCH_UP,
    )


def test_all_gives_up_what_is_too_late_and_runs_the_oldest_that_is_not():
    assert decided(ALL, "03:10", "13:30", within=150 * MINUTE) == Plan(
        give_up=gives_up("03:10", "10:00", Reason.TOO_LATE),
        run=at("11:00"),
        trigger=Trigger.CATCH_UP,
    )


@pytest.mark.parametrize(
    ("policy", "running", "lost", "admission"),
    [
        # Nothing in the way: every policy fires.
        (OverlapPolicy.SKIP, 0, 0, Admission.START),
        (OverlapPolicy.BUFFER_ONE, 0, 0, Admission.START),
        (OverlapPolicy.SUPERSEDE, 0, 0, Admission.START),
        # What is left of a lost turn is ended first.
        (OverlapPolicy.SKIP, 0, 1, Admission.WAIT),
        (OverlapPolicy.BUFFER_ONE, 0, 1, Admission.WAIT),
        (OverlapPolicy.SUPERSEDE, 0, 1, Admission.WAIT),
        # One running.
        (OverlapPolicy.SKIP, 1, 0, Admission.SKIP),
        (OverlapPolicy.SKIP, 1, 1, Admission.SKIP),
        (OverlapPolicy.BUFFER_ONE, 1, 0, Admission.BUFFER),
        (OverlapPolicy.SUPERSEDE, 1, 0, Admission.SUPERSEDE),
    ],
)
def test_slot_that_meets_its_own_earlier_occurrence_follows_its_policy(
    policy, running, lost, admission
):
    assert admit(policy, running=running, lost=lost) is admission


@pytest.mark.parametrize("hour", range(24))
def test_offset_moves_when_a_slot_falls_due_and_never_which_slots_are_owed(hour):
    spread = Timetable("daily", schedule.cron("0 * * * *", "UTC"), timedelta(minutes=59))
    slot = at(f"{hour:02}:00")
    due = spread.due_at(slot)

    assert slot <= due <= slot + timedelta(minutes=59)
    assert spread.newest_due(due) == slot
    assert spread.newest_due(due - timedelta(seconds=1)) == spread.before(slot)
