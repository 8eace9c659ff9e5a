"""Running a function that answers a turn on a thread of its own, watched by this one.

A function that blocks can't be ended from outside, and on the main thread it would also keep us
from writing down that its time is over; the process ends when that is written, and takes the
thread with it.
"""

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from routines.agents.base import (
    AgentUnavailable,
    BadOutput,
    NotFound,
    OutcomeUnknown,
    Reply,
    SessionBusy,
    SessionChanged,
    SessionLost,
    Turn,
    TurnFailed,
    TurnResult,
    Usage,
)
from routines.agents.output import Capture, bounded
from routines.agents.programs import TIMEOUT, ended_by_us
from routines.agents.reading import check_native_session
from routines.domain.clock import Clock
from routines.domain.outcome import Outcome, Reason, Warn, one_line

if TYPE_CHECKING:
    import asyncio

# How often a cancel or a stop is looked for (L17 asks for a second).
_LOOK_EVERY_S = 0.5
# More warnings than the closed list has words can only be a mistake of the function's.
_MOST_WARNINGS = 10


@dataclass(slots=True)
class _Call:
    """One call of the function: what the two threads tell each other.

    Attributes:
        done: Set when the function has returned or raised.
        reply: What it answered, once it has.
        joined: What a generator has yielded so far.
        error: What it raised.
        loop: The event loop of its thread, while a coroutine runs there.
        task: That coroutine's task.
    """

    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply | None = None
    joined: "_Joined | None" = None
    error: BaseException | None = None
    loop: "asyncio.AbstractEventLoop | None" = None
    task: "asyncio.Task[Reply] | None" = None
    cancelled: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spoke(self) -> bool:
        """Whether it has given any output."""
        return self.joined is not None and self.joined.spoke

    def so_far(self) -> Reply:
        """Return the reply, or of a call that has not finished what it said until now."""
        if self.reply is not None:
            return self.reply
        return self.joined.reply() if self.joined is not None else Reply()

    def cancel(self) -> None:
        """Cancel the coroutine, if there is one; a plain function can't be reached."""
        with self.guard:
            self.cancelled = True
            if self.loop is not None and self.task is not None and not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self.task.cancel)


# Running ----------------------------------------------------------------------------------------


def run_call(
    function: Callable[[Turn], Any],
    turn: Turn,
    *,
    clock: Clock,
    timeout: timedelta,
    stop_requested: Callable[[], str | None],
    grace: timedelta,
    on_native_session: Callable[[str], object] | None = None,
    on_raised: Callable[[BaseException], object] | None = None,
) -> tuple[TurnResult, bool]:
    """Give *turn* to *function*; return how it ended, and whether it is still at work.

    The function answers a `Reply`, a text or None; a coroutine of one; or it is an (async)
    generator of texts that may yield a `Reply`, whose texts count as output.

    Args:
        function: What answers.
        turn: What it is given.
        clock: Counts *timeout*.
        timeout: How long it may take, awake.
        stop_requested: Asked twice a second; a word of `programs.STOP_WORDS` ends the turn.
        grace: What a cancelled coroutine gets to end.
        on_native_session: Told, on this thread, the id of the conversation as soon as a `Reply`
            says it, so that it is kept if the turn is killed.
        on_raised: Told, on the function's thread, what it raised unless we had cancelled it or it
            is one of the words for how a turn ends (`TurnFailed`, `SessionBusy` and the like).
    """
    call = _Call()
    limit = clock.awake() + timeout.total_seconds()
    # A daemon: one that hangs must not keep the process from ending.
    thread = threading.Thread(
        target=_work, args=(call, function, turn, on_raised), name="agent", daemon=True
    )
    thread.start()
    told = _Told(call, on_native_session)
    why = _watch(call, clock, limit, stop_requested, told)
    hangs = False
    if why is not None:
        call.cancel()
        hangs = not call.done.wait(grace.total_seconds())
    if not hangs:
        thread.join()
    told.look()
    return _judge(call, why, timeout), hangs


