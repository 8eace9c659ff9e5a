"""Handing the wake tools over to an agent program: an MCP server for one turn, nothing to set up.

How a program takes a server is data, `AgentSpec.mcp`; what the server is, is said here. Nothing is
written anywhere: it is all in the words of the command and in the turn's environment.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from routines.domain.agent import MCP_PLACEHOLDERS, AgentSpec

# What an agent calls the server of the wake tools.
WAKE_SERVER = "routines"
# How the server is told whose turn it is: programs hand on some of their environment, all, or none.
_TELLS = (
    "ROUTINES_ROOT",
    "ROUTINES_STATE",
    "ROUTINES_SESSION",
    "ROUTINES_ROUTINE",
    "ROUTINES_TURN",
)
_PLACEHOLDER = re.compile("{(" + "|".join(sorted(MCP_PLACEHOLDERS)) + ")}")
_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extensions")
_INSTALLED = ("site-packages", "dist-packages")


def is_installed() -> bool:
    """Return whether the extra `mcp` is there, importing nothing of it."""
    try:
        return find_spec("mcp") is not None and find_spec("mcp_types") is not None
    except (ImportError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class McpServer:
    """The server of one turn.

    Attributes:
        command: Its program, an absolute path.
        args: Its arguments.
        env: What it has to be told: whose turn it is, and nothing secret.
        name: What the agent calls it.
    """

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    name: str = WAKE_SERVER


def server_of(env: Mapping[str, str]) -> McpServer | None:
    """Return the server that offers the wake tools of the turn with that environment.

    None if there is none to give: the extra is missing.
    """
    if not sys.executable or not is_installed():
        return None
    tells = {key: env[key] for key in _TELLS if key in env}
    # `-P`: the folder of the turn may hold a package of our name. PYTHONPATH in any case, so that
    # what a routine sets for its own Python is not our server's.
    tells["PYTHONPATH"] = "" if os.path.basename(_HOME) in _INSTALLED else _HOME
    return McpServer(sys.executable, ("-P", "-m", "routines", "mcp"), tells)


def hand_over(spec: AgentSpec, env: Mapping[str, str]) -> tuple[AgentSpec, dict[str, str]]:
    """Return the agent and the environment of a turn with the wake tools handed over.

    Both are as they were where the program takes no server for one turn, or there is none to give.

    Args:
        spec: The agent.
        env: The turn's whole environment.
    """
    server = None if spec.mcp is None else server_of(env)
    if spec.mcp is None or server is None:
        return spec, dict(env)
    values = _values(server)
    words = tuple(_filled(word, values) for word in spec.mcp.words)
    given = {key: _filled(text, values) for key, text in spec.mcp.env}
    # Words of `args` come later and are taken as they are, so whoever wrote them has the last one.
    return replace(spec, args=(*words, *spec.args)), _joined(env, given)


def _values(server: McpServer) -> dict[str, str]:
    pairs = ", ".join(f"{key} = {_json(value)}" for key, value in server.env.items())
    return {
        "mcp_command": _json(server.command),
        "mcp_args": _json(server.args),
        "mcp_command_line": _json([server.command, *server.args]),
        "mcp_env": _json(server.env),
        "mcp_env_toml": f"{{{pairs}}}",
        "mcp_folder": _FOLDER,
    }


def _json(value: Any) -> str:
    # TOML reads such texts too, but knows no pairs of surrogates.
    return json.dumps(value, ensure_ascii=False)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _joined(env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return *env* with *given*; two JSON objects under one name become one."""
    made = dict(env)
    for key, text in given.items():
        mine, theirs = _object(text), _object(env.get(key, ""))
        if key not in env:
            made[key] = text
        elif mine is not None and theirs is not None:
            made[key] = _json(_merged(theirs, mine))
        # Else it is a setting of the person's that we don't understand, and theirs to have.
    return made


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _merged(theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    joined = dict(theirs)
    for key, value in mine.items():
        there = joined.get(key)
        both = isinstance(there, dict) and isinstance(value, dict)
        joined[key] = _merged(there, value) if both else value  # type: ignore[arg-type]
    return joined
