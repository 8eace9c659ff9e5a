"""The machine of `tests.engine.machine` with an agent whose runs outlive every engine.

Crashes, kills at any system call, stops and full disks end no run here: each goes on until it has
ended by itself, was released or was told to end. What has to hold besides: one run for one key,
one run at a time in a session, no outcome while the run is at work, and its own answer at the end.
"""

from collections import Counter, deque
from types import SimpleNamespace

from routines.agents.base import AgentUnavailable, OutcomeUnknown, Reply, RunState, SessionBusy
from routines.domain.outcome import Outcome, Trigger
from routines.domain.record import Event
from routines.engine.pausing import Pausing
from routines.store.claims import ClaimStore
from tests.engine.machine import WHO, Call, Machine
from tests.engine.stage import MINUTE, SECOND

# It can't be cancelled by whoever ends tasks: it is in no process of ours.
_NO_TASK = SimpleNamespace(cancel=lambda: None)


class Runs:
    """Where the runs live; what `Actor` is for an agent in the engine's own process."""

    def __init__(self, machine):
        self.machine = machine
        self.moods = deque()
        self.calls = []
        self.by_key = {}
        self.words = {}
        # Keys of which a call may have been made that nobody heard the answer of.
        self.tried = set()

    @property
    def running(self):
        return [call for call in self.calls if self.words[call.turn.key] == "active"]

    def release(self, which):
        for call in self.running if which is None else self.running[which : which + 1]:
            call.free.set()
            self.end(call, "failed" if "fails" in call.mood else "completed")

    def end(self, call, word):
        self.words[call.turn.key] = word
        call.end = "answered" if word == "completed" and call.mood != "half" else word

    def begin(self, turn):
        """Begin the run of a key that is not known, or say that nothing was begun."""
        mood = self.moods.popleft() if self.moods else "answers"
        is_first = self.machine.is_first_start(turn) and turn.key not in self.tried
        if mood == "busy":
            raise SessionBusy("in use")
        if mood == "unavailable":
            raise AgentUnavailable("connection refused")
        self.tried.add(turn.key)
        if mood == "unknown":
            # Lost on its way: it is asked again, and nobody could know that it has begun nothing.
            raise OutcomeUnknown("the line went dead")
        ref = self.machine.begins(turn) if is_first else self.machine.begins_late(turn)
        call = Call(turn, ref, mood, _NO_TASK)
        self.calls.append(call)
        self.by_key[turn.key] = call
        self.words[turn.key] = "active"
        match mood:
            case "answers" | "half":
                self.end(call, "completed")
            case "fails":
                self.end(call, "failed")
            case "breaks":
                raise RuntimeError("the line went dead")


class Front:
    """The durable agent of one engine; `turns` is for `Stage.crash`."""

    def __init__(self, runs):
        self.runs = runs
        self.turns = set()
        self.looks = Counter()

    async def start(self, turn):
        if turn.key not in self.runs.by_key:
            self.runs.begin(turn)
        elif self.runs.moods and self.runs.moods[0] in ("busy", "unavailable"):
            # Of this call that is true, and of its run it says nothing.
            self.runs.moods.popleft()
            raise SessionBusy("in use")
        return f"run of {turn.key}"

    def _call(self, run_id):
        return self.runs.by_key[run_id.removeprefix("run of ")]

    async def inspect(self, run_id):
        call = self._call(run_id)
        self.looks[run_id] += 1
        if call.mood == "holds and fails" and self.looks[run_id] % 3 == 1:
            raise RuntimeError("no route")
        failed = "and then no more" if call.mood == "half" else None
        return RunState(self.runs.words[call.turn.key], Reply(text="done", failed=failed))

    async def cancel(self, run_id):
        call = self._call(run_id)
        if self.runs.words[call.turn.key] != "active":
            return
        if call.mood == "stubborn" and not call.free.is_set():
            raise RuntimeError("not now")
        call.was_cancelled = True
        self.runs.end(call, "cancelled")


class DurableMachine(Machine):
    """Everything that may happen, with runs that none of it ends."""

    actor_kind = Runs

    def agent_of_an_engine(self):
        return Front(self.actor)

    def needs_place(self, turn):
        # A run that nobody watches for a moment keeps its session and its group, and no place.
        return False

    def wait_for_what_runs(self):
        # Each takes 15 s until it is looked at, and several may wait for one session.
        self.do(self.clock.advance(4 * MINUTE, step=15 * SECOND))
        # Of what was begun a moment ago the end is seen, while no other one begins.
        Pausing(self.state, by=WHO).pause(None, now=self.clock.now(), until=None, reason="")
        self.do(self.clock.advance(45 * SECOND, step=15 * SECOND))

    def _record_of(self, turn):
        claims = ClaimStore(self.state)
        for entry in claims.open_entries():
            found = claims.read_path(entry.claim_path)
            if found is not None and self.state.key(found.turn_ref) == turn.key:
                return found
        return None

    def is_first_start(self, turn):
        record = self._record_of(turn)
        return record is not None and record.last == Event.STARTED.value

    def begins_late(self, turn):
        """Judge a start that is repeated, or made by another than who wrote `started`.

        When it was begun all policies had their say; what is asked now is what was asked then.
        """
        record = self._record_of(turn)
        if record is None or not record.is_durable:
            self.wrong.append(f"{turn.key} was begun without `started`")
            return turn.key
        if any(call.turn.session == turn.session for call in self.actor.running):
            self.wrong.append(f"{record.ref}: a second run in {turn.session}")
        if turn.trigger is not Trigger.WAKE_UP and not turn.prompt.startswith("write the "):
            self.wrong.append(f"{record.ref} is asked something else: {turn.prompt}")
        return record.ref

    def _all_has_ended(self):
        super()._all_has_ended()
        for record in self.books.records.values():
            ids, begun = [], False
            for line in record.events:
                begun = begun or line["event"] == Event.STARTED.value
                if begun and line.get("run_id"):
                    ids.append(line["run_id"])
                    begun = False
            assert len(ids) == len(set(ids)), f"{record.ref} had a run that has ended: {ids}"
        by_ref = {record.ref: record for record in self.books.records.values()}
        for call in self.actor.calls:
            record = by_ref[call.ref]
            assert self.actor.words[call.turn.key] != "active", f"{call.ref} goes on, unwatched"
            if call.end == "answered":
                # Whatever was killed, and when: only its own answer settles it.
                assert record.outcome is Outcome.COMPLETED, f"{call.ref}: {record.end}"
