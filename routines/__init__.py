"""Cron for AI agents: prompts on a schedule, in a conversation that lasts.

    from routines import Engine, Routine, schedule

    digest = Routine(name="digest", prompt="What was merged?", schedule=schedule.cron("0 9 * * *", "UTC"))
    async with Engine("state", agent=MyAgent(), routines=[digest]) as engine:
        ...

The names below are the public interface; everything else may change without notice. They are
imported when they are first used, since `routines --version` needs none of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routines.agents.base import (
        Agent,
        AgentUnavailable,
        DurableAgent,
        OutcomeUnknown,
        Reply,
        RunState,
        SessionBusy,
        Turn,
        TurnFailed,
        Usage,
        Waiting,
    )
    from routines.agents.echo import EchoAgent
    from routines.domain import schedule
    from routines.domain.agent import AgentSpec
    from routines.domain.job_request import JobRequest
    from routines.domain.outcome import Outcome, Reason, Trigger
    from routines.domain.record import Record
    from routines.domain.routine import CatchUpPolicy, OverlapPolicy, Routine
    from routines.domain.wakeup import Bounds
    from routines.engine.authorizing import Decision
    from routines.engine.events import EngineEvent
    from routines.engine.lifecycle import Limits
    from routines.engine.managing import Wakeups
    from routines.engine.tools import ToolAnswer, WakeTools
    from routines.engine.wake_snapshots import WakeupSnapshot
    from routines.errors import (
        AuthorizationUnavailable,
        EngineMisuse,
        InvalidJob,
        InvalidName,
        InvalidSchedule,
        InvalidSpan,
        InvalidZone,
        JobConflict,
        LeaseLost,
        NotAuthorized,
        NotDurable,
        RoutinesError,
        SessionBusyError,
        SlotRefused,
        StoreBusy,
        StoreError,
        UnknownAgent,
        UnknownJob,
        UnknownOccurrence,
        UnknownRoutine,
        UnknownSession,
        UnknownWakeup,
        UsageError,
        WakeupConflict,
        WakeupRefused,
        WorkspaceNotFound,
    )
    from routines.operations.embedded import Engine
    from routines.operations.jobs import Jobs
    from routines.operations.waking import tools
    from routines.version import VERSION as __version__  # noqa: N811 - the name that tools ask for

_HOMES = {
    "Agent": "routines.agents.base",
    "AgentSpec": "routines.domain.agent",
    "AgentUnavailable": "routines.agents.base",
    "AuthorizationUnavailable": "routines.errors",
    "Bounds": "routines.domain.wakeup",
    "CatchUpPolicy": "routines.domain.routine",
    "Decision": "routines.engine.authorizing",
    "DurableAgent": "routines.agents.base",
    "EchoAgent": "routines.agents.echo",
    "Engine": "routines.operations.embedded",
    "EngineEvent": "routines.engine.events",
    "EngineMisuse": "routines.errors",
    "InvalidJob": "routines.errors",
    "InvalidName": "routines.errors",
    "InvalidSchedule": "routines.errors",
    "InvalidSpan": "routines.errors",
    "InvalidZone": "routines.errors",
    "JobConflict": "routines.errors",
    "JobRequest": "routines.domain.job_request",
    "Jobs": "routines.operations.jobs",
    "LeaseLost": "routines.errors",
    "Limits": "routines.engine.lifecycle",
    "NotAuthorized": "routines.errors",
    "NotDurable": "routines.errors",
    "Outcome": "routines.domain.outcome",
    "OutcomeUnknown": "routines.agents.base",
    "OverlapPolicy": "routines.domain.routine",
    "Reason": "routines.domain.outcome",
    "Record": "routines.domain.record",
    "Reply": "routines.agents.base",
    "Routine": "routines.domain.routine",
    "RoutinesError": "routines.errors",
    "RunState": "routines.agents.base",
    "SessionBusy": "routines.agents.base",
    "SessionBusyError": "routines.errors",
    "SlotRefused": "routines.errors",
    "StoreBusy": "routines.errors",
    "StoreError": "routines.errors",
    "ToolAnswer": "routines.engine.tools",
    "Trigger": "routines.domain.outcome",
    "Turn": "routines.agents.base",
    "TurnFailed": "routines.agents.base",
    "UnknownAgent": "routines.errors",
    "UnknownJob": "routines.errors",
    "UnknownOccurrence": "routines.errors",
    "UnknownRoutine": "routines.errors",
    "UnknownSession": "routines.errors",
    "UnknownWakeup": "routines.errors",
    "Usage": "routines.agents.base",
    "UsageError": "routines.errors",
    "Waiting": "routines.agents.base",
    "WakeTools": "routines.engine.tools",
    "WakeupConflict": "routines.errors",
    "WakeupRefused": "routines.errors",
    "WakeupSnapshot": "routines.engine.wake_snapshots",
    "Wakeups": "routines.engine.managing",
    "WorkspaceNotFound": "routines.errors",
    "tools": "routines.operations.waking",
}

__all__ = [
    "Agent",
    "AgentSpec",
    "AgentUnavailable",
    "AuthorizationUnavailable",
    "Bounds",
    "CatchUpPolicy",
    "Decision",
    "DurableAgent",
    "EchoAgent",
    "Engine",
    "EngineEvent",
    "EngineMisuse",
    "InvalidJob",
    "InvalidName",
    "InvalidSchedule",
    "InvalidSpan",
    "InvalidZone",
    "JobConflict",
    "JobRequest",
    "Jobs",
    "LeaseLost",
    "Limits",
    "NotAuthorized",
    "NotDurable",
    "Outcome",
    "OutcomeUnknown",
    "OverlapPolicy",
    "Reason",
    "Record",
    "Reply",
    "Routine",
    "RoutinesError",
    "RunState",
    "SessionBusy",
    "SessionBusyError",
    "SlotRefused",
    "StoreBusy",
    "StoreError",
    "ToolAnswer",
    "Trigger",
    "Turn",
    "TurnFailed",
    "UnknownAgent",
    "UnknownJob",
    "UnknownOccurrence",
    "UnknownRoutine",
    "UnknownSession",
    "UnknownWakeup",
    "Usage",
    "UsageError",
    "Waiting",
    "WakeTools",
    "WakeupConflict",
    "WakeupRefused",
    "WakeupSnapshot",
    "Wakeups",
    "WorkspaceNotFound",
    "__version__",
    "schedule",
    "tools",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return import_module("routines.version").VERSION
    if name == "schedule":
        return import_module("routines.domain.schedule")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
