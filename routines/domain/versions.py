"""Versions of other programs, as far as they can be compared: the numbers in them, in order."""

import re

# `2.1.332 (Claude Code)`, `codex-cli 0.171.0`, `llm, version 0.36`
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){1,4}(?:-[0-9A-Za-z.]{1,40})?")


def find_version(text: str) -> str | None:
    """Return the first version in what a program printed about itself, None if there is none."""
    found = _VERSION.search(text)
    return None if found is None else found[0]


def is_version(text: str) -> bool:
    """Return whether *text* is nothing but a version."""
    return _VERSION.fullmatch(text) is not None


def is_at_least(version: str | None, least: str | None) -> bool:
    """Return whether *version* is *least* or newer; what isn't known is taken for new."""
    if version is None or least is None:
        return True
    return _numbers(version) >= _numbers(least)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))
