"""Overlap, cancel, retry, pause, recovery, edits and limits together, in any order (PROMISES O1).

A machine of Hypothesis plays slots, verbs, crashes, restarts and steps of the clock against the
real store, with a clock that stands still between two steps, and looks at the files after each:
one final outcome a slot, one turn a session, nothing lost, nothing twice, the cursor only moves
forward, every act has somebody's name on it.

What it believes is in `Books`, read from the files alone; what it saw itself is what the agent was
given (`Actor`) and how often the clock was set back.
"""

import asyncio
import contextlib
import errno
import functools
import json
import logging
import os
import tempfile
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from routines.agents.base import AgentUnavailable, OutcomeUnknown, Reply, SessionBusy, TurnFailed
from routines.domain import schedule as schedules
from routines.domain.limits import DayLimit
from routines.domain.occurrence import Kind
from routines.domain.outcome import REASONS, Outcome, Reason, Trigger
from routines.domain.record import Event
from routines.domain.retry import Retry
from routines.domain.routine import CatchUpPolicy, OverlapPolicy, Routine
from routines.domain.timetable import Timetable
from routines.engine.arming import counted
from routines.engine.lifecycle import Limits
from routines.engine.off_loop import quiet
from routines.engine.pausing import Pausing
from routines.errors import RoutinesError, StoreError
from routines.operations.cancelling import cancel_one
from routines.operations.switching import recover
from routines.store import files, locks
from routines.store.cancels import CancelStore
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.switches import SwitchStore
from routines.testing import START
from tests.engine.stage import HOUR, MINUTE, SECOND, Mortal, Stage, cron, every

NAMES = ("a", "b", "c")
WHO = "ana@studio"
SLOTTED = (Trigger.SCHEDULE, Trigger.CATCH_UP, Trigger.EXTERNAL)
# A step that takes longer than this hangs.
_LIMIT_S = 120.0
# What an engine logs when it met what nobody thought of.
_NEVER_LOGGED = ("pass-failed", "turn-failed", "decide-failed", "on_event-failed")


class Killed(BaseException):
    """The process is dead: nothing that it would have done is done."""


class Disk(files.Calls):
    """System calls of which one fails, or after one of which no other is made any more."""

    def __init__(self):
        self.fails = None
        self.left = 0
        self.lives = None
        self.refused = 0

    def fail(self, name, nth):
        self.fails, self.left = name, nth

    def kill_after(self, calls):
        self.lives = calls

    def heal(self):
        self.fails = self.lives = None

    @property
    def is_dead(self):
        return self.lives is not None and self.lives <= 0

    def _ask(self, name):
        if self.lives is not None:
            if self.is_dead:
                raise Killed
            self.lives -= 1
        if name == self.fails:
            self.left -= 1
            if self.left < 0:
                self.fails = None
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path, flags, *more):
        if flags & os.O_CREAT:
            self._ask("open")
        return os.open(path, flags, *more)

    def write(self, fd, data):
        self._ask("write")
        return os.write(fd, data)

    def link(self, source, path):
        self._ask("link")
        os.link(source, path)

    def unlink(self, path):
        self._ask("unlink")
        os.unlink(path)

    def mkdir(self, path, *more):
        self._ask("mkdir")
        os.mkdir(path, *more)

    def rename(self, source, path):
        self._ask("rename")
        os.rename(source, path)

    def fsync(self, fd):
        # Nothing here ever loses its power: what is synced in earnest only takes time.
        self._ask("fsync")


# What the agent is given ------------------------------------------------------------------------


@dataclass(eq=False)
class Call:
    """One turn as the agent had it."""

    turn: object
    ref: str
    mood: str
    task: object
    free: asyncio.Event = field(default_factory=asyncio.Event)
    engine_is_dead: bool = False
    was_cancelled: bool = False
    end: str | None = None


class Actor:
    """An agent that does what it was told to do with its next turns."""

    def __init__(self, machine):
        self.machine = machine
        self.moods = deque()
        self.running = []
        self.calls = []

    async def run(self, turn):
        mood = self.moods.popleft() if self.moods else "answers"
        call = Call(turn, self.machine.begins(turn), mood, asyncio.current_task())
        self.calls.append(call)
        self.running.append(call)
        try:
            reply = await self._act(call)
        except asyncio.CancelledError:
            call.was_cancelled = True
            call.end = "cancelled"
            raise
        except Exception as error:
            call.end = type(error).__name__
            raise
        else:
            call.end = "failed" if reply.failed else "answered"
            return reply
        finally:
            self.running.remove(call)

    async def _act(self, call):
        if call.mood == "stubborn":
            while not call.free.is_set():
                try:
                    await call.free.wait()
                except asyncio.CancelledError:
                    call.was_cancelled = True
                    if call.engine_is_dead:
                        raise
        elif call.mood.startswith("holds"):
            await call.free.wait()
        match call.mood:
            case "fails" | "holds and fails":
                raise TurnFailed("not today")
            case "busy":
                raise SessionBusy("in use")
            case "unavailable":
                raise AgentUnavailable("connection refused")
            case "unknown":
                raise OutcomeUnknown("the line went dead")
            case "breaks":
                raise RuntimeError("it broke")
            case "half":
                return Reply(text="half of it", failed="and then no more")
        return Reply(text="done")

    def release(self, which):
        for call in self.running if which is None else self.running[which : which + 1]:
            call.free.set()


