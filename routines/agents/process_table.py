"""The process table: which processes there are, and which of them name a turn as theirs.

Where there is no /proc (macOS), `ps` answers instead. What it can't tell: a start time finer than
a second, a namespace, and the environment of a program that hides it; so a child that left the
group of a turn there may stay behind.
"""

import os
import re
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from routines.agents.processes import ask_system, env_bytes, env_text
from routines.store.state import was_called

_LINUX = sys.platform == "linux"
_PS_FIELDS = 9
# What stands before each variable in the one line that `ps` makes of an environment.
_PS_VARIABLE = re.compile(r" (?=[A-Za-z_][A-Za-z0-9_]*=)", re.ASCII)

# The place of `flags` in /proc/PID/stat, counted from the state, and PF_KTHREAD in it.
_STAT_FLAGS, _KERNEL_THREAD = 6, 0x00200000
# An exec is through in microseconds; on a busy machine it may have to wait for its turn in it.
_EXEC_LOOKS = 1000

Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table.

    Attributes:
        pid: In our own namespace.
        parent: Its parent's pid.
        group: Its process group.
        session: Its session; 0 where that can't be told.
        start: When it was started, in a form that only serves to compare.
        zombie: It has ended and was not reaped yet.
    """

    pid: int
    parent: int
    group: int
    session: int
    start: str
    zombie: bool

    @property
    def key(self) -> Key:
        """Pid and start: a pid alone is used again."""
        return self.pid, self.start


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def process_table() -> dict[int, Process]:
    """Return every process that we can see."""
    if not _has_proc():
        return {row.pid: row for row in _ps_rows()}
    rows = (_read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {row.pid: row for row in rows if row is not None}


def _read_stat(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    return _parse_stat(pid, stat)


def _parse_stat(pid: int, stat: bytes) -> Process | None:
    # The name in brackets may itself hold brackets and spaces: count from the last one.
    fields = stat.rpartition(b")")[2].split()
    try:
        return Process(
            pid=pid,
            parent=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            start=fields[19].decode("ascii"),
            zombie=fields[0] in {b"Z", b"X", b"x"},
        )
    except (IndexError, ValueError):
        return None


def _ps_rows(pid: int | None = None) -> list[Process]:
    wanted = ["-ax"] if pid is None else ["-p", str(pid)]
    text = _ps(*wanted, "-o", "pid=,ppid=,pgid=,stat=,lstart=")
    return [row for line in text.splitlines() if (row := _parse_ps(line)) is not None]


def _parse_ps(line: str) -> Process | None:
    fields = line.split()
    if len(fields) < _PS_FIELDS:
        return None
    try:
        pid, parent, group = (int(word) for word in fields[:3])
    except ValueError:
        return None
    start = " ".join(fields[4:_PS_FIELDS])
    return Process(pid, parent, group, 0, start, fields[3].startswith("Z"))


def _ps(*words: str) -> str:
    return ask_system("ps", *words)


def find_process(pid: int) -> Process | None:
    """Return the row of *pid*, None if there is no such process."""
    if _has_proc():
        return _read_stat(pid)
    rows = _ps_rows(pid)
    return rows[0] if rows else None


def pid_namespace(pid: int | None = None) -> str | None:
    """Return the pid namespace of *pid* (or ours), "" where there are none, None if unknown."""
    if not _LINUX:
        return ""
    try:
        return os.readlink(f"/proc/{'self' if pid is None else pid}/ns/pid")
    except OSError:
        return None


# By their environment -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What stands in the environment of every process of a turn, or of what a person opened.

    Attributes:
        variable: Names the state folder, as it was called when the process was started.
        state: That folder, by any of its names.
        beside: Another line that stands there as it is, NAME=VALUE; "" if there is none.
    """

    variable: str
    state: str
    beside: str = ""

    def is_in(self, environ: AbstractSet[bytes]) -> bool:
        """Return whether a process with this environment is one of them."""
        if self.beside and env_bytes(self.beside) not in environ:
            return False
        head = env_bytes(f"{self.variable}=")
        named = [env_text(line[len(head) :]) for line in environ if line.startswith(head)]
        return any(was_called(self.state, path) for path in named)


def mark_of_turn(state: str, turn_key: str) -> Mark:
    """Return the mark of a turn."""
    return Mark(variable="ROUTINES_STATE", state=state, beside=f"ROUTINES_TURN={turn_key}")


def leftovers(state: str, turn_key: str) -> list[int]:
    """Return the live processes whose environment names this state folder and this turn.

    Only those of this host and of our own pid namespace, never ourselves, no zombies.
    """
    return sorted(row.pid for row in named(process_table(), mark_of_turn(state, turn_key)))


def named(table: Mapping[int, Process], mark: Mark) -> list[Process]:
    """Return those of *table* that have *mark* in their environment.

    Only those of this host and of our own pid namespace, never ourselves, no zombies.
    """
    own = os.getpid()
    rows = [row for row in table.values() if not row.zombie and row.pid != own]
    if not _has_proc():
        environs = _environs_by_ps()
        return [row for row in rows if mark.is_in(environs.get(row.pid, set()))]
    ours = pid_namespace()
    return [row for row in rows if mark.is_in(_environ(row.pid)) and pid_namespace(row.pid) == ours]


def _environ(pid: int) -> set[bytes]:
    for _ in range(_EXEC_LOOKS):
        data = _proc_file(pid, "environ")
        if data or not _is_in_exec(pid):
            break
        os.sched_yield()
    else:
        data = b""
    return set(data.split(b"\0"))


def _proc_file(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        # Of another user, or gone: neither is ours to end.
        return b""


def _is_in_exec(pid: int) -> bool:
    """Return whether the kernel is putting a new program into *pid*.

    Its words and its environment are empty then, though its parent may know already that it was
    started: a child would be missed that was started just before its turn ended.
    """
    if _proc_file(pid, "cmdline"):
        return False
    fields = _proc_file(pid, "stat").rpartition(b")")[2].split()
    if len(fields) <= _STAT_FLAGS or fields[0] in {b"Z", b"X", b"x"}:
        return False
    return not int(fields[_STAT_FLAGS]) & _KERNEL_THREAD


def _environs_by_ps() -> dict[int, set[bytes]]:
    """Return the words and the environment of each process; a value may hold spaces."""
    found = {}
    for line in _ps("-axEww", "-o", "pid=,command=").splitlines():
        number, _, rest = line.strip().partition(" ")
        if number.isdigit():
            found[int(number)] = {env_bytes(part) for part in _PS_VARIABLE.split(rest)}
    return found
