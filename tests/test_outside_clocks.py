"""The crontab line, the timer and the manifest of the docs say what can be run."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).parent.parent / "docs" / "outside-clocks.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def workspace(path):
    (path / "routines").mkdir()
    (path / "routines.yaml").write_text("tz: UTC\nagent: echo\n")
    (path / "routines" / "each.yaml").write_text("every: 1m\nprompt: What is new?\n")
    return path


def run(words, root, *, path="/usr/bin:/bin"):
    """Run a documented command as cron does: next to no environment, another folder."""
    command = [sys.executable, "-m", "routines", "--root", str(root), words[-1]]
    assert words[1:3] == ["--root", words[2]]
    assert words[3:] == ["tick"]
    return subprocess.run(
        command, env={"PATH": path}, cwd="/", capture_output=True, text=True, timeout=60
    )


def test_crontab_line_does_one_pass_with_next_to_no_environment(tmp_path):
    (table,) = blocks("crontab")
    setting, line = table.strip().splitlines()
    words = shlex.split(line.split(" 2>>")[0])[5:]
    assert line.startswith("* * * * * ")
    assert setting.startswith("PATH=")

    done = run(words, workspace(tmp_path))

    assert done.returncode == 0, done.stderr


def test_delivering_the_same_pass_twice_runs_a_slot_once(tmp_path):
    root = workspace(tmp_path)
    for _ in range(2):
        assert run(["routines", "--root", "x", "tick"], root).returncode == 0

    claims = list(root.glob(".routines/claims/each/*/*.jsonl"))
    assert len(claims) == len({claim.name for claim in claims})


def test_units_name_a_command_that_exists_and_leave_turns_alone():
    service, timer = (configparser.ConfigParser(strict=True) for _ in range(2))
    for parser in (service, timer):
        parser.optionxform = str
    service.read_string(blocks("ini")[0])
    timer.read_string(blocks("ini")[1])

    assert shlex.split(service["Service"]["ExecStart"])[-1] == "tick"
    assert service["Service"]["KillMode"] == "process"
    assert timer["Timer"]["OnCalendar"] == "*:0/1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_itself_reads_the_timer(tmp_path):
    for name, text in zip(("service", "timer"), blocks("ini"), strict=True):
        # The program of the page is not installed where tests run.
        unit = text.replace("/usr/local/bin/routines", sys.executable)
        (tmp_path / f"routines-tick.{name}").write_text(unit)

    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "routines-tick.timer")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr


def test_manifest_is_a_cron_job_that_repeats_nothing_by_itself():
    (text,) = blocks("yaml")
    manifest = yaml.safe_load(text)
    job = manifest["spec"]["jobTemplate"]["spec"]

    assert manifest["kind"] == "CronJob"
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["template"]["spec"]["containers"][0]["args"][-1] == "tick"
