"""What the tests with real processes share: a workspace, its processes, and what they leave.

What is tested is not imported but to read records back, and to say since when a routine is known:
everything is done from outside, by commands, signals and files, as a person, a service manager or
a crash would.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from routines.agents.identity import boot_id
from routines.domain.record import Record
from routines.domain.routine import schedule_key
from routines.operations.context import Context
from routines.store.claims import ClaimStore
from routines.store.cursors import Cursor, CursorStore
from routines.store.sessions import SessionStore
from routines.store.state import open_for_reading, open_for_writing

REPOSITORY = str(Path(__file__).resolve().parents[2])
# Two slow cores under load start a process in seconds, not in tenths.
PATIENCE_S = 60.0


def now():
    return datetime.now(UTC)


def soon(seconds=2.0):
    """Return the whole second that is at least *seconds* ahead."""
    return (now() + timedelta(seconds=seconds + 1)).replace(microsecond=0)


def stamp(instant):
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def eventually(condition, what="it", seconds=PATIENCE_S):
    """Wait until *condition* is true and return its value; fail after *seconds*."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, f"{what} never came to be within {seconds:.0f} s"
        time.sleep(0.02)
    return value


def stays(condition, seconds, what="it"):
    """Look at *condition* for *seconds*; fail as soon as it does not hold."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        assert condition(), f"{what} did not stay so"
        time.sleep(0.05)


def environment(**more):
    """Return the environment of a started process: ours without what tests put into it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROUTINES_", "PYTEST_"))}
    return env | {"PYTHONPATH": REPOSITORY, "PYTHONUNBUFFERED": "1"} | more


# Processes --------------------------------------------------------------------------------------


