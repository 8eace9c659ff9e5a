"""Everything at once on one state folder, and everything is killed with -9, whatever it is at.

    nice python -m tests.campaigns.mixed --minutes 10 --seed 1

Two resident schedulers; beside them passes, deliveries, runs by hand, wake-ups, cancels, pauses, each
a process of its own, on routines of every policy. In the end: no turn was begun twice, none without
`started`; no two turns in one session or one group; no more turns than the day allows; every slot
has one outcome or is counted; nothing is open, and no process is left.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from routines.domain.occurrence import Kind
from routines.store.claims import ClaimStore
from routines.store.cursors import CursorStore
from routines.store.state import open_for_reading
from tests.acceptance.helpers import (
    REPOSITORY,
    end_all,
    environment,
    outcome_lines,
    processes_of,
    send,
    turn_processes,
)
from tests.campaigns import hands
from tests.campaigns.adding_up import outcomes_of, words_of

# Says who it meets in its session or group: the kernel lets go of a lock with the last process of a
# turn, so that one which is left behind is met too. A fifth takes longer than the next slot, a few
# fail, and a few say that they are busy before they have done anything.
AGENT = """
key() { printf %s "$1" | tr -c 'A-Za-z0-9\\n' _; }
# So much that a process has been seen to be alive at all.
roll=$(( ($$ + $(date +%N | sed 's/^0*//')) % 20 ))
exec 8>>"@LOCKS@/session.$(key "$ROUTINES_SESSION")"
flock -n 8 || echo "together $ROUTINES_TURN" >> @LOG@
case "$ROUTINES_ROUTINE" in group-*)
  exec 9>>"@LOCKS@/group"; flock -n 9 || echo "together $ROUTINES_TURN" >> @LOG@;;
