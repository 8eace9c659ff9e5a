"""Jobs: what may be asked, how a repeat is known, and the order in which they go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routines.domain.job import MOST_RECOVERIES, Ending, Job
from routines.domain.job_place import HIGHEST_PRIORITY, Place, parse_place
from routines.domain.job_request import (
    LONGEST_PROMPT,
    JobRequest,
    check_ending,
    check_job,
    request_of,
)
from routines.domain.names import cased_name, key_of
from routines.domain.occurrence import Kind, Occurrence, open_to_claim
from routines.errors import InvalidJob
from tests.builders import NOW


def checked(**more: Any) -> Any:
    request = JobRequest(**{"prompt": "look", "id": "j-1"} | more)
    return check_job(request, new_id="j-new", now=NOW)


REFUSED = [
    ("prompt", ""),
    ("prompt", "  \n"),
    ("prompt", None),
    ("prompt", b"look"),
    ("prompt", "x" * (LONGEST_PROMPT + 1)),
    ("prompt", "é" * (LONGEST_PROMPT // 2 + 1)),
    ("id", ""),
    ("id", "x" * 257),
    ("id", 7),
    ("id", "two\nlines"),
    ("id", "\x1b[31mred"),
    ("id", "half\ud800"),
    ("prompt", "half\ud800"),
    ("id", " spaced"),
    ("id", "daily#2"),
    ("queue", ""),
    ("queue", "q" * 257),
    ("queue", None),
    ("lane", ""),
    ("lane", "l" * 513),
    ("lane", ["pr-1"]),
    ("session", ""),
    ("session", 1),
    ("agent", ""),
    ("priority", 1.5),
    ("priority", "1"),
    ("priority", True),
    ("priority", None),
    ("priority", HIGHEST_PRIORITY + 1),
    ("priority", -HIGHEST_PRIORITY - 1),
    ("recoveries", -1),
    ("recoveries", 0.5),
    ("recoveries", False),
    ("recoveries", MOST_RECOVERIES + 1),
    ("after", "600"),
    ("after", "soon"),
    ("after", "2026-07-01T09:00:00"),
    ("after", datetime(2026, 7, 1, 9)),
    ("after", 600),
    ("after", timedelta(seconds=-1)),
    ("after", "-5m"),
    ("after", timedelta(days=3_000_000)),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda value: repr(value)[:30])
def test_what_can_not_be_used_is_refused_with_its_field_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob) as refused:
        checked(**{field: value})

    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", "", "it is empty"),
        ("id", " \n", "it is empty"),
        ("id", "\x85", "it holds U+0085, which can't be shown"),
        ("id", "\u2028", "it holds U+2028, which can't be shown"),
        ("lane", "a\tb", "it holds U+0009, which can't be shown"),
        ("queue", "a\ud800", "it holds U+D800, which can't be shown"),
        ("priority", 10**10, "it must lie between -9,999,999,999 and 9,999,999,999"),
        ("priority", 10**5000, "it must lie between -9,999,999,999 and 9,999,999,999"),
        ("recoveries", -1, "it must lie between 0 and 1,000,000,000"),
        ("recoveries", 10**9 + 1, "it must lie between 0 and 1,000,000,000"),
        ("after", datetime.min.replace(tzinfo=UTC), "it is too far back"),
        ("after", datetime.max.replace(tzinfo=UTC), "it is too far ahead"),
        ("after", "0001-01-01T00:00:00Z", "it is too far back"),
        ("after", "0001-01-01T00:00:00+02:00", "it is too far back"),
        ("after", "9999-12-31T23:59:59-02:00", "it is too far ahead"),
        ("after", timedelta(days=3_000_000), "it is too far ahead"),
    ],
    ids=lambda value: "number" if isinstance(value, int) else ascii(value)[:40],
)
def test_a_refusal_says_what_is_wrong(field: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        checked(**{field: value})

    assert refused.value.message == f"{field}: {message}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "x" * 256),
        ("id", "CI/build 42: näive"),
        ("queue", "q" * 256),
        ("lane", "l" * 512),
        ("priority", HIGHEST_PRIORITY),
        ("priority", -HIGHEST_PRIORITY),
        ("recoveries", MOST_RECOVERIES),
        ("prompt", "x" * LONGEST_PROMPT),
        ("prompt", "byte 0 \0 and \x1b[31m"),
        ("after", "1h30m"),
        ("after", "2026-07-01T11:00:00+02:00"),
        ("after", timedelta(days=1)),
        ("after", NOW),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_lies_within_the_limits_is_taken(field: str, value: Any) -> None:
    found = checked(**{field: value})

    if field != "after":
        assert getattr(found, field) == value


def test_a_job_without_a_session_has_one_of_its_own() -> None:
    assert checked().session == "job:j-1"
    assert checked(session="routine:daily").session == "routine:daily"


def test_its_own_session_is_the_same_content_written_out_or_not() -> None:
    assert checked(session="job:j-1").digest == checked().digest
    assert checked(session="job:j-2").digest != checked().digest


def test_an_id_is_the_same_however_its_letters_are_composed() -> None:
    assert checked(id="cafe\u0301").id == checked(id="caf\u00e9").id


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", "look again"),
        ("queue", "other"),
        ("lane", "pr-1"),
        ("priority", 1),
        ("session", "routine:daily"),
        ("agent", "echo"),
        ("recoveries", 1),
        ("after", "1h"),
    ],
)
def test_another_content_has_another_digest(field: str, value: Any) -> None:
    assert checked(**{field: value}).digest != checked().digest


def test_a_span_that_is_repeated_later_is_the_same_request() -> None:
    request = JobRequest(prompt="look", id="j-1", after="10m")
    first = check_job(request, new_id="", now=NOW)
    second = check_job(request, new_id="", now=NOW + timedelta(minutes=3))

    assert first.digest == second.digest
    assert first.not_before != second.not_before


def test_no_two_fields_can_be_mistaken_for_each_other() -> None:
    assert checked(queue="a", lane="b").digest != checked(queue="b", lane="a").digest
    assert checked(session="x", agent=None).digest != checked(session=None, agent="x").digest


def test_a_job_reads_back_as_it_was_written() -> None:
    job = checked(lane="pr-1", priority=-3, after="1h", recoveries=2).job(
        added_at=NOW, number=7, by="ana@studio"
    )

    assert Job.from_json(job.to_json()) == job


@pytest.mark.parametrize("data", [None, [], {}, {"id": 1}, "text"])
def test_what_is_no_job_reads_as_none(data: Any) -> None:
    assert Job.from_json(data) is None


places = st.builds(
    lambda priority, number: Place(
        priority=priority, number=number, key=key_of("x"), session="0" * 16, lane="-"
    ),
    st.integers(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
    st.integers(0, 10**11),
)


@given(places, places)
def test_names_sort_as_jobs_go(one: Place, other: Place) -> None:
    assert (one.parts < other.parts) == (one.order < other.order)


@given(places)
def test_a_place_is_read_back_from_its_name(place: Place) -> None:
    assert parse_place(place.parts) == place


@pytest.mark.parametrize("name", ["", ".DS_Store", "000000000001~x~y~-", "1~" + "0" * 32])
def test_a_foreign_name_is_no_place(name: str) -> None:
    assert parse_place(("0099", "9999", "9999", "00000000", "0000000000", name)) is None


def test_jobs_whose_ids_differ_in_case_alone_have_names_that_do_not() -> None:
    upper, lower = (Occurrence(Kind.JOB, "", NOW, one) for one in ("Build", "build"))

    assert upper.claim_path.casefold() != lower.claim_path.casefold()
    assert lower.claim_path.endswith(".build.jsonl")
    for one in (upper, lower):
        assert open_to_claim(one.open_path("").removeprefix("open/")) == one.claim_path


@given(st.text(min_size=1, max_size=256))
def test_every_id_makes_a_name_that_fits(text: str) -> None:
    assert len(cased_name(text).encode()) <= 200
    assert "/" not in cased_name(text)


def test_a_mapping_with_an_unknown_field_is_refused_and_names_it() -> None:
    with pytest.raises(InvalidJob) as refused:
        request_of({"prompt": "look", "priorty": 1})

    assert refused.value.field == "priorty"
    assert request_of("look") == JobRequest(prompt="look")
    with pytest.raises(InvalidJob, match="prompt"):
        request_of({"id": "x"})


def test_a_failure_needs_a_reason_and_an_ending_is_one_of_five() -> None:
    assert check_ending("outcome-unknown", "") is Ending.OUTCOME_UNKNOWN
    with pytest.raises(InvalidJob, match="detail"):
        check_ending("failed", " ")
    with pytest.raises(InvalidJob, match="ending"):
        check_ending("done", "")


def test_a_job_is_due_when_it_was_added_or_later_when_it_was_asked_for() -> None:
    late = checked(after=NOW + timedelta(hours=1)).job(added_at=NOW, number=1, by="x")
    past = checked(after=NOW - timedelta(hours=1)).job(added_at=NOW, number=1, by="x")

    assert late.due_at == NOW + timedelta(hours=1)
    assert past.due_at == NOW
    assert late.occurrence.instant.tzinfo is UTC
