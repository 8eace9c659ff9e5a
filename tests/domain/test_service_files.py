"""Unit, plist and crontab line: read back by the rules of their formats, they say what was meant."""

import configparser
import plistlib
import shlex
import subprocess
from datetime import timedelta

import pytest

from routines.domain.service_files import (
    LONGEST_CRON_LINE,
    Service,
    Standing,
    can_be_written,
    cron_lines,
    crontab_without,
    launchd_plist,
    standing,
    systemd_unit,
)

ODD = [
    "/home/ana/agents",
    "/home/ana/my agents",
    "/home/ana/100% done %h %%",
    "/home/ana/\"quoted\" and 'quoted'",
    "/home/ana/$HOME/${PATH}",
    "/home/ana/back\\slash\\",
    "/home/ana/Ägenten/日本語/🤖",
    "/home/ana/# no comment; rm -rf ~ && `id` | cat > x",
    "/home/ana/<tag>&amp;]]>--",
    "/",
]
every_root = pytest.mark.parametrize("root", ODD)


def service(root="/home/ana/agents", **changes):
    known = {
        "root": root,
        "command": ("/opt/my tools/bin/routines",),
        "options": ("--root", root),
        "environment": {"PATH": f"/usr/bin:{root}/bin"},
        "grace": timedelta(seconds=30),
        "log": f"{root}/.routines/tick.log",
    }
    return Service(**known | changes)


def unit_of(text):
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(text)
    return parser


def systemd_words(value):
    """Split a value as systemd does: quotes, C escapes, specifiers."""
    words, at = [], 0
    while at < len(value):
        if value[at] == " ":
            at += 1
            continue
        assert value[at] == '"', "each word is quoted"
        at, word = at + 1, ""
        while value[at] != '"':
            if value[at] == "\\":
                assert value[at + 1] in '"\\'
                at += 1
            elif value[at] == "%":
                assert value[at + 1] == "%", "a specifier"
                at += 1
            word += value[at]
            at += 1
        words.append(word)
        at += 1
    return words


@every_root
def test_unit_says_what_was_meant(root):
    made = service(root)
    text = systemd_unit(made)
    unit = unit_of(text)
    program, *arguments = systemd_words(unit["Service"]["ExecStart"])
    assert all("$" not in word.replace("$$", "") for word in arguments)
    words = [program, *(word.replace("$$", "$") for word in arguments)]
    assert tuple(words) == made.start
    assert systemd_words(unit["Service"]["Environment"]) == [f"PATH=/usr/bin:{root}/bin"]
    assert not any(line.endswith("\\") for line in text.splitlines())


@every_root
def test_program_of_any_name_is_begun(root):
    """systemd refuses names with quotes and the like, and env takes those with = for settings."""
    made = service(root, command=(f"{root}/bin=1/routines",))
    program, *arguments = systemd_words(unit_of(systemd_unit(made))["Service"]["ExecStart"])
    assert not set(program) & set("\"'$\\")
    words = [program, *(word.replace("$$", "$") for word in arguments)]
    assert tuple(words[-len(made.start) :]) == made.start
    assert program in ("/bin/sh", made.start[0])
    line = as_cron_reads(cron_lines(made).split("\n")[1])
    command = shlex.split(line)[shlex.split(line).index("&&") + 1 :]
    assert command[2] == "/bin/sh"
    assert tuple(command[5:-2]) == made.tick


def test_unit_leaves_turns_alone_and_waits_longer_than_the_grace():
    unit = unit_of(systemd_unit(service(grace=timedelta(minutes=5))))["Service"]
    assert (unit["KillMode"], unit["OOMPolicy"], unit["Restart"]) == (
        "process",
        "continue",
        "always",
    )
    assert int(unit["TimeoutStopSec"]) > 300 + 60
    assert '"--grace" "300s"' in unit["ExecStart"]


