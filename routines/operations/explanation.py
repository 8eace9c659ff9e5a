"""The answer of `explain`: what became of a slot or a job, as a value."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from routines.domain.names import format_instant
from routines.operations.entries import Entry
from routines.operations.life import Schedulers
from routines.operations.pending import Held
from routines.operations.steps import Step


class Verdict(StrEnum):
    """What is said of a slot in the first word."""

    RECORDED = "recorded"  # it has a claim: its own outcome or state is said
    MISSED = "missed"
    OWED = "owed"
    WAITING = "waiting"
    PAUSED = "paused"
    NEVER_DUE = "never due"
    UNKNOWN = "unknown"
    NOT_YET = "not yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer.

    Attributes:
        routine: Whose slot.
        at: The instant that was asked about.
        tz: The zone of its routine.
        verdict: What became of it.
        why: The reason as a sentence with its instants left out as `{0}`, `{1}`, ...
        instants: What stands in those places.
        entry: Its row if it has a record.
        steps: What happened, in order, if it has one.
        next: The next slot, or None.
        known: Whether the routine has a file now that can be used.
        stale: Whether it goes on in its last good version, since its file is broken now.
        paused: What holds the routine back now, or None.
        alive: Whether a scheduler is alive.
        job: The id of the job that is explained; empty for a purge, for the firing of a
            wake-up and for a run by hand, None for a slot.
        newest: Whether the name alone stands for it: nothing newer is recorded.
    """

    routine: str
    at: datetime
    tz: str
    verdict: Verdict
    why: str = ""
    instants: tuple[datetime, ...] = ()
    entry: Entry | None = None
    steps: tuple[Step, ...] = field(default=())
    next: datetime | None = None
    known: bool = True
    stale: bool = False
    newest: bool = False
    paused: Held | None = None
    alive: bool = True
    job: str | None = None

    @property
    def id(self) -> str:
        """The id of the occurrence."""
        # A slot within a counted range has an id of its own, and shares the row of the last one.
        if self.entry is not None and self.verdict is not Verdict.MISSED:
            return self.entry.id
        if self.job is not None:
            return f"job:{self.job}"
        return f"{self.routine}@{format_instant(self.at)}"

    def to_json(self) -> dict[str, Any]:
        """Return it as `explain --json` shows it."""
        why = self.why.format(*(format_instant(at) for at in self.instants)) if self.why else ""
        return {
            "id": self.id,
            "routine": self.routine,
            "at": format_instant(self.at),
            "tz": self.tz,
            "verdict": self.verdict.value,
            "why": why,
            "record": None if self.entry is None else self.entry.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "next": None if self.next is None else format_instant(self.next),
            "paused": None if self.paused is None else self.paused.to_json(),
            "stale": self.stale,
        }


def escaped(text: str) -> str:
    """Return *text* so that `str.format` leaves it as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def silence(alive: Schedulers) -> tuple[str, tuple[datetime, ...]]:
    """Return since when nobody schedules, as a sentence with its instants left out."""
    if alive.last_at is None:
        return "no scheduler has been alive here", ()
    why = f" ({escaped(alive.last_why)})" if alive.last_why else ""
    return f"no scheduler has been alive since {{0}}{why}", (alive.last_at,)
