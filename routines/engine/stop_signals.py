"""How a scheduler that stops tells a turn process: by signals, counted."""

import signal
from types import FrameType

from routines.agents.programs import HURRY


class StopSignals:
    """What a scheduler that stops says: end your turn, and with a second one, at once."""

    def __init__(self) -> None:
        self.stops = 0
        signal.signal(signal.SIGTERM, self._stop)
        # The scheduler's terminal is none of ours; a ^C there reaches us as SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1

    def word(self) -> str | None:
        """Return `stop`, `now`, or None."""
        if self.stops == 0:
            return None
        return "stop" if self.stops == 1 else HURRY
