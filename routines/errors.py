"""Every error that routines raises on purpose, and the codes they carry.

    RoutinesError
    +-- UsageError             called wrongly                                 exit 2
    |   +-- InvalidSpan, InvalidWhen, InvalidZone, InvalidSchedule, InvalidName, InvalidJob
    +-- WorkspaceNotFound      no folder with routines here
    +-- InvalidFiles           YAML that can't be used: all problems at once
    +-- UnknownRoutine, UnknownOccurrence, UnknownWakeup, UnknownSession, UnknownAgent, UnknownJob
    +-- SlotRefused            an instant that the schedule does not name
    +-- SessionBusyError       another turn holds the conversation            exit 75
    +-- NoScheduler            nothing is alive that could take it
    +-- WakeupRefused          a guardrail said no; nothing was scheduled
    +-- WakeupConflict         it is not what the caller took it for; nothing was changed
    +-- NotAuthorized          the program's own hook said no; nothing was changed
    +-- AuthorizationUnavailable   that hook gave no answer; nothing was changed
    +-- JobConflict            an id is taken by a job of other content; nothing was added
    +-- LeaseLost              a job is not, or no longer, that program's to work
    +-- EngineMisuse           the engine was used after a fork, or while stopped
    +-- ExtraMissing           a library that only this needs is not installed
    +-- InstallRefused         what would be overwritten or removed is not ours
    +-- AddressUnusable        nothing can listen on an address
    +-- StoreError             the state folder
        +-- StateNewer, StateForeign, StateCopied, StateUnusable, StateMissing
        +-- StoreBusy          a short lock was not free in time
        +-- NotDurable         the disk did not keep what was written

A message says what is wrong and where, a hint what to do. Codes are a closed list: each has a
heading in docs/troubleshooting.md, and a test compares the two.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# Enough to recognise what was asked for.
_SHOWN = 60


class RoutinesError(Exception):
    """What went wrong in words for a person.

    Attributes:
        code: A stable word from `CODES`, for programs.
        exit_code: What the command line exits with.
        hint: What to do about it, or None.
        path: The file it is about, or None.
        line: The line in *path*, counted from 1, or None.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path
        self.line = line

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints under `error`."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "path": self.path,
            "line": self.line,
        }


class UsageError(RoutinesError):
    """The caller asked for something that has no meaning here."""

    code = "usage"
    exit_code = 2


class InvalidSpan(UsageError):
    """A span of time that can't be read."""

    code = "invalid-span"


class InvalidWhen(UsageError):
    """An instant that can't be read."""

    code = "invalid-when"


class InvalidZone(UsageError):
    """A name that is no IANA time zone."""

    code = "invalid-zone"


class InvalidSchedule(UsageError):
    """A schedule that can't be read, or that would never fire.

    Attributes:
        field: The part of the schedule that is wrong (`minute`, `day`, ...), or None.
    """

    code = "invalid-schedule"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class InvalidName(UsageError):
    """A name that no routine or session may have."""

    code = "invalid-name"


class InvalidJob(UsageError):
    """A field of a job, or of what is asked of jobs, can't be used. Nothing was changed.

    Attributes:
        field: Which.
    """

    code = "invalid-job"

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {message}", hint=hint)
        self.field = field


class WorkspaceNotFound(RoutinesError):
    """No folder with routines was found."""

    code = "no-workspace"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in one file.

    Attributes:
        path: The file, relative to the workspace root where it lies inside it.
        line: Counted from 1; None where the whole file is meant.
        column: Counted from 1; None where the whole line is meant.
        key: The YAML key it is about, with dots for nesting, or None.
        message: What was expected and what was found.
        cure: What to write instead, or None.
    """

    path: str
    line: int | None
    column: int | None
    key: str | None
    message: str
    cure: str | None = None

    def place(self) -> str:
        """Return `path:line:column`, as far as they are known."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part)


class InvalidFiles(RoutinesError):
    """YAML that can't be used.

    Attributes:
        problems: All of them, of all files.
    """

    code = "invalid-files"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        more = len(self.problems) - 1
        super().__init__(
            f"{first.place()}: {first.message}" + (f" (and {more} more)" if more else ""),
            hint=first.cure or "`routines check` shows all problems",
            path=first.path,
            line=first.line,
        )


