"""An agent that can set alarms, with the OpenAI agents SDK, which keeps the conversation itself."""

import os
import sys

from agents import Agent, Runner, SQLiteSession, function_tool

import routines

MODEL = os.environ.get("MODEL", "gpt-5")


def main() -> None:
    # Bound to the session of this turn: what it sets is fired back into this conversation.
    tools = routines.tools()
    agent = Agent(
        name="deployer",
        instructions="You look after deploys.",
        model=MODEL,
        tools=[function_tool(one) for one in tools.functions],
    )
    memory = SQLiteSession(os.environ["ROUTINES_SESSION"], "conversations.sqlite")
    print(Runner.run_sync(agent, sys.stdin.read(), session=memory).final_output)


if __name__ == "__main__":
    main()
