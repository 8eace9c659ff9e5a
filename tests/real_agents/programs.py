"""The programs: under which word each is found, and how it is pointed at the stand-in.

None of this is needed to use a program. It is what a person has done long ago: a key, a server, a
model that is chosen.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

_KEY = "no-key-is-needed"
_MODEL = "standin"


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program.

    Attributes:
        preset: Its preset.
        word: The word that starts it.
        point: Given a home folder and the stand-in's address: writes what the program reads
            there and returns the variables that it needs.
        model: The model that a routine must name, or None.
        wake_args: Words that let its shell run `routines wake` in one turn.
        shell_args: Words that let its shell run anything in one turn.
        has_shell: Whether it offers its model a shell at all.
        stops_by_int: Whether an INT is what tells the conversation that a turn was ended.
        slow_s: How long it may take until its first request, on a busy machine.
    """

    preset: str
    word: str
    point: Callable[[str, str], dict[str, str]]
    model: str | None = None
    wake_args: tuple[str, ...] = ()
    shell_args: tuple[str, ...] = ()
    has_shell: bool = True
    slow_s: int = 30


def _put(home, path, text):
    whole = os.path.join(home, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "w", encoding="utf-8") as file:
        file.write(text)


def _claude(_home, url):
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(home, url):
    config = f"""\
model = "{_MODEL}"
model_provider = "{_MODEL}"
[model_providers.{_MODEL}]
name = "{_MODEL}"
base_url = "{url}/v1"
env_key = "STANDIN_KEY"
wire_api = "responses"
"""
    _put(home, ".codex/config.toml", config)
    return {"STANDIN_KEY": _KEY}


def _gemini(home, url):
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    }
    _put(home, ".gemini/settings.json", json.dumps(settings))
    return {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": url}


def _qwen(_home, url):
    return {"OPENAI_API_KEY": _KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": _MODEL}


def _opencode(home, url):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": _MODEL,
        "options": {"baseURL": f"{url}/v1", "apiKey": _KEY},
        "models": {_MODEL: {"name": _MODEL, "cost": {"input": 1, "output": 1}}},
    }
    config = {
        "model": f"{_MODEL}/{_MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {_MODEL: provider},
    }
    _put(home, ".config/opencode/opencode.json", json.dumps(config))
    return {}


def _pi(home, url):
    model = {
        "id": _MODEL,
        "name": _MODEL,
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 128000,
        "maxTokens": 4096,
    }
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": _KEY,
        "models": [model],
    }
    _put(home, ".pi/agent/models.json", json.dumps({"providers": {_MODEL: provider}}))
    return {"PI_OFFLINE": "1"}


def _llm(home, url):
    model = f"- model_id: {_MODEL}\n  model_name: {_MODEL}\n  api_base: {url}/v1\n"
    _put(home, "llm/extra-openai-models.yaml", model)
    return {"LLM_USER_PATH": os.path.join(home, "llm"), "OPENAI_API_KEY": _KEY}


PROGRAMS = (
    Program(
        preset="claude-code",
        word="claude",
        point=_claude,
        wake_args=("--allowedTools", "Bash(routines wake:*)"),
        shell_args=("--allowedTools", "Bash(python3 *)"),
    ),
    Program(
        preset="codex",
        word="codex",
        point=_codex,
        # A login shell would set PATH anew, and `routines` may stand in a folder of its own.
        wake_args=("--sandbox", "workspace-write", "-c", "allow_login_shell=false"),
        shell_args=("--sandbox", "workspace-write"),
    ),
    Program(
        preset="gemini",
        word="gemini",
        point=_gemini,
        # Without a model it asks a second one which to ask.
        model="gemini-2.5-pro",
        wake_args=("--allowed-tools", "run_shell_command(routines wake)"),
        shell_args=("--approval-mode", "yolo"),
    ),
    Program(
        preset="qwen",
        word="qwen",
        point=_qwen,
        wake_args=("--allowed-tools", "run_shell_command(routines wake)"),
        shell_args=("--approval-mode", "yolo"),
        slow_s=60,
    ),
    Program(preset="opencode", word="opencode", point=_opencode, slow_s=60),
    Program(preset="llm", word="llm", point=_llm, model=_MODEL, has_shell=False),
    Program(preset="pi", word="pi", point=_pi, model=f"{_MODEL}/{_MODEL}"),
)
BY_NAME = {program.preset: program for program in PROGRAMS}


def search_path(folders):
    """Return the PATH on which programs are looked for: *folders*, then the present one."""
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


def version_of(program, path):
    """Return what the program found on *path* calls its version, or None if it is not there."""
    found = shutil.which(program.word, path=path)
    if found is None:
        return None
    try:
        asked = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"
    lines = [line for line in asked.stdout.splitlines() if line.strip()]
    return lines[0].strip() if lines else f"unknown: exit {asked.returncode}"
