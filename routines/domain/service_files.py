"""What starts a scheduler at every login: a systemd unit, a launchd plist, a crontab line, as text.

Each is written with today's PATH and workspace, quoted by the rules of its format, and carries a
mark that says whose it is and whether it is still as it was written.
"""

import hashlib
import plistlib
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

# Turns get the grace, then their programs get signals 10 s apart, and what is left is settled. A
# manager that kills before that leaves turns that nobody settles until the next start.
_MORE_THAN_GRACE = timedelta(seconds=90)
# Vixie's cron reads so much of a line; what is longer it cuts in silence.
LONGEST_CRON_LINE = 990
_MARK = re.compile(r"routines install ([0-9a-f]{16}) ([0-9a-f]{16})", re.ASCII)
_SLUG = 24


class Manager(StrEnum):
    """Who keeps the scheduler running."""

    SYSTEMD = "systemd"
    LAUNCHD = "launchd"
    CRON = "cron"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is to be started, and how.

    Attributes:
        root: The workspace; absolute.
        command: The words that the command `routines` is begun with, the program's path first.
        options: Words before the subcommand: `--root` and the workspace, or none.
        environment: What is set for it: PATH.
        grace: How long turns get at a stop.
        log: The file that what it says goes to, where nobody else keeps that.
    """

    root: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    environment: Mapping[str, str]
    grace: timedelta
    log: str

    @property
    def id(self) -> str:
        """What tells its workspace from others: the same for the same folder."""
        return hashlib.sha256(self.root.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def name(self) -> str:
        """`routines-agents-3f0a9c1b`: made from the workspace, and safe in every format."""
        last = self.root.rstrip("/").rpartition("/")[2]
        slug = re.sub(r"[^a-z0-9]+", "-", last.lower(), flags=re.ASCII).strip("-")[:_SLUG]
        return "-".join(part for part in ("routines", slug.strip("-"), self.id[:8]) if part)

    @property
    def label(self) -> str:
        """The same as a launchd label."""
        return f"io.github.agent-{self.name}"

    @property
    def start(self) -> tuple[str, ...]:
        """The words that run the scheduler."""
        grace = f"{int(self.grace.total_seconds())}s"
        return (*self.command, *self.options, "start", "--grace", grace)

    @property
    def tick(self) -> tuple[str, ...]:
        """The words that do one pass."""
        return (*self.command, *self.options, "tick")

    @property
    def stop_seconds(self) -> int:
        """How long a manager has to wait for its end before it kills."""
        return int((self.grace + _MORE_THAN_GRACE).total_seconds())


def can_be_written(text: str) -> bool:
    """Return whether *text* may stand in all of the formats: no line break, no odd byte."""
    return text.isprintable() and not any("\ud800" <= letter <= "\udfff" for letter in text)


# Whose it is --------------------------------------------------------------------------------------


def mark(service: Service, body: str) -> str:
    """Return what says whose *body* is, and what it was when it was written."""
    return f"routines install {service.id} {_digest(body)}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Standing(StrEnum):
    """Whose a file is."""

    OURS = "ours"
    EDITED = "edited"
    FOREIGN = "foreign"


def standing(service: Service, text: str) -> Standing:
    """Return whose a file with the content *text* is: it, as `systemd_unit` and others wrote it."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = _MARK.search(line)
        if found is None or found[1] != service.id:
            continue
        body = "\n".join(lines[:at] + lines[at + 1 :])
        return Standing.OURS if found[2] == _digest(body) else Standing.EDITED
    return Standing.FOREIGN


# systemd ------------------------------------------------------------------------------------------


def systemd_unit(service: Service) -> str:
    """Return the content of a user unit."""
    start = (
        _by_shell(service.start) if _ODD_FOR_SYSTEMD & set(service.command[0]) else service.start
    )
    words = [_systemd_word(word, program=at == 0) for at, word in enumerate(start)]
    environment = [
        f"Environment={_systemd_quoted(f'{name}={value}')}"
        for name, value in service.environment.items()
    ]
    lines = [
        '# "routines install" writes this anew, "routines uninstall" removes it.',
        "[Unit]",
        f"Description=routines of {_systemd_text(service.root)}",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(words)}",
        *environment,
        # Turns have processes of their own: a stop or a crash of the scheduler must not end them.
        "KillMode=process",
        # One agent that takes all memory must not take the scheduler and all other turns with it.
        "OOMPolicy=continue",
        f"TimeoutStopSec={service.stop_seconds}",
        "Restart=always",
        "RestartSec=10",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    body = "\n".join(lines)
    return f"# {mark(service, body)}\n{body}"


# With one of these in the name of a program systemd refuses the unit, however it is quoted.
_ODD_FOR_SYSTEMD = frozenset("\"'\\$")


def _by_shell(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words that run *words*, and begin with a program of a plain name."""
    return ("/bin/sh", "-c", 'exec "$0" "$@"', *words)


def _systemd_text(text: str) -> str:
    # Anywhere in a unit % begins a specifier; a backslash at the end would join the next line.
    return text.replace("%", "%%").rstrip("\\")


def _systemd_quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{inner}"'


def _systemd_word(word: str, *, program: bool) -> str:
    quoted = _systemd_quoted(word)
    # Variables are put into arguments and not into the program's own name.
    return quoted if program else quoted.replace("$", "$$")


# launchd ------------------------------------------------------------------------------------------


def launchd_plist(service: Service) -> str:
    """Return the content of a launch agent."""
    data = {
        "Label": service.label,
        "ProgramArguments": list(service.start),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": True,
        # Turns have processes of their own: launchd must not end them with the scheduler.
        "AbandonProcessGroup": True,
        "ExitTimeOut": service.stop_seconds,
        "ThrottleInterval": 10,
        "StandardOutPath": service.log,
        "StandardErrorPath": service.log,
    }
    body = plistlib.dumps(data, sort_keys=False).decode("utf-8")
    head, rest = body.split("\n", 1)
    return f"{head}\n<!-- {mark(service, body)} -->\n{rest}"


# cron ---------------------------------------------------------------------------------------------


def cron_command(service: Service) -> str:
    """Return the shell command of the line, as a shell reads it."""
    environment = [f"{name}={value}" for name, value in service.environment.items()]
    # By env, since the shell that a crontab names may be none that knows assignments.
    # What has a = before the program's name, env takes for another assignment.
    tick = _by_shell(service.tick) if "=" in service.command[0] else service.tick
    words = shlex.join(["/usr/bin/env", *environment, *tick])
    # The shell opens the log before anything runs: without its folder, which only a first pass
    # makes (a fresh clone has none), no pass would ever run.
    folder = shlex.join(["mkdir", "-p", "-m", "700", posixpath.dirname(service.log)])
    return f"{folder} && {words} >/dev/null 2>>{shlex.quote(service.log)}"


def cron_lines(service: Service) -> str:
    """Return the two lines of a crontab: the mark, and what is run each minute."""
    # cron makes a line break of a % that has no backslash before it.
    body = f"* * * * * {cron_command(service).replace('%', chr(92) + '%')}"
    return f"# {mark(service, body)}\n{body}\n"


def crontab_without(service: Service, text: str) -> tuple[str, Standing | None]:
    """Return a crontab without our lines, and whose they were; None if there are none."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = _MARK.search(line)
        if not line.startswith("#") or found is None or found[1] != service.id:
            continue
        body = lines[at + 1] if at + 1 < len(lines) else ""
        whose = Standing.OURS if found[2] == _digest(body) else Standing.EDITED
        return "\n".join(lines[:at] + lines[at + 2 :]), whose
    return text, None