@every_root
def test_plist_says_what_was_meant(root):
    made = service(root)
    found = plistlib.loads(launchd_plist(made).encode())
    assert tuple(found["ProgramArguments"]) == made.start
    assert found["EnvironmentVariables"] == {"PATH": f"/usr/bin:{root}/bin"}
    assert found["AbandonProcessGroup"] is True
    assert found["KeepAlive"] is True
    assert found["RunAtLoad"] is True
    assert found["ExitTimeOut"] > 30 + 60
    assert found["Label"] == made.label


def as_cron_reads(line):
    """Return the command of a line: five fields off, and a % with a backslash is a %."""
    fields, command = line.split(" ", 5)[:5], line.split(" ", 5)[5]
    assert fields == ["*"] * 5
    assert "%" not in command.replace("\\%", "")
    return command.replace("\\%", "%")


@every_root
def test_crontab_line_says_what_was_meant(root, tmp_path):
    made = service(root, log=str(tmp_path / "100% log"))
    comment, line, end = cron_lines(made).split("\n")
    assert comment.startswith("# ")
    assert end == ""
    folder, _, command = as_cron_reads(line).partition(" && /usr/bin/env ")
    command = f"/usr/bin/env {command}"
    assert shlex.split(folder) == ["mkdir", "-p", "-m", "700", str(tmp_path)]
    words = shlex.split(command)
    assert words[:2] == ["/usr/bin/env", f"PATH=/usr/bin:{root}/bin"]
    assert tuple(words[2:-2]) == made.tick
    # And by a real shell, with a program that says what it was given.
    shown = command.replace(shlex.quote("/opt/my tools/bin/routines"), "printf '%s\\n'", 1)
    shown = shown.replace(">/dev/null", "")
    shown = shown.replace(f"PATH=/usr/bin:{root}/bin", "PATH=/usr/bin:/bin")
    if "PATH=/usr/bin:/bin" not in shown:
        return
    done = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split("\n")[:-1]) == made.tick[1:]


@every_root
def test_names_are_safe_and_tell_folders_apart(root):
    made = service(root)
    assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in made.name)
    assert len(made.name) < 60
    assert made.name == service(root).name
    assert made.name != service(root + "x").name


@every_root
@pytest.mark.parametrize("write", [systemd_unit, launchd_plist])
def test_what_was_written_is_known_as_ours_until_it_is_edited(root, write):
    made = service(root)
    text = write(made)
    assert standing(made, text) is Standing.OURS
    assert standing(made, text.replace("30s", "90s")) is Standing.EDITED
    assert standing(made, text + "# more\n") is Standing.EDITED
    assert standing(service(root + "x"), text) is Standing.FOREIGN
    assert standing(made, "[Unit]\nDescription=mine\n") is Standing.FOREIGN
    assert standing(made, "") is Standing.FOREIGN
    # With another PATH it is still ours, and is written anew.
    other = service(root, environment={"PATH": "/elsewhere"})
    assert standing(other, text) is Standing.OURS


@every_root
def test_only_our_lines_leave_a_crontab(root):
    made = service(root)
    others = "# mine\nMAILTO=ana\n0 9 * * * backup\n"
    for text in (others + cron_lines(made), cron_lines(made) + others):
        assert crontab_without(made, text) == (others, Standing.OURS)
    assert crontab_without(made, others) == (others, None)
    assert crontab_without(service(root + "x"), cron_lines(made)) == (cron_lines(made), None)
    edited = cron_lines(made).replace("* * * * *", "*/5 * * * *")
    assert crontab_without(made, edited)[1] is Standing.EDITED
    mark = cron_lines(made).split("\n")[0]
    assert crontab_without(made, f"{mark}\n0 9 * * * backup\n")[1] is Standing.EDITED


@pytest.mark.parametrize("text", ["/a\nb", "/a\rb", "/a\tb", "/a\x00b", "/a\x1b[0m", "/a\udcff"])
def test_what_no_format_can_hold_is_known(text):
    assert not can_be_written(text)


def test_longest_line_is_shorter_than_what_cron_reads():
    assert LONGEST_CRON_LINE < 998
