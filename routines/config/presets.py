"""The presets: entries for programs that are known, one file each in the package.

They are read by the same table as an entry in routines.yaml, so whatever a preset says, a person
can write or override.
"""

import functools
import os
from typing import Any

from routines.config import reader
from routines.config.agent_keys import AGENT_KEYS, spec_of
from routines.config.report import Report
from routines.config.tree import Mapping
from routines.config.walker import read_table
from routines.domain.agent import AgentSpec
from routines.errors import InvalidFiles

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "agents", "presets")


def preset_path(name: str) -> str:
    """Return the path of a preset's file."""
    return os.path.join(_FOLDER, f"{name}.yaml")


@functools.cache
def preset_values(name: str) -> dict[str, Any]:
    """Return the values of a preset's keys; nobody may change them.

    Raises:
        InvalidFiles: The file in the package has been edited, and is wrong now.
    """
    path = preset_path(name)
    with open(path, "rb") as file:
        document = reader.read(file.read(), path)
    report = Report(document, list(document.problems))
    if not isinstance(document.root, Mapping):
        raise InvalidFiles(report.problems)
    values = read_table(document.root, AGENT_KEYS, report)
    if report.problems:
        raise InvalidFiles(report.problems)
    return values.by_key


@functools.cache
def preset_spec(name: str) -> AgentSpec:
    """Return the agent that a preset's bare name stands for."""
    return spec_of(name, {"preset": name, **preset_values(name)})
