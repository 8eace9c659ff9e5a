"""Servers on the loop-back address whose every byte a test decides."""

import contextlib
import json
import socket
import threading


class Request:
    def __init__(self, head, body):
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ", 2)
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        self.raw = body

    @property
    def json(self):
        return json.loads(self.raw)


class Server:
    """Answers each request by calling `answer(request, connection)`, one thread a connection.

    Attributes:
        requests: All that came, in order.
        closed: Set when the client of a request has gone away.
    """

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self):
        return self._listener.getsockname()[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/turn"

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            while (request := read_request(connection)) is not None:
                self.requests.append(request)
                if self.answer(request, connection) is not True:
                    return

    def until_closed(self, connection):
        """Wait until the client has gone away, and say so."""
        with contextlib.suppress(OSError):
            while connection.recv(4096):
                pass
        self.closed.set()

    def close(self):
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def read_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    request = Request(head, body)
    missing = int(request.headers.get("content-length", 0)) - len(body)
    pieces = [body]
    while missing > 0:
        more = connection.recv(min(missing, 1 << 20))
        if not more:
            return None
        pieces.append(more)
        missing -= len(more)
    request.raw = b"".join(pieces)
    return request


def head(status="200 OK", **headers):
    lines = [f"HTTP/1.1 {status}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def saying(value, status="200 OK", **headers):
    """An answer of JSON, text or bytes, whole."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(request, connection):
        connection.sendall(head(status, Content_Length=len(data), **headers) + data)

    return answer


def events(*pieces, then=b""):
    """An answer of server-sent events: texts as they are, anything else as JSON in `data:`."""
    made = b"".join(
        piece if isinstance(piece, bytes) else b"data: " + json.dumps(piece).encode() + b"\n\n"
        for piece in pieces
    )

    def answer(request, connection):
        connection.sendall(head(Content_Type="text/event-stream") + made + then)

    return answer
