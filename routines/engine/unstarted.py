"""When to look again at claims that were made and have not started: memory that can be lost."""

from datetime import timedelta

# What a claim met that could not be started heals in minutes or not at all (PROMISES L12).
_FIRST = timedelta(minutes=1)
_MOST = timedelta(minutes=15)
_NEVER = float("inf")


class Unstarted:
    """The claims of a state folder that wait for something, or could not be started."""

    def __init__(self) -> None:
        # At boot there may be some.
        self._look_at = float("-inf")
        self._held_back: dict[str, tuple[int, float]] = {}

    @property
    def next_look(self) -> float | None:
        """When to look, in seconds awake; None while none of them asks for it."""
        return None if self._look_at == _NEVER else self._look_at

    def look_soon(self) -> None:
        """Look at the next pass: one waits for its session or for a place."""
        self._look_at = float("-inf")

    def look_at(self, awake: float) -> None:
        """Look once so much time awake has passed: a retry is due then."""
        self._look_at = min(self._look_at, awake)

    def hold_back(self, ref: str, awake: float) -> None:
        """Look at *ref* later and later: it could not be started."""
        faults = self._held_back.get(ref, (0, 0.0))[0] + 1
        pause = min(_FIRST * 2 ** min(faults - 1, 8), _MOST)
        self._held_back[ref] = (faults, awake + pause.total_seconds())
        self._look_at = min(self._look_at, awake + pause.total_seconds())

    def forget(self, ref: str) -> None:
        """Forget a claim that has ended."""
        self._held_back.pop(ref, None)

    def take(self, awake: float) -> bool:
        """Return whether to look now; whoever does says what to look at again."""
        if awake < self._look_at:
            return False
        self._look_at = _NEVER
        return True

    def may_start(self, ref: str, awake: float) -> bool:
        """Return whether *ref* is not held back any more."""
        until = self._held_back.get(ref, (0, 0.0))[1]
        if awake < until:
            self._look_at = min(self._look_at, until)
        return awake >= until
