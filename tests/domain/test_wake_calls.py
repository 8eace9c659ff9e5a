"""What a model hands to a tool: read without trusting it, refused in words that help it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routines.domain.wake_calls import LARGEST_ARGUMENTS, arguments_of
from routines.domain.wake_texts import tools
from routines.errors import WakeupRefused

WAKE, UNWAKE, WAKEUPS = tools(zone_key="UTC")


def refused(tool, given):
    with pytest.raises(WakeupRefused) as caught:
        arguments_of(tool, given)
    return caught.value.message


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"prompt": "look", "in": "10m"}, {"prompt": "look", "in": "10m"}),
        ('{"prompt": "look", "in": "10m"}', {"prompt": "look", "in": "10m"}),
        (b'{"prompt": "look"}', {"prompt": "look"}),
        # Python spells it so.
        ({"prompt": "look", "in_": "10m"}, {"prompt": "look", "in": "10m"}),
        # What is null says nothing; what is a number is for the tool to refuse in its own words.
        ({"prompt": "look", "in": None, "tz": ""}, {"prompt": "look", "tz": ""}),
        ({"prompt": "look", "in": 600}, {"prompt": "look", "in": 600}),
        (None, {}),
        ("", {}),
        ("  ", {}),
        ({}, {}),
        ("{}", {}),
    ],
)
def test_arguments_are_a_mapping_or_the_text_of_one(given, found):
    assert arguments_of(WAKE, given) == found


@pytest.mark.parametrize("name", ["message", "text", "content", "reminder"])
def test_a_prompt_under_another_name_is_told_the_right_one(name):
    assert refused(WAKE, {name: "x", "in": "10m"}) == (
        f'wake has no argument "{name}": the text goes in prompt. Nothing was scheduled.'
    )


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        (WAKE, {"when": "now"}, 'no argument "when": it has prompt, in, at, every, cron, tz.'),
        (UNWAKE, {"wakeup": "w-7k3m9q"}, 'unwake has no argument "wakeup": it has id. Nothing was changed.'),
        (WAKEUPS, {"session": "other"}, 'wakeups has no argument "session": it has none.'),
        (WAKE, {"a\nb\x1b[31m" * 50: "x"}, 'no argument "a b\\x1b[31ma b'),
        (WAKE, {7: "x"}, 'no argument "int"'),
        (WAKE, {"in": "1m", "in_": "2m"}, 'was given "in" twice'),
        (WAKE, "look at it", "are no JSON."),
        (WAKE, b"\xff\xfe{", "are no JSON."),
        (WAKE, "[" * 100_000, "are no JSON."),
        (WAKE, '{"prompt": ' + "9" * 10_000 + "}", "are no JSON."),
        (WAKE, '["look", "10m"]', "are no JSON object: it has prompt, in"),
        (WAKE, "null", "are no JSON object"),
        (WAKE, ["prompt", "look"], "are no JSON object"),
        (WAKE, 7, "are no JSON object"),
        (WAKE, "x" * (LARGEST_ARGUMENTS + 1), f"the most is {LARGEST_ARGUMENTS}"),
        (WAKE, {"in": {"minutes": 10}}, 'in must be text, not dict: "10m", "2h30m", "1d"; at least 1m.'),
        (WAKE, {"prompt": ["look"]}, "prompt must be text, not list. Nothing was scheduled."),
        (WAKE, {"in": 10**5000}, "in must be text, not a number of that size"),
        (WAKE, {"prompt": "look \ud800"}, "prompt holds half a character at 5. Nothing was scheduled."),
        (WAKE, {"prompt": "a\0b"}, "prompt holds a NUL character at 1."),
        (UNWAKE, {"id": "w-\0"}, "id holds a NUL character at 2. Nothing was changed."),
    ],
    ids=range(21),
)  # fmt: skip
def test_what_can_not_be_meant_is_refused_with_what_can(tool, given, said):
    message = refused(tool, given)

    assert said in message
    assert len(message) < 400
    assert message.isprintable()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(ANYTHING | ANYTHING.map(lambda one: json.dumps(repr(one))))
def test_anything_is_arguments_or_a_refusal_and_nothing_else(given):
    for tool in (WAKE, UNWAKE, WAKEUPS):
        try:
            found = arguments_of(tool, given)
        except WakeupRefused as error:
            assert "Nothing was" in error.message  # noqa: PT017 - either is right
        else:
            assert set(found) <= set(tool.params)