esac
[ $roll = 0 ] && exit 75
echo "begun $ROUTINES_TURN" >> @LOG@
if [ $roll -lt 5 ]; then sleep 5; else sleep 0.$((roll % 9 + 1)); fi
[ $roll = 5 ] && { echo "no" >&2; exit 1; }
echo "ended $ROUTINES_TURN" >> @LOG@; echo done
"""
_ACTS = (
    *("tick",) * 4,
    *("fire",) * 10,
    *("run",) * 4,
    *("detach",) * 2,
    *("wake",) * 4,
    "every",
    "unwake",
    *("cancel",) * 3,
    *("pause",) * 2,
    "resume",
)
# A machine with two slow cores starts a process in a second or two.
_HANDS_AT_ONCE = 3


@dataclass
class Result:
    """What a campaign came to."""

    seed: int
    seconds: float
    kills: dict[str, int]
    acts: dict[str, int]
    claims: dict[str, int]
    turns: int
    outcomes: dict[str, int]
    given_up: dict[str, int]
    wrong: list[str] = field(default_factory=list)

    def lines(self):
        yield f"seed {self.seed}, {self.seconds:.0f} s"
        yield "killed " + ", ".join(f"{n} {what}" for what, n in sorted(self.kills.items()))
        yield "acts " + ", ".join(f"{n} {what}" for what, n in sorted(self.acts.items()))
        yield "claims " + ", ".join(f"{n} {what}" for what, n in sorted(self.claims.items()))
        yield f"{self.turns} turns begun"
        yield "outcomes " + ", ".join(f"{n} {what}" for what, n in sorted(self.outcomes.items()))
        yield "counted " + ", ".join(f"{n} {what}" for what, n in sorted(self.given_up.items()))
        yield "nothing wrong" if not self.wrong else f"{len(self.wrong)} WRONG"
        yield from self.wrong[:40]


class Campaign:
    """Two schedulers and many hands on one state folder, and what kills them."""

    def __init__(self, folder, *, seed):
        self.folder = folder
        self.state = os.path.join(folder, "state")
        self.log = os.path.join(folder, "log")
        self.random = random.Random(seed)
        self.schedulers = [None, None]
        self.hands = {}
        self.kills = collections.Counter()
        self.acts = collections.Counter()
        locks = os.path.join(folder, "locks")
        os.mkdir(locks)
        self.agent = os.path.join(folder, "agent.sh")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write(AGENT.replace("@LOG@", self.log).replace("@LOCKS@", locks))

    def begin(self, *words):
        with open(os.path.join(self.folder, "processes.log"), "ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.campaigns.hands", self.state, *words),
                    *("--", "/bin/sh", self.agent),
                ],
                cwd=REPOSITORY,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def keep_up(self):
        """Start again every scheduler that has been killed, and let another hand act."""
        for number, process in enumerate(self.schedulers):
            if process is None or process.poll() is not None:
                self.schedulers[number] = self.begin("start")
        for process in [one for one in self.hands if one.poll() is not None]:
            del self.hands[process]
        if len(self.hands) < _HANDS_AT_ONCE:
            act = self.random.choice(_ACTS)
            self.acts[act] += 1
            self.hands[self.begin(act, *self.words_for(act))] = act

    def words_for(self, act):
        name = self.random.choice(hands.NAMES)
        session = self.random.choice([f"routine:{name}", "named:team", "routine:buffer"])
        match act:
            case "tick":
                return []
            case "fire":
                return [name, str(self.random.choice([0, 0, 0, 1, 2]))]
            case "wake":
                return [session, str(self.random.randint(2, 8))]
            case "every":
                return [session, str(self.random.randint(5, 12))]
            case "unwake":
                return [session]
            case "pause":
                return [name, str(self.random.randint(3, 10))]
            case _:
                return [name]

    def kill_one(self):
        """Kill a turn process, a scheduler or a hand: half of what lives has to get somewhere."""
        chance = self.random.random()
        if chance < 0.15:
            alive = [one for one in self.schedulers if one is not None and one.poll() is None]
            if alive:
                self.random.choice(alive).kill()
                self.kills["schedulers"] += 1
        elif chance < 0.4 and self.hands:
            process, act = self.random.choice(list(self.hands.items()))
            if process.poll() is None:
                process.kill()
                self.kills[act] += 1
        else:
            turns = turn_processes(self.state)
            if turns and send(self.random.choice(turns), signal.SIGKILL):
                self.kills["turn processes"] += 1

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.keep_up()
            time.sleep(self.random.uniform(0.1, 0.8))
            if self.random.random() < 0.5:
                self.kill_one()

    def finish(self):
        """Kill everything that schedules, boot once more until all that was open is settled."""
        for process in (*self.schedulers, *self.hands):
            if process is not None:
                process.kill()
                process.wait()
        left = self.open_refs()
        last = self.begin("start")
        until = time.monotonic() + 150
        while left and time.monotonic() < until:
            time.sleep(0.3)
            left &= self.open_refs()
        yield from (f"{ref} is open after the next boot" for ref in sorted(left))
        last.terminate()
        try:
            last.wait(timeout=90)
        except subprocess.TimeoutExpired:
            last.kill()
            last.wait()
            yield "the last scheduler did not stop within 90 s"

    def records(self):
        claims = ClaimStore(open_for_reading(self.state))
        return [claims.read_path(path) for path in claims.walk(claims.owners())]

    def open_refs(self):
        """The occurrences without an outcome, but for what waits for a person."""
        return {one.ref for one in self.records() if one.end is None and one.last != "parked"}


def wrongs(one):
    """Yield in words whatever does not add up."""
    begun, _ = words_of(one.log)
    with open(one.log, encoding="utf-8") as lines:
        yield from (line.strip() for line in lines if line.startswith("together"))
    records = one.records()
    keys = {}
    for record in records:
        for number in range(record.reruns + 1):
            suffix = "" if number == 0 else f"#{number + 1}"
            keys[f"{open_for_reading(one.state).key(record.ref)}{suffix}"] = record
    for key, count in begun.items():
        if count > 1:
            yield f"{key} was begun {count} times"
        record = keys.get(key)
        if record is None:
            yield f"{key} was begun and has no claim"
        elif not any(line["event"] == "started" for line in record.events):
            yield f"{record.ref} was begun without `started`"
    for record in records:
        yield from of_record(one, record, begun, keys)
    yield from of_day(one, records)
    for name in hands.NAMES:
        yield from of_slots(one, name, records)
    yield from of_open(one)
    for pid, words in processes_of(one.folder).items():
        yield f"process {pid} is left: {words[:100]}"


def of_record(one, record, begun, keys):
    if record.end is None:
        waits = record.last in ("claim", "attempt", "not-started", "buffered", "retry", "parked")
        # What falls due in the last seconds may wait for the next start.
        if not waits:
            yield f"{record.ref} has no outcome: {record.last}"
        return
    if outcome_lines(one.state, record) != 1:
        yield f"{record.ref} has {outcome_lines(one.state, record)} outcomes"
    own = [key for key, owner in keys.items() if owner.ref == record.ref]
    if record.end["outcome"] == "completed" and not any(begun[key] for key in own):
        yield f"{record.ref} is completed and was not begun"
    if record.end["outcome"] == "superseded" and "supersede" not in record.routine:
        overlap = {each.name: each.overlap for each in hands.routines()}[record.routine]
        if overlap != hands.SUPERSEDE:
            yield f"{record.ref} is superseded, and its routine does not ask for that"
    if record.reruns > (record.routine == "rerun"):
        yield f"{record.ref} was run again {record.reruns} times"


def of_day(one, records):
    """No more turns than the day allows, if it is still the day that it began on."""
    by_day = collections.Counter(
        at.date() for each in records if each.routine == "limited" for at in each.starts
    )
    for day, count in by_day.items():
        if count > hands.TURNS_A_DAY:
            yield f"{count} turns of `limited` on {day}, and {hands.TURNS_A_DAY} are allowed"


def of_slots(one, name, records):
    """Every slot from the cursor to the newest claim is claimed, or covered by a counted record."""
    cursors = CursorStore(open_for_reading(one.state))
    cursor = cursors.peek(name)
    if cursor is None:
        yield f"{name} has no cursor"
        return
    slots = {
        each.occurrence.instant
        for each in records
        if each.occurrence.kind is Kind.SLOT and each.occurrence.owner == name
    }
    ranges = list(cursors.missed(name))
    newest = max([*slots, *(each.last for each in ranges)], default=cursor.since)
    schedule = hands.Each(hands.EACH_S)
    at = schedule.next_after(cursor.first_seen_at)
    while at <= newest:
        if at not in slots and not any(each.after < at <= each.last for each in ranges):
            yield f"{name}@{at} is neither claimed nor recorded"
        at = schedule.next_after(at)


def of_open(one):
    """No name in open/ belongs to what has ended."""
    claims = ClaimStore(open_for_reading(one.state))
    for entry in claims.open_entries():
        record = claims.read_path(entry.claim_path)
        if record is not None and record.end is not None:
            claim, name = (
                os.path.join(one.state, entry.claim_path),
                os.path.join(one.state, "open", entry.name),
            )
            if os.path.exists(name) and os.path.samefile(claim, name):
                yield f"open/{entry.name} is left"


def campaign(*, seconds=600.0, seed=None):
    """Run one campaign in a folder of its own, and clean up after it."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mixed-") as folder:
        one = Campaign(folder, seed=seed)
        try:
            one.run(seconds)
            wrong = [*one.finish(), *wrongs(one)]
            records = one.records()
            cursors = CursorStore(open_for_reading(one.state))
            given_up = collections.Counter(
                each.reason.value for name in hands.NAMES for each in cursors.missed(name)
            )
            if wrong:
                keep = f"{folder.rstrip('/')}.kept"
                subprocess.run(["cp", "-a", folder, keep], check=False)
                wrong.append(f"kept as {keep}")
            return Result(
                seed=seed,
                seconds=time.monotonic() - began,
                kills=dict(one.kills),
                acts=dict(one.acts),
                claims=dict(collections.Counter(each.trigger.value for each in records)),
                turns=sum(words_of(one.log)[0].values()),
                outcomes=outcomes_of(records),
                given_up=dict(given_up),
                wrong=wrong,
            )
        finally:
            end_all(folder)
            for process in (*one.schedulers, *one.hands):
                if process is not None:
                    process.wait()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args(argv)
    result = campaign(seconds=60 * asked.minutes, seed=asked.seed)
    for line in result.lines():
        print(line)
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
