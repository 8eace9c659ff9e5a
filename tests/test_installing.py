"""`install` and `uninstall`: ours alone is written and removed, and what is written works."""

import json
import os
import plistlib
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from routines.cli.main import main
from tests.domain.test_service_files import as_cron_reads, systemd_words, unit_of

ROOT = "my 100% \"agents\" 'of' $HOME Ä日本"


class Machine:
    """A home with a workspace, and tools that note what they are asked."""

    def __init__(self, home: Path, capsys) -> None:
        self.home = home
        self.capsys = capsys
        self.root = home / ROOT
        self.tools = home / "bin"
        self.root.mkdir(parents=True)
        self.tools.mkdir()
        (self.root / "routines").mkdir()
        (self.root / "routines.yaml").write_text("tz: UTC\nagent: echo\n")
        (self.root / "routines" / "daily.yaml").write_text("prompt: hi\nevery: 1h\n")
        self.tool("loginctl", "echo Linger=yes")
        self.tool("systemctl", "exit 0")
        self.tool(
            "crontab",
            f'f={shlex.quote(str(home / "tab"))}; if [ "$1" = -l ]; then '
            '[ -f "$f" ] && cat "$f" || { echo "no crontab for ana" >&2; exit 1; }; '
            'else cat > "$f"; fi',
        )

    def tool(self, name: str, script: str) -> None:
        path = self.tools / name
        log = shlex.quote(str(self.home / "asked"))
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{script}\n')
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        log = self.home / "asked"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def tab(self) -> str:
        return (self.home / "tab").read_bytes().decode("utf-8", "surrogateescape")

    def ask(self, *words: str):
        environ = {"HOME": str(self.home), "PATH": f"{self.tools}:/usr/bin:/bin"}
        code = main(list(words), environ=environ, cwd=str(self.root), width=200)
        out, err = self.capsys.readouterr()
        return code, out, err

    @property
    def unit(self) -> Path:
        (path,) = (self.home / ".config" / "systemd" / "user").iterdir()
        return path


@pytest.fixture
def machine(tmp_path, capsys):
    return Machine(tmp_path / "ana", capsys)


def install(machine, *words):
    return machine.ask("install", "--with", "systemd", *words)


# systemd ------------------------------------------------------------------------------------------


def test_install_writes_a_unit_and_starts_it(machine):
    code, out, err = install(machine)

    assert (code, err) == (0, "")
    assert out.startswith("wrote ~/.config/systemd/user/routines-my-100-agents-of-home-")
    name = machine.unit.name
    assert machine.asked == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable {name}",
        f"systemctl --user restart {name}",
        f"loginctl show-user {whoami()} --property=Linger",
    ]
    unit = unit_of(machine.unit.read_text())
    words = [word.replace("$$", "$") for word in systemd_words(unit["Service"]["ExecStart"])]
    assert words[-5:] == ["--root", str(machine.root), "start", "--grace", "30s"]
    assert systemd_words(unit["Service"]["Environment"]) == [f"PATH={machine.tools}:/usr/bin:/bin"]


def whoami():
    return pwd.getpwuid(os.getuid()).pw_name


def test_installing_again_changes_nothing_and_restarts_nothing(machine):
    install(machine)
    before, inode = machine.unit.read_text(), machine.unit.stat().st_ino
    (machine.home / "asked").unlink()
    code, out, _ = install(machine)

    assert code == 0
    assert out.startswith("unchanged: ~/.config")
    assert (machine.unit.read_text(), machine.unit.stat().st_ino) == (before, inode)
    assert not [one for one in machine.asked if "restart" in one]
    assert f"systemctl --user start {machine.unit.name}" in machine.asked


def test_installing_again_writes_todays_path(machine):
    install(machine)
    before = machine.unit.read_text()
    machine.tools = machine.tools.rename(machine.home / "tools")
    code, out, _ = install(machine)

    assert (code, out.split()[0]) == (0, "wrote")
    assert machine.unit.read_text() != before
    assert str(machine.tools) in machine.unit.read_text()


def test_lingering_that_is_off_is_said(machine):
    machine.tool("loginctl", "echo Linger=no")
    _, out, _ = install(machine)

    assert "lingering is off" in out
    assert "sudo loginctl enable-linger" in out


def test_without_a_user_manager_it_is_written_and_said_not_to_run(machine):
    machine.tool("systemctl", 'echo "Failed to connect to bus: No medium found" >&2; exit 1')
    code, out, _ = install(machine)

    assert code == 1
    assert "NOT started" in out
    assert "Failed to connect to bus" in out
    assert machine.unit.exists()


@pytest.mark.parametrize("content", ["[Unit]\nDescription=mine\n", "", "edited"])
def test_file_that_is_not_ours_is_neither_overwritten_nor_removed(machine, content):
    install(machine)
    text = machine.unit.read_text() + "# mine\n" if content == "edited" else content
    machine.unit.write_text(text)
    (machine.home / "asked").unlink()
    for words in (("install", "--with", "systemd"), ("uninstall",)):
        code, _, err = machine.ask(*words)
        assert code == 1
        assert "was edited" in err if content == "edited" else "is not ours" in err
        assert machine.unit.read_text() == text
    assert not [one for one in machine.asked if one.startswith("systemctl")]


