"""Server-sent events and JSON lines, read as they come, within a bound."""

from collections.abc import Iterator
from dataclasses import dataclass

from routines.agents.reading import LARGEST_JSON

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream.

    Attributes:
        name: What its `event:` line says; `message` where there is none.
        data: Its data, several lines joined by a newline.
    """

    name: str
    data: bytes


class _Lines:
    """Cuts a stream into lines; one that is longer than *most* is given as None."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._skips = False
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Return the lines that end in *data*; their ends are LF, CRLF or CR."""
        if self._after_cr and data[:1] == b"\n":
            # The rest of one end of a line that was cut in two; a second one is a line of its own.
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1:] == b"\r"
        *ended, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in ended:
            yield self._end(part)
        self._add(rest)

    def last(self) -> bytes | None:
        """Return what stands after the last end of a line."""
        return self._end(b"")

    def _add(self, part: bytes) -> None:
        if self._skips or len(self._rest) + len(part) > self._most:
            self._skips = True
            self._rest.clear()
        else:
            self._rest += part

    def _end(self, part: bytes) -> bytes | None:
        self._add(part)
        line = None if self._skips else bytes(self._rest)
        self._skips = False
        self._rest.clear()
        return line


class ServerSentEvents:
    """Reads `text/event-stream`.

    Attributes:
        too_long: How many events were longer than the bound, and therefore dropped.
        broken_off: Whether the stream ended within an event that carries anything.
    """

    def __init__(self, most: int = LARGEST_JSON) -> None:
        self.too_long = 0
        self.broken_off = False
        self._most = most
        self._lines = _Lines(most)
        self._begun = False
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._dropped = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Return the events that end in *data*."""
        for line in self._lines.feed(data):
            if line is None:
                self._drop()
            elif not line:
                yield from self._end()
            else:
                self._take(line if self._begun else line.removeprefix(_BOM))
            self._begun = True

    def end(self) -> Iterator[Event]:
        """Return nothing: an event that the stream breaks off in was never said, only noted."""
        line = self._lines.last()
        begun = bool(self._data) or self._dropped
        self.broken_off = begun or line is None or line.startswith(b"data:")
        return iter(())

    def _take(self, line: bytes) -> None:
        # A line that begins with a colon is a comment: that is how a server shows that it lives.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data" and not self._dropped:
            self._size += len(value) + 1
            if self._size > self._most:
                self._drop()
            else:
                self._data.append(value)

    def _drop(self) -> None:
        self._dropped = True
        self._data.clear()

    def _end(self) -> Iterator[Event]:
        name, data, dropped = self._name, self._data, self._dropped
        self._name, self._data, self._size, self._dropped = "", [], 0, False
        if dropped:
            self.too_long += 1
        elif data:
            yield Event(name or "message", b"\n".join(data))


class JsonLines:
    """Reads one JSON value a line.

    Attributes:
        too_long: How many lines were longer than the bound, and therefore dropped.
        broken_off: Never: a line needs no end, and half of one is no JSON.
    """

    broken_off = False

    def __init__(self, most: int = LARGEST_JSON) -> None:
        self.too_long = 0
        self._lines = _Lines(most)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Return the lines that end in *data*."""
        for line in self._lines.feed(data):
            yield from self._of(line)

    def end(self) -> Iterator[Event]:
        """Return the line that has no end."""
        yield from self._of(self._lines.last())

    def _of(self, line: bytes | None) -> Iterator[Event]:
        if line is None:
            self.too_long += 1
        elif line.strip():
            yield Event("message", line)
