"""`doctor`: a line a subject, FAIL alone makes the exit code (screens 4.4)."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from routines.operations import health, machine_facts, wake_tools_found
from routines.operations.jobs import Jobs
from routines.operations.machine_facts import Disk
from tests.surfaces.test_screens import WIDTHS, a_working_week
from tests.surfaces.world import NOW, World, berlin

SUBJECTS = "scheduler,state,clock,agents,files,outcomes,turns,sessions,wake-tools,alerts"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the machine is like, to be changed by a test."""
    facts: dict[str, object] = {"disk": Disk("local disk", 0.61, 38_200_000, counted=True)}
    monkeypatch.setattr(health, "disk_of", lambda _: facts["disk"])
    monkeypatch.setattr(health, "zone_data", lambda _: "tzdata 2026.6")
    monkeypatch.setattr(wake_tools_found, "is_installed", lambda: False)
    return facts


def line_of(ws: World, subject: str) -> tuple[int, str]:
    """The exit code, and the lines about one subject at a width where none is broken."""
    answer = ws.ask("doctor", "--only", subject, width=200)
    rows = [row for row in answer.out.splitlines() if row[6:].startswith(subject)]
    return answer.code, "\n".join(rows)


@WIDTHS
def test_doctor_says_a_line_a_subject_and_fails_by_its_exit_code(ws, looks_like, machine, width):
    a_working_week(ws)
    ws.settings("tz: Europe/Berlin\nagent: echo\n")
    ws.routine("ci-triage", 'cron: "*/15 * * * *"\nagent: codex\n')
    ws.session("routine:inbox-triage", turns=77, epoch_turns=77)

    answer = ws.ask("doctor", "--only", SUBJECTS, width=width)

    looks_like(answer, f"doctor-{width}")
    assert answer.code == 1


def test_without_only_every_subject_is_looked_at_in_one_order(ws, machine):
    ws.scheduler()
    ws.cron("daily", "0 9 * * *")

    found = json.loads(ws.ask("doctor", "--json").out)

    subjects = [one["subject"] for one in found["findings"]]
    assert list(dict.fromkeys(subjects)) == list(health.SUBJECTS)
    assert set(SUBJECTS.replace("-", " ").split(",")) <= set(subjects)
    assert {key for one in found["findings"] for key in one} == {"level", "subject", "text", "hint"}
    assert found["ok"] is (found["failed"] == 0)


def test_the_agent_that_jobs_would_use_is_looked_at_without_any_routine(ws):
    ws.settings("agent: codex\n")
    jobs = Jobs(ws.state.path, clock=ws.clock)
    assert line_of(ws, "agents")[1].endswith("none is needed: there are no routines and no jobs")

    jobs.add("look", id="a")
    jobs.add("look", id="b", agent="echo", after="1h")

    code, said = line_of(ws, "agents")
    assert code == 1
    assert "FAIL  agents      codex: not on PATH (/no/bin)" in said
    assert "ok    agents      echo" in said
    assert "used by jobs" in ws.ask("doctor", "--only", "agents", width=200).out


def test_a_job_that_names_no_agent_where_no_other_is_named_fails(ws):
    ws.settings("tz: Europe/Berlin\n")
    Jobs(ws.state.path, clock=ws.clock).add("look", id="a")

    code, said = line_of(ws, "agents")

    assert code == 1
    assert "no agent is named" in said


def test_an_agent_is_said_once_that_routines_and_jobs_use(ws):
    ws.settings("agent: codex\n")
    ws.cron("daily", "0 9 * * *")
    Jobs(ws.state.path, clock=ws.clock).add("look", id="a", session="routine:daily")

    assert line_of(ws, "agents")[1].count("codex") == 1
    assert "used by daily, jobs" in ws.ask("doctor", "--only", "agents", width=200).out


def test_a_note_does_not_fail(ws, machine):
    ws.scheduler()
    ws.session("routine:daily", turns=77, epoch_turns=77)

    answer = ws.ask("doctor", "--only", "scheduler,state,sessions")

    assert (answer.code, answer.out.splitlines()[-1]) == (0, "All is well; 1 note.")


def test_scheduler_and_state_are_told_without_a_look_at_the_routines(ws, machine):
    ws.scheduler()
    ws.routine("bad", "promt: [\n")

    assert ws.ask("doctor", "--only", "scheduler,state").code == 0
    assert ws.ask("doctor", "--only", "files").code == 1


def test_without_a_scheduler_it_says_for_how_long_and_why(ws):
    ended = NOW - timedelta(hours=2)
    ws.scheduler(alive=False, beat_at=ended, ended_at=ended, why="stopped")

    code, said = line_of(ws, "scheduler")

    assert code == 1
    assert "none is alive for 2 h (stopped); start one: routines start" in said


def test_a_scheduler_that_lives_and_gives_no_sign_is_a_failure(ws):
    """A stopped process holds its lock, so that nobody takes it for dead; and nothing fires."""
    ws.scheduler(beat_at=NOW - timedelta(minutes=12))

    code, said = line_of(ws, "scheduler")

    assert code == 1
    assert "lives and gives no sign: no beat for 12 m" in said


def test_list_and_explain_call_nothing_alive_that_doctor_fails(ws):
    ws.scheduler(beat_at=NOW - timedelta(minutes=12))
    ws.cron("daily", "10 16 * * *", since=NOW - timedelta(hours=1))

    shown = ws.ask("list").out
    assert "NO SCHEDULER since" in shown
    assert "A scheduler (pid 4121) lives and gives no sign: routines doctor" in shown
    (row,) = json.loads(ws.ask("list", "--json").out)["routines"]
    assert row["state"] == "owed"
    told = ws.ask("explain", "daily", width=200).out
    assert (
        "owed: no scheduler has been alive since Sun 29 Nov 16:06 (pid 4121 gives no sign)" in told
    )


