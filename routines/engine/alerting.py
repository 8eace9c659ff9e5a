"""Telling somebody: what the files say is wrong, once, whoever found it and whoever has died."""

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from routines.domain import alerting
from routines.domain.alerting import Step, Told, Trouble, Weight
from routines.domain.clock import Clock
from routines.domain.names import instant_name, safe_name
from routines.domain.occurrence import Kind
from routines.domain.outcome import Outcome, Reason, State
from routines.domain.record import Record
from routines.domain.routine import CatchUpPolicy, Routine
from routines.domain.silence import silent_since
from routines.domain.targets import Target
from routines.domain.zones import local_text, zone
from routines.engine.definitions import Definitions
from routines.engine.delivering import Message, deliver, plain_environment
from routines.errors import RoutinesError, StoreBusy
from routines.store.alerts import AlertStore
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.state import State as StateFolder
from routines.store.switches import SwitchStore

log = logging.getLogger("routines")

# Every routine is looked at so often, whatever this process was told of.
_LOOK_EVERY_S = 60.0
# A file that is broken for so long is not just being written.
_BROKEN_FOR_S = 60.0
# Of ten thousand routines a pass looks at so many: their slots must not wait for it.
_A_PASS = 50
# How far back it is looked for a problem's beginning, and for what last completed.
_LOOK_BACK = 200
_LOOK_BACK_FOR_COMPLETED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Something that is told now.

    Attributes:
        routine: Of which; empty for routines.yaml.
        topic: Of what of it.
        told: What was decided.
        targets: Who does not have it yet.
        is_new: Whether it is said for the first time.
    """

    routine: str
    topic: str
    told: Told
    targets: tuple[Target, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class _End:
    """One end in the history of a routine."""

    instant: datetime
    ended_at: datetime
    weight: Weight
    what: str
    why: str
    completed: bool
    gated: bool
    began_at: datetime | None = None


@dataclass(slots=True)
class _Health:
    trouble: Trouble | None = None
    well_since: datetime | None = None


class Alerter:
    """Decides what is told of the routines of one state folder, and tells it.

    Args:
        state: The state folder.
        definitions: The routines, and who is told.
        clock: Tells the time.
        is_resident: Whether it looks again and again; else each look is at everything.
    """

    def __init__(
        self, state: StateFolder, *, definitions: Definitions, clock: Clock, is_resident: bool
    ) -> None:
        self._state = state
        self._definitions = definitions
        self._clock = clock
        self._is_resident = is_resident
        self._alerts = AlertStore(state)
        self._claims = ClaimStore(state)
        self._cursors = CursorStore(state)
        self._switches = SwitchStore(state)
        self._asked: set[str] = set()
        self._queue: deque[str] = deque()
        self._looked_at = float("-inf")
        self._broken_since: dict[str, float] = {}
        self._stops = False

    # Looking -------------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """Whether anything was settled since the last look."""
        return bool(self._asked)

    def look_at(self, name: str | None) -> None:
        """Look at a routine, or at the workspace if None, at the next look."""
        self._asked.add(name or "")

    def settled(self, record: Record) -> None:
        """Look at the routine of *record* at the next look, and not within the minute."""
        if record.routine is not None:
            self._asked.add(record.routine)

    def look(
        self, now: datetime, *, only_asked: bool = False, watched_since: datetime | None = None
    ) -> list[Telling]:
        """Decide what is told now.

        Args:
            now: The present.
            only_asked: Whether to look at nothing but what was settled since the last look.
            watched_since: Since when this process has been looking without a break: what is still
                being caught up is not silent. None if that does not matter.
        """
        tellings: list[Telling] = []
        for name in self._next(only_asked=only_asked):
            try:
                tellings += self._one(name, now, watched_since)
            except StoreBusy:
                # Another process is deciding the very same.
                continue
            except Exception:
                # What goes wrong with one alert must end no pass and silence no other alert.
                log.exception("alert-failed", extra={"routine": name})
        return tellings

    def _next(self, *, only_asked: bool) -> list[str]:
        asked, self._asked = self._asked, set()
        if only_asked:
            return sorted(asked)
        awake = self._clock.awake()
        if awake - self._looked_at >= _LOOK_EVERY_S and not self._queue:
            self._looked_at = awake
            self._queue.extend(["", *self._definitions.routines, *self._definitions.faults])
        most = _A_PASS if self._is_resident else len(self._queue)
        names = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        return list(dict.fromkeys([*asked, *names]))

    def _one(self, name: str, now: datetime, watched_since: datetime | None) -> list[Telling]:
        known = self._alerts.peek(name)
        routine = self._definitions.routines.get(name)
        found = {"file": self._file(name, routine, now), "held": self._held(name, now)}
        if routine is not None and self._is_watched(routine, now):
            told = known.get("turns", Told())
            found["turns"] = self._turns(routine, told, now, watched_since)
        tellings = []
        for topic, health in found.items():
            told = known.get(topic, Told())
            if self._decide(told, health, now) is not Step.NOTHING:
                telling = self._tell(name, topic, routine, health, now)
                tellings += [] if telling is None else [telling]
        return tellings

    def _decide(self, told: Told, health: _Health, now: datetime) -> Step:
        return alerting.decide(told, now=now, trouble=health.trouble, well_since=health.well_since)

    def _tell(
        self, name: str, topic: str, routine: Routine | None, health: _Health, now: datetime
    ) -> Telling | None:
        """Decide once more under the lock, and write down what is told before it is."""
        with self._alerts.section(name):
            known = self._alerts.read(name)
            told = known.get(topic, Told())
            step = self._decide(told, health, now)
            if step is Step.NOTHING:
                return None
            targets = self._definitions.alert if routine is None else routine.alert
            by_key = {target_key(one): one for one in targets}
            if step is Step.SEND_AGAIN:
                told = alerting.after(step, told, now=now)
                wanted = [key for key in told.unsent if key in by_key]
            else:
                title, body = self._text(name, routine, told, step, health, now)
                kind = "" if health.trouble is None else health.trouble.kind
                wanted = list(by_key)
                told = alerting.after(
                    step, told, now=now, kind=kind, title=title, body=body, targets=wanted
                )
            self._alerts.write(name, {**known, topic: told})
        return Telling(
            routine=name,
            topic=topic,
            told=told,
            targets=tuple(by_key[key] for key in wanted),
            is_new=step is not Step.SEND_AGAIN,
        )

    def _text(
        self,
        name: str,
        routine: Routine | None,
        told: Told,
        step: Step,
        health: _Health,
        now: datetime,
    ) -> tuple[str, str]:
        place = zone(self._definitions.zone if routine is None else routine.zone)

        def say(instant: datetime) -> str:
            return local_text(instant.replace(microsecond=0), place)

        root = self._definitions.root
        if step is Step.RECOVERY or health.trouble is None:
            since = health.well_since or now
            return alerting.recovery_text(name, told, root=root, well_since=since, say=say)
        coming = None
        if routine is not None and routine.schedule is not None and routine.enabled:
            coming = routine.schedule.next_after(now)
        return alerting.alert_text(
            name,
            health.trouble,
            root=root,
            last_completed=None if routine is None else self._last_completed(routine, now),
            next_slot=coming,
            say=say,
        )

    # How a routine is ----------------------------------------------------------------------------

    def _file(self, name: str, routine: Routine | None, now: datetime) -> _Health:
        why = self._definitions.faults.get(name)
        if why is not None and self._is_resident:
            # A file is broken for a moment whenever somebody writes it.
            awake = self._clock.awake()
            if awake - self._broken_since.setdefault(name, awake) < _BROKEN_FOR_S:
                return _Health()
        if why is None:
            self._broken_since.pop(name, None)
            # Whatever was told of it is over; nothing is told that was not.
            return _Health(well_since=now)
        what = "can't be used, as seen"
        if routine is not None:
            what = "can't be used, and runs in its last good version, as seen"
        return _Health(trouble=Trouble(kind="broken", at=now, what=what, why=why))

    def _held(self, name: str, now: datetime) -> _Health:
        """Return whether a turn has paused it: a person who does that knows it."""
        switch = self._switches.read(name or None)
        if switch is None or (switch.until is not None and switch.until <= now):
            return _Health(well_since=now)
        if not self._state.is_turn(switch.by):
            return _Health()
        why = f"by the turn {switch.by}" + (f": {switch.reason}" if switch.reason else "")
        return _Health(trouble=Trouble(kind="paused", at=switch.since, what="paused", why=why))

    def _is_watched(self, routine: Routine, now: datetime) -> bool:
        return routine.enabled and self._switches.held(routine.name, now=now) is None

    def _turns(
        self, routine: Routine, told: Told, now: datetime, watched_since: datetime | None
    ) -> _Health:
        need = 1 if told.open else alerting.threshold(routine.schedule, now)
        bad: list[_End] = []
        newest: _End | None = None
        well: _End | None = None
        begun: list[datetime] = []
        for end in islice(self._ends(routine, now), _LOOK_BACK):
            if newest is None and (end.completed or (end.gated and routine.silent_for is None)):
                newest = end
            if newest is None and end.began_at is not None:
                begun.append(end.began_at)
            if end.weight is Weight.WELL:
                well = end
                break
            if end.weight is Weight.PROBLEM:
                bad.append(end)
                if len(bad) >= need:
                    return _Health(trouble=_failing(bad))
        waiting = [self._claims.read_path(one) for one in self._open_paths(routine)]
        for record in waiting:
            if record is not None and record.written_state is State.PARKED:
                return _Health(trouble=_parked(record))
        begun += [one.claimed_at or one.due_at for one in waiting if one]
        silent = self._silent(routine, newest, begun, now, watched_since)
        if silent is not None or bad:
            return _Health(trouble=silent)
        return _Health(well_since=None if well is None else well.ended_at)

    def _open_paths(self, routine: Routine) -> list[str]:
        return [entry.claim_path for entry in self._claims.open_entries(routine=routine.name)]

    def _silent(
        self,
        routine: Routine,
        newest: _End | None,
        begun: list[datetime],
        now: datetime,
        watched_since: datetime | None,
    ) -> Trouble | None:
        cursor = self._cursors.peek(routine.name)
        if cursor is None:
            return None
        bases = [cursor.since, cursor.first_seen_at]
        if newest is not None:
            bases.append(newest.ended_at)
        since = silent_since(
            now=now,
            base=max(bases),
            schedule=routine.schedule,
            silent_for=routine.silent_for,
            timeout=routine.timeout,
            watched_since=watched_since,
            begun=begun,
        )
        if since is None:
            return None
        return Trouble(kind="silent", at=since, what="nothing has completed since")

    def _last_completed(self, routine: Routine, now: datetime) -> datetime | None:
        ends = islice(self._ends(routine, now), _LOOK_BACK_FOR_COMPLETED)
        return next((end.instant for end in ends if end.completed), None)

    def _ends(self, routine: Routine, now: datetime) -> Iterator[_End]:
        """Yield how its slots, runs by hand and wake-ups ended, newest first."""
        made_good = routine.catch_up is not CatchUpPolicy.NONE
        session = f"routine:{routine.name}"
        folders = [safe_name(routine.name), f"wake/{safe_name(session)}"]
        makers: list[Iterator[tuple[str, Callable[[], _End | None]]]] = [
            (
                (path.rpartition("/")[2][: len("2026-07-01T09-00-00Z")], self._reader(path))
                for path in self._claims.walk(folders, until=now)
            ),
            (
                (instant_name(one.last), _ended_missed(one, made_good=made_good))
                for one in self._cursors.missed(routine.name, until=now)
            ),
        ]
        for _, make in merge(*makers, key=lambda one: one[0], reverse=True):
            end = make()
            if end is not None:
                yield end

    def _reader(self, path: str) -> Callable[[], _End | None]:
        def read() -> _End | None:
            record = self._claims.read_path(path)
            return None if record is None else _ended(record)

        return read

    # Telling -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End what is being sent; it is sent again by whoever looks next."""
        self._stops = True

    def send(self, telling: Telling) -> None:
        """Send what is told to its targets, and note what became of it."""
        try:
            self._send(telling)
        except Exception:
            log.exception("alert-not-sent", extra={"routine": telling.routine})

    def _send(self, telling: Telling) -> None:
        told = telling.told
        at = told.recovered_at or told.at
        root = self._definitions.root
        stem = "" if at is None else f".{instant_name(at)}"
        env = plain_environment(os.environ, root=root) | {
            "ROUTINES_STATE": self._state.path,
            "ROUTINES_ROUTINE": telling.routine,
        }
        results = deliver(
            telling.targets,
            Message(
                title=told.title,
                body=told.body,
                name=f"{safe_name(telling.routine or 'routines')}.{told.word}{stem}.md",
                word=told.word,
            ),
            env=env,
            cwd=root,
            clock=self._clock,
            stop_requested=lambda: "now" if self._stops else None,
        )
        for one in results:
            if not one.ok:
                log.warning(
                    "alert-not-sent",
                    extra={"routine": telling.routine, "to": one.to, "error": one.detail},
                )
        if self._stops and not all(one.ok for one in results):
            return
        pairs = zip(telling.targets, results, strict=True)
        unsent = tuple(target_key(target) for target, one in pairs if not one.ok)
        self._note(telling, unsent, tuple(one.to_json() for one in results))

    def _note(
        self, telling: Telling, unsent: tuple[str, ...], results: tuple[dict[str, Any], ...]
    ) -> None:
        try:
            with self._alerts.section(telling.routine):
                known = self._alerts.read(telling.routine)
                told = known.get(telling.topic)
                if told is None or (told.word, told.title, told.body) != (
                    telling.told.word,
                    telling.told.title,
                    telling.told.body,
                ):
                    # Something newer was told meanwhile.
                    return
                new = alerting.sent(told, now=self._clock.now(), unsent=unsent, results=results)
                self._alerts.write(telling.routine, {**known, telling.topic: new})
        except RoutinesError as error:
            # It then counts as unsent, and is sent once more: twice is better than never.
            log.warning(
                "alert-not-noted", extra={"routine": telling.routine, "error": error.message}
            )


