"""An agent of your own that can set alarms, with nothing but Anthropic's client.

The loop is all there is to it: ask the model, do what it calls, tell it, until it says no more.
The conversation is a file for each session, as the model itself remembers nothing.
"""

import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

import anthropic

import routines

MODEL = os.environ.get("MODEL", "claude-opus-5-5")
SESSION = os.environ["ROUTINES_SESSION"]


def main() -> None:
    # Bound to the session of this turn: what it sets is fired back into this conversation.
    tools = routines.tools()
    client = anthropic.Anthropic()
    memory = Path("conversations", f"anthropic-{quote(SESSION, safe='')}.json")
    messages = json.loads(memory.read_text()) if memory.exists() else []
    messages.append({"role": "user", "content": sys.stdin.read()})
    while True:
        reply = client.messages.create(
            model=MODEL, max_tokens=4096, messages=messages, tools=tools.anthropic()
        )
        parts = [part.model_dump(exclude_none=True) for part in reply.content]
        messages.append({"role": "assistant", "content": parts})
        results = []
        for part in reply.content:
            if part.type == "tool_use":
                # Whatever the model wrote: this answers, and raises nothing.
                answer = tools.call(part.name, part.input)
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": part.id,
                        "content": answer.text,
                        "is_error": answer.refused,
                    }
                )
        if not results:
            break
        messages.append({"role": "user", "content": results})
    memory.parent.mkdir(exist_ok=True)
    memory.write_text(json.dumps(messages))
    print("".join(part.text for part in reply.content if part.type == "text"))


if __name__ == "__main__":
    main()
