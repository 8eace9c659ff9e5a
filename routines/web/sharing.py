"""Blocking work that many ask for: one at a time, off the loop, and nobody waits for ever."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from routines.operations.vital_signs import off_loop

_T = TypeVar("_T")

# A scrape gives up after 10 s; a disk that does not answer by then is news of its own.
PATIENCE_S = 5.0


class Shared(Generic[_T]):
    """Work whose result all get that ask while it is under way.

    However many ask, a disk that hangs holds one thread.

    Args:
        work: What to do.
        patience_s: How long to wait for it.
    """

    def __init__(self, work: Callable[[], _T], *, patience_s: float = PATIENCE_S) -> None:
        self._work = work
        self._patience_s = patience_s
        self._under_way: asyncio.Future[_T] | None = None

    async def get(self) -> _T:
        """Return the result.

        Raises:
            TimeoutError: It takes too long; it goes on, and whoever asks next waits for it too.
        """
        if self._under_way is None or self._under_way.done():
            self._under_way = off_loop(self._work)
            # If nobody waits any more, its failure is nobody's news.
            self._under_way.add_done_callback(_take_note)
        under_way = self._under_way
        done, _ = await asyncio.wait([under_way], timeout=self._patience_s)
        if not done:
            raise TimeoutError(f"the files did not answer within {self._patience_s:g} s")
        return under_way.result()


def _take_note(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled():
        ended.exception()
