"""An agent that sets its own alarm and is called again in the same conversation.

It starts something that takes a while, asks to be woken, and ends its turn. Here the shortest wait
is set to a second, so that the example is over soon; by default it is a minute.

python examples/self_waking/agent.py
"""

import asyncio
import tempfile
from datetime import timedelta

from routines import Bounds, Engine, EngineEvent, Limits, Reply, Routine, Turn

LOOKS_UNTIL_DONE = 2


class Deployer:
    """Starts a deploy, then looks at it each time that it is woken, until it is through."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.looks = 0

    async def run(self, turn: Turn) -> Reply:
        if turn.trigger == "wake-up":
            self.looks += 1
            # One line says that this is its own alarm; the prompt follows as it was set.
            print("woken:", turn.prompt.splitlines()[-1])
        if self.looks == LOOKS_UNTIL_DONE:
            return Reply(text="The deploy is through.")
        answer = await self.wake(turn, f"Look at the deploy, for the {self.looks + 1}. time.")
        print(answer.splitlines()[0])
        return Reply(text="Not through yet; I look again soon.")

    async def wake(self, turn: Turn, prompt: str) -> str:
        assert self.engine is not None
        tools = self.engine.tools(turn.session)
        # It writes to the disk: in a thread, so that the loop goes on.
        return await asyncio.to_thread(tools.wake, prompt, in_="1s")


async def main() -> None:
    agent = Deployer()
    through = asyncio.Event()

    def listen(event: EngineEvent) -> None:
        if event.name == "settled" and agent.looks == LOOKS_UNTIL_DONE:
            through.set()

    limits = Limits(wakeups=Bounds(ahead=timedelta(seconds=1)))
    deploy = Routine(name="deploy", prompt="Deploy, and tell me when it is through.")
    with tempfile.TemporaryDirectory() as folder:
        async with Engine(
            f"{folder}/state", agent=agent, routines=[deploy], limits=limits, on_event=listen
        ) as engine:
            agent.engine = engine
            await engine.run("deploy")
            async with asyncio.timeout(60):
                await through.wait()
            for record in reversed(engine.history()):
                print(record.trigger, record.outcome, (record.end or {})["reply"])


if __name__ == "__main__":
    asyncio.run(main())
