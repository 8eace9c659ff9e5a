"""`routines mcp` as a process: hostile messages, sizes, ends, two at once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from routines.store.wakeups import WakeupStore
from tests.mcp_server.conftest import PATIENCE_S

SESSION = ("--session", "named:chat")


def test_it_ends_when_its_stdin_is_closed(server):
    one = server()
    began = time.monotonic()

    assert one.close() == 0
    # Within a second, on a machine that is not busy.
    assert time.monotonic() - began < PATIENCE_S / 4
    assert one.process.stdout.read() == b""
    assert one.process.stderr.read() == b""


def test_it_ends_when_its_stdin_is_closed_before_a_word(server):
    one = server(greet=False)

    assert one.close() == 0
    assert one.process.stdout.read() == b""


SLOW = """
import time
from routines.cli.main import main
from routines.operations.waking import ToolDesk
ToolDesk.call = lambda *_: time.sleep(3600)
main(["mcp"])
"""


def test_it_ends_when_its_stdin_is_closed_while_a_call_waits(server):
    one = server(program=("-c", SLOW))
    one.begin("tools/call", {"name": "wakeups", "arguments": {}})

    assert one.close() == 0
    assert one.process.stdout.read() == b""


def test_it_ends_when_there_never_was_a_stdin(ws):
    ended = subprocess.run(
        [sys.executable, "-m", "routines", "mcp"],
        cwd=ws.root,
        env={**ws.environ, "PYTHONPATH": os.getcwd()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    )

    assert (ended.returncode, ended.stdout) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_it_says_what_is_wrong_where_stdin_or_stdout_is_closed(ws, closed):
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m routines mcp {closed}', sys.executable],
        cwd=ws.root,
        env={**ws.environ, "PYTHONPATH": os.getcwd()},
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    )

    assert ended.returncode == 2
    assert ended.stderr == (
        "Error: routines mcp speaks on stdin and stdout, and one of them is closed\n"
        "Hint: an agent program starts it\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once_and_without_a_word(server, number):
    one = server()

    os.kill(one.pid, number)

    assert one.process.wait(PATIENCE_S) == -number
    assert one.process.stderr.read() == b""


def test_it_ends_when_nobody_reads_its_answers(server):
    one = server()
    one.process.stdout.close()

    one.begin("tools/list")

    assert one.process.wait(PATIENCE_S) == 0
    assert one.process.stderr.read() == b""


NOISY = """
import os
from routines.cli.main import main
from routines.operations.waking import ToolDesk
call = ToolDesk.call
def noisy(self, name, arguments):
    print("a word too much", flush=True)
    os.write(1, b"and another")
    return call(self, name, arguments)
