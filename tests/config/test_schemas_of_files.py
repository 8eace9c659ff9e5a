"""The JSON Schemas say what the tables say."""

import json
import re

import pytest

from routines.config.agent_keys import AGENT_KEYS
from routines.config.routine_keys import ROUTINE_KEYS
from routines.config.schema import SCHEMA_NAMES, routine_schema, schema_texts, workspace_schema
from routines.config.workspace_file import WORKSPACE_KEYS


@pytest.mark.parametrize(
    ("schema", "keys"), [(routine_schema(), ROUTINE_KEYS), (workspace_schema(), WORKSPACE_KEYS)]
)
def test_a_schema_has_every_key_with_its_meaning_and_no_others(schema, keys):
    assert list(schema["properties"]) == [key.name for key in keys]
    assert schema["additionalProperties"] is False
    for key in keys:
        described = schema["properties"][key.name]["description"]
        assert key.meaning in described


def test_the_schema_of_agents_is_that_of_their_table():
    entry = workspace_schema()["properties"]["agents"]["additionalProperties"]
    assert list(entry["properties"]) == [key.name for key in AGENT_KEYS]


def test_a_key_with_few_values_names_them():
    properties = routine_schema()["properties"]
    assert properties["overlap"]["enum"] == ["skip", "buffer-one", "supersede"]
    assert properties["catch_up"]["enum"] == ["none", "one", "all"]


def test_a_schema_says_that_a_routine_has_one_prompt_and_at_most_one_schedule():
    schema = routine_schema()
    assert schema["oneOf"] == [{"required": ["prompt"]}, {"required": ["prompt_file"]}]
    assert len(schema["allOf"]) == 6
    assert schema["dependentRequired"] == {"anchor": ["every"]}


def test_the_patterns_of_a_schema_can_be_compiled():
    def patterns(node):
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                yield node["pattern"]
            for value in node.values():
                yield from patterns(value)
        elif isinstance(node, list):
            for value in node:
                yield from patterns(value)

    found = [*patterns(routine_schema()), *patterns(workspace_schema())]
    assert found
    for pattern in found:
        re.compile(pattern)


def test_both_schemas_are_files_of_json():
    texts = schema_texts()
    assert set(texts) == set(SCHEMA_NAMES.values())
    for text in texts.values():
        assert json.loads(text)["$schema"].endswith("2020-12/schema")
        assert text.endswith("}\n")
