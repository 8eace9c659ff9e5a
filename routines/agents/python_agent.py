"""Running an agent that is a Python function, `module:function`, inside a turn process.

The function has a thread of its own, and this one watches it. A function that blocks can't be
ended from outside, and on the main thread it would also keep us from writing down that its time
is over; the process ends when that is written, and takes the thread with it.
"""

import importlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from routines.agents.base import (
    AgentUnavailable,
    OutcomeUnknown,
    Reply,
    SessionBusy,
    Turn,
    TurnFailed,
    TurnResult,
    Usage,
)
from routines.agents.command import STOP_WORDS
from routines.agents.output import Capture, bounded
from routines.agents.processes import STOP_INTERVAL_S, Tree, end_tree, own_children
from routines.agents.reading import check_native_session
from routines.domain.agent import AgentSpec
from routines.domain.clock import Clock
from routines.domain.durations import format_span
from routines.domain.outcome import Outcome, Reason, Warn, one_line

if TYPE_CHECKING:
    import asyncio

# How often a cancel or a stop is looked for (L17 asks for a second).
_LOOK_EVERY_S = 0.5
_TIMEOUT = "timeout"
# More warnings than the closed list has words can only be a mistake of the function's.
_MOST_WARNINGS = 10


class _NotFound(Exception):
    """There is no such module or function."""


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


def run_python(
    spec: AgentSpec,
    turn: Turn,
    *,
    cwd: str,
    clock: Clock,
    timeout: timedelta,
    env: Mapping[str, str] | None = None,
    stop_requested: Callable[[], str | None] = lambda: None,
    grace: timedelta = timedelta(seconds=STOP_INTERVAL_S),
) -> TurnResult:
    """Give *turn* to the function of *spec* and return how it ended.

    The function takes the turn and answers a `Reply`, a text or None; or it is an (async)
    generator of texts that may end in a `Reply`. It changes this process: its working directory,
    `sys.path` and, if given, its environment. A plain function that is still at work at the limit
    is left behind in its thread, so the process must end by `os._exit` once all is written.

    Args:
        spec: The agent; `spec.python` names the function.
        turn: What it is given.
        cwd: Where it runs; first on `sys.path`, as for `python -m`.
        clock: Counts *timeout*.
        timeout: How long it may take, awake.
        env: Its whole environment; None leaves this process's.
        stop_requested: Asked twice a second; a word of `command.STOP_WORDS` ends the turn.
        grace: What a cancelled coroutine, and then each signal to processes that it started,
            gets to end.
    """
    spare = own_children()
    try:
        _enter(cwd, env)
    except OSError as error:
        return TurnResult(
            outcome=Outcome.FAILED,
            reason=Reason.NOT_FOUND,
            detail=one_line(f"working directory not found: {cwd} ({error.strerror})"),
        )
    call = _Call()
    limit = clock.awake() + timeout.total_seconds()
    # A daemon: one that hangs must not keep the process from ending.
    thread = threading.Thread(
        target=_work, args=(call, spec.python or "", turn), name="agent", daemon=True
    )
    thread.start()
    why = _watch(call, clock, limit, stop_requested)
    hangs = False
    if why is not None:
        call.cancel()
        hangs = not call.done.wait(grace.total_seconds())
    if not hangs:
        thread.join()
    env = os.environ
    tree = Tree(
        state=env.get("ROUTINES_STATE", ""), turn_key=env.get("ROUTINES_TURN", ""), spare=spare
    )
    remain = end_tree(tree, stop=spec.stop, clock=clock, interval=grace.total_seconds())
    result = _judge(call, why, timeout)
    notes = [result.detail] if result.detail else []
    if hangs:
        notes.append("it did not stop when it was told to")
    if remain:
        notes.append(f"could not be ended: {', '.join(str(pid) for pid in remain)}")
    return replace(result, detail=one_line("; ".join(notes)))


def _enter(cwd: str, env: Mapping[str, str] | None) -> None:
    os.chdir(cwd)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if sys.path[:1] != [cwd]:
        sys.path.insert(0, cwd)


def _watch(
    call: _Call, clock: Clock, limit: float, stop_requested: Callable[[], str | None]
) -> str | None:
    """Wait for the call's end; return why it is to be ended by us, None if it ended."""
    while not call.done.is_set():
        now = clock.awake()
        why = _TIMEOUT if now >= limit else stop_requested()
        if why is not None:
            # It may have ended while we asked; then it is judged by how it did.
            return None if call.done.is_set() else why
        call.done.wait(min(limit - now, _LOOK_EVERY_S))
    return None


