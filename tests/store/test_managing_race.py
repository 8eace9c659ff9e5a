"""Several programs at once on one wake-up: one makes it, and no update overwrites another."""

import subprocess
import sys
from pathlib import Path

from routines.domain.wakeup import keyed_id
from routines.store.state import State
from routines.store.wake_managing import ManagedStore

RACER = """
import sys
from datetime import UTC, datetime
from routines.domain.wake_managing import Change, updated
from routines.domain.wake_request import WakeRequest
from routines.domain.wakeup import Bounds
from routines.errors import WakeupConflict
from routines.store.state import open_for_writing
from routines.store.wake_managing import ManagedStore
path, mine = sys.argv[1:]
store = ManagedStore(open_for_writing(path, boot="5f2c0a6e-0000-4000-8000-000000000001"))
now = datetime(2026, 6, 1, 8, tzinfo=UTC)
asked = {"now": now, "bounds": Bounds(), "zone_key": "UTC"}
request = WakeRequest(prompt="x", in_="10m", session="chat", key="k", fingerprint="1", by=mine)
print("ready", flush=True)
sys.stdin.readline()
made, done = store.create(request, **asked), 0
for number in range(5):
    known = store.known("chat", made.wakeup.id)
    change = Change(prompt=f"{mine} {number}")
    try:
        store.change(
            "chat",
            made.wakeup.id,
            known.wakeup.revision,
            lambda one, company: updated(one, change, company, now=now, by=mine),
            **asked,
        )
        done += 1
    except WakeupConflict:
        pass
print(int(made.new), done, flush=True)
"""


def test_of_many_programs_one_makes_it_and_no_update_is_lost(state: State) -> None:
    root = str(Path(__file__).parents[2])
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, state.path, f"p{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for number in range(6)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60)[0].split() for racer in racers]

    assert sum(int(new) for new, _ in answers) == 1
    known = ManagedStore(state).known("chat", keyed_id("chat", "k"))
    assert known is not None
    # Each update that was answered is one revision, and the last of them is what is there.
    assert known.wakeup.revision == 1 + sum(int(done) for _, done in answers)
