"""`doctor`: whether everything is well, in one line a subject."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from routines.domain.durations import humanize
from routines.domain.job import LEASE
from routines.domain.names import day_name, format_instant
from routines.errors import RoutinesError, StateCopied, StateMissing, UsageError
from routines.operations.agents_found import agents_found
from routines.operations.agents_of_jobs import agents_of_jobs
from routines.operations.context import Context
from routines.operations.life import (
    age,
    is_left_unstarted,
    is_mute,
    is_unwatched,
    schedulers,
    waits_for_lease,
)
from routines.operations.listing import Trouble, list_routines, search_path
from routines.operations.machine_facts import disk_of, zone_data
from routines.operations.pending import open_claims
from routines.operations.places_found import places_missing
from routines.operations.wake_tools_found import HOW_TO_GET_IT, wake_tools_found
from routines.operations.zone_note import zone_note
from routines.store import files
from routines.store.claims import ClaimStore
from routines.store.probe import try_writing
from routines.store.schedulers import Scheduler
from routines.store.sessions import SessionStore
from routines.store.state import State, open_for_reading

# A conversation of so many turns costs more each turn than it is worth.
_MANY_TURNS = 50
_LEASE_S = round(LEASE.total_seconds())
# Below this the next long reply may not fit.
_LITTLE_SPACE = 0.95
# Clocks of two machines differ; beyond this a claim comes from a clock that is wrong.
_CLOCK_TOLERANCE = timedelta(minutes=5)


class Level(StrEnum):
    """How it stands with one subject."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one subject.

    Attributes:
        level: ok, note or FAIL.
        subject: scheduler, state, clock, ...
        text: What was found.
        hint: What to do about it; empty where there is nothing to do.
        instants: What stands in the places `{0}`, `{1}`, ... of the text.
        zone: The zone that these are read in, or None for the workspace's.
    """

    level: Level
    subject: str
    text: str
    hint: str = ""
    instants: tuple[datetime, ...] = ()
    zone: ZoneInfo | None = None

    def words(self, show: Callable[[datetime], str]) -> str:
        """Return the text with its instants as *show* writes them."""
        if not self.instants:
            return self.text
        return self.text.format(*(show(at) for at in self.instants))

    def to_json(self) -> dict[str, Any]:
        """Return it as `doctor --json` shows it."""
        return {
            "level": self.level.value.lower(),
            "subject": self.subject,
            "text": self.words(format_instant),
            "hint": self.hint or None,
        }


@dataclass(frozen=True, slots=True)
class Health:
    """What `doctor` found."""

    findings: tuple[Finding, ...]

    @property
    def failed(self) -> int:
        """How many findings are failures; any makes the exit code 1."""
        return sum(one.level is Level.FAIL for one in self.findings)

    @property
    def notes(self) -> int:
        """How many findings are notes."""
        return sum(one.level is Level.NOTE for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it as `doctor --json` shows it."""
        return {
            "ok": not self.failed,
            "failed": self.failed,
            "notes": self.notes,
            "findings": [one.to_json() for one in self.findings],
        }


def doctor(context: Context, only: Sequence[str] = ()) -> Health:
    """Return how everything stands.

    Args:
        context: Where and when.
        only: The subjects to look at; all if there are none. `scheduler` and `state` read no
            YAML but routines.yaml, so that a health check is cheap.

    Raises:
        UsageError: There is no such subject.
    """
    # A list of names on a command line is easier to write without spaces.
    only = [name.replace("-", " ") for name in only]
    unknown = [name for name in only if name not in SUBJECTS]
    if unknown:
        raise UsageError(
            f"doctor knows no {unknown[0]!r}",
            hint="one or more of " + ",".join(SUBJECTS).replace(" ", "-"),
        )
    found: list[Finding] = []
    for name in only or SUBJECTS:
        try:
            found += SUBJECTS[name](context)
        except RoutinesError as error:
            found.append(Finding(Level.FAIL, name, error.message, error.hint or ""))
    return Health(tuple(found))


def take_over(context: Context, *, fork: bool) -> Finding:
    """Make the state folder the one that it says it is: moved, or with *fork* a copy of its own.

    Raises:
        StateMissing, StateForeign: There is none, or it is another user's.
        StoreBusy: Something of routines runs on it.
    """
    from routines.operations.state_folder import adopt

    adopted = adopt(context, fork=fork)
    how = "has an id of its own now" if fork else "is taken as the one that it was"
    text = f"{adopted.state.path} {how}: {adopted.state.workspace}"
    if fork:
        turns, sessions = adopted.interrupted, adopted.epochs
        text += f"; {turns} open turn{' is' if turns == 1 else 's are'} the original's, "
        text += f"{sessions} session{' begins' if sessions == 1 else 's begin'} anew"
    return Finding(Level.OK, "state", text)


