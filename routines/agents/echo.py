"""The agent that answers with the prompt: for rehearsal, examples and the first run.

It needs no program, no key and no network, and its numbered replies show that the conversation
lasts from one turn to the next.
"""

import json
import os

from routines.agents.base import Reply, Turn, TurnResult
from routines.domain.names import safe_name
from routines.domain.outcome import Outcome, Reason, one_line
from routines.errors import StoreError
from routines.store import files


def run_echo(turn: Turn, *, transcript: str) -> TurnResult:
    """Answer *turn* with its own prompt, and append both to the file *transcript*."""
    try:
        reply = _answer(turn, transcript)
    except (OSError, StoreError) as error:
        return TurnResult(
            outcome=Outcome.FAILED,
            reason=Reason.AGENT,
            detail=one_line(f"the transcript can't be kept: {error}"),
        )
    return TurnResult(outcome=Outcome.COMPLETED, reply=reply)


class EchoAgent:
    """`echo` as an object, for an `Engine` in a program of one's own.

    Args:
        folder: Where the transcripts are kept, one file a session. None keeps only a count, in
            memory, so that a new process begins at turn 1 again.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._counts: dict[str, int] = {}

    async def run(self, turn: Turn) -> Reply:
        """Answer with the prompt."""
        if self._folder is not None:
            # A few bytes, not synced: no reason to leave the loop for it.
            return _answer(turn, os.path.join(self._folder, f"{safe_name(turn.session)}.jsonl"))
        number = self._counts.get(turn.session, 0) + 1
        self._counts[turn.session] = number
        return _reply(turn, number)


def _answer(turn: Turn, transcript: str) -> Reply:
    files.make_folder(os.path.dirname(os.path.abspath(transcript)))
    fd = files.open_append(transcript, create=True)
    try:
        data = files.read_fd(fd)
        number = _last_number(data) + 1
        reply = _reply(turn, number)
        line = {"turn": number, "key": turn.key, "prompt": turn.prompt, "reply": reply.text}
        # A line torn by a crash is ended first, or it would swallow this one.
        start = b"\n" if data and not data.endswith(b"\n") else b""
        files.write_all(fd, start + json.dumps(line).encode("ascii") + b"\n")
    finally:
        files.close(fd)
    return reply


def _last_number(data: bytes) -> int:
    """Return the number of the last turn that a whole line tells of, 0 if there is none."""
    for line in reversed(data.splitlines()):
        try:
            number = json.loads(line)["turn"]
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(number, int) and number > 0:
            return number
    return 0


def _reply(turn: Turn, number: int) -> Reply:
    return Reply(text=f"turn {number} of {turn.session}: {turn.prompt}")