@pytest.mark.parametrize(
    ("disk", "code", "says"),
    [
        (Disk("local disk", 0.5, 900_000, counted=True), 0, "local disk, private, less than 1 MB"),
        (Disk("network (nfs4)", 0.5, 2_000_000, counted=True), 0, "network (nfs4), private, 2 MB"),
        (Disk("", 0.5, 9_000_000, counted=False), 0, ": private, more than 9 MB, 50 % full"),
        (Disk("local disk", 0.97, 5, counted=True), 1, "97 % full; make room: routines prune"),
    ],
)
def test_state_says_what_it_lies_on(ws, machine, disk, code, says):
    ws.scheduler()
    machine["disk"] = disk

    found, said = line_of(ws, "state")

    assert found == code
    assert says in said


def test_a_state_folder_without_its_format_is_not_taken_for_a_file(ws, machine):
    ws.scheduler()
    Path(ws.state.path, "format").unlink()

    code, said = line_of(ws, "state")

    assert code == 0
    assert ".routines: its file `format` is missing; put it back from a copy" in said


def test_a_state_folder_that_others_can_read_is_a_note(ws, machine):
    ws.scheduler()
    Path(ws.state.path).chmod(0o755)

    code, said = line_of(ws, "state")

    assert code == 0
    assert said.startswith("note")
    assert "others can read it: chmod 700 ~/agents/.routines" in said


@pytest.mark.parametrize(
    "path",
    ["cursors/daily.json.corrupt", "jobs/ids/0a/0a1b.json.corrupt", "jobs/batches/1.jsonl.corrupt"],
)
def test_what_was_set_aside_is_a_failure_that_names_it(ws, machine, path):
    ws.scheduler()
    aside = Path(ws.state.at(*path.split("/")))
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.write_text("{")

    code, said = line_of(ws, "state")

    assert code == 1
    assert f"1 can't be read and were set aside, first {path}" in said


def test_a_clock_that_was_set_back_under_the_scheduler_is_a_note(ws, machine):
    assert line_of(ws, "clock")[1].endswith("tzdata 2026.6; steady; no claim in the future")
    ws.scheduler(set_back=((berlin("10:00"), timedelta(hours=1)),))

    code, said = line_of(ws, "clock")

    assert code == 0
    assert "set back by 1 h Sun 29 Nov 10:00; no slot was repeated" in said


def test_a_claim_of_the_future_is_a_failure_while_it_is_open(ws, machine):
    ws.cron("daily", "0 9 * * *")
    ws.claim("daily", NOW + timedelta(days=2))

    code, said = line_of(ws, "clock")

    assert code == 1
    assert "was claimed in the future" in said


def test_parked_turns_are_a_note_of_turns_and_a_failure_of_outcomes(ws):
    from routines.domain.record import Event

    ws.cron("daily", "0 3 * * *")
    claim = ws.claim("daily", berlin("03:00"))
    claim.append(Event.PARKED, at=berlin("03:00"), detail="refused connection")
    claim.let_go()

    assert line_of(ws, "turns")[1].endswith("none without a live owner; 1 parked")
    code, said = line_of(ws, "outcomes")
    assert code == 1
    assert "is parked; routines recover daily" in said


# Of the machine itself ----------------------------------------------------------------------------


def test_the_disk_of_a_folder_is_known_by_the_mount_that_it_is_in(tmp_path, monkeypatch):
    inside = tmp_path / "a b" / "state"
    inside.mkdir(parents=True)
    table = tmp_path / "mountinfo"
    root = os.fsencode(os.path.realpath(tmp_path)).replace(b" ", rb"\040")
    rows = [
        b"22 27 0:21 / / rw - ext4 /dev/vda rw",
        b"23 27 0:21 / " + root + rb"/a\040b rw,relatime - nfs4 server:/x rw",
        b"24 27 0:21 / " + root + rb"/a rw,relatime - tmpfs tmpfs rw",
        b"broken",
    ]
    table.write_bytes(b"\n".join(rows))
    real = open
    monkeypatch.setattr(
        "builtins.open",
        lambda path, *more, **words: real(
            table if path == "/proc/self/mountinfo" else path, *more, **words
        ),
    )

    assert machine_facts._kind(str(inside)) == "network (nfs4)"
    assert machine_facts._kind(str(tmp_path)) == "local disk"


def test_the_size_of_a_folder_is_counted_up_to_a_bound(tmp_path, monkeypatch):
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x" * 1_000_000)
    whole = machine_facts.disk_of(str(tmp_path))
    monkeypatch.setattr(machine_facts, "_MOST_COUNTED", 3)

    assert whole.size_text == "5 MB"
    assert machine_facts.disk_of(str(tmp_path)).size_text == "more than 3 MB"


def test_zones_are_read_from_the_system_or_from_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_facts.zoneinfo, "TZPATH", (str(tmp_path),))
    assert machine_facts.zone_data("Europe/Berlin").startswith("tzdata 20")

    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").touch()
    assert machine_facts.zone_data("Europe/Berlin") == "the system's tzdata"
    (tmp_path / "tzdata.zi").write_text("# version 2025b\n")
    assert machine_facts.zone_data("Europe/Berlin") == "the system's tzdata 2025b"
