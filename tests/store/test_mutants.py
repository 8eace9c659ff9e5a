"""Each wrong store turns its check red, and the right one keeps it green."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.store import mutants
from tests.store.crash import as_a_new_process
from tests.store.interleave import (
    a_claim_of_the_living_is_never_taken_up,
    life_is_told_by_the_lock,
    one_slot_has_one_winner,
    refuses,
    the_newest_slot_is_the_newest,
    two_writers_of_one_file_leave_it_whole,
)
from tests.store.operations import CLAIMS
from tests.store.power import check_every_cut

Check = Callable[[str], None]
Mutant = Callable[[], AbstractContextManager[None]]


def a_claim_is_there_after_a_power_cut(folder: str) -> None:
    check_every_cut(CLAIMS[0], folder)


PAIRS = pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (mutants.exists_then_write, one_slot_has_one_winner),
        (mutants.settle_by_replace, a_claim_of_the_living_is_never_taken_up),
        (mutants.no_sync_of_folders, a_claim_is_there_after_a_power_cut),
        (mutants.shared_draft_name, two_writers_of_one_file_leave_it_whole),
        (mutants.life_by_number, life_is_told_by_the_lock),
        (mutants.pointer_to_the_newest, the_newest_slot_is_the_newest),
    ],
    ids=lambda one: one.__name__,
)


@PAIRS
def test_the_store_passes(mutant: Mutant, check: Check, quick_path: str) -> None:
    check(quick_path)


@PAIRS
def test_the_mutant_does_not(mutant: Mutant, check: Check, quick_path: str) -> None:
    with mutant():
        assert refuses(lambda: check(quick_path))
    as_a_new_process()
