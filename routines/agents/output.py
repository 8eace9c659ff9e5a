"""What a program prints, bounded: the beginning and the end are kept, the middle is counted.

A turn may print gigabytes, one line of 50 MB, or bytes that are no text. None of that may fill
the memory or the disk, and none of it may lose the last words, which say why it failed.
"""

import contextlib
import os
from collections.abc import Callable

from routines.domain.masking import Masker
from routines.domain.outcome import LONGEST_DETAIL, one_line
from routines.errors import StoreError
from routines.store import files

# Head and tail together are the 1 MiB a stream that is kept (D8): twice that of any reply that a
# person would read, and small enough that a thousand turns of it fit a disk.
HEAD_BYTES = 512 * 1024
TAIL_BYTES = 512 * 1024
# A failing program says why in its last lines; five of them hold a usual traceback's end.
LAST_LINES = 5
# A byte of UTF-8 that is not the first of its character looks like 10xxxxxx.
_CONTINUES_MASK, _CONTINUES = 0xC0, 0x80
_LONGEST_CHARACTER = 4


def decode(data: bytes) -> str:
    """Return *data* as text: UTF-8, with a replacement character for what is none."""
    return data.decode("utf-8", "replace")


# A line is looked at whole up to here; no key of any maker comes near the second number.
_LONGEST_LINE = 64 * 1024
_LONGEST_SECRET = 8 * 1024


class Capture:
    """The head and the tail of one stream, in memory and, if *path* is given, on disk.

    The head is on disk as soon as it was printed, so that `logs -f` can follow a turn; the tail
    follows when the stream is closed. A disk that can't take it costs the file, not the turn.

    Attributes:
        total: Bytes that were printed.
        fault: Why the file is not whole, or None.
    """

    def __init__(
        self, path: str | None = None, *, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
    ) -> None:
        self.total = 0
        self.fault: str | None = None
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        # What takes secrets out of the tail when it is read; the head comes masked already.
        self.mask_tail: Callable[[bytes], bytes] = bytes
        self._fd = self._open(path)

    @property
    def is_full(self) -> bool:
        """Whether the head takes no more: what comes is kept only if it is near the end."""
        return len(self._head) >= self._most_head

    @property
    def dropped(self) -> int:
        """How many bytes between head and tail were not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._most_tail)

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        self.total += len(data)
        room = self._most_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            self._write(data[:room])
            data = data[room:]
        if data:
            self._keep_tail(data)

    def close(self) -> None:
        """Put the tail on disk and let go of the file. Harmless when repeated."""
        if self._fd is None:
            return
        self._write(self._gap())
        self._write(self._kept_tail())
        self._shut()

    def data(self) -> bytes:
        """Return what was kept, with a line in the place of what was not."""
        return bytes(self._head) + self._gap() + self._kept_tail()

    def text(self) -> str:
        """Return `data` as text."""
        return decode(self.data())

    def last_lines(self, most: int = LAST_LINES) -> list[str]:
        """Return the last lines that hold anything, each folded and bounded, oldest first."""
        found: list[str] = []
        for raw in reversed(self._ending().splitlines()):
            line = one_line(decode(raw[: LONGEST_DETAIL * 8]))
            if line:
                found.append(line)
            if len(found) == most:
                break
        return found[::-1]

    def last_line(self) -> str:
        """Return the last line that holds anything, folded and bounded; "" if there is none."""
        return (self.last_lines(1) or [""])[0]

    def _ending(self) -> bytes:
        # The tail is joined to the head only where nothing is missing between them: a line must
        # not be made of two halves that never stood together.
        tail = self._kept_tail()
        return tail if self.dropped else bytes(self._head) + tail

    def _keep_tail(self, data: bytes) -> None:
        self._tail += data[-self._most_tail :] if self._most_tail else b""
        # Cut at twice the size, so that a program that prints byte by byte costs no copy a byte.
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    def _kept_tail(self) -> bytes:
        if not self.dropped:
            return self.mask_tail(bytes(self._tail))
        return self.mask_tail(_from_whole_character(bytes(self._tail[-self._most_tail :])))

    def _gap(self) -> bytes:
        if not self.dropped:
            return b""
        return f"\n[... {self.dropped:,} bytes were dropped here ...]\n".encode()

    def _open(self, path: str | None) -> int | None:
        if path is None:
            return None
        try:
            # A name left by an attempt that never started would make the exclusive open fail.
            files.remove(path)
            return files.open_new(path)
        except (OSError, StoreError) as error:
            self.fault = one_line(str(error))
            return None

    def _write(self, data: bytes) -> None:
        if self._fd is None or not data:
            return
        try:
            files.write_all(self._fd, data)
        except (OSError, StoreError) as error:
            # A full disk must not end the turn or keep its outcome from being written.
            self.fault = one_line(str(error))
            self._shut()

    def _shut(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                files.close(fd)


def _from_whole_character(data: bytes) -> bytes:
    for start in range(min(_LONGEST_CHARACTER, len(data))):
        if data[start] & _CONTINUES_MASK != _CONTINUES:
            return data[start:]
    return data


def bounded(text: str, most: int = HEAD_BYTES + TAIL_BYTES) -> tuple[str, bool]:
    """Return *text* as it is, or its head and tail, and whether anything was dropped."""
    # A character is at least a byte: what is short enough in characters four times over is so
    # in bytes, and most replies need not be encoded to know it.
    if len(text) * _LONGEST_CHARACTER <= most:
        return text, False
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text, False
    capture = Capture(head=most // 2, tail=most - most // 2)
    capture.feed(data)
    return capture.text(), True


class Lines:
    """Passes a stream on to a capture line by line, each one masked.

    A secret does not span lines, but it may well come in two pieces of what is read from a pipe.
    Of a flood only head and tail are looked at: what is dropped needs no masking.
    """

    def __init__(self, capture: Capture, masker: Masker) -> None:
        self._capture = capture
        self._masker = masker
        self._rest = b""
        capture.mask_tail = masker.mask_bytes

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        data = self._rest + data
        if self._capture.is_full:
            self._rest = b""
            self._capture.feed(data)
            return
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _LONGEST_LINE:
            # One endless line: cut it well behind what a secret could be as a whole.
            end = len(data) - _LONGEST_SECRET
        self._rest = data[end:]
        if end:
            self._capture.feed(self._masker.mask_bytes(data[:end]))

    def close(self) -> None:
        """Pass on what has no end of line, and close the capture. Harmless when repeated."""
        rest, self._rest = self._rest, b""
        if rest:
            self._capture.feed(self._masker.mask_bytes(rest))
        self._capture.close()


def open_captures(folder: str | None) -> tuple[Capture, Capture]:
    """Return captures of stdout and stderr, kept in *folder* if one is given."""
    if folder is None:
        return Capture(), Capture()
    with contextlib.suppress(OSError, StoreError):
        # What this would say, the captures say when they open their files.
        files.make_folder(folder)
    return (
        Capture(os.path.join(folder, "stdout.log")),
        Capture(os.path.join(folder, "stderr.log")),
    )
