"""`show` and `logs`: one occurrence whole, with what its turn was given and printed."""

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from routines.domain.record import Record
from routines.errors import UnknownOccurrence
from routines.operations.context import Context
from routines.operations.entries import Entry, output_path
from routines.operations.finding import find
from routines.operations.history import as_entry
from routines.operations.life import state_word
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.cursors import Missed
from routines.store.state import State

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Shown:
    """One occurrence whole.

    Attributes:
        entry: Its row.
        prompt, reply: The texts; None if they are not kept any more.
        prompt_bytes, reply_bytes: Their whole lengths.
        folder: Where its files are, absolute, or None.
        events: The lines of its record, the claim first, as they were written.
    """

    entry: Entry
    prompt: str | None = None
    reply: str | None = None
    prompt_bytes: int = 0
    reply_bytes: int = 0
    folder: str | None = None
    events: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the record of the history with whole texts and the events."""
        whole = {"prompt": self.prompt, "reply": self.reply}
        known = {key: text for key, text in whole.items() if text is not None}
        return {**self.entry.to_json(), **known, "events": list(self.events)}


def show(context: Context, ref: str) -> Shown:
    """Return what is known of the occurrence that *ref* names.

    Raises:
        UnknownRoutine, UnknownOccurrence: There is none.
        StateMissing: Nothing was ever recorded here.
    """
    return show_found(context, find(context, ref))


def show_found(context: Context, found: Record | Missed) -> Shown:
    """Return a record with the files of its turn."""
    entry = as_entry(context, found)
    if isinstance(found, Missed):
        return Shown(entry)
    state = context.state
    prompt, prompt_bytes = _text(state, entry, "prompt.md")
    reply, reply_bytes = _text(state, entry, "reply.md")
    return Shown(
        entry=entry,
        prompt=entry.prompt if prompt is None else prompt,
        reply=entry.reply if reply is None else reply,
        prompt_bytes=prompt_bytes or len((entry.prompt or "").encode("utf-8", "surrogatepass")),
        reply_bytes=reply_bytes or len((entry.reply or "").encode("utf-8", "surrogatepass")),
        folder=state.at("output", *found.occurrence.place.split("/")) if entry.files else None,
        events=(found.claim, *found.events) if found.readable else found.events,
    )


def _text(state: State, entry: Entry, name: str) -> tuple[str | None, int]:
    path = output_path(state, entry, name)
    data = None if path is None else files.read(path)
    return (None, 0) if data is None else (data.decode("utf-8", "replace"), len(data))


@dataclass(frozen=True, slots=True)
class Logs:
    """What a turn printed.

    Attributes:
        entry: Its row.
        stdout, stderr: As it printed them, undecodable bytes replaced.
    """

    entry: Entry
    stdout: str
    stderr: str

    def to_json(self) -> dict[str, Any]:
        """Return it as `logs --json` does."""
        return {"id": self.entry.id, "stdout": self.stdout, "stderr": self.stderr}


def logs(context: Context, ref: str) -> Logs:
    """Return what the turn of *ref* printed.

    Raises:
        UnknownOccurrence: There is no such occurrence, or no turn of it left anything.
    """
    entry = as_entry(context, find(context, ref))
    state = context.state
    stdout, _ = _text(state, entry, "stdout.log")
    stderr, _ = _text(state, entry, "stderr.log")
    if stdout is None and stderr is None:
        # An agent that is no program prints nothing: what it answered is all there is.
        stdout, _ = _text(state, entry, "reply.md")
    if stdout is None and stderr is None and not entry.is_running:
        raise UnknownOccurrence(
            f"{entry.id} left no output",
            hint="it did not start, or its output is not kept any more: "
            f"`routines explain {entry.routine or entry.id}`",
        )
    return Logs(entry, stdout or "", stderr or "")


def follow_logs(context: Context, ref: str) -> Iterator[str]:
    """Yield what the turn of *ref* prints, from the beginning, until it has ended."""
    found = find(context, ref)
    if isinstance(found, Missed):
        return
    state, claims = context.state, ClaimStore(context.state)
    folder = state.at("output", *found.occurrence.place.split("/"))
    tails = [_Tail(os.path.join(folder, name)) for name in ("stdout.log", "stderr.log")]
    while True:
        record = claims.read_path(found.path)
        # Asked before reading: what is printed before the end is then never left out.
        ended = record is None or record.end is not None or state_word(claims, record) == "lost"
        for tail in tails:
            if text := tail.more(final=ended):
                yield text
        if ended:
            if not any(tail.found for tail in tails):
                # An agent that is no program prints nothing: what it answered is all there is.
                reply = files.read(os.path.join(folder, "reply.md")) or b""
                yield reply.decode("utf-8", "replace")
            return
        context.clock.sleep(_POLL_S)


class _Tail:
    """What a growing file gained since the last look.

    Attributes:
        found: Whether it was ever there.
    """

    def __init__(self, path: str) -> None:
        self.found = False
        self._path = path
        self._at = 0
        # A character may be cut in two by a look.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, *, final: bool) -> str:
        data = files.read(self._path)
        self.found = self.found or data is not None
        data = data or b""
        new, self._at = data[self._at :], max(len(data), self._at)
        return self._decoder.decode(new, final)
