"""A service whose runs outlive every engine, and the agent by which an engine reaches it."""

import asyncio
from collections import deque
from dataclasses import dataclass

from routines.agents.base import Reply, RunState


@dataclass
class Run:
    id: str
    key: str
    prompt: str
    word: str = "active"
    reply: str = ""
    detail: str = ""


class Service:
    """What runs live in: the same key is the same run, whoever asks.

    `starts`, `looks` and `cancels` are what the next calls do, one each: an exception to be raised,
    `hang` (nothing done, no answer), `unheard` (done, no answer), `late` (done, answered once
    `late` is set), or an answer. Without one a call does what it is for.
    """

    def __init__(self, clock):
        self.clock = clock
        self.runs = {}
        self.starts, self.looks, self.cancels = deque(), deque(), deque()
        # What was asked: when, the method, and about what.
        self.asked = []
        self.late = asyncio.Event()
        self.ends_when_cancelled = True

    def note(self, method, about):
        self.asked.append((self.clock.now(), method, about))

    def times(self, method, since):
        """Seconds after *since* at which *method* was called."""
        return [(at - since).total_seconds() for at, name, _ in self.asked if name == method]

    def about(self, method):
        return [about for _, name, about in self.asked if name == method]

    @property
    def run(self):
        (run,) = self.runs.values()
        return run

    def begin(self, turn):
        if turn.key not in self.runs:
            self.runs[turn.key] = Run(f"r-{len(self.runs) + 1}", turn.key, turn.prompt)
        return self.runs[turn.key].id

    def find(self, run_id):
        return next((run for run in self.runs.values() if run.id == run_id), None)

    def end(self, word="completed", reply="done", detail=""):
        for run in self.runs.values():
            if run.word == "active":
                run.word, run.reply, run.detail = word, reply, detail


class DurableRuns:
    """A durable agent over a service; `turns` is for `Stage.crash`."""

    def __init__(self, service):
        self.service = service
        self.turns = set()

    async def start(self, turn):
        self.service.note("start", turn.key)
        mood = await self._mood(self.service.starts)
        if mood == "hang":
            await asyncio.Event().wait()
        run_id = self.service.begin(turn)
        if mood == "unheard":
            await asyncio.Event().wait()
        if mood == "late":
            try:
                await self.service.late.wait()
            except asyncio.CancelledError:
                # Whoever asked has given up, and it works on.
                await self.service.late.wait()
        return mood[1] if isinstance(mood, tuple) else run_id

    async def inspect(self, run_id):
        self.service.note("inspect", run_id)
        mood = await self._mood(self.service.looks)
        if mood == "hang":
            await asyncio.Event().wait()
        if mood is not None:
            return mood
        run = self.service.find(run_id)
        if run is None:
            return RunState("missing")
        return RunState(run.word, Reply(text=run.reply), run.detail)

    async def cancel(self, run_id):
        self.service.note("cancel", run_id)
        mood = await self._mood(self.service.cancels)
        if mood == "hang":
            await asyncio.Event().wait()
        run = self.service.find(run_id)
        if run is not None and run.word == "active" and self.service.ends_when_cancelled:
            run.word = "cancelled"

    async def _mood(self, moods):
        mood = moods.popleft() if moods else None
        if isinstance(mood, Exception):
            raise mood
        return mood
