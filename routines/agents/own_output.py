"""What a function prints in this process, kept as the output of a turn: masked and bounded."""

import contextlib
import os
import selectors
import sys
import threading
from collections.abc import Iterator

from routines.agents.output import Lines, open_captures
from routines.domain.masking import Masker

_STDOUT, _STDERR = 1, 2
_READ_BYTES = 64 * 1024
# What is still read once the function has ended: more than any pipe holds, and little enough that
# a child that has escaped and goes on printing delays nothing.
_LAST_READS = 32


@contextlib.contextmanager
def kept_output(folder: str, masker: Masker) -> Iterator[None]:
    """Keep what is written to stdout and stderr, by whatever means, in the files of a turn.

    By the descriptors, so that a library in C and a child process are heard as well. Afterwards
    both are what they were before, also for a thread that could not be ended.

    Args:
        folder: Where `stdout.log` and `stderr.log` are made.
        masker: What must not be kept as it is.
    """
    _flush()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # By lines, so that `logs --follow` is not a block behind; and in a locale without
            # the character a print must not end the turn.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    captures = open_captures(folder)
    readers = [
        _Reader(fd, Lines(capture, masker))
        for fd, capture in zip((_STDOUT, _STDERR), captures, strict=True)
    ]
    try:
        yield
    finally:
        _flush()
        for reader in readers:
            reader.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A function may have closed or replaced them.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


class _Reader:
    """Puts a pipe in the place of one descriptor, and reads it on a thread of its own."""

    def __init__(self, fd: int, lines: Lines) -> None:
        self._fd = fd
        self._lines = lines
        self._saved = os.dup(fd)
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._ended, self._end = os.pipe()
        os.dup2(write, fd)
        os.close(write)
        # A daemon, as the function's own thread is: nothing here may keep the process from ending.
        self._thread = threading.Thread(target=self._carry, name=f"output-{fd}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the descriptor back, and keep what has come by now."""
        os.dup2(self._saved, self._fd)
        os.close(self._saved)
        os.close(self._end)
        self._thread.join()
        os.close(self._read)
        os.close(self._ended)

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            over = False
            while not over:
                ready = {key.fd for key, _ in selector.select()}
                over = self._ended in ready
                if self._take(_LAST_READS if over else 1) and not over:
                    # The function has closed it: it would be ready for ever.
                    selector.unregister(self._read)
        self._lines.close()

    def _take(self, reads: int) -> bool:
        """Read what there is, so often at the most; return whether its end was seen."""
        for _ in range(reads):
            try:
                data = os.read(self._read, _READ_BYTES)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._lines.feed(data)
        return False
