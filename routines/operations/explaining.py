"""`explain`: why a slot ran, did not run, or is unknown; from the files alone."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from routines.domain.alerting import PAIR_EVERY
from routines.domain.delivery_time import HUNG
from routines.domain.names import parse_instant
from routines.domain.occurrence import Kind, Occurrence
from routines.domain.outcome import STILL_RUNNING, Reason
from routines.domain.record import Record
from routines.domain.routine import Routine, schedule_key
from routines.domain.schedule import Schedule, from_spec
from routines.domain.zones import EARLIEST, local_text
from routines.errors import InvalidFiles, RoutinesError, UnknownOccurrence
from routines.operations.ahead import ahead_of
from routines.operations.context import Context
from routines.operations.entries import Entry, asked_to_end
from routines.operations.explanation import Explanation, Verdict, escaped, silence
from routines.operations.finding import (
    Named,
    check_known,
    covering,
    named_at,
    newest,
    next_day,
    slot_within,
)
from routines.operations.history import as_entry
from routines.operations.last_good import LastGood, last_good
from routines.operations.life import schedulers
from routines.operations.pending import Due, Held, due_slots, due_words, held_by, open_claims
from routines.operations.reasons import SENTENCES
from routines.operations.steps import Step, steps_of
from routines.store.claims import ClaimStore
from routines.store.cursors import Cursor, CursorStore, Missed, Standing

_SECOND = timedelta(seconds=1)
# An alert follows what it tells of within a look or two.
_TOLD_WITHIN = timedelta(minutes=2)
# How a routine was last seen, where its file has been in force again since, unseen.
_CHANGED = {
    Standing.ARMED: "its schedule was changed before it could start",
    Standing.DISABLED: "it was disabled when a scheduler last saw it",
    Standing.NOT_ARMED: "its file could not be used when a scheduler last saw it",
    Standing.ABSENT: "it had no file when a scheduler last saw it",
}


def explain(context: Context, routine: str, when: str | None = None) -> Explanation:
    """Return why the slot of *routine* at *when* ran, did not run, or is unknown.

    Args:
        context: Where and when.
        routine: Its name; `NAME@WHEN` is understood too, and the id of a job, of a wake-up or its
            firing, and of a run by hand.
        when: WHEN, or None for the newest slot.

    Raises:
        UnknownRoutine: There never was a routine of that name.
        InvalidFiles: Its file is broken, and nothing is recorded of it.
        UnknownOccurrence: It has no schedule, or is an id, and nothing is recorded of it.
        UnknownJob: There is no such job.
    """
    from routines.operations.id_explaining import explain_id
    from routines.operations.job_explaining import explain_job

    if when is None:
        other = explain_job(context, routine) or explain_id(context, routine)
        if other is not None:
            return other
    name, _, after = routine.partition("@")
    when = when or after or None
    check_known(context, name)
    explainer = _Explainer(context, name)
    found = explainer.explain(when)
    return replace(
        found,
        newest=when is None and explainer.is_newest(found),
        paused=held_by(explainer.state, name, now=explainer.now),
        alive=explainer.alive.alive,
        stale=explainer.kept is not None,
    )


class _Explainer:
    """What all answers about one routine need."""

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.name = name
        self.now = context.clock.now()
        self.state = context.state_or_none
        self.routine: Routine | None = context.workspace.routines.get(name)
        self.cursor: Cursor | None = (
            None if self.state is None else CursorStore(self.state).peek(name)
        )
        self.alive = schedulers(self.state, now=self.now)
        self.kept: LastGood | None = last_good(context, self.alive).get(name)
        self.schedule = self._schedule()

    def _schedule(self) -> Schedule | None:
        if self.routine is not None:
            return self.routine.schedule
        if self.kept is not None and self.kept.timetable is not None:
            return self.kept.timetable.schedule
        if self.cursor is None or self.cursor.schedule is None:
            return None
        try:
            # Its file is broken or gone: what it was last seen with is the best that is known.
            return from_spec(self.cursor.schedule)
        except RoutinesError:
            return None

    def explain(self, when: str | None) -> Explanation:
        named = Named(self.name, None) if when is None else named_at(self.context, self.name, when)
        found = self._recorded(named)
        if isinstance(found, Record):
            return self._of_record(found)
        at = self._instant(named, found)
        if found is None and at > self.now:
            # It may be dealt with all the same, by a clock that was ahead.
            found = self._recorded_at(at)
        if isinstance(found, Record):
            return self._of_record(found)
        if isinstance(found, Missed):
            schedule = self._schedule_of(found)
            if schedule is not None and not schedule.names(at):
                # It lies between two of the slots that were counted.
                return self._not_named(at, schedule)
            return self._of_missed(found, at)
        return self._without_record(at)

    def is_newest(self, found: Explanation) -> bool:
        """Return whether what was found is what its routine's name stands for elsewhere."""
        if self.state is None or found.entry is None:
            return False
        try:
            last = newest(self.state, self.name, until=self.now + _SECOND)
        except UnknownOccurrence:
            return False
        return as_entry(self.context, last).id == found.entry.id

    def _recorded(self, named: Named) -> Record | Missed | None:
        """Return what is recorded of what was named; for a bare name of its newest slot."""
        if self.state is None:
            return None
        try:
            if named.at is None:
                return self._newest()
            if named.whole_day:
                until = next_day(self.context, named) - _SECOND
                scheduled = self.schedule is not None
                return newest(
                    self.state,
                    self.name,
                    since=named.at,
                    until=until,
                    slots_only=scheduled,
                    now=self.now,
                )
        except UnknownOccurrence:
            return None
        return self._recorded_at(named.at.replace(microsecond=0))

    def _recorded_at(self, at: datetime) -> Record | Missed | None:
        if self.state is None:
            return None
        record = ClaimStore(self.state).read(Occurrence(Kind.SLOT, self.name, at))
        return record or covering(self.state, self.name, at, now=self.now)

    def _newest(self) -> Record | Missed | None:
        if self.state is None:
            return None
        # What a run by hand came to says nothing of the schedule.
        scheduled = self.schedule is not None
        found = newest(self.state, self.name, until=self.now + _SECOND, slots_only=scheduled)
        at = found.last if isinstance(found, Missed) else found.occurrence.instant
        slot = None if self.schedule is None else self.schedule.newest_at_or_before(self.now)
        # A slot that passed since then and has no record is what is asked about.
        return None if slot is not None and slot > at and self._counts(slot) else found

    def _counts(self, slot: datetime) -> bool:
        return self.cursor is not None and slot > self.cursor.since

    def _instant(self, named: Named, found: Missed | None) -> datetime:
        if named.at is not None and not named.whole_day:
            return named.at.replace(microsecond=0)
        until = self.now if named.at is None else next_day(self.context, named) - _SECOND
        if found is not None:
            # One record may count many days: of the day that was named its newest slot is meant.
            return found.last if named.at is None else slot_within(found, until) or found.last
        slot = None if self.schedule is None else self.schedule.newest_at_or_before(until)
        slot = slot or (None if self.schedule is None else self.schedule.next_after(self.now))
        if slot is None and self.name in self.context.workspace.broken:
            # "It has no schedule" would send a person away from what is wrong.
            raise InvalidFiles(self.context.workspace.broken[self.name])
        if slot is None:
            raise UnknownOccurrence(
                f"nothing is recorded of {self.name}, and it has no schedule",
                hint=f"`routines run {self.name}` runs it now",
            )
        return slot

    def _answer(self, at: datetime, verdict: Verdict, why: str, *instants: datetime) -> Explanation:
        return Explanation(
            routine=self.name,
            at=at,
            tz=self.context.zone_of(self.name).key,
            verdict=verdict,
            why=why,
            instants=instants,
            next=self._next(),
            known=self.routine is not None,
        )

    def _next(self) -> datetime | None:
        fires = self.kept is not None if self.routine is None else self.routine.enabled
        if not fires or self.schedule is None:
            return None
        return ahead_of(self.state, self.name, now=self.now).next_after(self.schedule, self.now)

    # With a record ------------------------------------------------------------------------------

    def _of_record(self, record: Record) -> Explanation:
        entry = as_entry(self.context, record)
        cancel = None if self.state is None else asked_to_end(self.state, record)
        return Explanation(
            routine=self.name,
            at=record.occurrence.instant,
            tz=self.context.zone_of(self.name).key,
            verdict=Verdict.RECORDED,
            entry=entry,
            steps=(
                *steps_of(
                    record,
                    entry,
                    self.schedule,
                    digest=self._digest(),
                    digest_there=self._digest_there(record),
                    cancel=cancel,
                ),
                *self._delivery_steps(record),
                *self._alert_steps(entry),
                *self._ahead_steps(record.occurrence.instant),
            ),
            next=self._next(),
            known=self.routine is not None,
        )

    def _delivery_steps(self, record: Record) -> list[Step]:
        """Return which delivery hung of the turn that a slot was skipped for, if one did."""
        if record.reason is not Reason.OVERLAP or self.state is None:
            return []
        ref = str((record.end or {}).get("detail") or "").removesuffix(STILL_RUNNING)
        try:
            at = parse_instant(ref.removeprefix(f"{self.name}@"))
        except ValueError:
            return []
        before = ClaimStore(self.state).read(Occurrence(Kind.SLOT, self.name, at))
        if before is None or before.ended_at is None:
            return []
        hung = [
            f"{one.get('to')}, {one.get('detail')}"
            for one in (before.end or {}).get("delivered") or ()
            if str(one.get("detail") or "").startswith(HUNG)
        ]
        if not hung:
            return []
        return [Step(before.ended_at, "delivery", f"of {ref} hung: {'; '.join(hung)}")]

    def _ahead_steps(self, at: datetime) -> list[Step]:
        """Return that a slot was dealt with before its time, by a clock that was ahead."""
        if at <= self.now:
            return []
        when = local_text(at, self.context.zone_of(self.name))
        return [Step(None, "ahead", f"of now: a clock was wrong. It does not run again {when}")]

    def _alert_steps(self, entry: Entry) -> list[Step]:
        """Return who was told of a slot that did not do its work, or why nobody was."""
        if not entry.needs_a_person or entry.ended_at is None or self.state is None:
            return []
        from routines.store.alerts import AlertStore

        told = AlertStore(self.state).peek(self.name).get("turns")
        if told is None or told.at is None:
            return []
        when = local_text(told.at.replace(second=0, microsecond=0), self.context.zone_of(self.name))
        sent = [str(one.get("to")) for one in told.results if one.get("ok")]
        where = ", ".join(["the log", *sent])
        if timedelta(0) <= told.at - entry.ended_at < _TOLD_WITHIN:
            return [Step(told.at, "alert", f"told {where}; the next word is the recovery")]
        if told.at > entry.ended_at:
            return []
        if told.open:
            return [Step(None, "no alert", f"told {when}; the next word is the recovery")]
        if entry.ended_at - told.at < PAIR_EVERY:
            return [Step(None, "no alert", f"told {when}, and well again since; once in 6 h")]
        return []

    def _digest(self) -> str | None:
        return None if self.routine is None else self.routine.digest()

    def _schedule_of(self, missed: Missed) -> Schedule | None:
        """Return the schedule whose slots were given up; None if it can't be read."""
        if missed.schedule is None:
            return None
        try:
            return from_spec(missed.schedule)
        except RoutinesError:
            return None

    def _digest_there(self, record: Record) -> str | None:
        """Return the digest of its file as it is now, if the workspace stood where it did then."""
        then = (record.started or {}).get("cwd") or record.claim.get("cwd")
        if self.routine is None or self.routine.cwd is None or not isinstance(then, str):
            return None
        root = self.context.workspace.root.path
        within = self.routine.cwd.removeprefix(root)
        if not then.endswith(within):
            return None
        return self.routine.digest(moved=(root, then.removesuffix(within)))

    def _of_missed(self, missed: Missed, at: datetime) -> Explanation:
        entry = as_entry(self.context, missed)
        return Explanation(
            routine=self.name,
            at=at,
            tz=self.context.zone_of(self.name).key,
            verdict=Verdict.MISSED,
            why=escaped(missed.detail) or SENTENCES[missed.reason],
            instants=(missed.at,),
            entry=entry,
            next=self._next(),
            known=self.routine is not None,
        )

    # Without one --------------------------------------------------------------------------------

    def _without_record(self, at: datetime) -> Explanation:
        if self.schedule is None:
            return self._answer(
                at, Verdict.NEVER_DUE, f"{escaped(self.name)} has no schedule; it is run by name"
            )
        if not self.schedule.names(at):
            return self._not_named(at, self.schedule)
        if at > self.now:
            return self._ahead(at)
        if self.cursor is None:
            return self._answer(
                at, Verdict.NEVER_DUE, f"no scheduler has seen {escaped(self.name)} yet"
            )
        if at <= self.cursor.first_seen_at:
            why = f"{escaped(self.name)} was first seen {{0}}; it owes nothing from before"
            return self._answer(at, Verdict.NEVER_DUE, why, self.cursor.first_seen_at)
        if at <= self.cursor.since:
            why = "it counts from {0}: its schedule was changed then, or it was switched on again"
            return self._answer(at, Verdict.NEVER_DUE, why, self.cursor.since)
        due_at = self._due_at(at)
        if due_at > self.now:
            why = "{0} falls due {1}, by its jitter"
            return self._answer(at, Verdict.NOT_YET, why, at, due_at)
        before = self._seen_otherwise()
        if before is not None and not _names(before.schedule, at):
            why = "its schedule was changed, and counts from when a scheduler has seen that"
            return self._answer(at, Verdict.NEVER_DUE, why)
        paused = held_by(self.state, self.name, now=self.now)
        if paused is not None and at > self._newest_dealt_with():
            return self._held_back(at, paused)
        if before is not None and not self._is_not_armed() and at > self._newest_dealt_with():
            why = _CHANGED[before.standing] + ": the next start or tick records it as missed"
            return self._answer(at, Verdict.OWED, why)
        due = self._due()
        if due is not None and due.owed.base < at <= due.slot:
            return self._pending(at, due)
        return self._gone(at)

    def _due_at(self, at: datetime) -> datetime:
        """Return when a slot falls due: its jitter later."""
        timetable = None if self.routine is None else self.routine.timetable
        if self.kept is not None:
            timetable = self.kept.timetable
        if self._is_not_armed():
            return at
        return at if timetable is None else timetable.due_at(at)

    def _seen_otherwise(self) -> Cursor | None:
        """Return how the routine was last seen, if its file says otherwise now."""
        if self.cursor is None or self.routine is None:
            return None
        same = self.cursor.standing is Standing.ARMED or not self.routine.enabled
        seen = self.cursor.schedule == schedule_key(self.routine)
        return None if seen and same else self.cursor

    def _newest_dealt_with(self) -> datetime:
        """Return the newest slot that has a record; the time it counts from if none has."""
        since = EARLIEST if self.cursor is None else self.cursor.since
        if self.state is None:
            return since
        try:
            last = newest(self.state, self.name, until=self.now, slots_only=True)
        except UnknownOccurrence:
            return since
        return max(since, last.last if isinstance(last, Missed) else last.occurrence.instant)

    def _held_back(self, at: datetime, paused: Held) -> Explanation:
        who, instants = _pause_words(paused, 0)
        if paused.besides is not None:
            more, instants_too = _pause_words(paused.besides, len(instants))
            who, instants = f"{who}; {more}", [*instants, *instants_too]
        if self.schedule is not None and self.schedule.next_after(self.now) is None:
            too_late = self._is_too_late(at, max(self.now, paused.until or self.now))
            meets = "is recorded as missed: too-late" if too_late else "fires"
            then = f"It {meets} when that ends"
        else:
            since = min(one.since for one in (paused, paused.besides) if one is not None)
            reason = "paused" if at > since else "no-scheduler"
            then = f"It is recorded as missed: {reason} when that ends"
        return self._answer(at, Verdict.PAUSED, f"{who}. {then}", *instants)

    def _is_too_late(self, at: datetime, then: datetime) -> bool:
        """Return whether the slot can't start any more at *then*."""
        timetable = None if self.routine is None else self.routine.timetable
        if self.routine is None or timetable is None or self.routine.start_within is None:
            return False
        return then - timetable.due_at(at) > self.routine.start_within

    def _not_named(self, at: datetime, schedule: Schedule) -> Explanation:
        before, after = schedule.newest_at_or_before(at), schedule.next_after(at)
        near = [one for one in (before, after) if one is not None]
        text = escaped(schedule.text())
        why = f"{{0}} is not in '{text}'."
        if len(near) == 2:  # noqa: PLR2004 - one on each side
            why += " The nearest slots are {1} and {2}"
        elif near:
            why += " The nearest slot is {1}"
        return self._answer(at, Verdict.NEVER_DUE, why, at, *near)

    def _ahead(self, at: datetime) -> Explanation:
        from routines.operations.deciding import START, Decider

        if self.kept is not None:
            held = Decider(self.context).paused(self.name, self.kept.zone, at)
            would = "as things stand it would run, in its last good version"
            meets = f"as things stand: {held}" if held else would
        elif self.routine is None:
            meets = "its file can't be used now: it would not run"
        elif not self.routine.enabled:
            meets = "it is disabled: it would not run"
        else:
            found = Decider(self.context).decide(self.routine, at)
            meets = (
                "as things stand it would run" if found == START else f"as things stand: {found}"
            )
        return self._answer(at, Verdict.NOT_YET, f"{{0}} is ahead; {escaped(meets)}", at)

    def _due(self) -> Due | None:
        if self.routine is None:
            return None
        found = due_slots(
            self.state,
            self.context.workspace.routines.values(),
            now=self.now,
            alive=self.alive,
            opened=open_claims(self.state),
            known=self.context.workspace.routines,
            concurrency=self.context.workspace.settings.concurrency,
        )
        return found.get(self.name)

    def _pending(self, at: datetime, due: Due) -> Explanation:
        if self.alive.alive:
            words = due_words(
                due, self.alive, concurrency=self.context.workspace.settings.concurrency
            )
            return self._answer(at, Verdict.WAITING, escaped(words))
        said, instants = silence(self.alive)
        return self._answer(at, Verdict.OWED, f"{said}. {self._then(at, due)}", *instants)

    def _then(self, at: datetime, due: Due) -> str:
        policy = "" if self.routine is None else self.routine.catch_up.value
        if due.first is not None and at >= due.first:
            return f"The next start runs it: catch_up is {policy}"
        if due.too_late:
            return "start_within has passed: the next start records it as missed"
        return f"The next start records it as missed: catch_up is {policy}"

    def _gone(self, at: datetime) -> Explanation:
        if self.kept is not None and at > self._newest_dealt_with():
            return self._answer(at, Verdict.WAITING, "about to start, in its last good version")
        if self._is_not_armed():
            found = self._not_armed(at)
            if found is not None:
                return found
        retention = self.context.workspace.settings.retention
        if self.now - at > timedelta(days=retention.days):
            why = (
                f"its record was pruned (older than {retention.days} days"
                f" and not among the newest {retention.claims})"
            )
            return self._answer(at, Verdict.UNKNOWN, why)
        newer = self._newest_dealt_with()
        if newer <= at:
            # Whoever has it writes this moment: a look later there is a record.
            return self._answer(at, Verdict.UNKNOWN, "nothing is recorded of it yet")
        # Whether it ever had a record can't be told: a folder may be an older copy, or mended.
        why = (
            "nothing is recorded of it, though of {0} something is: if it had a record, it is gone"
        )
        return self._answer(at, Verdict.UNKNOWN, why, newer)

    def _is_not_armed(self) -> bool:
        return self.kept is None and (self.routine is None or not self.routine.enabled)

    def _not_armed(self, at: datetime) -> Explanation | None:
        """Return what becomes of a slot that passed while its file asked for none (L16)."""
        cursor = self.cursor
        if cursor is None or at <= self._newest_dealt_with():
            return None
        what, back = "its file is gone", "is back"
        if self.routine is not None:
            what, back = "it is disabled", "is enabled again"
        elif self.name in self.context.workspace.broken:
            what, back = "its file can't be used", "can be used again"
        since = cursor.standing_at
        if cursor.standing is Standing.ARMED or since is None:
            # Up to then it owed its slots; whoever sees it first records those.
            why = f"{what}, which no scheduler has seen yet: the next look records it as missed"
            return self._answer(at, Verdict.OWED, why)
        why = f"{what} since {{0}}. It is recorded as missed when it {back}"
        return self._answer(at, Verdict.OWED, why, since)


def _names(spec: dict[str, Any] | None, at: datetime) -> bool:
    """Return whether the schedule that a routine was last seen with names *at*."""
    if spec is None:
        return False
    try:
        return from_spec(spec).names(at)
    except RoutinesError:
        # A host's own kind can't be read back: it may have.
        return True


def _pause_words(paused: Held, first: int) -> tuple[str, list[datetime]]:
    """Return who paused it, since and until when and why, its instants counted from *first*."""
    what = "everything is paused" if paused.everything else "paused"
    text = f"{what} by {escaped(paused.by)} since {{{first}}}"
    instants = [paused.since]
    if paused.until is not None:
        text += f" until {{{first + 1}}}"
        instants.append(paused.until)
    if paused.reason:
        text += f" ({escaped(paused.reason)})"
    return text, instants