# One function a subject ------------------------------------------------------------------------


def _scheduler(context: Context) -> list[Finding]:
    now = context.clock.now()
    found = schedulers(context.state_or_none, now=now)
    if not found.alive and not found.mute:
        since = "" if found.last_at is None else f" for {humanize(age(now, found.last_at))}"
        why = f" ({found.last_why})" if found.last_why else ""
        return [
            Finding(
                Level.FAIL, "scheduler", f"none is alive{since}{why}", "start one: routines start"
            )
        ]
    return [_one_scheduler(one, now) for one in (*found.live, *found.mute)]


def _one_scheduler(one: Scheduler, now: datetime) -> Finding:
    where = f"on {_host(one.owner)} (pid {one.owner.get('pid', '?')})"
    silent = age(now, one.beat_at)
    if is_mute(one, now):
        # Its lock is held, so that nobody takes it for dead; and it does nothing.
        text = f"{where} lives and gives no sign: no beat for {humanize(silent)}"
        hint = "stopped (SIGSTOP), or waiting for its disk: end it, or let it go on"
        return Finding(Level.FAIL, "scheduler", text, hint)
    text = f"alive {where}, {humanize(age(now, one.started_at))}, {one.version}"
    if one.external_clock:
        text += ", starts no slot (--external-clock)"
    return Finding(Level.OK, "scheduler", f"{text}, beat {humanize(silent)} ago")


def _host(owner: dict[str, Any]) -> str:
    return str(owner.get("user", "")).rpartition("@")[2] or "this host"


def _state(context: Context) -> list[Finding]:
    path = context.root.state
    try:
        state = open_for_reading(path)
    except StateMissing:
        if os.path.isdir(path):
            text = f"{path}: its file `format` is missing"
            hint = "put it back from a copy; without it the next turn gives the folder a new id"
            return [Finding(Level.NOTE, "state", text, hint)]
        if os.path.lexists(path):
            text = f"{path} is no folder; no turn can start"
            return [Finding(Level.FAIL, "state", text, "move that file away")]
        return [Finding(Level.NOTE, "state", f"{path}: not there yet", "the first turn makes it")]
    return _place(context, state)


def _place(context: Context, state: State) -> list[Finding]:
    from routines.agents.identity import boot_id

    found = os.stat(state.path)
    shown = _short(context, state.path)
    if found.st_uid != os.geteuid():
        return [Finding(Level.FAIL, "state", f"{shown}: not ours", files.why_denied(state.path))]
    if state.format.is_copy(inode=found.st_ino, device=found.st_dev, boot=boot_id() or None):
        hint = "moved: routines doctor --adopt; a copy beside the original: --fork"
        return [Finding(Level.FAIL, "state", f"{shown} is a copy, or was moved", hint)]
    findings = []
    private = found.st_mode & 0o077 == 0
    disk = disk_of(state.path)
    refused = try_writing(state.path)
    if refused is not None:
        text = f"{refused.message}: nothing can fire"
        findings.append(Finding(Level.FAIL, "state", text, refused.hint or ""))
    facts = [disk.kind, "private" if private else "not private", disk.size_text]
    text = f"{shown}: {', '.join(one for one in facts if one)}, {disk.full * 100:.0f} % full"
    level = Level.FAIL if disk.full > _LITTLE_SPACE else Level.OK if private else Level.NOTE
    hint = "" if private else f"others can read it: chmod 700 {shown}"
    if disk.full > _LITTLE_SPACE:
        hint = "make room: routines prune removes what retention does not keep"
    findings.append(Finding(level, "state", text, hint))
    corrupt = _set_aside(state)
    if corrupt:
        text = f"{len(corrupt)} can't be read and were set aside, first {corrupt[0]}"
        findings.append(Finding(Level.FAIL, "state", text, "look into it, then remove it"))
    return findings


def _set_aside(state: State) -> list[str]:
    folders = ["alerts", "cursors", "schedulers/live", "jobs/batches"]
    folders += [f"jobs/ids/{shard}" for shard in files.names(state.at("jobs", "ids"))]
    folders += [f"sessions/{shard}" for shard in files.names(state.at("sessions"))]
    folders += [f"wakeups/{name}" for name in files.names(state.at("wakeups")) if name != "due"]
    return [
        f"{folder}/{name}"
        for folder in folders
        for name in files.names(state.at(*folder.split("/")))
        if name.endswith(".corrupt")
    ]


