"""Handing a reply or an alert to its targets: bounded in time, and every end of it a value.

Nothing here raises, nothing outlives a stop, and nothing is done in this very process that could
hang: each target is a program of its own, ended with all that it started when its time is up.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from routines.agents.output import Capture
from routines.agents.programs import run_program
from routines.agents.starting import CannotStart
from routines.agents.surroundings import without_surroundings
from routines.domain.clock import Clock
from routines.domain.delivery_time import HUNG, LONGEST
from routines.domain.outcome import one_line
from routines.domain.targets import Target, TargetKind

# A notification takes a second and a mail a few; what takes longer hangs.
EACH = timedelta(seconds=30)
# Between TERM and KILL: it was told to end, and is owed no long goodbye.
_GRACE = timedelta(seconds=2)
# What fits a notification; longer ones are cut by every desktop anyway.
_LONGEST_BODY = 300
_LONGEST_TITLE = 100
_LONGEST_WHY = 200
# As for turn processes: the package may have been found by a relative path.
_PACKAGE_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SENDING = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from routines.engine.sending import main; sys.exit(main())"
)
# The text is an argument of the script and never a part of it.
_OSASCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is handed over.

    Attributes:
        title: One line.
        body: The text.
        name: What its file is called in a folder.
        word: `reply`, `alert` or `recovery`; commands find it in `ROUTINES_DELIVERY`.
    """

    title: str
    body: str
    name: str
    word: str = "reply"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one target.

    Attributes:
        to: The target, as `Target.label`.
        ok: Whether the text was handed over.
        detail: Why not.
    """

    to: str
    ok: bool
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in a record."""
        return {"to": self.to, "ok": self.ok, "detail": self.detail}


def deliver(
    targets: Sequence[Target],
    message: Message,
    *,
    env: Mapping[str, str],
    cwd: str,
    clock: Clock,
    stop_requested: Callable[[], str | None] = lambda: None,
    each: timedelta = EACH,
    together: timedelta = LONGEST,
) -> tuple[Delivered, ...]:
    """Hand *message* to each of *targets*, one after the other; return what became of each.

    Args:
        targets: Where it goes.
        message: What.
        env: The environment of the programs that do it.
        cwd: The folder that they run in.
        clock: Its time awake counts.
        stop_requested: As in `run_program`; a word ends the one under way and the rest are not
            begun.
        each: The longest that one may take.
        together: The longest that all may take.
    """
    until = clock.awake() + together.total_seconds()
    env = {**env, "ROUTINES_DELIVERY": message.word, "ROUTINES_TITLE": message.title}
    results = []
    for index, target in enumerate(targets):
        left = until - clock.awake()
        # A fair share: one that hangs must not take the time of all that come after it.
        limit = min(each.total_seconds(), left / (len(targets) - index))
        if stop_requested() is not None:
            why = "not begun: the scheduler stops"
        elif limit <= 0:
            why = "not begun: the others took all the time"
        else:
            why = _one(target, message, env, cwd, clock, stop_requested, timedelta(seconds=limit))
        results.append(Delivered(target.label, not why, one_line(why, most=_LONGEST_WHY)))
    return tuple(results)


def _one(
    target: Target,
    message: Message,
    env: Mapping[str, str],
    cwd: str,
    clock: Clock,
    stop_requested: Callable[[], str | None],
    limit: timedelta,
) -> str:
    """Return why *message* could not be handed to *target*; empty if it was."""
    words, stdin = _program(target, message)
    out, err = Capture(), Capture()
    try:
        ended = run_program(
            words,
            stdin=stdin,
            cwd=cwd,
            env=env,
            out=out.feed,
            err=err.feed,
            clock=clock,
            timeout=limit,
            stop_requested=stop_requested,
            grace=_GRACE,
        )
    except CannotStart as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong here, the turn has completed
        return f"{type(error).__name__}: {error}"
    finally:
        out.close()
        err.close()
    if ended.why == "timeout":
        return f"{HUNG}{limit.total_seconds():.3g} s"
    if ended.why is not None:
        return "ended: the scheduler stops"
    if ended.code == 0:
        return ""
    said = err.last_line() or out.last_line()
    how = f"exit {ended.code}" if ended.code is not None else f"signal {ended.signal}"
    return f"{how}: {said}" if said else how


def _program(target: Target, message: Message) -> tuple[Sequence[str], bytes | None]:
    """Return the words of the program that hands *message* over, and what it reads."""
    match target.kind:
        case TargetKind.COMMAND:
            return target.words, message.body.encode("utf-8", "backslashreplace")
        case TargetKind.DESKTOP:
            return desktop_words(message), None
        case TargetKind.FILE | TargetKind.URL | TargetKind.PING:
            task = {
                "kind": target.kind.value,
                "where": target.where,
                "title": one_line(message.title),
                "body": message.body,
                "name": message.name,
            }
            words = (sys.executable, "-c", _SENDING, _PACKAGE_HOME)
            return words, json.dumps(task).encode("ascii")


def desktop_words(message: Message, *, platform: str = sys.platform) -> Sequence[str]:
    """Return the words that show *message* on the desktop."""
    title = one_line(message.title, most=_LONGEST_TITLE)
    body = one_line(message.body, most=_LONGEST_BODY)
    if platform == "darwin":
        script = [word for line in _OSASCRIPT for word in ("-e", line)]
        return ["osascript", *script, "--", title, body]
    # Desktops read markup in the body, and would show a `<` as the begin of a tag.
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        body = body.replace(sign, entity)
    return ["notify-send", "--app-name=routines", "--", title, body]


def desktop_program(platform: str = sys.platform) -> str:
    """Return the program that `desktop` needs."""
    return "osascript" if platform == "darwin" else "notify-send"


def plain_environment(base: Mapping[str, str], *, root: str) -> dict[str, str]:
    """Return the environment of deliveries that belong to no turn."""
    return {**without_surroundings(base), "ROUTINES_ROOT": root}
