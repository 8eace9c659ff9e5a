"""What is said to a server and what it says: bodies, headers, and the signs in an answer."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from routines.agents.base import NotFound, TurnFailed
from routines.domain.http_agent import (
    BUSY_CODES,
    BUSY_PATHS,
    BUSY_STATUSES,
    HttpSigns,
    HttpSpec,
    UnusableHeader,
    header_values,
)
from routines.domain.outcome import one_line
from routines.domain.output_path import MISSING, OutputPath, parse_path

# Where a refusal has its words, whichever is a text.
_WORDS_AT = ("error.message", "message", "details", "detail", "reason", "error", "title")


def encode_body(body: Any) -> bytes:
    """Return *body* as JSON in UTF-8.

    Raises:
        TurnFailed: It holds half a character, which has no bytes.
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise TurnFailed(
            f"the prompt holds half a character at {error.start}, which has no bytes"
        ) from None


def request_headers(
    http: HttpSpec, env: Mapping[str, str], *, key: str | None, accept: str
) -> dict[str, str]:
    """Return the headers of a request, values from *env* filled in.

    Args:
        http: The entry.
        env: The turn's environment.
        key: Of what is to be done; None for a question that does nothing.
        accept: What may come back.

    Raises:
        NotFound: A variable is not set, or its value can't stand in a header.
    """
    try:
        given = header_values(http, env)
    except UnusableHeader as error:
        raise NotFound(str(error)) from error
    does = {}
    if key is not None:
        does = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key(key)}
    return {
        "Accept": accept,
        # Compressed, a small answer could be an endless one.
        "Accept-Encoding": "identity",
        "User-Agent": "agent-routines",
        **given,
        **does,
    }


def idempotency_key(key: str) -> str:
    """Return a turn's key as a header may hold it: names of routines have letters of any script."""
    return quote(key, safe="/@:#._-~")


def words_of(document: Any, data: bytes) -> str:
    """Return what an answer says about itself, one line; "" if it says nothing."""
    for path in _WORDS_AT:
        value = first_text(document, path)
        if value.strip():
            return one_line(value)
    if document is not MISSING:
        return ""
    return one_line(data.decode("utf-8", "replace"), most=200)


def says_busy(http: HttpSpec, status: int, document: Any) -> bool:
    """Return whether a status and a code mean busy, where the entry says nothing of it."""
    return not http.busy and status in BUSY_STATUSES and _code_says_busy(document)


def _code_says_busy(document: Any) -> bool:
    return any(_folded(first_text(document, path)) in BUSY_CODES for path in BUSY_PATHS)


def _folded(word: str) -> str:
    return word[:100].strip().lower().replace("-", "_").replace(".", "_").replace(" ", "_")


def first_text(document: Any, path: str) -> str:
    """Return the first text that *document* has at *path*, "" if it has none."""
    return text_at(document, parse_path(path))


def text_at(document: Any, path: OutputPath) -> str:
    """Return the first text that *document* has at *path*, as `first_text` does."""
    found = () if document is MISSING else path.of(document)
    return next((one for one in found if isinstance(one, str)), "")


def says(signs: HttpSigns, status: int, document: Any) -> bool:
    """Return whether an answer, or an event of one, is what *signs* list."""
    if not signs or (signs.status is not None and status not in signs.status):
        return False
    return all(_holds(document, path, value) for path, value in signs.when)


def _holds(document: Any, path: str, value: str) -> bool:
    """Return whether *value* stands at *path*, compared as it is written in JSON."""
    found = () if document is MISSING else parse_path(path).of(document)
    return any(
        (one if isinstance(one, str) else json.dumps(one)) == value
        for one in found
        if not isinstance(one, dict | list)
    )
