"""The image and the compose file: parsed as far as this machine can, and what they say is so."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from routines.cli.main import COMMANDS, main
from routines.domain.durations import parse_span
from tests.test_readme import REPOSITORY

FOLDER = REPOSITORY / "docs" / "docker"


def instructions():
    text = (FOLDER / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(" ", 1)) for line in joined.splitlines()]


def of(name):
    return [rest for word, rest in instructions() if word == name]


@pytest.fixture
def compose():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["routines"]


def test_image_starts_the_scheduler_without_a_shell_and_not_as_root():
    (entry,), (command,) = of("ENTRYPOINT"), of("CMD")
    assert json.loads(entry) == ["routines"]
    assert json.loads(command)[0] == "start"
    assert of("USER") == ["agent"]


def test_image_and_compose_ask_the_same_for_health(compose):
    (health,) = of("HEALTHCHECK")
    words = json.loads(health[health.index("[") :])
    assert ["CMD", *words] == compose["healthcheck"]["test"]
    assert words == ["routines", "doctor", "--only", "scheduler"]


def test_words_in_the_files_are_commands_of_the_program(compose, capsys):
    for words in (json.loads(of("CMD")[0]), compose["healthcheck"]["test"][2:]):
        assert words[0] in COMMANDS
        assert main([*words, "--help"]) == 0
    capsys.readouterr()


def test_stop_is_given_longer_than_the_grace_and_the_signals_after_it(compose):
    words = json.loads(of("CMD")[0])
    grace = parse_span(words[words.index("--grace") + 1])
    assert parse_span(compose["stop_grace_period"]) >= grace + parse_span("90s")
    assert compose["init"] is True


def test_state_is_a_volume_at_the_folder_that_the_image_made(compose):
    volumes = [one.split(":") for one in compose["volumes"]]
    (state,) = [place for source, place in volumes if source == "state"]
    assert state == "/workspace/.routines"
    assert any(state in run and "chown" in run for run in of("RUN"))
    assert compose["environment"]["ROUTINES_ROOT"] == "/workspace"
    assert compose["build"]["dockerfile"] == "docs/docker/Dockerfile"
    assert (FOLDER / compose["build"]["context"]).resolve() == Path(REPOSITORY).resolve()


def test_docker_reads_the_compose_file():
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("there is no docker")
    found = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("docker has no compose")
    done = subprocess.run(
        [docker, "compose", "--file", str(FOLDER / "compose.yaml"), "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    service = json.loads(done.stdout)["services"]["routines"]
    assert service["init"] is True
    assert service["stop_grace_period"] == "2m0s"