def nearest(name: str, known: Collection[str], *, cutoff: float = 0.6) -> str | None:
    """Return what of *known* was most likely meant by *name*; None if nothing is near.

    Args:
        name: As it was written.
        known: What there is.
        cutoff: How near it has to be, from 0 to 1.
    """
    # Here and not above: each command would pay a millisecond for what only a mistake needs.
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return close[0] if close else None


class UnknownRoutine(RoutinesError):
    """No routine has the requested name."""

    code = "unknown-routine"

    def __init__(self, name: str, known: Collection[str] = ()) -> None:
        self.name = name
        near = nearest(name, known)
        super().__init__(
            f"there is no routine named {name!r}",
            hint=f"did you mean {near!r}?" if near else "`routines list` names them all",
        )


class UnknownOccurrence(RoutinesError):
    """Nothing is recorded under the requested reference."""

    code = "unknown-occurrence"


class UnknownWakeup(RoutinesError):
    """No pending wake-up has the requested id, as far as the caller may see."""

    code = "unknown-wakeup"

    def __init__(self, wakeup_id: str, pending: Collection[str] = ()) -> None:
        self.wakeup_id = wakeup_id
        # A model may give anything for an id: what is answered must not be as long.
        shown = wakeup_id if len(wakeup_id) <= _SHOWN else f"{wakeup_id[: _SHOWN - 3]}..."
        self.near = nearest(shown, pending)
        super().__init__(
            f"no wake-up {shown!r} is pending here",
            hint=f"did you mean {self.near!r}?"
            if self.near
            else "`routines wakeups` lists what is pending",
        )

    def to_model(self) -> "UnknownWakeup":
        """Return it in the words for who has the tools, and maybe no shell."""
        said = UnknownWakeup(self.wakeup_id)
        said.message = f"{self.message}. Nothing was changed."
        said.hint = self.hint if self.near else "wakeups() shows what is pending"
        return said


class UnknownSession(RoutinesError):
    """No session has the requested name, or nothing was said in it yet.

    Attributes:
        session: Its name.
    """

    code = "unknown-session"

    def __init__(
        self, session: str, known: Collection[str] = (), *, routine: str | None = None
    ) -> None:
        """Say what is missing.

        Args:
            session: Its name.
            known: The names of others, for one that is near.
            routine: The routine whose conversation this will be; None if it is no one's.
        """
        self.session = session
        if routine is not None:
            super().__init__(
                f"session {session!r} has had no turn yet",
                hint=f"its first turn makes the conversation: routines run {routine}",
            )
            return
        near = nearest(session, known)
        super().__init__(
            f"there is no session {session!r}",
            hint=f"did you mean {near!r}?" if near else "`routines session list` names them all",
        )


class UnknownAgent(RoutinesError):
    """No agent has the requested name."""

    code = "unknown-agent"

    def __init__(self, name: str, known: Collection[str] = ()) -> None:
        self.name = name
        near = nearest(name, known)
        super().__init__(
            f"there is no agent named {name!r}",
            hint=f"did you mean {near!r}?"
            if near
            else "name one under `agents:` in routines.yaml, or use `echo`",
        )


class SlotRefused(RoutinesError):
    """An instant that can't be fired: the schedule does not name it, or it is ahead."""

    code = "not-a-slot"


class SessionBusyError(RoutinesError):
    """The conversation is in use, or the group that only one turn at a time may be in.

    Attributes:
        session: The session that is busy; if a group is, the one that waits for it.
        holder: Who holds it, in words, or None if that can't be told.
        group: The `exclusive` group that is busy; the session is free then.
    """

    code = "session-busy"
    exit_code = 75

    def __init__(
        self, session: str, holder: str | None = None, *, group: str | None = None
    ) -> None:
        self.session = session
        self.holder = holder
        self.group = group
        what = f"session {session}" if group is None else f"the exclusive group {group}"
        super().__init__(
            f"{what} is busy" + (f": {holder}" if holder else ""),
            hint="nothing was run; try again when that turn has ended",
        )


class NoScheduler(RoutinesError):
    """No scheduler is alive on this state folder."""

    code = "no-scheduler"


class WakeupRefused(RoutinesError):
    """A guardrail refused a wake-up. Nothing was scheduled."""

    code = "wake-refused"


