"""Names of occurrences, and the way back from each (PROMISES D1, D7, D11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routines.domain.occurrence import (
    Kind,
    Occurrence,
    instant_of_file,
    open_to_claim,
    parse_ref,
    slot_of_file,
)
from tests.builders import at, by_hand, firing, job, slot

ALL = [
    slot(),
    slot(routine="Täglicher Bericht"),
    slot(routine="CON"),
    slot(routine="a~b"),
    slot(routine="x" * 100),
    by_hand(),
    by_hand(routine="a.b c"),
    firing(),
    firing(session="wake:w-7k3m9q"),
    firing(session="named:Team/1 ~"),
    job(),
    job("j/42~x:y"),
]


@pytest.mark.parametrize("occurrence", ALL, ids=lambda one: one.ref)
def test_name_in_open_leads_to_its_claim(occurrence):
    name = occurrence.open_path("0badcafe").removeprefix("open/")

    assert "/" not in name
    assert open_to_claim(name) == occurrence.claim_path


@given(
    kind=st.sampled_from(list(Kind)),
    owner=st.text(min_size=1, max_size=60),
    instant=st.datetimes(min_value=at("2000-01-01 00:00").replace(tzinfo=None)),
    own_id=st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=30),
)
def test_name_in_open_leads_to_its_claim_whatever_it_is_called(kind, owner, instant, own_id):
    whole = instant.replace(microsecond=0, tzinfo=at("09:00").tzinfo)
    made = Occurrence(kind, owner, whole, "" if kind is Kind.SLOT else own_id)
    # Names of routines can't be these; sessions and ids can be anything.
    if kind in (Kind.SLOT, Kind.MANUAL) and owner.casefold() in ("wake", "job"):
        return

    assert open_to_claim(made.open_path("0badcafe").removeprefix("open/")) == made.claim_path


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".DS_Store",
        "notes.txt",
        "daily~2026-07-01T09-00-00Z",
        "daily~yesterday~0badcafe",
        "~2026-07-01T09-00-00Z~0badcafe",
        "a~b~c~2026-07-01T09-00-00Z~0badcafe",
        "daily~2026-13-01T09-00-00Z~0badcafe",
    ],
)
def test_foreign_name_in_open_is_nothing(name):
    assert open_to_claim(name) is None


@pytest.mark.parametrize(
    ("name", "is_slot", "is_claim"),
    [
        ("2026-07-01T09-00-00Z.jsonl", True, True),
        ("2026-07-01T09-00-00Z.manual-k3m9q2.jsonl", False, True),
        ("2026-07-01T09-00-00Z.w-7k3m9q.jsonl", False, True),
        ("2026-07-01T09-00-00Z.jsonl.corrupt", False, False),
        ("2026-07-01T09-00-00Z.jsonl~", False, False),
        ("2026-07-01T09-00-00Z", False, False),
        ("._2026-07-01T09-00-00Z.jsonl", False, False),
        (".DS_Store", False, False),
    ],
)
def test_only_a_name_that_a_writer_could_have_made_is_a_claim(name, is_slot, is_claim):
    assert slot_of_file(name) == (at("09:00") if is_slot else None)
    assert instant_of_file(name) == (at("09:00") if is_claim else None)


def test_path_of_a_slot_depends_on_the_slot_alone():
    assert slot().claim_path == "claims/daily/2026-07-01/2026-07-01T09-00-00Z.jsonl"
    assert slot("23:59:59").claim_path.split("/")[2] == "2026-07-01"


@pytest.mark.parametrize(
    ("occurrence", "ref", "path"),
    [
        (
            slot(),
            "daily@2026-07-01T09:00:00Z",
            "claims/daily/2026-07-01/2026-07-01T09-00-00Z.jsonl",
        ),
        (
            by_hand(),
            "manual:2026-07-01T09-00-00Z-k3m9q2",
            "claims/daily/2026-07-01/2026-07-01T09-00-00Z.manual-k3m9q2.jsonl",
        ),
        (
            firing(),
            "wake:w-7k3m9q@2026-07-01T09:00:00Z",
            "claims/wake/routine%3Adaily/2026-07-01/2026-07-01T09-00-00Z.w-7k3m9q.jsonl",
        ),
        (job(), "job:j-42", "claims/job/2026-07-01/2026-07-01T09-00-00Z.j-42.jsonl"),
    ],
)
def test_each_kind_has_its_reference_and_its_place(occurrence, ref, path):
    assert (occurrence.ref, occurrence.claim_path) == (ref, path)


@pytest.mark.parametrize("occurrence", [slot(), by_hand(), firing()], ids=lambda one: one.ref)
def test_reference_leads_back_to_all_that_it_names(occurrence):
    found = parse_ref(occurrence.ref)

    assert (found.kind, found.instant, found.id) == (
        occurrence.kind,
        occurrence.instant,
        occurrence.id,
    )


@pytest.mark.parametrize("text", ["", "daily", "daily@yesterday", "manual:x", "wake:w-1"])
def test_what_is_no_reference_is_none(text):
    assert parse_ref(text) is None
