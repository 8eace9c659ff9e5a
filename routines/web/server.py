"""The server beside a scheduler: on its loop, without its signals, and no reason for it to end."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import uvicorn

from routines.errors import AddressUnusable, RoutinesError
from routines.operations.context import Context
from routines.operations.vital_signs import anew, beat_age_s, complaints, vital_signs
from routines.version import VERSION
from routines.web.address import Address
from routines.web.app import application, as_json
from routines.web.metrics import CONTENT_TYPE, MOST_ROUTINES, Happening, Metrics
from routines.web.sharing import PATIENCE_S, Shared
from routines.web.spans import Spans

log = logging.getLogger("routines")

# A pass comes each second, a heartbeat each 15 s: a minute without is a scheduler that hangs.
SILENT_S = 60.0
# Monitors are few; beyond that it is no monitor.
_MOST_AT_ONCE = 32
# At a stop, answers under way get so long.
_GRACE_S = 1


def listen(address: Address) -> socket.socket:
    """Return a socket that listens on *address*.

    Raises:
        AddressUnusable: It is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if address.is_ipv6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Else a restart would have to wait for the connections of the last one to be forgotten.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.ip, address.port))
        listening.listen(_MOST_AT_ONCE)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise AddressUnusable(
            f"can't listen on {address.name}:{address.port}: {_why(error)}; nothing was started",
            hint=_HINTS.get(error.errno or 0, "give another address after --http"),
        ) from error
    return listening


_HINTS = {
    errno.EADDRINUSE: "another scheduler, or another program, has it: give another port",
    errno.EACCES: "give a port of 1024 or above",
    errno.EADDRNOTAVAIL: "give an address that this machine has: 127.0.0.1",
}


def _why(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)


class _Server(uvicorn.Server):
    """uvicorn, without its hands on the signals: they are the scheduler's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Passed(Protocol):
    """What the engine tells of a pass."""

    @property
    def seconds(self) -> float:
        """Its length."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The routines that the store refuses."""


class Companion:
    """Answers for a scheduler while it runs, and is told what happens there.

    Args:
        context: Where and when.
        address: What *listening* listens on.
        listening: The socket.
        token: What those who ask must know, or None.
        patience_s: How long they wait for the files.

    Attributes:
        url: Where it is reached.
    """

    def __init__(
        self,
        context: Context,
        *,
        address: Address,
        listening: socket.socket,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._context = context
        self._listening = listening
        self._spans = Spans()
        self._metrics = Metrics(pass_age_s=self._pass_age_s)
        self._everything = Shared(self._all_numbers, patience_s=patience_s)
        self._from_memory = Shared(lambda: self._metrics.text(None), patience_s=patience_s)
        self._life = Shared(self._look, patience_s=patience_s)
        self._began: float | None = None
        self._passed_at: float | None = None
        self._faults: tuple[str, ...] = ()
        self.url = address.url(listening.getsockname()[1])
        self._app = application(
            address=address, token=token, health=self._health_page, metrics=self._metrics_page
        )

    # Beside a scheduler -------------------------------------------------------------------------

    @property
    def line(self) -> str:
        """What `start` says of it."""
        return f"http      {self.url}/metrics and /health"

    @contextlib.asynccontextmanager
    async def alongside(self) -> AsyncIterator[None]:
        """Answer during the block, which a scheduler starts and stops in."""
        self._began = self._context.clock.awake()
        server = _Server(
            uvicorn.Config(
                self._app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                # Who sends us rubbish writes no line into the scheduler's log.
                log_level=logging.CRITICAL,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=_MOST_AT_ONCE,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        serving = asyncio.ensure_future(self._serve(server))
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving])
            self._listening.close()

    async def _serve(self, server: uvicorn.Server) -> None:
        try:
            await server.serve(sockets=[self._listening])
        except (Exception, SystemExit):
            # Slots go on, whether or not anybody can ask about them.
            log.exception("http-failed")

    # What happens -------------------------------------------------------------------------------

    def on_event(self, event: Happening) -> None:
        """Count an event of the engine."""
        self._metrics.happened(event)
        if event.name == "settled":
            self._spans.turn(event.ref, event.data, ended_at=self._context.clock.now())

    def on_pass(self, facts: Passed) -> None:
        """Count a pass of the engine."""
        now = self._context.clock.awake()
        if self._passed_at is None and self._began is not None:
            self._metrics.started(now - self._began)
        self._passed_at = now
        self._faults = facts.faults
        self._metrics.passed(facts.seconds)

    def _pass_age_s(self) -> float | None:
        return None if self._passed_at is None else self._context.clock.awake() - self._passed_at

    # What is asked ------------------------------------------------------------------------------

    async def _metrics_page(self) -> tuple[int, bytes, str]:
        try:
            text = await self._everything.get()
        except TimeoutError:
            text = await self._from_memory.get()
        return 200, text, CONTENT_TYPE

    def _all_numbers(self) -> bytes:
        try:
            signs = vital_signs(anew(self._context))
        except (RoutinesError, OSError) as error:
            log.warning("vital-signs-not-read", extra={"error": str(error)})
            signs = None
        return self._metrics.text(signs)

    async def _health_page(self) -> tuple[int, bytes, str]:
        try:
            why, beat_age = await self._life.get()
        except (TimeoutError, RoutinesError, OSError) as error:
            why, beat_age = [f"state: {error}"], None
        else:
            why = [*why, *self._silences(beat_age)]
        why += [f"fault: the store refuses {name}" for name in self._faults[:MOST_ROUTINES]]
        pass_age = self._pass_age_s()
        life = {
            "ok": not why,
            "why": why,
            "version": VERSION,
            "beat_age_s": None if beat_age is None else round(beat_age, 3),
            "last_pass_age_s": None if pass_age is None else round(pass_age, 3),
            "faults": list(self._faults[:MOST_ROUTINES]),
        }
        return 503 if why else 200, as_json(life), "application/json"

    def _look(self) -> tuple[list[str], float | None]:
        context = anew(self._context)
        return complaints(context), beat_age_s(context)

    def _silences(self, beat_age: float | None) -> list[str]:
        pass_age = self._pass_age_s()
        if pass_age is None:
            return ["scheduler: it has not looked at anything yet"]
        found = []
        if pass_age > SILENT_S:
            found.append(f"scheduler: its last pass ended {pass_age:.0f} s ago")
        # One that is too old is among the complaints: `doctor` looks at those of all schedulers.
        if beat_age is None:
            found.append("scheduler: this one shows no heartbeat")
        return found
