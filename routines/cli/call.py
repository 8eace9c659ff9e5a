"""One call of the command line: its options, its context, and where its answer goes.

Commands are made by `command` below, which gives each the options that all have.
"""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from routines.domain.clock import Clock
from routines.errors import UsageError, nearest

if TYPE_CHECKING:
    from routines.cli.times import Times
    from routines.operations.context import Context

# What is not a terminal gets a width that a log or a mail can show.
NOT_A_TERMINAL = 120
NARROW, WIDE = 80, 120
# A word of the command line may be of megabytes, and its error would fill the screen.
_LONGEST_SAID = 2000

_F = TypeVar("_F", bound=Callable[..., Any])


class Call:
    """What a command is called with.

    Attributes:
        root: What `--root` said, or None.
        json: Whether `--json` was given.
        closed: Which of `stdin`, `stdout` and `stderr` the caller has closed.
        reader_gone: Whether whoever read the answer has had enough of it, as `head` has.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        width: int | None = None,
    ) -> None:
        self._clock = clock
        self._environ = environ
        self._cwd = cwd
        self._width = width
        self.root: str | None = None
        self.json = False
        self.closed: frozenset[str] = frozenset()
        self.reader_gone = False

    @cached_property
    def context(self) -> "Context":
        """The context of its operation, made when it is first needed."""
        return self.fresh_context()

    def fresh_context(self) -> "Context":
        """Return a context that has looked at nothing yet, for a command that goes on for long."""
        # Here and not above: `--version` and `--help` need nothing of it.
        from routines.operations.context import Context

        return Context(
            explicit_root=self.root, environ=self._environ, cwd=self._cwd, clock=self._clock
        )

    @cached_property
    def width(self) -> int:
        """The columns of the terminal; 120 where there is none."""
        if self._width is not None:
            return self._width
        if not is_terminal():
            return NOT_A_TERMINAL
        import shutil

        return max(shutil.get_terminal_size((NARROW, 24)).columns, 40)

    @property
    def wide(self) -> bool:
        """Whether there is room for the wide layout."""
        return self.width >= WIDE

    @cached_property
    def colour(self) -> bool:
        """Whether to colour: only on a terminal, and not if NO_COLOR is set to anything."""
        environ = self.context.environ
        return is_terminal() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def times(self, routine: str | None = None) -> "Times":
        """Return how instants read: in the zone of *routine*, else of the workspace."""
        from routines.cli.times import Times

        return Times(self.context.zone_of(routine), self.context.clock.now())

    # Answering ----------------------------------------------------------------------------------

    def print(self, lines: Iterable[str]) -> None:
        """Print a screen."""
        if self.colour:
            from routines.cli.screens.table import paint

            lines = paint(lines)
        with self.while_read():
            for text in lines:
                # What a model wrote is escaped by now; click would take our own colours away.
                click.echo(text, color=self.colour)

    def answer(self, data: Any) -> None:
        """Print one value as JSON: exact, and harmless on a terminal."""
        with self.while_read():
            click.echo(json.dumps(data, ensure_ascii=is_terminal(), indent=2))

    @contextlib.contextmanager
    def while_read(self) -> Iterator[None]:
        """Print in the block; once nobody reads any more, say no more and let the command go on.

        Its exit code is what a script goes by, also behind `| head`.
        """
        try:
            yield
        except BrokenPipeError:
            self.reader_gone = True
            silence_stdout()

    def answer_line(self, data: Any) -> None:
        """Print one value as JSON on a line of its own, at once: for `--follow`."""
        click.echo(json.dumps(data, ensure_ascii=is_terminal()))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something beside the answer."""
        from routines.cli.escape import escape

        click.echo(escape(text), err=True)