def _short(context: Context, path: str) -> str:
    home = context.home.rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def _clock(context: Context) -> list[Finding]:
    now = context.clock.now()
    findings = []
    ahead = [
        one.record
        for one in open_claims(context.state_or_none)
        if one.record.claimed_at is not None and one.record.claimed_at > now + _CLOCK_TOLERANCE
    ]
    place = f"{context.zone.key}, {zone_data(context.zone.key)}"
    later = _dated_ahead(context)
    if later:
        # They are passed over; a slot that comes to be due by then is a duplicate.
        text = f"{place}; {later[0]} holds claims of the future, made while a clock was wrong"
        findings.append(Finding(Level.NOTE, "clock", text, "they don't stand in the way of today"))
    if ahead:
        findings.append(
            Finding(
                Level.FAIL,
                "clock",
                f"{ahead[0].ref} was claimed in the future: this clock or another was wrong",
                "set the clock, for example by NTP",
            )
        )
    steps = [
        step for one in schedulers(context.state_or_none, now=now).live for step in one.set_back
    ]
    if steps:
        at, span = max(steps)
        text = f"{place}; set back by {humanize(span)} {{0}}"
        hint = "no slot was repeated; let NTP keep it, so that it moves in small steps"
        findings.append(Finding(Level.NOTE, "clock", text, hint, instants=(at,)))
    elif not later and not ahead:
        text = f"{place}; steady; no claim in the future"
        findings.append(Finding(Level.OK, "clock", text))
    note = zone_note(context)
    if note:
        findings.append(Finding(Level.NOTE, "clock", note))
    return findings


def _dated_ahead(context: Context) -> list[str]:
    """Return the folders of claims that are dated after tomorrow, known by their names."""
    state = context.state_or_none
    if state is None:
        return []
    # A slot that is claimed a minute ahead may lie in tomorrow.
    last = day_name(context.clock.now() + timedelta(days=1))
    newest = (
        (folder, max(files.names(state.at("claims", *folder.split("/"))), default=""))
        for folder in ClaimStore(state).owners()
    )
    return [f"claims/{folder}/{day}" for folder, day in newest if day > last]


def _agents(context: Context) -> list[Finding]:
    live = schedulers(context.state_or_none, now=context.clock.now()).live
    # What counts is what the scheduler finds: a service has another PATH than this shell.
    path = live[0].path if live and live[0].path else search_path(context)
    where = "the scheduler's PATH" if live and live[0].path else "PATH"
    workspace = context.workspace
    of_jobs = agents_of_jobs(context)
    found = agents_found(workspace.settings, workspace.routines, path=path, of_jobs=of_jobs)
    if not found:
        return [Finding(Level.OK, "agents", "none is needed: there are no routines and no jobs")]
    findings = []
    for agent in found:
        used = "used by " + ", ".join(agent.used_by)
        if agent.problem:
            text = agent.problem.replace("not on PATH", f"not on {where}")
            findings.append(Finding(Level.FAIL, "agents", text, used))
        else:
            shown = agent.name if agent.program == agent.name else f"{agent.name}: {agent.program}"
            findings.append(Finding(Level.OK, "agents", shown))
    return findings


def _files(context: Context) -> list[Finding]:
    workspace = context.workspace
    if workspace.problems:
        return [
            Finding(Level.FAIL, "files", f"{p.place()}: {p.message}", p.cure or "")
            for p in workspace.problems
        ]
    count = len(workspace.names)
    text = f"{count} routine{'' if count == 1 else 's'} in {_short(context, workspace.root.path)}"
    missing = [
        Finding(Level.NOTE, "files", f"{p.place()}: {p.message}", p.cure or "")
        for p in places_missing(workspace)
    ]
    return [Finding(Level.OK, "files", text), *missing]


def _outcomes(context: Context) -> list[Finding]:
    listing = list_routines(context, week=False)
    findings = [
        _outcome(context, row.name, row.problem)
        for row in listing.rows
        if row.problem is not None and _is_told(row.problem)
    ]
    return findings or [Finding(Level.OK, "outcomes", "nothing failed in a row")]


def _is_told(problem: Trouble) -> bool:
    """Return whether an alert tells of it too, or a scheduler has yet to settle it."""
    if problem.kind == "warned":
        return problem.since is not None
    return problem.kind in ("failing", "silent", "lost", "parked")


def _outcome(context: Context, name: str, problem: Trouble) -> Finding:
    said = _plain(f"{name}: {problem.text}")
    if problem.kind == "failing":
        said = said.replace(" in a row", " failed in a row", 1)
    hint = f"routines {'recover' if problem.kind == 'parked' else 'explain'} {name}"
    if problem.since is None:
        return Finding(Level.FAIL, "outcomes", said.format(), hint)
    zone, instants = context.zone_of(name), (problem.since,)
    return Finding(Level.FAIL, "outcomes", f"{said} since {{0}}", hint, instants, zone)


