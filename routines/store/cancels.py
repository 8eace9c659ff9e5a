"""What people and programs ask of a turn that runs or waits: intents to cancel, in `cancels/`.

An intent is pending until one side takes it: whoever accepts it, or whoever asked and withdraws it.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from routines.domain.decoding import UNREADABLE
from routines.domain.names import cased_name, format_instant, parse_instant, safe_name
from routines.domain.outcome import Outcome, Reason, end_of_cancel
from routines.errors import StoreError
from routines.store import files, objects
from routines.store.state import State

# What is accepted or done carries this ending, and is no pending intent any more.
_ACCEPTED = ".accepted"


@dataclass(frozen=True, slots=True)
class Cancel:
    """A recorded intent to cancel one occurrence.

    Attributes:
        ref: The occurrence.
        id: The intent's own.
        by: `user@host`, or the turn that asked.
        person: Whether a person asked, not a turn.
        at: When.
        reason: In words, may be empty.
        newer: The newer slot that is to take its place, or None.
        intent: What the program that asked calls it, or None.
        lane: Whether the job's whole lane is failed: it then ends so, and not as cancelled.
    """

    ref: str
    id: str
    by: str
    person: bool
    at: datetime
    reason: str = ""
    newer: str | None = None
    intent: str | None = None
    lane: bool = False

    @property
    def end(self) -> tuple[Outcome, Reason]:
        """How the occurrence ends by it."""
        return end_of_cancel(person=self.person, lane=self.lane)


def _order(cancel: Cancel) -> tuple[bool, datetime, str]:
    # Never by the name alone, which is random.
    return cancel.lane, cancel.at, cancel.id


class CancelStore:
    """The intents to cancel of one state folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _folder(self, ref: str) -> str:
        # Ids of jobs are a program's own, and may differ in case alone.
        name = cased_name(ref) if ref.startswith("job:") else safe_name(ref)
        return self._state.at("cancels", name)

    def ask(
        self,
        ref: str,
        *,
        by: str,
        person: bool,
        at: datetime,
        reason: str = "",
        newer: str | None = None,
        intent: str | None = None,
        lane: bool = False,
    ) -> Cancel:
        """Record an intent; asking again adds another, which is harmless.

        Args:
            ref: The occurrence.
            by: `user@host`, or the turn that asks.
            person: Whether a person asks.
            at: When.
            reason: In words.
            newer: The newer slot that is to take its place, or None.
            intent: What the program that asks calls it, or None.
            lane: Whether the job's whole lane is failed.

        Raises:
            NotDurable: It could not be written; nothing was asked.
        """
        cancel = Cancel(ref, secrets.token_hex(6), by, person, at, reason, newer, intent, lane)
        path = os.path.join(self._folder(ref), f"{cancel.id}.json")
        data = {
            "ref": ref,
            "by": by,
            "person": person,
            "at": format_instant(at),
            "reason": reason,
            "newer": newer,
            "intent": intent,
            "lane": lane,
        }
        try:
            objects.write(path, data)
        except StoreError:
            # Where only the last sync failed it is there: told "failed", nobody sees it happen.
            files.discard(path)
            raise
        return cancel

    def pending(self, ref: str) -> Cancel | None:
        """Return the first intent that was neither accepted nor withdrawn, or None.

        A cancel goes before a lane that is failed.
        """
        return self._first(ref, ".json")

    def accepted(self, ref: str) -> Cancel | None:
        """Return an intent that was accepted, of an occurrence that is not settled yet, or None."""
        return self._first(ref, f".json{_ACCEPTED}")

    def _first(self, ref: str, ending: str) -> Cancel | None:
        return min(self._asked(ref, ending), key=_order, default=None)

    def _asked(self, ref: str, ending: str) -> Iterator[Cancel]:
        for name in files.names(self._folder(ref)):
            if not name.endswith(ending):
                continue
            found = objects.read(os.path.join(self._folder(ref), name))
            if found is not None:
                with contextlib.suppress(*UNREADABLE):
                    yield Cancel(
                        ref,
                        name.removesuffix(ending),
                        str(found["by"]),
                        bool(found["person"]),
                        parse_instant(found["at"]),
                        str(found["reason"]),
                        found.get("newer"),
                        found.get("intent"),
                        bool(found.get("lane")),
                    )

    def intents(self, ref: str) -> list[str]:
        """Return what programs call their intents to cancel *ref*, accepted or not."""
        folder = self._folder(ref)
        found = (objects.read(os.path.join(folder, name)) for name in files.names(folder))
        return [str(one["intent"]) for one in found if one and one.get("intent") is not None]

    def accept(self, cancel: Cancel) -> bool:
        """Take an intent up, so that it can't be withdrawn any more; False if it was."""
        path = os.path.join(self._folder(cancel.ref), f"{cancel.id}.json")
        try:
            return files.move(path, path + _ACCEPTED)
        except OSError as error:
            raise files.fault(error, "rename", path) from error

    def take_up(self, ref: str) -> Cancel | None:
        """Accept a pending intent and return it, else one that was accepted before; None if none.

        Whoever accepted one may have been kept from writing what follows from it, by a full disk
        or a crash: it holds for whoever comes next. Of several, a cancel goes before a lane that
        is failed, whichever was asked first and whatever was accepted: a job whose cancel was
        recorded before it was settled is cancelled.
        """
        while True:
            cancel, accepted = self.pending(ref), self.accepted(ref)
            if cancel is None or (accepted is not None and cancel.lane and not accepted.lane):
                return None if accepted is None else self.with_reason(accepted)
            if self.accept(cancel):
                first = cancel if accepted is None else min(cancel, accepted, key=_order)
                return self.with_reason(first)

    def with_reason(self, cancel: Cancel) -> Cancel:
        """Return *cancel* with the words of another that asked for the same, if it has none.

        A cancel is repeated with a reason, or without one, before the first has ended anything:
        the record is to say why all the same.
        """
        if cancel.reason or cancel.newer is not None:
            return cancel
        asked = [*self._asked(cancel.ref, ".json"), *self._asked(cancel.ref, f".json{_ACCEPTED}")]
        same = (
            one for one in asked if one.reason and one.newer is None and one.lane == cancel.lane
        )
        said = min(same, key=_order, default=cancel)
        return replace(cancel, reason=said.reason)

    def withdraw(self, cancel: Cancel) -> bool:
        """Take an intent back; False if it was accepted before.

        Raises:
            NotDurable: It could not be taken back for good: it may still be accepted.
        """
        folder = self._folder(cancel.ref)
        try:
            if not files.remove(os.path.join(folder, f"{cancel.id}.json")):
                return False
            # Else a power cut would bring it back, and with it the cancel. A folder that is gone
            # was cleared by whoever settled the occurrence.
            with contextlib.suppress(FileNotFoundError):
                files.sync_folder(folder)
        except OSError as error:
            raise files.fault(error, "remove", folder) from error
        return True

    def clear(self, ref: str) -> None:
        """Remove what was asked of an occurrence that is settled."""
        folder = self._folder(ref)
        with contextlib.suppress(OSError):
            for name in files.names(folder):
                files.remove(os.path.join(folder, name))
            files.remove_folder(folder)

    def folders(self) -> list[str]:
        """Return the safe names of occurrences that something was asked of."""
        return files.names(self._state.at("cancels"))
