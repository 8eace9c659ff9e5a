"""Carrying a prompt into a program and what it prints out of it, and seeing its end."""

import contextlib
import os
import selectors
import sys
from collections.abc import Callable
from typing import IO

from routines.agents.processes import Child

# How often the end is looked for where the kernel does not announce it (macOS, some sandboxes).
_POLL_S = 0.05
# After the leader's end its output is in the pipe already; this is for a child that it waited
# for in spirit only, such as the `tee` behind it.
_QUIET_S = 0.1
# What is still carried then: more than any pipe holds, so the leader's words are all there, and
# little enough that a child that goes on printing delays nothing.
_LAST_READS = 32
_READ_BYTES = 256 * 1024
# As much of the prompt at once as a pipe holds at most by default.
_WRITE_BYTES = 64 * 1024
# One wait carries at most so many reads before it looks up: 16 MiB.
_READS_A_WAIT = 64


class Pump:
    """Carries the prompt in and the output out. Blocks only where it is told for how long.

    Attributes:
        status: The leader's exit code, or less the number of the signal that ended it; None
            while it lives, and for ever if its end can't be told.
    """

    def __init__(
        self,
        process: Child,
        prompt: bytes,
        out: Callable[[bytes], None],
        err: Callable[[bytes], None],
        *,
        keeps_open: bool = False,
    ) -> None:
        self._process = process
        # Grows at its end and shrinks at its head, and neither copies what waits.
        self._waiting = bytearray(prompt)
        self._keeps_open = keeps_open
        self._selector = selectors.DefaultSelector()
        self._exit_fd = self._announce_exit(process.pid)
        self._deaf = False
        self._lost = False
        self.status: int | None = None
        for pipe, sink in ((process.stdout, out), (process.stderr, err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, sink)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            if not keeps_open:
                self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def _announce_exit(self, pid: int) -> int | None:
        if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
            return None
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return None
        self._selector.register(fd, selectors.EVENT_READ)
        return fd

    def ended(self) -> bool:
        """Return whether the leader has ended.

        It stays a zombie, so that its number is not used again while its group is being ended.
        """
        if self.status is None and not self._lost:
            self._look()
        over = self.status is not None or self._lost
        if over:
            self._close_exit()
        return over

    def _look(self) -> None:
        if not hasattr(os, "waitid"):
            self.status = self._process.poll()
            return
        try:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Someone else took it. Popen would then call it exit 0, and the turn a success.
            self._lost = True
            return
        if found is not None:
            exited = found.si_code == os.CLD_EXITED
            self.status = found.si_status if exited else -found.si_status

    def carry(self, seconds: float) -> bool:
        """Wait at most *seconds* for something to carry, carry it, return whether there was any."""
        if self._exit_fd is None:
            seconds = min(seconds, _POLL_S)
        ready = self._selector.select(max(seconds, 0))
        for key, _ in ready:
            if key.fileobj == self._exit_fd:
                continue
            pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
            if pipe is self._process.stdin:
                self._write(pipe)
            else:
                self._read(pipe, key.data)
        return bool(ready)

    def wait(self, seconds: float) -> None:
        """Wait at most *seconds*, and carry what has come by then, within a bound."""
        self.ended()
        for _ in range(_READS_A_WAIT):
            if not self.carry(seconds):
                return
            # Only the first may wait: what drips a word at a time would stretch every pause.
            seconds = 0

    def drain(self) -> None:
        """Carry what the leader left in the pipes, then turn a deaf ear to its children."""
        for _ in range(_LAST_READS):
            if not self._selector.get_map() or not self.carry(_QUIET_S):
                break
        self._deaf = True

    def say(self, data: bytes) -> None:
        """Have *data* carried in behind what waits already."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if not self._waiting:
            self._selector.register(pipe, selectors.EVENT_WRITE)
        self._waiting += data

    def hang_up(self) -> None:
        """Close stdin: there will be no more."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if self._waiting:
            self._waiting.clear()
            self._drop(pipe)
        else:
            with contextlib.suppress(OSError):
                pipe.close()

    def close(self) -> None:
        """Let go of the pipes."""
        self._close_exit()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _close_exit(self) -> None:
        if self._exit_fd is not None:
            # It stays readable for ever: left in, no wait would wait any more.
            self._selector.unregister(self._exit_fd)
            os.close(self._exit_fd)
            self._exit_fd = None

    def _read(self, pipe: IO[bytes], sink: Callable[[bytes], None]) -> None:
        try:
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(pipe)
        elif not self._deaf:
            sink(data)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            written = os.write(pipe.fileno(), self._waiting[:_WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            # It does not want the rest; that is its right, and its exit says how it went.
            self._waiting.clear()
            self._keeps_open = False
        else:
            del self._waiting[:written]
        if self._waiting:
            return
        if self._keeps_open:
            self._selector.unregister(pipe)
        else:
            # The end of the prompt must be seen: an open stdin is a question that waits.
            self._drop(pipe)

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        with contextlib.suppress(OSError):
            pipe.close()
