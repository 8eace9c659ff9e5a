import unicodedata
from datetime import UTC, datetime, timedelta, timezone

import pytest

from routines.domain.names import (
    check_routine_name,
    day_name,
    format_instant,
    instant_name,
    parse_instant,
    parse_instant_name,
    safe_name,
    same_name,
)
from routines.errors import InvalidName


@pytest.mark.parametrize(
    "name", ["daily-digest", "a", "Büro", "日報", "v1.2", "two words", "under_score", "x" * 100]
)
def test_a_routine_may_have_letters_of_any_script(name):
    assert check_routine_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        ("x" * 101, "101 characters"),
        ("a/b", "'/'"),
        ("a\\b", "'\\\\'"),
        ("a:b", "':'"),
        ("a@b", "'@'"),
        ("a\nb", "'\\n'"),
        ("a\0b", "'\\x00'"),
        ("a\u202eb", "'\\u202e'"),
        ("..", "dot or a space"),
        (".hidden", "dot or a space"),
        ("trailing.", "dot or a space"),
        (" padded", "dot or a space"),
        ("wake", "reserved"),
        ("Job", "reserved"),
    ],
)  # fmt: skip
def test_other_names_are_refused_with_the_reason(name, reason):
    with pytest.raises(InvalidName) as caught:
        check_routine_name(name)
    assert reason in caught.value.message


def test_a_name_has_one_unicode_form():
    decomposed = unicodedata.normalize("NFD", "Büro")
    assert decomposed != "Büro"
    assert check_routine_name(decomposed) == "Büro"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Digest", "digest", True),
        ("STRASSE", "straße", True),
        (unicodedata.normalize("NFD", "Büro"), "büro", True),
        ("digest", "digests", False),
    ],
)  # fmt: skip
def test_names_that_a_file_system_may_confuse_are_told_to_be_the_same(one, other, same):
    assert (same_name(one) == same_name(other)) is same


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("daily-digest", "daily-digest"),
        ("Büro 2", "Büro 2"),
        ("v1.2", "v1.2"),
        ("routine:a", "routine%3Aa"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".x", "%2Ex"),
        ("x.", "x%2E"),
        (" x ", "%20x%20"),
        ("50%", "50%25"),
        ("", "%"),
        # Names that Windows keeps for devices, with whatever ending.
        ("con", "%63%6F%6E"),
        ("NUL.txt", "%4E%55%4C%2E%74%78%74"),
        ("\udcff", "%ED%B3%BF"),
    ],
)  # fmt: skip
def test_a_file_name_is_safe_everywhere(text, name):
    assert safe_name(text) == name


def test_long_names_are_cut_and_end_in_a_hash_of_the_whole():
    one, other = safe_name("日" * 300 + "1"), safe_name("日" * 300 + "2")
    assert one != other
    assert len(one.encode()) <= 200
    assert "%-" in one


def test_no_two_texts_share_a_file_name():
    texts = [
        "a:b",
        "a%3Ab",
        "a%b",
        "a%25b",
        "%",
        "",
        "a b",
        "a_b",
        ".a",
        "%2Ea",
        "a.",
        "con",
        "%63%6F%6E",
    ]
    assert len({safe_name(text) for text in texts}) == len(texts)


SLOT = datetime(2026, 7, 1, 9, 0, 5, tzinfo=UTC)


def test_an_instant_is_a_file_name_to_the_second():
    assert instant_name(SLOT) == "2026-07-01T09-00-05Z"
    assert instant_name(SLOT.astimezone(timezone(timedelta(hours=2)))) == instant_name(SLOT)
    assert parse_instant_name(instant_name(SLOT)) == SLOT


@pytest.mark.parametrize(
    "text",
    ["", "2026-07-01", "2026-07-01T09:00:05Z", "2026-7-1T9-0-5Z", "2026-07-01T09-00-05Z.tmp",
     "2026-13-01T09-00-05Z", "2026-07-01T09-00-05", " 2026-07-01T09-00-05Z"],
)  # fmt: skip
def test_only_names_that_could_have_been_written_are_read(text):
    assert parse_instant_name(text) is None


def test_a_day_is_the_utc_day():
    berlin_night = datetime(2026, 7, 2, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert day_name(berlin_night) == "2026-07-01"


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (SLOT, "2026-07-01T09:00:05Z"),
        (SLOT.replace(microsecond=250), "2026-07-01T09:00:05.000250Z"),
        (SLOT.astimezone(timezone(timedelta(hours=-3.5))), "2026-07-01T09:00:05Z"),
    ],
)  # fmt: skip
def test_an_instant_is_written_in_utc_and_read_back(instant, text):
    assert format_instant(instant) == text
    assert parse_instant(text) == instant
    assert parse_instant(text).tzinfo is UTC


@pytest.mark.parametrize("text", ["2026-07-01T09:00:05", "2026-07-01", "", "soon"])
def test_an_instant_without_an_offset_is_not_read(text):
    with pytest.raises(ValueError):
        parse_instant(text)
