"""Texts for new files are read back as exactly what went in."""

from datetime import timedelta

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from routines.config.routine_file import parse_routine
from routines.config.workspace_file import WorkspaceSettings, parse_settings
from routines.config.write import double_quoted, routine_text, workspace_text

# Any text but lone surrogates, which no file can hold, and NUL, which no program can be given.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)
# What YAML trips over, far more often than by chance.
TRICKY = st.lists(
    st.sampled_from(
        ["a", " ", "  ", "\n", "\t", "\r\n", "\r", ":", ": ", " #", "#", "- ", "*", "&", "'", '"',
         "\\", "|", ">", "---", "...", "%", "\x85", "\u2028", "\ufeff", "\x1b", "\x7f", "é", "🙂",
         "{{x}}", "~", "<<", "\u200b"]
    ),
    max_size=20,
).map("".join)  # fmt: skip
PROMPTS = (TEXT | TRICKY).filter(lambda text: text.strip())


def read(text):
    return parse_routine(
        text.encode(), "x", path="x.yaml", root="/ws", settings=WorkspaceSettings()
    )


def unix(text):
    return text.replace("\r\n", "\n").replace("\r", "\n")


@settings(deadline=None)
@given(PROMPTS)
def test_any_prompt_is_read_back_exactly(prompt):
    definition = read(routine_text(prompt=prompt))
    assert definition.problems == ()
    assert definition.routine.prompt == unix(prompt)
    assert definition.remarks == ()


@settings(deadline=None)
@given(PROMPTS)
def test_other_readers_of_yaml_see_the_same_prompt(prompt):
    assert yaml.safe_load(routine_text(prompt=prompt)) == {"prompt": unix(prompt)}


@settings(deadline=None)
@given(TEXT | TRICKY)
def test_any_text_in_double_quotes_is_one_line_and_read_back_exactly(text):
    written = double_quoted(text)
    assert len(written.splitlines()) == 1
    assert written.isprintable()
    assert yaml.safe_load(written) == text


@pytest.mark.parametrize(
    ("prompt", "written"),
    [
        ("Do it", "prompt: |-\n  Do it\n"),
        ("Do it\n", "prompt: |\n  Do it\n"),
        ("a\n\nb\n", "prompt: |\n  a\n\n  b\n"),
        ("a\n\n\n", "prompt: |+\n  a\n\n\n"),
        ("  a\nb", "prompt: |2-\n    a\n  b\n"),
        ("\na", "prompt: |2-\n\n  a\n"),
        ("a: b # c", "prompt: |-\n  a: b # c\n"),
        ("a\r\nb\r\n", "prompt: |\n  a\n  b\n"),
        ("a\x1bb", 'prompt: "a\\x1bb"\n'),
        ("a\u2028b\ufeff🙂", 'prompt: "a\\u2028b\\ufeff🙂"\n'),
    ],
)
def test_a_prompt_is_a_block_that_can_be_edited_wherever_yaml_allows(prompt, written):
    assert routine_text(prompt=prompt) == written


def test_every_value_that_could_be_misread_is_in_quotes():
    text = routine_text(
        prompt="x",
        cron=["*/5 * * * *", "@daily"],
        tz="Europe/Berlin",
        agent="no",
        session="named:shop",
        description='say "hi": #1',
    )
    assert text.splitlines()[:5] == [
        'description: "say \\"hi\\": #1"',
        'cron: ["*/5 * * * *", "@daily"]',
        "tz: Europe/Berlin",
        'agent: "no"',
        'session: "named:shop"',
    ]
    assert yaml.safe_load(text)["agent"] == "no"


@pytest.mark.parametrize(
    ("given_as", "spec"),
    [
        ({"cron": "*/10 * * * *"}, {"cron": ["*/10 * * * *"], "tz": "UTC"}),
        ({"every": timedelta(hours=6)}, None),
        ({"every": "6h"}, None),
        ({"at": "2026-12-24 18:00"}, None),
        ({"rrule": "DTSTART:20260701T090000\nRRULE:FREQ=DAILY"}, None),
    ],
)
def test_a_schedule_is_read_back(given_as, spec):
    routine = read(routine_text(prompt="x", **given_as)).routine
    assert routine.schedule is not None
    if spec:
        assert routine.schedule.spec() == spec


def test_a_schema_line_is_the_first_and_a_comment():
    text = routine_text(prompt="x", schema="../.routines/routine.schema.json")
    first = "# yaml-language-server: $schema=../.routines/routine.schema.json"
    assert text.splitlines()[0] == first
    assert read(text).problems == ()


def test_a_new_workspace_says_its_zone_and_agent():
    text = workspace_text(
        tz="Europe/Berlin", agent="claude", agents="claude:\n  command: [claude, -p]\n"
    )
    assert text.startswith("# yaml-language-server: $schema=.routines/workspace.schema.json\n")
    settings, problems = parse_settings(text.encode(), root="/ws")
    assert problems == ()
    assert (settings.tz, settings.agent) == ("Europe/Berlin", "claude")
    assert settings.agents["claude"].command == ("claude", "-p")


def test_a_new_workspace_without_zone_and_agent_shows_how_to_set_them():
    text = workspace_text(tz=None, agent=None)
    assert parse_settings(text.encode(), root="/ws") == (WorkspaceSettings(), ())
    for line in text.splitlines()[1:]:
        settings, problems = parse_settings(line[2:].split("   ")[0].encode(), root="/ws")
        assert problems == ()
        assert settings != WorkspaceSettings()