MOODS = st.sampled_from(
    [
        *["holds"] * 5,
        "answers",
        *["fails"] * 3,
        "half",
        "breaks",
        *["unavailable"] * 3,
        "busy",
        "unknown",
        "holds and fails",
        "stubborn",
    ]
)


# What the files say -----------------------------------------------------------------------------


@dataclass
class Course:
    """What a routine owes: the slots of each schedule that it had, from when until when."""

    schedule: object
    spec: object
    start: datetime
    since: datetime
    past: list = field(default_factory=list)


class Books:
    """What the files of one state folder say, and whether it adds up."""

    def __init__(self, machine):
        self.machine = machine
        self.path = machine.stage.path
        self.claims = ClaimStore(machine.state)
        self.cursors = CursorStore(machine.state)
        self.switches = SwitchStore(machine.state)
        self.content = {}
        self.records = {}
        self.missed = {}
        self.courses = {}
        # Since when a name in open/ belongs to what has ended.
        self.ended = {}

    def look(self):
        """Read what is new; what was read before may only have grown."""
        found = set()
        for path in self.claims.walk(self.claims.owners()):
            found.add(path)
            data = files.read(os.path.join(self.path, path))
            before = self.content.get(path, b"")
            if data == before and before:
                continue
            assert data.startswith(before), f"{path} was written over"
            self.content[path] = data
            self.records[path] = self.claims.read_path(path)
            self.check_record(self.records[path], data)
        assert found >= self.content.keys(), f"gone: {self.content.keys() - found}"
        for name in self.machine.routines:
            there = {one.path: one for one in self.cursors.missed(name)}
            known = {path: one for path, one in self.missed.items() if one.routine == name}
            assert there.keys() >= known.keys(), f"gone: {known.keys() - there.keys()}"
            for path, one in there.items():
                if path in known:
                    then = known[path]
                    same = (one.after, one.last, one.reason, one.by)
                    assert same == (then.after, then.last, then.reason, then.by)
                self.check_missed(one)
            self.missed |= there

    def check_missed(self, one):
        assert "@" in one.by, f"{one.path} names nobody"
        assert one.reason in REASONS[Outcome.MISSED]
        assert one.after < one.last
        if one.schedule is not None:
            schedule = schedules.from_spec(one.schedule)
            assert counted(one).count == len(
                list(schedules.slots_between(schedule, one.after, one.last))
            ), one

    def check_record(self, record, data):
        ref = record.ref
        assert record.readable, f"{ref} has no first line"
        lines = [json.loads(line) for line in files.whole_lines(data)]
        ends = [line for line in lines if line["event"] == "outcome"]
        assert all(end == ends[0] for end in ends), f"{ref} ends twice: {ends}"
        assert record.claim.get("by"), f"{ref}: nobody claimed it"
        for line in record.events:
            if line["event"] in ("cancelling", "retry", "parked"):
                assert "@" in str(line.get("by")), f"{ref}: nobody did {line}"
        if record.end is not None:
            self.check_end(record)
        self.check_turns(record)

    def check_end(self, record):
        end, ref = record.end, record.ref
        reasons = REASONS[record.outcome]
        assert record.reason in reasons if reasons else record.reason is None, f"{ref}: {end}"
        if record.outcome in (Outcome.CANCELLED, Outcome.SUPERSEDED):
            assert "@" in str(end.get("by")), f"{ref}: nobody ended it: {end}"
        if record.outcome is Outcome.SUPERSEDED:
            routine = self.machine.routines[record.routine]
            assert routine.overlap is OverlapPolicy.SUPERSEDE, f"{ref}: {end}"
        if record.outcome is Outcome.COMPLETED:
            assert record.started is not None, f"{ref} is completed and was never started"
        # Where the disk refused a `not-started`, the outcome alone says it.
        said = "none started" in str(end["detail"]) or self.machine.disk.refused
        if record.reason is Reason.NOT_STARTED and not said:
            assert record.started is None, f"{ref} was started: {record.events}"
        if record.by_person and "until the next slot" in str(end.get("detail")):
            raise AssertionError(f"{ref}: a person said that it is to run after all: {end}")
        at_once = len(record.events) == 1 and record.reason in (
            Reason.OVERLAP,
            Reason.BUSY,
            Reason.LIMIT,
        )
        # Where claim and outcome are one act, the claim says whose.
        someone = end.get("by") or end.get("settled_by") or at_once
        someone = someone or record.reason is Reason.NOT_DURABLE
        assert someone, f"{ref}: nobody settled it: {end}"

    def check_turns(self, record):
        """A second turn of an occurrence has a reason, and there are as many as are allowed."""
        routine = self.machine.routines.get(record.routine)
        policy = Retry(attempts=1) if routine is None else routine.retry
        if record.occurrence.kind is Kind.WAKE:
            # Without its routine a session goes by what is usual.
            policy = replace(policy, attempts=max(policy.attempts, Retry().attempts))
            for sharer in self.machine.routines.values():
                # A session that routines share is woken as the first of them that says so.
                if routine is None and sharer.session == record.session:
                    attempts = max(policy.attempts, sharer.retry.attempts)
                    started = policy.started or sharer.retry.started
                    policy = replace(policy, attempts=attempts, started=started)
        automatic, started = 0, None
        for line in record.events:
            match line["event"]:
                case Event.STARTED.value:
                    # After `not-started` it is owed again, if its owner died before it said more.
                    again = started in (None, "never")
                    assert again, f"{record.ref} was started twice: {record.events}"
                    started = line
                case Event.NOT_STARTED.value:
                    started = "never"
                case Event.PARKED.value:
                    started = "parked"
                case Event.RETRY.value:
                    if line.get("rerun"):
                        assert line["rerun"] <= started["rerun_interrupted"], record.events
                    elif not line.get("person"):
                        automatic += 1
                        begun = started not in ("never", "parked", None)
                        may = begun and (policy.started or self.machine.disk.refused)
                        assert started == "never" or may, record.events
                        self.check_retry_time(record, line)
                    started = None
        assert automatic < max(policy.attempts, 1) or not automatic, record.events

    def check_retry_time(self, record, line):
        if record.occurrence.kind is Kind.SLOT:
            course = self.courses.get(record.routine)
            now = self.machine.routines[record.routine].schedule.spec()
            if course is None or course.past or course.spec != now:
                # By which schedule it was worked out, only the turn knows.
                return
            following = course.schedule.next_after(record.occurrence.instant)
            until = datetime.fromisoformat(line["until"])
            assert following is None or until < following, f"{record.ref}: {line}"

    # Cursors and slots -------------------------------------------------------------------------

    def follow(self, now):
        """See which cursors have moved, and that nothing before them is passed over in silence."""
        for cursor in self.cursors.all():
            name = cursor.routine
            assert "@" in cursor.by, f"nobody moved the cursor of {name}"
            course = self.courses.get(name)
            if course is None:
                self.courses[name] = self.begin(cursor, [])
                continue
            if cursor.since < course.since:
                back = self.machine.set_back
                assert back, f"the cursor of {name} went back to {cursor.since}"
            if cursor.schedule != course.spec:
                course.past.append((course.schedule, course.start, cursor.since))
                self.courses[name] = self.begin(cursor, course.past)
            course = self.courses[name]
            course.since = cursor.since
            claimed, covered = self.ends(name)
            for schedule, start, end in [
                *course.past,
                (course.schedule, course.start, self.frontier(name, now)),
            ]:
                if schedule is None or end <= start:
                    continue
                for slot in schedules.slots_between(schedule, start, end):
                    known = slot in claimed or any(one.after < slot <= one.last for one in covered)
                    assert known, f"{name} is silent about {slot}: {self.story(name)}"
            self.check_twice(name, claimed, covered)

    def begin(self, cursor, past):
        spec = cursor.schedule
        schedule = None if spec is None else schedules.from_spec(spec)
        # A time that comes twice was lived by the schedule of before; its claims outrank this one.
        start = max([cursor.since, *(end for _, end in self.machine.set_back)])
        return Course(schedule, spec, start, cursor.since, past)

    def ends(self, name):
        """Return the claimed slots of a routine, and what was given up of it."""
        claimed = {
            record.occurrence.instant
            for record in self.records.values()
            if record.occurrence.kind is Kind.SLOT and record.occurrence.owner == name
        }
        return claimed, [one for one in self.missed.values() if one.routine == name]

    def frontier(self, name, now):
        """Return up to where everything of a routine is dealt with."""
        claimed, covered = self.ends(name)
        known = [*claimed, *(one.last for one in covered)]
        return max([self.courses[name].since, *(at for at in known if at <= now)])

    def check_twice(self, name, claimed, covered):
        """No slot is both claimed and given up, or given up twice, in a time that came once."""
        course = self.courses[name]
        for one in covered:
            schedule = None if one.schedule is None else schedules.from_spec(one.schedule)
            if schedule is None:
                continue
            for slot in schedules.slots_between(schedule, one.after, one.last):
                if any(start < slot <= end for start, end in self.machine.set_back):
                    continue
                others = [
                    two.path
                    for two in covered
                    if two.path != one.path
                    and two.after < slot <= two.last
                    and two.schedule == one.schedule
                ]
                assert not others, f"{name} gave up {slot} twice: {self.story(name)}"
                named = course.schedule is not None and one.schedule == course.spec
                assert slot not in claimed or not named, (
                    f"{name} claimed {slot} and gave it up: {self.story(name)}"
                )

    def story(self, name):
        lines = []
        for record in self.records.values():
            if record.routine == name:
                lines.append(f"{record.ref} {record.written_state} {record.end}")
        for one in self.missed.values():
            if one.routine == name:
                lines.append(f"{one.after} .. {one.last} missed {one.reason} at {one.at}")
        lines += [str(self.cursors.peek(name))]
        return "\n  ".join(["", *sorted(lines)])

    # What is open ------------------------------------------------------------------------------

    def check_open(self, *, engines):
        there = {}
        for entry in self.claims.open_entries():
            record = self.records.get(entry.claim_path)
            open_path = os.path.join(self.path, "open", entry.name)
            claim_path = os.path.join(self.path, entry.claim_path)
            if record is None or not os.path.samefile(open_path, claim_path):
                assert self.machine.kills, f"{entry.name} is nobody's"
                continue
            there[entry.claim_path] = record
            if record.end is not None and engines:
                # Where the disk refused, it is looked at again within a minute.
                awake = self.machine.clock.awake()
                since = self.ended.setdefault(entry.name, awake)
                assert awake - since <= 120, f"{record.ref} has ended and is open"
        for path, record in self.records.items():
            assert record.end is not None or path in there, f"{record.ref} is open, and not there"
        slots = [
            one
            for one in self.records.values()
            if one.end is None and one.occurrence.kind == "slot"
        ]
        buffered = Counter(one.routine for one in slots if one.last == "buffered")
        assert all(count == 1 for count in buffered.values()), f"buffered: {buffered}"
        busy = defaultdict(list)
        for one in slots:
            if one.is_under_way and not one.by_person:
                busy[one.routine].append(one.ref)
        assert all(len(refs) == 1 for refs in busy.values()), f"at once: {dict(busy)}"

    def check_limits(self):
        """Count the turns of each day and routine that has a limit."""
        for name, routine in self.machine.routines.items():
            if routine.limits is None:
                continue
            days = Counter()
            for record in self.records.values():
                if record.routine == name and record.started_at is not None:
                    days[record.started_at.date()] += 1
            assert all(count <= routine.limits.turns for count in days.values()), (name, days)