def test_uninstall_undoes_install(machine):
    install(machine)
    name, folder = machine.unit.name, machine.unit.parent
    (folder / "backup.service").write_text("[Unit]\n")
    code, out, err = machine.ask("uninstall")

    assert (code, err) == (0, "")
    assert out.startswith("removed ~/.config/systemd/user/routines-")
    assert [one.name for one in folder.iterdir()] == ["backup.service"]
    assert f"systemctl --user disable --now {name}" in machine.asked
    assert machine.ask("uninstall")[1].startswith("Nothing of ")


def test_uninstall_print_only_prints_what_would_be_removed(machine):
    assert machine.ask("uninstall", "--print")[1].startswith("Nothing of ")
    install(machine)
    (machine.home / "tab").write_text("MAILTO=ana\n")
    machine.ask("install", "--with", "cron")
    unit, tab = machine.unit.read_text(), machine.tab
    (machine.home / "asked").unlink()

    code, out, err = machine.ask("uninstall", "--print")
    found = json.loads(machine.ask("uninstall", "--print", "--json")[1])

    assert code == 0
    assert out == unit + tab.removeprefix("MAILTO=ana\n")
    assert f"would be removed: {machine.unit}" in err
    assert "would be removed: these lines of your crontab" in err
    assert [one["changed"] for one in found] == [False, False]
    assert (machine.unit.read_text(), machine.tab) == (unit, tab)
    assert not [one for one in machine.asked if one != "crontab -l"]


def test_uninstall_print_refuses_what_uninstall_would(machine):
    install(machine)
    machine.unit.write_text("mine\n")

    code, _, err = machine.ask("uninstall", "--print")

    assert (code, "is not ours" in err) == (1, True)


def test_uninstall_leaves_no_link_behind_where_systemd_does_not_answer(machine):
    install(machine)
    unit = machine.unit
    wanted = unit.parent / "default.target.wants" / unit.name
    wanted.parent.mkdir()
    wanted.symlink_to(unit)
    machine.tool("systemctl", 'echo "Failed to connect to bus" >&2; exit 1')
    code, out, _ = machine.ask("uninstall")

    assert code == 0
    assert "Failed to connect to bus" in out
    assert not unit.exists()
    assert not wanted.is_symlink()


def test_print_only_prints(machine):
    code, out, err = install(machine, "--print")

    assert code == 0
    assert "would be written to" in err
    assert unit_of(out)["Service"]["KillMode"] == "process"
    assert not (machine.home / ".config").exists()
    assert machine.asked == []
    assert not (machine.root / ".routines").exists()


@pytest.mark.skipif(
    not os.path.exists("/usr/bin/systemd-analyze"), reason="there is no systemd-analyze"
)
@pytest.mark.parametrize("odd", [False, True])
def test_systemd_finds_nothing_wrong_with_the_unit(machine, tmp_path, monkeypatch, odd):
    if odd:
        # A program of an odd name: systemd refuses some that it could quote.
        program = machine.root / "it's $odd" / "routines"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    install(machine)
    done = subprocess.run(
        ["/usr/bin/systemd-analyze", "verify", "--user", str(machine.unit)],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
        timeout=60,
    )
    if "initialize manager" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")


# launchd ------------------------------------------------------------------------------------------


def test_launch_agent_is_written_and_loaded(machine):
    machine.tool("launchctl", "exit 0")
    code, out, _ = machine.ask("install", "--with", "launchd")

    assert code == 0
    assert "started" in out
    (path,) = (machine.home / "Library" / "LaunchAgents").iterdir()
    found = plistlib.loads(path.read_bytes())
    assert found["AbandonProcessGroup"] is True
    assert found["ProgramArguments"][-5:] == [
        "--root",
        str(machine.root),
        "start",
        "--grace",
        "30s",
    ]
    domain = f"gui/{os.getuid()}"
    assert machine.asked[-1] == f"launchctl bootstrap {domain} {path}"
    assert machine.ask("uninstall")[0] == 0
    assert not path.exists()


# cron ---------------------------------------------------------------------------------------------


def test_crontab_keeps_its_other_lines(machine):
    # Also bytes that are no UTF-8: a crontab is older than that.
    others = b"MAILTO=ana\n0 9 * * * backup caf\xe9\n"
    (machine.home / "tab").write_bytes(others)
    code, _, err = machine.ask("install", "--with", "cron")

    assert (code, err) == (0, "")
    assert machine.tab.encode("utf-8", "surrogateescape").startswith(others)
    assert len(machine.tab.splitlines()) == 4
    before = machine.tab
    assert machine.ask("install", "--with", "cron")[1].startswith("unchanged: your crontab")
    assert machine.tab == before
    assert machine.ask("uninstall")[1] == "removed the line of your crontab\n"
    assert machine.tab.encode("utf-8", "surrogateescape") == others


