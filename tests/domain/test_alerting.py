"""Who is told what went wrong, and when: the tables that are its specification."""

from datetime import UTC, datetime, timedelta

import pytest

from routines.domain import alerting
from routines.domain import schedule as schedules
from routines.domain.alerting import Step, Told, Trouble, Weight
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason

NOW = datetime(2026, 7, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BAD = Trouble(kind="failing", at=NOW, what="failed", why="exit 1: Not logged in")
OPEN = Told(open=True, kind="failing", at=NOW - HOUR)
OVER = Told(kind="failing", at=NOW - HOUR, recovered_at=NOW - MINUTE)


def ago(span):
    return NOW - span


@pytest.mark.parametrize(
    ("told", "trouble", "well_since", "step"),
    [
        # Nothing was told.
        (Told(), None, None, Step.NOTHING),
        (Told(), None, NOW, Step.NOTHING),
        (Told(), BAD, None, Step.ALERT),
        # It was told: the next word is the recovery, whatever else goes wrong.
        (OPEN, BAD, None, Step.NOTHING),
        (OPEN, None, None, Step.NOTHING),
        (OPEN, None, NOW, Step.RECOVERY),
        # What was well before the alert is no recovery.
        (OPEN, None, ago(2 * HOUR), Step.NOTHING),
        # It recovered: at most a pair in six hours, and then again if it is still so.
        (OVER, None, NOW, Step.NOTHING),
        (OVER, BAD, None, Step.NOTHING),
        (Told(at=ago(6 * HOUR - MINUTE), recovered_at=NOW), BAD, None, Step.NOTHING),
        (Told(at=ago(6 * HOUR), recovered_at=NOW), BAD, None, Step.ALERT),
        # A clock that was wrong silences nobody for years.
        (Told(at=NOW + 900 * DAY, recovered_at=NOW), BAD, None, Step.ALERT),
        # Somebody is sending it; somebody died of it; a target refused it.
        (Told(unsent=("a",), sending_at=ago(MINUTE)), None, None, Step.NOTHING),
        (Told(unsent=("a",), sending_at=ago(3 * MINUTE)), None, None, Step.SEND_AGAIN),
        (Told(unsent=("a",), again_at=NOW + MINUTE), None, None, Step.NOTHING),
        (Told(unsent=("a",), again_at=NOW), None, None, Step.SEND_AGAIN),
        (Told(unsent=("a",)), None, None, Step.NOTHING),
        (Told(sending_at=ago(HOUR)), None, None, Step.NOTHING),
        # News go before what is old.
        (
            Told(open=True, at=ago(HOUR), unsent=("a",), again_at=NOW),
            None,
            NOW,
            Step.RECOVERY,
        ),
    ],
)
def test_what_is_done_follows_from_what_was_told_and_how_it_is(told, trouble, well_since, step):
    assert alerting.decide(told, now=NOW, trouble=trouble, well_since=well_since) is step


@pytest.mark.parametrize(
    ("kind", "outcome", "reason", "weight"),
    [
        (Kind.SLOT, Outcome.COMPLETED, None, Weight.WELL),
        (Kind.MANUAL, Outcome.COMPLETED, None, Weight.WELL),
        (Kind.WAKE, Outcome.COMPLETED, None, Weight.NOTHING),
        # What did not do its work.
        (Kind.SLOT, Outcome.FAILED, Reason.EXIT, Weight.PROBLEM),
        (Kind.WAKE, Outcome.FAILED, Reason.EXIT, Weight.PROBLEM),
        (Kind.SLOT, Outcome.TIMED_OUT, Reason.TIMEOUT, Weight.PROBLEM),
        (Kind.SLOT, Outcome.INTERRUPTED, Reason.OWNER_DIED, Weight.PROBLEM),
        (Kind.SLOT, Outcome.SKIPPED, Reason.BUSY, Weight.PROBLEM),
        (Kind.SLOT, Outcome.SKIPPED, Reason.OVERLAP, Weight.PROBLEM),
        (Kind.SLOT, Outcome.SKIPPED, Reason.LIMIT, Weight.PROBLEM),
        (Kind.SLOT, Outcome.MISSED, Reason.BUSY, Weight.PROBLEM),
        (Kind.SLOT, Outcome.MISSED, Reason.TOO_LATE, Weight.PROBLEM),
        (Kind.SLOT, Outcome.MISSED, Reason.OVER_BOUND, Weight.PROBLEM),
        (Kind.SLOT, Outcome.MISSED, Reason.NO_SCHEDULER, Weight.PROBLEM),
        # What somebody asked for.
        (Kind.SLOT, Outcome.SKIPPED, Reason.GATE, Weight.NOTHING),
        (Kind.SLOT, Outcome.SKIPPED, Reason.EDITED, Weight.NOTHING),
        (Kind.SLOT, Outcome.MISSED, Reason.PAUSED, Weight.NOTHING),
        (Kind.SLOT, Outcome.MISSED, Reason.DISABLED, Weight.NOTHING),
        (Kind.SLOT, Outcome.CANCELLED, Reason.PERSON, Weight.NOTHING),
        (Kind.SLOT, Outcome.SUPERSEDED, None, Weight.NOTHING),
        (Kind.MANUAL, Outcome.FAILED, Reason.EXIT, Weight.NOTHING),
    ],
)
def test_what_an_end_says_of_a_routine(kind, outcome, reason, weight):
    assert alerting.weight(kind, outcome, reason) is weight


def test_absence_that_is_caught_up_with_is_no_problem():
    def weigh(reason):
        return alerting.weight(Kind.SLOT, Outcome.MISSED, reason, made_good=True)

    assert [weigh(Reason.ASLEEP), weigh(Reason.NO_SCHEDULER)] == [Weight.NOTHING] * 2
    assert weigh(Reason.TOO_LATE) is Weight.PROBLEM


def test_warnings_make_a_completed_turn_a_problem():
    weigh = alerting.weight(Kind.SLOT, Outcome.COMPLETED, None, warned=True)

    assert weigh is Weight.PROBLEM


@pytest.mark.parametrize(
    ("cron", "count"),
    [
        ("0 9 * * *", 1),
        ("0 * * * *", 1),
        ("*/30 * * * *", 3),
        ("* * * * *", 3),
        ("0,10 9 * * *", 3),
        (None, 1),
    ],
)
def test_sparse_slots_are_told_at_once_and_dense_ones_the_third_time(cron, count):
    schedule = None if cron is None else schedules.cron(cron, "UTC")

    assert alerting.threshold(schedule, NOW) == count


def test_one_shot_is_told_at_once():
    assert alerting.threshold(schedules.at("2026-07-01T10:00:00Z", "UTC"), NOW) == 1


@pytest.mark.parametrize(
    ("schedule", "silent_for", "expected"),
    [
        ("0 9 * * *", None, "2026-07-04 10:00"),
        # Wednesday to Friday, and over the weekend from Thursday on.
        ("0 9 * * 3,5", None, "2026-07-08 10:00"),
        ("* * * * *", None, "2026-07-02 10:04"),
        ("0 9 * * *", 12 * HOUR, "2026-07-02 21:02"),
        (None, 12 * HOUR, "2026-07-02 21:02"),
        (None, None, None),
    ],
)
def test_silence_begins_when_two_slots_have_passed_without(schedule, silent_for, expected):
    base = datetime(2026, 7, 2, 9, 2, tzinfo=UTC)
    found = alerting.silent_from(
        base,
        schedule=None if schedule is None else schedules.cron(schedule, "UTC"),
        silent_for=silent_for,
        timeout=HOUR,
    )

    assert (None if found is None else f"{found:%Y-%m-%d %H:%M}") == expected


def test_one_shot_is_never_silent():
    once = schedules.at("2026-07-01T10:00:00Z", "UTC")

    assert alerting.silent_from(NOW, schedule=once, silent_for=None, timeout=HOUR) is None


# One alert on its way ----------------------------------------------------------------------------


def test_alert_that_no_target_takes_is_sent_again_later_and_later_and_then_kept():
    told = alerting.after(Step.ALERT, Told(), now=NOW, kind="failing", targets=["a", "b"])
    assert (told.open, told.unsent, told.sending_at) == (True, ("a", "b"), NOW)
    now, pauses = NOW, []
    while True:
        told = alerting.sent(told, now=now, unsent=("b",), results=())
        if told.again_at is None:
            break
        pauses.append(told.again_at - now)
        now = told.again_at
        assert alerting.decide(told, now=now, trouble=BAD, well_since=None) is Step.SEND_AGAIN
        told = alerting.after(Step.SEND_AGAIN, told, now=now)

    assert tuple(pauses) == alerting.SEND_AGAIN
    assert (told.open, told.unsent) == (True, ("b",))


def test_what_was_told_is_read_back_as_it_was_written():
    told = alerting.after(Step.ALERT, Told(), now=NOW, kind="silent", title="t", targets=["a"])
    told = alerting.sent(told, now=NOW, unsent=(), results=({"to": "desktop", "ok": True},))

    assert Told.from_json(told.to_json()) == told
    over = alerting.after(Step.RECOVERY, told, now=NOW + HOUR)
    assert Told.from_json(over.to_json()) == over
    assert (over.open, over.at, over.recovered_at) == (False, NOW, NOW + HOUR)


def test_alert_says_what_when_why_what_was_before_what_comes_and_where_to_look():
    trouble = Trouble(
        kind="failing", at=NOW, what="failed", why="exit: exit 1: Not logged in", count=3,
        since=ago(2 * DAY),
    )  # fmt: skip
    title, body = alerting.alert_text(
        "nightly audit",
        trouble,
        root="/home/ana/agents",
        last_completed=ago(3 * DAY),
        next_slot=NOW + DAY,
        say=lambda at: f"{at:%a %d %b %H:%M}",
    )

    assert title == "nightly audit: needs you"
    assert body.splitlines() == [
        "failed Wed 01 Jul 09:00: exit: exit 1: Not logged in",
        "3 in a row since Mon 29 Jun 09:00",
        "Last completed: Sun 28 Jun 09:00",
        "Next: Thu 02 Jul 09:00",
        "Workspace: /home/ana/agents",
        "Why: routines explain 'nightly audit'",
    ]


def test_alert_keeps_the_words_of_a_model_in_one_short_line():
    trouble = Trouble(kind="failing", at=NOW, what="failed", why="\x1b[2J\nroot# " + "x" * 9000)
    _, body = alerting.alert_text(
        "a", trouble, root="/", last_completed=None, next_slot=None, say=str
    )

    assert len(body.splitlines()) == 5
    assert max(map(len, body.splitlines())) <= 300
    assert "\x1b" not in body
