"""The identity of an occurrence, and every name that follows from it.

| kind   | reference                              | claim under `claims/`                         |
|--------|----------------------------------------|-----------------------------------------------|
| slot   | `daily@2026-07-01T09:00:00Z`           | `daily/2026-07-01/2026-07-01T09-00-00Z.jsonl` |
| manual | `manual:2026-07-01T09-00-00Z-k3m9q2`   | `daily/.../<instant>.manual-k3m9q2.jsonl`     |
| wake   | `wake:w-7k3m9q@2026-07-01T09:00:00Z`   | `wake/<session>/.../<instant>.w-7k3m9q.jsonl` |
| job    | `job:j-42`                             | `job/.../<instant>.j-42.jsonl`                |
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from routines.domain.names import (
    cased_name,
    day_name,
    format_instant,
    instant_name,
    parse_instant,
    parse_instant_name,
    safe_name,
)

_MANUAL = "manual-"
_ENDING = ".jsonl"


class Kind(StrEnum):
    """What brought an occurrence about."""

    SLOT = "slot"
    MANUAL = "manual"
    WAKE = "wake"
    JOB = "job"


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One slot of one routine, one run by hand, one firing of a wake-up, or one job.

    Attributes:
        kind: Which of these.
        owner: The routine; for a wake-up its session; for a job nothing.
        instant: The slot; when a run by hand was asked for; when a wake-up is due; when a job was
            added. Aware UTC, whole seconds.
        id: What tells apart occurrences of one instant; empty for a slot, which needs nothing.
    """

    kind: Kind
    owner: str
    instant: datetime
    id: str = ""

    @property
    def is_by_hand(self) -> bool:
        """Whether it is a run by hand."""
        return self.kind is Kind.MANUAL

    @property
    def is_job(self) -> bool:
        """Whether it is a job."""
        return self.kind is Kind.JOB

    @property
    def ref(self) -> str:
        """The id as history, `show` and the turn key carry it."""
        match self.kind:
            case Kind.SLOT:
                return f"{self.owner}@{format_instant(self.instant)}"
            case Kind.MANUAL:
                return f"manual:{instant_name(self.instant)}-{self.id}"
            case Kind.WAKE:
                return f"wake:{self.id}@{format_instant(self.instant)}"
            case Kind.JOB:
                return f"job:{self.id}"

    @property
    def folder(self) -> str:
        """The folder of its owner below `claims/`, `output/` and `missed/`."""
        if self.kind in (Kind.SLOT, Kind.MANUAL):
            return safe_name(self.owner)
        return f"wake/{safe_name(self.owner)}" if self.kind is Kind.WAKE else "job"

    @property
    def stem(self) -> str:
        """The name of its claim without ending; its output folder has the same."""
        instant = instant_name(self.instant)
        match self.kind:
            case Kind.SLOT:
                return instant
            case Kind.MANUAL:
                return f"{instant}.{_MANUAL}{self.id}"
            case Kind.JOB:
                return f"{instant}.{cased_name(self.id)}"
            case Kind.WAKE:
                return f"{instant}.{safe_name(self.id)}"

    @property
    def place(self) -> str:
        """`daily/2026-07-01/2026-07-01T09-00-00Z`: its path below `claims/` and `output/`."""
        return f"{self.folder}/{day_name(self.instant)}/{self.stem}"

    @property
    def claim_path(self) -> str:
        """The name that decides who owns it, below the state folder."""
        return f"claims/{self.place}{_ENDING}"

    def open_path(self, draft: str) -> str:
        """The name of its claim while it has no outcome, below the state folder.

        Args:
            draft: What tells apart drafts of one slot; other kinds have their own id.
        """
        last = draft if self.kind is Kind.SLOT else self.stem.partition(".")[2]
        owner = self.folder.replace("/", "~")
        return f"open/{owner}~{instant_name(self.instant)}~{last}"


def open_to_claim(name: str) -> str | None:
    """Return the claim path that belongs to a name in `open/`; None if it is no such name."""
    parts = name.split("~")
    if len(parts) < 3:  # noqa: PLR2004  # owner, instant, id
        return None
    *owner, at, last = parts
    instant = parse_instant_name(at)
    if instant is None or not all(owner) or len(owner) > 2:  # noqa: PLR2004  # wake, session
        return None
    slot = owner[0] not in ("wake", "job") and not last.startswith(_MANUAL)
    stem = at if slot else f"{at}.{last}"
    return f"claims/{'/'.join(owner)}/{day_name(instant)}/{stem}{_ENDING}"


def slot_of_file(name: str) -> datetime | None:
    """Return the slot that a file name in a day folder is the claim of; None for anything else.

    Runs by hand lie in the same folders and are no slots.
    """
    return parse_instant_name(name.removesuffix(_ENDING)) if name.endswith(_ENDING) else None


def instant_of_file(name: str) -> datetime | None:
    """Return the instant that a claim's file name begins with; None if it is no claim."""
    if not name.endswith(_ENDING):
        return None
    return parse_instant_name(name.removesuffix(_ENDING).split(".")[0])


def parse_ref(ref: str) -> Occurrence | None:
    """Return the occurrence that *ref* names in full, or None.

    The owner of a run by hand, a wake-up and a job is not part of the reference: it is empty, and
    the store finds the file by instant and id.
    """
    head, at, tail = ref.partition("@")
    try:
        if ref.startswith("manual:"):
            name, _, manual_id = ref.removeprefix("manual:").rpartition("-")
            instant = parse_instant_name(name)
            return None if instant is None else Occurrence(Kind.MANUAL, "", instant, manual_id)
        if ref.startswith("wake:") and at:
            return Occurrence(Kind.WAKE, "", parse_instant(tail), head.removeprefix("wake:"))
        if at:
            return Occurrence(Kind.SLOT, head, parse_instant(tail))
    except ValueError:
        return None
    return None