def test_crontab_that_can_not_be_read_is_not_written(machine):
    machine.tool("crontab", 'echo "crontab: you are not allowed" >&2; exit 1')
    code, _, err = machine.ask("install", "--with", "cron")

    assert code == 1
    assert "you are not allowed" in err
    assert not (machine.home / "tab").exists()


def test_crontab_that_can_not_be_read_keeps_no_unit_installed(machine):
    install(machine)
    unit = machine.unit
    machine.tool("crontab", 'echo "crontab: you are not allowed" >&2; exit 1')
    code, out, err = machine.ask("uninstall")

    assert (code, err) == (0, "")
    assert out.startswith("removed ~/.config/systemd/user/routines-")
    assert "your crontab was not looked at: crontab -l failed: crontab: you are not" in out
    assert not unit.exists()
    # Where nothing else was found, it may be all that there is.
    code, _, err = machine.ask("uninstall")
    assert code == 1
    assert "you are not allowed" in err


def test_uninstall_that_is_refused_has_removed_nothing(machine):
    install(machine)
    machine.ask("install", "--with", "cron")
    unit, tab = machine.unit.read_text(), machine.tab
    (machine.home / "tab").write_text(tab.replace("* * * * *", "*/5 * * * *"))
    (machine.home / "asked").unlink()
    code, _, err = machine.ask("uninstall")

    assert code == 1
    assert "nothing was changed" in err
    assert machine.unit.read_text() == unit
    (machine.home / "tab").write_text(tab)
    machine.tool(
        "crontab", f'[ "$1" = -l ] && cat {shlex.quote(str(machine.home / "tab"))} || exit 1'
    )
    code, _, err = machine.ask("uninstall")
    assert code == 1
    assert "nothing was changed" in err
    assert machine.unit.read_text() == unit
    assert not [one for one in machine.asked if one.startswith("systemctl")]


def test_line_of_ours_that_was_edited_stays(machine):
    machine.ask("install", "--with", "cron")
    (machine.home / "tab").write_text(machine.tab.replace("* * * * *", "*/5 * * * *"))
    before = machine.tab
    for words in (("install", "--with", "cron"), ("uninstall",)):
        code, _, err = machine.ask(*words)
        assert code == 1
        assert "edited" in err
        assert machine.tab == before


def test_path_that_is_too_long_for_cron_is_refused(machine):
    machine.tools = Path(f"{machine.tools}:{'/x' * 600}")
    code, _, err = machine.ask("install", "--with", "cron")

    assert code == 1
    assert "longer than cron reads" in err


def test_json_says_what_was_written(machine):
    found = json.loads(install(machine, "--json")[1])

    assert (found["manager"], found["changed"], found["running"]) == ("systemd", True, True)
    assert found["path"] == str(machine.unit)
    assert found["text"] == machine.unit.read_text()
    (removed,) = json.loads(machine.ask("uninstall", "--json")[1])
    assert (removed["path"], removed["running"]) == (found["path"], False)


def test_folder_whose_name_no_file_can_hold_is_refused(machine):
    machine.root = machine.root.rename(machine.home / "two\nlines")
    for manager in ("systemd", "launchd", "cron"):
        code, _, err = machine.ask("install", "--with", manager)
        assert code == 1
        assert "can't stand in a file" in err


# What is written, run as it will be ---------------------------------------------------------------


@pytest.mark.slow
def test_command_of_the_unit_runs_a_scheduler_with_an_empty_environment(machine):
    install(machine)
    unit = unit_of(machine.unit.read_text())["Service"]
    program, *rest = systemd_words(unit["ExecStart"])
    words = [program, *(word.replace("$$", "$") for word in rest)]
    (path,) = systemd_words(unit["Environment"])
    log = (machine.home / "log").open("wb")
    process = subprocess.Popen(
        ["/usr/bin/env", "-i", path, f"HOME={machine.home}", *words],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
    )
    try:
        live = machine.root / ".routines" / "schedulers" / "live"
        until = time.monotonic() + 60
        while not list(live.glob("*.json")):
            assert process.poll() is None, (machine.home / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        (beat,) = live.glob("*.json")
        assert json.loads(beat.read_text())["path"] == path.removeprefix("PATH=")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        log.close()


@pytest.mark.slow
def test_command_of_the_crontab_line_does_a_pass_with_an_empty_environment(machine):
    machine.ask("install", "--with", "cron")
    line = machine.tab.splitlines()[-1]
    # As in a fresh clone: only what a person wrote is there.
    shutil.rmtree(machine.root / ".routines", ignore_errors=True)
    done = subprocess.run(
        ["/usr/bin/env", "-i", f"HOME={machine.home}", "/bin/sh", "-c", as_cron_reads(line)],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (machine.root / ".routines" / "tick.log").exists()
    assert (machine.root / ".routines" / "cursors" / "daily.json").exists()
