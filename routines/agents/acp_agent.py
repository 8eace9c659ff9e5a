"""Running an agent that speaks the Agent Client Protocol: a program, and one turn said with it.

A program for each turn. What it is asked, and how its words are taken, is in `acp_protocol`; how
it is started, carried and ended with its whole tree is as for every command.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from routines.agents.acp_protocol import Asked, Conversation, Verdict
from routines.agents.base import Reply, Turn, TurnResult
from routines.agents.command_words import command_words
from routines.agents.handover import McpServer
from routines.agents.output import Capture, Lines, open_captures
from routines.agents.programs import Ended, ended_by_us, run_program, signal_words, with_remains
from routines.agents.starting import CannotStart, utf8
from routines.agents.trees import STOP_INTERVAL_S
from routines.domain.agent import AgentSpec
from routines.domain.clock import Clock
from routines.domain.durations import format_span
from routines.domain.masking import Masker
from routines.domain.outcome import Outcome, Reason, Warn, one_line

# From the start to the prompt. A program in node takes up to half a minute on a busy machine, its
# MCP servers as long again; one that says nothing for so long never will.
HANDSHAKE = timedelta(minutes=3)
# A conversation that is loaded is played back before the answer, says the protocol. Gemini CLI
# answers first; so the prompt waits until nothing of the past has come for so long.
_QUIET_S = 1.0


class _Carried:
    """A conversation with a limit to how long it may take to begin."""

    def __init__(self, conversation: Conversation, clock: Clock, handshake: timedelta) -> None:
        self._conversation = conversation
        self._clock = clock
        self._limit = clock.awake() + handshake.total_seconds()
        self._played = 0
        self._quiet_since = self._limit
        self.overdue = False

    @property
    def over(self) -> bool:
        return self._conversation.over

    def begin(self, say: Callable[[bytes], None]) -> None:
        self._conversation.begin(say)

    def hear(self, data: bytes) -> None:
        settles = self._conversation.settles
        self._conversation.hear(data)
        if self._conversation.played != self._played or self._conversation.settles != settles:
            self._played = self._conversation.played
            self._quiet_since = self._clock.awake()

    def interrupt(self) -> None:
        self._conversation.interrupt()

    def pass_time(self, now: float) -> bool:
        if self._conversation.settles and now - self._quiet_since >= _QUIET_S:
            self._conversation.settle()
        self.overdue = now >= self._limit and not self._conversation.prompted
        return self.overdue


def run_acp(
    spec: AgentSpec,
    turn: Turn,
    *,
    args: Sequence[str] = (),
    model: str | None = None,
    cwd: str,
    env: Mapping[str, str],
    folder: str | None,
    clock: Clock,
    timeout: timedelta,
    handshake: timedelta = HANDSHAKE,
    stop_requested: Callable[[], str | None] = lambda: None,
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
    on_native_session: Callable[[str], str | None] | None = None,
    masker: Masker | None = None,
    servers: Sequence[McpServer] = (),
    own_tools: Sequence[str] = (),
    version: str = "",
) -> TurnResult:
    """Give *turn* to the agent of *spec* and return how it ended, its whole tree gone.

    Args:
        spec: The agent, with `acp` and the words that start it.
        turn: What it is given.
        args: The routine's own words, added at the end.
        model: Handed over as the entry's `model` words say.
        cwd: Where it runs, and where the conversation works; absolute.
        env: Its whole environment.
        folder: Where stdout.log and stderr.log are kept; None for nowhere.
        clock: Counts *timeout* and *handshake*.
        timeout: How long it may take, awake.
        handshake: How long it may take until it is given the prompt.
        stop_requested: As in `run_program`; the agent is asked to end the turn first.
        grace: What it gets for that, and the pause between two signals of `spec.stop`.
        on_native_session: Told the id of the conversation as soon as the agent says it, before
            the prompt is given; a session that it answers has that conversation, and the turn
            ends there.
        masker: Takes secrets out of what is kept of its output.
        servers: MCP servers that it is handed.
        own_tools: Titles of their tools, as it shows them; their use is approved.
        version: Ours, as it is told.
    """
    out, err = open_captures(folder)
    masker = masker or Masker()
    out_lines, err_lines = Lines(out, masker), Lines(err, masker)
    conversation = Conversation(
        Asked(
            prompt=turn.prompt,
            cwd=cwd,
            native_session=turn.native_session,
            servers=tuple(servers),
            own_tools=frozenset(own_tools),
            version=version,
        ),
        spec,
        on_session=on_native_session or (lambda _: None),
        mask=masker.mask,
    )
    carried = _Carried(conversation, clock, handshake)
    try:
        # Bytes that can't be would break the line that carries them.
        utf8(turn.prompt, "the prompt")
        ended = run_program(
            command_words(spec, turn, args=args, model=model),
            stdin=None,
            cwd=cwd,
            env=env,
            out=out_lines.feed,
            err=err_lines.feed,
            clock=clock,
            timeout=timeout,
            stop_requested=stop_requested,
            stop=spec.stop,
            grace=grace,
            dialog=carried,
        )
    except CannotStart as error:
        return error.result
    finally:
        out_lines.close()
        err_lines.close()
    verdict = conversation.verdict
    if ended.why is not None:
        verdict = Verdict(*ended_by_us(ended.why, timeout))
    elif verdict is None:
        verdict = _never_finished(conversation, ended, err, carried.overdue, handshake)
    return _result(conversation, verdict, ended)


def _never_finished(
    conversation: Conversation, ended: Ended, err: Capture, overdue: bool, handshake: timedelta
) -> Verdict:
    """Say what a turn was whose agent ended, or never answered, in the midst of it."""
    words = err.last_line()
    if overdue:
        how = f"no answer to {conversation.phase} within {format_span(handshake)}"
        return Verdict(None, Reason.NOT_STARTED, f"{how}: {words}" if words else how)
    if ended.code is None and ended.signal is None:
        lost = "how it ended can't be told"
        return Verdict(Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN, lost)
    how = f"exit {ended.code}" if ended.signal is None else signal_words(ended.signal)
    detail = f"it ended during {conversation.phase}, {how}"
    detail = f"{detail}: {words}" if words else detail
    if not conversation.prompted:
        return Verdict(None, Reason.NOT_STARTED, detail)
    if ended.signal is not None:
        return Verdict(Outcome.FAILED, Reason.SIGNAL, detail)
    # Exit 0 too: the turn had not ended.
    return Verdict(Outcome.FAILED, Reason.EXIT if ended.code else Reason.BAD_OUTPUT, detail)


def _result(conversation: Conversation, verdict: Verdict, ended: Ended) -> TurnResult:
    text, warnings = conversation.reply()
    reply = Reply(
        text=text,
        native_session=conversation.session,
        usage=conversation.said.usage(),
        warnings=warnings,
    )
    if verdict.outcome is Outcome.COMPLETED and not text.strip():
        reply = replace(reply, warnings=(*warnings, Warn.EMPTY_REPLY.value))
    return TurnResult(
        outcome=verdict.outcome,
        reason=verdict.reason,
        detail=one_line(with_remains(verdict.detail, ended.remain)),
        reply=reply,
        # How it ended after the turn had is nobody's business: it was told to go.
        exit_code=None if conversation.over else ended.code,
        signal=None if conversation.over else ended.signal,
    )
