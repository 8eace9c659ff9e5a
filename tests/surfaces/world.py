"""A workspace with a past, made by the stores themselves: what the screens are drawn from."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from routines.cli.main import main
from routines.domain.names import format_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import Outcome, Reason
from routines.domain.record import Event, outcome_event
from routines.domain.schedule import from_spec
from routines.store import locks
from routines.store.claim import Claim
from routines.store.claim_making import Draft
from routines.store.claims import ClaimStore
from routines.store.cursors import Cursor, CursorStore, Missed
from routines.store.schedulers import SchedulerStore
from routines.store.sessions import Ledger, SessionStore
from routines.store.state import State, open_for_writing
from tests.builders import FakeClock, owner, scheduler

BERLIN = ZoneInfo("Europe/Berlin")
# Sunday 29 November 2026, 16:18 in Berlin.
NOW = datetime(2026, 11, 29, 15, 18, tzinfo=UTC)
SEEN = datetime(2026, 10, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Answer:
    """What one command printed, and its exit code."""

    code: int
    out: str
    err: str


def berlin(text: str) -> datetime:
    """`berlin("2026-11-27 09:00")`: an instant as a clock in Berlin shows it; today's day alone."""
    day, _, time = text.rpartition(" ")
    local = datetime.fromisoformat(f"{day or '2026-11-29'}T{time}")
    return local.replace(tzinfo=BERLIN).astimezone(UTC)


