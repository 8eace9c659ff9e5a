"""What was told about each routine: `alerts/<routine>.json`, changed only under its lock."""

import contextlib
import json
from collections.abc import Iterator, Mapping

from routines.domain.alerting import Told
from routines.domain.decoding import UNREADABLE
from routines.domain.names import safe_name
from routines.errors import StoreError
from routines.store import files
from routines.store.state import State

# What is told of a routine, each at its own pace: its turns, its file, and that a turn paused it.
TOPICS = ("turns", "file", "held")


class AlertStore:
    """What was told, of one state folder. The routine `""` is routines.yaml itself."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _path(self, routine: str) -> str:
        return self._state.at("alerts", f"{safe_name(routine)}.json")

    def section(self, routine: str) -> contextlib.AbstractContextManager[None]:
        """Return the lock under which is decided what is told; it is tried, not waited for.

        Raises (on entry):
            StoreBusy: Another process is deciding it.
        """
        path = self._state.at("locks", f"{safe_name(routine)}.alert.lock")
        return files.section(path, patience=0.0, what=f"what is told of {routine}")

    def peek(self, routine: str) -> dict[str, Told]:
        """Return what was told, by topic, changing nothing."""
        data = files.read(self._path(routine))
        return {} if data is None else _decode(data) or {}

    def read(self, routine: str) -> dict[str, Told]:
        """Return what was told, by topic; what can't be read is set aside, and told anew."""
        path = self._path(routine)
        data = files.read(path)
        if data is None:
            return {}
        told = _decode(data)
        if told is None:
            files.set_aside(path)
        return told or {}

    def write(self, routine: str, told: Mapping[str, Told]) -> None:
        """Keep what is told.

        Raises:
            NotDurable: It could not be written; what was told before stands.
        """
        path = self._path(routine)
        data = {"routine": routine} | {topic: one.to_json() for topic, one in told.items()}
        text = json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
        try:
            files.in_folder(path, lambda: files.replace(path, text + b"\n"))
        except OSError as error:
            raise files.fault(error, "write", path) from error

    def all(self) -> Iterator[tuple[str, dict[str, Told]]]:
        """Yield every routine about which anything was told."""
        folder = self._state.at("alerts")
        for name in files.names(folder):
            if not name.endswith(".json"):
                continue
            with contextlib.suppress(StoreError, ValueError):
                data = files.read(f"{folder}/{name}") or b""
                told = _decode(data)
                if told is not None:
                    yield str(json.loads(data)["routine"]), told


def _decode(data: bytes) -> dict[str, Told] | None:
    try:
        found = json.loads(data)
        str(found["routine"])
        return {topic: Told.from_json(found[topic]) for topic in TOPICS if topic in found}
    except UNREADABLE:
        return None