def _read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def processes_of(root):
    """Return pid and words of every live process of the workspace at *root*, but not ourselves.

    Agents are known by ROUTINES_STATE in their environment, schedulers and turn processes by
    their words. A zombie has neither.
    """
    mark, found = os.fsencode(root), {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        words = _read(f"/proc/{name}/cmdline")
        named = any(
            line.startswith(b"ROUTINES_STATE=" + mark)
            for line in _read(f"/proc/{name}/environ").split(b"\0")
        )
        if words and (named or mark in words):
            found[int(name)] = words.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return found


def turn_processes(root):
    """Return the pids of the processes that own a turn of the workspace at *root*."""
    return sorted(
        pid for pid, words in processes_of(root).items() if "routines.engine.turn_process" in words
    )


def agents_of(root):
    """Return the pids of the agents of the workspace at *root*, without what they have started."""
    found = {pid for pid, words in processes_of(root).items() if "/agent.sh" in words}
    # A shell that has forked and not yet executed what it starts still looks like the agent.
    return sorted(pid for pid in found if parent_of(pid) not in found)


def parent_of(pid):
    """Return the parent of *pid*, None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def end_all(root):
    """Kill whatever is left of the workspace at *root*; for the end of a test that failed."""
    for _ in range(50):
        left = processes_of(root)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


# A workspace ------------------------------------------------------------------------------------


@dataclass
class Workspace:
    """A folder with routines, driven from outside."""

    root: Path
    started: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self):
        (self.root / "routines").mkdir(parents=True, exist_ok=True)

    @property
    def state(self):
        return str(self.root / ".routines")

    @property
    def id(self):
        """The id that the state folder has now."""
        return open_for_reading(self.state).workspace

    def ledgers(self):
        """Return what is known of each session."""
        return list(SessionStore(open_for_reading(self.state)).all())

    # What is in it

    def agent(self, script, **keys):
        """Make `sh` with *script* the agent; `$LOG` is a file, `$HERE` the workspace."""
        text = f"HERE={self.root}\nLOG={self.root}/log\n{script}\n"
        (self.root / "agent.sh").write_text(text)
        more = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in keys.items())
        (self.root / "routines.yaml").write_text(
            "agent: stub\nconcurrency: 8\nagents:\n  stub:\n"
            f"    command: [/bin/sh, {json.dumps(str(self.root / 'agent.sh'))}]\n{more}"
        )
        return self

    def routine(self, name="digest", prompt="say hello", **keys):
        """Write a routine; without a schedule it is reached by name only."""
        keys = {"prompt": prompt, **keys}
        lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
        (self.root / "routines" / f"{name}.yaml").write_text(lines)
        return self

    def due(self, name="digest", ago=1.0, **keys):
        """Write a routine whose one slot fell due *ago* seconds ago (less than 0: is to come).

        It is first seen an hour ago, so that a slow start of a process changes nothing.
        """
        slot = (now() - timedelta(seconds=ago)).replace(microsecond=0)
        self.routine(name, at=stamp(slot), **keys)
        self.seen(name, now() - timedelta(hours=1))
        return slot

    def seen(self, name, since):
        """Say that a routine is known since then, as the cursor of a scheduler would."""
        routine = Context(explicit_root=str(self.root)).workspace.routines[name]
        state = open_for_writing(self.state, boot=boot_id())
        CursorStore(state).write(
            Cursor(routine=name, first_seen_at=since, since=since, schedule=schedule_key(routine))
        )

    # What is done with it

    def words(self, *words):
        return [sys.executable, "-m", "routines", "--root", str(self.root), *words]

    def cli(self, *words, env=None, cwd=None, timeout=PATIENCE_S):
        """Run one command to its end."""
        return subprocess.run(
            self.words(*words),
            cwd=cwd or self.root,
            env=environment() if env is None else env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def json(self, *words, **keys):
        """Run one command and return its exit code and the value that it printed."""
        done = self.cli(*words, "--json", **keys)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def begin(self, *words, env=None, cwd=None):
        """Start one command and return it while it runs; its output goes to files."""
        return self.launch(self.words(*words), env=env, cwd=cwd)

    def begin_each(self, *words):
        """Start a scheduler of routines `r00`, ... that are due every few seconds."""
        script = [sys.executable, "-m", "tests.campaigns.scheduler", self.state]
        return self.launch([*script, *words], cwd=REPOSITORY)

    def launch(self, words, *, env=None, cwd=None):
        """Start a program and return it while it runs; its output goes to files."""
        number = len(self.started)
        with (
            open(self.root / f"out.{number}", "wb") as out,
            open(self.root / f"err.{number}", "wb") as err,
        ):
            process = subprocess.Popen(
                words,
                cwd=cwd or self.root,
                env=environment() if env is None else env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        process.number = number
        self.started.append(process)
        return process

    def start(self, *words, **keys):
        """Start a scheduler and wait until it says so."""
        process = self.begin("start", *words, **keys)
        eventually(
            lambda: "started" in self.said(process) or process.poll() is not None, "the start"
        )
        assert process.poll() is None, self.said(process)
        return process

    def said(self, process):
        """Return what a command has written to stderr."""
        return (self.root / f"err.{process.number}").read_text()

    def printed(self, process):
        """Return what a command has written to stdout."""
        return (self.root / f"out.{process.number}").read_text()

    def ended(self, process, seconds=PATIENCE_S):
        """Wait for the end of a command and return its exit code."""
        return process.wait(timeout=seconds)

    # What became of it

    def log(self):
        """Return the lines that agents have written to `$LOG`."""
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    def records(self, name="digest"):
        """Return the records of a routine, oldest first."""
        return records_of(self.state, name)

    def record(self, name="digest"):
        """Return the one record of a routine."""
        (found,) = self.records(name)
        return found

    def settled(self, name="digest", seconds=PATIENCE_S):
        """Wait until the newest occurrence of a routine has an outcome; return its record."""

        def newest():
            found = self.records(name)
            return found[-1] if found and found[-1].end is not None else None

        return eventually(newest, f"the end of {name}", seconds)

    def missed(self, name="digest"):
        """Return the counted records of a routine, oldest first."""
        return missed_of(self.state, name)

    def open(self):
        """Return the names in `open/`."""
        folder = os.path.join(self.state, "open")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(name for name in names if not name.startswith("."))

    def none_left(self, seconds=20.0):
        """Wait until no process of this workspace lives."""
        eventually(
            lambda: not processes_of(self.root), f"the end of {processes_of(self.root)}", seconds
        )


def records_of(state_path, name):
    """Return the records of a routine in a state folder, oldest first."""
    if not os.path.exists(os.path.join(state_path, "format")):
        return []
    claims = ClaimStore(open_for_reading(state_path))
    found = [claims.read_path(path) for path in claims.walk([name])]
    return [record for record in reversed(found) if record is not None]


def missed_of(state_path, name):
    """Return the counted records of a routine, oldest first."""
    cursors = CursorStore(open_for_reading(state_path))
    return list(reversed(list(cursors.missed(name))))


def end_of(record: Record):
    """Return outcome and reason of a record, as words."""
    end = record.end or {}
    return end.get("outcome"), end.get("reason")


def events_of(record: Record):
    """Return the words of a record's lines, the claim's own left out."""
    return [event["event"] for event in record.events]


def outcome_lines(state_path, record: Record):
    """Return how many outcome lines the record's file holds."""
    data = Path(state_path, record.path).read_bytes()
    return sum(line.startswith(b'{"event":"outcome"') for line in data.splitlines())