def target_key(target: Target) -> str:
    """Return what tells a target from others, without its secrets."""
    text = json.dumps(target.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _failing(bad: list[_End]) -> Trouble:
    newest = bad[0]
    return Trouble(
        kind="failing",
        at=newest.instant,
        what=newest.what,
        why=newest.why,
        count=len(bad),
        since=bad[-1].instant,
    )


def _parked(record: Record) -> Trouble:
    why = str(record.events[-1].get("detail") or "") if record.events else ""
    return Trouble(kind="parked", at=record.due_at, what="parked", why=why)


def _ended(record: Record) -> _End | None:
    end = record.end
    if end is None or record.outcome is None:
        return None
    warnings = [str(one) for one in end.get("warnings") or ()]
    completed = record.outcome is Outcome.COMPLETED
    return _End(
        instant=record.occurrence.instant,
        ended_at=record.ended_at or record.occurrence.instant,
        weight=alerting.weight(
            record.occurrence.kind, record.outcome, record.reason, warned=bool(warnings)
        ),
        what=record.outcome.value,
        why=alerting.end_text(
            None if record.reason is None else record.reason.value,
            str(end.get("detail") or ""),
            warnings,
        ),
        completed=completed and record.occurrence.kind is not Kind.WAKE,
        gated=record.reason is Reason.GATE and record.outcome is Outcome.SKIPPED,
        began_at=None if record.occurrence.kind is Kind.WAKE else record.started_at,
    )


def _ended_missed(missed: Any, *, made_good: bool) -> Callable[[], _End | None]:
    def make() -> _End:
        return _End(
            instant=missed.last,
            ended_at=missed.at,
            weight=alerting.weight(Kind.SLOT, Outcome.MISSED, missed.reason, made_good=made_good),
            what=Outcome.MISSED.value,
            why=alerting.end_text(missed.reason.value, missed.detail, ()),
            completed=False,
            gated=False,
        )

    return make
