"""Where something stands in a program's JSON."""

import pytest

from routines.domain.output_path import parse_path
from routines.errors import InvalidName

EVENT = {
    "type": "item",
    "done": True,
    "item": {"kind": "message", "text": "hello"},
    "parts": [{"text": "a"}, {"image": 1}, {"text": "b"}],
    "models": {"small": {"total": 3}, "large": {"total": 4}},
    "where": "here",
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("item.text", ["hello"]),
        ("parts.0.text", ["a"]),
        ("parts.-1.text", ["b"]),
        ("parts.3.text", []),
        ("parts.x", []),
        ("none", []),
        ("missing.text", []),
        # A key that is called as a word of the language is.
        ("where", ["here"]),
        # Every element, every value; what has not got it is passed over.
        ("parts.*.text", ["a", "b"]),
        ("models.*.total", [3, 4]),
        # Only in an event that says so.
        ("item.text where type = item", ["hello"]),
        ("item.text where type=item", ["hello"]),
        ("item.text where item.kind = message", ["hello"]),
        ("item.text where done = true", ["hello"]),
        ("item.text where type = other", []),
        ("item.text where missing = item", []),
        ("item.text where models.*.total = 4", ["hello"]),
        # Whether it is that word.
        ("type = item", [True]),
        ("item.kind=message where type = item", [True]),
        ("item.kind = error", [False]),
        ("missing = error", []),
    ],
)
def test_a_path_leads_to_what_is_there(path, found):
    assert parse_path(path).of(EVENT) == found


@pytest.mark.parametrize("event", [None, 7, "text", [], [[]], {"item": []}])
def test_an_event_of_another_shape_has_nothing_there(event):
    assert parse_path("item.text").of(event) == []


def test_a_sum_is_asked_for():
    assert parse_path("sum of part.cost where type = step").sums
    assert not parse_path("part.cost").sums


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a..b",
        ".a",
        "a.",
        "a b",
        "a where",
        "a where b",
        "sum of",
        "a where b = ",
        "a = b = c",
    ],
)
def test_what_is_no_path_is_refused(text):
    with pytest.raises(InvalidName):
        parse_path(text)
