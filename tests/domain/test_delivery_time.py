"""Deliveries that hang end before the next slot comes, and never take more than a minute."""

from datetime import timedelta

import pytest

from routines.domain.delivery_time import time_to_deliver
from routines.testing import START


@pytest.mark.parametrize(
    ("until_next", "seconds"),
    [
        (None, 60),
        (86400, 60),
        (65, 60),
        (64, 59),
        (60, 55),
        (59, 54),
        (30, 25),
        (15, 10),
        # Nearer than what a target needs that is well: it is served, and the slot is met.
        (14, 10),
        (1, 10),
    ],
)
def test_deliveries_end_before_the_next_slot_and_have_some_seconds_at_least(until_next, seconds):
    next_slot = None if until_next is None else START + timedelta(seconds=until_next)

    assert time_to_deliver(now=START, next_slot=next_slot) == timedelta(seconds=seconds)
