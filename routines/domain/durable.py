"""A durable run: when it is looked at, what its words mean, and how long calls may take.

A durable agent's runs outlive this process. What is known of one is what the agent says when it is
asked, and only that settles its claim (PROMISES L10).
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from routines.domain.outcome import Outcome, Reason, one_line

# A start may have to bring up a machine; a question is answered from what is known already.
START_WITHIN = timedelta(minutes=4)
INSPECT_WITHIN = timedelta(seconds=30)
CANCEL_WITHIN = timedelta(seconds=30)
# Often enough for a person who waits, seldom enough for a service with hundreds of runs.
LOOK_EVERY = timedelta(seconds=15)
# After the first, second and every further fault in a row.
_AFTER_FAULTS = (timedelta(seconds=15), timedelta(seconds=30), timedelta(seconds=60))
# 1, 2, 4 ... 128 s: an approval that is not given in four minutes is not being looked at.
MOST_ASKS = 8
# A service that has just come up may not know its runs yet: one such answer is not believed.
MISSING_FOR = timedelta(minutes=1)
# A run id is printed, logged and handed back; nobody's is longer.
LONGEST_RUN_ID = 512


class RunWord(StrEnum):
    """Where a run stands, in the agent's word."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISSING = "missing"


class Ending(StrEnum):
    """Why we want a run to end before it does by itself."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the turn of a run that has ended is settled."""

    outcome: Outcome
    reason: Reason | None
    detail: str = ""


def word_of(said: object) -> RunWord:
    """Return what an agent's word means: one that is not known counts as active."""
    try:
        return RunWord(str(said))
    except ValueError:
        return RunWord.ACTIVE


def checked_run_id(said: object) -> str | None:
    """Return a run id as it may be kept, or None if *said* can't be one."""
    if not isinstance(said, str) or not 0 < len(said) <= LONGEST_RUN_ID:
        return None
    return said if said.isprintable() and said == said.strip() else None


def cancel_key(run_id: str) -> str:
    """Return the idempotency key under which a run is cancelled: the same each time."""
    return f"cancel:{run_id}"


def next_look(faults: int, *, told: int | None = None) -> timedelta:
    """Return how long until the next look.

    Args:
        faults: How many looks in a row have failed until now.
        told: How often it was looked at since it was told to end; None if it was not told. What
            was told mostly ends within seconds, and a person or a newer slot waits for it.
    """
    if faults:
        return _AFTER_FAULTS[min(faults, len(_AFTER_FAULTS)) - 1]
    if told is None:
        return LOOK_EVERY
    return min(timedelta(seconds=2 ** min(told, 8)), LOOK_EVERY)


def next_ask(asked: int) -> timedelta | None:
    """Return how long until a start that waits for a person is asked again; None: it is given up.

    Args:
        asked: How often it has been asked again already.
    """
    return timedelta(seconds=2**asked) if asked < MOST_ASKS else None


def end_of(
    word: RunWord,
    detail: str,
    *,
    ending: Ending | None,
    missing_for: timedelta,
    limit: str = "",
) -> RunEnd | None:
    """Return how a turn ends by what its run is said to be; None while it may still be at work.

    Only `completed` is completed, also for a run that we wanted to end: it did its work.

    Args:
        word: What the agent says.
        detail: In its own words.
        ending: Why it was told to end, or None.
        missing_for: How long the agent has known no such run.
        limit: The time limit, for people.
    """
    said = one_line(f"{word}: {detail}" if detail else word.value)
    match word:
        case RunWord.ACTIVE:
            return None
        case RunWord.COMPLETED:
            return RunEnd(Outcome.COMPLETED, None)
        case RunWord.MISSING if ending is None:
            if missing_for < MISSING_FOR:
                return None
            # Not `failed`: it may have done all that it was asked, and is never repeated for it.
            known = f"{said}; the agent knows no such run any more, and nobody knows what it did"
            return RunEnd(Outcome.INTERRUPTED, Reason.OUTCOME_UNKNOWN, one_line(known))
    if ending is Ending.CANCEL:
        return RunEnd(Outcome.CANCELLED, None, f"the run is {said}")
    if ending is Ending.TIMEOUT:
        return RunEnd(
            Outcome.TIMED_OUT, Reason.TIMEOUT, f"ended at its limit of {limit}; the run is {said}"
        )
    return RunEnd(Outcome.FAILED, Reason.AGENT, said)
