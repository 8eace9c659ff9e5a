"""200,000 records with about 100 MB: one fire, and `routines history` for the last 20.

The records are copies, each a file of its own, of one that the product wrote; they are on the disk,
spread over twenty routines. Each command, and an engine that fires one slot, is a process of its
own, whose seconds and largest memory are taken. These are the only absolute bounds here.
"""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from statistics import median

from benchmarks.measure import COMMAND, Places, Row, Size, peak_mb, room
from benchmarks.retained import NAME, One
from routines.domain.names import day_name, instant_name
from routines.domain.record import encode
from routines.store.claims import ClaimStore
from routines.store.state import open_for_reading

COUNT = {Size.TINY: 200, Size.USUAL: 20_000, Size.FULL: 200_000}
ROUNDS = {Size.TINY: 1, Size.USUAL: 3, Size.FULL: 5}
_ROUTINES = 20
# What a reader needs of a record; the rest would make it three times as large.
_KEPT = (
    "event", "at", "id", "kind", "routine", "session", "trigger", "tz", "due_at", "by",
    "outcome", "reason", "detail", "duration_s", "reply",
)  # fmt: skip
_MOST_S, _MOST_MB = 1.0, 100.0

# Runs once for each measure, each time for the slot of the present minute.
_FIRE = """\
import asyncio, sys
from datetime import timedelta
from benchmarks.records import at_the_next_minute
from benchmarks.retained import engine_of
from routines.testing import FakeClock

async def main(root):
    clock = FakeClock(at_the_next_minute(root))
    async with engine_of(root, clock).opened() as engine:
        delivery = await engine.fire("r00000", clock.now())
    return 0 if delivery.word == "claimed" else 1

code = asyncio.run(main(sys.argv[1]))
"""


def at_the_next_minute(root: str) -> datetime:
    """Return the first slot that is neither claimed nor in the past of one that is."""
    state = open_for_reading(os.path.join(root, ".routines"))
    newest, _ = ClaimStore(state).newest_slot(NAME, until=datetime.max.replace(tzinfo=UTC))
    if newest is None:
        raise RuntimeError("nothing was claimed")
    return newest + timedelta(minutes=1)


def _fill(one: One, count: int) -> int:
    """Write *count* records; return how many bytes they hold."""
    with open(one.a_claim(), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    kept = [{key: event[key] for key in _KEPT if key in event} for event in (events[0], events[-1])]
    lines = b"".join(encode(event) + b"\n" for event in kept)
    for number in range(_ROUTINES):
        name = NAME if number == 0 else f"other-{number:03}"
        base = os.path.join(one.state, "claims", name)
        at, made = one.clock.now() - timedelta(days=1), ""
        for _ in range(count // _ROUTINES):
            at -= timedelta(minutes=5)
            folder = os.path.join(base, day_name(at))
            if folder != made:
                os.makedirs(folder, exist_ok=True)
                made = folder
            with open(os.path.join(folder, f"{instant_name(at)}.jsonl"), "wb") as file:
                file.write(lines)
    return count * len(lines)


def run(size: Size, places: Places) -> Iterable[Row]:
    with room(places.disk) as folder:
        one = One(os.path.join(folder, "records"), 0)
        held = _fill(one, COUNT[size])
        what = f"{COUNT[size]:,} records, {held / 1e6:.0f} MB"
        for words, command in (
            ("fire", [_FIRE, one.root]),
            ("history, all, last 20", [COMMAND, "history", "-n", "20", "--since", "30d"]),
            ("history NAME, last 20", [COMMAND, "history", NAME, "-n", "20"]),
        ):
            runs = [peak_mb(*command, cwd=one.root) for _ in range(ROUNDS[size])]
            yield Row(f"{words}: {what}", median(run[0] for run in runs), _MOST_S, "s")
            yield Row(f"{words}: memory", max(run[1] for run in runs), _MOST_MB, "MB")
