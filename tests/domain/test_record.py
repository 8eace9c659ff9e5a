"""A claim read back from its lines (PROMISES D3, O1)."""

import json

import pytest

from routines.domain.outcome import Outcome, Reason, State, Trigger
from routines.domain.record import Owner, encode, fold, outcome_event
from routines.store.files import whole_lines
from tests.builders import NOW, at, by_hand, firing, job, owner, slot

CLAIM = {"event": "claim", "at": "2026-07-01T09:00:00Z", "session": "routine:daily"}
STARTED = {"event": "started", "at": "2026-07-01T09:00:01Z"}
DONE = outcome_event(at=at("09:05"), outcome=Outcome.COMPLETED)
FAILED = outcome_event(at=at("09:06"), outcome=Outcome.FAILED, reason=Reason.EXIT)


def read(*lines):
    """Fold a file made of whole lines, or of pieces given as bytes."""
    data = b"".join(line if isinstance(line, bytes) else encode(line) + b"\n" for line in lines)
    return fold(whole_lines(data), occurrence=slot())


def words(record):
    return [event["event"] for event in record.events]


def test_lines_fold_into_one_record():
    record = read(CLAIM, STARTED, DONE)

    assert (record.outcome, record.reason) == (Outcome.COMPLETED, None)
    assert record.claimed_at == at("09:00")
    assert record.started_at == at("09:00:01")
    assert record.ended_at == at("09:05")
    assert record.session == "routine:daily"
    assert record.written_state is State.SETTLED


@pytest.mark.parametrize("first", [DONE, FAILED])
@pytest.mark.parametrize("second", [DONE, FAILED, STARTED])
def test_first_outcome_is_final_whatever_follows(first, second):
    record = read(CLAIM, STARTED, first, second)

    assert record.end == first
    assert words(record) == ["started", "outcome"]


@pytest.mark.parametrize(
    "torn",
    [
        encode(DONE)[:20],
        encode(DONE),
        b"\0" * 40,
        b'{"event":"outc',
    ],
    ids=["half", "without its end", "zeros", "word"],
)
def test_torn_tail_is_no_line(torn):
    record = read(CLAIM, STARTED, torn)

    assert record.end is None
    assert record.last == "started"


@pytest.mark.parametrize(
    "noise",
    [
        b"\0" * 20 + encode(DONE) + b"\n",
        b"\0\0\n",
        b"\n\n",
        b"not json\n",
        b'"text"\n',
        b"[1, 2]\n",
        b'{"event": "future-word"}\n',
        b'{"event": 7}\n',
        b'{"event": []}\n',
        b'{"event": {}}\n',
        b'{"event": "outcome", "outcome": []}\n',
        b'{"event": "outcome", "outcome": "failed", "reason": {"a": 1}}\n',
        b'{"event": "started"} {"event": "outcome"}\n',
        b'{"event": "outcome", "outcome": "splendid"}\n',
        b'{"event": "outcome", "outcome": "failed", "reason": "mood"}\n',
        b'{"event": "outcome"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_line_that_is_no_event_of_ours_is_passed_over_and_the_next_ones_count(noise):
    record = read(CLAIM, STARTED, noise, DONE)

    assert (record.outcome, words(record)) == (Outcome.COMPLETED, ["started", "outcome"])


@pytest.mark.parametrize("data", [b"", b"\n", b"\0\0\0\n", encode(CLAIM)[:10] + b"\n"])
def test_without_its_claim_line_a_record_is_not_readable(data):
    record = read(data)

    assert not record.readable
    assert (record.owner, record.session, record.end) == (None, None, None)


def test_second_claim_line_changes_nothing():
    record = read(CLAIM, {**CLAIM, "session": "another"}, DONE)

    assert record.session == "routine:daily"


@pytest.mark.parametrize(
    ("events", "claim", "is_again"),
    [
        ([], {}, False),
        (["attempt"], {}, True),
        (["attempt"], {"detached": True}, False),
        (["attempt", "attempt"], {"detached": True}, True),
        (["buffered", "attempt"], {}, False),
        (["started", "retry", "attempt"], {}, True),
        (["attempt", "started"], {}, False),
    ],
)
def test_what_only_waited_was_not_taken_up_again(events, claim, is_again):
    lines = ({"event": word, "at": "2026-07-01T09:00:01Z"} for word in events)

    assert read({**CLAIM, **claim}, *lines).is_taken_up_again is is_again


@pytest.mark.parametrize(
    ("events", "started", "attempts"),
    [
        ([], False, 1),
        (["attempt"], False, 2),
        (["started"], True, 1),
        (["started", "not-started"], False, 1),
        (["started", "not-started", "attempt", "started"], True, 2),
        (["started", "cancelling"], True, 1),
    ],
)
def test_started_means_that_no_not_started_followed(events, started, attempts):
    record = read(CLAIM, *({"event": word, "at": "2026-07-01T09:00:01Z"} for word in events))

    assert (record.started is not None, record.attempts) == (started, attempts)


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([{"event": "started"}], 1),
        ([{"event": "started"}, {"event": "not-started"}], 0),
        ([{"event": "started"}, {"event": "retry"}], 0),
        ([{"event": "started"}, {"event": "parked", "ended": "failed"}], 1),
        # A person lets it run after all: that takes no turn back.
        ([{"event": "started"}, {"event": "parked", "ended": "failed"}, {"event": "retry"}], 1),
        (
            [
                {"event": "started"},
                {"event": "retry", "ended": "failed"},
                {"event": "started"},
                {"event": "not-started"},
            ],
            1,
        ),
    ],
)
def test_turn_that_began_counts_for_its_day_whatever_is_done_with_its_claim_later(lines, count):
    record = read(CLAIM, *({"at": "2026-07-01T09:00:01Z", **line} for line in lines))

    assert len(record.starts) == count