def silence_stdout() -> None:
    """Let what is still to be printed go nowhere, also from the interpreter's exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())


def say_error(message: object, hint: object, *, lines_kept: bool = False) -> None:
    """Say on stderr what is wrong and what to do about it, a line each; harmless and bounded."""
    from routines.cli.escape import block, fit, line

    harmless = block if lines_kept else line
    for word, text in (("Error", message), ("Hint", hint)):
        if text:
            click.echo(f"{word}: {fit(harmless(str(text)), _LONGEST_SAID)}", err=True)


def is_terminal() -> bool:
    """Return whether the answer goes to a terminal."""
    try:
        return sys.stdout.isatty()
    except ValueError:
        return False


def _set_root(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_object(Call).root = value  # type: ignore[union-attr]


def _set_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_object(Call).json = True  # type: ignore[union-attr]


def root_option() -> click.Option:
    """Return `--root`, which the group and every command have."""
    return click.Option(
        ["--root"],
        metavar="DIR",
        help="The workspace; else $ROUTINES_ROOT, else the nearest one upwards.",
        expose_value=False,
        callback=_set_root,
    )


def json_option() -> click.Option:
    """Return `--json`, which every command has that prints a result."""
    return click.Option(
        ["--json"],
        is_flag=True,
        help="One value as JSON on stdout, also for errors.",
        expose_value=False,
        callback=_set_json,
    )


def command(name: str, *, answers: bool = True, **attrs: Any) -> Callable[[_F], click.Command]:
    """Make a function a command, with `--root` and, if it answers, `--json`.

    Args:
        name: As it is typed.
        answers: Whether it prints a result.
        **attrs: What click takes besides.
    """

    def make(function: _F) -> click.Command:
        inner: Callable[..., Any] = function

        def bound(*args: Any, **options: Any) -> Any:
            return inner(click.get_current_context().find_object(Call), *args, **options)

        wrapped = functools.update_wrapper(bound, inner)
        made = click.command(name, cls=click.Command, **attrs)(wrapped)
        made.params += [root_option(), *([json_option()] if answers else [])]
        return made

    return make


class NearGroup(click.Group):
    """A group that answers a misspelt command with the near one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* begin with.

        Raises:
            click.UsageError: There is none of that name.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = nearest(name, self.list_commands(ctx))
            error = click.UsageError(f"there is no command {name!r}", ctx)
            error.hint = (  # type: ignore[attr-defined]
                f"did you mean {ctx.command_path} {near}?"
                if near
                else f"`{ctx.command_path} --help` names them all"
            )
            raise error
        return super().resolve_command(ctx, args)


def group(name: str, *, commands: Iterable[click.Command], **attrs: Any) -> click.Group:
    """Return a group of commands."""
    made = NearGroup(name, **attrs)
    for one in commands:
        made.add_command(one)
    return made


def read_prompt(words: tuple[str, ...]) -> str:
    """Return the prompt that a command was given: its words, or all of stdin for `-`.

    Raises:
        UsageError: It is not UTF-8. At the time of the turn it could not be handed over, and
            nobody would be there to read why.
    """
    if words != ("-",):
        return _checked_utf8(" ".join(words), "the prompt")
    data = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    text = data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data
    return _checked_utf8(text, "stdin").replace("\r\n", "\n").removesuffix("\n")


def _checked_utf8(text: str, what: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        # Where it stands in bytes: that is how a person finds it in a file.
        at = len(text[: error.start].encode("utf-8", "surrogateescape"))
        raise UsageError(
            f"{what} is not UTF-8 text at byte {at}; nothing was done",
            hint="convert it first, for example with iconv -f latin1 -t utf-8",
        ) from None
    return text


def echo_output(texts: Iterable[str], *, ends: str = "", err: bool = False) -> None:
    """Print what an agent wrote: harmless on a terminal, exact elsewhere.

    Args:
        texts: Piece by piece, each printed at once.
        ends: What follows each piece.
        err: Whether it goes to stderr.
    """
    from routines.cli.escape import block

    for text in texts:
        shown = block(text) if is_terminal() else text
        # Not stripped of escape codes either: who pipes it wants what was written.
        click.echo(shown + ends, nl=False, err=err, color=True)
        sys.stdout.flush()
