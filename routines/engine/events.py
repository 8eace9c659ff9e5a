"""What happens, told to the log and to a host that wants to know."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from routines.domain.record import Record
from routines.engine.arming import counted
from routines.engine.measuring import PassFacts, measures
from routines.engine.passes import Pass
from routines.errors import RoutinesError
from routines.store.cursors import Missed

log = logging.getLogger("routines")

# By what an operator has to do about it: nothing, keep an eye on it, or look now.
_LEVELS = {
    "missed": logging.WARNING,
    "alert": logging.ERROR,
    "retrying": logging.WARNING,
    "parked": logging.ERROR,
    "fault": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something that happened, for a host that wants to know.

    Attributes:
        name: A stable word: `fired`, `taken-up` (tried again under its claim), `settled`,
            `missed`, `waiting`, `fault`, `alert`, `recovery`, `retrying`, `parked`, `detached`,
            `reattached`.
        ref: The occurrence or routine.
        data: Facts about it, plain JSON types.
    """

    name: str
    ref: str
    data: Mapping[str, Any]


class Events:
    """Tells what an engine does; an exception of a host's function is logged and harms nobody."""

    def __init__(
        self,
        *,
        on_event: Callable[[EngineEvent], None] | None,
        on_pass: Callable[[PassFacts], None] | None,
    ) -> None:
        self._on_event = on_event
        self._on_pass = on_pass
        self._waiting: dict[str, str] = {}

    def emit(self, name: str, ref: str, data: dict[str, Any], **more: Any) -> None:
        """Log *data*, and tell the host of it and of *more*, which a log line has in its ref."""
        level = _LEVELS.get(name, logging.INFO)
        if data.get("outcome") in ("failed", "timed-out"):
            level = logging.ERROR
        elif data.get("outcome") in ("interrupted", "missed"):
            level = logging.WARNING
        log.log(level, name, extra={"ref": ref, **data})
        if self._on_event is None:
            return
        try:
            self._on_event(EngineEvent(name, ref, data | more))
        except Exception:
            log.exception("on_event-failed")

    def settled(self, record: Record) -> None:
        """Tell how a turn ended, or that it was put off."""
        if record.end is None:
            # Put off: to be tried again, or until a person decides.
            line = record.events[-1] if record.events else {}
            self.emit(
                record.written_state.value,
                record.ref,
                {"detail": line.get("detail")},
                routine=record.routine,
            )
            return
        end = record.end
        self.emit(
            "settled",
            record.ref,
            {
                "outcome": end.get("outcome"),
                "reason": end.get("reason"),
                "detail": end.get("detail"),
                **_warnings(end),
            },
            routine=record.routine,
            trigger=record.trigger.value,
            **measures(record),
        )

    def tell(self, done: Pass) -> None:
        """Tell what a pass came to, besides what it settled."""
        for missed in done.missed:
            self.emit("missed", missed.routine, _range(missed))
        for name, why in done.waiting.items():
            if self._waiting.get(name) != why:
                self.emit("waiting", name, {"why": why})
        self._waiting = done.waiting
        for name, error in done.faults.items():
            self.emit("fault", name, {"error": error.message})

    def tell_pass(self, facts: PassFacts) -> None:
        """Tell the host how a pass went."""
        if self._on_pass is None:
            return
        try:
            self._on_pass(facts)
        except Exception:
            log.exception("on_pass-failed")


def _range(missed: Missed) -> dict[str, Any]:
    """Return what slots were given up, and why."""
    try:
        missed = counted(missed)
    except (RoutinesError, ValueError, KeyError, TypeError):
        # A host's own kind of schedule can't be read back: how many they were is not known.
        log.debug("not-counted", extra={"routine": missed.routine})
    return {
        "from": None if missed.first is None else str(missed.first),
        "to": str(missed.last),
        "count": missed.count,
        "reason": missed.reason.value,
    }


def _warnings(end: dict[str, Any]) -> dict[str, Any]:
    found = end.get("warnings")
    return {"warnings": ", ".join(map(str, found))} if found else {}
