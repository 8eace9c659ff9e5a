"""Signs of life of the scheduler in this process, from the files: what a monitor asks for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from routines.domain.outcome import State
from routines.engine import host
from routines.engine.off_loop import start_thread
from routines.operations.alarms import pending_alarms
from routines.operations.context import Context
from routines.operations.health import Level, doctor
from routines.operations.life import age, schedulers
from routines.operations.pending import open_claims

_T = TypeVar("_T")

# Where an open claim can stand: a closed list, so that a number is zero and not absent.
STANDINGS = (
    *(state.value for state in State if state not in (State.SETTLED, State.WAITING, State.OWED)),
    "unknown",
)


@dataclass(frozen=True, slots=True)
class VitalSigns:
    """What the files say of the life here.

    Attributes:
        schedulers: How many are alive on the state folder.
        beat_age_s: How old the last heartbeat of this process is; None if it shows none.
        open_claims: How many claims without an outcome there are, by where they stand.
        wakeups: How many wake-ups are pending.
    """

    schedulers: int
    beat_age_s: float | None
    open_claims: Mapping[str, int]
    wakeups: int


def vital_signs(context: Context) -> VitalSigns:
    """Return the signs of life; nothing is written, and no lock taken that another could meet."""
    now = context.clock.now()
    alive = schedulers(context.state_or_none, now=now)
    standings = Counter(one.standing for one in open_claims(context.state_or_none))
    return VitalSigns(
        schedulers=len(alive.live),
        beat_age_s=beat_age_s(context),
        open_claims={word: standings[word] for word in STANDINGS},
        wakeups=pending_alarms(context.state_or_none).count,
    )


def beat_age_s(context: Context) -> float | None:
    """Return how old the last heartbeat of the scheduler in this process is; None if unknown."""
    now, mine = context.clock.now(), host.owner().to_json()
    found = schedulers(context.state_or_none, now=now)
    there = (*found.live, *found.mute)
    ages = [age(now, one.beat_at).total_seconds() for one in there if one.owner == mine]
    return min(ages, default=None)


def complaints(context: Context) -> list[str]:
    """Return what `doctor` calls a failure of the scheduler or of the state folder, in a line."""
    found = doctor(context, ("scheduler", "state")).findings
    return [f"{one.subject}: {one.text}" for one in found if one.level is Level.FAIL]


def anew(context: Context) -> Context:
    """Return a context that looks at the files anew, in the folder that *context* is about."""
    made = Context(
        explicit_root=context.explicit_root,
        environ=context.environ,
        cwd=context.cwd,
        clock=context.clock,
    )
    # Found once: an edit of routines.yaml moves no state from under a scheduler that runs.
    made.__dict__["root"] = context.root
    return made


def off_loop(function: Callable[[], _T]) -> asyncio.Future[_T]:
    """Start *function* in a thread of its own, and return what will hold its result."""
    return start_thread(function, counted=False)
