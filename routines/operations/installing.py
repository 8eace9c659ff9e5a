"""`install` and `uninstall`: what starts a scheduler of this workspace at every login.

A file that somebody else has written, or has edited since, is left as it is.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from routines.agents.processes import run_tool
from routines.config.workspace import FoundBy
from routines.domain.service_files import (
    LONGEST_CRON_LINE,
    Manager,
    Service,
    Standing,
    can_be_written,
    cron_lines,
    crontab_without,
    launchd_plist,
    standing,
    systemd_unit,
)
from routines.errors import InstallRefused
from routines.operations.agents_found import find_program
from routines.operations.context import Context
from routines.operations.listing import search_path
from routines.store import files

_PUBLIC = 0o644
# Where `systemctl --user enable` puts a link to what starts with the user.
_WANTED = "default.target.wants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What came of `install` or `uninstall`.

    Attributes:
        manager: Who keeps the scheduler running.
        name: What it calls it.
        path: The file; None for a line of the crontab.
        text: What is written there, or would be.
        changed: Whether anything was written or removed.
        running: Whether it runs now, as far as it was told to; None where that is not ours to say.
        notes: What a person has to know or do.
    """

    manager: Manager
    name: str
    path: str | None
    text: str
    changed: bool
    running: bool | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as `install --json` shows it."""
        return {
            "manager": self.manager.value,
            "name": self.name,
            "path": self.path,
            "text": self.text,
            "changed": self.changed,
            "running": self.running,
            "notes": list(self.notes),
        }


def manager_here(context: Context) -> Manager:
    """Return who keeps programs running on this machine."""
    if sys.platform == "darwin":
        return Manager.LAUNCHD
    # There is a systemctl in many containers, and no systemd behind it.
    has_systemd = files.exists("/run/systemd/system") and _tool(context, "systemctl")
    return Manager.SYSTEMD if has_systemd else Manager.CRON


def service_of(context: Context, manager: Manager, *, grace: timedelta) -> Service:
    """Return what is to be started for the workspace.

    Raises:
        InstallRefused: A path of it can't be written in such a file.
    """
    root = context.root
    # The state of the user's own workspace is not below it: named as a turn of it would be.
    environment = {"PATH": search_path(context)}
    options: tuple[str, ...] = ("--root", root.path)
    if root.found_by is FoundBy.USER:
        options = ()
        environment |= {"ROUTINES_ROOT": root.path, "ROUTINES_STATE": root.state}
    log = os.path.join(root.state, "tick.log")
    if manager is Manager.LAUNCHD:
        log = os.path.join(context.home, "Library", "Logs", "routines.log")
    service = Service(
        root=root.path,
        command=_own_command(),
        options=options,
        environment=environment,
        grace=grace,
        log=log,
    )
    for text in (root.path, log, *service.command, *service.environment.values()):
        if not can_be_written(text):
            raise InstallRefused(
                f"{text!r} has a letter that can't stand in a file of {manager.value}",
                hint="line breaks and bytes that are no text can't; rename the folder",
            )
    return service


def _own_command() -> tuple[str, ...]:
    """Return the words that begin this very program, from any folder."""
    script = os.path.join(os.path.dirname(sys.executable), "routines")
    if os.path.isfile(script) and os.access(script, os.X_OK):
        return (script,)
    # Without -P a folder called `routines` where it is started could be taken for the package.
    return (sys.executable, "-P", "-m", "routines")


def planned(context: Context, manager: Manager, *, grace: timedelta) -> Installed:
    """Return what `install` would write, and write nothing."""
    service = service_of(context, manager, grace=grace)
    text = _text(manager, service)
    return Installed(
        manager=manager,
        name=service.name,
        path=_path(context, manager, service),
        text=text,
        changed=False,
    )


def _text(manager: Manager, service: Service) -> str:
    match manager:
        case Manager.SYSTEMD:
            return systemd_unit(service)
        case Manager.LAUNCHD:
            return launchd_plist(service)
        case Manager.CRON:
            lines = cron_lines(service)
            if len(lines.split("\n")[1].encode()) > LONGEST_CRON_LINE:
                raise InstallRefused(
                    "the line is longer than cron reads",
                    hint="the PATH is long: run install with a PATH of the folders that matter",
                )
            return lines


def _path(context: Context, manager: Manager, service: Service) -> str | None:
    if manager is Manager.CRON:
        return None
    if not context.home:
        raise InstallRefused("HOME is not set", hint="a service belongs to a user's home folder")
    if manager is Manager.LAUNCHD:
        return os.path.join(context.home, "Library", "LaunchAgents", f"{service.label}.plist")
    config = context.environ.get("XDG_CONFIG_HOME") or os.path.join(context.home, ".config")
    return os.path.join(config, "systemd", "user", f"{service.name}.service")


# Installing ---------------------------------------------------------------------------------------


def install(context: Context, manager: Manager, *, grace: timedelta) -> Installed:
    """Write what starts the scheduler at every login, and start it; again is harmless.

    Raises:
        InstallRefused: A file of that name is somebody else's, or was edited; or the crontab can't
            be read or written. Nothing was changed.
    """
    service = service_of(context, manager, grace=grace)
    text, path = _text(manager, service), _path(context, manager, service)
    if path is None:
        return _install_line(context, service, text)
    changed = _write(service, path, text)
    starters = {Manager.SYSTEMD: _start_unit, Manager.LAUNCHD: _start_agent}
    running, notes = starters[manager](context, service, path, changed=changed)
    return Installed(
        manager=manager,
        name=service.name,
        path=path,
        text=text,
        changed=changed,
        running=running,
        notes=tuple(notes),
    )


def _write(service: Service, path: str, text: str) -> bool:
    """Write *text*, unless it is there; return whether it was not."""
    found = _read(path)
    if found == text:
        return False
    _check_ours(service, path, found)
    data = text.encode()
    try:
        files.add_folder(os.path.dirname(path), mode=0o755)
        if found is None:
            if not files.create(path, data, mode=_PUBLIC):
                raise InstallRefused(f"{path} has just been written by somebody else")
        else:
            files.replace(path, data)
    except OSError as error:
        raise files.fault(error, "write", path) from error
    return True


def _read(path: str) -> str | None:
    try:
        data = files.read(path)
    except OSError as error:
        raise files.fault(error, "read", path) from error
    return None if data is None else data.decode("utf-8", "replace")


def _check_ours(service: Service, path: str, found: str | None) -> None:
    if found is None or standing(service, found) is Standing.OURS:
        return
    edited = standing(service, found) is Standing.EDITED
    raise InstallRefused(
        f"{path} {'was edited since it was written' if edited else 'is not ours'}",
        hint="nothing was changed; move it away, and put what you add into a drop-in"
        if edited
        else "nothing was changed; move it away, or remove it yourself",
        path=path,
    )


def _start_unit(
    context: Context,
    service: Service,  # noqa: ARG001 - as the other starters
    path: str,
    *,
    changed: bool,
) -> tuple[bool, list[str]]:
    unit = os.path.basename(path)
    # What runs under the old PATH goes on until it is started anew; what does not run is started
    # by both, and once: with `enable --now` a first one would be started and ended at once.
    begin = "restart" if changed else "start"
    steps = [["daemon-reload"], ["enable", unit], [begin, unit]]
    failed = _steps(context, "systemctl", [["--user", *step] for step in steps])
    notes = [] if failed is None else [failed, f"start it: systemctl --user enable --now {unit}"]
    if _lingers(context) is False:
        user = files.current_user()
        notes.append(
            "lingering is off: it stops when you log out, and starts at your next login."
            f" From boot on: sudo loginctl enable-linger {user}"
        )
    return failed is None, notes


def _lingers(context: Context) -> bool | None:
    """Return whether a user's services run without a login; None if that can't be told."""
    user = files.current_user()
    said = _run(context, ["loginctl", "show-user", user, "--property=Linger"])
    if said is not None and said[0] == 0 and said[1].strip() in ("Linger=yes", "Linger=no"):
        return said[1].strip() == "Linger=yes"
    if not files.exists("/var/lib/systemd"):
        return None
    # Whoever is not logged in is not known to loginctl; the file is what it goes by.
    return files.exists(f"/var/lib/systemd/linger/{user}")


def _start_agent(
    context: Context, service: Service, path: str, *, changed: bool
) -> tuple[bool, list[str]]:
    domain = f"gui/{os.getuid()}"
    if changed:
        # An old one with the same label is in the way; there may be none.
        _run(context, ["launchctl", "bootout", f"{domain}/{service.label}"])
    elif _steps(context, "launchctl", [["print", f"{domain}/{service.label}"]]) is None:
        return True, []
    failed = _steps(context, "launchctl", [["bootstrap", domain, path]])
    notes = [] if failed is None else [failed, f"start it: launchctl bootstrap {domain} {path}"]
    return failed is None, notes


def _install_line(context: Context, service: Service, text: str) -> Installed:
    present = _crontab(context)
    rest, whose = crontab_without(service, present)
    if whose is Standing.EDITED:
        raise InstallRefused(
            "our line of the crontab was edited since it was written",
            hint="nothing was changed; remove it with `crontab -e`, then install again",
        )
    changed = text not in present
    if changed:
        # The line writes its log there: without the folder the shell would not even begin.
        context.writable_state  # noqa: B018 - it is made here
        _set_crontab(context, _joined(rest, text))
    return Installed(
        manager=Manager.CRON,
        name=service.name,
        path=None,
        text=text,
        changed=changed,
        running=None,
        notes=(f"cron runs it each minute; what it says is in {service.log}",),
    )


def _joined(rest: str, text: str) -> str:
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return f"{rest}{text}"


class _CrontabUnread(InstallRefused):
    """`crontab -l` did not say what is in it: it is kept from this user, or is broken."""


def _crontab(context: Context) -> str:
    said = _run(context, ["crontab", "-l"])
    if said is None:
        raise InstallRefused("there is no crontab on the PATH", hint="is cron installed?")
    code, out, err = said
    if code != 0 and "no crontab" not in err.lower():
        # Written without having been read, all other lines of it would be lost.
        raise _CrontabUnread(f"crontab -l failed: {err.strip()}", hint="nothing was changed")
    return out if code == 0 else ""


def _set_crontab(context: Context, text: str) -> None:
    said = _run(context, ["crontab", "-"], given=text.encode("utf-8", "surrogateescape"))
    if said is None or said[0] != 0:
        why = "" if said is None else f": {said[2].strip()}"
        raise InstallRefused(f"the crontab could not be written{why}", hint="nothing was changed")


# Uninstalling -------------------------------------------------------------------------------------


def uninstall(context: Context) -> list[Installed]:
    """Remove what `install` wrote for this workspace, and stop it; turns under way go on.

    Raises:
        InstallRefused: A file or our line of the crontab was edited since, or is somebody else's;
            or the crontab can't be read, and nothing else was found. Nothing was changed.
    """
    found = _find(context)
    # First, since it may be refused, and then nothing has been changed.
    if found.crontab is not None:
        _set_crontab(context, found.crontab.rest)
    removed = [_remove_unit(context, unit, found.notes) for unit in found.units]
    return [*removed, *_of_crontab(context, found, changed=True)]


def to_remove(context: Context) -> list[Installed]:
    """Return what `uninstall` would remove, and remove nothing.

    Raises:
        InstallRefused: As `uninstall` does.
    """
    found = _find(context)
    units = [
        Installed(
            manager=unit.manager,
            name=unit.service.name,
            path=unit.path,
            text=unit.text,
            changed=False,
            notes=found.notes,
        )
        for unit in found.units
    ]
    return [*units, *_of_crontab(context, found, changed=False)]


def _find(context: Context) -> "_Found":
    # Everything is looked at first: what is refused half-way would leave half of it.
    units = tuple(_units(context))
    try:
        return _Found(units, _our_crontab(context))
    except _CrontabUnread as error:
        if not units:
            raise
        # Many systems keep it from some users; what was found is theirs to remove all the same.
        return _Found(units, None, (f"your crontab was not looked at: {error.message}",))


@dataclass(frozen=True, slots=True)
class _Crontab:
    """A crontab with lines of ours: what they are, and what is left without them."""

    ours: str
    rest: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """A file that `install` wrote."""

    manager: Manager
    service: Service
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class _Found:
    """All that `install` wrote for a workspace."""

    units: tuple[_Unit, ...]
    crontab: _Crontab | None
    notes: tuple[str, ...] = ()


def _units(context: Context) -> Iterator[_Unit]:
    for manager in (Manager.SYSTEMD, Manager.LAUNCHD):
        service = service_of(context, manager, grace=timedelta(seconds=30))
        path = _path(context, manager, service)
        found = None if path is None else _read(path)
        if path is None or found is None:
            continue
        _check_ours(service, path, found)
        yield _Unit(manager, service, path, found)


def _remove_unit(context: Context, unit: _Unit, notes: tuple[str, ...]) -> Installed:
    path = unit.path
    stop, after = _stopping(context, unit.manager, unit.service, path)
    failed = stop()
    try:
        files.remove(path)
        # systemd removes this itself, unless nobody answers for it.
        wanted = os.path.join(os.path.dirname(path), _WANTED, os.path.basename(path))
        if os.path.islink(wanted):
            files.remove(wanted)
    except OSError as error:
        raise files.fault(error, "remove", path) from error
    after()
    return Installed(
        manager=unit.manager,
        name=unit.service.name,
        path=path,
        text=unit.text,
        changed=True,
        running=failed is not None,
        notes=notes if failed is None else (failed, *notes),
    )


def _stopping(
    context: Context, manager: Manager, service: Service, path: str
) -> tuple[Callable[[], str | None], Callable[[], object]]:
    if manager is Manager.SYSTEMD:
        unit = os.path.basename(path)
        return (
            lambda: _steps(context, "systemctl", [["--user", "disable", "--now", unit]]),
            lambda: _run(context, ["systemctl", "--user", "daemon-reload"]),
        )
    label = f"gui/{os.getuid()}/{service.label}"
    return lambda: _steps(context, "launchctl", [["bootout", label]]), lambda: None


def _our_crontab(context: Context) -> _Crontab | None:
    """Return the crontab if lines of ours are in it, else None."""
    if not _tool(context, "crontab"):
        return None
    service = service_of(context, Manager.CRON, grace=timedelta(seconds=30))
    whole = _crontab(context)
    rest, whose = crontab_without(service, whole)
    if whose is Standing.EDITED:
        raise InstallRefused(
            "our line of the crontab was edited since it was written",
            hint="nothing was changed; remove it with `crontab -e`",
        )
    return None if whose is None else _Crontab(_missing(whole, rest), rest)


def _missing(whole: str, rest: str) -> str:
    """Return the lines of *whole* that *rest* does not have, which stand together."""
    lines, left = whole.split("\n"), rest.split("\n")
    pairs = enumerate(zip(lines, left, strict=False))
    at = next((number for number, (one, other) in pairs if one != other), len(left))
    return "".join(f"{line}\n" for line in lines[at : at + len(lines) - len(left)])


def _of_crontab(context: Context, found: _Found, *, changed: bool) -> list[Installed]:
    if found.crontab is None:
        return []
    service = service_of(context, Manager.CRON, grace=timedelta(seconds=30))
    return [
        Installed(
            manager=Manager.CRON,
            name=service.name,
            path=None,
            text=found.crontab.ours,
            changed=changed,
        )
    ]


# Tools --------------------------------------------------------------------------------------------


def _tool(context: Context, name: str) -> bool:
    return find_program(name, path=search_path(context), cwd=context.cwd) is not None


def _run(
    context: Context, words: Sequence[str], *, given: bytes = b""
) -> tuple[int, str, str] | None:
    """Return exit code and what a tool printed; None if it is not there."""
    program = find_program(words[0], path=search_path(context), cwd=context.cwd)
    if program is None:
        return None
    return run_tool([program, *words[1:]], given=given, env=context.environ)


def _steps(context: Context, tool: str, steps: Sequence[Sequence[str]]) -> str | None:
    """Run a tool several times; return what went wrong first, in words, or None."""
    for step in steps:
        said = _run(context, [tool, *step])
        if said is None:
            return f"{tool} is not on the PATH"
        code, out, err = said
        if code != 0:
            why = (err.strip() or out.strip() or f"exit {code}").splitlines()[-1]
            return f"{tool} {' '.join(step)}: {why}"
    return None
