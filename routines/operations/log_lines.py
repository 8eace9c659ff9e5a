"""Log lines of a scheduler: one record, one line, `key=value` or JSON, escaped."""

import json
import logging
from datetime import UTC, datetime
from typing import IO, Any

from routines.domain.masking import Masker

# What every record of the logging module carries; the rest was given by us as facts.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


_MASKER = Masker()


class LineFormatter(logging.Formatter):
    """Formats a record as one line.

    Args:
        as_json: Whether the line is a JSON object.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        facts: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": record.getMessage(),
        }
        given = {key: value for key, value in record.__dict__.items() if key not in _OWN}
        if record.exc_info:
            given["traceback"] = self.formatException(record.exc_info)
        facts |= {key: _MASKER.mask(v) if isinstance(v, str) else v for key, v in given.items()}
        if self._as_json:
            return json.dumps(facts, ensure_ascii=True, default=str)
        return " ".join(
            f"{key}={_value(value)}" for key, value in facts.items() if value is not None
        )


def _value(value: object) -> str:
    text = str(value)
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    # As JSON: a newline or an escape code in a name must not begin a line of its own.
    return json.dumps(text, ensure_ascii=True)


def log_to(stream: IO[str], log_format: str) -> None:
    """Send what the engine logs to *stream*, as `text` or `json` lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(as_json=log_format == "json"))
    logger = logging.getLogger("routines")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