ToolDesk.call = noisy
main(["mcp"])
"""


def test_a_word_too_much_goes_to_stderr_and_not_between_the_messages(server):
    one = server(program=("-c", NOISY))

    assert one.text("wakeups") == "Nothing is pending."
    one.close()
    assert one.process.stderr.read() == b"a word too much\nand another"


def test_what_is_no_message_is_passed_over(server):
    one = server()

    for garbage in (b"\n", b"{\n", b"null\n", b"[]\n", b"\xff\xfe\x00\n", b"[" * 100_000 + b"\n"):
        one.send(garbage)
    one.send(b'{"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"a": 1}}\n')
    one.send(b'{"jsonrpc": "2.0", "id": 5000, "result": {}}\n')

    assert len(one.ask("tools/list")["result"]["tools"]) == 3


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 7},
        {"name": "wake", "arguments": "look"},
        {"name": "wake", "arguments": ["look"]},
        {"name": ["wake"], "arguments": {}},
    ],
    ids=range(5),
)
def test_a_call_that_is_none_is_an_error_of_the_protocol(server, params):
    one = server()

    assert one.ask("tools/call", params)["error"]["code"] == -32602
    assert one.text("wakeups") == "Nothing is pending."


def test_a_method_that_is_not_there_is_an_error_of_the_protocol(server):
    assert server().ask("resources/list")["error"]["code"] == -32601


def test_a_message_that_is_too_long_is_answered_and_not_read(ws, server):
    one = server(*SESSION)
    head = b'{"jsonrpc": "2.0", "id": "big", "method": "tools/call", "params": {"name": "wake", '
    one.send(head + b'"arguments": {"in": "10m", "prompt": "' + b"x" * 8_000_000 + b'"}}}\n')

    answer = one.line()

    assert answer["id"] == "big"
    assert "nothing was done" in answer["error"]["message"]
    assert one.text("wakeups").startswith("Nothing is pending")


@pytest.mark.parametrize(
    "prompt", [b'"look \\udcff"', b'"look', b'"\xff"', b"NaN"], ids=["half", "open", "byte", "nan"]
)
def test_a_message_that_is_no_json_is_answered_under_its_id(server, prompt):
    one = server(*SESSION)
    head = b'{"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": {"name": "unwake", '
    one.send(head + b'"arguments": {"id": ' + prompt + b"}}}\n")

    answer = one.line()

    assert answer["id"] == 900
    assert "error" in answer or answer["result"]["isError"]
    assert one.text("wakeups").startswith("Nothing is pending")


def test_a_message_that_is_too_long_and_says_no_id_is_passed_over(server):
    one = server()
    one.send(b"x" * 8_000_000 + b"\n")

    assert len(one.ask("tools/list")["result"]["tools"]) == 3


def test_the_longest_prompt_is_taken_byte_for_byte(ws, server):
    prompt = ('ü\n\u2028\x07"\\' * 8192)[: 32 * 1024]
    while len(prompt.encode()) > 32 * 1024:
        prompt = prompt[:-1]

    server(*SESSION).call("wake", {"prompt": prompt, "in": "10m"})

    assert [one.prompt for one in WakeupStore(ws.state).pending("named:chat")] == [prompt]


def test_many_calls_at_once_are_each_answered_and_the_bound_holds(ws, server):
    one = server(*SESSION)
    ids = [
        one.begin(
            "tools/call", {"name": "wake", "arguments": {"prompt": f"{n}", "in": f"{n + 5}m"}}
        )
        for n in range(40)
    ]

    answers = {answer["id"]: answer["result"]["isError"] for answer in (one.line() for _ in ids)}

    assert set(answers) == set(ids)
    assert list(answers.values()).count(False) == 20
    assert len(WakeupStore(ws.state).pending("named:chat")) == 20


def test_two_servers_of_one_session_pass_no_bound_together(ws, server):
    both = [server(*SESSION), server(*SESSION)]
    for n in range(15):
        for who, one in enumerate(both):
            arguments = {"prompt": f"{who}.{n}", "in": f"{n + 5}m"}
            one.begin("tools/call", {"name": "wake", "arguments": arguments})

    answers = [one.line()["result"]["isError"] for one in both for _ in range(15)]

    assert answers.count(False) == 20
    assert len(WakeupStore(ws.state).pending("named:chat")) == 20


def test_a_server_that_is_killed_leaves_what_it_answered_and_nothing_half(ws, server):
    one = server(*SESSION)
    answered = set()
    for n in range(10):
        answer = one.call("wake", {"prompt": f"{n}", "in": f"{n + 5}m"})
        answered.add(answer["structuredContent"]["id"])
    for n in range(10, 15):
        one.begin(
            "tools/call", {"name": "wake", "arguments": {"prompt": f"{n}", "in": f"{n + 5}m"}}
        )
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait(PATIENCE_S)

    there = {wakeup.id for wakeup in WakeupStore(ws.state).pending("named:chat")}

    assert answered <= there
    assert len(there) <= 15
    assert server(*SESSION).text("wakeups").startswith(f"{len(there)} of 20 pending here")


def test_without_the_extra_it_says_how_to_get_it(ws, tmp_path):
    (tmp_path / "blocked" / "mcp").mkdir(parents=True)
    (tmp_path / "blocked" / "mcp" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n"
    )
    path = os.pathsep.join([str(tmp_path / "blocked"), os.getcwd()])
    ended = subprocess.run(
        [sys.executable, "-m", "routines", "mcp"],
        cwd=ws.root,
        env={**ws.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "needs mcp 2, which is not installed" in ended.stderr
    assert "pip install 'agent-routines[mcp]'" in ended.stderr


def test_the_sdks_own_client_understands_it(ws):
    import asyncio

    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def play():
        environ = {**ws.environ, "PYTHONPATH": os.getcwd()}
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "routines", "mcp", *SESSION],
            env=environ,
            cwd=str(ws.root),
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = await session.list_tools()
            answer = await session.call_tool("wake", {"prompt": "look", "in": "30s"})
            return [tool.name for tool in listed.tools], answer.is_error

    assert asyncio.run(play()) == (["wake", "unwake", "wakeups"], True)


def test_the_server_of_a_broken_workspace_starts_and_works_all_the_same(ws, server):
    ws.settings("tz: Nowhere/Land\nagent: echo\n")

    answer = server(*SESSION).call("wake", {"prompt": "look", "in": "10m"})

    assert json.loads(json.dumps(answer))["isError"] is False
