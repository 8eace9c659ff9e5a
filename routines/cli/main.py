"""The command `routines`: the group, its help, and the one place where errors become exit codes.

Nothing heavy is imported here: each command is a module of its own, imported when it is called.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from routines.cli.call import Call, NearGroup, root_option, say_error, silence_stdout
from routines.domain.clock import Clock
from routines.errors import RoutinesError, WakeupRefused
from routines.version import VERSION

EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED = 2, 3, 130

# What a write to stdout says of a full or broken disk below it.
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# The module below `commands` that each command is in, in the order of the help.
COMMANDS = {
    "init": "init",
    "new": "new",
    "start": "start",
    "list": "list",
    "run": "run",
    "history": "history",
    "show": "show",
    "logs": "logs",
    "explain": "explain",
    "next": "next",
    "check": "check",
    "doctor": "doctor",
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "recover": "recover",
    "session": "session",
    "wake": "wake",
    "unwake": "unwake",
    "wakeups": "wakeups",
    "mcp": "mcp",
    "fire": "fire",
    "tick": "tick",
    "jobs": "jobs",
    "install": "install",
    "uninstall": "uninstall",
    "prune": "prune",
    "schema": "schema",
}

_HELP = """\
Give an agent a prompt on a schedule, in a conversation that lasts.

Every day    init  new  start  list  run  history  show  logs
Why, when    explain  next  check  doctor
Step in      pause  resume  cancel  recover  session
For agents   wake  unwake  wakeups  mcp
For programs fire  tick  jobs
Upkeep       install  uninstall  prune  schema

routines COMMAND --help shows one. Which folder: --root, $ROUTINES_ROOT, or the
nearest one upwards with routines.yaml or routines/.
"""


class Routines(NearGroup):
    """The group of all commands, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"routines.cli.commands.{COMMANDS[cmd_name]}")
        found: click.Command = module.command
        return found

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002
        """Return the commands by what they are for."""
        return _HELP.rstrip()


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"routines {VERSION}")
        ctx.exit()


def _json_option() -> click.Option:
    from routines.cli.call import json_option

    option = json_option()
    option.hidden = True
    return option


group = Routines(
    "routines",
    params=[
        root_option(),
        _json_option(),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="Print the version.",
            callback=_print_version,
        ),
    ],
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(
    args: Sequence[str] | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    width: int | None = None,
) -> int:
    """Run one command and return its exit code: 0, 1, 2, 3, 75 or 130.

    Args:
        args: The words after `routines`; those of this process by default.
        clock: For tests; the machine's by default.
        environ: For tests; that of this process by default.
        cwd: For tests; the current folder by default.
        width: For tests; the terminal's by default.
    """
    words = list(sys.argv[1:] if args is None else args)
    call = Call(clock=clock, environ=environ, cwd=cwd, width=width)
    call.closed = _open_what_is_closed()
    _make_output_safe()
    boundary = _Boundary(call, words)
    try:
        result = _invoke(words, call)
    except BrokenPipeError:
        # What follows something, as `history --follow`, has nobody to go on for.
        silence_stdout()
        return 0
    except BaseException as error:  # noqa: BLE001 - the one boundary; what it can't name, it saves
        return boundary.exit_code(error)
    code = result if isinstance(result, int) else 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        return boundary.exit_code(error)
    return code


def _invoke(words: list[str], call: Call) -> object:
    if _COMPLETION in os.environ:
        return group.main(words, prog_name="routines", standalone_mode=False, obj=call)
    # Not by `group.main`: it turns a reader that has gone into exit code 1 before we see it.
    with group.make_context("routines", words, obj=call) as ctx:
        return group.invoke(ctx)


# How a shell asks for completions.
_COMPLETION = "_ROUTINES_COMPLETE"


def _open_what_is_closed() -> frozenset[str]:
    """Give the null device to a standard stream that the caller closed (`>&-`); say to which.

    Else an answer would be a bug, and the next file that is opened, one of the store too, would
    get that number.
    """
    closed = set()
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_WRONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)  # the lowest that is free: the closed one
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))
            closed.add(name)
    return frozenset(closed)


def _make_output_safe() -> None:
    """Keep a narrow encoding from turning an answer into a traceback."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(ValueError, OSError):
                reconfigure(errors="backslashreplace")


class _Boundary:
    """Turns what was raised into a message and an exit code."""

    def __init__(self, call: Call, words: Sequence[str]) -> None:
        self._call = call
        # Asked of the words too: a call that could not be parsed has set nothing.
        options = words[: words.index("--")] if "--" in words else words
        self._json = "--json" in options
        self._command = next((word for word in words if word in COMMANDS), "")

    def exit_code(self, error: BaseException) -> int:
        try:
            return self._exit_code(error)
        except BrokenPipeError:
            silence_stdout()
            return int(getattr(error, "exit_code", EXIT_BUG))

    def _exit_code(self, error: BaseException) -> int:
        if isinstance(error, RoutinesError):
            # A refusal is read by a model as it stands, with its list of what is pending.
            self._say(error.as_json(), lines_kept=isinstance(error, WakeupRefused))
            return error.exit_code
        if isinstance(error, click.ClickException):
            return self._usage(error)
        if isinstance(error, click.exceptions.Exit):
            return error.exit_code
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else 1
        if isinstance(error, OSError) and error.filename is None and error.errno in _NOT_WRITTEN:
            return self._not_written(error)
        if isinstance(error, click.Abort | KeyboardInterrupt):
            self._say({"code": "interrupted", "message": "interrupted", "hint": None})
            return EXIT_INTERRUPTED
        return self._bug(error)

    def _not_written(self, error: OSError) -> int:
        """Say that the answer did not arrive; what the command did is done."""
        # Also with --json: the place for an answer is the one that is full.
        self._json = self._call.json = False
        hint = "what was asked for may have been done; its output is full or broken"
        self._say({"code": "not-written", "message": f"no answer: {error.strerror}", "hint": hint})
        silence_stdout()
        return 1

    def _usage(self, error: click.ClickException) -> int:
        if type(error).__name__ == "NoArgsIsHelpError":  # click has it from 8.2 on
            click.echo(error.format_message())
            return EXIT_USAGE
        ctx = getattr(error, "ctx", None)
        hint = getattr(error, "hint", None)
        if hint is None and ctx is not None:
            hint = f"`{ctx.command_path} --help` shows how it is called"
        message = error.format_message().rstrip(".")
        self._say({"code": "usage", "message": message, "hint": hint})
        return EXIT_USAGE

    def _bug(self, error: BaseException) -> int:
        from routines.operations.crash import save_traceback

        path = save_traceback(
            error, command=self._command, version=VERSION, environ=self._call.context.environ
        )
        self._say(
            {
                "code": "bug",
                "message": f"this is a bug in routines: {type(error).__name__}",
                "hint": f"please report it with {path}" if path else "it could not be saved",
                "path": path,
            }
        )
        return EXIT_BUG

    def _say(self, error: Mapping[str, Any], *, lines_kept: bool = False) -> None:
        if self._json or self._call.json:
            whole = {key: error.get(key) for key in ("code", "message", "hint", "path", "line")}
            self._call.answer({"error": whole})
            return
        say_error(error["message"], error.get("hint"), lines_kept=lines_kept)


if __name__ == "__main__":
    sys.exit(main())
