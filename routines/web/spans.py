"""Spans of turns for OpenTelemetry, if it is installed: the one module that names it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from routines.version import VERSION

_WELL = frozenset(["completed", "skipped", "superseded"])


class Spans:
    """What turns are told to; silent where OpenTelemetry is not installed."""

    def __init__(self) -> None:
        self._trace: Any = None
        try:
            from opentelemetry import (  # type: ignore[import-not-found,attr-defined,unused-ignore]
                trace,
            )
        except ImportError:
            return
        self._trace = trace
        self._tracer = trace.get_tracer("routines", VERSION)

    @property
    def on(self) -> bool:
        """Whether anybody listens."""
        return self._trace is not None

    def turn(self, ref: str, data: Mapping[str, Any], *, ended_at: datetime) -> None:
        """Tell of a turn that ran: the occurrence, its end, and no word of prompt or reply."""
        seconds = data.get("duration_s")
        if self._trace is None or not isinstance(seconds, int | float):
            return
        known = {
            "routines.occurrence": ref,
            "routines.routine": data.get("routine"),
            "routines.trigger": data.get("trigger"),
            "routines.outcome": data.get("outcome"),
            "routines.reason": data.get("reason"),
            "routines.late_s": data.get("late_s"),
        }
        span = self._tracer.start_span(
            "routines.turn",
            start_time=_nanoseconds(ended_at - timedelta(seconds=seconds)),
            attributes={key: value for key, value in known.items() if value is not None},
        )
        if data.get("outcome") not in _WELL:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(end_time=_nanoseconds(ended_at))


def _nanoseconds(instant: datetime) -> int:
    # In whole microseconds first: a float of nanoseconds since 1970 has lost its last digits.
    return round(instant.timestamp() * 1_000_000) * 1_000
