"""Each reason of an outcome as a sentence, for where its record has no words of its own."""

from collections.abc import Mapping
from types import MappingProxyType

from routines.domain.outcome import Reason

# `{0}` is the instant at which a slot was given up.
SENTENCES: Mapping[Reason, str] = MappingProxyType(
    {
        # skipped
        Reason.OVERLAP: "its own earlier turn was still running",
        Reason.BUSY: "its session was busy for too long",
        Reason.GATE: "only_if did not let it through",
        Reason.LIMIT: "the limit of its day was reached",
        Reason.EDITED: "its file was edited and no longer asks for it",
        Reason.REFUSED: "it was not authorized",
        # missed
        Reason.NO_SCHEDULER: "no scheduler was alive until {0}",
        Reason.ASLEEP: "the machine was asleep until {0}",
        Reason.PAUSED: "it was paused until {0}",
        Reason.DISABLED: "it was disabled until {0}",
        Reason.NOT_ARMED: "its file could not be used until {0}",
        Reason.TOO_LATE: "it could not start within start_within of its time",
        Reason.OVER_BOUND: "more slots were owed than max_catch_up",
        Reason.STALE: "a newer slot had been dealt with before it came",
        # failed
        Reason.AGENT: "the agent said that it failed",
        Reason.EXIT: "the agent ended with an exit code that is not 0",
        Reason.SIGNAL: "the agent was ended by a signal",
        Reason.NOT_FOUND: "the agent's program was not found",
        Reason.NOT_STARTED: "the agent could not be reached, and nothing was started",
        Reason.LANE: "its whole lane was failed by a program",
        Reason.VERIFY: "verify did not accept what the turn did",
        Reason.SESSION_CHANGED: "the agent answered from another conversation than was asked",
        Reason.SESSION_LOST: "the agent no longer has the conversation",
        Reason.BAD_OUTPUT: "the agent's output can't be read as its entry says",
        Reason.NOT_DURABLE: "its claim could not be brought to the disk, so nothing was started",
        # interrupted
        Reason.STOPPED: "the scheduler was stopped while it ran",
        Reason.OWNER_DIED: "the process that ran it died",
        Reason.PRESUMED: "its host has given no sign of life for 10 min",
        Reason.OWNER_UNKNOWN: "its claim can't be read",
        Reason.OUTCOME_UNKNOWN: "nobody can tell how it ended",
        Reason.COPIED: "the state folder was copied while it ran",
        # timed-out, cancelled
        Reason.TIMEOUT: "it was ended at its timeout",
        Reason.PERSON: "a person cancelled it",
        Reason.TURN: "another turn cancelled it",
        Reason.PURGE: "its queue was purged",
    }
)
