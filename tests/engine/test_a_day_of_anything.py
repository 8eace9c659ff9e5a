"""Whatever happens in a day, each slot ends once and none in silence (PROMISES O1, L1, D1)."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from routines.agents.base import AgentUnavailable, Reply, TurnFailed
from routines.domain.routine import CatchUpPolicy
from routines.domain.schedule import slots_between
from routines.engine.off_loop import quiet
from routines.errors import SessionBusyError
from routines.testing import START, RecordingAgent
from tests.engine.stage import HOUR, MINUTE, cron, every, routine

END = START + 24 * HOUR
# Every schedule below names whole ones of these, so that nothing is seen late for the steps' sake.
STEP = 5 * MINUTE
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]


class Moody(RecordingAgent):
    """Answers, fails, refuses, or takes its time: as the dice say, and the clock."""

    def __init__(self, dice, clock):
        super().__init__()
        self.dice, self.clock = dice, clock
        self.running = Counter()
        self.done = Counter()
        self.overlaps = []
        self.calm = False

    async def run(self, turn):
        self.turns.append(turn)
        if self.running[turn.session]:
            self.overlaps.append(turn.session)
        self.running[turn.session] += 1
        self.done[turn.key] += 1
        try:
            minutes = 0 if self.calm else self.dice.choice([0, 0, 0, 0, 1, 4, 17, 80])
            until = self.clock.awake() + 60 * minutes
            while self.clock.awake() < until:
                await self.clock.wait(until - self.clock.awake(), asyncio.Event())
            if self.calm:
                return Reply(text="done")
            mood = self.dice.random()
            if mood < 0.1:
                raise TurnFailed("not today")
            if mood < 0.15:
                # Provably nothing was done: it may be asked again.
                self.done[turn.key] -= 1
                raise AgentUnavailable("refused")
            return Reply(text="done")
        finally:
            self.running[turn.session] -= 1


def routines_of(dice):
    policies = [CatchUpPolicy.ONE, CatchUpPolicy.NONE]
    return [
        routine("hourly", cron("5 * * * *"), catch_up=dice.choice(policies)),
        routine("dense", every(10), catch_up=dice.choice(policies), timeout=30 * MINUTE),
        routine("fresh", cron("*/15 * * * *"), session="fresh", timeout=25 * MINUTE),
        routine("shared", cron("10,40 * * * *"), session="named:team", start_within=20 * MINUTE),
        routine("also-shared", cron("10 */2 * * *"), session="named:team"),
    ]


class Day:
    """One day, played with dice."""

    def __init__(self, stage, seed):
        self.stage, self.dice = stage, random.Random(seed)
        self.clock = stage.clock
        stage.agent = Moody(self.dice, self.clock)
        self.routines = {one.name: one for one in routines_of(self.dice)}
        self.cursors = {}
        self.back_to = END
        self.engines = []

    async def play(self):
        await self.start()
        while self.clock.now() < END:
            await self.clock.advance(self.dice.randint(1, 45) * MINUTE, step=STEP)
            self.look_at_cursors()
            await self.dice.choice(
                [
                    self.nothing,
                    self.nothing,
                    self.restart,
                    self.crash,
                    self.sleep,
                    self.switch,
                    self.by_hand,
                    self.step_back,
                    self.second,
                    self.cancel,
                ]
            )()
        await self.enable_all()
        # Long enough for everything to come to its end. Turns of 80 minutes that still began then
        # would hold a session past the end, with a slot that waits for it.
        self.stage.agent.calm = True
        await self.clock.advance(3 * HOUR, step=STEP)
        if self.stage.claims.open_entries():
            # What fell due in the last minute may wait for its session still.
            await self.clock.advance(4 * MINUTE, step=STEP)
        for engine in self.engines:
            await engine.stop(grace=timedelta(0))

    # What may happen ---------------------------------------------------------------------------

    async def nothing(self):
        pass

    async def start(self):
        engine = self.stage.engine(*self.routines.values())
        self.engines.append(engine)
        await engine.start()
        await quiet()

    async def restart(self):
        for engine in self.engines:
            await engine.stop(grace=timedelta(0))
        self.engines.clear()
        self.clock.move(self.dice.randint(0, 90) * MINUTE)
        await self.start()

    async def crash(self):
        for engine in self.engines:
            await self.stage.crash(engine)
        self.engines.clear()
        self.clock.move(self.dice.randint(0, 90) * MINUTE)
        await self.start()

    async def sleep(self):
        self.clock.sleep_machine(self.dice.randint(1, 180) * MINUTE)
        await self.clock.advance(MINUTE)

    async def second(self):
        if len(self.engines) < 2:
            await self.start()

    async def switch(self):
        name = self.dice.choice(sorted(self.routines))
        old = self.routines[name]
        self.routines[name] = routine(
            name,
            old.schedule,
            catch_up=old.catch_up,
            session=old.session,
            timeout=old.timeout,
            start_within=old.start_within,
            enabled=not old.enabled,
        )
        await self.replace()

    async def enable_all(self):
        for name in sorted(self.routines):
            if not self.routines[name].enabled:
                # Another object, as an edit makes one: definitions never change in place.
                self.routines[name] = replace(self.routines[name], enabled=True)
        await self.replace()

    async def replace(self):
        for engine in self.engines:
            engine.replace(self.routines.values())
        await quiet()

    async def by_hand(self):
        try:
            await self.engines[0].begin_run(self.dice.choice(sorted(self.routines)))
        except SessionBusyError:
            return

    async def step_back(self):
        self.clock.set(self.clock.now() - self.dice.randint(1, 40) * MINUTE)
        self.back_to = min(self.back_to, self.clock.now())
        await quiet()

    async def cancel(self):
        if self.engines[0].in_flight:
            self.stage.cancel(self.engines[0].in_flight[0])

    # What must hold ----------------------------------------------------------------------------

    def look_at_cursors(self):
        for cursor in self.stage.cursors.all():
            # Never back; but one that the clock, set back, has left in the future is of no use.
            before = min(self.cursors.get(cursor.routine, cursor.since), self.back_to)
            assert cursor.since >= before
            self.cursors[cursor.routine] = cursor.since

    def ends(self, name):
        """How often each slot of a routine has ended, and how."""
        found = {}
        for record in self.stage.records(name):
            if record.occurrence.kind == "slot":
                assert record.end is not None, f"{record.ref} is still open"
                found.setdefault(record.occurrence.instant, []).append(str(record.outcome))
        claimed = set(found)
        records = self.stage.missed(name)
        for missed in records:
            # One that was made after the clock was set back passed over those of the future.
            again = [one for one in records if missed.at < one.last and one.after < missed.last]
            for slot in slots_between(self.routines[name].schedule, missed.after, missed.last):
                covered = any(one.after < slot <= one.last for one in again if one is not missed)
                # A claim outranks a record that covers it.
                if slot not in claimed and not covered:
                    found.setdefault(slot, []).append(f"missed {missed.reason}")
        return found


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_slot_of_a_day_ends_exactly_once_and_none_in_silence(stage, seed):
    day = Day(stage, seed)
    await day.play()

    for name, one in day.routines.items():
        ends = day.ends(name)
        last = max(ends)
        due = list(slots_between(one.schedule, START, last))
        assert [slot for slot in due if slot not in ends] == [], f"{name} is silent about these"
        twice = {slot: how for slot, how in ends.items() if len(how) != 1}
        assert twice == {}, stage.missed(name)
        assert last > END
    assert stage.agent.overlaps == []
    assert stage.claims.open_entries() == []
    assert [key for key, count in stage.agent.done.items() if count > 1] == []
    # The day was worth playing.
    assert len(stage.agent.turns) > 40
