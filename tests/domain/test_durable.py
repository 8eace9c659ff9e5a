"""A durable run: when it is looked at, what its words mean, what an id may be (DESIGN 8)."""

from datetime import timedelta

import pytest

from routines.domain.durable import (
    CANCEL_WITHIN,
    INSPECT_WITHIN,
    START_WITHIN,
    Ending,
    RunWord,
    cancel_key,
    checked_run_id,
    end_of,
    next_ask,
    next_look,
    word_of,
)
from routines.domain.outcome import REASONS, Outcome

NO_TIME, ALMOST, LONG = timedelta(0), timedelta(seconds=59), timedelta(minutes=1)
CANCEL, TIMEOUT = Ending.CANCEL, Ending.TIMEOUT


def test_calls_have_deadlines():
    spans = [span.total_seconds() for span in (START_WITHIN, INSPECT_WITHIN, CANCEL_WITHIN)]
    assert spans == [240, 30, 30]


@pytest.mark.parametrize(
    ("faults", "seconds"), [(0, 15), (1, 15), (2, 30), (3, 60), (4, 60), (1000, 60)]
)
def test_run_is_looked_at_every_15_s_and_more_calmly_while_nobody_answers(faults, seconds):
    assert next_look(faults) == timedelta(seconds=seconds)


def test_run_that_was_told_to_end_is_looked_at_more_often_at_first():
    assert [next_look(0, told=looks).seconds for looks in range(7)] == [1, 2, 4, 8, 15, 15, 15]
    assert next_look(0, told=10**9) == timedelta(seconds=15)
    assert next_look(2, told=0) == timedelta(seconds=30)


def test_start_that_waits_for_a_person_is_asked_again_8_times_after_growing_pauses():
    pauses = [next_ask(asked) for asked in range(10)]

    assert [pause and pause.seconds for pause in pauses] == [
        *(1, 2, 4, 8, 16, 32, 64, 128),
        *(None, None),
    ]


@pytest.mark.parametrize(
    ("said", "word"),
    [
        *((word.value, word) for word in RunWord),
        # What is not known may be anything: a run that works is what it must not be taken off.
        ("queued", RunWord.ACTIVE),
        ("COMPLETED", RunWord.ACTIVE),
        ("", RunWord.ACTIVE),
        (None, RunWord.ACTIVE),
        (7, RunWord.ACTIVE),
    ],
)
def test_word_that_is_not_known_counts_as_active(said, word):
    assert word_of(said) is word


@pytest.mark.parametrize(
    ("word", "ending", "missing_for", "end"),
    [
        # While it may be at work nothing has ended, whatever we want.
        (RunWord.ACTIVE, None, NO_TIME, None),
        (RunWord.ACTIVE, CANCEL, NO_TIME, None),
        (RunWord.ACTIVE, TIMEOUT, NO_TIME, None),
        # Only completed is completed, and always is.
        (RunWord.COMPLETED, None, NO_TIME, "completed"),
        (RunWord.COMPLETED, CANCEL, NO_TIME, "completed"),
        (RunWord.COMPLETED, TIMEOUT, NO_TIME, "completed"),
        # What ended in another way has failed, with the agent's word.
        (RunWord.FAILED, None, NO_TIME, "failed agent"),
        (RunWord.CANCELLED, None, NO_TIME, "failed agent"),
        # Or is what we asked for.
        (RunWord.FAILED, CANCEL, NO_TIME, "cancelled"),
        (RunWord.CANCELLED, CANCEL, NO_TIME, "cancelled"),
        (RunWord.MISSING, CANCEL, NO_TIME, "cancelled"),
        (RunWord.FAILED, TIMEOUT, NO_TIME, "timed-out timeout"),
        (RunWord.CANCELLED, TIMEOUT, NO_TIME, "timed-out timeout"),
        (RunWord.MISSING, TIMEOUT, NO_TIME, "timed-out timeout"),
        # Nobody knows what a run did that its agent does not know; it is not believed at once.
        (RunWord.MISSING, None, NO_TIME, None),
        (RunWord.MISSING, None, ALMOST, None),
        (RunWord.MISSING, None, LONG, "interrupted outcome-unknown"),
    ],
)
def test_end_of_a_turn_follows_from_the_word_of_its_run(word, ending, missing_for, end):
    found = end_of(word, "", ending=ending, missing_for=missing_for)
    said = found and " ".join(part for part in (found.outcome, found.reason) if part)

    assert said == end
    if found is not None and found.outcome is not Outcome.CANCELLED:
        # Who cancelled it, a person or a turn, the intent says.
        assert found.reason in REASONS[found.outcome] or found.reason is None


@pytest.mark.parametrize(
    ("word", "detail", "ending", "said"),
    [
        ("failed", "out of memory", None, "failed: out of memory"),
        ("cancelled", "", None, "cancelled"),
        ("cancelled", "by ana", CANCEL, "the run is cancelled: by ana"),
        ("failed", "a\nb", TIMEOUT, "ended at its limit of 1h; the run is failed: a b"),
    ],
)
def test_detail_has_the_agents_own_word_in_one_line(word, detail, ending, said):
    found = end_of(RunWord(word), detail, ending=ending, missing_for=NO_TIME, limit="1h")

    assert found.detail == said


@pytest.mark.parametrize("run_id", ["r-1", "7", "ü" * 512, "https://x/runs/1?a=b c"])
def test_run_id_is_kept_as_it_is(run_id):
    assert checked_run_id(run_id) == run_id


@pytest.mark.parametrize("said", [None, "", 7, b"r-1", "a\nb", "\x1b[2J", " r", "r ", "x" * 513])
def test_what_is_no_run_id_counts_as_no_answer(said):
    assert checked_run_id(said) is None


def test_cancel_has_the_same_key_each_time():
    assert cancel_key("r-1") == "cancel:r-1"