class _Told:
    """Passes the id of the conversation on once, on the thread that owns the ledger."""

    def __init__(self, call: _Call, tell: Callable[[str], object] | None) -> None:
        self._call = call
        self._tell = tell

    def look(self) -> None:
        """Pass it on if it is known by now."""
        if self._tell is None or self._call.joined is None:
            return
        found = check_native_session(self._call.joined.native_session)
        if found is not None:
            self._tell(found)
            self._tell = None


def _watch(
    call: _Call,
    clock: Clock,
    limit: float,
    stop_requested: Callable[[], str | None],
    told: _Told,
) -> str | None:
    """Wait for the call's end; return why it is to be ended by us, None if it ended."""
    while not call.done.is_set():
        now = clock.awake()
        why = TIMEOUT if now >= limit else stop_requested()
        if why is not None:
            # It may have ended while we asked; then it is judged by how it did.
            return None if call.done.is_set() else why
        told.look()
        call.done.wait(min(limit - now, _LOOK_EVERY_S))
    return None


# In the function's thread -----------------------------------------------------------------------


def _work(
    call: _Call,
    function: Callable[[Turn], Any],
    turn: Turn,
    on_raised: Callable[[BaseException], object] | None,
) -> None:
    try:
        call.reply = _answer(call, function(turn))
    except BaseException as error:  # noqa: BLE001 - whatever it raises is how the turn ended
        call.error = error
        if on_raised is not None and not call.cancelled and not isinstance(error, _WORDS):
            on_raised(error)
    finally:
        call.done.set()


def _answer(call: _Call, answer: Any) -> Reply:
    if inspect.isasyncgen(answer) or hasattr(answer, "__aiter__"):
        return _in_loop(call, _collect(call, answer))
    if inspect.isawaitable(answer):
        return _in_loop(call, _await(answer))
    if inspect.isgenerator(answer):
        return _gather(call, answer)
    return _as_reply(answer)


def _in_loop(call: _Call, work: Any) -> Reply:
    # Here and not above: a command's turn process never needs it, and it costs its start-up.
    import asyncio

    async def main() -> Reply:
        with call.guard:
            call.loop, call.task = asyncio.get_running_loop(), asyncio.current_task()
            early = call.cancelled
        if early:
            work.close()
            raise asyncio.CancelledError
        reply: Reply = await work
        return reply

    return asyncio.run(main())


async def _await(answer: Any) -> Reply:
    return _as_reply(await answer)


async def _collect(call: _Call, answer: AsyncIterator[Any]) -> Reply:
    call.joined = _Joined()
    async for item in answer:
        call.joined.add(item)
    return call.joined.reply()


def _gather(call: _Call, answer: Iterator[Any]) -> Reply:
    call.joined = _Joined()
    for item in answer:
        call.joined.add(item)
    return call.joined.reply()


class _Joined:
    """Joins the texts of a generator, bounded; a `Reply` that it yields stands for the whole.

    Attributes:
        spoke: Whether there was any output.
        native_session: The id of the conversation, once a `Reply` said it; not checked.
    """

    def __init__(self) -> None:
        self.spoke = False
        self.native_session: Any = None
        self._texts = Capture()
        self._final: Reply | None = None

    def add(self, item: Any) -> None:
        """Take what was yielded next."""
        if isinstance(item, Reply):
            self._final = item
            self.native_session = item.native_session or self.native_session
        elif isinstance(item, str):
            self._texts.feed(item.encode("utf-8", "replace"))
        elif item is not None:
            raise TurnFailed(f"it yielded {type(item).__name__}, and str or Reply is expected")
        self.spoke = self.spoke or bool(item)

    def reply(self) -> Reply:
        """Return the reply as far as it has come."""
        cut = {Warn.TRUNCATED.value: None} if self._texts.dropped else {}
        if self._final is None:
            return Reply(text=self._texts.text(), warnings=tuple(cut))
        if self._final.text:
            return self._final
        # The agent may have said so itself, and once is enough.
        warnings = tuple(dict.fromkeys(self._final.warnings) | cut)
        return replace(self._final, text=self._texts.text(), warnings=warnings)


