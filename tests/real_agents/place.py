"""A workspace of its own for one program: its files, its commands, its processes, its requests."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from tests.standin.server import StandIn

# How often a condition is looked at.
_LOOK_S = 0.05


class Unmet(AssertionError):
    """Something that has to hold does not; the message says what was found."""


def need(holds, says):
    if not holds:
        raise Unmet(says)


class Place:
    """A temporary folder with a workspace whose agent is the preset of *program*.

    `routines` is run as a person would, in a process of its own. The program's variables stand in
    the workspace's `env_file`, so its processes, and no others, have that home in their
    environment.
    """

    def __init__(self, folder, program, path):
        self.program = program
        self.path = path
        # As the kernel and the programs name it: they would notice a link in the way.
        folder = os.path.realpath(folder)
        self.home = os.path.join(folder, "home")
        self.root = os.path.join(folder, "work")
        self.standin = StandIn(os.path.join(folder, "requests.jsonl"))
        self._own = os.path.dirname(sys.executable)
        self._started = []
        os.makedirs(self.home)
        os.makedirs(os.path.join(self.root, "routines"))

    def __enter__(self):
        self.standin.__enter__()
        self.point(self.standin.url)
        return self

    def __exit__(self, *_):
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        for pid in self.agent_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.standin.__exit__()

    # Files --------------------------------------------------------------------------------------

    def point(self, url, **more):
        env = {"HOME": self.home, **self.program.point(self.home, url), **more}
        lines = [f"{key}={value}\n" for key, value in env.items()]
        with open(os.path.join(self.root, "agent.env"), "w", encoding="utf-8") as file:
            file.writelines(lines)
        self.workspace()

    def workspace(self, **keys):
        self._yaml(
            "routines.yaml",
            {"tz": "UTC", "agent": self.program.preset, "env_file": "agent.env", **keys},
        )

    def routine(self, name, *prompt, **keys):
        """Write a routine without a schedule, its prompt one line for each of *prompt*."""
        if self.program.model is not None:
            keys.setdefault("model", self.program.model)
        made = {"prompt": "\n".join(prompt), "timeout": "3m", **keys}
        self._yaml(f"routines/{name}.yaml", made)

    def _yaml(self, path, keys):
        # A JSON value is a YAML value, and nothing in it means anything else.
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def count(self, path):
        """Return how many letters the file *path* of the workspace has, 0 if it is not there."""
        try:
            return os.path.getsize(os.path.join(self.root, path))
        except FileNotFoundError:
            return 0

    # Commands -----------------------------------------------------------------------------------

    def _call(self, args):
        path = os.pathsep.join([self._own, self.path])
        env = {**os.environ, "PATH": path, "ROUTINES_ROOT": self.root}
        return [sys.executable, "-m", "routines", *args], env

    def run(self, *args, timeout=240):
        words, env = self._call(args)
        return subprocess.run(
            words,
            env=env,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, *args):
        words, env = self._call(args)
        process = subprocess.Popen(
            words,
            env=env,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def json(self, *args):
        done = self.run(*args, "--json")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Unmet(f"routines {' '.join(args)}: {done.stdout} {done.stderr}") from None

    def turn(self, name):
        """Run the routine *name* and return its record; it must end well."""
        done = self.run("run", name)
        record = self.newest(name)
        need(done.returncode == 0, f"run {name}: exit {done.returncode}: {told(record, done)}")
        return record

    def newest(self, name):
        records = self.json("history", name, "-n", "1")
        need(records, f"{name} has no record")
        return records[0]

    def has_started(self, name):
        """Return whether a turn of *name* is on record as started; sooner than a command could."""
        folder = os.path.join(self.root, ".routines", "claims", name)
        for place, _, files in os.walk(folder):
            for file in files:
                with open(os.path.join(place, file), encoding="utf-8") as lines:
                    if any('"event":"started"' in line for line in lines):
                        return True
        return False

    # Requests -----------------------------------------------------------------------------------

    def asked(self, *words):
        """Return the requests whose newest texts hold all of *words*, oldest first."""
        return [
            request
            for request in self.standin.requests()
            if all(word in "\n".join(request.get("newest", [])) for word in words)
        ]

    def wait(self, what, condition, seconds):
        """Wait until *condition* gives something, and return it."""
        end = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > end:
                raise Unmet(f"after {seconds} s there is still no {what}")
            time.sleep(_LOOK_S)

    def wait_asked(self, *words):
        said = f"request with {' and '.join(words)}"
        return self.wait(said, lambda: self.asked(*words), self.program.slow_s * 2)[-1]

    # Processes ----------------------------------------------------------------------------------

    def agent_processes(self):
        """Return the processes that live in the program's home: it, and all that it started."""
        mark = f"HOME={self.home}".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ").split(b"\0")]

    def kill_all_of(self, process):
        """Kill *process* and all below it at once, as a power cut would."""
        pids = sorted({process.pid, *_below(process.pid), *self.agent_processes()})
        # Stopped first, so that none of them sees another one go and acts on it.
        for word in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, word)
        process.wait()


def told(record, done=None):
    """Return in a few words how a turn ended."""
    words = f"{record['outcome']} {record['reason'] or ''} {record['detail'] or ''}".strip()
    return words if done is None else f"{words}; {done.stderr.strip()[-300:]}"


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        # It has ended meanwhile, or it is not ours.
        return b""


def _below(pid):
    parents = {}
    for other in _pids():
        stat = _read(other, "stat")
        if stat:
            parents.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(other)
    found, open_ = [], [pid]
    while open_:
        children = parents.get(open_.pop(), [])
        found += children
        open_ += children
    return found
