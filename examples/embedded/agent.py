"""An agent that brings its own scheduler: the engine runs inside its process.

python examples/embedded/agent.py            # a slot each minute, until ^C
python examples/embedded/agent.py --once     # one turn by hand, one of a person, then the history
"""

import asyncio
import sys
import tempfile
from datetime import timedelta

from routines import Engine, EngineEvent, Reply, Routine, Turn, schedule

SESSION = "routine:digest"


class Parrot:
    """Keeps each conversation in memory, and answers by it. Yours calls a model here."""

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = {}

    async def run(self, turn: Turn) -> Reply:
        """Answer a turn of routines: a slot, a run by hand or a wake-up."""
        return Reply(text=self.hear(turn.session, turn.prompt))

    def hear(self, session: str, prompt: str) -> str:
        heard = self.heard.setdefault(session, [])
        heard.append(prompt)
        return f"{len(heard)} of {session}: {prompt}"


def tell(event: EngineEvent) -> None:
    print(event.name, event.ref, event.data.get("outcome") or "")


async def main(*, once: bool) -> None:
    parrot = Parrot()
    digest = Routine(
        name="digest",
        prompt="What was merged?",
        schedule=schedule.every(timedelta(minutes=1), tz="UTC"),
    )
    with tempfile.TemporaryDirectory() as folder:
        # Yours keeps its state: after a restart, what is due is known from the files alone.
        state = f"{folder}/state"
        async with Engine(
            state, agent=parrot, routines=[digest], on_event=None if once else tell
        ) as engine:
            record = await engine.run("digest")
            print(record.trigger, record.outcome, (record.end or {})["reply"])
            # A person talks in the same conversation: no turn of routines comes in between.
            async with engine.hold(SESSION, who="a person is talking"):
                print("chat", parrot.hear(SESSION, "And what waits for me?"))
            if not once:
                await asyncio.Event().wait()
            print([f"{record.trigger} {record.outcome}" for record in engine.history("digest")])


if __name__ == "__main__":
    try:
        asyncio.run(main(once="--once" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(130)