# The machine ------------------------------------------------------------------------------------


def noted(function):
    """Write down each step with what it was given, so that a campaign can play it again."""

    @functools.wraps(function)
    def step(self, **given):
        self.steps.append((function.__name__, given))
        return function(self, **given)

    return step


MOVES = []


def move(often, **given):
    """Make a step of the machine that is drawn *often* times as often as the rarest.

    Rules of Hypothesis are drawn the more often the less they ask for, and then one example would
    be made of little else than `recover`.
    """

    def add(function):
        drawn = st.tuples(st.just(function.__name__), st.fixed_dictionaries(given))
        MOVES.extend([drawn] * often)
        return noted(function)

    return add


@st.composite
def definitions(draw, name):
    retry = draw(
        st.sampled_from(
            [
                Retry(attempts=1),
                Retry(attempts=1, park=True),
                Retry(attempts=3),
                Retry(attempts=3),
                Retry(attempts=2, started=True),
                Retry(attempts=2, started=True, park=True),
            ]
        )
    )
    return Routine(
        name=name,
        prompt=f"write the {name}",
        schedule=draw(SCHEDULES),
        retry=retry,
        session=draw(st.sampled_from(["stable", "fresh", "named:team"])),
        overlap=draw(st.sampled_from(OverlapPolicy)),
        catch_up=draw(st.sampled_from(CatchUpPolicy)),
        max_catch_up=draw(st.sampled_from([2, 100])),
        jitter=draw(st.sampled_from([timedelta(0), timedelta(0), 3 * MINUTE])),
        start_within=draw(st.sampled_from([None, None, 7 * MINUTE])),
        timeout=draw(st.sampled_from([25 * MINUTE, 5 * HOUR])),
        rerun_interrupted=draw(st.integers(0, 2)),
        exclusive=draw(st.sampled_from([None, None, "shop"])),
        limits=draw(st.sampled_from([None, None, None, None, None, DayLimit(turns=9)])),
    )