# In the function's thread -----------------------------------------------------------------------


def _work(call: _Call, name: str, turn: Turn) -> None:
    try:
        call.reply = _answer(call, _find(name)(turn))
    except BaseException as error:  # noqa: BLE001 - whatever it raises is how the turn ended
        call.error = error
    finally:
        call.done.set()


def _find(name: str) -> Callable[[Turn], Any]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise _NotFound(f"{name!r} is not module:function")
    # What was written into the folder a moment ago may be missing in the finder's cache.
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # One that the module itself imports is the module's failure, not its absence.
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise _NotFound(f"no module named {missing}, looked for in {sys.path[0]}") from error
        raise
    for word in attribute.split("."):
        found = getattr(found, word, None)
    if not callable(found):
        raise _NotFound(f"module {module_name} has no function {attribute}")
    function: Callable[[Turn], Any] = found
    return function


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
    """

    def __init__(self) -> None:
        self.spoke = False
        self._texts = Capture()
        self._final: Reply | None = None

    def add(self, item: Any) -> None:
        """Take what was yielded next."""
        if isinstance(item, Reply):
            self._final = item
        elif isinstance(item, str):
            self._texts.feed(item.encode("utf-8", "replace"))
        elif item is not None:
            raise TurnFailed(f"it yielded {type(item).__name__}, and str or Reply is expected")
        self.spoke = self.spoke or bool(item)

    def reply(self) -> Reply:
        """Return the reply as far as it has come."""
        cut = (Warn.TRUNCATED.value,) if self._texts.dropped else ()
        if self._final is None:
            return Reply(text=self._texts.text(), warnings=cut)
        if self._final.text:
            return self._final
        return replace(self._final, text=self._texts.text(), warnings=(*self._final.warnings, *cut))


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
        return _ended_by_us(call, why, timeout)
    if call.error is not None:
        return _raised(call, call.error)
    reply = _checked(call.so_far())
    if reply.failed is not None:
        detail = one_line(reply.failed or reply.text or "it declared a failure")
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=detail, reply=reply)
    if not reply.text.strip() and Warn.EMPTY_REPLY not in reply.warnings:
        reply = replace(reply, warnings=(*reply.warnings, Warn.EMPTY_REPLY.value))
    return TurnResult(outcome=Outcome.COMPLETED, reply=reply)


def _ended_by_us(call: _Call, why: str, timeout: timedelta) -> TurnResult:
    reply = _checked(call.so_far())
    if why == _TIMEOUT:
        detail = f"ended at its limit of {format_span(timeout)}"
        return TurnResult(
            outcome=Outcome.TIMED_OUT, reason=Reason.TIMEOUT, detail=detail, reply=reply
        )
    outcome, reason = STOP_WORDS.get(why, STOP_WORDS["stop"])
    return TurnResult(outcome=outcome, reason=reason, detail="ended on request", reply=reply)


def _raised(call: _Call, error: BaseException) -> TurnResult:
    words = one_line(str(error))
    reply = _checked(call.so_far())
    if isinstance(error, _NotFound):
        return TurnResult(outcome=Outcome.FAILED, reason=Reason.NOT_FOUND, detail=words)
    if isinstance(error, OutcomeUnknown):
        return TurnResult(
            outcome=Outcome.INTERRUPTED, reason=Reason.OUTCOME_UNKNOWN, detail=words, reply=reply
        )
    # After the first output it has begun, whatever it says, and is not run again for that.
    if isinstance(error, SessionBusy) and not call.spoke:
        return TurnResult(outcome=None, reason=Reason.BUSY, detail=words)
    if isinstance(error, AgentUnavailable) and not call.spoke:
        return TurnResult(outcome=None, reason=Reason.NOT_STARTED, detail=words)
    if not isinstance(error, TurnFailed) or not words:
        name = type(error).__name__
        words = one_line(f"{name}: {words}" if words else name)
    return TurnResult(outcome=Outcome.FAILED, reason=Reason.AGENT, detail=words, reply=reply)


def _checked(reply: Reply) -> Reply:
    """Return *reply* with only what has its type and fits into a record."""
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
