"""A turn whose agent is handed the server: it calls `wake`, and the alarm is its session's."""

import pytest

from routines.domain.agent import McpHandover
from routines.store.wakeups import WakeupStore
from tests.engine.test_turn_processes import program, run, stage

__all__ = ["program", "stage"]

TAKES = {"mcp": McpHandover(('{"server": {mcp_command_line}, "env": {mcp_env}}',))}
# What an agent program does with a server: some hand their environment on to it, some do not.
AGENT = """
    import json, subprocess
    given = json.loads(sys.argv[1])
    server = subprocess.Popen(
        given["server"], env=given["env"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=WHERE
    )
    def ask(number, method, **params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())["result"]
    ask(1, "initialize", protocolVersion="2025-06-18", capabilities={},
        clientInfo={"name": "agent", "version": "1"})
    server.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\\n')
    asked = {"prompt": "look again", "in": "10m"}
    print(ask(2, "tools/call", name="wake", arguments=asked)["content"][0]["text"])
"""


def agent_in(folder):
    return AGENT.replace("WHERE", repr(str(folder)))


@pytest.fixture
def foreign(tmp_path):
    """A folder with a package of our name, and modules of names that Python itself has."""
    folder = tmp_path / "project"
    (folder / "routines").mkdir(parents=True)
    for name in ("routines/__init__.py", "routines/__main__.py", "json.py", "click.py"):
        (folder / name).write_text("raise SystemExit('the wrong one')\n")
    return folder


async def test_the_agents_of_a_turn_can_call_wake_with_nothing_to_configure(
    stage, program, foreign
):
    record = await run(stage, program(agent_in(foreign)), spec=TAKES)

    (one,) = WakeupStore(stage.state).pending("routine:digest")
    assert record.outcome == "completed"
    assert record.end["reply"].startswith(f"Set. {one.id} fires ")
    assert one.prompt == "look again"
    assert one.created_in_turn == stage.state.key(record.ref)


async def test_wake_tools_false_hands_nothing_over(stage, program):
    words = program("print(len(sys.argv))")

    record = await run(stage, words, spec=TAKES, wake_tools=False)

    assert record.end["reply"] == "1"