SCHEDULES = st.sampled_from([every(10), every(10), every(15), cron("5 * * * *"), every(60)])
SPANS = st.sampled_from([SECOND, 20 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 11 * MINUTE])
LONG = st.sampled_from([25 * MINUTE, HOUR, 3 * HOUR])
AWAY = st.sampled_from([timedelta(0), 30 * SECOND, 7 * MINUTE, 50 * MINUTE, 5 * HOUR])
WHICH = st.integers(0, 3)
NAME = st.sampled_from(NAMES)


class Machine(RuleBasedStateMachine):
    """Everything that may happen to a state folder, in any order."""

    actor_kind = Actor

    def agent_of_an_engine(self):
        """What an engine is given for an agent; each has one of its own, as each process has."""
        return Mortal(self.actor)

    def __init__(self):
        super().__init__()
        there = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=there)
        self.runner = asyncio.Runner()
        self.runner.get_loop().set_exception_handler(lambda *_: None)
        self.disk = Disk()
        self.calls, files.calls = files.calls, self.disk
        self.stage = Stage(self.folder.name)
        self.clock = self.stage.clock
        self.actor = self.actor_kind(self)
        self.state = self.stage.state
        self.steps = []
        self.engines, self.tasks, self.fired = [], [], set()
        self.routines = {}
        self.absent = set()
        self.set_back = []
        self.kills = 0
        self.wrong = []
        self.wakeups, self.refused, self.unwoken = {}, set(), {}
        self.books = Books(self)
        self.log = _Log(self.wrong)
        logger = logging.getLogger("routines")
        logger.addHandler(self.log)
        self.levels = logger.level, logger.propagate
        logger.propagate = False

    def do(self, work):
        async def limited():
            async with asyncio.timeout(_LIMIT_S):
                return await work

        return self.runner.run(limited())

    # Beginnings --------------------------------------------------------------------------------

    @initialize(
        routines=st.tuples(*(definitions(name) for name in NAMES)), concurrency=st.integers(1, 3)
    )
    @noted
    def begin(self, routines, concurrency):
        self.routines = {one.name: one for one in routines}
        self.concurrency = concurrency
        self.do(self._start())

    async def _start(self):
        engine = self.stage.engine(
            *self.present(),
            agent=self.agent_of_an_engine(),
            limits=Limits(concurrency=self.concurrency),
        )
        try:
            await engine.start()
        except StoreError:
            return
        self.engines.append(engine)
        self.books.ended.clear()
        await quiet()

    def present(self):
        return [one for name, one in self.routines.items() if name not in self.absent]

    # Time --------------------------------------------------------------------------------------

    @move(4, span=SPANS)
    def advance(self, span):
        self.do(self.clock.advance(span))

    @move(3, span=LONG)
    def advance_long(self, span):
        self.do(self.clock.advance(span, step=MINUTE if span < HOUR else 5 * MINUTE))

    @move(2, span=AWAY)
    def sleep_the_machine(self, span):
        self.clock.sleep_machine(span)
        self.do(self.clock.advance(2 * SECOND))

    @move(1, minutes=st.sampled_from([1, 12, 40, 130]))
    def set_clock_back(self, minutes):
        now = self.clock.now()
        # The most that a slot is late by for its jitter still counts as that time.
        then = now - minutes * MINUTE
        self.books.look()
        self.set_back.append((then - 3 * MINUTE, now + MINUTE))
        # A record that lies in the future now says nothing of the present.
        ahead = [one for one in self.books.missed.values() if one.last > then]
        self.set_back += [(one.after, now + MINUTE) for one in ahead]
        self.clock.set(then)
        self.do(self.clock.advance(2 * SECOND))

    @move(1, minutes=st.sampled_from([1, 12, 40, 130]))
    def set_clock_forward(self, minutes):
        self.clock.set(self.clock.now() + minutes * MINUTE)
        self.do(self.clock.advance(2 * SECOND))

    # The agent ---------------------------------------------------------------------------------

    @move(5, moods=st.lists(MOODS, min_size=1, max_size=3))
    def next_turns(self, moods):
        self.actor.moods = deque(moods)

    @move(4, mood=MOODS, span=st.sampled_from([11 * MINUTE, 20 * MINUTE, HOUR]))
    def the_next_turn(self, mood, span):
        """One turn of that kind, for certain; every other rule may come in between."""
        self.actor.moods.append(mood)
        self.do(self.clock.advance(span))

    @move(2, which=st.none() | WHICH)
    def release(self, which):
        self.actor.release(which)
        self.do(self.clock.advance(SECOND))

    # People ------------------------------------------------------------------------------------

    @move(2, name=NAME, detached=st.booleans())
    def run_by_hand(self, name, detached):
        if not self.engines:
            return
        engine = self.engines[0]
        with contextlib.suppress(RoutinesError):
            self.do((engine.detach_run if detached else engine.begin_run)(name, by=WHO))
        self.settle_down()

    @move(3, name=NAME, back=st.integers(-1, 3), odd=st.booleans())
    def fire_slot(self, name, back, odd):
        schedule = self.routines[name].schedule
        slot = schedule.newest_at_or_before(self.clock.now())
        if back < 0:
            slot = schedule.next_after(self.clock.now())
        for _ in range(back):
            slot = schedule.newest_at_or_before(slot - SECOND)
        if not self.engines or slot <= START:
            return
        slot += SECOND if odd and back == 3 else timedelta(0)

        self.fired.add((name, slot))

        async def fire():
            self.tasks.append(asyncio.ensure_future(self.engines[-1].fire(name, slot)))
            await quiet()

        self.do(fire())

    @move(4, which=WHICH)
    def cancel(self, which):
        record = self.open_one(which)
        if record is not None:
            with contextlib.suppress(StoreError):
                cancel_one(self.context(), ClaimStore(self.state), record, "enough")
        self.do(self.clock.advance(SECOND))

    @move(3)
    def recover_parked(self):
        record = self.open_one(0, "parked")
        if record is None:
            return
        with contextlib.suppress(StoreError):
            recover(self.context(), record.ref)
        self.do(self.clock.advance(SECOND))

    @move(2, name=st.none() | NAME, minutes=st.none() | st.sampled_from([1, 20, 90]))
    def pause(self, name, minutes):
        until = None if minutes is None else self.clock.now() + minutes * MINUTE
        switches = SwitchStore(self.state)
        before = switches.read(name)
        pausing = Pausing(self.state, by=WHO)
        try:
            pausing.pause(name, now=self.clock.now(), until=until, reason="quiet")
        except StoreError:
            assert switches.read(name) == before, f"told that {name} is not paused, and it is"
        self.settle_down()

    @move(2, name=st.none() | NAME)
    def resume(self, name):
        switches = SwitchStore(self.state)
        before = switches.read(name)
        try:
            Pausing(self.state, by=WHO).resume(name, now=self.clock.now())
        except StoreError:
            assert switches.read(name) == before, f"told that {name} is paused still: it is not"
        self.do(self.clock.advance(SECOND))

    @move(3, name=NAME, what=st.sampled_from(["prompt", "enabled", "absent"]))
    def edit(self, name, what):
        old = self.routines[name]
        if what == "absent":
            self.absent ^= {name}
        elif what == "enabled":
            self.routines[name] = replace(old, enabled=not old.enabled)
        else:
            self.routines[name] = replace(old, prompt=old.prompt + ", once more")
        self.edited()

    @move(2, name=NAME, schedule=SCHEDULES)
    def reschedule(self, name, schedule):
        self.routines[name] = replace(self.routines[name], schedule=schedule)
        self.edited()

    @move(
        2,
        session=st.sampled_from(["routine:a", "routine:b", "named:team", "named:other"]),
        minutes=st.sampled_from([1, 2, 15]),
        every_=st.booleans(),
    )
    def wake(self, session, minutes, every_):
        if not self.engines:
            return
        prompt = f"look <{len(self.wakeups) + len(self.refused)}>"
        when = {"every": "15m"} if every_ else {"in_": f"{minutes}m"}
        try:
            answer = self.engines[0].tools(session).ask(prompt=prompt, **when)
        except RoutinesError:
            self.refused.add(prompt)
        else:
            self.wakeups[prompt] = answer.data
        self.settle_down()

    @move(1, which=WHICH)
    def unwake(self, which):
        left = [prompt for prompt in self.wakeups if prompt not in self.unwoken]
        if not self.engines or which >= len(left):
            return
        data = self.wakeups[left[which]]
        with contextlib.suppress(RoutinesError):
            self.engines[0].tools(data["session"]).unwake(data["id"])
            self.unwoken[left[which]] = len(self.actor.calls)
        self.settle_down()

    # Processes ---------------------------------------------------------------------------------

    @move(2)
    def start(self):
        if len(self.engines) < 2:
            self.do(self._start())

    @move(2, which=WHICH, grace=st.sampled_from([timedelta(0), 20 * SECOND]), away=AWAY)
    def stop(self, which, grace, away):
        if which >= len(self.engines):
            return
        engine = self.engines.pop(which)
        self.do(self._stop(engine, grace))
        if not self.engines:
            self.clock.move(away)
            self.do(self._start())

    async def _stop(self, engine, grace):
        stopping = asyncio.ensure_future(engine.stop(grace=grace))
        await quiet()
        while not stopping.done():
            await self.clock.advance(5 * SECOND, step=SECOND)
        await stopping
        await quiet()

    @move(4, which=WHICH, away=AWAY)
    def crash(self, which, away):
        if which >= len(self.engines):
            return
        self.do(self._crash(self.engines.pop(which)))
        if not self.engines:
            self.clock.move(away)
            self.do(self._start())

    @move(3, calls=st.integers(1, 40), span=SPANS, away=AWAY)
    def die_in_the_middle(self, calls, span, away):
        """End every process after so many more system calls, wherever that is."""
        self.disk.kill_after(calls)

        async def until_dead():
            left = span
            while left > timedelta(0) and not self.disk.is_dead:
                await self.clock.advance(min(left, MINUTE))
                left -= MINUTE

        self.do(until_dead())
        self.kills += 1
        while self.engines:
            self.do(self._crash(self.engines.pop()))
        self._end_what_is_left()
        self.disk.heal()
        self.clock.move(away)
        self.do(self._start())

    async def _crash(self, engine):
        ended = {id(task) for task in engine._agent.turns}
        for call in self.actor.running:
            # A task that swallows its end would outlive its process.
            call.engine_is_dead = call.engine_is_dead or id(call.task) in ended
        await self.stage.crash(engine)

    def _end_what_is_left(self):
        """End what still runs of a process that died, and close what it had open."""

        async def end():
            for call in self.actor.running:
                call.engine_is_dead = True
                call.task.cancel()
            for task in self.tasks:
                task.cancel()
            await quiet()

        self.do(end())
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(self.folder.name):
                    locks._held.discard(int(name))
                    os.close(int(name))

    @move(
        2,
        name=st.sampled_from(["open", "write", "link", "fsync", "rename"]),
        nth=st.integers(0, 12),
    )
    def disk_is_full_once(self, name, nth):
        self.disk.fail(name, nth)

    # What all of them need ---------------------------------------------------------------------

    def settle_down(self):
        async def wait():
            for engine in self.engines:
                engine._wake.set()
            await quiet()

        self.do(wait())

    def edited(self):
        async def edit():
            for engine in self.engines:
                engine.replace(self.present())
            await quiet()

        self.do(edit())

    def context(self):
        return SimpleNamespace(
            state=self.state,
            writable_state=self.state,
            clock=self.clock,
            who=WHO,
            is_person=True,
            workspace=SimpleNamespace(names=frozenset(self.routines)),
        )

    def open_one(self, which, last=None):
        self.books.look()
        found = [
            record
            for record in self.books.records.values()
            if record.end is None and last in (None, record.last)
        ]
        # What runs is what is most worth a cancel.
        found.sort(
            key=lambda one: (not one.is_under_way, one.occurrence.instant, one.routine or "")
        )
        return found[which] if which < len(found) else None

    def begins(self, turn):
        """Judge a turn at the moment that the agent is given it; return whose it is."""
        record = None
        claims = ClaimStore(self.state)
        for entry in claims.open_entries():
            found = claims.read_path(entry.claim_path)
            if found is not None and self.state.key(found.turn_ref) == turn.key:
                record = found
        # A cancel may be taken up in the moment between.
        if record is None or record.started is None or not record.is_under_way:
            self.wrong.append(f"{turn.key} was begun without `started`")
            return turn.key
        self.judge(turn, record)
        return record.ref

    def judge(self, turn, record):
        running, now = self.actor.running, self.clock.now()
        routine = self.routines.get(turn.routine)
        ref = record.ref
        if any(call.turn.session == turn.session for call in running):
            self.wrong.append(f"{ref}: a second turn in {turn.session}")
        group = None if routine is None else routine.exclusive
        if group is not None and any(
            self.routines[call.turn.routine].exclusive == group
            for call in running
            if call.turn.routine is not None
        ):
            self.wrong.append(f"{ref}: a second turn of {group}")
        placed = [call for call in running if self.needs_place(call.turn)]
        if self.needs_place(turn) and len(placed) >= self.concurrency:
            self.wrong.append(f"{ref}: {len(placed) + 1} turns at once")
        started = [line["event"] for line in record.events].count("started")
        if started <= sum(call.ref == ref for call in self.actor.calls):
            self.wrong.append(f"{ref} was given to the agent more often than it was started")
        switch = SwitchStore(self.state).held(turn.routine, now=now)
        if turn.trigger is not Trigger.MANUAL and switch is not None:
            self.wrong.append(f"{ref} was begun while {switch.routine or 'everything'} is paused")
        if turn.trigger in SLOTTED:
            within = routine.start_within
            if within is not None and turn.late > within and not record.by_person:
                self.wrong.append(f"{ref} was begun {turn.late} late")
            if not routine.enabled and turn.routine not in self.absent:
                self.wrong.append(f"{ref} was begun while it is disabled")
            if turn.routine not in self.absent and not routine.schedule.names(turn.slot):
                self.wrong.append(f"{ref} was begun, and the schedule does not name it any more")
        if turn.trigger is Trigger.WAKE_UP:
            self.judge_wakeup(turn, record)

    def needs_place(self, turn):
        outside = turn.trigger in (Trigger.MANUAL, Trigger.EXTERNAL)
        return not outside and (turn.routine, turn.slot) not in self.fired

    def judge_wakeup(self, turn, record):
        prompt = next((one for one in self.refused if one in turn.prompt), None)
        if prompt is not None:
            self.wrong.append(f"{record.ref} was refused, and fires: {prompt}")
        prompt = next((one for one in self.unwoken if one in turn.prompt), None)
        begun = self.actor.calls[: self.unwoken.get(prompt, 0)]
        if prompt is not None and not any(call.ref == record.ref for call in begun):
            self.wrong.append(f"{record.ref} was unwoken, and fires: {prompt}")

    # What holds after each step ----------------------------------------------------------------

    @rule(move=st.deferred(lambda: st.sampled_from(MOVES).flatmap(lambda drawn: drawn)))
    def step(self, move):
        name, given = move
        getattr(self, name)(**given)

    @invariant()
    def adds_up(self):
        if not self.routines:
            return
        assert not self.wrong, self.wrong
        for engine in self.engines:
            assert not engine._loop_task.done(), engine._loop_task
        self.books.look()
        self.books.follow(self.clock.now())
        self.books.check_open(engines=self.engines)
        self.books.check_limits()
        for call in self.actor.running:
            record = next(one for one in self.books.records.values() if one.ref == call.ref)
            if not call.was_cancelled:
                assert record.end is None, f"{call.ref} runs and has ended: {record.end}"

    def teardown(self):
        try:
            if self.routines:
                self._come_to_an_end()
        finally:
            self._close()

    def _come_to_an_end(self):
        self.disk.heal()
        self.actor.moods.clear()
        self.actor.release(None)
        self.absent = set()
        self.routines = {name: replace(one, enabled=True) for name, one in self.routines.items()}
        for name in (None, *self.routines):
            Pausing(self.state, by=WHO).resume(name, now=self.clock.now())
        self.edited()
        if not self.engines:
            self.do(self._start())
        # Longer than a wake-up waits for its session, and than what fails is held back.
        ahead = max([self.clock.now(), *(end for _, end in self.set_back)]) - self.clock.now()
        self.do(self.clock.advance(ahead, step=5 * MINUTE))
        self.do(self.clock.advance(2 * HOUR - 10 * SECOND, step=5 * MINUTE))
        self.do(self.clock.advance(3 * MINUTE))
        self.adds_up()
        self.wait_for_what_runs()
        for engine in self.engines:
            self.do(self._stop(engine, timedelta(0)))
        self.engines.clear()
        self.books.look()
        self._all_has_ended()

    def wait_for_what_runs(self):
        """Let what was begun a moment ago end: here each turn answers at once."""

    def _all_has_ended(self):
        now = self.clock.now()
        for record in self.books.records.values():
            assert record.end is not None or record.last == "parked", (
                f"{record.ref} never ended: {record.events}"
            )
            if record.end is None:
                cancel = CancelStore(self.state).pending(record.ref)
                assert cancel is None, f"{record.ref} was cancelled, and is parked still"
        for name, one in self.routines.items():
            due = Timetable(name, one.schedule, one.jitter).newest_due(now - 2 * MINUTE)
            assert self.books.frontier(name, now) >= due, f"{name} stands still"
        by_ref = {record.ref: record for record in self.books.records.values()}
        for call in self.actor.calls:
            record = by_ref[call.ref]
            if call.end == "answered" and not call.was_cancelled and not self.kills:
                assert record.outcome is Outcome.COMPLETED, f"{call.ref}: {record.end}"
        self._wakeups_have_fired(by_ref)

    def _wakeups_have_fired(self, by_ref):
        fired = Counter(
            record.occurrence.id
            for record in by_ref.values()
            if record.occurrence.kind is Kind.WAKE
        )
        for prompt, data in self.wakeups.items():
            if prompt in self.unwoken or data.get("schedule") is not None:
                continue
            assert fired[data["id"]] == 1, f"{prompt} fired {fired[data['id']]} times: {data}"

    def _close(self):
        for engine in self.engines:
            with contextlib.suppress(BaseException):
                self.do(self._crash(engine))
        self._end_what_is_left()
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.exception()
        with contextlib.suppress(BaseException):
            self.runner.close()
        files.calls = self.calls
        logger = logging.getLogger("routines")
        logger.removeHandler(self.log)
        logger.propagate = self.levels[1]
        self.folder.cleanup()


def play(steps, kind=Machine):
    """Play *steps*, each a name and what it is given; return the error they end with, or None."""
    machine = kind()
    try:
        for name, given in steps:
            getattr(machine, name)(**given)
            machine.adds_up()
    except Exception as error:
        machine._close()
        return error
    try:
        machine.teardown()
    except Exception as error:
        return error
    return None


class _Log(logging.Handler):
    """Notes what an engine logs of what nobody thought of."""

    def __init__(self, wrong):
        super().__init__(logging.ERROR)
        self.wrong = wrong

    def emit(self, record):
        if record.getMessage() in _NEVER_LOGGED:
            error = record.exc_info[1] if record.exc_info else None
            self.wrong.append(f"{record.getMessage()}: {error!r}")
