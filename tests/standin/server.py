"""The server: which dialect, which answer, and a line of the log for each request."""

import itertools
import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.standin import chat, gemini, messages, responses
from tests.standin.script import INPUT_TOKENS, answer

# By the end of the path: programs put versions of their own before it.
_DIALECTS = (
    ("/messages", "messages", messages),
    ("/responses", "responses", responses),
    ("/chat/completions", "chat", chat),
    (":generateContent", "gemini", gemini),
    (":streamGenerateContent", "gemini", gemini),
)
# Models that a list names, since some programs look before they ask.
_MODELS = ("standin",)


class StandIn(ThreadingHTTPServer):
    """The server on a free port of 127.0.0.1 (or on *port*), with its log in the file *log*."""

    daemon_threads = True

    def __init__(self, log, *, port=0, delay=0.0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.log_path = log
        self.delay = delay
        # Off, answers that a prompt has made slow come at once.
        self.waits = True
        self.numbers = itertools.count(1)
        self.stopped = threading.Event()
        self._writing = threading.Lock()
        open(log, "a", encoding="utf-8").close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def requests(self):
        """Return what was asked so far, oldest first."""
        with open(self.log_path, encoding="utf-8") as log:
            return [json.loads(line) for line in log]

    def note(self, record):
        with self._writing, open(self.log_path, "a", encoding="utf-8") as log:
            log.write(json.dumps(record, ensure_ascii=False) + "\n")

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Keep what went wrong in the log: a client that was ended is no news, a bug is."""
        self.note({"error": traceback.format_exc().strip().splitlines()[-1]})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.split("?")[0]
        if path.endswith(("count_tokens", ":countTokens")):
            return self._answer({"input_tokens": INPUT_TOKENS, "totalTokens": INPUT_TOKENS})
        for ending, name, dialect in _DIALECTS:
            if path.endswith(ending):
                return self._speak(name, dialect, json.loads(raw), path)
        self.server.note({"path": path, "unknown": raw[:500].decode("utf-8", "replace")})
        return self._answer({"error": {"message": f"the stand-in has no {path}"}}, status=404)

    def _speak(self, name, dialect, body, path):
        asked = dialect.read(body, path)
        said = answer(asked)
        number = next(self.server.numbers)
        self.server.note(
            {
                "number": number,
                "dialect": name,
                "path": path,
                "model": asked.model,
                "texts": asked.texts,
                "newest": asked.newest,
                "results": asked.results,
                "tools": sorted(asked.tools),
                "said": said.text,
                "called": said.tool,
                "arguments": said.arguments,
                "wait_s": said.wait_s,
            }
        )
        self.server.stopped.wait(self.server.delay + said.wait_s * self.server.waits)
        if not asked.stream:
            return self._answer(dialect.whole(asked, said, number))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in dialect.stream(asked, said, number):
            self.wfile.write(event.encode())
            self.wfile.flush()
        self.close_connection = True
        return None

    def do_GET(self):
        models = [{"id": name, "object": "model", "name": name} for name in _MODELS]
        self.server.note({"path": self.path, "get": True})
        self._answer({"object": "list", "data": models, "models": models})

    def do_HEAD(self):
        self._answer({})

    def _answer(self, data, *, status=200):
        raw = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def log_message(self, *_):
        pass