@pytest.mark.parametrize(
    ("last", "state"),
    [
        (None, State.CLAIMED),
        ("attempt", State.CLAIMED),
        ("not-started", State.CLAIMED),
        ("started", State.RUNNING),
        ("cancelling", State.RUNNING),
        ("buffered", State.BUFFERED),
        ("parked", State.PARKED),
        ("retry", State.RETRYING),
    ],
)
def test_state_is_what_the_last_line_says(last, state):
    lines = [] if last is None else [{"event": last}]

    assert read(CLAIM, *lines).written_state is state


def test_owner_is_who_said_so_last():
    one, two = owner(pid=1), owner(pid=2)
    record = read(
        {**CLAIM, "owner": one.to_json()}, {"event": "attempt", "owner": two.to_json()}, STARTED
    )

    assert record.owner == two


@pytest.mark.parametrize(
    "data", [None, 7, "text", {}, {"pid": "x"}, {**owner().to_json(), "pid": None}]
)
def test_owner_that_cannot_be_read_is_none(data):
    assert Owner.from_json(data) is None


@pytest.mark.parametrize(
    ("occurrence", "trigger"),
    [
        (slot(), Trigger.SCHEDULE),
        (by_hand(), Trigger.MANUAL),
        (firing(), Trigger.WAKE_UP),
        (job(), Trigger.JOB),
    ],
)
@pytest.mark.parametrize("said", [None, "no-such-word"])
def test_trigger_that_cannot_be_read_follows_from_the_kind(occurrence, trigger, said):
    line = CLAIM if said is None else {**CLAIM, "trigger": said}

    assert fold([encode(line)], occurrence=occurrence).trigger is trigger


@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b[31mred", "\ud83d", "ünïcödé \u2028 x", "x" * 10_000]
)
def test_event_is_one_line_whatever_it_says(text):
    line = encode(outcome_event(at=NOW, outcome=Outcome.FAILED, reason=Reason.AGENT, detail=text))

    assert b"\n" not in line
    assert len(line) < 5_000
    assert fold([line], occurrence=slot()).outcome is Outcome.FAILED


def test_keys_come_in_an_order_that_a_person_can_compare():
    line = encode(
        outcome_event(at=NOW, outcome=Outcome.FAILED, reason=Reason.EXIT, detail="7", zeta=1)
    )

    words = ("event", "at", "outcome", "reason", "detail", "zeta")
    assert list(json.loads(line)) == list(words)
