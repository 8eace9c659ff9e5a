"""Whether a turn is tried again, and when: a row a rule."""

from datetime import UTC, datetime, timedelta

import pytest

from routines.domain.retry import Again, GiveUp, Park, Retry, next_try

NOW = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
USUAL = Retry()


def again(minutes):
    return Again(NOW + MINUTE * minutes)


@pytest.mark.parametrize(
    ("policy", "attempts", "recurs", "next_slot", "answer"),
    [
        # The pause doubles, up to the longest.
        (USUAL, 1, True, None, again(1)),
        (USUAL, 2, True, None, again(2)),
        (Retry(attempts=9), 4, True, None, again(8)),
        (Retry(attempts=9), 5, True, None, again(15)),
        (Retry(attempts=9), 8, True, None, again(15)),
        # After the last one a recurring slot has failed; what comes only once waits for a person.
        (USUAL, 3, True, None, GiveUp()),
        (USUAL, 3, False, None, Park()),
        (Retry(park=True), 3, True, None, Park()),
        (Retry(attempts=1), 1, True, None, GiveUp()),
        # Never at or past the next slot: that one has its own turn.
        (USUAL, 1, True, NOW + MINUTE * 2, again(1)),
        (USUAL, 1, True, NOW + MINUTE, GiveUp()),
        (USUAL, 2, True, NOW + MINUTE, GiveUp()),
        (Retry(park=True), 2, True, NOW + MINUTE, Park()),
    ],
)
def test_next_try(policy, attempts, recurs, next_slot, answer):
    assert (
        next_try(policy, attempts=attempts, recurs=recurs, now=NOW, next_slot=next_slot) == answer
    )


def test_policy_survives_being_handed_over():
    policy = Retry(attempts=5, first=MINUTE * 2, most=MINUTE * 30, started=True, park=True)

    assert Retry.from_json(policy.to_json()) == policy
