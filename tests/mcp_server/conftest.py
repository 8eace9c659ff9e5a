"""A workspace, and servers of it: real processes that are spoken to in plain JSON-RPC."""

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.conftest import pytest_pyfunc_call
from tests.surfaces.conftest import ws

pytest.importorskip("mcp", reason="the extra mcp is not installed")

__all__ = ["pytest_pyfunc_call", "server", "ws"]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# A machine under load takes seconds to start an interpreter; what hangs is found all the same.
PATIENCE_S = 60


class Server:
    """`routines mcp` as an agent program starts it."""

    def __init__(self, process):
        self.process = process
        self._asked = 0
        self._lines = b""

    @property
    def pid(self):
        return self.process.pid

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self):
        """One line of its stdout; nothing but messages may be there."""
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
            assert ready, "no answer"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"it has ended: {self.process.stderr.read().decode()}"
            self._lines += data
        line, self._lines = self._lines.split(b"\n", 1)
        return json.loads(line)

    def begin(self, method, params=None):
        self._asked += 1
        message = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params or {}}
        self.send(json.dumps(message).encode() + b"\n")
        return self._asked

    def ask(self, method, params=None):
        asked = self.begin(method, params)
        answer = self.line()
        assert answer["id"] == asked
        return answer

    def greet(self):
        client = {"name": "test", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        answer = self.ask("initialize", hello)["result"]
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer

    def call(self, name, arguments=None):
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}})["result"]

    def text(self, name, arguments=None):
        (part,) = self.call(name, arguments)["content"]
        return part["text"]

    def close(self):
        """Close its stdin and return its exit code."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def server(ws):
    """Starts servers; each is ended with the test."""
    with contextlib.ExitStack() as stack:

        def start(*words, cwd=None, greet=True, program=("-m", "routines", "mcp"), **variables):
            environ = {**ws.environ, "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
            process = subprocess.Popen(
                [sys.executable, *program, *words],
                cwd=cwd or ws.root,
                env=environ | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            stack.callback(_end, process)
            made = Server(process)
            if greet:
                made.greet()
            return made

        yield start


def _end(process):
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            pipe.close()