class World:
    """A workspace at `~/agents`, its state folder, and a clock that stands at NOW."""

    def __init__(self, home: Path, *, now: datetime = NOW) -> None:
        self.home = home
        self.root = home / "agents"
        self.root.mkdir()
        self.clock = FakeClock(now)
        self.environ = {"HOME": str(home), "PATH": "/no/bin", "TZ": "Europe/Berlin"}
        self._held: list[Any] = []

    # Files --------------------------------------------------------------------------------------

    def settings(self, text: str = "tz: Europe/Berlin\nagent: echo\n") -> None:
        (self.root / "routines.yaml").write_text(text)

    def routine(self, name: str, text: str) -> None:
        folder = self.root / "routines"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text if "prompt" in text else f"{text}prompt: Look.\n")

    def program(self, name: str, body: str = "") -> None:
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        self.environ["PATH"] = str(path.parent)

    @property
    def state(self) -> State:
        return open_for_writing(str(self.root / ".routines"), boot=None)

    # The past -----------------------------------------------------------------------------------

    def seen(self, name: str, spec: Mapping[str, Any], *, since: datetime = SEEN) -> None:
        spec = from_spec(dict(spec)).spec()
        cursor = Cursor(routine=name, first_seen_at=SEEN, since=since, schedule=spec)
        CursorStore(self.state).write(cursor)

    def cron(self, name: str, pattern: str, more: str = "", *, since: datetime = SEEN) -> None:
        """A routine with a cron pattern that a scheduler has seen."""
        self.routine(name, f'cron: "{pattern}"\n{more}')
        self.seen(name, {"cron": [pattern], "tz": "Europe/Berlin"}, since=since)

    def scheduler(self, *, alive: bool = True, **changes: Any) -> None:
        known = {
            "started_at": NOW - timedelta(days=3, hours=2),
            "beat_at": NOW - timedelta(seconds=4),
        }
        one = scheduler(**(known | changes))
        store = SchedulerStore(self.state)
        fd = store.enter(one)
        if alive:
            self._held.append(fd)
        else:
            locks.let_go(fd)
            store.leave(one, None)

    def claim(
        self,
        name: str,
        slot: datetime,
        *,
        kind: Kind = Kind.SLOT,
        occurrence_id: str = "",
        late: timedelta = timedelta(0),
        **line: Any,
    ) -> Claim:
        """A claim of the scheduler, still open and held."""
        occurrence = Occurrence(kind, name, slot, occurrence_id)
        session = line.pop("session", f"routine:{name}")
        first = {
            "routine": name,
            "session": session,
            "trigger": "schedule",
            "by": "ana@studio",
            "tz": "Europe/Berlin",
            "due_at": format_instant(slot),
            "agent": "echo",
            "cwd": str(self.root),
            "key": f"key/{occurrence.ref}",
            "prompt": "Look.",
            "owner": owner().to_json(),
        }
        at = slot + late + timedelta(milliseconds=8)
        claim = ClaimStore(self.state).take(Draft(occurrence, first | line), at=at)
        assert claim is not None
        self._held.append(claim)
        return claim

    def started(
        self, claim: Claim, *, turn: int = 1, late: timedelta = timedelta(0), **more: Any
    ) -> Claim:
        at = claim.occurrence.instant + late + timedelta(milliseconds=40)
        line = {
            "owner": owner().to_json(),
            "session": claim.record.session,
            "epoch": 1,
            "turn": turn,
            "agent": "claude-code",
            "agent_version": "claude 2.1.332",
            "late_s": late.total_seconds(),
        }
        claim.append(Event.STARTED, at=at, **(line | more))
        return claim

    def done(
        self,
        name: str,
        slot: datetime,
        outcome: str = "completed",
        reason: str | None = None,
        detail: str = "",
        *,
        took: float = 41,
        turn: int = 1,
        late: timedelta = timedelta(0),
        claim: Mapping[str, Any] | None = None,
        **end: Any,
    ) -> str:
        """A turn that has ended; returns its id."""
        opened = self.claim(name, slot, late=late, **(claim or {}))
        self.started(opened, turn=turn, late=late)
        return self.end(opened, outcome, reason, detail, took=took, late=late, **end)

    def end(
        self,
        claim: Claim,
        outcome: str = "completed",
        reason: str | None = None,
        detail: str = "",
        *,
        took: float = 41,
        late: timedelta = timedelta(0),
        **end: Any,
    ) -> str:
        claim.settle(
            Outcome(outcome),
            None if reason is None else Reason(reason),
            detail,
            at=claim.occurrence.instant + late + timedelta(seconds=took),
            duration_s=took,
            **end,
        )
        claim.let_go()
        return claim.record.ref

    def settled(
        self, name: str, slot: datetime, outcome: str, reason: str, detail: str = ""
    ) -> None:
        """A slot that was claimed and settled in one moment."""
        end = outcome_event(at=slot, outcome=Outcome(outcome), reason=Reason(reason), detail=detail)
        draft = Draft(
            Occurrence(Kind.SLOT, name, slot), {"routine": name, "trigger": "schedule"}, end
        )
        claim = ClaimStore(self.state).take(draft, at=slot)
        assert claim is not None
        claim.let_go()

    def output(self, claim_or_place: str, **texts: str) -> None:
        folder = Path(self.state.at("output", claim_or_place))
        folder.mkdir(parents=True)
        for name, text in texts.items():
            ending = "md" if name in ("prompt", "reply") else "log"
            (folder / f"{name}.{ending}").write_text(text)

    def gave_up(self, name: str, after: datetime, last: datetime, reason: str, **more: Any) -> None:
        cursor = CursorStore(self.state).peek(name)
        record = Missed(
            routine=name,
            after=after,
            last=last,
            reason=Reason(reason),
            at=NOW,
            schedule=None if cursor is None else cursor.schedule,
            **more,
        )
        CursorStore(self.state).give_up(record)

    def session(self, session: str, **changes: Any) -> None:
        lease = SessionStore(self.state).take(session, clock=self.clock)
        lease.write(Ledger(session=session, **changes))
        lease.let_go()

    # Asking -------------------------------------------------------------------------------------

    def ask(self, *args: str, width: int = 80, cwd: Path | None = None) -> Answer:
        """Call the command line as a person in the workspace does."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(
                list(args),
                clock=self.clock,
                environ=self.environ,
                cwd=str(cwd or self.root),
                width=width,
            )
        return Answer(code, out.getvalue(), err.getvalue())

    def close(self) -> None:
        # Once: a number that was closed may be somebody else's by now.
        held_until_now, self._held = self._held, []
        for held in held_until_now:
            if isinstance(held, Claim):
                held.let_go()
            else:
                with contextlib.suppress(OSError):
                    locks.let_go(held)


@contextlib.contextmanager
def world(home: Path, **changes: Any) -> Iterator[World]:
    made = World(home, **changes)
    try:
        yield made
    finally:
        made.close()
