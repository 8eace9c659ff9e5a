"""What an edit changed, in words for the log: which routine, and which of its keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from routines.domain.routine import Routine, schedule_key

# Where the file lies and how its lines are counted is no part of what it says.
_NO_KEYS = frozenset(["name", "path", "line_of", "schedule", "zone", "zone_is_set"])


@dataclass(frozen=True, slots=True)
class Edit:
    """One difference between what was known and what the files say now.

    Attributes:
        word: `routine-added`, `routine-edited` or `routine-removed`.
        routine: Its name.
        keys: The keys that differ, with commas; empty for what was added or removed.
        digest: Of its definition as it is now, or None.
    """

    word: str
    routine: str
    keys: str = ""
    digest: str | None = None


def edits_between(before: Mapping[str, Routine], after: Mapping[str, Routine]) -> Iterator[Edit]:
    """Yield what has changed, by name.

    Args:
        before: What was armed until now.
        after: What is armed from now on.
    """
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield Edit("routine-removed", name)
        elif old is None:
            yield Edit("routine-added", name, digest=new.digest())
        elif old is not new and (keys := ", ".join(_differing(old, new))):
            yield Edit("routine-edited", name, keys=keys, digest=new.digest())


def _differing(old: Routine, new: Routine) -> Iterator[str]:
    if schedule_key(old) != schedule_key(new):
        yield "schedule"
    for field in fields(Routine):
        if field.name not in _NO_KEYS and getattr(old, field.name) != getattr(new, field.name):
            yield field.name
