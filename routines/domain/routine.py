"""A routine: a named prompt, when an agent is given it, and the policies that apply."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from routines.domain.durations import format_span
from routines.domain.limits import DayLimit
from routines.domain.retry import USUAL, Retry
from routines.domain.schedule import Schedule
from routines.domain.targets import Target
from routines.domain.timetable import Timetable


class OverlapPolicy(StrEnum):
    """What becomes of a slot while the routine's previous occurrence runs."""

    SKIP = "skip"
    BUFFER_ONE = "buffer-one"
    SUPERSEDE = "supersede"


class CatchUpPolicy(StrEnum):
    """What is owed after an absence."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


DEFAULT_TIMEOUT = timedelta(hours=1)
# A hundred paid turns in a row are more than anybody expects from a word like "all".
DEFAULT_MAX_CATCH_UP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """One routine as its file defines it, defaults of the workspace filled in.

    Attributes:
        name: The file's stem, NFC.
        prompt: The text exactly as the agent gets it; line ends LF.
        schedule: What yields its slots; None for a routine that is reached by name only.
        zone: IANA name in which its times are read and shown.
        zone_is_set: Whether the file or the workspace names the zone; else it is UTC by default.
        agent: The name of an agent, or None for the one given to the engine.
        args: Words added to the agent's command line.
        model: Handed over as the agent's entry says, or None.
        cwd: Absolute folder that the turn runs in.
        env: Variables added to the turn's environment.
        env_file: Absolute path of KEY=VALUE lines, or None.
        session: `stable`, `fresh` or `named:NAME`.
        session_turns: After so many turns a new epoch; None for no limit.
        max_catch_up: How many slots `catch_up: all` owes at most.
        jitter: The longest stable offset from a slot.
        start_within: Later than this after the slot fell due it is missed; None for no limit.
        timeout: Of one turn with its gates, in time awake.
        only_if: A command that decides before the agent is started, or None.
        retry: What is tried again, and how often.
        rerun_interrupted: How often an interrupted turn may be run again.
        verify: A command that judges a completed turn, or None.
        exclusive: A group; two turns of one group never run at once.
        limits: The most that a day may take, or None.
        deliver: Where the replies of completed turns go.
        quiet: A reply that is exactly this is kept and not delivered, or None.
        alert: Who is told what went wrong, besides the log.
        silent_for: Tell if it has not completed for that long; None for two slots and `timeout`.
        wake_tools: Whether its agent is handed `wake` and `unwake` where its program takes tools.
        path: The file it was read from, for messages; None if it was made in code.
        line_of: The line of each key in *path*, for messages.
    """

    name: str
    prompt: str
    schedule: Schedule | None = None
    zone: str = "UTC"
    zone_is_set: bool = False
    agent: str | None = None
    args: tuple[str, ...] = ()
    model: str | None = None
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    env_file: str | None = None
    session: str = "stable"
    session_turns: int | None = None
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    catch_up: CatchUpPolicy = CatchUpPolicy.ONE
    max_catch_up: int = DEFAULT_MAX_CATCH_UP
    jitter: timedelta = timedelta(0)
    start_within: timedelta | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    only_if: tuple[str, ...] | None = None
    retry: Retry = USUAL
    rerun_interrupted: int = 0
    verify: tuple[str, ...] | None = None
    exclusive: str | None = None
    limits: DayLimit | None = None
    deliver: tuple[Target, ...] = ()
    quiet: str | None = None
    alert: tuple[Target, ...] = ()
    silent_for: timedelta | None = None
    wake_tools: bool = True
    enabled: bool = True
    description: str = ""
    tags: tuple[str, ...] = ()
    path: str | None = None
    line_of: dict[str, int] = field(default_factory=dict, compare=False)

    def definition(self) -> dict[str, Any]:
        """Return everything that decides what a turn does, as JSON: what `digest` covers."""
        known: dict[str, Any] = {
            "name": self.name,
            "prompt": self.prompt,
            "schedule": None if self.schedule is None else self.schedule.spec(),
            "zone": self.zone,
            "agent": self.agent,
            "args": list(self.args),
            "model": self.model,
            "cwd": self.cwd,
            "env": [list(pair) for pair in self.env],
            "env_file": self.env_file,
            "session": self.session,
            "session_turns": self.session_turns,
            "overlap": self.overlap.value,
            "catch_up": self.catch_up.value,
            "max_catch_up": self.max_catch_up,
            "jitter": format_span(self.jitter),
            "start_within": None if self.start_within is None else format_span(self.start_within),
            "timeout": format_span(self.timeout),
            "only_if": None if self.only_if is None else list(self.only_if),
            "retry": self.retry.to_json(),
            "rerun_interrupted": self.rerun_interrupted,
            "verify": None if self.verify is None else list(self.verify),
            "exclusive": self.exclusive,
            "limits": None if self.limits is None else self.limits.to_json(),
            "enabled": self.enabled,
        }
        # Left out where there is nothing, so that definitions of before keep their digest.
        if self.deliver:
            known["deliver"] = [target.to_json() for target in self.deliver]
        if self.quiet is not None:
            known["quiet"] = self.quiet
        if not self.wake_tools:
            known["wake_tools"] = False
        return known

    def digest(self, *, moved: tuple[str, str] | None = None) -> str:
        """Return a short name of this definition: another one means that the file was edited.

        Args:
            moved: The folder that its paths lie in, and another in whose place it is put.
        """
        found = self.definition() if moved is None else _moved(self.definition(), *moved)
        text = json.dumps(found, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def timetable(self) -> Timetable | None:
        """Its slots and when each falls due; None if it is reached by name only."""
        if self.schedule is None:
            return None
        return Timetable(self.name, self.schedule, self.jitter)

    def session_for(self, occurrence: str) -> str:
        """Return the session of a turn: `routine:<name>`, `named:NAME`, or its own when fresh.

        Args:
            occurrence: The slot in RFC 3339, or the id of a run by hand.
        """
        if self.session == "stable":
            return f"routine:{self.name}"
        if self.session == "fresh":
            return f"routine:{self.name}@{occurrence}"
        return self.session

    @property
    def lasting_session(self) -> str:
        """The session that its name stands for: also of one whose turns are fresh."""
        return self.session if self.session.startswith("named:") else f"routine:{self.name}"


def _moved(value: Any, root: str, there: str) -> Any:
    """Return *value* with the paths in it that lie in *root* in *there*."""
    if isinstance(value, str):
        inside = value == root or value.startswith(f"{root}/")
        return there + value[len(root) :] if inside else value
    if isinstance(value, dict):
        return {key: _moved(one, root, there) for key, one in value.items()}
    return [_moved(one, root, there) for one in value] if isinstance(value, list) else value


def schedule_key(routine: Routine) -> dict[str, Any] | None:
    """Return what the cursor compares: another schedule or zone owes nothing from before."""
    return None if routine.schedule is None else routine.schedule.spec()
