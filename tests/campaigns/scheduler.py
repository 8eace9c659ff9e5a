"""A scheduler with routines that are due every few seconds, which no file may ask for.

    python -m tests.campaigns.scheduler STATE --routines 20 --each 1 --agent 'sh words'

It is `routines start` with another source of routines: the same engine, the same signals.
"""

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from routines.domain.agent import AgentKind, AgentSpec
from routines.domain.routine import CatchUpPolicy, OverlapPolicy, Routine
from routines.engine.engine import Engine
from routines.engine.lifecycle import Limits
from routines.operations.log_lines import log_to
from routines.operations.running import serve
from routines.store import files


@dataclass(frozen=True)
class Each:
    """A slot every so many seconds: files allow a minute at the least."""

    seconds: int = 1
    zone_key: str = "UTC"

    def next_after(self, instant):
        at = int(instant.timestamp()) // self.seconds * self.seconds + self.seconds
        return datetime.fromtimestamp(at, UTC)

    def newest_at_or_before(self, instant):
        at = int(instant.timestamp()) // self.seconds * self.seconds
        return datetime.fromtimestamp(at, UTC)

    def names(self, instant):
        return instant.timestamp() % self.seconds == 0

    def spec(self):
        return {"each": self.seconds, "tz": self.zone_key}

    def text(self):
        return f"each {self.seconds}s"


def routines_of(
    count,
    seconds,
    *,
    session="stable",
    overlap=None,
    catch_up=CatchUpPolicy.ONE,
    timeout=timedelta(hours=1),
):
    return [
        Routine(
            name=f"r{number:02d}",
            prompt="say hello",
            agent="stub",
            schedule=Each(seconds),
            session=session,
            overlap=overlap or (OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE)[number % 2],
            catch_up=catch_up,
            timeout=timeout,
        )
        for number in range(count)
    ]


def stub(words):
    """Return a command agent."""
    return {"stub": AgentSpec(name="stub", kind=AgentKind.COMMAND, command=tuple(words))}


def engine_of(state, *, routines, words, concurrency=8, is_scheduler=True):
    return Engine(
        state,
        routines=routines,
        agents=stub(words),
        limits=Limits(concurrency=concurrency),
        is_scheduler=is_scheduler,
    )


class StopAt:
    """File calls that stop this whole process at one step of a claim: SIGSTOP, once.

    Steps are counted from the draft of the first claim; 0 is before the draft is made.
    """

    def __init__(self, step):
        self._left = step
        self._counting = False

    def __getattr__(self, name):
        real = getattr(files.Calls, name)

        def call(*args, **keys):
            if name == "open" and "/open/r" in str(args[0]):
                self._counting = True
            if self._counting:
                self._left -= 1
                if self._left == -1:
                    os.kill(os.getpid(), signal.SIGSTOP)
            return real(*args, **keys)

        return call


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("state")
    parser.add_argument("--routines", type=int, default=1)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--session", default="stable")
    parser.add_argument("--overlap")
    parser.add_argument("--catch-up", default="one")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("--stop-at", type=int, help="stop at that step of the first claim")
    parser.add_argument("agent", nargs="+")
    asked = parser.parse_args(argv)
    if asked.stop_at is not None:
        files.calls = StopAt(asked.stop_at)
    log_to(sys.stderr, "text")
    engine = engine_of(
        asked.state,
        routines=routines_of(
            asked.routines,
            asked.each,
            session=asked.session,
            overlap=asked.overlap and OverlapPolicy(asked.overlap),
            catch_up=CatchUpPolicy(asked.catch_up),
        ),
        words=asked.agent,
        concurrency=asked.concurrency,
    )
    return asyncio.run(serve(engine, grace=timedelta(seconds=asked.grace), leave_turns=False))


if __name__ == "__main__":
    sys.exit(main())
