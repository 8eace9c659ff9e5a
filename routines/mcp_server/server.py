"""The server itself, by the official SDK: three tools, their calls and answers on stdio."""

import json
import os
import re
import signal
import sys
import threading
from typing import Any, BinaryIO, cast

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from routines.domain.wake_calls import LARGEST_ARGUMENTS
from routines.domain.wake_texts import Tool
from routines.operations.waking import ToolAnswer, ToolDesk
from routines.version import VERSION

NAME = "routines"
# A call with the largest arguments, and what the protocol puts around them.
_LONGEST_LINE = LARGEST_ARGUMENTS + 64 * 1024
# An agent that has closed our stdin waits for us before it ends, and its turn with it.
_AFTER_THE_END_S = 0.5
# Where the id of a message stands that can't be read whole.
_HEAD = 4096
_ID = re.compile(rb'"id"\s*:\s*([0-9]{1,15}|"[^"\\]{1,100}")')
_UNREADABLE = "routines/unreadable"
_FOR_PROGRAMS = ("id", "session", "next_at", "already", "how", "stopped", "count", "code")


def run(desk: ToolDesk) -> int:
    """Answer calls until stdin is closed.

    It ends with this process: a thread that reads stdin can't be called back, and a scheduler that
    ends a turn, or an agent that ends its servers, waits for nobody. What a signal cuts off is on
    the disk or is not (PROMISES D5): nothing here is to be put in order first.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # A word too much on stdout would break the protocol: what is printed goes to stderr from here.
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(2, sys.stdout.fileno())
    lines, answers = _Lines(sys.stdin.buffer), _Answers(wire)
    anyio.run(_serve, desk, lines, answers)
    sys.stderr.flush()
    os._exit(0)


async def _serve(desk: ToolDesk, lines: "_Lines", answers: "_Answers") -> None:
    server = make_server(desk)
    # Both only have what the transport uses of a text file.
    stdin = cast("anyio.AsyncFile[str]", anyio.wrap_file(cast("Any", lines)))
    stdout = cast("anyio.AsyncFile[str]", anyio.wrap_file(cast("Any", answers)))
    async with stdio_server(stdin, stdout) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def make_server(desk: ToolDesk) -> Server[Any]:
    """Return a server that offers the tools of *desk*."""
    # The answers wait for the disk, one after the other: an agent's calls are few, and their
    # order is the one that it meant.
    one_by_one = anyio.CapacityLimiter(1)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        offered = await to_thread.run_sync(desk.offered, limiter=one_by_one)
        return types.ListToolsResult(tools=[_tool(one) for one in offered])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await to_thread.run_sync(
            desk.call, params.name, params.arguments, limiter=one_by_one
        )
        return _result(answer)

    async def unreadable(_context: Any, _params: types.RequestParams) -> types.EmptyResult:
        message = f"not read: no valid JSON, or more than {_LONGEST_LINE} bytes; nothing was done"
        raise MCPError(types.INVALID_REQUEST, message)

    server: Server[Any] = Server(
        NAME,
        version=VERSION,
        title="routines: alarms for agents",
        instructions=desk.instructions(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler(_UNREADABLE, types.RequestParams, unreadable)
    return server


def _tool(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema(),
        annotations=types.ToolAnnotations.model_validate(tool.annotations()),
    )


def _result(answer: ToolAnswer) -> types.CallToolResult:
    # Claude Code and Codex show their model this instead of the text, so the text is in it; of the
    # rest, what a program that reads it acts upon.
    data = {key: answer.data[key] for key in _FOR_PROGRAMS if key in answer.data}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.text)],
        structured_content={"answer": answer.text, **data},
        is_error=answer.refused,
    )


class _Lines:
    """Reads messages; one that can't be read is answered, so that its sender does not wait."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> str:
        """Return the next message; the empty text at the end."""
        line = self._stream.readline(_LONGEST_LINE + 1)
        if not line:
            # A call that waits for a lock has nobody left to answer: it ends with us.
            last = threading.Timer(_AFTER_THE_END_S, os._exit, [0])
            last.daemon = True
            last.start()
        whole = line
        while len(whole) > _LONGEST_LINE and not whole.endswith(b"\n"):
            whole = self._stream.readline(_LONGEST_LINE + 1)
        if whole is line and (not line or _is_message(line)):
            return line.decode()
        found = _ID.search(line[:_HEAD].partition(b'"params"')[0])
        if found is None:
            return "\n"
        # Asked in its place, under its id: the SDK would pass it over without a word.
        asked = {"jsonrpc": "2.0", "id": json.loads(found[1]), "method": _UNREADABLE}
        return f"{json.dumps(asked)}\n"


def _is_message(line: bytes) -> bool:
    try:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return False
    return True


class _Answers:
    """Writes messages, and ends this process once nobody reads them."""

    def __init__(self, wire: BinaryIO) -> None:
        self._wire = wire

    def write(self, text: str) -> int:
        """Write one message whole."""
        left = memoryview(text.encode("utf-8", "replace"))
        try:
            while left:
                left = left[self._wire.write(left) :]
        except OSError:
            # The agent has gone. Its answer can't be given, and nothing else will be asked.
            os._exit(0)
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""
