"""What README.md shows is what happens: its commands are run and their output is compared.

A page is played from top to bottom in one workspace, as a reader would do it: a yaml, sh or python
block whose first comment is a path is written there, and each line of a console block that begins
with `$ ` is run. What differs from run to run (times, spans, ids, hosts) is compared by its kind.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from routines.config.workspace_file import parse_settings

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text()

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PATH = re.compile(r"^(?:#!.*\n)?# ([\w./-]+\.(?:yaml|sh|py))(?: .*)?$", re.MULTILINE)
_DAY = r"(?:today|yesterday|tomorrow|Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_KINDS = [
    (r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "<instant>"),
    (r"manual:<instant>-[0-9a-f]{6}", "<run>"),
    (rf"(?:{_DAY} )(?:\d\d )?(?:{_MONTH} )?(?:\d{{4}} )?\d\d:\d\d(?::\d\d)?Z?", "<when>"),
    (r"\b\d\d:\d\d(?::\d\d)?Z", "<when>"),
    (r"[+-]\d\d:\d\d\b", "<offset>"),
    (r"\b\d\d:\d\d(?::\d\d)?\b", "<when>"),
    (r"\b\d+ (?:d|h|m|s|ms)(?: \d+ (?:h|m|s))?\b", "<span>"),
    (r"\bw-[a-z0-9]{6}\b", "<wake-up>"),
    (r"\bana@[\w.-]+", "<who>"),
    (r"\bpid[ =]\d+(?:, [\w.-]+)?", "<pid>"),
    (r"\d+% full", "<full>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"[ \t]+", " "),
]


def by_kind(text):
    """Return *text* with everything that differs from run to run replaced by its kind."""
    for pattern, kind in _KINDS:
        text = re.sub(pattern, kind, text)
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def blocks(page):
    """Yield mark, kind and text of each block of *page*."""
    for found in _BLOCK.finditer(page):
        yield found["mark"], found["kind"], found["text"]


def steps(block, *, one):
    """Yield each command of a console block with the output that is shown for it.

    With *one* its first line is the only command: what follows may look like others.
    """
    if one:
        command, _, shown = block.removeprefix("$ ").partition("\n")
        yield command, shown
        return
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = [lines.pop(0)]
        while lines and lines[0].startswith("> "):
            command.append(lines.pop(0)[2:])
        yield "\n".join(command), "\n".join(lines)


class Reader:
    """Somebody who does what a page says, in ~/agents, under the name of Ana."""

    def __init__(self, home):
        self.home = home
        self.folder = home / "agents"
        self.folder.mkdir(parents=True)
        programs = home / "bin"
        programs.mkdir()
        for name, words in {"routines": "-m routines", "python": ""}.items():
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            path.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROUTINES_", "PYTEST_"))}
        self.env = kept | {
            "HOME": str(home),
            "LOGNAME": "ana",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "ROUTINES": str(programs / "routines"),
        }
        self.env.pop("COLUMNS", None)

    def write(self, text):
        """Write a block that names its file; return whether it does."""
        found = _PATH.match(text)
        if found is None:
            return False
        path = self.folder / found[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
        return True

    def run(self, command, **more):
        """Return what *command* prints, with its exit code in a last line unless that is 0."""
        ended = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self.env | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        code = f"\n[exit {ended.returncode}]" if ended.returncode else ""
        return self.at_home(ended.stdout.rstrip("\n")) + code

    def at_home(self, text):
        """Return *text* with the home that a page would show."""
        return text.replace(str(self.home), "/home/ana")

    def inside_a_turn(self, session="routine:daily-digest"):
        """Return the variables that a turn has, as far as `wake` needs them."""
        state = str(self.folder / ".routines")
        return {
            "ROUTINES_ROOT": str(self.folder),
            "ROUTINES_STATE": state,
            "ROUTINES_SESSION": session,
            "ROUTINES_TURN": "w/daily-digest@2026-11-30T08:00:00Z",
        }

    def play(self, page, *, before=lambda _: None):
        """Do everything that *page* shows, and compare; return the commands that were run."""
        ran = []
        for mark, kind, text in blocks(page):
            if mark in {"not run", "the test command"} or (mark or "").startswith("tested by"):
                continue
            if kind in {"yaml", "sh", "python"}:
                self.write(text)
            if kind != "console":
                continue
            inside = mark is not None and "inside a turn" in mark
            scheduler = self.start() if mark is not None and "scheduler" in mark else None
            try:
                for command, shown in steps(text, one=mark == "one command"):
                    before(command)
                    said = self.run(command, **(self.inside_a_turn() if inside else {}))
                    assert by_kind(said) == by_kind(shown), f"$ {command}\n{said}"
                    ran.append(command)
            finally:
                if scheduler is not None:
                    stop(scheduler)
        return ran

    def start(self):
        """Start a scheduler and return it once others can see that it is alive."""
        scheduler = subprocess.Popen(
            [self.env["ROUTINES"], "start", "--grace", "1s"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        live = self.folder / ".routines" / "schedulers" / "live"
        limit = time.monotonic() + 60
        while not list(live.glob("*.json")):
            assert scheduler.poll() is None, scheduler.stdout.read()
            assert time.monotonic() < limit
            time.sleep(0.05)
        return scheduler


def stop(scheduler):
    """Stop a scheduler as ^C does and return what it printed."""
    scheduler.send_signal(signal.SIGINT)
    return scheduler.communicate(timeout=60)[0]


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path / "home")


def test_what_the_readme_shows_is_what_happens(reader):
    (reader.home / "examples").symlink_to(REPOSITORY / "examples")
    (reader.folder / "examples").symlink_to(REPOSITORY / "examples")

    ran = reader.play(README)

    assert "./examples/quickstart/run" in ran
    assert len(ran) >= 8


def test_the_test_command_is_where_it_is_looked_for():
    after = README.split("\n<!-- the test command -->\n```sh\n", 1)[1]
    command = after.split("\n```", 1)[0]

    assert "\n" not in command
    install, _, tests = command.partition(" && .venv/bin/pytest")
    assert install == "python3 -m venv .venv && .venv/bin/python -m pip install -q -e '.[dev]'"
    assert tests.startswith(" ")


def claude_entry():
    return next(text for _, kind, text in blocks(README) if kind == "yaml" and "claude" in text)


def test_the_settings_for_claude_code_begin_one_conversation_and_go_on_with_it(reader):
    program = reader.home / "bin" / "claude"
    asked = reader.home / "standin" / "asked"
    asked.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f"export STANDIN_HOME='{asked.parent}' PYTHONPATH='{REPOSITORY}'\n"
        f"exec '{sys.executable}' -sm tests.standin.programs claude \"$@\"\n"
    )
    program.chmod(0o755)
    (reader.folder / "routines.yaml").write_text(claude_entry())
    (reader.folder / "routines").mkdir()
    (reader.folder / "routines" / "news.yaml").write_text("prompt: What is new?\n")

    assert parse_settings(claude_entry().encode(), root="/ws")[1] == ()
    assert reader.run("routines run news") == "What is new?"
    assert reader.run("routines run news") == "What is new? | What is new?"
    assert reader.run("routines session reset news") == "routine:news begins anew: epoch 2"
    assert reader.run("routines run news") == "What is new?"
    turns = [
        words for line in asked.read_text().splitlines() if "-p" in (words := json.loads(line))
    ]
    ways = {"--session-id", "--resume"}
    assert [(ways & set(words)).pop() for words in turns] == [
        "--session-id",
        "--resume",
        "--session-id",
    ]
