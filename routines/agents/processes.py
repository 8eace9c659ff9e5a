"""The one module that starts processes: an agent's, a turn's, and programs of the system.

A test holds that no other does. Who lives is seen by `process_table`, and ended by `trees`.
"""

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from routines.errors import UsageError
from routines.store import files

# What is started here, and what starting it may raise beside OSError. Others have these for their
# annotations and `except`: with all of subprocess at hand the next one would start it there.
Child = subprocess.Popen[bytes]
SetupFailed = subprocess.SubprocessError

_PR_SET_PDEATHSIG = 1
_LINUX = sys.platform == "linux"
# Left ignored by `nohup`, by a shell's `&` or by ourselves, they would stay so in the agent, and
# its stop sequence would begin with signals that it never feels.
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
# A service manager stops a scheduler before it answers, and that may take its grace.
_TOOL_TIMEOUT_S = 180.0
_PS_TIMEOUT_S = 10.0

# As for turn processes: the package may have been found by a relative path.
_PACKAGE_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROBE = (
    "import sys; sys.path[0] = sys.argv.pop(1); "
    "from routines.store.probe import main; sys.exit(main(sys.argv[1:]))"
)


# For a turn -----------------------------------------------------------------------------------


@functools.cache
def find_prctl() -> Callable[[int, int], bool] | None:
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


def start_program(
    words: Sequence[bytes], *, program: str, env: Mapping[str, str], cwd: str, with_stdin: bool
) -> Child:
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
        env={env_bytes(key): env_bytes(value) for key, value in env.items()},
        start_new_session=True,
        # Safe beside other threads too: between fork and exec it makes a few system calls that
        # were looked up before, takes no lock and imports nothing.
        preexec_fn=_child_setup(),  # noqa: PLW1509
    )


def env_bytes(text: str) -> bytes:
    """Return *text* of an environment as the kernel has it, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def env_text(data: bytes) -> str:
    """Return the text that `env_bytes` made *data* of."""
    return data.decode("utf-8", "surrogateescape")


def _child_setup() -> Callable[[], None]:
    prctl = find_prctl()
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
) -> Child:
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
            env={env_bytes(key): env_bytes(value) for key, value in env.items()},
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        files.close(stderr)


# For us -------------------------------------------------------------------------------------


def ask_system(*words: str) -> str:
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
    child: list[Child] = []

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
            # It must not go on where nothing holds its conversation any more. What it starts itself
            # is not reached by that, and is known by a mark in *env* (`engine.opened`).
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


def _wait_in_foreground(process: Child) -> int:
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal has sent it to the program too; it decides what that means.
            continue
        return code if code >= 0 else 128 - code
