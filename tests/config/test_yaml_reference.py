"""docs/reference/yaml.md and the tables say the same."""

import re
from pathlib import Path

import pytest

from routines.config.agent_keys import AGENT_KEYS
from routines.config.reader import read
from routines.config.routine_keys import ROUTINE_KEYS
from routines.config.workspace_file import WORKSPACE_KEYS, parse_settings
from routines.domain.agent import MCP_PLACEHOLDERS, PLACEHOLDERS, READ_KEYS

PAGE = (Path(__file__).parents[2] / "docs/reference/yaml.md").read_text()


def section(title):
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text):
    """Return (key, default, meaning) of each row of the first table."""
    found = re.findall(r"^\| `([^`]+)` \| (.*?) ?\| (.+) \|$", text, re.MULTILINE)
    return {key: (default.strip(), meaning) for key, default, meaning in found}


TABLES = [
    ("routines/NAME.yaml", ROUTINE_KEYS),
    ("routines.yaml", WORKSPACE_KEYS),
    ("An entry under `agents:`", AGENT_KEYS),
]


@pytest.mark.parametrize(("title", "keys"), TABLES, ids=[title for title, _ in TABLES])
def test_every_key_has_a_row_in_the_order_of_its_table(title, keys):
    assert list(rows(section(title))) == [key.name for key in keys]


@pytest.mark.parametrize(
    ("title", "key"),
    [(title, key) for title, keys in TABLES for key in keys],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_row_says_the_default(title, key):
    default, _meaning = rows(section(title))[key.name]
    if key.default:
        assert key.default.replace("`", "") in default.replace("`", "")


def test_every_placeholder_and_every_path_is_explained():
    explained = set(re.findall(r"^\| `\{(\w+)\}` \|", PAGE, re.MULTILINE))
    assert explained == PLACEHOLDERS | MCP_PLACEHOLDERS
    for name in READ_KEYS:
        assert f"`{name}`" in rows(section("An entry under `agents:`"))["read"][1]


def test_the_examples_on_the_page_are_read_without_a_problem():
    blocks = re.findall(r"(?:^    +.*\n)+", PAGE, re.MULTILINE)
    agents = next(block for block in blocks if block.startswith("    agents:"))
    assert parse_settings(dedented(agents), root="/ws")[1] == ()
    prompt = next(block for block in blocks if "prompt: |" in block)
    assert read(dedented(prompt), "x").problems == ()


def dedented(block):
    from textwrap import dedent

    return dedent(block).encode()