def _plain(text: str) -> str:
    """Return *text* so that `str.format` leaves it as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def _turns(context: Context) -> list[Finding]:
    opened = open_claims(context.state_or_none)
    running = sum(one.standing == "running" for one in opened)
    lost = [one for one in opened if one.standing == "lost"]
    parked = sum(one.standing == "parked" for one in opened)
    unknown = sum(one.standing == "unknown" for one in opened)
    if lost:
        text = f"{len(lost)} without a live owner, first {lost[0].record.ref}"
        hint = "a scheduler settles them: routines start, or routines tick"
        return [Finding(Level.FAIL, "turns", text, hint)]
    tail = "none parked" if not parked else f"{parked} parked"
    claims = ClaimStore(context.state) if opened else None
    # What a program holds by its lease is of this host: how long it holds is what is not known.
    leased = 0 if claims is None else sum(waits_for_lease(claims, one.record) for one in opened)
    unknown -= leased
    elsewhere = f"; {unknown} of another host, which can't be seen from here" if unknown else ""
    if leased:
        elsewhere += f"; {leased} of a program that is gone, until the lease of {_LEASE_S} s lapses"
    left = 0 if claims is None else sum(is_left_unstarted(claims, one.record) for one in opened)
    if left:
        elsewhere += f"; {left} claimed and not started: the next scheduler takes "
        elsewhere += "it up" if left == 1 else "them up"
    alone = 0 if claims is None else sum(is_unwatched(claims, one.record) for one in opened)
    if alone:
        elsewhere += f"; {alone} durable, which nobody asks about until a scheduler starts"
    jobs = sum(one.standing == "running" and one.record.occurrence.is_job for one in opened)
    of_them = f" ({jobs} job{'' if jobs == 1 else 's'})" if jobs else ""
    text = f"{running} running{of_them}; none without a live owner; {tail}{elsewhere}"
    return [Finding(Level.NOTE if parked or alone else Level.OK, "turns", text)]


def _sessions(context: Context) -> list[Finding]:
    state = context.state_or_none
    long = (
        []
        if state is None
        else [one for one in SessionStore(state).all() if one.epoch_turns >= _MANY_TURNS]
    )
    if not long:
        return [Finding(Level.OK, "sessions", "none has grown long")]
    return [
        Finding(
            Level.NOTE,
            "sessions",
            f"{one.session} has {one.epoch_turns} turns; session_turns starts anew",
        )
        for one in long
    ]


def _wake_tools(context: Context) -> list[Finding]:
    found = wake_tools_found(context.workspace.settings, context.workspace.routines)
    if found.lack is not None:
        return [Finding(Level.NOTE, "wake tools", found.lack, HOW_TO_GET_IT)]
    return [Finding(Level.OK, "wake tools", found.words())]


def _alerts(context: Context) -> list[Finding]:
    from routines.operations.targets_found import targets_missing
    from routines.store.alerts import AlertStore

    workspace, state = context.workspace, context.state_or_none
    missing = targets_missing(
        workspace.settings,
        workspace.routines.values(),
        root=workspace.root.path,
        path=search_path(context),
    )
    findings = [
        Finding(
            Level.FAIL,
            "alerts",
            f"{one.label}: {one.problem}",
            f"used by {', '.join(one.used_by)}",
        )
        for one in missing
    ]
    told = [one for _, kept in (AlertStore(state).all() if state else ()) for one in kept.values()]
    unsent = [one for one in told if one.unsent and one.sending_at is None]
    for one in unsent:
        why = [f"{r.get('to')}: {r.get('detail')}" for r in one.results if not r.get("ok")]
        text = f"not sent: {one.title}" + (f" ({'; '.join(why)})" if why else "")
        findings.append(Finding(Level.FAIL, "alerts", text, "the log has it"))
    if findings:
        return findings
    targets = [*workspace.settings.alert]
    targets += [one for routine in workspace.routines.values() for one in routine.alert]
    where = ", ".join(dict.fromkeys(one.label for one in targets)) or "the log alone"
    last = max((one.recovered_at or one.at for one in told if one.at), default=None)
    if last is None:
        return [Finding(Level.OK, "alerts", f"{where}; none sent yet")]
    instants = (_minute(last),)
    return [Finding(Level.OK, "alerts", f"{_plain(where)}; last sent {{0}}", instants=instants)]


def _minute(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)


# In the order that they are printed in.
SUBJECTS: dict[str, Callable[[Context], list[Finding]]] = {
    "scheduler": _scheduler,
    "state": _state,
    "clock": _clock,
    "agents": _agents,
    "files": _files,
    "outcomes": _outcomes,
    "turns": _turns,
    "sessions": _sessions,
    "wake tools": _wake_tools,
    "alerts": _alerts,
}

__all__ = ["SUBJECTS", "Finding", "Health", "Level", "StateCopied", "doctor", "take_over"]