class WakeupConflict(RoutinesError):
    """A wake-up is not what the caller took it for. Nothing was changed.

    Attributes:
        wakeup_id: Which.
        revision: Its present revision.
        present: What it is now, as far as the one who raised it knows.
    """

    code = "wake-conflict"

    def __init__(self, wakeup_id: str, revision: int, why: str) -> None:
        self.wakeup_id = wakeup_id
        self.revision = revision
        self.present: Any = None
        super().__init__(
            f"{wakeup_id} {why}", hint="nothing was changed; read it again, then ask again"
        )


class NotAuthorized(RoutinesError):
    """The program's own hook refused. Nothing was changed, and nothing is told of what there is."""

    code = "not-authorized"

    def __init__(self, action: str, reason: str = "") -> None:
        self.action = action
        super().__init__(
            f"{action} is not allowed" + (f": {reason}" if reason else ""),
            hint="the program's authorize hook said no; nothing was changed",
        )


class AuthorizationUnavailable(RoutinesError):
    """The program's own hook gave no answer. Nothing was changed."""

    code = "authorization-unavailable"

    def __init__(self, action: str, why: str) -> None:
        self.action = action
        super().__init__(
            f"whether {action} is allowed can't be told: {why}",
            hint="nothing was changed; try again when the program's authorize hook answers",
        )


class UnknownJob(RoutinesError):
    """No job has the requested id, or it was forgotten 30 days after its end."""

    code = "unknown-job"

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"there is no job {job_id[:80]!r}", hint="`routines jobs` lists what is queued"
        )


class JobConflict(RoutinesError):
    """An id is taken by a job of other content. Nothing was added.

    Attributes:
        job_id: The id.
    """

    code = "job-conflict"

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"the id {job_id[:80]!r} belongs to a job of other content: nothing was added",
            hint="repeat exactly what was asked, or give another id",
        )


class LeaseLost(RoutinesError):
    """A program may not, or no longer, work a job.

    Attributes:
        why: `lapsed`, `cancelled`, `settled` or `stranger`.
    """

    code = "lease-lost"

    def __init__(self, job_id: str, why: str, message: str) -> None:
        self.job_id = job_id
        self.why = why
        super().__init__(f"job {job_id[:80]!r}: {message}", hint="stop working on it")


class EngineMisuse(RoutinesError):
    """The engine was used in a way that it can't honour."""

    code = "engine-misuse"


class ExtraMissing(RoutinesError):
    """What was asked for needs a library that is not installed."""

    code = "extra-missing"

    def __init__(self, what: str, *, extra: str, module: str) -> None:
        self.extra = extra
        super().__init__(
            f"{what} needs {module}, which is not installed" if module else f"{what} needs more",
            hint=f"pip install 'agent-routines[{extra}]'",
        )


class InstallRefused(RoutinesError):
    """A service file can't be written or removed: it is not ours, or was edited."""

    code = "install-refused"


class AddressUnusable(RoutinesError):
    """Nothing can listen on an address: it is taken, or none of this machine's."""

    code = "address-unusable"


class StoreError(RoutinesError):
    """The state folder could not be read or written."""

    code = "store-fault"


class StateMissing(StoreError):
    """There is no state folder yet."""

    code = "state-missing"


class StateNewer(StoreError):
    """The state folder was written by a newer version."""

    code = "state-newer"


class StateForeign(StoreError):
    """The state folder belongs to another user."""

    code = "state-foreign"


class StateCopied(StoreError):
    """The state folder is a copy, or was moved."""

    code = "state-copied"


class StateUnusable(StoreError):
    """The file system lacks what the state folder needs."""

    code = "state-unusable"


class StoreBusy(StoreError):
    """A short lock was not free in time. Nothing was changed."""

    code = "store-busy"


class NotDurable(StoreError):
    """A write or a sync failed. What the caller asked for has not happened."""

    code = "not-durable"


def all_codes() -> dict[str, type[RoutinesError]]:
    """Return every code with its class: the closed list that docs and tests compare with."""
    found: dict[str, type[RoutinesError]] = {}
    waiting: list[type[RoutinesError]] = [RoutinesError]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind
        waiting.extend(kind.__subclasses__())
    return found
