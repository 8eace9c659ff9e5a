"""An agent that brings its own scheduler: the engine runs inside its process.

    python examples/embedded/agent.py            # until ^C
    python examples/embedded/agent.py --once     # one turn by hand, then its history
"""

import asyncio
import sys
import tempfile
from datetime import timedelta

from routines import Engine, Reply, Routine, Turn, schedule


class Parrot:
    """Keeps each conversation in memory, and answers by it. Yours calls a model here."""

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = {}

    async def run(self, turn: Turn) -> Reply:
        heard = self.heard.setdefault(turn.session, [])
        heard.append(turn.prompt)
        return Reply(text=f"{len(heard)} of {turn.session}: {turn.prompt}")


async def main(*, once: bool) -> None:
    digest = Routine(
        name="digest",
        prompt="What was merged?",
        schedule=schedule.every(timedelta(minutes=1), tz="UTC"),
    )
    with tempfile.TemporaryDirectory() as folder:
        async with Engine(f"{folder}/state", agent=Parrot(), routines=[digest]) as engine:
            record = await engine.run("digest")
            print(record.ref, record.outcome, (record.end or {})["reply"])
            # A chat of the host's own in the same conversation: no turn comes in between.
            async with engine.hold("routine:digest", who="a person is talking"):
                print("held; next slot", engine.next_due())
            while not once:
                await asyncio.sleep(1)
            for record in engine.history("digest"):
                print(record.trigger, record.outcome)


if __name__ == "__main__":
    asyncio.run(main(once="--once" in sys.argv))
