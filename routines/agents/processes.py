"""The one module that starts processes, knows whether they live, and ends them.

A turn is a tree: the agent, what it started, what left its group or its parent. The tree is found
in three ways that make up for each other (T3): by its group and session, by descent (on Linux a
turn process is a child subreaper, so an orphan becomes its child), and by the two variables that
name state folder and turn in every environment (which also finds what a killed turn process left).

Where there is no /proc (macOS), `ps` answers instead. What it can't tell: a start time finer than
a second, a namespace, and the environment of a program that hides it; so a child that left the
group of a turn there may stay behind.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from routines.agents.environment import environment, read_env_file
from routines.domain.clock import Clock
from routines.errors import UsageError
from routines.store import files

__all__ = [
    "GIVE_UP_S",
    "STOP_INTERVAL_S",
    "Process",
    "Tree",
    "become_subreaper",
    "boot_id",
    "end_tree",
    "environment",
    "find_process",
    "host_id",
    "in_container",
    "is_alive",
    "leftovers",
    "own_children",
    "pid_namespace",
    "process_identity",
    "process_table",
    "read_env_file",
    "start_program",
    "start_turn_process",
]

# Seconds between the signals of a stop sequence: what an agent needs to write its conversation.
STOP_INTERVAL_S = 10.0
# Seconds that a killed process gets to be gone. Longer means that it hangs in the kernel (a dead
# file server); waiting on would keep the session for ever, so it is named and left.
GIVE_UP_S = 10.0
# A tree mostly ends within milliseconds; a look costs one walk over /proc, so looks grow rarer.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
# The inode of the first pid namespace is fixed in the kernel (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")
# Left ignored by `nohup`, by a shell's `&` or by ourselves, they would stay so in the agent, and
# its stop sequence would begin with signals that it never feels.
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
# A service manager stops a scheduler before it answers, and that may take its grace.
_TOOL_TIMEOUT_S = 180.0
_PS_TIMEOUT_S = 10.0
_PS_FIELDS = 9

# The place of `flags` in /proc/PID/stat, counted from the state, and PF_KTHREAD in it.
_STAT_FLAGS, _KERNEL_THREAD = 6, 0x00200000
# An exec is through in microseconds; on a busy machine it may have to wait for its turn in it.
_EXEC_LOOKS = 1000

Key = tuple[int, str]


# Who a process is ---------------------------------------------------------------------------


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
    return _ask("ps", *words)


def _ask(*words: str) -> str:
    """Return what a program of the system prints, "" if it can't say."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_PS_TIMEOUT_S,
            # In another language lstart has other words, and two processes would never agree.
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


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