def _as_reply(answer: Any) -> Reply:
    if answer is None:
        return Reply()
    if isinstance(answer, str):
        return Reply(text=answer)
    if isinstance(answer, Reply):
        return answer
    raise TurnFailed(f"it returned {type(answer).__name__}, and str, Reply or None is expected")


# What it was ------------------------------------------------------------------------------------


def _judge(call: _Call, why: str | None, timeout: timedelta) -> TurnResult:
    if why is not None:
        outcome, reason, detail = ended_by_us(why, timeout)
        reply = checked_reply(call.so_far())
        return TurnResult(outcome=outcome, reason=reason, detail=detail, reply=reply)
    if call.error is not None:
        return _raised(call, call.error)
    reply = checked_reply(call.so_far())
    if reply.failed is not None:
        detail = one_line(reply.failed or reply.text or "it declared a failure")
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=detail, reply=reply)
    if not reply.text.strip() and Warn.EMPTY_REPLY not in reply.warnings:
        reply = replace(reply, warnings=(*reply.warnings, Warn.EMPTY_REPLY.value))
    return TurnResult(outcome=Outcome.COMPLETED, reply=reply)


def _raised(call: _Call, error: BaseException) -> TurnResult:
    words = one_line(str(error))
    reply = checked_reply(call.so_far())
    if isinstance(error, NotFound):
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.NOT_FOUND, detail=words)
    if isinstance(error, OutcomeUnknown):
        return TurnResult(
            outcome=Outcome.INTERRUPTED, reason=Reason.OUTCOME_UNKNOWN, detail=words, reply=reply
        )
    # After the first output it has begun, whatever it says, and is not run again for that.
    never = next((r for kind, r in _NEVER_STARTED.items() if isinstance(error, kind)), None)
    if never is not None and not call.spoke:
        return TurnResult(outcome=None, reason=never, detail=words)
    if not isinstance(error, TurnFailed) or not words:
        name = type(error).__name__
        words = one_line(f"{name}: {words}" if words else name)
    reason = _REASONS.get(type(error), Reason.AGENT)
    return TurnResult(outcome=Outcome.FAILED, reason=reason, detail=words, reply=reply)


# What a function raises to say how its turn ended; where it was raised tells nothing more.
_WORDS = (
    AgentUnavailable,
    BadOutput,
    NotFound,
    OutcomeUnknown,
    SessionBusy,
    SessionChanged,
    SessionLost,
    TurnFailed,
)
_NEVER_STARTED: dict[type[BaseException], Reason] = {
    SessionBusy: Reason.BUSY,
    AgentUnavailable: Reason.NOT_STARTED,
    SessionLost: Reason.SESSION_LOST,
}
# What an agent of our own can say more exactly than by `TurnFailed`.
_REASONS: dict[type[BaseException], Reason] = {
    BadOutput: Reason.BAD_OUTPUT,
    SessionChanged: Reason.SESSION_CHANGED,
}


def checked_reply(reply: Reply) -> Reply:
    """Return what a Python agent answered with only what has its type and fits into a record."""
    text, cut = bounded(reply.text if isinstance(reply.text, str) else str(reply.text))
    warnings = tuple(one_line(str(word)) for word in tuple(reply.warnings)[:_MOST_WARNINGS])
    if cut and Warn.TRUNCATED not in warnings:
        warnings += (Warn.TRUNCATED.value,)
    return Reply(
        text=text,
        native_session=check_native_session(reply.native_session),
        usage=reply.usage if isinstance(reply.usage, Usage) else None,
        failed=None if reply.failed is None else str(reply.failed),
        warnings=warnings,
    )
