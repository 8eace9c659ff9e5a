"""JSON Schemas of both files, made from the tables that the files are checked against.

An editor that knows them completes keys and shows mistakes while they are typed. They are about
forms: whether a cron pattern can come, or a zone exists, is for `routines check`.
"""

import json
from itertools import combinations
from typing import Any

from routines.config.routine_keys import ROUTINE_KEYS, SCHEDULE_KEYS
from routines.config.walker import object_schema
from routines.config.workspace_file import WORKSPACE_KEYS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Where `init` puts them below the state folder, by what they describe.
SCHEMA_NAMES = {"workspace": "workspace.schema.json", "routine": "routine.schema.json"}


def routine_schema() -> dict[str, Any]:
    """Return the JSON Schema of routines/NAME.yaml."""
    return {
        "$schema": _DRAFT,
        "title": "A routine",
        "description": "A prompt, and when an agent is given it. The file's name is its name.",
        **object_schema(ROUTINE_KEYS),
        "oneOf": [{"required": ["prompt"]}, {"required": ["prompt_file"]}],
        "allOf": [{"not": {"required": list(two)}} for two in combinations(SCHEDULE_KEYS, 2)],
        "dependentRequired": {"anchor": ["every"]},
    }


def workspace_schema() -> dict[str, Any]:
    """Return the JSON Schema of routines.yaml."""
    return {
        "$schema": _DRAFT,
        "title": "A workspace of routines",
        "description": "What holds for all routines, and the agents they may name.",
        **object_schema(WORKSPACE_KEYS),
    }


def schema_texts() -> dict[str, str]:
    """Return both schemas as files, by their names in `SCHEMA_NAMES`."""
    schemas = {"workspace": workspace_schema(), "routine": routine_schema()}
    return {
        SCHEMA_NAMES[what]: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for what, schema in schemas.items()
    }
