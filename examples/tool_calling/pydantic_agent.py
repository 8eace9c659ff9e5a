"""An agent that can set alarms, with pydantic-ai; the conversation is a file for each session."""

import os
import sys
from pathlib import Path
from urllib.parse import quote

from pydantic_ai import Agent, ModelMessagesTypeAdapter

import routines

MODEL = os.environ.get("MODEL", "openai-chat:gpt-5")
SESSION = os.environ["ROUTINES_SESSION"]


def main() -> None:
    # Bound to the session of this turn: what it sets is fired back into this conversation.
    tools = routines.tools()
    agent = Agent(MODEL, instructions="You look after deploys.", tools=list(tools.functions))
    memory = Path("conversations", f"pydantic-{quote(SESSION, safe='')}.json")
    before = ModelMessagesTypeAdapter.validate_json(memory.read_bytes()) if memory.exists() else []
    result = agent.run_sync(sys.stdin.read(), message_history=before)
    memory.parent.mkdir(exist_ok=True)
    memory.write_bytes(result.all_messages_json())
    print(result.output)


if __name__ == "__main__":
    main()
