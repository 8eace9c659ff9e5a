"""An agent that sets its own alarm and is called again in the same conversation.

It starts something that takes a while, ends its turn, and asks to be woken. Here the shortest
wait is set to one second, so that the example is over soon; by default it is a minute.
"""

import asyncio
import tempfile
from datetime import timedelta

from routines import Bounds, Engine, Limits, Reply, Routine, Turn


class Deployer:
    """Starts a deploy, then looks at it each time it is woken, until it is done."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.looks = 0
        self.done = asyncio.Event()

    async def run(self, turn: Turn) -> Reply:
        assert self.engine is not None
        tools = self.engine.tools(turn.session)
        if turn.trigger == "wake-up":
            self.looks += 1
            print(f"woken: {turn.prompt.splitlines()[0]}")
            if self.looks == 2:
                self.done.set()
                return Reply(text="The deploy is through.")
        answer = await asyncio.to_thread(
            tools.wake, f"Look at the deploy again, look {self.looks + 1}.", in_="2s"
        )
        print(answer.splitlines()[0])
        return Reply(text="Started; I look again soon.")


async def main() -> None:
    agent = Deployer()
    limits = Limits(wakeups=Bounds(ahead=timedelta(seconds=1)))
    with tempfile.TemporaryDirectory() as folder:
        routine = Routine(name="deploy", prompt="Deploy, and tell me when it is through.")
        async with Engine(f"{folder}/state", agent=agent, routines=[routine], limits=limits) as engine:
            agent.engine = engine
            await engine.run("deploy")
            await asyncio.wait_for(agent.done.wait(), 60)
            while engine.in_flight:
                await asyncio.sleep(0.05)
            for record in engine.history():
                print(record.trigger, record.outcome, (record.end or {})["reply"])


if __name__ == "__main__":
    asyncio.run(main())
