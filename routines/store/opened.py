"""The record of a program that a person opened under the lease of a session.

The lease ends with the process that holds it, and the program may outlive that: a signal at its
death reaches its direct child alone, and programs close the descriptors that they were given. So
it is written down in the ledger before the program starts, and taken away when it has ended; a
free lock beside such a record is not free until nothing of that program lives.
"""

import os
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from routines.domain.decoding import instant
from routines.domain.names import format_instant
from routines.domain.record import Owner

# One variable for each: a program that is opened within another one is part of both.
_MARK = re.compile(r"ROUTINES_HELD_[0-9a-f]{32}", re.ASCII)


def new_mark() -> str:
    """Return the name of a variable that no process has in its environment yet."""
    return f"ROUTINES_HELD_{os.urandom(16).hex()}"


def is_mark(name: str) -> bool:
    """Return whether a variable marks a program that was opened."""
    return _MARK.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A program that was opened under a lease.

    Attributes:
        mark: The variable by which it and all that it starts is known.
        owner: The process that opened it, and held the lease.
        at: When.
    """

    mark: str
    owner: Owner
    at: datetime

    def variable(self, state: str) -> dict[str, str]:
        """Return what stands in its environment; the folder, so that a copy of it ends nothing."""
        return {self.mark: os.path.realpath(state)}

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in a ledger."""
        return {
            "mark": self.mark,
            "owner": self.owner.to_json(),
            "at": format_instant(self.at),
        }

    @classmethod
    def from_json(cls, data: Any) -> "Opened | None":
        """Return what `to_json` wrote, None for None.

        Raises:
            ValueError, KeyError, TypeError: It is something else.
        """
        if data is None:
            return None
        owner = Owner.from_json(data["owner"])
        if owner is None or not is_mark(data["mark"]):
            raise ValueError("no record of a program")
        return cls(mark=data["mark"], owner=owner, at=instant(data["at"]))