@functools.cache
def boot_id() -> str:
    """Return what names this boot of this machine; "" where nothing does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().decode("ascii").strip()
    except OSError:
        return _ask("sysctl", "-n", "kern.bootsessionuuid").strip()


@functools.cache
def host_id() -> str | None:
    """Return what names this machine over reboots, None in a container or where nothing does.

    A container has none: its machine id came with the image and is the same on every host.
    """
    if not _LINUX:
        found = re.search(r'"IOPlatformUUID" = "([^"]+)"', _ask("ioreg", "-rd1", "-c", _IO_CLASS))
        return found[1] if found else None
    if in_container(os.environ):
        return None
    for path in _MACHINE_ID_FILES:
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
            text = file.read(100).decode("ascii").strip()
            if re.fullmatch(r"[0-9a-f]{32}", text):
                return text
    return None


_IO_CLASS = "IOPlatformExpertDevice"


def in_container(env: Mapping[str, str]) -> bool:
    """Return whether anything says that this is a container; a wrong yes only costs time."""
    return (
        pid_namespace() != _FIRST_PID_NAMESPACE
        or any(os.path.exists(path) for path in _CONTAINER_MARKS)
        or any(name in env for name in _CONTAINER_VARIABLES)
    )


def process_identity(pid: int | None = None) -> dict[str, Any] | None:
    """Return pid, start, boot and pidns of *pid* (or of ourselves); None if it has ended."""
    pid = os.getpid() if pid is None else pid
    row = find_process(pid)
    if row is None or row.zombie:
        return None
    # The number is one of our namespace, also where the process has one of its own within it.
    return {"pid": pid, "start": row.start, "boot": boot_id(), "pidns": pid_namespace() or ""}


def is_alive(identity: Mapping[str, Any]) -> bool | None:
    """Return whether the process that `process_identity` named still lives.

    None means that it can't be told from here: it was named on another host or boot, or in
    another namespace. Another boot of this very host is proof of death, but only a record that
    also has our `host` proves that.
    """
    boot = identity.get("boot")
    if not boot or boot != boot_id():
        host = identity.get("host")
        same_host = bool(boot) and host is not None and host == host_id()
        return False if same_host else None
    if identity.get("pidns") != (pid_namespace() or ""):
        return None
    pid = identity.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return None
    row = find_process(pid)
    return row is not None and not row.zombie and row.start == identity.get("start")


# Starting -----------------------------------------------------------------------------------


@functools.cache
def _prctl() -> Callable[[int, int], bool] | None:
    """Return prctl(2) with one argument, None where there is none."""
    if not _LINUX:
        return None
    # Here and not above: most commands never start a process.
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    zero = ctypes.c_ulong(0)
    return lambda what, value: call(what, ctypes.c_ulong(value), zero, zero, zero) == 0


_adopts = False


def become_subreaper() -> bool:
    """Make this process the parent of every orphan below it; return whether that is possible.

    From then on whatever descends from it counts as the turn's: only a turn process does this.
    """
    global _adopts  # noqa: PLW0603 - a property of the process, as the kernel has it
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # Inherited from a careless parent, it makes the kernel throw exit codes away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl = _prctl()
    _adopts = prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return _adopts


def start_program(
    words: Sequence[bytes], *, program: str, env: Mapping[str, str], cwd: str, with_stdin: bool
) -> "subprocess.Popen[bytes]":
    """Start an agent's program, or raise OSError; nothing of it is left then.

    It gets a session of its own (so no terminal to ask on, and a group to be ended by), pipes for
    stdout and stderr, one for stdin if *with_stdin* and else /dev/null, and on Linux a signal
    that kills it when this thread dies: an agent must not go on without its time limit.

    Args:
        words: As the program sees them, its own name first.
        program: The absolute path that is run.
        env: Its whole environment.
        cwd: Its working directory.
        with_stdin: Whether the prompt comes by a pipe.
    """
    return subprocess.Popen(
        words,
        executable=os.fsencode(program),
        stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=cwd,
        # As bytes: by the locale's encoding a name with an umlaut would reach the agent broken.
        env={_env_bytes(key): _env_bytes(value) for key, value in env.items()},
        start_new_session=True,
        # Safe beside other threads too: between fork and exec it makes a few system calls that
        # were looked up before, takes no lock and imports nothing.
        preexec_fn=_child_setup(),  # noqa: PLW1509
    )


def _env_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _child_setup() -> Callable[[], None]:
    prctl = _prctl()
    parent = os.getpid()

    def setup() -> None:
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                # The parent died before the signal was asked for, so it will never come.
                os._exit(1)

    return setup


def start_turn_process(
    argv: Sequence[str],
    *,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    cwd: str,
    stderr_path: str,
) -> "subprocess.Popen[bytes]":
    """Start the process that owns one turn (T1): it outlives us and holds no terminal or pipe.

    Args:
        argv: Its words, the absolute path of the interpreter first.
        pass_fds: Descriptors that it inherits under the same numbers: claim and lease.
        env: Its whole environment.
        cwd: Its working directory.
        stderr_path: What it prints on stderr is appended here: nothing, unless it crashes.
    """
    stderr = files.open_append(stderr_path, create=True)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            close_fds=True,
            pass_fds=pass_fds,
            env={_env_bytes(key): _env_bytes(value) for key, value in env.items()},
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        files.close(stderr)


# Finding what belongs to a turn ---------------------------------------------------------------


def leftovers(state: str, turn_key: str) -> list[int]:
    """Return the live processes whose environment names this state folder and this turn.

    Only those of this host and of our own pid namespace, never ourselves, no zombies.
    """
    table = process_table()
    return sorted(row.pid for row in _named(table, state, turn_key))


def _named(table: Mapping[int, Process], state: str, turn_key: str) -> list[Process]:
    own = os.getpid()
    rows = [row for row in table.values() if not row.zombie and row.pid != own]
    marks = [f"ROUTINES_STATE={state}", f"ROUTINES_TURN={turn_key}"]
    if not _has_proc():
        named = _named_by_ps(marks)
        return [row for row in rows if row.pid in named]
    wanted = {_env_bytes(mark) for mark in marks}
    ours = pid_namespace()
    return [row for row in rows if wanted <= _environ(row.pid) and pid_namespace(row.pid) == ours]


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


def _named_by_ps(marks: Iterable[str]) -> set[int]:
    wanted = [f" {mark} " for mark in marks]
    found = set()
    for line in _ps("-axEww", "-o", "pid=,command=").splitlines():
        number, _, rest = line.strip().partition(" ")
        if number.isdigit() and all(mark in f" {rest} " for mark in wanted):
            found.add(int(number))
    return found


def own_children() -> frozenset[Key]:
    """Return the children that this process has now: none of them belongs to what starts next."""
    own = os.getpid()
    return frozenset(row.key for row in process_table().values() if row.parent == own)


def _below(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return *roots* and every process that descends from one of them."""
    children: dict[int, list[int]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Every process of one turn, however it is found.

    Attributes:
        state: The state folder that their environment names; "" if it names none.
        turn_key: The turn that it names; "" if it names none.
        leader: The agent that we started, None if another process did.
        spare: Children that we had before (`own_children`): not of this turn. None if nothing
            that descends from us is to be touched, as in a scheduler that cleans up.
    """

    state: str
    turn_key: str
    leader: int | None = None
    spare: frozenset[Key] | None = None

    def members(self) -> list[Process]:
        """Return those that live, never ourselves."""
        table = process_table()
        own = os.getpid()
        pids = {row.pid for row in table.values() if self._in_group(row)}
        pids |= _below(table, self._roots(table, own))
        if self.state and self.turn_key:
            pids.update(row.pid for row in _named(table, self.state, self.turn_key))
        pids.discard(own)
        return [table[pid] for pid in sorted(pids) if pid in table and not table[pid].zombie]

    def first_of(self, alive: list[Process]) -> list[Process]:
        """Return those of *alive* that are told to end before the others.

        An agent that sees its tool end, and only then hears that it is to end itself, takes that
        for the tool's answer: Claude Code writes no word of an interruption then, and does the
        work again when it goes on.
        """
        return [row for row in alive if row.group == self.leader] or alive

    def reap(self) -> None:
        """Take the exit of orphans that became our children; the leader's is left to its owner."""
        if self.spare is None or not _adopts:
            return
        own = os.getpid()
        for row in process_table().values():
            adopted = row.parent == own and row.zombie and row.key not in self.spare
            if adopted and row.pid != self.leader:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(row.pid, os.WNOHANG)

    def _in_group(self, row: Process) -> bool:
        return self.leader is not None and self.leader in (row.group, row.session)

    def _roots(self, table: Mapping[int, Process], own: int) -> list[int]:
        roots = [] if self.leader is None else [self.leader]
        if self.spare is not None and _adopts:
            roots += [r.pid for r in table.values() if r.parent == own and r.key not in self.spare]
        return roots


# Ending -------------------------------------------------------------------------------------


def end_tree(
    tree: Tree,
    *,
    stop: Sequence[str],
    clock: Clock,
    interval: float = STOP_INTERVAL_S,
    wait: Callable[[float], None] | None = None,
    hurry: Callable[[], bool] | None = None,
) -> list[int]:
    """End every process of *tree* and return when they are gone.

    The leader's group is told first, as a terminal does at ^C, and who left it once the group has
    ended. KILL is for all at once.

    Args:
        tree: What is to be ended.
        stop: Signals without `SIG`, sent one after the other while anything lives; KILL is
            always the last, whether it is named or not.
        clock: Times the pauses.
        interval: Seconds between two signals.
        wait: Waits for so many seconds; by default asleep. A caller with pipes drains them here,
            or an agent that has much to say at its end would hang in writing it.
        hurry: Asked at each look; True goes to KILL at once.

    Returns:
        Pids of what could not be ended: a process of another user, or one that hangs in the
        kernel. Nearly always empty.
    """
    wait = clock.sleep if wait is None else wait
    numbers = _sequence(stop)
    told: set[Key] = set()
    step, pause = 0, _FIRST_PAUSE_S
    since = clock.awake()
    while True:
        # Two looks: a child with a low number (they wrap) of one that ends just now is missed
        # by a look that has passed that number, and found by the next.
        alive = tree.members() or tree.members()
        # After the look: what ended before it is a zombie by now, and none is to be left.
        tree.reap()
        if not alive:
            return []
        waited = clock.awake() - since
        last = len(numbers) - 1
        if step == last and waited >= GIVE_UP_S:
            return [row.pid for row in alive]
        step_now = last if hurry is not None and hurry() else step + (waited >= interval)
        if step < step_now <= last:
            step, told, since, pause = step_now, set(), clock.awake(), _FIRST_PAUSE_S
        # Also to those that were started since the last look.
        for row in tree.first_of(alive) if step < last else alive:
            if row.key not in told:
                told.add(row.key)
                _send(row, numbers[step])
        wait(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _sequence(stop: Sequence[str]) -> list[signal.Signals]:
    numbers = [signal.Signals[f"SIG{word}"] for word in stop]
    if not numbers or numbers[-1] != signal.SIGKILL:
        # T3 holds whatever the entry says: a turn that ignores its last signal would never end.
        numbers.append(signal.SIGKILL)
    return numbers


def _send(row: Process, number: signal.Signals) -> None:
    """Send *number* to exactly this process, if it still lives."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        _send_by_pid(row, number)
        return
    try:
        fd = os.pidfd_open(row.pid)
    except ProcessLookupError:
        return
    except OSError:
        # Older kernels and some sandboxes have no such call.
        _send_by_pid(row, number)
        return
    try:
        # The descriptor holds whoever has the number now; that must still be the one we mean.
        now = find_process(row.pid)
        if now is not None and now.key == row.key:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, number)
                # A stopped process feels a signal only when it goes on.
                signal.pidfd_send_signal(fd, signal.SIGCONT)
    finally:
        os.close(fd)


def _send_by_pid(row: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(row.pid, number)
        os.kill(row.pid, signal.SIGCONT)


# As for turn processes: the package may have been found by a relative path.
_PACKAGE_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROBE = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from routines.store.probe import main; sys.exit(main(sys.argv[1:]))"
)


def run_probe(folder: str) -> int:
    """Return the exit code of `routines.store.probe` on *folder*, tried in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, _PACKAGE_HOME, folder],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode


def run_tool(words: Sequence[str], *, given: bytes, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program of the system to its end; return its exit code and what it printed.

    Args:
        words: The program's path and its arguments.
        given: What it reads on stdin.
        env: Its environment; in the language of its errors that we know.
    """
    try:
        done = subprocess.run(
            list(words),
            input=given,
            capture_output=True,
            check=False,
            timeout=_TOOL_TIMEOUT_S,
            env={**env, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {_TOOL_TIMEOUT_S:.0f} s"
    except OSError as error:
        return 127, "", os.strerror(error.errno or 0)
    out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    return done.returncode, out, err


def run_in_foreground(
    words: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None
) -> int:
    """Run a program on this terminal and return its exit code, as a shell tells it.

    Args:
        words: Its command, no shell; looked for on the PATH of *env*.
        cwd: Where it runs.
        env: Its whole environment; None for our own.

    Raises:
        UsageError: There is no such program.
    """
    program = words[0]
    if env is not None and "/" not in program:
        program = shutil.which(program, path=env.get("PATH", os.defpath)) or program
    early: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # It ends as it likes, and we wait for that: what it works in is held for so long.
        early.append(number)
        for process in child:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        process = subprocess.Popen(
            list(words),
            executable=program,
            cwd=cwd,
            env=env,
            # It must not go on where nothing holds its conversation any more.
            preexec_fn=_child_setup(),  # noqa: PLW1509 - as in `start_program`
        )
        child.append(process)
        for number in early:
            process.send_signal(number)
        return _wait_in_foreground(process)
    except OSError as error:
        raise UsageError(
            f"can't run {words[0]}: {os.strerror(error.errno or 0)}",
            hint="is it installed, and on the PATH?",
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_in_foreground(process: "subprocess.Popen[bytes]") -> int:
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal has sent it to the program too; it decides what that means.
            continue
        return code if code >= 0 else 128 - code
