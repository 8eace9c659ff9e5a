"""Whose settings hold for a session, and where its replies go."""

from collections.abc import Mapping

from routines.domain.names import routine_of
from routines.domain.routine import Routine
from routines.domain.targets import Target, TargetKind


def sharer_of(session: str, routines: Mapping[str, Routine]) -> Routine | None:
    """Return the first routine that names *session*, None for a session that none has."""
    return next((one for one in routines.values() if one.session == session), None)


def in_charge_of(session: str, routines: Mapping[str, Routine]) -> Routine | None:
    """Return the routine whose settings hold for *session*: its own, else the first with it."""
    return routines.get(routine_of(session) or "") or sharer_of(session, routines)


def targets_of_session(
    session: str, routines: Mapping[str, Routine], otherwise: tuple[Target, ...]
) -> tuple[tuple[Target, ...], str | None]:
    """Return where the replies of a woken turn go, and which reply goes nowhere.

    They go where those of its session's routine do: its own, else the first that names the
    session.

    Args:
        session: Its name.
        routines: Those that there are.
        otherwise: Where the workspace says, for a session without a routine.
    """
    routine = in_charge_of(session, routines)
    return (otherwise, None) if routine is None else (routine.deliver, routine.quiet)


def reply_to(
    session: str, routines: Mapping[str, Routine], otherwise: tuple[Target, ...]
) -> tuple[str, ...]:
    """Return in words where the replies of a woken turn go."""
    targets, _ = targets_of_session(session, routines, otherwise)
    # A ping carries no reply.
    return tuple(one.label for one in targets if one.kind is not TargetKind.PING)
